//! EC2 and STS: flat parameters in, XML out.

use std::collections::BTreeMap;

use super::answer::{Answer, page};
use super::described::{Described, DescribedAccount, DescribedInstance, DescribedRegion};

/// The parameters of a request.
pub(super) type Form = BTreeMap<String, String>;

/// Reads a form.
pub(super) fn form(body: &str) -> Form {
    let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (decode(key), decode(value))).collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || {
                    rest.next()
                        .and_then(|one| char::from(one).to_digit(16))
                        .unwrap_or_default()
                };
                u8::try_from(digit() * 16 + digit()).unwrap_or_default()
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The filters of a request, by name.
fn filters(form: &Form) -> BTreeMap<&str, Vec<&str>> {
    let mut found = BTreeMap::new();
    for at in 1.. {
        let Some(name) = form.get(&format!("Filter.{at}.Name")) else {
            break;
        };
        let values = (1..).map_while(|value| form.get(&format!("Filter.{at}.Value.{value}")));
        found.insert(name.as_str(), values.map(String::as_str).collect());
    }
    found
}

/// A refusal: code and message.
type Refused = (&'static str, String);

fn only<'a>(form: &'a Form, known: &str) -> Result<Vec<&'a str>, Refused> {
    let mut filters = filters(form);
    let values = filters.remove(known);
    if let Some(other) = filters.keys().next() {
        return Err((
            "InvalidParameterValue",
            format!("The filter '{other}' is invalid"),
        ));
    }
    Ok(values.unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// An element with a text; none if the text is empty.
fn element(out: &mut String, name: &str, text: &str) {
    if !text.is_empty() {
        out.push_str(&format!("<{name}>{}</{name}>", escape(text)));
    }
}

fn zone_id<'a>(region: &'a DescribedRegion, name: &str) -> &'a str {
    let mut zones = region.zones.iter();
    zones.find(|(zone, _)| zone == name).map_or("", |(_, id)| id)
}

fn instance(out: &mut String, one: &DescribedInstance, region: &DescribedRegion, owner: &str) {
    out.push_str("<item>");
    element(out, "reservationId", &one.id.replacen("i-", "r-", 1));
    element(out, "ownerId", owner);
    out.push_str("<groupSet/><instancesSet><item>");
    element(out, "instanceId", &one.id);
    element(out, "imageId", "ami-0123456789abcdef0");
    out.push_str("<instanceState>");
    element(out, "code", "16");
    element(out, "name", &one.state);
    out.push_str("</instanceState>");
    let number = one.id.trim_start_matches("i-");
    element(out, "privateDnsName", &format!("ip-{number}.ec2.internal"));
    element(out, "instanceType", &one.instance_type);
    element(out, "launchTime", &one.launched);
    out.push_str("<placement>");
    element(out, "availabilityZone", &one.zone);
    element(out, "availabilityZoneId", zone_id(region, &one.zone));
    element(out, "tenancy", &one.tenancy);
    out.push_str("</placement>");
    element(out, "instanceLifecycle", &one.lifecycle);
    element(out, "capacityReservationId", &one.capacity_reservation);
    element(out, "usageOperation", &one.usage_operation);
    out.push_str("<tagSet>");
    for (key, value) in &one.tags {
        out.push_str("<item>");
        element(out, "key", key);
        element(out, "value", value);
        out.push_str("</item>");
    }
    out.push_str("</tagSet></item></instancesSet></item>");
}

/// The answer of EC2 to an account in a region.
pub(super) fn answer(
    action: &str,
    form: &Form,
    described: &Described,
    account: &DescribedAccount,
    region_name: &str,
) -> Result<Answer, Refused> {
    let Some(region) = account.regions.get(region_name) else {
        return Err(("AuthFailure", format!("no such region: {region_name}")));
    };
    let token = form.get("NextToken").map(String::as_str);
    let asked = form
        .get("MaxResults")
        .and_then(|text| text.parse().ok())
        .unwrap_or(1000);
    if asked > 1000 {
        return Err(("InvalidParameterValue", "MaxResults is over 1000".to_owned()));
    }
    let limit = described.page;
    let invalid = |message| ("InvalidNextToken", message);
    let mut rows = String::new();
    let (set, next) = match action {
        "DescribeAvailabilityZones" => {
            for (name, id) in &region.zones {
                rows.push_str("<item>");
                element(&mut rows, "zoneName", name);
                element(&mut rows, "zoneState", "available");
                element(&mut rows, "regionName", region_name);
                element(&mut rows, "zoneId", id);
                rows.push_str("</item>");
            }
            ("availabilityZoneInfo", None)
        }
        "DescribeInstances" => {
            let states = only(form, "instance-state-name")?;
            let all: Vec<&DescribedInstance> = region
                .instances
                .iter()
                .filter(|one| states.is_empty() || states.contains(&one.state.as_str()))
                .collect();
            let (shown, next) = page(&all, token, asked, limit).map_err(invalid)?;
            for one in shown {
                instance(&mut rows, one, region, &account.id);
            }
            ("reservationSet", next)
        }
        "DescribeReservedInstances" => {
            let states = only(form, "state")?;
            let all = region.reserved.iter();
            for one in all.filter(|one| states.is_empty() || states.contains(&one.state.as_str())) {
                rows.push_str("<item>");
                element(&mut rows, "reservedInstancesId", &one.id);
                element(&mut rows, "instanceType", &one.instance_type);
                element(
                    &mut rows,
                    "availabilityZone",
                    one.zone.as_deref().unwrap_or_default(),
                );
                element(&mut rows, "start", &one.start);
                element(&mut rows, "end", &one.end);
                element(&mut rows, "duration", "31536000");
                element(&mut rows, "fixedPrice", &one.fixed_price);
                element(&mut rows, "usagePrice", "0.0");
                element(&mut rows, "instanceCount", &one.count.to_string());
                element(&mut rows, "productDescription", &one.product);
                element(&mut rows, "state", &one.state);
                element(&mut rows, "instanceTenancy", &one.tenancy);
                element(&mut rows, "currencyCode", "USD");
                element(&mut rows, "offeringClass", "standard");
                element(&mut rows, "offeringType", "Partial Upfront");
                let scope = match one.zone {
                    Some(_) => "Availability Zone",
                    None => "Region",
                };
                element(&mut rows, "scope", scope);
                rows.push_str("<recurringCharges><item><frequency>Hourly</frequency>");
                element(&mut rows, "amount", &one.hourly);
                rows.push_str("</item></recurringCharges></item>");
            }
            ("reservedInstancesSet", None)
        }
        "DescribeCapacityReservations" => {
            let states = only(form, "state")?;
            let all: Vec<_> = region
                .capacity
                .iter()
                .filter(|one| states.is_empty() || states.contains(&one.state.as_str()))
                .collect();
            let (shown, next) = page(&all, token, asked, limit).map_err(invalid)?;
            for one in shown {
                let owner = if one.owner.is_empty() {
                    &account.id
                } else {
                    &one.owner
                };
                rows.push_str("<item>");
                element(&mut rows, "capacityReservationId", &one.id);
                element(&mut rows, "ownerId", owner);
                element(&mut rows, "availabilityZone", &one.zone);
                element(&mut rows, "availabilityZoneId", zone_id(region, &one.zone));
                element(&mut rows, "instanceType", &one.instance_type);
                element(&mut rows, "instancePlatform", &one.platform);
                element(&mut rows, "tenancy", "default");
                element(&mut rows, "totalInstanceCount", &one.count.to_string());
                element(&mut rows, "state", &one.state);
                element(&mut rows, "startDate", &one.start);
                element(&mut rows, "endDateType", "unlimited");
                element(&mut rows, "createDate", &one.start);
                element(&mut rows, "reservationType", "default");
                rows.push_str("</item>");
            }
            ("capacityReservationSet", next)
        }
        "DescribeSpotPriceHistory" => {
            let products = only(form, "product-description")?;
            let all: Vec<_> = described
                .spot
                .iter()
                .filter(|one| one.region == region_name)
                .filter(|one| products.is_empty() || products.contains(&one.product.as_str()))
                .filter_map(|one| {
                    let mut zones = region.zones.iter();
                    Some((one, zones.find(|(_, id)| *id == one.zone_id)?))
                })
                .collect();
            let (shown, next) = page(&all, token, asked, limit).map_err(invalid)?;
            for (one, (zone, id)) in shown {
                rows.push_str("<item>");
                element(&mut rows, "instanceType", &one.instance_type);
                element(&mut rows, "productDescription", &one.product);
                element(&mut rows, "spotPrice", &one.price);
                element(&mut rows, "timestamp", &one.since);
                element(&mut rows, "availabilityZone", zone);
                element(&mut rows, "availabilityZoneId", id);
                rows.push_str("</item>");
            }
            ("spotPriceHistorySet", next)
        }
        other => return Err(("InvalidAction", format!("The action {other} is not valid"))),
    };
    let mut body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>0</requestId><{set}>{rows}</{set}>"
    );
    element(&mut body, "nextToken", &next.unwrap_or_default());
    body.push_str(&format!("</{action}Response>"));
    Ok(Answer::xml(body))
}

/// The answer of STS about who somebody is.
pub(super) fn identity(account: &str) -> Answer {
    Answer::xml(format!(
        "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><GetCallerIdentityResult><Arn>arn:aws:iam::{account}:role/collect</Arn><UserId>AROA</UserId><Account>{account}</Account></GetCallerIdentityResult><ResponseMetadata><RequestId>0</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
    ))
}

/// The answer of STS to whoever assumes a role.
pub(super) fn assumed(role_arn: &str, key: &str, token: &str, expiration: &str) -> Answer {
    Answer::xml(format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><AssumedRoleUser><AssumedRoleId>AROA:veneer</AssumedRoleId><Arn>{role_arn}/veneer</Arn></AssumedRoleUser><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret-of-{key}</SecretAccessKey><SessionToken>{token}</SessionToken><Expiration>{expiration}</Expiration></Credentials></AssumeRoleResult><ResponseMetadata><RequestId>0</RequestId></ResponseMetadata></AssumeRoleResponse>"
    ))
}

//! Savings Plans, the price list and billing preferences: JSON in, JSON out.

use serde_json::{Value, json};

use super::answer::{Answer, page};
use super::described::{Described, DescribedAccount, DescribedPlan, DescribedPrice, DescribedRate};

/// A refusal: code and message.
type Refused = (&'static str, String);

/// Refuses what the API does not know.
fn fields(request: &Value, known: &[&str]) -> Result<(), String> {
    let fields = request.as_object().into_iter().flat_map(|fields| fields.keys());
    match fields.into_iter().find(|key| !known.contains(&key.as_str())) {
        Some(other) => Err(format!("{other} is not known")),
        None => Ok(()),
    }
}

fn texts(value: Option<&Value>) -> Vec<&str> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn size(request: &Value, key: &str, most: usize) -> Result<usize, String> {
    match request.get(key) {
        None | Some(Value::Null) => Ok(most),
        Some(value) => {
            let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
            let size = size.filter(|size| (1..=most).contains(size));
            size.ok_or_else(|| format!("{key} is {value}; it must be between 1 and {most}"))
        }
    }
}

/// The answer of Savings Plans.
pub(super) fn savings_plans(
    action: &str,
    request: &Value,
    described: &Described,
    account: &DescribedAccount,
) -> Result<Answer, Refused> {
    let invalid = |message| ("ValidationException", message);
    let asked = size(request, "maxResults", 1000).map_err(invalid)?;
    let token = text(request, "nextToken");
    let (mut body, next) = match action {
        "DescribeSavingsPlans" => {
            let known = [
                "savingsPlanArns",
                "savingsPlanIds",
                "nextToken",
                "maxResults",
                "states",
                "filters",
            ];
            fields(request, &known).map_err(invalid)?;
            let states = texts(request.get("states"));
            let ids = texts(request.get("savingsPlanIds"));
            let all: Vec<&DescribedPlan> = account
                .plans
                .iter()
                .filter(|plan| states.is_empty() || states.contains(&plan.state.as_str()))
                .filter(|plan| ids.is_empty() || ids.contains(&plan.id.as_str()))
                .collect();
            let (shown, next) = page(&all, token, asked, described.page).map_err(invalid)?;
            let shown: Vec<Value> = shown.iter().map(|plan| plan_json(plan, &account.id)).collect();
            (json!({"savingsPlans": shown}), next)
        }
        "DescribeSavingsPlanRates" => {
            fields(request, &["savingsPlanId", "filters", "nextToken", "maxResults"]).map_err(invalid)?;
            let id = text(request, "savingsPlanId").unwrap_or_default();
            let plan = account.plans.iter().find(|plan| plan.id == id);
            let Some(plan) = plan else {
                return Err(("ResourceNotFoundException", format!("no plan {id}")));
            };
            let filters = request.get("filters").and_then(Value::as_array);
            let mut all: Vec<&DescribedRate> = plan.rates.iter().collect();
            for filter in filters.into_iter().flatten() {
                let values = texts(filter.get("values"));
                let name = text(filter, "name").unwrap_or_default();
                let property: fn(&DescribedRate) -> &str = match name {
                    "region" => |rate| &rate.region,
                    "instanceType" => |rate| &rate.instance_type,
                    "productDescription" => |rate| &rate.product,
                    "tenancy" => |rate| &rate.tenancy,
                    "usageType" => |rate| &rate.usage_type,
                    "operation" => |rate| &rate.operation,
                    "productType" => |_| "EC2",
                    "serviceCode" => |_| "AmazonEC2",
                    other => return Err(invalid(format!("{other} is no filter"))),
                };
                all.retain(|rate| values.contains(&property(rate)));
            }
            let (shown, next) = page(&all, token, asked, described.page).map_err(invalid)?;
            let shown: Vec<Value> = shown.iter().map(|rate| rate_json(rate)).collect();
            (json!({"savingsPlanId": id, "searchResults": shown}), next)
        }
        other => return Err(("UnknownOperationException", other.to_owned())),
    };
    if let (Some(fields), Some(next)) = (body.as_object_mut(), next) {
        fields.insert("nextToken".to_owned(), next.into());
    }
    Ok(Answer::json("savingsplans", &body))
}

fn plan_json(plan: &DescribedPlan, account: &str) -> Value {
    let mut json = json!({
        "offeringId": format!("offering-{}", plan.id), "savingsPlanId": plan.id, "savingsPlanArn": plan.arn(account),
        "description": format!("1 year No Upfront {} Savings Plan", plan.kind),
        "start": plan.start, "end": plan.end, "state": plan.state, "savingsPlanType": plan.kind,
        "paymentOption": "No Upfront", "productTypes": ["EC2", "Fargate", "Lambda"], "currency": "USD",
        "commitment": plan.commitment, "upfrontPaymentAmount": "0.0", "recurringPaymentAmount": plan.commitment,
        "termDurationInSeconds": 31_536_000, "tags": {},
    });
    if let Some(fields) = json.as_object_mut().filter(|_| plan.kind == "EC2Instance") {
        fields.insert("ec2InstanceFamily".to_owned(), plan.family.as_str().into());
        fields.insert("region".to_owned(), plan.region.as_str().into());
    }
    json
}

fn rate_json(rate: &DescribedRate) -> Value {
    let properties = [
        ("region", &rate.region),
        ("instanceType", &rate.instance_type),
        ("productDescription", &rate.product),
        ("tenancy", &rate.tenancy),
    ];
    let properties: Vec<Value> = properties
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    json!({
        "rate": rate.rate, "currency": "USD", "unit": "Hrs", "productType": "EC2", "serviceCode": "AmazonEC2",
        "usageType": rate.usage_type, "operation": rate.operation, "properties": properties,
    })
}

/// The states of capacity in which the price list has every instance; only one of them is what an instance costs.
const CAPACITY: [&str; 3] = [
    "AllocatedCapacityReservation",
    "UnusedCapacityReservation",
    "Used",
];

/// The answer of the price list.
pub(super) fn pricing(action: &str, request: &Value, described: &Described) -> Result<Answer, Refused> {
    let invalid = |message| ("InvalidParameterException", message);
    if action != "GetProducts" {
        return Err(("UnknownOperationException", action.to_owned()));
    }
    let known = [
        "ServiceCode",
        "Filters",
        "FormatVersion",
        "NextToken",
        "MaxResults",
    ];
    fields(request, &known).map_err(invalid)?;
    if text(request, "ServiceCode") != Some("AmazonEC2") {
        return Err(invalid("The service code is invalid".to_owned()));
    }
    let asked = size(request, "MaxResults", 100).map_err(invalid)?;
    let mut all: Vec<(&DescribedPrice, &str)> = described
        .prices
        .iter()
        .flat_map(|price| CAPACITY.iter().map(move |capacity| (price, *capacity)))
        .collect();
    let filters = request.get("Filters").and_then(Value::as_array);
    for filter in filters.into_iter().flatten() {
        let value = text(filter, "Value").unwrap_or_default();
        if text(filter, "Type") != Some("TERM_MATCH") {
            return Err(invalid("The filter type is invalid".to_owned()));
        }
        let field = text(filter, "Field").unwrap_or_default();
        let attribute: for<'a> fn(&'a DescribedPrice, &'a str) -> &'a str = match field {
            "regionCode" => |price, _| &price.region,
            "instanceType" => |price, _| &price.instance_type,
            "operatingSystem" => |price, _| &price.operating_system,
            "tenancy" => |price, _| &price.tenancy,
            "licenseModel" => |_, _| "No License required",
            "preInstalledSw" => |_, _| "NA",
            "capacitystatus" => |_, capacity| capacity,
            other => return Err(invalid(format!("The filter field {other} is invalid"))),
        };
        all.retain(|(price, capacity)| attribute(price, capacity) == value);
    }
    let (shown, next) = page(&all, text(request, "NextToken"), asked, described.page)
        .map_err(|message| ("InvalidNextTokenException", message))?;
    let shown: Vec<String> = shown
        .iter()
        .map(|(price, capacity)| product_json(price, capacity).to_string())
        .collect();
    let mut body = json!({"FormatVersion": "aws_v1", "PriceList": shown});
    if let (Some(fields), Some(next)) = (body.as_object_mut(), next) {
        fields.insert("NextToken".to_owned(), next.into());
    }
    Ok(Answer::json("pricing", &body))
}

fn product_json(price: &DescribedPrice, capacity: &str) -> Value {
    let sku = format!("{}{}", price.region, price.instance_type)
        .replace(['-', '.'], "")
        .to_uppercase();
    let term = format!("{sku}.JRTCKXETXF");
    let dimension = format!("{term}.6YS6EN2CT7");
    // Capacity that a reservation has allocated costs nothing by itself.
    let dollars = match capacity {
        "AllocatedCapacityReservation" => "0.0000000000",
        _ => &price.price,
    };
    json!({
        "product": {
            "productFamily": "Compute Instance", "sku": sku,
            "attributes": {
                "servicecode": "AmazonEC2", "regionCode": price.region, "instanceType": price.instance_type,
                "operatingSystem": price.operating_system, "operation": price.operation, "tenancy": price.tenancy,
                "preInstalledSw": "NA", "licenseModel": "No License required", "capacitystatus": capacity,
                "marketoption": "OnDemand", "usagetype": format!("BoxUsage:{}", price.instance_type),
            },
        },
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {(term.as_str()): {
                "priceDimensions": {(dimension.as_str()): {
                    "unit": "Hrs", "endRange": "Inf", "beginRange": "0", "rateCode": dimension, "appliesTo": [],
                    "description": format!("${dollars} per On Demand {} {} Instance Hour", price.operating_system, price.instance_type),
                    "pricePerUnit": {"USD": dollars},
                }},
                "sku": sku, "effectiveDate": "2026-01-01T00:00:00Z", "offerTermCode": "JRTCKXETXF", "termAttributes": {},
            }},
            "Reserved": {(format!("{sku}.38NPMPTW36")): {
                "priceDimensions": {(format!("{sku}.38NPMPTW36.2TG2D8R56U")): {
                    "unit": "Quantity", "pricePerUnit": {"USD": "123"}, "description": "Upfront Fee",
                }},
                "termAttributes": {"LeaseContractLength": "1yr", "OfferingClass": "standard", "PurchaseOption": "Partial Upfront"},
            }},
        },
        "version": "20260101000000", "publicationDate": "2026-01-01T00:00:00Z",
    })
}

/// The answer of billing preferences, which only the managing account gets.
pub(super) fn billing(
    action: &str,
    request: &Value,
    described: &Described,
    account: &DescribedAccount,
) -> Result<Answer, Refused> {
    let invalid = |message| ("ValidationException", message);
    if action != "GetBillingPreferences" {
        return Err(("UnknownOperationException", action.to_owned()));
    }
    fields(request, &["features", "filters", "nextToken", "maxResults"]).map_err(invalid)?;
    if texts(request.get("features")) != ["RI_SHARING"] {
        return Err(invalid("specify exactly one feature".to_owned()));
    }
    let manager = described.accounts.first().map(|one| one.id.as_str());
    if manager != Some(account.id.as_str()) {
        return Err((
            "AccessDeniedException",
            "only the management account may ask".to_owned(),
        ));
    }
    let asked = size(request, "maxResults", 50).map_err(invalid)?;
    let token = text(request, "nextToken");
    let (shown, next) = page(&described.accounts, token, asked, described.page).map_err(invalid)?;
    let shown: Vec<Value> = shown
        .iter()
        .map(|one| {
            let value = if one.shares { "ENABLED" } else { "DISABLED" };
            json!({"feature": "RI_SHARING", "key": one.id, "value": value, "accountId": one.id, "accountName": one.id})
        })
        .collect();
    let mut body = json!({"billingPreferences": shown});
    if let (Some(fields), Some(next)) = (body.as_object_mut(), next) {
        fields.insert("nextToken".to_owned(), next.into());
    }
    Ok(Answer::json("billing", &body))
}

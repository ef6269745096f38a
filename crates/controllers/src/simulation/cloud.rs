//! EC2 in memory: forms in, XML out, as far as the provider asks. Lists are late and come in pages, a request with one instance
//! that cannot be ended is refused as a whole, and a repeated launch with the same token is the same instance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_world::rng::Rng;

/// How many instances a page of a list has.
const PAGE: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) claim: String,
    pub(super) instance_type: String,
    pub(super) zone: String,
    subnet: String,
    pub(super) is_spot: bool,
    pub(super) launched: Timestamp,
    /// When lists begin to show it.
    visible: Timestamp,
    /// When its kubelet joins.
    pub(super) joins: Timestamp,
    /// When it began to end.
    pub(super) ending: Option<Timestamp>,
    /// When it has ended.
    ended: Option<Timestamp>,
    pub(super) is_protected: bool,
    tags: BTreeMap<String, String>,
}

impl Instance {
    pub(super) fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }

    fn state(&self, now: Timestamp) -> &'static str {
        match (self.ending, self.ended) {
            (_, Some(ended)) if ended <= now => "terminated",
            (Some(_), _) => "shutting-down",
            _ if now.duration_since(self.launched) < SignedDuration::from_secs(3) => "pending",
            _ => "running",
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.ending.is_none()
    }
}

#[derive(Debug, Default)]
pub(super) struct Cloud {
    pub(super) instances: BTreeMap<String, Instance>,
    tokens: BTreeMap<String, (String, String)>,
    templates: BTreeSet<String>,
    /// Types of which there are none.
    pub(super) short: BTreeSet<String>,
    /// Instances that were in a refused request; see `Bug::BatchBlocks`.
    refused: BTreeSet<String>,
    launches: u64,
    /// What is wrong, if something is.
    pub(super) violation: Option<String>,
}

type Form = BTreeMap<String, String>;

fn decode(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let hex: String = [bytes.next(), bytes.next()]
                    .into_iter()
                    .flatten()
                    .map(char::from)
                    .collect();
                out.push(u8::from_str_radix(&hex, 16).unwrap_or(b'?'));
            }
            b'+' => out.push(b' '),
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) fn form(body: &str) -> Form {
    let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (decode(key), decode(value))).collect()
}

fn listed<'f>(form: &'f Form, prefix: &str) -> Vec<&'f str> {
    let numbers = 1..;
    let values = numbers.map_while(|at| form.get(&format!("{prefix}.{at}")));
    values.map(String::as_str).collect()
}

fn refused(code: &str, message: &str) -> (u16, String) {
    let text = format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
    );
    (400, text)
}

fn answer(action: &str, inner: &str) -> (u16, String) {
    (200, format!("<{action}Response>{inner}</{action}Response>"))
}

impl Cloud {
    /// Answers a request. `zones` are those of the subnets; `types` what is offered.
    pub(super) fn answer(
        &mut self,
        form: &Form,
        types: &[String],
        now: Timestamp,
        rng: &mut Rng,
    ) -> (u16, String) {
        let action = form.get("Action").map(String::as_str).unwrap_or_default();
        match action {
            "DescribeSubnets" => answer(
                action,
                "<subnetSet><item><subnetId>subnet-a</subnetId><availabilityZone>us-east-1a</availabilityZone><availabilityZoneId>use1-az1</availabilityZoneId><availableIpAddressCount>1000</availableIpAddressCount></item><item><subnetId>subnet-b</subnetId><availabilityZone>us-east-1b</availabilityZone><availabilityZoneId>use1-az2</availabilityZoneId><availableIpAddressCount>900</availableIpAddressCount></item></subnetSet>",
            ),
            "DescribeSecurityGroups" => answer(
                action,
                "<securityGroupInfo><item><groupId>sg-1</groupId><groupName>nodes</groupName></item></securityGroupInfo>",
            ),
            "DescribeImages" => answer(
                action,
                "<imagesSet><item><imageId>ami-1</imageId><name>image</name><architecture>x86_64</architecture><creationDate>2025-01-01T00:00:00.000Z</creationDate></item></imagesSet>",
            ),
            "DescribeInstanceTypeOfferings" => {
                let mut text = String::new();
                for name in types {
                    for zone in ["us-east-1a", "us-east-1b"] {
                        let item = format!(
                            "<item><instanceType>{name}</instanceType><location>{zone}</location></item>"
                        );
                        text.push_str(&item);
                    }
                }
                answer(
                    action,
                    &format!("<instanceTypeOfferingSet>{text}</instanceTypeOfferingSet>"),
                )
            }
            "DescribeSpotPriceHistory" => answer(action, "<spotPriceHistorySet/>"),
            "DescribeLaunchTemplates" => answer(action, "<launchTemplates/>"),
            "CreateLaunchTemplate" => {
                let name = form.get("LaunchTemplateName").cloned().unwrap_or_default();
                if self.templates.insert(name) {
                    answer(action, "")
                } else {
                    refused("InvalidLaunchTemplateName.AlreadyExistsException", "it is there")
                }
            }
            "CreateFleet" => self.fleet(form, now, rng),
            "DescribeInstances" => self.describe(form, now),
            "TerminateInstances" => self.terminate(form, now, rng),
            other => refused("InvalidAction", other),
        }
    }

    fn fleet(&mut self, form: &Form, now: Timestamp, rng: &mut Rng) -> (u16, String) {
        let token = form.get("ClientToken").cloned().unwrap_or_default();
        let words: String = form
            .iter()
            .map(|(key, value)| format!("{key}={value}&"))
            .collect();
        if let Some((known, text)) = self.tokens.get(&token) {
            return if *known == words {
                (200, text.clone())
            } else {
                refused("IdempotentParameterMismatch", "other words for the same token")
            };
        }
        let tags = (1..).map_while(|at| {
            let of = |field: &str| form.get(&format!("TagSpecification.1.Tag.{at}.{field}")).cloned();
            Some((of("Key")?, of("Value").unwrap_or_default()))
        });
        let tags: BTreeMap<String, String> = tags.collect();
        let is_spot = form
            .get("TargetCapacitySpecification.DefaultTargetCapacityType")
            .is_some_and(|kind| kind == "spot");
        let mut errors = String::new();
        let mut chosen = None;
        for config in 1.. {
            let prefix = format!("LaunchTemplateConfigs.{config}");
            if !form.contains_key(&format!(
                "{prefix}.LaunchTemplateSpecification.LaunchTemplateName"
            )) {
                break;
            }
            for at in 1.. {
                let of = |field: &str| form.get(&format!("{prefix}.Overrides.{at}.{field}")).cloned();
                let Some(name) = of("InstanceType") else { break };
                let (zone, subnet) = (
                    of("AvailabilityZone").unwrap_or_default(),
                    of("SubnetId").unwrap_or_default(),
                );
                if self.short.contains(&name) {
                    // Writing to a string cannot fail.
                    let _ = write!(
                        errors,
                        "<item><errorCode>InsufficientInstanceCapacity</errorCode><errorMessage>none</errorMessage><launchTemplateAndOverrides><overrides><instanceType>{name}</instanceType><availabilityZone>{zone}</availabilityZone><subnetId>{subnet}</subnetId></overrides></launchTemplateAndOverrides></item>"
                    );
                } else if chosen.is_none() {
                    chosen = Some((name, zone, subnet));
                }
            }
        }
        let mut launched = String::new();
        if let Some((name, zone, subnet)) = chosen {
            self.launches += 1;
            let id = format!("i-{:017x}", self.launches);
            launched = format!(
                "<item><launchTemplateAndOverrides><overrides><instanceType>{name}</instanceType><availabilityZone>{zone}</availabilityZone><subnetId>{subnet}</subnetId></overrides></launchTemplateAndOverrides><instanceIds><item>{id}</item></instanceIds><instanceType>{name}</instanceType></item>"
            );
            let claim = tags.get("karpenter.sh/nodeclaim").cloned().unwrap_or_default();
            let mut others = self.instances.values();
            if let Some(other) = others.find(|one| one.claim == claim && one.is_up()) {
                self.violation = Some(format!("two instances for {claim}: {} and {id}", other.id));
            }
            let late = |rng: &mut Rng, least: u64, spread: u64| {
                let seconds = i64::try_from(least + rng.below(spread)).unwrap_or(0);
                now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now)
            };
            let instance = Instance {
                id: id.clone(),
                claim,
                instance_type: name,
                zone,
                subnet,
                is_spot,
                launched: now,
                visible: late(rng, 0, 8),
                joins: late(rng, 15, 30),
                ending: None,
                ended: None,
                is_protected: false,
                tags,
            };
            self.instances.insert(id, instance);
        }
        let inner = format!("<errorSet>{errors}</errorSet><fleetInstanceSet>{launched}</fleetInstanceSet>");
        let (status, text) = answer("CreateFleet", &inner);
        self.tokens.insert(token, (words, text.clone()));
        (status, text)
    }

    fn describe(&self, form: &Form, now: Timestamp) -> (u16, String) {
        let mut wanted = None;
        for at in 1.. {
            let Some(name) = form.get(&format!("Filter.{at}.Name")) else {
                break;
            };
            if name == "instance-id" {
                wanted = Some(listed(form, &format!("Filter.{at}.Value")));
            }
        }
        let shown = self.instances.values().filter(|one| {
            one.visible <= now
                && one.state(now) != "terminated"
                && wanted.as_ref().is_none_or(|ids| ids.contains(&one.id.as_str()))
        });
        let from: usize = form
            .get("NextToken")
            .and_then(|token| token.parse().ok())
            .unwrap_or(0);
        let shown: Vec<&Instance> = shown.skip(from).collect();
        let mut text = String::new();
        for one in shown.iter().take(PAGE) {
            let mut tags = String::new();
            for (key, value) in &one.tags {
                let _ = write!(tags, "<item><key>{key}</key><value>{value}</value></item>");
            }
            let lifecycle = if one.is_spot {
                "<instanceLifecycle>spot</instanceLifecycle>"
            } else {
                ""
            };
            let _ = write!(
                text,
                "<item><instancesSet><item><instanceId>{}</instanceId><imageId>ami-1</imageId><instanceState><name>{}</name></instanceState><instanceType>{}</instanceType><launchTime>{}</launchTime><placement><availabilityZone>{}</availabilityZone></placement><subnetId>{}</subnetId>{lifecycle}<groupSet><item><groupId>sg-1</groupId></item></groupSet><tagSet>{tags}</tagSet></item></instancesSet></item>",
                one.id,
                one.state(now),
                one.instance_type,
                one.launched,
                one.zone,
                one.subnet,
            );
        }
        let next = if shown.len() > PAGE {
            format!("<nextToken>{}</nextToken>", from + PAGE)
        } else {
            String::new()
        };
        answer(
            "DescribeInstances",
            &format!("<reservationSet>{text}</reservationSet>{next}"),
        )
    }

    fn terminate(&mut self, form: &Form, now: Timestamp, rng: &mut Rng) -> (u16, String) {
        let ids = listed(form, "InstanceId");
        for id in &ids {
            let gone = self
                .instances
                .get(*id)
                .is_none_or(|one| one.state(now) == "terminated");
            if gone {
                let message = format!("The instance ID '{id}' does not exist");
                return refused("InvalidInstanceID.NotFound", &message);
            }
        }
        let blocks = seeded!(BatchBlocks) && ids.iter().any(|id| self.refused.contains(*id));
        let protected = ids
            .iter()
            .find(|id| self.instances.get(**id).is_some_and(|one| one.is_protected));
        if blocks || protected.is_some() {
            self.refused.extend(ids.iter().map(|id| (*id).to_owned()));
            let id = protected.copied().unwrap_or_default();
            let message = format!(
                "The instance '{id}' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again."
            );
            return refused("OperationNotPermitted", &message);
        }
        for id in ids {
            if let Some(one) = self.instances.get_mut(id).filter(|one| one.is_up()) {
                end(one, now, rng);
            }
        }
        answer("TerminateInstances", "<instancesSet/>")
    }

    /// The cloud takes an instance away.
    pub(super) fn lose(&mut self, id: &str, now: Timestamp, rng: &mut Rng) {
        if let Some(one) = self.instances.get_mut(id).filter(|one| one.is_up()) {
            end(one, now, rng);
        }
    }

    pub(super) fn is_running(&self, provider_id: &str) -> bool {
        let id = provider_id.rsplit('/').next().unwrap_or_default();
        self.instances.get(id).is_some_and(Instance::is_up)
    }
}

fn end(instance: &mut Instance, now: Timestamp, rng: &mut Rng) {
    let seconds = i64::try_from(4 + rng.below(15)).unwrap_or(4);
    instance.ending = Some(now);
    instance.ended = now.checked_add(SignedDuration::from_secs(seconds)).ok();
}

//! A recorded `CreateFleet` request: as the API takes it, as CloudTrail writes it, or a list of CloudTrail records.
//!
//! CloudTrail writes a list of one as the element itself, and names begin with capitals or not, so both are read.

use serde_json::Value;

use crate::launch::AllocationStrategy;

/// What EC2 was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedRequest {
    /// The launch templates, by name or id, in their order.
    pub templates: Vec<String>,
    /// What could be launched.
    pub overrides: Vec<RecordedOverride>,
    /// How EC2 chose, if it is one of the provider's strategies.
    pub strategy: Option<AllocationStrategy>,
    /// `on-demand`, `spot` or another target.
    pub target: Option<String>,
    /// The NodePool that the tags name.
    pub node_pool: Option<String>,
    /// What was launched, if the record has the answer too.
    pub launched: Option<String>,
}

/// One thing that could be launched.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedOverride {
    /// The position of its launch template.
    pub template: usize,
    /// The type.
    pub instance_type: String,
    /// The zone, if the request names it.
    pub zone: Option<String>,
    /// The priority, which Karpenter sets to the price.
    pub priority: Option<f64>,
}

/// Why a text is no recorded request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordedError {
    /// It is not JSON.
    #[error("is not JSON: {0}")]
    NotJson(String),
    /// There is no request in it.
    #[error(
        "has no LaunchTemplateConfigs; expected a CreateFleet request, or a CloudTrail record of one (the event with \
         requestParameters)"
    )]
    NoRequest,
    /// The request has no overrides with a type.
    #[error(
        "LaunchTemplateConfigs has no Overrides with an InstanceType; Karpenter's requests have one for each type and zone"
    )]
    NoOverrides,
}

/// Reads a request.
pub fn read(text: &str) -> Result<RecordedRequest, RecordedError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| RecordedError::NotJson(error.to_string()))?;
    let request = find(&value, 0).ok_or(RecordedError::NoRequest)?;
    let mut read = RecordedRequest::default();
    for (at, config) in list(field(request, "LaunchTemplateConfigs"))
        .into_iter()
        .enumerate()
    {
        let template = field(config, "LaunchTemplateSpecification");
        let name = template.and_then(|template| {
            text_of(template, "LaunchTemplateName").or_else(|| text_of(template, "LaunchTemplateId"))
        });
        read.templates
            .push(name.unwrap_or_else(|| format!("config {}", at + 1)));
        for each in list(field(config, "Overrides")) {
            if let Some(instance_type) = text_of(each, "InstanceType") {
                read.overrides.push(RecordedOverride {
                    template: at,
                    instance_type,
                    zone: text_of(each, "AvailabilityZone"),
                    priority: field(each, "Priority").and_then(number),
                });
            }
        }
    }
    if read.overrides.is_empty() {
        return Err(RecordedError::NoOverrides);
    }
    let strategy = ["SpotOptions", "OnDemandOptions"]
        .iter()
        .find_map(|options| text_of(field(request, options)?, "AllocationStrategy"));
    read.strategy = strategy.and_then(|name| {
        let mut known = AllocationStrategy::ALL.into_iter();
        known.find(|strategy| strategy.as_str() == name)
    });
    read.target = field(request, "TargetCapacitySpecification")
        .and_then(|target| text_of(target, "DefaultTargetCapacityType"));
    let specifications = list(field(request, "TagSpecifications"));
    let mut tags = specifications.into_iter().flat_map(|one| {
        let tags = list(field(one, "Tags"));
        if tags.is_empty() {
            list(field(one, "Tag"))
        } else {
            tags
        }
    });
    read.node_pool = tags
        .find(|tag| text_of(tag, "Key").as_deref() == Some(crate::labels::NODE_POOL))
        .and_then(|tag| text_of(tag, "Value"));
    read.launched = launched(&value);
    Ok(read)
}

/// The request itself, wherever it stands.
fn find(value: &Value, depth: usize) -> Option<&Value> {
    if field(value, "LaunchTemplateConfigs").is_some() {
        return Some(value);
    }
    if depth > 4 {
        return None;
    }
    let inside = ["Records", "Events", "requestParameters", "CreateFleetRequest"];
    inside
        .iter()
        .filter_map(|name| field(value, name))
        .flat_map(|inside| list(Some(inside)))
        .chain(value.as_array().into_iter().flatten())
        .find_map(|inside| find(inside, depth + 1))
}

/// The type in the answer of a CloudTrail record.
fn launched(value: &Value) -> Option<String> {
    let record = list(field(value, "Records")).into_iter().next().unwrap_or(value);
    let answer = field(record, "responseElements")?;
    let answer = field(answer, "CreateFleetResponse").unwrap_or(answer);
    let set = field(answer, "FleetInstanceSet").or_else(|| field(answer, "Instances"))?;
    let instances = list(Some(field(set, "Item").unwrap_or(set)));
    text_of(instances.first()?, "InstanceType")
}

/// A field, its name written with a capital or without.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = value.as_object()?;
    fields
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

fn text_of(value: &Value, name: &str) -> Option<String> {
    field(value, name)?.as_str().map(str::to_owned)
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// The elements of a list; one that stands alone is a list of one.
fn list(value: Option<&Value>) -> Vec<&Value> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items.iter().collect(),
        Some(one) => vec![one],
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use super::*;

    #[test]
    fn a_request_is_read_as_the_api_takes_it_and_as_cloudtrail_writes_it() {
        let api = r#"{"LaunchTemplateConfigs":[{"LaunchTemplateSpecification":{"LaunchTemplateName":"arm64-template"},
            "Overrides":[{"InstanceType":"m8g.24xlarge","Priority":0.635}]}]}"#;
        let read_api = read(api).unwrap();
        assert_eq!(read_api.templates, ["arm64-template"]);
        assert_eq!(read_api.overrides[0].priority, Some(0.635));
        let trail = r#"{"Records":[{"eventName":"CreateFleet","requestParameters":{"CreateFleetRequest":{
            "OnDemandOptions":{"AllocationStrategy":"prioritized"},
            "TargetCapacitySpecification":{"DefaultTargetCapacityType":"on-demand","TotalTargetCapacity":1},
            "LaunchTemplateConfigs":{"tag":1,"LaunchTemplateSpecification":{"LaunchTemplateName":"karpenter.k8s.aws/1"},
              "Overrides":[{"tag":1,"InstanceType":"m7i.48xlarge","Priority":9.67},{"tag":2,"InstanceType":"c7i.48xlarge","Priority":"8.57"}]},
            "TagSpecification":{}}},"responseElements":{"CreateFleetResponse":{"fleetInstanceSet":{"item":{"instanceType":"c7i.48xlarge"}}}}}]}"#;
        let read_trail = read(trail).unwrap();
        assert_eq!(read_trail.strategy, Some(AllocationStrategy::Prioritized));
        assert_eq!(read_trail.overrides.len(), 2);
        assert_eq!(read_trail.overrides[1].priority, Some(8.57));
        assert_eq!(read_trail.launched.as_deref(), Some("c7i.48xlarge"));
    }

    #[test]
    fn what_is_no_request_says_what_was_expected() {
        assert!(matches!(read("x"), Err(RecordedError::NotJson(_))));
        assert_eq!(read("{}"), Err(RecordedError::NoRequest));
        assert_eq!(read("[1, {\"Records\": []}]"), Err(RecordedError::NoRequest));
        assert_eq!(
            read(r#"{"launchTemplateConfigs": []}"#),
            Err(RecordedError::NoOverrides)
        );
    }
}

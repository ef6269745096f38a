//! Reads a manifest, and says everything that is wrong with it.
//!
//! The CRD refuses most of this at the door. It is checked again because files never saw an API server, because an
//! older CRD may be installed, and because some of it (restricted labels, capacity types that do not exist) needs
//! more than the CRD knows. What Karpenter calls `RuntimeValidation` is refused here for the same objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use veneer_api::{NodeOverlay, NodeOverlaySpec, NodeSelectorRequirement};

use super::{OverheadAmount, Overlay, PriceChange, Selector};
use crate::labels::{self, LabelRules};
use crate::quantity::Quantity;
use crate::requirements::Operator;
use crate::resources::{self, ResourceList};

/// One thing wrong with an object, with the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, e.g. `spec.requirements[0].values[1]`.
    pub field: String,
    /// What was found and what was expected.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

const MAX_REQUIREMENTS: usize = 100;
const WEIGHTS: std::ops::RangeInclusive<i32> = 1..=10_000;

impl Overlay {
    /// The overlay that `manifest` describes, or its name and everything that is wrong with it.
    pub fn read(manifest: &NodeOverlay, rules: &LabelRules) -> Result<Self, (String, Vec<Problem>)> {
        let name = manifest.metadata.name.clone().unwrap_or_default();
        let mut reader = Reader {
            rules,
            problems: Vec::new(),
        };
        let overlay = reader.overlay(name.clone(), &manifest.spec);
        if reader.problems.is_empty() {
            Ok(overlay)
        } else {
            Err((name, reader.problems))
        }
    }
}

struct Reader<'a> {
    rules: &'a LabelRules,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn refuse(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem {
            field: field.into(),
            message: message.into(),
        });
    }

    fn overlay(&mut self, name: String, spec: &NodeOverlaySpec) -> Overlay {
        if let Some(weight) = spec.weight.filter(|weight| !WEIGHTS.contains(weight)) {
            self.refuse(
                "spec.weight",
                format!("{weight} is out of range; expected 1 to 10000, or none for 0"),
            );
        }
        Overlay {
            name,
            weight: spec.weight.unwrap_or(0),
            requirements: self.requirements(&spec.requirements),
            price: self.price(spec),
            capacity: self.capacity(spec),
            overhead: self.overhead(spec),
        }
    }

    fn price(&mut self, spec: &NodeOverlaySpec) -> Option<PriceChange> {
        let (field, read) = match (&spec.price, &spec.price_adjustment) {
            (Some(_), Some(_)) => {
                self.refuse(
                    "spec.price",
                    "is set together with spec.priceAdjustment; set one of them",
                );
                return None;
            }
            (Some(price), None) => ("spec.price", PriceChange::price(price)),
            (None, Some(adjustment)) => ("spec.priceAdjustment", PriceChange::adjustment(adjustment)),
            (None, None) => return None,
        };
        read.map_err(|error| self.refuse(field, error.to_string())).ok()
    }

    fn requirements(&mut self, requirements: &[NodeSelectorRequirement]) -> Vec<Selector> {
        if requirements.len() > MAX_REQUIREMENTS {
            let message = format!(
                "has {} entries; at most {MAX_REQUIREMENTS} are allowed",
                requirements.len()
            );
            self.refuse("spec.requirements", message);
        }
        requirements
            .iter()
            .enumerate()
            .filter_map(|(at, requirement)| self.selector(at, requirement))
            .collect()
    }

    fn selector(&mut self, at: usize, requirement: &NodeSelectorRequirement) -> Option<Selector> {
        let field = |part: &str| format!("spec.requirements[{at}].{part}");
        let NodeSelectorRequirement {
            key,
            operator,
            values,
            ..
        } = requirement;
        let canonical = labels::normalise(key);
        if let Err(error) = labels::check_key(canonical) {
            self.refuse(field("key"), format!("{key:?} {error}"));
        } else if self.rules.is_restricted(canonical) {
            let domains = self.rules.restricted_domains().join(" and ");
            let message = format!(
                "{key:?} is set by the provisioner itself and cannot be selected; use a well-known label or one outside {domains}"
            );
            self.refuse(field("key"), message);
        }
        for (index, value) in values.iter().enumerate() {
            if let Err(error) = labels::check_value(value) {
                self.refuse(field(&format!("values[{index}]")), format!("{value:?} {error}"));
            }
        }
        let operator: Operator = match operator.as_str().parse() {
            Ok(operator) => operator,
            Err(error) => {
                self.refuse(field("operator"), format!("{error}"));
                return None;
            }
        };
        self.values(&field("values"), canonical, operator, values);
        Some(Selector {
            key: key.clone(),
            operator,
            values: values.clone(),
        })
    }

    fn values(&mut self, field: &str, key: &str, operator: Operator, values: &[String]) {
        if operator.is_bound() {
            let integer = |value: &String| value.parse::<i64>().is_ok_and(|integer| integer >= 0);
            if !matches!(values, [value] if integer(value)) {
                let message = format!(
                    "{values:?} does not go with {operator}; expected exactly one integer from 0, such as [\"4\"]"
                );
                self.refuse(field, message);
            }
        }
        if matches!(operator, Operator::In | Operator::NotIn) && values.is_empty() {
            self.refuse(field, format!("is empty; {operator} needs at least one value"));
        }
        let known = |value: &String| labels::CAPACITY_TYPES.contains(&value.as_str());
        if key == labels::CAPACITY_TYPE
            && operator == Operator::In
            && !values.is_empty()
            && !values.iter().any(known)
        {
            let known = labels::CAPACITY_TYPES.join(", ");
            self.refuse(
                field,
                format!("{values:?} has no capacity type that exists; expected one of {known}"),
            );
        }
    }

    fn capacity(&mut self, spec: &NodeOverlaySpec) -> Option<ResourceList> {
        for name in spec
            .capacity
            .keys()
            .filter(|name| resources::WELL_KNOWN.contains(&name.as_str()))
        {
            self.refuse(
                format!("spec.capacity.{name}"),
                "comes from the instance type and cannot be set; expected extended resources or huge pages",
            );
        }
        let list = self.quantities("spec.capacity", &spec.capacity);
        (!spec.capacity.is_empty()).then(|| list.into_iter().collect())
    }

    fn quantities(&mut self, field: &str, amounts: &veneer_api::ResourceList) -> BTreeMap<String, Quantity> {
        let mut list = BTreeMap::new();
        for (name, amount) in amounts {
            match amount.0.parse::<Quantity>() {
                Ok(quantity) => _ = list.insert(name.clone(), quantity),
                Err(error) => self.refuse(format!("{field}.{name}"), error.to_string()),
            }
        }
        list
    }

    fn overhead(&mut self, spec: &NodeOverlaySpec) -> BTreeMap<String, OverheadAmount> {
        let fixed = self.quantities("spec.overhead", &spec.overhead);
        let mut overhead: BTreeMap<String, OverheadAmount> = fixed
            .into_iter()
            .map(|(name, quantity)| (name, OverheadAmount::Fixed(quantity)))
            .collect();
        for (name, percent) in &spec.overhead_percent {
            let field = format!("spec.overheadPercent.{name}");
            if overhead.contains_key(name) {
                self.refuse(
                    field,
                    format!("is set together with spec.overhead.{name}; set one of them"),
                );
                continue;
            }
            match milli_percent(percent) {
                Some(share) => _ = overhead.insert(name.clone(), OverheadAmount::MilliPercent(share)),
                None => self.refuse(field, "is no percentage; expected 0 to 100, such as 5 or \"7.5\""),
            }
        }
        for name in overhead
            .keys()
            .filter(|name| !matches!(name.as_str(), resources::CPU | resources::MEMORY))
        {
            let field = format!("spec.overhead.{name}");
            self.problems.push(Problem {
                field,
                message: "only cpu and memory have overhead".to_owned(),
            });
        }
        overhead
    }
}

/// A percentage from 0 to 100 in thousandths, further digits cut off.
fn milli_percent(percent: &IntOrString) -> Option<u32> {
    let share = match percent {
        IntOrString::Int(whole) => u32::try_from(*whole).ok()?.checked_mul(1000)?,
        IntOrString::String(text) => {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            if whole.is_empty() || !digits(whole) || !digits(fraction) {
                return None;
            }
            let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
            whole
                .parse::<u32>()
                .ok()?
                .checked_mul(1000)?
                .checked_add(thousandths.parse().ok()?)?
        }
    };
    (share <= 100_000).then_some(share)
}

//! Checks of NodePools and Overprovisioners, and the pools that are assumed where there is none.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::json;
use veneer_api::overprovisioner::{Sizing, SpareState, SpareStrategy};
use veneer_api::{NodeOverlay, NodePool, NodeSelectorRequirementWithMinValues, Operator, Overprovisioner};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::labels::{self, LabelRules};
use veneer_engine::overlay::nearest;
use veneer_engine::requirements;

use crate::finding::{Finding, Rule};
use crate::input::objects::{Origin, Sourced};

/// What is wrong with NodePools, and pools whose nodes may become arbitrarily large.
pub(super) fn node_pools(pools: &[Sourced<NodePool>], catalogue: &Catalogue) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pool in pools {
        let requirements = &pool.object.spec.template.spec.requirements;
        for (at, requirement) in requirements.iter().enumerate() {
            findings.extend(requirement_faults(requirement, catalogue).map(|(part, message)| {
                let field = format!("spec.template.spec.requirements[{at}].{part}");
                pool.finding(Rule::InvalidField, &field, message, "")
            }));
        }
        let fixed_size = pool.object.spec.replicas.is_some();
        if !fixed_size && !requirements.iter().any(bounds_size) {
            let message = "no requirement bounds the size of a node: packing ignores the price, so many pending pods \
                           may end up on a few of the largest machines there are";
            let fix = "add a requirement such as karpenter.k8s.aws/instance-cpu Lt [\"65\"]";
            let field = "spec.template.spec.requirements";
            findings.push(pool.finding(Rule::UncappedPool, field, message.to_owned(), fix));
        }
    }
    findings
}

fn bounds_size(requirement: &NodeSelectorRequirementWithMinValues) -> bool {
    let key = labels::normalise(&requirement.key);
    let name = key.split_once('/').map_or("", |(_, name)| name);
    let sized =
        matches!(name, "instance-cpu" | "instance-memory" | "instance-size") || key == labels::INSTANCE_TYPE;
    sized && matches!(requirement.operator.as_str(), "In" | "Lt" | "Lte")
}

/// What is wrong with a requirement, by its part.
fn requirement_faults(
    requirement: &NodeSelectorRequirementWithMinValues,
    catalogue: &Catalogue,
) -> impl Iterator<Item = (&'static str, String)> {
    let key = labels::normalise(&requirement.key);
    let mut faults = Vec::new();
    if let Err(error) = labels::check_key(key) {
        faults.push(("key", format!("{:?} {error}", requirement.key)));
    } else if catalogue.rules.is_restricted(key) || key == labels::NODE_POOL {
        let message = format!("{key:?} is set by the provisioner itself and cannot be required");
        faults.push(("key", message));
    }
    let values = &requirement.values;
    match requirement.operator.as_str().parse::<requirements::Operator>() {
        Err(error) => faults.push(("operator", error.to_string())),
        Ok(requirements::Operator::In) if values.is_empty() => {
            faults.push(("values", "is empty; In needs at least one value".to_owned()));
        }
        Ok(bound) if bound.is_bound() => {
            let integer = |value: &String| value.parse::<i64>().is_ok_and(|integer| integer >= 0);
            if !matches!(values.as_slice(), [value] if integer(value)) {
                faults.push((
                    "values",
                    format!("{values:?} does not go with {bound}; expected exactly one integer from 0, such as [\"4\"]"),
                ));
            }
        }
        Ok(_) => {}
    }
    faults.into_iter()
}

/// What is wrong with Overprovisioners.
pub(super) fn overprovisioners(
    spares: &[Sourced<Overprovisioner>],
    pools: &[Sourced<NodePool>],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in spares {
        let spec = &one.object.spec;
        let mut refuse =
            |field: &str, message: String| findings.push(one.finding(Rule::InvalidField, field, message, ""));
        if spec.target_node_pools.is_empty() {
            refuse(
                "spec.targetNodePools",
                "is empty; name at least one NodePool".to_owned(),
            );
        }
        if let SpareState::Other(found) = &spec.state {
            refuse(
                "spec.state",
                format!(
                    "{found:?} is no state; expected one of {}",
                    SpareState::KNOWN.join(", ")
                ),
            );
        }
        if let SpareStrategy::Other(found) = &spec.strategy {
            refuse(
                "spec.strategy",
                format!(
                    "{found:?} is no strategy; expected one of {}",
                    SpareStrategy::KNOWN.join(", ")
                ),
            );
        }
        if let Some(message) = sizing_fault(&spec.sizing) {
            refuse("spec.sizing", message);
        }
        for (at, window) in spec.scheduled_overrides.iter().enumerate() {
            let field = |part: &str| format!("spec.scheduledOverrides[{at}].{part}");
            if let Some(message) = sizing_fault(&window.sizing) {
                refuse(&field("sizing"), message);
            }
            if window.schedule.split_whitespace().count() != 5 {
                let message = format!(
                    "{:?} is no schedule; expected five cron fields, such as \"0 9 * * mon-fri\"",
                    window.schedule
                );
                refuse(&field("schedule"), message);
            }
        }
        // Without any pool among the files, they are simply elsewhere.
        let names: Vec<&str> = pools.iter().map(Sourced::name).collect();
        for (at, target) in spec.target_node_pools.iter().enumerate() {
            if names.is_empty() || names.contains(&target.as_str()) {
                continue;
            }
            let fix = match nearest(target, names.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there are {}", names.join(", ")),
            };
            let message = format!("there is no NodePool {target:?} among the files");
            let field = format!("spec.targetNodePools[{at}]");
            findings.push(one.finding(Rule::UnknownTarget, &field, message, &fix));
        }
    }
    findings
}

fn sizing_fault(sizing: &Sizing) -> Option<String> {
    match (sizing.count, sizing.percentage) {
        (Some(count), None) if count < 0 => Some(format!("count {count} is below 0")),
        (None, Some(share)) if !(0..=100).contains(&share) => {
            Some(format!("percentage {share} is out of range; expected 0 to 100"))
        }
        (Some(_), None) | (None, Some(_)) => None,
        (Some(_), Some(_)) => Some("has both count and percentage; set exactly one of them".to_owned()),
        (None, None) => Some("has neither count nor percentage; set exactly one of them".to_owned()),
    }
}

/// The pools against which overlays are judged without any NodePool: for each overlay one with the name and the labels
/// that it asks for, which allows everything.
pub(super) fn assumed(
    overlays: &[Sourced<NodeOverlay>],
    rules: &LabelRules,
) -> Result<Vec<Sourced<NodePool>>> {
    let mut wanted: BTreeSet<(String, BTreeMap<String, String>)> = BTreeSet::new();
    for overlay in overlays {
        let (mut name, mut template) = ("any".to_owned(), BTreeMap::new());
        for requirement in &overlay.object.spec.requirements {
            let key = labels::normalise(&requirement.key);
            let value = requirement
                .values
                .first()
                .map_or("any", String::as_str)
                .to_owned();
            // A key near a well-known one is rather a slip than a label of a pool.
            let is_label = nearest(key, rules.well_known()).is_none();
            match requirement.operator {
                Operator::In if key == labels::NODE_POOL => name = value,
                Operator::In | Operator::Exists if is_label => _ = template.insert(key.to_owned(), value),
                _ => {}
            }
        }
        wanted.insert((name, template));
    }
    let pool = |(name, template): (String, BTreeMap<String, String>)| {
        let object = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": { "name": name },
            "spec": { "template": {
                "metadata": { "labels": template },
                "spec": { "nodeClassRef": { "group": "", "kind": "", "name": "" }, "requirements": [] },
            } },
        }))?;
        let origin = Origin {
            file: "assumed".to_owned(),
            tree: None,
            made_of: None,
        };
        Ok(Sourced { object, origin })
    };
    wanted.into_iter().map(pool).collect()
}

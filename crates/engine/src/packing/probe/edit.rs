//! Changes to a pod or a NodePool that can let a pod go somewhere.

use k8s_openapi::api::core::v1::Taint;

use crate::quantity::Quantity;
use crate::resources::CPU;
use crate::taints::describe;

/// Which rule about other pods is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A topology spread constraint.
    Spread,
    /// A required pod affinity term.
    Affinity,
    /// A required pod anti-affinity term.
    AntiAffinity,
}

/// One change of one field.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// The pod tolerates a taint.
    Tolerate {
        /// The taint.
        taint: Taint,
    },
    /// The pod no longer demands anything of a label.
    DropLabel {
        /// The label.
        key: String,
    },
    /// The pod asks for less.
    LowerRequest {
        /// Of what.
        resource: String,
        /// What it asks for now.
        from: Quantity,
        /// The most that it may ask for.
        to: Quantity,
    },
    /// The pod gives up its rules of a kind by one label.
    DropRule {
        /// The kind.
        rule: Rule,
        /// The topology key.
        key: String,
    },
    /// The pod gives up its host ports.
    DropHostPorts,
    /// Nothing holds the pod back any more.
    DropGates,
    /// The NodePool allows one value more of a label.
    Allow {
        /// The NodePool.
        node_pool: String,
        /// The label.
        key: String,
        /// The value.
        value: String,
        /// How far a bound moves, relative to where it was; 1 for a value in a list.
        distance: f64,
    },
    /// The NodePool may launch more.
    RaiseLimit {
        /// The NodePool.
        node_pool: String,
        /// Of what.
        resource: String,
        /// The limit now.
        from: Quantity,
        /// The least limit that will do.
        to: Quantity,
    },
    /// The NodePool needs fewer values to choose from.
    LowerMinValues {
        /// The NodePool.
        node_pool: String,
        /// The label.
        key: String,
        /// What it demands now.
        from: i64,
        /// What there is.
        to: i64,
    },
}

pub(super) const NANOS: i128 = 1_000_000_000;

/// The steps in which amounts change: a thousandth of a processor, a mebibyte, one of anything else.
pub(crate) fn step(resource: &str) -> i128 {
    match resource {
        CPU => NANOS / 1_000,
        "memory" | "ephemeral-storage" => NANOS << 20,
        _ if resource.starts_with("hugepages-") => NANOS << 20,
        _ => NANOS,
    }
}

/// What giving something up altogether counts as, where the rest is a ratio.
const ALTOGETHER: f64 = 1e6;

/// How much larger the larger one is, relative to the smaller.
fn ratio(a: &Quantity, b: &Quantity) -> f64 {
    let number = |quantity: &Quantity| quantity.nanos().map_or(f64::MAX, |nanos| nanos as f64);
    let (small, large) = (number(a).min(number(b)), number(a).max(number(b)));
    if small <= 0.0 {
        ALTOGETHER
    } else {
        large / small - 1.0
    }
}

impl Edit {
    /// How large the change is: how much larger the larger of the old and the new amount is, relative to the
    /// smaller; 1 for what has no amount.
    #[must_use]
    pub fn distance(&self) -> f64 {
        match self {
            Self::LowerRequest { from, to, .. } | Self::RaiseLimit { from, to, .. } => ratio(from, to),
            Self::LowerMinValues { from, to, .. } => ratio(&Quantity::from(*from), &Quantity::from(*to)),
            Self::Allow { distance, .. } => *distance,
            Self::Tolerate { .. }
            | Self::DropLabel { .. }
            | Self::DropRule { .. }
            | Self::DropHostPorts
            | Self::DropGates => 1.0,
        }
    }

    /// What amount it changes, from and to, in steps.
    pub(crate) fn amounts(&self) -> Option<(i128, i128)> {
        match self {
            Self::LowerRequest { resource, from, to } => {
                // A request between two steps is above the lower one.
                let step = step(resource);
                Some((
                    (from.nanos()? + step - 1).div_euclid(step),
                    to.nanos()?.div_euclid(step),
                ))
            }
            Self::RaiseLimit {
                resource, from, to, ..
            } => {
                let step = step(resource);
                Some((from.nanos()?.div_euclid(step), to.nanos()?.div_euclid(step)))
            }
            Self::LowerMinValues { from, to, .. } => Some((i128::from(*from), i128::from(*to))),
            _ => None,
        }
    }

    /// Changes the amount to another one.
    pub(crate) fn set_amount(&mut self, steps: i128) {
        match self {
            Self::LowerRequest { resource, to, .. } | Self::RaiseLimit { resource, to, .. } => {
                let nanos = steps.saturating_mul(step(resource));
                *to = Quantity::from_nanos(nanos).with_format(to.format());
            }
            Self::LowerMinValues { to, .. } => *to = i64::try_from(steps).unwrap_or(i64::MAX),
            _ => {}
        }
    }

    /// The NodePool that it changes; none if it changes the pod.
    #[must_use]
    pub fn node_pool(&self) -> Option<&str> {
        match self {
            Self::Allow { node_pool, .. }
            | Self::RaiseLimit { node_pool, .. }
            | Self::LowerMinValues { node_pool, .. } => Some(node_pool),
            _ => None,
        }
    }

    /// The field that it changes.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::Tolerate { .. } => "spec.tolerations".to_owned(),
            Self::DropLabel { key } => format!("spec.nodeSelector, spec.affinity.nodeAffinity [{key}]"),
            Self::LowerRequest { resource, .. } => {
                format!("spec.containers[*].resources.requests[{resource}]")
            }
            Self::DropRule { rule, key } => match rule {
                Rule::Spread => format!("spec.topologySpreadConstraints[{key}]"),
                Rule::Affinity => format!("spec.affinity.podAffinity[{key}]"),
                Rule::AntiAffinity => format!("spec.affinity.podAntiAffinity[{key}]"),
            },
            Self::DropHostPorts => "spec.containers[*].ports[*].hostPort".to_owned(),
            Self::DropGates => "spec.schedulingGates".to_owned(),
            Self::Allow { key, .. } => format!("spec.template.spec.requirements[{key}]"),
            Self::RaiseLimit { resource, .. } => format!("spec.limits[{resource}]"),
            Self::LowerMinValues { key, .. } => {
                format!("spec.template.spec.requirements[{key}].minValues")
            }
        }
    }

    /// The change as an order to people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Tolerate { taint } => format!("let the pod tolerate {}", describe(taint)),
            Self::DropLabel { key } => format!("drop the pod's demand on the label {key}"),
            Self::LowerRequest { resource, from, to } => {
                format!("lower what the pod asks for from {resource} {from} to {to}")
            }
            Self::DropRule { rule, key } => {
                let kind = match rule {
                    Rule::Spread => "topology spread",
                    Rule::Affinity => "pod affinity",
                    Rule::AntiAffinity => "pod anti-affinity",
                };
                format!("drop the pod's {kind} by {key}")
            }
            Self::DropHostPorts => "drop the pod's host ports".to_owned(),
            Self::DropGates => "remove the pod's scheduling gates".to_owned(),
            Self::Allow {
                node_pool,
                key,
                value,
                ..
            } => {
                format!("let NodePool {node_pool} have {key} {value}")
            }
            Self::RaiseLimit {
                node_pool,
                resource,
                from,
                to,
            } => format!("raise the limit of NodePool {node_pool} from {resource} {from} to {to}"),
            Self::LowerMinValues {
                node_pool,
                key,
                from,
                to,
            } => format!("lower minValues of {key} in NodePool {node_pool} from {from} to {to}"),
        }
    }
}

/// How large a change of several fields is. Smaller is better: fewer fields first, then less change, then fewer
/// fields of NodePools, which concern other pods too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// How many fields change.
    pub edits: usize,
    /// The sum of [`Edit::distance`].
    pub distance: f64,
    /// How many of the fields are those of NodePools.
    pub node_pool_edits: usize,
}

impl Measure {
    /// The measure of a change.
    #[must_use]
    pub fn of(edits: &[Edit]) -> Self {
        Self {
            edits: edits.len(),
            distance: edits.iter().map(Edit::distance).sum(),
            node_pool_edits: edits.iter().filter(|edit| edit.node_pool().is_some()).count(),
        }
    }

    /// Which of two is smaller.
    #[must_use]
    pub fn compare(&self, other: &Self) -> std::cmp::Ordering {
        self.edits
            .cmp(&other.edits)
            .then_with(|| self.distance.total_cmp(&other.distance))
            .then_with(|| self.node_pool_edits.cmp(&other.node_pool_edits))
    }
}

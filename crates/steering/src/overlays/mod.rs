//! The NodeOverlays that should exist, and what to do about those that do.
//!
//! Labels, never names, say whose an overlay is: one that carries our `managed-by` label and says what it is for is
//! ours, whoever wrote it (an earlier release is adopted so); any other is left alone, even under a name
//! that we would use. [`plan`] asks for nothing when everything is as it should be.

mod diff;
mod render;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use veneer_api::NodeOverlay;
use veneer_api::labels::{kubernetes, veneer};

use crate::commitments::{Kind, Target};

pub use diff::diff;
pub use render::{
    MixedPools, Naming, PoolRef, Pricing, Rendering, Weights, cost_aware, on_demand_only, preference,
};

/// A NodeOverlay that exists, as far as ownership and form are concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Existing {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`, so that another object of the same name is not taken for it.
    pub uid: String,
    /// `metadata.resourceVersion`, so that a decision about an older version is not carried out.
    pub resource_version: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.ownerReferences`.
    pub owners: Vec<OwnerReference>,
    /// `spec`, as it is stored.
    pub spec: Value,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// What an overlay is for, by its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It steers to a commitment; without a target if its labels do not say which.
    CostAware(Kind, Option<Target>),
    /// It comes from an annotation.
    Preference,
    /// It is not ours.
    Foreign,
}

/// Which of our overlays are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Those that steer to commitments.
    CostAware,
    /// Those that come from annotations.
    Preferences,
}

impl Existing {
    /// What it is for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        purpose(&self.labels)
    }

    fn is_of(&self, family: Family) -> bool {
        match self.purpose() {
            Purpose::CostAware(..) => family == Family::CostAware,
            Purpose::Preference => family == Family::Preferences,
            Purpose::Foreign => false,
        }
    }
}

impl Purpose {
    /// What it counts as in metrics: the kind of commitment, or `preference`.
    #[must_use]
    pub fn capacity_type(&self) -> Option<&'static str> {
        match self {
            Self::CostAware(kind, _) => Some(kind.label()),
            Self::Preference => Some(veneer::TYPE_PREFERENCE),
            Self::Foreign => None,
        }
    }
}

/// What an overlay with these labels is for.
#[must_use]
pub fn purpose(labels: &BTreeMap<String, String>) -> Purpose {
    let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
    if label(kubernetes::MANAGED_BY) != veneer::MANAGED_BY {
        return Purpose::Foreign;
    }
    if let Some(kind) = Kind::from_label(label(veneer::CAPACITY_TYPE)) {
        let region = label(veneer::REGION);
        let (covers, target) = match kind {
            Kind::ReservedInstance => {
                let instance_type = label(veneer::INSTANCE_TYPE);
                let zone = label(veneer::ZONE);
                (instance_type, Target::reserved_in(instance_type, region, zone))
            }
            Kind::Ec2InstanceSavingsPlan => {
                let family = label(veneer::INSTANCE_FAMILY);
                (family, Target::family(family, region))
            }
            Kind::ComputeSavingsPlan => return Purpose::CostAware(kind, Some(Target::compute())),
        };
        let is_known = !covers.is_empty() && !region.is_empty();
        return Purpose::CostAware(kind, is_known.then_some(target));
    }
    match label(veneer::TYPE) {
        veneer::TYPE_PREFERENCE => Purpose::Preference,
        _ => Purpose::Foreign,
    }
}

/// The targets that have an overlay.
#[must_use]
pub fn existing_targets(existing: &[Existing]) -> BTreeSet<Target> {
    let targets = existing
        .iter()
        .filter(|one| !one.deleting)
        .filter_map(|one| match one.purpose() {
            Purpose::CostAware(_, target) => target,
            _ => None,
        });
    targets.collect()
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make it.
    Create(Box<NodeOverlay>),
    /// Bring it into this form.
    Update {
        /// How it should be.
        overlay: Box<NodeOverlay>,
        /// How it is.
        before: Box<Existing>,
        /// Fields of the spec that somebody else set, that we do not set, and that must go.
        strip: Vec<String>,
    },
    /// Remove it.
    Delete(Box<Existing>),
}

impl Action {
    /// The overlay's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Create(overlay) | Self::Update { overlay, .. } => {
                overlay.metadata.name.as_deref().unwrap_or_default()
            }
            Self::Delete(existing) => &existing.name,
        }
    }

    /// `create`, `update` or `delete`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Update { .. } => "update",
            Self::Delete(_) => "delete",
        }
    }

    /// What the overlay is for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        match self {
            Self::Create(overlay) | Self::Update { overlay, .. } => {
                let labels = overlay.metadata.labels.as_ref();
                labels.map_or(Purpose::Foreign, purpose)
            }
            Self::Delete(existing) => existing.purpose(),
        }
    }

    /// The kind of commitment, or `preference`.
    #[must_use]
    pub fn capacity_type(&self) -> &'static str {
        self.purpose().capacity_type().unwrap_or_default()
    }
}

/// What to do, and what stands in the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order: what is new or changed, then what goes.
    pub actions: Vec<Action>,
    /// Names that we would use and that overlays of somebody else have.
    pub taken: Vec<String>,
}

/// Compares what should exist of one family with what does. `keep` says which of our overlays stay although nobody
/// asked for them: those about which nothing can be concluded.
#[must_use]
pub fn plan(
    desired: &[NodeOverlay],
    existing: &[Existing],
    family: Family,
    keep: impl Fn(&Existing) -> bool,
) -> Plan {
    let mut plan = Plan::default();
    let by_name: BTreeMap<&str, &Existing> = existing.iter().map(|one| (one.name.as_str(), one)).collect();
    let mut wanted = BTreeSet::new();
    for overlay in desired {
        let name = overlay.metadata.name.as_deref().unwrap_or_default();
        wanted.insert(name);
        match by_name.get(name) {
            None => plan.actions.push(Action::Create(Box::new(overlay.clone()))),
            Some(found) if !found.is_of(family) => plan.taken.push(name.to_owned()),
            // It comes back once it is gone, with the event of its deletion.
            Some(found) if found.deleting => {}
            Some(found) => {
                if diff::differs(overlay, found) {
                    plan.actions.push(Action::Update {
                        overlay: Box::new(overlay.clone()),
                        before: Box::new((*found).clone()),
                        strip: diff::foreign_fields(overlay, found),
                    });
                }
            }
        }
    }
    for found in existing {
        let surplus = found.is_of(family) && !found.deleting && !wanted.contains(found.name.as_str());
        if surplus && !keep(found) {
            plan.actions.push(Action::Delete(Box::new(found.clone())));
        }
    }
    plan
}

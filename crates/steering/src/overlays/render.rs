//! How a decision or a preference is written as a NodeOverlay.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use veneer_api::labels::{karpenter, kubernetes, veneer};
use veneer_api::{
    Extra, NodeOverlay, NodeOverlaySpec, NodeSelectorRequirement, NodeSelectorRequirementWithMinValues,
    Operator,
};

use crate::commitments::{Kind, Target, family_of};
use crate::decisions::Reason;
use crate::preferences::{MAX_NUMBER, Preference};

/// The price of what is covered.
#[derive(Clone, Debug, PartialEq)]
pub enum Pricing {
    /// This percentage off, so that the order of prices within the covered set stays.
    Ordered {
        /// As it stands in the overlay, e.g. `-95%`.
        adjustment: String,
    },
    /// `0.00` for all of it, as the first release had it.
    Zero,
}

/// The weights of cost-aware overlays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Of Reserved Instances.
    pub reserved_instance: i32,
    /// Of EC2 Instance Savings Plans.
    pub ec2_instance_savings_plan: i32,
    /// Of Compute Savings Plans.
    pub compute_savings_plan: i32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            reserved_instance: 30,
            ec2_instance_savings_plan: 20,
            compute_savings_plan: 10,
        }
    }
}

impl Weights {
    /// The weights beside preferences with these numbers, which are weights too. Two overlays of one weight that change the price of
    /// a common offering conflict, and Karpenter leaves one of them out in every NodePool. So a weight that a preference has moves up to the
    /// next free one; the order among the three stays.
    #[must_use]
    pub fn beside(self, taken: &BTreeSet<i32>) -> Self {
        let mut moved = self;
        let mut weights = [
            &mut moved.reserved_instance,
            &mut moved.ec2_instance_savings_plan,
            &mut moved.compute_savings_plan,
        ];
        weights.sort();
        let mut before: Option<(i32, i32)> = None;
        for weight in weights {
            let configured = *weight;
            let least = match before {
                Some((other, other_moved)) if other < configured => configured.max(other_moved + 1),
                Some((_, other_moved)) => other_moved,
                None => configured,
            };
            let mut free = (least..=MAX_NUMBER).filter(|weight| !taken.contains(weight));
            *weight = free.next().unwrap_or(configured);
            before = Some((configured, *weight));
        }
        moved
    }

    /// The weight of zonal Reserved Instances: the first above that of regional ones that nothing else has. With the same weight, the two
    /// overlays of a type would conflict in the zone, and Karpenter would leave one of them out everywhere.
    #[must_use]
    pub fn zonal(self, taken: &BTreeSet<i32>) -> i32 {
        let regional = self.reserved_instance;
        let is_free = |weight: &i32| {
            !taken.contains(weight)
                && *weight != self.ec2_instance_savings_plan
                && *weight != self.compute_savings_plan
        };
        let above = (regional.saturating_add(1)..=MAX_NUMBER).find(is_free);
        // Nothing is above the highest weight.
        let below = || (1..regional).rev().find(is_free);
        above.or_else(below).unwrap_or(regional)
    }
}

/// What the names of cost-aware overlays begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Of Reserved Instances.
    pub reserved_instance: String,
    /// Of EC2 Instance Savings Plans.
    pub ec2_instance_savings_plan: String,
    /// Of Compute Savings Plans.
    pub compute_savings_plan: String,
}

impl Default for Naming {
    fn default() -> Self {
        Self {
            reserved_instance: "cost-aware-ri".to_owned(),
            ec2_instance_savings_plan: "cost-aware-ec2-sp".to_owned(),
            compute_savings_plan: "cost-aware-compute-sp".to_owned(),
        }
    }
}

/// Whether pools that can launch spot too may use cost-aware overlays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MixedPools {
    /// They may.
    #[default]
    Include,
    /// They may not.
    Exclude,
}

/// How cost-aware overlays are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendering {
    /// Their weights.
    pub weights: Weights,
    /// The weight of zonal Reserved Instances; see [`Weights::zonal`].
    pub zonal_weight: i32,
    /// Their names.
    pub naming: Naming,
    /// Their prices.
    pub pricing: Pricing,
    /// Whether they shall match nothing.
    pub disabled: bool,
    /// The label that holds the instance family.
    pub family_label: String,
    /// The only NodePools that they apply to, or all of them.
    pub only_pools: Option<Vec<String>>,
}

impl Rendering {
    /// The name of the target's overlay.
    #[must_use]
    pub fn name(&self, target: &Target) -> String {
        let Target {
            kind,
            covers,
            region,
            zone,
        } = target;
        match kind {
            Kind::ReservedInstance => {
                // The name of a zone begins with that of its region.
                let place = if zone.is_empty() { region } else { zone };
                format!("{}-{covers}-{place}", self.naming.reserved_instance)
            }
            Kind::Ec2InstanceSavingsPlan => {
                format!("{}-{covers}-{region}", self.naming.ec2_instance_savings_plan)
            }
            Kind::ComputeSavingsPlan => format!("{}-global", self.naming.compute_savings_plan),
        }
    }
}

fn require(key: &str, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator: Operator::In,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        extra: Extra::new(),
    }
}

/// What no node has, so that the overlay matches nothing.
fn disabled() -> NodeSelectorRequirement {
    require(veneer::DISABLED, &["true"])
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    pairs.collect()
}

/// The overlay of a commitment.
#[must_use]
pub fn cost_aware(target: &Target, rendering: &Rendering) -> NodeOverlay {
    let Target {
        kind,
        covers,
        region,
        zone,
    } = target;
    let mut requirements = vec![require(
        karpenter::CAPACITY_TYPE,
        &[karpenter::CAPACITY_TYPE_ON_DEMAND],
    )];
    let mut labels = labels(&[
        (kubernetes::MANAGED_BY, veneer::MANAGED_BY),
        (veneer::TYPE, veneer::TYPE_COST_AWARE),
        (veneer::CAPACITY_TYPE, kind.label()),
    ]);
    let mut label = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
    let (weight, reason) = match kind {
        Kind::ReservedInstance => {
            requirements.push(require(kubernetes::INSTANCE_TYPE, &[covers]));
            label(veneer::INSTANCE_TYPE, covers);
            label(veneer::INSTANCE_FAMILY, family_of(covers));
            label(veneer::REGION, region);
            let mut weight = rendering.weights.reserved_instance;
            if !zone.is_empty() {
                requirements.push(require(kubernetes::ZONE, &[zone]));
                label(veneer::ZONE, zone);
                weight = rendering.zonal_weight;
            }
            (weight, Reason::ReservedInstancesAvailable)
        }
        Kind::Ec2InstanceSavingsPlan => {
            requirements.push(require(&rendering.family_label, &[covers]));
            label(veneer::INSTANCE_FAMILY, covers);
            label(veneer::REGION, region);
            (
                rendering.weights.ec2_instance_savings_plan,
                Reason::CapacityAvailable,
            )
        }
        Kind::ComputeSavingsPlan => (rendering.weights.compute_savings_plan, Reason::CapacityAvailable),
    };
    label(veneer::OPTIMIZATION_REASON, reason.as_str());
    if let Some(pools) = &rendering.only_pools {
        let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
        requirements.push(require(karpenter::NODEPOOL, &pools));
    }
    if rendering.disabled {
        requirements.push(disabled());
    }
    let (price, price_adjustment) = match &rendering.pricing {
        Pricing::Ordered { adjustment } => (None, Some(adjustment.clone())),
        Pricing::Zero => (Some("0.00".to_owned()), None),
    };
    NodeOverlay {
        metadata: ObjectMeta {
            name: Some(rendering.name(target)),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: NodeOverlaySpec {
            requirements,
            price,
            price_adjustment,
            weight: Some(weight),
            ..NodeOverlaySpec::default()
        },
        status: None,
    }
}

/// The NodePool that a preference belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRef<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uid, for the owner reference.
    pub uid: &'a str,
}

/// The overlay of a preference.
#[must_use]
pub fn preference(pool: PoolRef<'_>, preference: &Preference, is_disabled: bool) -> NodeOverlay {
    let mut requirements = vec![require(karpenter::NODEPOOL, &[pool.name])];
    requirements.extend(preference.matchers.iter().cloned());
    if is_disabled {
        requirements.push(disabled());
    }
    let number = preference.number.to_string();
    NodeOverlay {
        metadata: ObjectMeta {
            name: Some(format!("pref-{}-{number}", pool.name)),
            labels: Some(labels(&[
                (kubernetes::MANAGED_BY, veneer::MANAGED_BY),
                (veneer::TYPE, veneer::TYPE_PREFERENCE),
                (veneer::SOURCE_NODEPOOL, pool.name),
                (veneer::PREFERENCE_NUMBER, &number),
            ])),
            owner_references: Some(vec![OwnerReference {
                api_version: "karpenter.sh/v1".to_owned(),
                kind: "NodePool".to_owned(),
                name: pool.name.to_owned(),
                uid: pool.uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: NodeOverlaySpec {
            requirements,
            price_adjustment: Some(preference.adjustment.clone()),
            weight: Some(preference.number),
            ..NodeOverlaySpec::default()
        },
        status: None,
    }
}

/// Whether a NodePool with these requirements launches nothing but on-demand nodes.
#[must_use]
pub fn on_demand_only(requirements: &[NodeSelectorRequirementWithMinValues]) -> bool {
    let mut possible = vec![
        karpenter::CAPACITY_TYPE_ON_DEMAND,
        karpenter::CAPACITY_TYPE_RESERVED,
        karpenter::CAPACITY_TYPE_SPOT,
    ];
    for one in requirements
        .iter()
        .filter(|one| one.key == karpenter::CAPACITY_TYPE)
    {
        possible.retain(|value| {
            let listed = one.values.iter().any(|text| text == value);
            match one.operator {
                Operator::In => listed,
                Operator::NotIn => !listed,
                Operator::DoesNotExist => false,
                _ => true,
            }
        });
    }
    possible.contains(&karpenter::CAPACITY_TYPE_ON_DEMAND)
        && !possible.contains(&karpenter::CAPACITY_TYPE_SPOT)
}

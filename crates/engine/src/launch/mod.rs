//! Launch: from the types that a claim may become to the request that EC2 gets, and what EC2 would choose.
//!
//! [`Launcher::fleet`] is a pure function from a [`Claim`] and a [`NodeClass`] to a [`FleetRequest`], decision by
//! decision as Karpenter's AWS provider makes them: filters ([`Filter`], in that order), order by adjusted price, at
//! most 60 types, one launch template for each image, number of pods and reservation, and one override for each type
//! and zone with `Priority` = adjusted price. [`choice()`] says which override EC2 would take.
//!
//! Invariants: the request is made of available offerings that the claim allows, in zones that have a subnet; types
//! of the same price stay in the order given (as far as Go's sort leaves them there; Karpenter's own order of types
//! is random). Tags and the names of launch templates are no part of a request: nothing is decided by them.

mod candidates;
mod choice;
mod filters;
mod node_class;
mod request;

use std::borrow::Cow;
use std::sync::Arc;

use crate::instance_type::{InstanceType, Offering};
use crate::labels::{self, LabelRules, LabelSet};
use crate::packing::MinValuesPolicy;
use crate::requirements::{Operator, Requirement, Requirements};
use crate::resources::ResourceList;
use crate::vocabulary::{Symbol, Vocabulary};

pub use candidates::{claim_of, offering_starts};
pub use choice::{Basis, Choice, choice};
pub use request::{
    AllocationStrategy, FleetRequest, LaunchTemplate, LaunchTemplateConfig, Override, TargetCapacity,
};

/// How many types a fleet request has at most.
pub const MAX_INSTANCE_TYPES: usize = 60;

/// A node to launch.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// What its labels must be.
    pub requirements: Requirements,
    /// What its pods and DaemonSets ask for in total.
    pub requests: &'a ResourceList,
    /// The types it may become.
    pub candidates: Vec<Candidate<'a>>,
    /// Whether an overlay sets the price of any offering of any candidate; the claim then has the annotation
    /// `karpenter.sh/price-overlay-applied`.
    pub price_overlay: bool,
    /// Whether `minValues` was lowered to make it.
    pub min_values_relaxed: bool,
}

/// A type that a claim may be launched as.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The type.
    pub instance_type: &'a InstanceType,
    /// What it has, overlays included.
    pub capacity: Cow<'a, ResourceList>,
    /// What pods can use of it, overlays included.
    pub allocatable: ResourceList,
    /// The ways to buy it.
    pub offerings: Vec<Priced<'a>>,
}

/// An offering with the price that holds for the claim's NodePool.
#[derive(Clone, Copy, Debug)]
pub struct Priced<'a> {
    /// The offering; its own price is the list price.
    pub offering: &'a Offering,
    /// The price after overlays.
    pub price: f64,
    /// Whether an overlay sets it, be it to what it was.
    pub overlaid: bool,
}

/// What an EC2NodeClass has found: where instances can stand and which images they can boot.
#[derive(Clone, Debug, Default)]
pub struct NodeClass {
    /// The subnets, in the order of the status.
    pub subnets: Vec<Subnet>,
    /// The images, in the order of the status: the first one that suits a type is taken.
    pub amis: Vec<Ami>,
    /// `spec.context`, which EC2 uses for its own purposes.
    pub context: Option<String>,
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// Its availability zone.
    pub zone: String,
    /// How many addresses are free; of several subnets in a zone the one with the most is taken.
    pub available_addresses: i64,
}

/// A machine image.
#[derive(Clone, Debug)]
pub struct Ami {
    /// Its id.
    pub id: String,
    /// Which types can boot it.
    pub requirements: Requirements,
}

/// The filters of the AWS provider, in the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Filter {
    /// The type suits the claim's labels, its requests fit, and it can be bought in some allowed way.
    CompatibleAvailable,
    /// One kind of reservation: EC2 takes one per request.
    CapacityReservationType,
    /// One capacity block: EC2 takes one per request.
    CapacityBlock,
    /// One reservation per type and zone, the one with the most capacity left.
    ReservedOffering,
    /// No metal, GPU or accelerator types as long as there are others.
    ExoticInstanceType,
    /// No spot offering dearer than the cheapest on-demand one.
    SpotOffering,
}

impl Filter {
    /// Why it takes types or offerings away, in words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::CompatibleAvailable => "does not suit the claim, is too small or cannot be had",
            Self::CapacityReservationType => "another kind of reservation is cheaper",
            Self::CapacityBlock => "another capacity block is cheaper",
            Self::ReservedOffering => "has no reserved capacity, and others have",
            Self::ExoticInstanceType => "GPU, accelerator and bare-metal types come last",
            Self::SpotOffering => "spot is dearer than the cheapest on-demand offering",
        }
    }
}

/// What a filter took away.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// The filter.
    pub filter: Filter,
    /// The types that are gone.
    pub instance_types: Vec<Arc<str>>,
    /// How many offerings are gone, those of the types included.
    pub offerings: usize,
}

/// A request, and what led to it.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// What EC2 is asked.
    pub request: FleetRequest,
    /// How the instance would be bought: `reserved`, `spot` or `on-demand`.
    pub capacity_type: &'static str,
    /// What the filters took away, in their order.
    pub rejected: Vec<Rejection>,
    /// The types that were left but are not among the cheapest 60.
    pub truncated: Vec<Arc<str>>,
    /// The types for which there is no image.
    pub without_image: Vec<Arc<str>>,
}

/// Why nothing can be launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A filter leaves no type.
    #[error("no instance type is left: every one {}", .0.describe())]
    Unavailable(Filter),
    /// The cheapest 60 types have too few distinct values of a label.
    #[error(
        "the {MAX_INSTANCE_TYPES} cheapest instance types have too few distinct values of {} for its minValues",
        .0.join(", ")
    )]
    MinValues(Vec<String>),
    /// The node class has no subnets.
    #[error("the node class has found no subnet")]
    NoSubnets,
    /// The node class has no images.
    #[error("the node class has found no machine image")]
    NoImages,
    /// No image suits a type.
    #[error("no instance type that is left can boot one of the node class's machine images")]
    NoImageFits,
    /// No zone of the offerings has a subnet.
    #[error("no offering that is left is in a zone with a subnet")]
    NoOfferings,
}

/// Builds fleet requests for claims that are written in one vocabulary.
#[derive(Clone, Debug)]
pub struct Launcher {
    vocabulary: Vocabulary,
    keys: Keys,
    well_known: LabelSet,
    /// What happens where the cheapest 60 types do not meet `minValues`.
    pub min_values: MinValuesPolicy,
}

#[derive(Clone, Copy, Debug)]
struct Keys {
    capacity_type: Symbol,
    instance_type: Symbol,
    zone: Symbol,
    arch: Symbol,
    size: Symbol,
    tenancy: Symbol,
    reservation_id: Symbol,
    reservation_type: Symbol,
    interruptible: Symbol,
}

impl Launcher {
    /// For claims and candidates that are written in `vocabulary`.
    #[must_use]
    pub fn new(mut vocabulary: Vocabulary, rules: &LabelRules) -> Self {
        let keys = Keys {
            capacity_type: vocabulary.intern(labels::CAPACITY_TYPE),
            instance_type: vocabulary.intern(labels::INSTANCE_TYPE),
            zone: vocabulary.intern(labels::ZONE),
            arch: vocabulary.intern(labels::ARCH),
            size: vocabulary.intern(labels::INSTANCE_SIZE),
            tenancy: vocabulary.intern(labels::INSTANCE_TENANCY),
            reservation_id: vocabulary.intern(labels::RESERVATION_ID),
            reservation_type: vocabulary.intern(labels::RESERVATION_TYPE),
            interruptible: vocabulary.intern(labels::RESERVATION_INTERRUPTIBLE),
        };
        Self {
            well_known: LabelSet::of(rules.well_known(), &mut vocabulary),
            vocabulary,
            keys,
            min_values: MinValuesPolicy::default(),
        }
    }

    /// The vocabulary, which continues the one given.
    #[must_use]
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// An image that suits the types with these labels.
    pub fn ami<S: AsRef<str>>(&mut self, id: &str, requirements: &[(&str, Operator, Vec<S>)]) -> Ami {
        let mut read = Requirements::new();
        for (key, operator, values) in requirements {
            read.add_selector(key, *operator, values, None, &mut self.vocabulary);
        }
        Ami {
            id: id.to_owned(),
            requirements: read,
        }
    }

    /// The claim as Karpenter writes it: with the names of its types, the capacity types that they can be bought as,
    /// and whether a price overlay is in play.
    pub fn claim<'a>(
        &mut self,
        requirements: &Requirements,
        requests: &'a ResourceList,
        candidates: Vec<Candidate<'a>>,
        min_values_relaxed: bool,
    ) -> Claim<'a> {
        let mut offerings = candidates.iter().flat_map(|candidate| &candidate.offerings);
        Claim {
            price_overlay: offerings.any(|priced| priced.overlaid),
            requirements: candidates::narrowed(self, requirements, &candidates),
            requests,
            candidates,
            min_values_relaxed,
        }
    }

    /// What EC2 is asked for a claim.
    pub fn fleet(&mut self, claim: &Claim<'_>, class: &NodeClass) -> Result<Fleet, LaunchError> {
        let requirements = &claim.requirements;
        let (mut candidates, rejected) = filters::apply(self, claim)?;
        let truncated = self.truncate(&mut candidates, requirements)?;
        let capacity_type = self.capacity_type(&candidates, requirements);
        let (request, without_image) = request::build(self, claim, &candidates, class, capacity_type)?;
        Ok(Fleet {
            request,
            capacity_type,
            rejected,
            truncated,
            without_image,
        })
    }

    /// Whether an offering can be launched for the claim.
    fn allows(&self, requirements: &Requirements, offering: &Offering) -> bool {
        offering.available
            && requirements
                .compatible(&offering.requirements, &self.well_known, &self.vocabulary)
                .is_ok()
    }

    /// The single value of an offering's label; empty if it has none.
    fn label(&self, offering: &Offering, key: Symbol) -> &str {
        let value = offering.requirements.get(key).and_then(Requirement::single_value);
        value.map_or("", |value| self.vocabulary.text(value))
    }

    /// Whether the claim may be bought in this way.
    fn accepts(&self, requirements: &Requirements, capacity_type: &str) -> bool {
        let wanted = requirements.get(self.keys.capacity_type);
        let value = self.vocabulary.get(capacity_type);
        wanted.is_none_or(|wanted| match value {
            Some(value) => wanted.has(value, &self.vocabulary),
            None => wanted.is_complement() && wanted.bounds() == crate::requirements::Bounds::default(),
        })
    }

    /// Orders candidates by their cheapest allowed offering and keeps the first 60; gives the names of the others.
    fn truncate(
        &mut self,
        candidates: &mut Vec<Candidate<'_>>,
        requirements: &Requirements,
    ) -> Result<Vec<Arc<str>>, LaunchError> {
        let mut priced: Vec<(f64, Candidate<'_>)> = std::mem::take(candidates)
            .into_iter()
            .map(|candidate| {
                let allowed = candidate
                    .offerings
                    .iter()
                    .filter(|priced| self.allows(requirements, priced.offering));
                let cheapest = allowed.map(|priced| priced.price).fold(f64::MAX, f64::min);
                (cheapest, candidate)
            })
            .collect();
        crate::packing::go_sort::sort_slice(&mut priced, |(a, _), (b, _)| a < b);
        let left: Vec<(f64, Candidate<'_>)> = priced.split_off(priced.len().min(MAX_INSTANCE_TYPES));
        candidates.extend(priced.into_iter().map(|(_, candidate)| candidate));
        if self.min_values == MinValuesPolicy::Strict {
            let unmet = self.min_values_unmet(candidates, requirements);
            if !unmet.is_empty() {
                return Err(LaunchError::MinValues(unmet));
            }
        }
        Ok(left
            .iter()
            .map(|(_, candidate)| Arc::clone(&candidate.instance_type.name))
            .collect())
    }

    /// The labels of which the candidates have fewer distinct values than demanded.
    fn min_values_unmet(&self, candidates: &[Candidate<'_>], requirements: &Requirements) -> Vec<String> {
        let mut unmet = Vec::new();
        for (key, requirement) in requirements.iter() {
            let Some(least) = requirement.min_values() else {
                continue;
            };
            let mut values: Vec<Symbol> = candidates
                .iter()
                .filter_map(|candidate| candidate.instance_type.requirements.get(key))
                .flat_map(|requirement| requirement.values().iter().copied())
                .collect();
            values.sort_unstable();
            values.dedup();
            if i64::try_from(values.len()).unwrap_or(i64::MAX) < least {
                unmet.push(self.vocabulary.text(key).to_owned());
            }
        }
        unmet.sort_unstable();
        unmet
    }

    /// Reserved before spot before on-demand.
    fn capacity_type(&mut self, candidates: &[Candidate<'_>], requirements: &Requirements) -> &'static str {
        for capacity_type in [labels::RESERVED, labels::SPOT] {
            if !self.accepts(requirements, capacity_type) {
                continue;
            }
            let only = self.only(requirements, capacity_type);
            let is_offered = |candidate: &Candidate<'_>| {
                let mut offerings = candidate.offerings.iter();
                offerings.any(|priced| self.allows(&only, priced.offering))
            };
            if candidates.iter().any(is_offered) {
                return capacity_type;
            }
        }
        labels::ON_DEMAND
    }

    /// The same requirements with one capacity type in place of those allowed.
    fn only(&mut self, requirements: &Requirements, capacity_type: &str) -> Requirements {
        let value = self.vocabulary.intern(capacity_type);
        let mut only = Requirements::new();
        for (key, requirement) in requirements.iter() {
            if key != self.keys.capacity_type {
                only.add(key, requirement.clone(), &self.vocabulary);
            }
        }
        only.add(
            self.keys.capacity_type,
            Requirement::one_of([value]),
            &self.vocabulary,
        );
        only
    }
}

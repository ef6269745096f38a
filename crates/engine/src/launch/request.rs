//! The request itself, in the words of EC2's `CreateFleet`.

use std::sync::Arc;

use super::{Candidate, Claim, LaunchError, Launcher, NodeClass, Subnet};
use crate::labels::{RESERVED, SPOT};
use crate::quantity::Quantity;
use crate::requirements::{Requirement, Requirements};
use crate::resources::PODS;

const EFA: &str = "vpc.amazonaws.com/efa";

/// How EC2 is to choose among overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationStrategy {
    /// On-demand: the lowest list price.
    LowestPrice,
    /// On-demand: the lowest `Priority`.
    Prioritized,
    /// Spot: the pools with the most capacity, and of these the cheapest.
    PriceCapacityOptimized,
    /// Spot: the pools with the most capacity, `Priority` as far as that allows.
    CapacityOptimizedPrioritized,
}

impl AllocationStrategy {
    /// Every strategy that the provider uses.
    pub const ALL: [Self; 4] = [
        Self::LowestPrice,
        Self::Prioritized,
        Self::PriceCapacityOptimized,
        Self::CapacityOptimizedPrioritized,
    ];

    /// The strategy as EC2 spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LowestPrice => "lowest-price",
            Self::Prioritized => "prioritized",
            Self::PriceCapacityOptimized => "price-capacity-optimized",
            Self::CapacityOptimizedPrioritized => "capacity-optimized-prioritized",
        }
    }

    /// Whether EC2 looks at `Priority`, so that overlays have a say.
    #[must_use]
    pub fn looks_at_priority(self) -> bool {
        matches!(self, Self::Prioritized | Self::CapacityOptimizedPrioritized)
    }
}

/// What EC2 is to launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetCapacity {
    /// An on-demand instance, also into an open-ended reservation.
    OnDemand,
    /// A spot instance.
    Spot,
    /// An instance of a capacity block.
    CapacityBlock,
    /// An instance of a reservation that AWS may take back.
    ReservedCapacity,
}

impl TargetCapacity {
    /// The target as EC2 spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::CapacityBlock => "capacity-block",
            Self::ReservedCapacity => "reserved-capacity",
        }
    }
}

/// What EC2 is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetRequest {
    /// `spec.context` of the node class.
    pub context: Option<String>,
    /// One for each launch template.
    pub configs: Vec<LaunchTemplateConfig>,
    /// What is to be launched.
    pub target: TargetCapacity,
    /// How EC2 chooses; none where there is nothing to choose by.
    pub strategy: Option<AllocationStrategy>,
}

/// A launch template and what may be launched from it.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchTemplateConfig {
    /// What the template says.
    pub template: LaunchTemplate,
    /// One for each type and zone.
    pub overrides: Vec<Override>,
}

/// What distinguishes launch templates of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTemplate {
    /// The machine image.
    pub image_id: String,
    /// How many pods the kubelet is told to take.
    pub max_pods: i64,
    /// How many EFA interfaces there are; 0 unless the pods ask for them.
    pub efa_count: i64,
    /// The reservation it launches into.
    pub reservation_id: Option<String>,
    /// `default` or `dedicated` hardware.
    pub tenancy: &'static str,
}

/// One thing that EC2 may launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The type.
    pub instance_type: Arc<str>,
    /// Its architecture.
    pub architecture: String,
    /// The zone.
    pub zone: String,
    /// The subnet there.
    pub subnet_id: String,
    /// The machine image.
    pub image_id: String,
    /// The price after overlays: lower comes first where the strategy looks at it.
    pub priority: f64,
    /// The price before overlays; EC2 knows it, so it is no part of what is sent.
    pub list_price: f64,
}

impl FleetRequest {
    /// Every override with the position of its config.
    pub fn overrides(&self) -> impl Iterator<Item = (usize, &Override)> {
        let configs = self.configs.iter().enumerate();
        configs.flat_map(|(at, config)| config.overrides.iter().map(move |each| (at, each)))
    }
}

/// Template, priority and the rest of a request; also the types that no image suits.
pub(super) fn build(
    launcher: &mut Launcher,
    claim: &Claim<'_>,
    candidates: &[Candidate<'_>],
    class: &NodeClass,
    capacity_type: &'static str,
) -> Result<(FleetRequest, Vec<Arc<str>>), LaunchError> {
    let only = launcher.only(&claim.requirements, capacity_type);
    let launcher = &*launcher;
    let subnets = subnets_by_zone(class);
    if subnets.is_empty() {
        return Err(LaunchError::NoSubnets);
    }
    if class.amis.is_empty() {
        return Err(LaunchError::NoImages);
    }
    let mut groups: Vec<Group<'_, '_>> = Vec::new();
    let mut without_image = Vec::new();
    for candidate in candidates {
        let Some((rank, ami)) = launcher.image(candidate.instance_type, class) else {
            without_image.push(Arc::clone(&candidate.instance_type.name));
            continue;
        };
        let amount = |resource: &str| candidate.capacity.get(resource).map_or(0, Quantity::value);
        let efa_count = if claim.requests.contains(EFA) {
            amount(EFA)
        } else {
            0
        };
        let reservations = reservations(launcher, candidate, capacity_type);
        let key = (rank, amount(PODS), efa_count, reservations);
        match groups.iter_mut().find(|group| group.key == key) {
            Some(group) => group.members.push(candidate),
            None => groups.push(Group {
                key,
                image_id: &ami.id,
                members: vec![candidate],
            }),
        }
    }
    if groups.is_empty() {
        return Err(LaunchError::NoImageFits);
    }
    groups.sort_by_key(|group| group.key.0);
    let tenancy = tenancy(launcher, &claim.requirements);
    let mut configs = Vec::new();
    for group in &groups {
        let (_, max_pods, efa_count, reservations) = &group.key;
        for reservation_id in reservations {
            let overrides = overrides(launcher, group, &only, &subnets, reservation_id.as_deref());
            if !overrides.is_empty() {
                let template = LaunchTemplate {
                    image_id: group.image_id.to_owned(),
                    max_pods: *max_pods,
                    efa_count: *efa_count,
                    reservation_id: reservation_id.clone(),
                    tenancy,
                };
                configs.push(LaunchTemplateConfig { template, overrides });
            }
        }
    }
    if configs.is_empty() {
        return Err(LaunchError::NoOfferings);
    }
    let (target, strategy) = target(launcher, candidates, capacity_type, claim.price_overlay);
    let context = class.context.clone().filter(|_| !claim.min_values_relaxed);
    let request = FleetRequest {
        context,
        configs,
        target,
        strategy,
    };
    Ok((request, without_image))
}

/// Candidates that share launch templates: image, pods, EFA interfaces and reservations.
struct Group<'c, 'a> {
    key: (usize, i64, i64, Vec<Option<String>>),
    image_id: &'c str,
    members: Vec<&'c Candidate<'a>>,
}

/// Of each zone the subnet with the most free addresses; of several the first.
fn subnets_by_zone(class: &NodeClass) -> Vec<&Subnet> {
    let mut chosen: Vec<&Subnet> = Vec::new();
    for subnet in &class.subnets {
        match chosen.iter_mut().find(|known| known.zone == subnet.zone) {
            Some(known) if known.available_addresses < subnet.available_addresses => *known = subnet,
            Some(_) => {}
            None => chosen.push(subnet),
        }
    }
    chosen
}

/// The reservations to launch into, each with a template of its own; `None` alone where none is used.
fn reservations(launcher: &Launcher, candidate: &Candidate<'_>, capacity_type: &str) -> Vec<Option<String>> {
    if capacity_type != RESERVED {
        return vec![None];
    }
    let offerings = candidate.offerings.iter().map(|priced| priced.offering);
    let reserved = offerings.filter(|o| launcher.label(o, launcher.keys.capacity_type) == RESERVED);
    reserved
        .map(|o| Some(launcher.label(o, launcher.keys.reservation_id).to_owned()))
        .collect()
}

/// `default` unless the claim allows nothing but `dedicated`.
fn tenancy(launcher: &Launcher, requirements: &Requirements) -> &'static str {
    let has = |name: &str| {
        requirements.get(launcher.keys.tenancy).is_none_or(|requirement| {
            match launcher.vocabulary.get(name) {
                Some(value) => requirement.has(value, &launcher.vocabulary),
                None => requirement.is_complement(),
            }
        })
    };
    if !has("default") && has("dedicated") {
        "dedicated"
    } else {
        "default"
    }
}

fn overrides(
    launcher: &Launcher,
    group: &Group<'_, '_>,
    only: &Requirements,
    subnets: &[&Subnet],
    reservation_id: Option<&str>,
) -> Vec<Override> {
    let mut overrides: Vec<Override> = Vec::new();
    for candidate in &group.members {
        let architecture = candidate.instance_type.requirements.get(launcher.keys.arch);
        let architecture = architecture
            .and_then(Requirement::single_value)
            .map_or("", |value| launcher.vocabulary.text(value));
        let mut seen: Vec<&str> = Vec::new();
        for priced in &candidate.offerings {
            let zone = launcher.label(priced.offering, launcher.keys.zone);
            let of_reservation = reservation_id
                .is_none_or(|id| launcher.label(priced.offering, launcher.keys.reservation_id) == id);
            if !of_reservation || !launcher.allows(only, priced.offering) || seen.contains(&zone) {
                continue;
            }
            seen.push(zone);
            let Some(subnet) = subnets.iter().find(|subnet| subnet.zone == zone) else {
                continue;
            };
            overrides.push(Override {
                instance_type: Arc::clone(&candidate.instance_type.name),
                architecture: architecture.to_owned(),
                zone: zone.to_owned(),
                subnet_id: subnet.id.clone(),
                image_id: group.image_id.to_owned(),
                priority: priced.price,
                list_price: priced.offering.price,
            });
        }
    }
    overrides
}

/// What is launched and how EC2 chooses. With a price overlay in play EC2 goes by `Priority`, without by its own
/// prices.
fn target(
    launcher: &Launcher,
    candidates: &[Candidate<'_>],
    capacity_type: &str,
    overlay: bool,
) -> (TargetCapacity, Option<AllocationStrategy>) {
    use AllocationStrategy::{
        CapacityOptimizedPrioritized, LowestPrice, PriceCapacityOptimized, Prioritized,
    };
    let on_demand = Some(if overlay { Prioritized } else { LowestPrice });
    if capacity_type == SPOT {
        let strategy = if overlay {
            CapacityOptimizedPrioritized
        } else {
            PriceCapacityOptimized
        };
        return (TargetCapacity::Spot, Some(strategy));
    }
    if capacity_type != RESERVED {
        return (TargetCapacity::OnDemand, on_demand);
    }
    let first = |key| {
        let offerings = || candidates.iter().flat_map(|candidate| &candidate.offerings);
        let mut speaking = offerings().filter(move |priced| priced.offering.requirements.contains(key));
        speaking
            .next()
            .map_or("", |priced| launcher.label(priced.offering, key))
    };
    if first(launcher.keys.reservation_type) == "capacity-block" {
        (TargetCapacity::CapacityBlock, None)
    } else if first(launcher.keys.interruptible) == "true" {
        (TargetCapacity::ReservedCapacity, None)
    } else {
        (TargetCapacity::OnDemand, on_demand)
    }
}

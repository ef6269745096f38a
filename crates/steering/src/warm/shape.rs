//! Which type a new spare is of, and in which zone.
//!
//! The cheapest type that takes nearly all of the pods for which it is made, as [`Needs`] has them; with nothing known, the cheapest of
//! the pool. Spares are spread over the zones of that type, more of them where more pods are short of room.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::karpenter;
use veneer_api::overprovisioner::SpareState;
use veneer_api::{NodePool, Overprovisioner};
use veneer_engine::plan::{Snapshot, name};
use veneer_engine::provision::{LaunchOption, Market, Spare, spare_claim};
use veneer_engine::quantity::Quantity;

use super::needs::{Memory, Need, Needs, Source};

/// Of the pods that one type can take at most, in percent: so many are enough, since a few large pods should not decide for all.
const ENOUGH: usize = 90;
/// Instances with more memory cannot hibernate, in bytes.
const HIBERNATION_LIMIT: i64 = 150_000_000_000;
/// How many names are told.
const TOLD: usize = 3;

/// What new spares of a pool are.
#[derive(Clone, Debug)]
pub struct Shape {
    /// One way to launch them for each zone, the cheapest first; all of the same type.
    zones: Vec<LaunchOption>,
    /// How many pods are for each of these zones.
    pods: Vec<f64>,
    /// Whether the pods need just this capacity type of those that the pool allows.
    pub needs_capacity_type: bool,
    /// Where it is known from.
    pub source: Source,
}

impl Shape {
    /// The cheapest way to launch one.
    #[must_use]
    pub fn cheapest(&self) -> Option<&LaunchOption> {
        self.zones.first()
    }

    /// The zone for the next spare, beside those that each zone has already; counts it.
    pub fn next(&self, spares: &mut BTreeMap<String, usize>) -> Option<&LaunchOption> {
        let count = |option: &LaunchOption| spares.get(&option.zone).copied().unwrap_or_default();
        let mut best: Option<(f64, &LaunchOption)> = None;
        for (option, pods) in self.zones.iter().zip(&self.pods) {
            #[expect(clippy::cast_precision_loss, reason = "numbers of nodes are far below that")]
            let share = pods / (count(option) as f64 + 1.0);
            if best.is_none_or(|(most, _)| share > most + 1e-9) {
                best = Some((share, option));
            }
        }
        let (_, option) = best?;
        *spares.entry(option.zone.clone()).or_default() += 1;
        Some(option)
    }
}

/// The shape of new spares of a pool, or why there is none.
pub fn choose(
    pool: &NodePool,
    state: &SpareState,
    needs: &Needs,
    market: &mut Market,
    now: Timestamp,
) -> Result<Shape, String> {
    let options = launchable(pool, state, market, now)?;
    // Pods of other zones get their own spares of the same type.
    let served = |option: &LaunchOption| -> usize {
        let capacity_type = Some(option.capacity_type.as_str());
        let takes = |need: &&Need| need.fit.takes(&option.instance_type, None, capacity_type);
        needs
            .wanted
            .iter()
            .filter(takes)
            .map(|need| need.pods.max(1))
            .sum()
    };
    let is_used = |option: &LaunchOption| {
        let zone = Some(option.zone.as_str());
        let capacity_type = Some(option.capacity_type.as_str());
        let takes = |need: &Need| need.fit.takes(&option.instance_type, zone, capacity_type);
        needs.wanted.is_empty() || needs.wanted.iter().any(takes)
    };
    let used: Vec<&LaunchOption> = options.iter().filter(|option| is_used(option)).collect();
    let served: Vec<usize> = used.iter().map(|option| served(option)).collect();
    let most = served.iter().copied().max().unwrap_or_default();
    if most == 0 && !needs.wanted.is_empty() {
        return Err(nothing_fits(pool, state, needs));
    }
    let enough = (most * ENOUGH).div_ceil(100);
    let good: Vec<&LaunchOption> = used
        .iter()
        .zip(&served)
        .filter(|(_, served)| **served >= enough)
        .map(|(option, _)| *option)
        .collect();
    let Some(first) = good.first() else {
        return Err(format!(
            "NodePool {}: no instance type is available",
            name(&pool.metadata)
        ));
    };
    let is_same = |option: &&&LaunchOption| option.instance_type == first.instance_type;
    let is_bought_alike = |option: &&&LaunchOption| option.capacity_type == first.capacity_type;
    let zones = good.iter().filter(is_same).filter(is_bought_alike);
    let zones: Vec<LaunchOption> = zones.map(|option| LaunchOption::clone(option)).collect();
    let mut all = options
        .iter()
        .filter(|option| option.instance_type == first.instance_type);
    let needs_capacity_type = all.any(|option| {
        let mut others = good.iter().filter(is_same);
        !others.any(|other| other.capacity_type == option.capacity_type)
    });
    Ok(Shape {
        pods: pods_of_zones(&zones, needs),
        zones,
        needs_capacity_type,
        source: needs.source,
    })
}

/// What a new spare would be for a cluster of which nothing is remembered.
pub fn typical(
    snapshot: &Snapshot,
    one: Option<&Overprovisioner>,
    pool: &NodePool,
    state: &SpareState,
    market: &mut Market,
    now: Timestamp,
) -> Result<LaunchOption, String> {
    let mut memory = Memory::default();
    memory.observe_for(snapshot, [name(&pool.metadata)].into(), market, now);
    let needs = memory.needs(one, pool, snapshot, market, now)?;
    let shape = choose(pool, state, &needs, market, now)?;
    let found = shape.cheapest().cloned();
    found.ok_or_else(|| format!("NodePool {}: no instance type is available", name(&pool.metadata)))
}

/// How many pods each zone has to have room for. Where pods were short of room, only those count.
fn pods_of_zones(zones: &[LaunchOption], needs: &Needs) -> Vec<f64> {
    let were_short = needs.wanted.iter().any(|need| need.waiting > 0);
    let mut pods = vec![0.0; zones.len()];
    for need in &needs.wanted {
        let takes = |option: &LaunchOption| {
            let zone = Some(option.zone.as_str());
            need.fit
                .takes(&option.instance_type, zone, Some(&option.capacity_type))
        };
        let count = if were_short { need.waiting } else { need.pods };
        let here = zones.iter().filter(|option| takes(option)).count().max(1);
        #[expect(clippy::cast_precision_loss, reason = "numbers of pods are far below that")]
        let share = count as f64 / here as f64;
        for (option, pods) in zones.iter().zip(&mut pods) {
            *pods += if takes(option) { share } else { 0.0 };
        }
    }
    if pods.iter().all(|pods| *pods == 0.0) {
        pods.fill(1.0);
    }
    pods
}

/// The ways to launch a spare in this state, the cheapest first.
fn launchable(
    pool: &NodePool,
    state: &SpareState,
    market: &mut Market,
    now: Timestamp,
) -> Result<Vec<LaunchOption>, String> {
    let pool_name = name(&pool.metadata);
    let on_demand = matches!(state, SpareState::Stopped | SpareState::Hibernated);
    let open = Spare {
        overprovisioner: "",
        instance_type: None,
        zone: None,
        capacity_type: on_demand.then_some(karpenter::CAPACITY_TYPE_ON_DEMAND),
        takes_capacity_type: false,
        hibernates: false,
    };
    let mut options = Vec::new();
    if !on_demand || allows_on_demand(pool) {
        options = market.options(&spare_claim(pool, open, (now, 0)), usize::MAX);
    }
    if options.is_empty() {
        let needs = if on_demand {
            format!(
                "{state} spares are on-demand instances, since spot ones cannot be stopped, and no on-demand type of the NodePool is available; allow on-demand in its requirements, or use state Running"
            )
        } else {
            "no instance type that its requirements allow is available; widen them".to_owned()
        };
        return Err(format!("NodePool {pool_name}: {needs}"));
    }
    if *state == SpareState::Hibernated {
        let why = |option: &LaunchOption| cannot_hibernate(option, market);
        let all: Vec<Option<&'static str>> = options.iter().map(why).collect();
        let mut left_out: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (option, why) in options.iter().zip(&all) {
            let types = why.map(|why| left_out.entry(why).or_default());
            if let Some(types) = types.filter(|types| !types.contains(&option.instance_type.as_str())) {
                types.push(&option.instance_type);
            }
        }
        if all.iter().all(Option::is_some) {
            let whys = left_out
                .iter()
                .map(|(why, types)| format!("{} {why}", shown(types)));
            let whys: Vec<String> = whys.collect();
            return Err(format!(
                "NodePool {pool_name}: none of its types can hibernate: {}; allow types that can in its requirements (`veneer catalog` lists them), or use state Stopped",
                whys.join(", ")
            ));
        }
        let mut whys = all.iter();
        options.retain(|_| whys.next().is_some_and(Option::is_none));
    }
    Ok(options)
}

/// The first few, and how many more there are.
fn shown(types: &[&str]) -> String {
    let first: Vec<&str> = types.iter().copied().take(TOLD).collect();
    match types.len().saturating_sub(TOLD) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Why instances of a type cannot hibernate, if they cannot.
fn cannot_hibernate(option: &LaunchOption, market: &Market) -> Option<&'static str> {
    let memory = option.capacity.get("memory");
    let memory = memory.and_then(|text| text.0.parse::<Quantity>().ok());
    match market.catalogue().can_hibernate(&option.instance_type) {
        Some(false) => Some("cannot, by the catalog"),
        None if option.instance_type.contains("metal") => Some("(bare metal) cannot"),
        _ if memory.is_none_or(|memory| memory.value() > HIBERNATION_LIMIT) => {
            Some("cannot with more than 150 GB of memory")
        }
        _ => None,
    }
}

fn nothing_fits(pool: &NodePool, state: &SpareState, needs: &Needs) -> String {
    let pool_name = name(&pool.metadata);
    let types: Vec<&str> = needs
        .wanted
        .iter()
        .flat_map(|need| need.fit.types())
        .map(String::as_str)
        .collect();
    let types = shown(&types);
    match needs.source {
        Source::NodeShape => format!(
            "NodePool {pool_name}: none of the types that spec.nodeShape leaves ({types}) is available for {state} spares; allow others"
        ),
        _ => format!(
            "NodePool {pool_name}: none of the types that its pods fit on ({types}) is available for {state} spares; widen its requirements, use another state, or set spec.nodeShape"
        ),
    }
}

fn allows_on_demand(pool: &NodePool) -> bool {
    let requirements = pool.spec.template.spec.requirements.iter();
    let mut requirements = requirements.filter(|one| one.key == karpenter::CAPACITY_TYPE);
    requirements.all(|one| {
        let has = one
            .values
            .iter()
            .any(|value| value == karpenter::CAPACITY_TYPE_ON_DEMAND);
        match one.operator.as_str() {
            "In" => has,
            "NotIn" => !has,
            "DoesNotExist" => false,
            _ => true,
        }
    })
}

//! What must hold at every moment, whatever goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::NodeOverlay;
use veneer_api::labels::{karpenter, kubernetes, veneer};
use veneer_engine::plan::{Snapshot, is_daemon_pod, is_deleting, label, provider_id};
use veneer_engine::quantity::Quantity;
use veneer_steering::commitments::Kind;
use veneer_steering::machines::{SeenMachine, machines, of_claims};

use crate::cloud::State;
use crate::objects::node_of;
use crate::world::World;

/// An instance may be without its claim for as long as orphans live, the list is old and a crash takes.
const LEAK: SignedDuration = SignedDuration::from_mins(5);

/// The most steps that a pass over one of these small worlds may take: some milliseconds, whatever the tenants do.
const MOST_STEPS: u64 = 20_000_000;

/// What was seen so far.
#[derive(Debug)]
pub(super) struct Watch {
    foreign_node: Arc<Node>,
    foreign_overlay: Arc<NodeOverlay>,
    /// Instances without a claim, since when.
    orphans: BTreeMap<String, Timestamp>,
    /// Overlays of commitments of which nothing is left, since when.
    exhausted: BTreeMap<String, Timestamp>,
    /// Extra nodes for refused pods that a pod has come to.
    used_extras: BTreeSet<String>,
    /// After this long an overlay of an exhausted commitment must be gone.
    refresh: SignedDuration,
}

impl Watch {
    pub(super) fn new(node: Arc<Node>, overlay: Arc<NodeOverlay>, refresh: SignedDuration) -> Self {
        Self {
            foreign_node: node,
            foreign_overlay: overlay,
            orphans: BTreeMap::new(),
            exhausted: BTreeMap::new(),
            used_extras: BTreeSet::new(),
            refresh,
        }
    }

    /// The first thing that does not hold.
    pub(super) fn check(&mut self, world: &World) -> Option<String> {
        doubled(world)
            .or_else(|| self.leaked(world))
            .or_else(|| beyond_limits(world))
            .or_else(|| beyond_need(world))
            .or_else(|| self.beyond_refusals(world))
            .or_else(|| self.foreign(world))
            .or_else(|| self.steers_to_nothing(world))
            .or_else(|| beyond_the_cap(world))
            .or_else(|| counted_twice(world))
            .or_else(|| {
                let steps = world.statistics.most_steps;
                (steps > MOST_STEPS).then(|| format!("a pass took {steps} steps, {MOST_STEPS} are allowed"))
            })
            .or_else(|| {
                let forced = world.statistics.forced;
                (forced > 0).then(|| "a pod was deleted where it had to be evicted".to_owned())
            })
            .or_else(|| {
                let unsettled = world.statistics.unsettled;
                (unsettled > 0).then(|| "the controllers never settle at one moment".to_owned())
            })
    }

    fn leaked(&mut self, world: &World) -> Option<String> {
        let running = world
            .cloud
            .machines
            .values()
            .filter(|one| one.state == State::Running);
        let orphans: BTreeSet<&String> = running
            .filter(|one| !world.objects.claims.contains_key(&one.claim))
            .map(|one| &one.id)
            .collect();
        self.orphans.retain(|id, _| orphans.contains(id));
        for id in orphans {
            let since = *self.orphans.entry(id.clone()).or_insert(world.now);
            if world.now.duration_since(since) > LEAK {
                return Some(format!(
                    "instance {id} has no NodeClaim and still runs after {LEAK:#}"
                ));
            }
        }
        None
    }

    /// Pods that the scheduler refuses cost at most one node of each kind that no pod has come to yet.
    fn beyond_refusals(&mut self, world: &World) -> Option<String> {
        let used: BTreeSet<&str> = world
            .objects
            .pods
            .values()
            .filter(|pod| !is_daemon_pod(pod))
            .filter_map(|pod| node_of(pod))
            .collect();
        let claims = &world.objects.claims;
        self.used_extras.retain(|claim| claims.contains_key(claim));
        let mut extra: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, claim) in claims.iter().filter(|(_, claim)| !is_deleting(&claim.metadata)) {
            let annotations = claim.metadata.annotations.as_ref();
            let Some(class) = annotations.and_then(|all| all.get(veneer::REFUSED_CLASS)) else {
                continue;
            };
            let node = claim
                .status
                .as_ref()
                .and_then(|status| status.node_name.as_deref());
            if node.is_some_and(|node| used.contains(node)) {
                self.used_extras.insert(name.clone());
            }
            if !self.used_extras.contains(name) {
                *extra.entry(class).or_default() += 1;
            }
        }
        let (class, most) = extra.iter().max_by_key(|(_, count)| **count)?;
        (*most > 1)
            .then(|| format!("pods of class {class} that the scheduler refuses have {most} extra nodes"))
    }

    fn foreign(&self, world: &World) -> Option<String> {
        let node = self.foreign_node.metadata.name.as_deref().unwrap_or_default();
        if world.objects.nodes.get(node).map(|one| &**one) != Some(&*self.foreign_node) {
            return Some(format!("node {node} of somebody else was changed"));
        }
        let overlay = self.foreign_overlay.metadata.name.as_deref().unwrap_or_default();
        if world.objects.overlays.get(overlay).map(|one| &**one) != Some(&*self.foreign_overlay) {
            return Some(format!("overlay {overlay} of somebody else was changed"));
        }
        None
    }

    /// No overlay for exhausted commitments beyond one refresh of data that can be believed.
    fn steers_to_nothing(&mut self, world: &World) -> Option<String> {
        let is_doubtful = world
            .steering()
            .is_some_and(|steerer| !steerer.decided.doubts.is_empty());
        if is_doubtful || world.gap_until.is_some_and(|until| until >= world.now) {
            self.exhausted.clear();
            return None;
        }
        let applied = world.rates();
        let mut empty: BTreeSet<String> = BTreeSet::new();
        for one in &world.scenario.commitments.reserved_instances {
            let used = applied
                .reserved
                .iter()
                .filter(|((name, _), _)| *name == one.instance_type);
            let used: f64 = used.map(|(_, count)| *count).sum();
            if used > f64::from(one.count) - 1e-6 {
                empty.insert(format!(
                    "cost-aware-ri-{}-{}",
                    one.instance_type, world.scenario.region
                ));
            }
        }
        for (plan, used) in world
            .scenario
            .commitments
            .savings_plans
            .iter()
            .zip(&applied.plans)
        {
            if let Some(family) = plan.family.as_ref().filter(|_| *used > plan.commitment - 1e-6) {
                empty.insert(format!("cost-aware-ec2-sp-{family}-{}", world.scenario.region));
            }
        }
        empty.retain(|overlay| world.objects.overlays.contains_key(overlay));
        self.exhausted.retain(|overlay, _| empty.contains(overlay));
        for overlay in empty {
            let since = *self.exhausted.entry(overlay.clone()).or_insert(world.now);
            if world.now.duration_since(since) > self.refresh {
                return Some(format!(
                    "overlay {overlay} steers to a commitment that was used up since {since}"
                ));
            }
        }
        None
    }
}

fn doubled(world: &World) -> Option<String> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let running = world
        .cloud
        .machines
        .values()
        .filter(|one| one.state == State::Running);
    for machine in running {
        if !seen.insert(&machine.claim) {
            return Some(format!("NodeClaim {} has two instances", machine.claim));
        }
    }
    None
}

/// What is on its way out is not counted: a claim that is deleted while its launch is under way gets its instance after
/// its room was given to another, until that instance is ended.
fn beyond_limits(world: &World) -> Option<String> {
    let claims = &world.objects.claims;
    let stays = |one: &crate::cloud::Machine| {
        claims
            .get(&one.claim)
            .is_some_and(|claim| !is_deleting(&claim.metadata))
    };
    for (name, pool) in &world.objects.pools {
        for (resource, limit) in &pool.spec.limits {
            let limit: Quantity = limit.0.parse().ok()?;
            let mut total = Quantity::default();
            for machine in world
                .cloud
                .machines
                .values()
                .filter(|one| one.state == State::Running && one.heard && stays(one))
            {
                let of_pool = machine
                    .claim
                    .rsplit_once('-')
                    .is_some_and(|(pool, _)| pool == name);
                let node = ApiQuantity("1".to_owned());
                let amount = match resource.as_str() {
                    "nodes" => Some(&node),
                    _ => machine.described.capacity.get(resource),
                };
                if let Some(amount) = amount
                    .filter(|_| of_pool)
                    .and_then(|amount| amount.0.parse().ok())
                {
                    total += &amount;
                }
            }
            if total > limit {
                return Some(format!(
                    "NodePool {name} has {total} of {resource}, its limit is {limit}"
                ));
            }
        }
    }
    None
}

/// A claim for every pod, one more for each that is being replaced, and some that are empty since the load fell.
fn beyond_need(world: &World) -> Option<String> {
    let (claims, pods) = (world.objects.claims.len(), world.objects.pods.len());
    (claims > 2 * pods + 60).then(|| format!("there are {claims} NodeClaims for {pods} pods"))
}

/// Machines launched since the data was taken are charged to it at once.
fn beyond_the_cap(world: &World) -> Option<String> {
    let ledger = world.steering()?.ledger()?;
    let book = ledger.books.get(&Kind::ReservedInstance)?.as_ref().ok()?;
    for (target, balance) in &book.balances {
        // Histories have regional ones only.
        let Ok(balance) = balance else { continue };
        let overlay = format!("cost-aware-ri-{}-{}", target.covers, target.region);
        let launched = world.objects.claims.values().filter(|claim| {
            let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
            label(&claim.metadata, kubernetes::INSTANCE_TYPE) == Some(&target.covers)
                && label(&claim.metadata, karpenter::CAPACITY_TYPE) == Some("on-demand")
                && !is_deleting(&claim.metadata)
                && created.is_some_and(|created| created.as_second() >= book.data_at.as_second())
        });
        let launched = u32::try_from(launched.count()).map_or(f64::MAX, f64::from);
        if balance.left > 0.5
            && launched > balance.left - 0.5
            && world.objects.overlays.contains_key(&overlay)
        {
            return Some(format!(
                "overlay {overlay} stands although {launched} launches since the data was taken use up {}",
                balance.left
            ));
        }
    }
    None
}

/// Steering, launches and consolidation charge the same machines to commitments.
fn counted_twice(world: &World) -> Option<String> {
    let claims = world.objects.claims.values();
    let seen: Vec<SeenMachine> = claims.map(|claim| SeenMachine::from(&**claim)).collect();
    let steering = machines(seen.iter(), std::iter::empty(), &world.prices);
    let snapshot = Snapshot {
        node_claims: world.objects.claims.values().cloned().collect(),
        ..Snapshot::default()
    };
    let launches = of_claims(&snapshot, |it| world.prices.get(it), |_| true);
    // What runs is known from the cloud, whatever the claims say.
    let is_wrong = |name: &str| {
        let claim = world.objects.claims.get(name);
        let id = claim.and_then(|claim| provider_id(claim));
        let machine = id.and_then(|id| world.cloud.machines.get(id));
        machine.is_some_and(|machine| machine.capacity_type == karpenter::CAPACITY_TYPE_SPOT)
    };
    if let Some(spot) = steering.iter().find(|one| is_wrong(&one.name)) {
        return Some(format!(
            "the spot instance of {} is charged to commitments",
            spot.name
        ));
    }
    (steering != launches).then(|| {
        format!(
            "steering charges {} machines to commitments, launches {}",
            steering.len(),
            launches.len()
        )
    })
}

/// What must hold once faults have stopped for a while.
pub(super) fn at_rest(world: &World) -> Option<String> {
    let pending = world.pending();
    if pending > 0 {
        return Some(format!(
            "{pending} pods have no node although the faults have stopped"
        ));
    }
    if let Some(claim) = world
        .objects
        .claims
        .values()
        .find(|one| is_deleting(&one.metadata))
    {
        return Some(format!("NodeClaim {:?} never goes", claim.metadata.name));
    }
    let claims = world.objects.claims.len();
    let running = world.running();
    if claims != running {
        return Some(format!("{claims} NodeClaims, but {running} instances"));
    }
    let unready = world
        .objects
        .claims
        .values()
        .find(|claim| !veneer_engine::plan::condition_true(claim, "Initialized"));
    unready.map(|claim| format!("NodeClaim {:?} is never initialised", claim.metadata.name))
}

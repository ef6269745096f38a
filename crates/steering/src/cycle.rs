//! One pass of standalone mode: everything that a cluster needs now, as one plan.
//!
//! A [`Cycle`] is what a driver calls with each snapshot: the one that watches an API server and the one that runs a
//! world in memory. It keeps only what may be forgotten (open batches, where pods are expected, the evaluated market), so that a
//! driver that was killed starts again with an empty one.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::NodeClaim;
use veneer_api::Pod;
use veneer_engine::disruption::{self, Command, Memory};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::lifecycle::{self, Policy};
use veneer_engine::packing::{self, Reason};
use veneer_engine::plan::{
    Action, Plan, Snapshot, is_deleting, is_spare, is_spare_taint, is_used_spare, name, provider_id,
};
use veneer_engine::provision::{self, Batch, Market, Place, Window};
use veneer_engine::taints::is_of_start;

use crate::cap;
use crate::commitments::Ledger;
use crate::nominate;
use crate::refusals::{Disagreement, Refusals};
use crate::regret::Regret;
use crate::warm::promote::{self, Search};
use crate::warm::{self, Mode, Spares};

/// How long a pod is believed to go where it was sent.
const BELIEVED: SignedDuration = SignedDuration::from_secs(20);

/// For how long the question which nodes can go waits until everything else has come to rest.
const RESTLESS: SignedDuration = SignedDuration::from_secs(5);

/// After this time a replacement is looked at again for which too little was left of a commitment.
const HELD_BACK: SignedDuration = SignedDuration::from_mins(5);

/// How a cluster is run.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// How long to wait for more pods.
    pub window: Window,
    /// How long things may take.
    pub policy: Policy,
    /// When nodes go.
    pub disruption: disruption::Policy,
}

impl Rules {
    /// How pods are placed: namespaces are held after as many steps as when nodes go.
    fn packing(&self) -> packing::Options<'static> {
        packing::Options {
            free_steps: self.disruption.free_steps,
            ..packing::Options::default()
        }
    }
}

/// What one pass came to.
#[derive(Debug, Default)]
pub struct Pass {
    /// What shall be done.
    pub plan: Plan,
    /// How many pods have no place yet.
    pub waiting: usize,
    /// What was decided about them, if their batch was complete.
    pub decided: Option<Decided>,
    /// Nodes that were chosen to go.
    pub disrupted: Vec<Command>,
    /// Pods that kube-scheduler refuses although the simulation has room for them, as far as that is news.
    pub disagreements: Vec<Disagreement>,
    /// How many pods of that kind wait.
    pub refused: usize,
    /// The steps that it took to decide where pods go, and which nodes can do without theirs; the same on every machine.
    pub steps: u64,
    /// The namespaces whose pods took too many of them.
    pub held: BTreeSet<String>,
}

/// What was decided about a batch of pending pods.
#[derive(Debug, Default)]
pub struct Decided {
    /// How many nodes and claims were chosen for pods.
    pub places: usize,
    /// Why pods stay pending, by `namespace/name`.
    pub pending: BTreeMap<String, Vec<Reason>>,
}

/// What is remembered from pass to pass.
#[derive(Debug)]
pub struct Cycle {
    rules: Rules,
    market: Market,
    batch: Batch,
    pending: BTreeMap<String, Vec<Reason>>,
    ledger: Option<Arc<Ledger>>,
    /// Spares that were given to pods, with the time until which they are expected to come.
    given: BTreeMap<String, Timestamp>,
    search: Search,
    lifecycle: lifecycle::Memory,
    disruption: Memory,
    rest: Rest,
    nominated: nominate::Memory,
    refusals: Refusals,
    regret: Regret,
}

/// Whether what was ordered still differs from pass to pass.
#[derive(Debug, Default)]
struct Rest {
    orders: Vec<String>,
    since: Option<Timestamp>,
}

impl Rest {
    /// Whether the next snapshot will be another one, because something new was ordered, and there is time to wait for it.
    /// What is ordered again and again holds nothing up.
    fn is_far(&mut self, plan: &Plan, now: Timestamp) -> bool {
        let orders = plan.actions.iter();
        let orders = orders.filter(|action| !matches!(action, Action::Announce(_)));
        let orders: Vec<String> = orders.map(ToString::to_string).collect();
        let is_new = !orders.is_empty() && orders != self.orders;
        self.orders = orders;
        let since = *self.since.get_or_insert(now);
        let is_far = is_new && now.duration_since(since).abs() < RESTLESS;
        if !is_far {
            self.since = None;
        }
        is_far
    }
}

impl Cycle {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>, rules: Rules) -> Self {
        Self {
            rules,
            market: Market::new(catalogue),
            batch: Batch::default(),
            pending: BTreeMap::new(),
            ledger: None,
            given: BTreeMap::new(),
            search: Search::default(),
            lifecycle: lifecycle::Memory::default(),
            disruption: Memory::default(),
            rest: Rest::default(),
            nominated: nominate::Memory::default(),
            refusals: Refusals::default(),
            regret: Regret::default(),
        }
    }

    /// Takes over what is known about commitments, so that launches beyond them are priced as such.
    pub fn learn(&mut self, ledger: Option<Arc<Ledger>>) {
        self.ledger = ledger;
    }

    /// Why pods still wait that the last decision found nothing for, by `namespace/name`.
    #[must_use]
    pub const fn pending(&self) -> &BTreeMap<String, Vec<Reason>> {
        &self.pending
    }

    /// Goes on with a newer catalogue: other prices, other zones. Open batches and nominations stay.
    pub fn trade(&mut self, catalogue: Arc<Catalogue>) {
        self.market = Market::new(catalogue);
    }

    /// Prices and capacity after overlays, as of the last pass.
    #[must_use]
    pub const fn market(&self) -> &Market {
        &self.market
    }

    /// Looks once. `world` is a number that changes when something does, beside the pods, that may let refused pods
    /// in. The snapshot's nominations are filled in.
    pub fn pass(&mut self, snapshot: &mut Snapshot, world: u64, now: Timestamp) -> Pass {
        let demand = provision::demand(snapshot);
        self.given.retain(|_, until| *until > now);
        snapshot.nominations = self.nominations(&demand, now);
        self.market.update(snapshot);
        let mut pass = Pass::default();
        let all_places = LazyCell::new(|| places(snapshot));
        let place = |place: &str| all_places.get(place).copied().unwrap_or(Place::Gone);
        pass.disagreements = self.refusals.observe(
            snapshot,
            &demand,
            &self.batch.places(),
            place,
            &mut pass.plan,
            now,
        );
        let refused = self.refusals.pods();
        pass.refused = refused.len();
        // What kube-scheduler refuses on every node is decided about by itself.
        let others = (!refused.is_empty()).then(|| without(snapshot, &refused));
        let others = others.as_ref().unwrap_or(snapshot);
        // First, since pods wait for it.
        let (gives_spares, mut kept) = self.warm(others, &mut pass, now);
        pass.plan.extend(lifecycle::decide(
            snapshot,
            &mut self.market,
            &self.rules.policy,
            &mut self.lifecycle,
            now,
        ));
        if let Some(ledger) = &self.ledger {
            cap::apply(&mut pass.plan, snapshot, ledger, &self.market);
        }
        pass.plan
            .extend(provision::decide_pools(snapshot, &mut self.market, now));
        pass.plan
            .extend(provision::decide_replicas(snapshot, &self.market, now));
        if gives_spares {
            // The next snapshot has them as nodes in use, and only the pods that they do not take need new ones.
            pass.waiting = demand.len();
            pass.plan.look_again(now);
            pass.plan.extend(kept);
            return pass;
        }
        // Before the nodes join, or the scheduler is faster.
        let mut plan = nominate::decide(snapshot, &self.batch, place, &mut self.nominated, now);
        plan.extend(std::mem::take(&mut pass.plan));
        pass.plan = plan;
        let before = pass.plan.actions.len();
        let is_extra = self.provision_refused(snapshot, place, &mut pass, now);
        pass.waiting = demand.len();
        if !is_extra {
            let demand = demand.difference(&refused).cloned().collect();
            self.provision(others, &demand, place, world, &mut pass, now);
        }
        self.pending.extend(self.refusals.reasons(snapshot));
        let mut new = pass.plan.actions.iter().skip(before);
        if new.any(|action| matches!(action, Action::CreateClaim(_))) {
            // Both would count the same room below the limits of a pool; pods go before spares.
            kept.actions.retain(|action| !is_launch(action));
            kept.look_again(now);
        }
        pass.plan.extend(kept);
        let mut actions = pass.plan.actions.iter();
        if actions.any(|action| matches!(action, Action::CreateClaim(_))) {
            // Which nodes can go is decided when the new ones are seen: both would count the same room.
            pass.plan.look_again(now);
            return pass;
        }
        if self.rest.is_far(&pass.plan, now) {
            pass.plan.look_again(now);
            return pass;
        }
        if snapshot.is_stale {
            return pass;
        }
        snapshot.nominations = self.nominations(&demand, now);
        if let Some(ledger) = &self.ledger {
            snapshot.paid_for = cap::paid_for(snapshot, ledger, &self.market);
        }
        snapshot.undone_moves = self.regret.held(now);
        let mut decision = disruption::decide(
            snapshot,
            &mut self.market,
            &self.rules.disruption,
            &mut self.disruption,
            now,
        );
        if let Some(ledger) = &self.ledger
            && cap::hold_back(&mut decision, snapshot, ledger, &mut self.market)
        {
            // It would be found again and again, as long as nothing changes.
            let until = now.checked_add(HELD_BACK).unwrap_or(now);
            self.disruption.wait(until);
            decision.plan.look_again = Some(until);
        }
        pass.steps += decision.steps;
        for namespace in decision.held {
            let message = "Finding out whether the pods of this namespace could move takes too long, so nodes with its pods are \
                           not consolidated. Use fewer preferred terms, or fewer different ones";
            pass.plan
                .push(provision::held_back(&namespace, snapshot, message.to_owned()));
            pass.held.insert(namespace);
        }
        self.regret.started(&decision.started, snapshot, now);
        pass.plan.extend(decision.plan);
        pass.disrupted = decision.started;
        pass
    }

    /// Nodes and claims that pods are expected on, with the time until which that counts.
    fn nominations(&self, demand: &BTreeSet<String>, now: Timestamp) -> BTreeMap<String, Timestamp> {
        let mut nominations = self.given.clone();
        nominations.extend(self.batch.expected(demand, now));
        nominations
    }

    /// Gives spares to pods at once, without waiting for more of them, and keeps the number of spares; says whether
    /// any pods got some, and what keeps the number.
    fn warm(&mut self, snapshot: &Snapshot, pass: &mut Pass, now: Timestamp) -> (bool, Plan) {
        let any = snapshot
            .node_claims
            .iter()
            .any(|claim| is_spare(&claim.metadata) || is_used_spare(&claim.metadata));
        if !any && snapshot.overprovisioners.is_empty() {
            return (false, Plan::default());
        }
        let mut spares = Spares::of(snapshot);
        let promotion = self.search.find(snapshot, &spares, &mut self.market, now);
        pass.plan.extend(promote::give(snapshot, &mut spares, &promotion));
        let until = now.checked_add(BELIEVED).unwrap_or(now);
        let places = promotion.expected.values().chain(&promotion.claims);
        self.given.extend(places.map(|place| (place.clone(), until)));
        // What was started for pods is for them, also when another process did that.
        for spare in spares.used.values().flatten().filter(|spare| !spare.has_pods) {
            let until = spare.initialised().unwrap_or(now).checked_add(BELIEVED);
            let Some(until) = until.ok().filter(|until| *until > now) else {
                continue;
            };
            let node = spare.node.map(|node| name(&node.metadata).to_owned());
            let places = node.into_iter().chain([spare.name().to_owned()]);
            self.given.extend(places.map(|place| (place, until)));
        }
        let pods: BTreeSet<String> = promotion.expected.keys().cloned().collect();
        self.batch
            .decided(&pods, &promotion.expected, BELIEVED, self.rules.window, now);
        let kept = warm::keep(snapshot, &mut spares, &mut self.market, Mode::Standalone, now);
        (!pods.is_empty(), kept)
    }

    /// Adds an extra node for pods that kube-scheduler refuses where they were expected, if it is time for one.
    fn provision_refused(
        &mut self,
        snapshot: &Snapshot,
        place: impl Fn(&str) -> Place,
        pass: &mut Pass,
        now: Timestamp,
    ) -> bool {
        let Some(turn) = self.refusals.turn(snapshot, place, &mut pass.plan, now) else {
            return false;
        };
        let alone = alone(snapshot, &turn.pods, turn.closed_nodes.clone());
        let mut decided = provision::decide(&alone, &mut self.market, &self.rules.packing(), now);
        pass.steps += decided.steps;
        self.refusals.decided(snapshot, &turn, &mut decided, now);
        self.batch
            .decided(&turn.pods, &decided.expected, BELIEVED, self.rules.window, now);
        let is_extra = !decided.plan.actions.is_empty();
        pass.plan.extend(decided.plan);
        pass.plan.look_again(now);
        is_extra
    }

    /// Adds what pending pods need, if their batch is complete, or when it will be.
    fn provision(
        &mut self,
        snapshot: &Snapshot,
        demand: &BTreeSet<String>,
        place: impl Fn(&str) -> Place,
        world: u64,
        pass: &mut Pass,
        now: Timestamp,
    ) {
        let window = self.rules.window;
        if !self.pending.is_empty() {
            let waiting: BTreeSet<String> = provision::waiting(snapshot).collect();
            self.pending.retain(|pod, _| waiting.contains(pod));
        }
        self.batch.hear(provision::refusals(snapshot), now);
        if let Err(again) = self.batch.take(demand, place, world, window, now) {
            if let Some(at) = again {
                pass.plan.look_again(at);
            }
            return;
        }
        let nominated = nominate::standing(snapshot, &self.batch, now);
        let undecided: BTreeSet<String> = demand
            .iter()
            .filter(|pod| !nominated.contains_key(*pod))
            .cloned()
            .collect();
        let with_nominated = (!nominated.is_empty()).then(|| Snapshot {
            nominated_pods: nominated,
            ..snapshot.clone()
        });
        let snapshot = with_nominated.as_ref().unwrap_or(snapshot);
        let decided = provision::decide(snapshot, &mut self.market, &self.rules.packing(), now);
        pass.steps += decided.steps;
        pass.held
            .extend(decided.held.iter().map(|one| one.namespace.clone()));
        self.regret
            .launched(&decided.plan, &decided.expected, snapshot, now);
        self.batch
            .decided(&undecided, &decided.expected, BELIEVED, window, now);
        pass.plan.extend(decided.plan);
        self.pending.clone_from(&decided.pending);
        pass.decided = Some(Decided {
            places: decided.nominations.len(),
            pending: decided.pending,
        });
    }
}

/// The snapshot without some of the pods that wait.
fn without(snapshot: &Snapshot, pods: &BTreeSet<String>) -> Snapshot {
    let mut others = snapshot.clone();
    let is_other = |pod: &Pod| pod.metadata.uid.as_ref().is_none_or(|uid| !pods.contains(uid));
    others.pods.retain(|pod| is_other(pod));
    others
}

/// The snapshot with only these of the pods that need a place, and nodes that take none of them.
fn alone(snapshot: &Snapshot, pods: &BTreeSet<String>, closed_nodes: BTreeSet<String>) -> Snapshot {
    let mut others = provision::demand(snapshot);
    others.retain(|pod| !pods.contains(pod));
    let mut alone = without(snapshot, &others);
    alone.closed_nodes = closed_nodes;
    alone
}

/// Where pods may have been sent: nodes, and claims by their own names, as long as no node stands for them.
fn places(snapshot: &Snapshot) -> BTreeMap<&str, Place> {
    let claims = snapshot.node_claims.iter();
    let claim_of: BTreeMap<&str, &Arc<NodeClaim>> = claims
        .filter_map(|claim| Some((provider_id(claim)?, claim)))
        .collect();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut places: BTreeMap<&str, Place> = BTreeMap::new();
    for node in snapshot.nodes.iter().filter(|node| !is_deleting(&node.metadata)) {
        let spec = node.spec.as_ref();
        let id = spec.and_then(|spec| spec.provider_id.as_deref());
        let claim = id.and_then(|id| claim_of.get(id));
        let startup = claim.map_or(&[][..], |claim| &claim.spec.startup_taints);
        let keeps_pods_away = |taint: &Taint| {
            let is_startup = |known: &Taint| known.key == taint.key && known.effect == taint.effect;
            is_spare_taint(taint) || is_of_start(taint) || startup.iter().any(is_startup)
        };
        let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
        let is_open = lifecycle::is_ready(node) && !taints.any(keeps_pods_away);
        if is_open {
            open.extend(id);
        }
        let place = if is_open { Place::Open } else { Place::Coming };
        places.insert(name(&node.metadata), place);
    }
    for claim in snapshot
        .node_claims
        .iter()
        .filter(|claim| !is_deleting(&claim.metadata))
    {
        let is_open = provider_id(claim).is_some_and(|id| open.contains(id));
        let place = if is_open { Place::Open } else { Place::Coming };
        places.entry(name(&claim.metadata)).or_insert(place);
    }
    places
}

/// Whether an action launches spares, or says so.
fn is_launch(action: &Action) -> bool {
    match action {
        Action::CreateClaim(_) => true,
        Action::Announce(one) => one.reason == "SpareLaunched",
        _ => false,
    }
}

//! One pass of standalone mode: everything that a cluster needs now, as one plan.
//!
//! A [`Cycle`] is what a driver calls with each snapshot: the one that watches an API server and the one that runs a
//! world in memory. It keeps only what may be forgotten (open batches, where pods are expected, the evaluated market), so that a
//! driver that was killed starts again with an empty one.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::Pod;
use veneer_engine::cluster::{Commitments, Index};
use veneer_engine::disruption::{self, Command, Memory};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::lifecycle::{self, Policy};
use veneer_engine::packing::{self, Reason};
use veneer_engine::plan::{Action, ActionId, Plan, Snapshot, is_deleting, is_spare, is_used_spare, name};
use veneer_engine::provision::{self, Batch, Market, Place, Window};

use crate::cap::{self, CommitmentBalances};
use crate::commitments::Ledger;
use crate::nominate;
use crate::refusals::{Disagreement, Refusals};
use crate::regret::Regret;
use crate::warm::promote::{self, Search};
use crate::warm::{self, Mode, Promotion, Spares};

/// How long a pod is believed to go where it was sent.
const BELIEVED: SignedDuration = SignedDuration::from_secs(20);

/// For how long the question which nodes can go waits until everything else has come to rest.
const RESTLESS: SignedDuration = SignedDuration::from_secs(5);

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
    /// What the pods of pools with spares need.
    spare_needs: warm::Memory,
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
    orders: Vec<ActionId>,
    since: Option<Timestamp>,
}

impl Rest {
    /// Whether the next snapshot will be another one, because something new was ordered, and there is time to wait for it.
    /// What is ordered again and again holds nothing up.
    fn is_far(&mut self, plan: &Plan, now: Timestamp) -> bool {
        let orders = plan.actions.iter();
        let orders = orders.filter(|action| !matches!(action, Action::Announce(_)));
        let orders: Vec<ActionId> = orders.map(Action::id).collect();
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
            spare_needs: warm::Memory::default(),
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
        let index = Index::of(
            &snapshot.node_claims,
            &snapshot.nodes,
            &snapshot.node_pools,
            &snapshot.instances,
        );
        let demand = provision::demand(snapshot, &index);
        self.given.retain(|_, until| *until > now);
        snapshot.nominations = self.nominations(&demand, now);
        self.market.update(snapshot);
        let mut pass = Pass::default();
        let all_places = LazyCell::new(|| places(&index));
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
        let (gives_spares, mut kept) = self.warm((others, &index), &mut pass, now);
        pass.plan.extend(lifecycle::decide(
            snapshot,
            &index,
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
        let mut plan = nominate::decide((snapshot, &index), &self.batch, place, &mut self.nominated, now);
        plan.extend(std::mem::take(&mut pass.plan));
        pass.plan = plan;
        let before = pass.plan.actions.len();
        let is_extra = self.provision_refused((snapshot, &index), place, &mut pass, now);
        pass.waiting = demand.len();
        if !is_extra {
            let demand = demand.difference(&refused).cloned().collect();
            if self.provision((others, &index), &demand, place, world, &mut pass, now) {
                // How many spares there are is another question now.
                kept = Plan::default();
                kept.look_again(now);
            }
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
        let mut commitments = None;
        if let Some(ledger) = &self.ledger {
            let machines = cap::charged(snapshot, &self.market);
            snapshot.paid_for = cap::paid_for(&machines, ledger);
            commitments = Some(CommitmentBalances::new(&machines, snapshot, ledger));
        }
        snapshot.undone_moves = self.regret.held(now);
        let decision = disruption::decide_within(
            snapshot,
            &index,
            &mut self.market,
            commitments.as_ref().map(|known| known as &dyn Commitments),
            &self.rules.disruption,
            &mut self.disruption,
            now,
        );
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
    fn warm<'a>(
        &mut self,
        (snapshot, index): (&'a Snapshot, &Index<'a>),
        pass: &mut Pass,
        now: Timestamp,
    ) -> (bool, Plan) {
        let any = snapshot
            .node_claims
            .iter()
            .any(|claim| is_spare(&claim.metadata) || is_used_spare(&claim.metadata));
        if !any && snapshot.overprovisioners.is_empty() {
            return (false, Plan::default());
        }
        let mut spares = Spares::with_index(snapshot, index);
        let promotion = self
            .search
            .find(snapshot, &spares, &promote::AT_ONCE, &mut self.market, now);
        let pods = self.give(snapshot, &mut spares, &promotion, pass, now);
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
        let kept = warm::keep(
            snapshot,
            &mut spares,
            &mut self.market,
            &mut self.spare_needs,
            Mode::Standalone,
            now,
        );
        (!pods.is_empty(), kept)
    }

    /// Opens the spares that pods get; says which pods.
    fn give<'a>(
        &mut self,
        snapshot: &'a Snapshot,
        spares: &mut Spares<'a>,
        promotion: &Promotion,
        pass: &mut Pass,
        now: Timestamp,
    ) -> BTreeSet<String> {
        // Before all other writes to the same claims: pods are believed to come there.
        let mut plan = promote::give(snapshot, spares, promotion);
        plan.extend(std::mem::take(&mut pass.plan));
        pass.plan = plan;
        let until = now.checked_add(BELIEVED).unwrap_or(now);
        let places = promotion.expected.values().chain(&promotion.claims);
        self.given.extend(places.map(|place| (place.clone(), until)));
        let pods: BTreeSet<String> = promotion.expected.keys().cloned().collect();
        self.batch
            .decided(&pods, &promotion.expected, BELIEVED, self.rules.window, now);
        pods
    }

    /// Adds an extra node for pods that kube-scheduler refuses where they were expected, if it is time for one.
    fn provision_refused(
        &mut self,
        (snapshot, index): (&Snapshot, &Index<'_>),
        place: impl Fn(&str) -> Place,
        pass: &mut Pass,
        now: Timestamp,
    ) -> bool {
        let Some(turn) = self.refusals.turn((snapshot, index), place, &mut pass.plan, now) else {
            return false;
        };
        let alone = alone((snapshot, index), &turn.pods, turn.closed_nodes.clone());
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

    /// Adds what pending pods need, if their batch is complete, or when it will be; says whether pods got spares.
    fn provision(
        &mut self,
        (snapshot, index): (&Snapshot, &Index<'_>),
        demand: &BTreeSet<String>,
        place: impl Fn(&str) -> Place,
        world: u64,
        pass: &mut Pass,
        now: Timestamp,
    ) -> bool {
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
            return false;
        }
        let mut spares = Spares::with_index(snapshot, index);
        let promotion = promote::together(snapshot, &spares, &mut self.market, now);
        let served = self.give(snapshot, &mut spares, &promotion, pass, now);
        // Copied at most once.
        let mut seen = Cow::Borrowed(snapshot);
        if !served.is_empty() {
            leave_out(seen.to_mut(), &served);
        }
        let demand: BTreeSet<String> = demand.difference(&served).cloned().collect();
        let nominated = nominate::standing(&seen, index, &self.batch, now);
        let undecided: BTreeSet<String> = demand
            .iter()
            .filter(|pod| !nominated.contains_key(*pod))
            .cloned()
            .collect();
        if !nominated.is_empty() {
            seen.to_mut().nominated_pods = nominated;
        }
        let snapshot = &*seen;
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
        !served.is_empty()
    }
}

/// The snapshot without some of the pods that wait.
fn without(snapshot: &Snapshot, pods: &BTreeSet<String>) -> Snapshot {
    let mut others = snapshot.clone();
    leave_out(&mut others, pods);
    others
}

fn leave_out(snapshot: &mut Snapshot, pods: &BTreeSet<String>) {
    let is_other = |pod: &Pod| pod.metadata.uid.as_ref().is_none_or(|uid| !pods.contains(uid));
    snapshot.pods.retain(|pod| is_other(pod));
}

/// The snapshot with only these of the pods that need a place, and nodes that take none of them.
fn alone(
    (snapshot, index): (&Snapshot, &Index<'_>),
    pods: &BTreeSet<String>,
    closed_nodes: BTreeSet<String>,
) -> Snapshot {
    let mut others = provision::demand(snapshot, index);
    others.retain(|pod| !pods.contains(pod));
    let mut alone = without(snapshot, &others);
    alone.closed_nodes = closed_nodes;
    alone
}

/// Where pods may have been sent: nodes, and claims by their own names, as long as no node stands for them.
fn places<'a>(index: &Index<'a>) -> BTreeMap<&'a str, Place> {
    let mut places: BTreeMap<&str, Place> = BTreeMap::new();
    for machine in index.machines() {
        for node in machine.nodes().iter().filter(|node| !is_deleting(&node.metadata)) {
            let place = if machine.node_accepts_pods(node) {
                Place::Open
            } else {
                Place::Coming
            };
            places.insert(name(&node.metadata), place);
        }
    }
    for (claim, machine) in index.claimed() {
        if is_deleting(&claim.metadata) {
            continue;
        }
        let place = if machine.accepts_pods() {
            Place::Open
        } else {
            Place::Coming
        };
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

#[cfg(test)]
mod tests {
    use veneer_engine::plan::{NodeChange, Target};

    use super::*;

    #[test]
    fn another_change_of_the_same_node_is_something_new() {
        let order = |label: &str, version: &str| {
            let mut plan = Plan::default();
            plan.push(Action::PatchNode {
                target: Target {
                    name: "one".to_owned(),
                    uid: "uid-one".to_owned(),
                    resource_version: version.to_owned(),
                    ..Target::default()
                },
                change: NodeChange {
                    labels: BTreeMap::from([(label.to_owned(), "true".to_owned())]),
                    ..NodeChange::default()
                },
            });
            plan
        };
        let mut rest = Rest::default();
        let now = Timestamp::UNIX_EPOCH;
        assert!(rest.is_far(&order("a", "1"), now));
        assert!(!rest.is_far(&order("a", "2"), now), "ordered again");
        assert!(rest.is_far(&order("b", "2"), now));
    }
}

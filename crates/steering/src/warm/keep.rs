//! Keeps as many spares as wanted, in the wanted state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::labels::{karpenter, veneer};
use veneer_api::node_claim::CONDITION_DRIFTED;
use veneer_api::overprovisioner::SpareState;
use veneer_api::{CONDITION_READY, NodePool, Overprovisioner};
use veneer_engine::cluster::LimitHeadroom;
use veneer_engine::cluster::limits::take_share;
use veneer_engine::plan::{
    Action, Lifetime, Plan, Power, Snapshot, Target, condition_true, is_deleting, is_to_be_stopped,
    is_used_spare, name,
};
use veneer_engine::provision::{self, LaunchOption, Market, spare_claim};

use super::needs::{Memory, Needs, type_of, zone_of};
use super::promote;
use super::reading::{read, spend_limit};
use super::room::affordable;
use super::shape;
use super::sizing::{self, Current};
use super::spares::{Spare, Spares, Stage};
use super::status::{Faults, PoolCount, Report, announce, report};

/// How many spares of one pool are ordered at once.
const BURST: usize = 100;
/// A hibernated instance has to be renewed after this.
const HIBERNATION: SignedDuration = SignedDuration::from_hours(60 * 24);

/// Who launches instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// We do.
    #[default]
    Standalone,
    /// A Karpenter beside us, which knows nothing of stopped instances.
    Companion,
}

/// What all decisions of one pass share.
struct Keeper<'a, 's> {
    snapshot: &'a Snapshot,
    spares: &'s mut Spares<'a>,
    market: &'s mut Market,
    memory: &'s mut Memory,
    mode: Mode,
    now: Timestamp,
    limits: BTreeMap<String, LimitHeadroom<'a>>,
    plan: Plan,
}

/// Keeps the spares of every Overprovisioner. `spares` are those that pods do not get in this pass.
#[must_use]
pub fn keep<'a>(
    snapshot: &'a Snapshot,
    spares: &mut Spares<'a>,
    market: &mut Market,
    memory: &mut Memory,
    mode: Mode,
    now: Timestamp,
) -> Plan {
    memory.observe(snapshot, market, now);
    let mut keeper = Keeper {
        snapshot,
        spares,
        market,
        memory,
        mode,
        now,
        limits: BTreeMap::new(),
        plan: Plan::default(),
    };
    keeper.heal();
    let mut overprovisioners: Vec<&Arc<Overprovisioner>> = snapshot
        .overprovisioners
        .iter()
        .filter(|one| !is_deleting(&one.metadata))
        .collect();
    // Running tiers come first, since they may take over what colder ones then replace.
    overprovisioners.sort_by_key(|one| (one.spec.state != SpareState::Running, name(&one.metadata)));
    let mut kept: BTreeSet<(&str, &str)> = BTreeSet::new();
    for one in overprovisioners {
        keeper.one(one, &mut kept);
    }
    keeper.remove_orphans(&kept);
    keeper.plan
}

impl<'a> Keeper<'a, '_> {
    /// Finishes what was begun: spares with pods are used, and used ones are open.
    fn heal(&mut self) {
        let taken: BTreeSet<String> = self
            .spares
            .empty
            .values()
            .flatten()
            .filter(|spare| spare.has_pods || spare.node.is_some_and(|node| is_used_spare(&node.metadata)))
            .map(|spare| spare.name().to_owned())
            .collect();
        for spare in self.spares.promote(&taken) {
            self.plan.actions.extend(promote::open(&spare));
        }
        let used = self.spares.used.values().flatten();
        let written = used.filter(|spare| is_used_spare(&spare.claim.metadata));
        self.plan.actions.extend(written.flat_map(promote::open));
    }

    fn one(&mut self, one: &'a Arc<Overprovisioner>, kept: &mut BTreeSet<(&'a str, &'a str)>) {
        let owner = name(&one.metadata);
        let mut faults = Faults::default();
        let mut pools: Vec<&'a str> = Vec::new();
        for pool in &one.spec.target_node_pools {
            if pools.contains(&pool.as_str()) {
                faults.sizing(format!(
                    "spec.targetNodePools: {pool:?} is listed twice; remove one of them"
                ));
            } else {
                pools.push(pool);
            }
        }
        let sizes = read(one, self.mode, &mut faults);
        let limit = spend_limit(one, &mut faults);
        let is_valid = faults.is_empty();
        let current = sizes
            .as_ref()
            .filter(|_| is_valid)
            .map(|sizes| sizes.current(self.now));
        if let Some(until) = current.and_then(|current| current.until) {
            self.plan.look_again(until);
        }
        let mut counts = Vec::new();
        let mut budget = limit;
        for pool in pools {
            kept.insert((owner, pool));
            let found = self
                .snapshot
                .node_pools
                .iter()
                .find(|known| name(&known.metadata) == pool && !is_deleting(&known.metadata));
            match found {
                None => faults.targets(format!(
                    "spec.targetNodePools: there is no NodePool {pool:?}; create it, or remove the name"
                )),
                Some(found) => {
                    if let Some(current) = &current {
                        self.pool(one, found, current, &mut budget, &mut faults);
                    }
                }
            }
            counts.push(self.count(one, pool, current.as_ref()));
        }
        let overlap = |now| sizes.as_ref().and_then(|sizes| sizes.overlap(now));
        let found = Report {
            counts,
            faults,
            current,
        };
        self.plan.extend(report(one, found, overlap, self.now));
    }

    fn count(&self, one: &Overprovisioner, pool: &str, current: Option<&Current>) -> PoolCount {
        let owner = name(&one.metadata);
        let empty = self.spares.empty_of(owner, pool);
        let used = self.spares.used_of(owner, pool).len();
        let at = |stages: &[Stage]| empty.iter().filter(|spare| stages.contains(&spare.stage)).count();
        let desired = current
            .map(|current| sizing::wanted(&one.spec.strategy, current.size, self.spares.base_of(pool), used));
        PoolCount {
            pool: pool.to_owned(),
            desired,
            ready: at(&[Stage::Ready]),
            warming: at(&[Stage::Warming, Stage::Stopping]),
            stopped: at(&[Stage::Stopped, Stage::Hibernated]),
            in_use: used,
        }
    }

    /// Keeps the spares of one pool.
    fn pool(
        &mut self,
        one: &'a Arc<Overprovisioner>,
        pool: &'a Arc<NodePool>,
        current: &Current,
        budget: &mut Option<f64>,
        faults: &mut Faults,
    ) {
        let (owner, pool_name) = (name(&one.metadata), name(&pool.metadata));
        let in_use = self.spares.used_of(owner, pool_name).len();
        let base = self.spares.base_of(pool_name);
        let wanted = sizing::wanted(&one.spec.strategy, current.size, base, in_use);
        let needs = self.needs(one, pool, faults);
        let is_useful = |spare: &Spare<'_>| {
            let needs = needs.as_ref();
            needs.is_none_or(|needs| needs.is_useful(spare, self.snapshot))
        };
        let mut mine = self.spares.empty_of(owner, pool_name).to_vec();
        mine.sort_by_key(|spare| (is_useful(spare), removal_order(spare)));
        let allowed = self.within_budget(&mine, budget, one);
        if allowed < wanted.min(mine.len()) {
            faults.spend(pool_name, wanted);
        }
        let surplus = mine.len().saturating_sub(wanted.min(allowed));
        let (leaving, staying) = mine.split_at(surplus);
        let useless: Vec<&Spare<'a>> = staying.iter().filter(|spare| !is_useful(spare)).collect();
        if !useless.is_empty() {
            let types: BTreeSet<&str> = useless.iter().filter_map(|spare| type_of(spare)).collect();
            faults.no_pod_fits(pool_name, useless.len(), staying.len(), &types);
        }
        let useless: BTreeSet<String> = useless.iter().map(|spare| spare.name().to_owned()).collect();
        self.remove(one, pool_name, leaving);
        if staying.len() < wanted && allowed >= mine.len() {
            let missing = wanted - staying.len();
            let taken = self.take_over(one, pool_name, missing, needs.as_ref());
            if let Some(needs) = &needs {
                self.launch(one, pool, needs, (missing - taken, wanted), budget, faults);
            }
        }
        let settled = staying.len() >= wanted;
        let is_switching = self.power(one, staying);
        if settled && !is_switching {
            let can_replace = needs.as_ref().is_some_and(|needs| {
                shape::choose(pool, &one.spec.state, needs, self.market, self.now).is_ok()
            });
            self.renew(one, pool_name, staying, &|spare| {
                can_replace && useless.contains(spare.name())
            });
        }
    }

    /// How many of the spares the spending limit allows; the rest of the budget is left for others.
    fn within_budget(
        &mut self,
        mine: &[Spare<'a>],
        budget: &mut Option<f64>,
        one: &Overprovisioner,
    ) -> usize {
        let Some(left) = budget else { return usize::MAX };
        if one.spec.state != SpareState::Running {
            return usize::MAX;
        }
        // The last ones in the order of removal are kept first.
        let prices: Vec<f64> = mine.iter().rev().map(|spare| price(spare, self.market)).collect();
        let count = affordable(prices.iter().copied(), *left);
        *left -= prices.iter().take(count).sum::<f64>();
        if count == prices.len() { usize::MAX } else { count }
    }

    fn remove(&mut self, one: &Overprovisioner, pool: &str, leaving: &[Spare<'a>]) {
        for spare in leaving {
            self.plan.push(Action::DeleteClaim {
                target: Target::from(&spare.claim.metadata),
                reason: "overprovisioned",
            });
        }
        if !leaving.is_empty() {
            let names: Vec<&str> = leaving.iter().map(Spare::name).collect();
            let message = format!("NodePool {pool}: one spare too many each: {}", names.join(", "));
            self.plan.push(announce(one, false, "SpareRemoved", message));
        }
        let names: BTreeSet<&str> = leaving.iter().map(Spare::name).collect();
        for list in self.spares.empty.values_mut() {
            list.retain(|spare| !names.contains(spare.name()));
        }
    }

    /// A running tier takes stopped spares of colder ones, which start faster than a launch; says how many.
    fn take_over(
        &mut self,
        one: &'a Overprovisioner,
        pool: &'a str,
        missing: usize,
        needs: Option<&Needs>,
    ) -> usize {
        if one.spec.state != SpareState::Running || self.mode == Mode::Companion {
            return 0;
        }
        let owner = name(&one.metadata);
        let colder: Vec<&str> = self
            .snapshot
            .overprovisioners
            .iter()
            .filter(|other| matches!(other.spec.state, SpareState::Stopped | SpareState::Hibernated))
            .map(|other| name(&other.metadata))
            .collect();
        let mut candidates: Vec<Spare<'a>> = colder
            .iter()
            .flat_map(|other| self.spares.empty_of(other, pool))
            .filter(|spare| matches!(spare.stage, Stage::Stopped | Stage::Hibernated))
            .filter(|spare| needs.is_none_or(|needs| needs.is_useful(spare, self.snapshot)))
            .cloned()
            .collect();
        candidates.sort_by(|a, b| (a.stage, a.created(), a.name()).cmp(&(b.stage, b.created(), b.name())));
        candidates.truncate(missing);
        for spare in &candidates {
            self.plan.push(Action::PatchClaim {
                target: Target::from(&spare.claim.metadata),
                labels: [(veneer::OVERPROVISIONER.to_owned(), owner.to_owned())].into(),
                annotations: [power_annotation(Power::Run)].into(),
                finalizers: None,
            });
            let message = format!("NodePool {pool}: {} starts, as a running spare", spare.name());
            self.plan.push(announce(one, false, "SpareStarted", message));
        }
        let names: BTreeSet<&str> = candidates.iter().map(Spare::name).collect();
        for ((_, of), list) in &mut self.spares.empty {
            list.retain(|spare| *of != pool || !names.contains(spare.name()));
        }
        let taken = candidates.len();
        let mine = self.spares.empty.entry((owner, pool)).or_default();
        mine.extend(candidates.into_iter().map(|spare| Spare {
            stage: Stage::Warming,
            ..spare
        }));
        taken
    }

    fn launch(
        &mut self,
        one: &Overprovisioner,
        pool: &'a NodePool,
        needs: &Needs,
        (missing, wanted): (usize, usize),
        budget: &mut Option<f64>,
        faults: &mut Faults,
    ) {
        if missing == 0 {
            return;
        }
        let pool_name = name(&pool.metadata);
        let state = &one.spec.state;
        let chosen = match shape::choose(pool, state, needs, self.market, self.now) {
            Ok(shape) => shape,
            Err(fault) => {
                faults.shape(fault);
                return;
            }
        };
        let Some(shape) = chosen.cheapest() else { return };
        let limits = self.limits.entry(pool_name.to_owned());
        let limits = limits.or_insert_with(|| LimitHeadroom::of_pool(pool, self.snapshot, self.market));
        let room = limits.room_for(pool, &shape.capacity);
        let mut count = missing;
        if room < count {
            faults.limits(pool_name, wanted - (missing - room), wanted);
            count = room;
        }
        let mut zones: BTreeMap<String, usize> = BTreeMap::new();
        let mine = self.spares.empty_of(name(&one.metadata), pool_name).iter();
        for zone in mine.filter_map(|spare| zone_of(spare)) {
            *zones.entry(zone.to_owned()).or_default() += 1;
        }
        let mut launched: Vec<&LaunchOption> = (0..count.min(BURST))
            .filter_map(|_| chosen.next(&mut zones))
            .collect();
        if let Some(left) = budget.as_mut().filter(|_| *state == SpareState::Running) {
            let prices = || launched.iter().map(|option| option.price);
            let can_pay = affordable(prices(), *left);
            *left -= prices().take(can_pay).sum::<f64>();
            if can_pay < launched.len() {
                faults.spend(pool_name, wanted);
                count = can_pay;
                launched.truncate(can_pay);
            }
        }
        let is_off = *state != SpareState::Running;
        let is_bought = chosen.needs_capacity_type.then_some(shape.capacity_type.as_str());
        let spare = provision::Spare {
            overprovisioner: name(&one.metadata),
            instance_type: Some(&shape.instance_type),
            zone: None,
            capacity_type: is_bought.or(is_off.then_some(karpenter::CAPACITY_TYPE_ON_DEMAND)),
            takes_capacity_type: self.mode == Mode::Standalone,
            hibernates: *state == SpareState::Hibernated,
        };
        // Where no time has passed since the last one, its names are taken.
        let known = &self.snapshot.node_claims;
        let is_known = |number: usize| {
            let named = spare_claim(pool, spare, (self.now, number)).metadata.name;
            known.iter().any(|one| one.metadata.name == named)
        };
        let numbers = (0..).filter(|number| !is_known(*number));
        for (option, number) in launched.iter().zip(numbers) {
            let zone = Some(option.zone.as_str()).filter(|zone| !zone.is_empty());
            let mut claim = spare_claim(pool, provision::Spare { zone, ..spare }, (self.now, number));
            limits.take_node(pool_name, &shape.capacity);
            take_share(&mut claim, pool, &shape.capacity);
            // How much memory the root volume has to take.
            if let Some(memory) = shape.capacity.get("memory").filter(|_| spare.hibernates) {
                let annotations = claim.metadata.annotations.get_or_insert_default();
                annotations.insert(veneer::HIBERNATION.to_owned(), memory.0.clone());
            }
            self.plan.push(Action::CreateClaim(Box::new(claim)));
        }
        if count > 0 {
            let message = format!(
                "NodePool {pool_name}: launching {count} {state} spares of type {}",
                shape.instance_type
            );
            self.plan.push(announce(one, false, "SpareLaunched", message));
        }
    }

    /// Stops and starts spares so that they are in the wanted state; says whether there are any.
    fn power(&mut self, one: &Overprovisioner, staying: &[Spare<'a>]) -> bool {
        let mut is_switching = false;
        for spare in staying {
            let annotations = spare.claim.metadata.annotations.as_ref();
            let can_hibernate = annotations.is_some_and(|list| list.contains_key(veneer::HIBERNATION));
            let power = match (&one.spec.state, spare.stage) {
                (SpareState::Running, Stage::Stopped | Stage::Hibernated) => Power::Run,
                (SpareState::Hibernated, Stage::Ready) if can_hibernate => Power::Hibernate,
                (SpareState::Stopped | SpareState::Hibernated, Stage::Ready) => Power::Stop,
                _ => continue,
            };
            let is_spot = spare.bought_as() == Some(karpenter::CAPACITY_TYPE_SPOT);
            is_switching = true;
            let target = Target::from(&spare.claim.metadata);
            if power != Power::Run && is_spot {
                // One that was made while the object wanted running ones; another takes its place.
                self.plan.push(Action::DeleteClaim {
                    target,
                    reason: "overprovisioned",
                });
                continue;
            }
            self.plan.push(Action::PatchClaim {
                target,
                labels: BTreeMap::new(),
                annotations: [power_annotation(power)].into(),
                finalizers: None,
            });
            let (reason, does) = match power {
                Power::Run => ("SpareStarted", "starts"),
                Power::Stop => ("SpareStopped", "is being stopped"),
                Power::Hibernate => ("SpareStopped", "is being hibernated"),
            };
            let message = format!("{} {does}", spare.name());
            self.plan.push(announce(one, false, reason, message));
        }
        is_switching
    }

    /// What spares of the pool have to be good for; none while that cannot be said.
    fn needs(&mut self, one: &Overprovisioner, pool: &NodePool, faults: &mut Faults) -> Option<Needs> {
        let readiness = provision::readiness(pool, self.snapshot, &self.market.catalogue().rules, self.now);
        if !readiness.is_true(CONDITION_READY) {
            let why = readiness.get(CONDITION_READY).map(|one| one.message.clone());
            faults.pool_not_ready(name(&pool.metadata), &why.unwrap_or_default());
            return None;
        }
        let needs = self
            .memory
            .needs(Some(one), pool, self.snapshot, self.market, self.now);
        needs.map_err(|fault| faults.node_shape(fault)).ok()
    }

    /// Replaces one spare that is too old or that no pod fits on, if all the others are as they should be.
    fn renew(
        &mut self,
        one: &Overprovisioner,
        pool: &str,
        staying: &[Spare<'a>],
        is_useless: &dyn Fn(&Spare<'_>) -> bool,
    ) {
        let is_on_its_way = |spare: &Spare<'_>| matches!(spare.stage, Stage::Warming | Stage::Stopping);
        let mut due: Vec<(Timestamp, &Spare<'a>)> = staying
            .iter()
            .filter_map(|spare| {
                let is_wrong = is_useless(spare) || cannot_hibernate(spare, &one.spec.state);
                let at = is_wrong.then_some(Timestamp::MIN);
                Some((at.or_else(|| renewal(spare))?, spare))
            })
            .collect();
        due.sort_by_key(|(at, spare)| (*at, spare.name().to_owned()));
        let Some((at, oldest)) = due.first() else { return };
        if *at > self.now {
            self.plan.look_again(*at);
            return;
        }
        if staying.iter().any(is_on_its_way) {
            return;
        }
        self.plan.push(Action::DeleteClaim {
            target: Target::from(&oldest.claim.metadata),
            reason: "expired",
        });
        let message = if is_useless(oldest) {
            let instance_type = type_of(oldest).unwrap_or("its type");
            format!(
                "NodePool {pool}: {} is replaced, since no pod of the NodePool fits on {instance_type}",
                oldest.name()
            )
        } else {
            format!("NodePool {pool}: {} is renewed", oldest.name())
        };
        self.plan.push(announce(one, false, "SpareRenewed", message));
    }

    /// Removes spares that no Overprovisioner asks for.
    fn remove_orphans(&mut self, kept: &BTreeSet<(&'a str, &'a str)>) {
        for ((owner, pool), list) in &self.spares.empty {
            if kept.contains(&(*owner, *pool)) {
                continue;
            }
            for spare in list {
                self.plan.push(Action::DeleteClaim {
                    target: Target::from(&spare.claim.metadata),
                    reason: "overprovisioned",
                });
            }
        }
    }
}

fn power_annotation(power: Power) -> (String, String) {
    (veneer::POWER.to_owned(), power.as_str().to_owned())
}

/// Who goes first when there are too many: what has cost the least so far, and of equals the newest.
fn removal_order(spare: &Spare<'_>) -> (bool, bool, std::cmp::Reverse<Option<Timestamp>>, String) {
    let has_instance = veneer_engine::plan::provider_id(spare.claim).is_some();
    let is_usable = !matches!(spare.stage, Stage::Warming);
    (
        has_instance,
        is_usable,
        std::cmp::Reverse(spare.created()),
        spare.name().to_owned(),
    )
}

/// Whether a spare was launched for being stopped only: what hibernates is set up for that at its launch.
fn cannot_hibernate(spare: &Spare<'_>, state: &SpareState) -> bool {
    let annotations = spare.claim.metadata.annotations.as_ref();
    let is_set_up = annotations.is_some_and(|list| list.contains_key(veneer::HIBERNATION));
    *state == SpareState::Hibernated && !is_set_up
}

/// From when a spare has to be replaced.
fn renewal(spare: &Spare<'_>) -> Option<Timestamp> {
    let created = spare.created()?;
    let after = |life: SignedDuration| created.checked_add(life).ok();
    let expiry = match Lifetime::read(&spare.claim.spec.expire_after) {
        Lifetime::After(life) => after(life),
        Lifetime::Never => None,
    };
    let hibernation = (Power::of(spare.claim) == Power::Hibernate)
        .then(|| after(HIBERNATION))
        .flatten();
    // A stopped one would only be found to have drifted once its pods are on it.
    let drift =
        (is_to_be_stopped(spare.claim) && condition_true(spare.claim, CONDITION_DRIFTED)).then_some(created);
    [expiry, hibernation, drift].into_iter().flatten().min()
}

/// What a spare costs per hour while it runs.
pub(super) fn price(spare: &Spare<'_>, market: &mut Market) -> f64 {
    let options = market.options(spare.claim, 100);
    let bought = spare.bought_as();
    let own = options
        .iter()
        .find(|option| bought.is_none_or(|bought| option.capacity_type == bought));
    own.or_else(|| options.first()).map_or(0.0, |option| option.price)
}

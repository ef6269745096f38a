//! From what was seen to the overlays that should be written: one look, for any driver.
//!
//! A [`Decider`] keeps the newest ledger and what was decided before, and may be forgotten: the overlays that exist say
//! the rest.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use veneer_api::NodeSelectorRequirementWithMinValues;
use veneer_api::labels::{aws, kwok};

use crate::commitments::{Doubt, Ledger};
use crate::decisions::{Decision, Machine, Memory, Policy, decide};
use crate::overlays::{
    Action, Existing, Family, MixedPools, Naming, PoolRef, Pricing, Purpose, Rendering, Weights, cost_aware,
    existing_targets, on_demand_only, plan, preference,
};
use crate::preferences::Preferences;

/// Which overlays to write, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Plans used more than this (in percent) get no overlay.
    pub threshold: f64,
    /// An overlay returns this far below the threshold.
    pub hysteresis: f64,
    /// Whether overlays match nothing.
    pub disabled: bool,
    /// The weights of cost-aware overlays.
    pub weights: Weights,
    /// The beginnings of their names.
    pub naming: Naming,
    /// Their prices.
    pub pricing: Pricing,
    /// The label that holds the instance family, if not that of the pools' provider.
    pub family_label: Option<String>,
    /// Whether pools that can launch spot use them.
    pub mixed_pools: MixedPools,
    /// Whether annotations become overlays.
    pub preferences: bool,
}

/// A NodePool, as far as steering is concerned.
#[derive(Clone, Copy, Debug)]
pub struct SteeredPool<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Its annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// What it demands of instance types.
    pub requirements: &'a [NodeSelectorRequirementWithMinValues],
    /// The API group of its node class.
    pub node_class_group: &'a str,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// The preferences of one pool.
#[derive(Clone, Debug)]
pub struct PoolPreferences {
    /// The pool.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// What its annotations say.
    pub read: Preferences,
}

/// Everything that follows from one look.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    /// What was decided about commitments.
    pub decisions: Vec<Decision>,
    /// What the pools prefer.
    pub pools: Vec<PoolPreferences>,
    /// What to write.
    pub actions: Vec<Action>,
    /// Names that overlays of somebody else have.
    pub taken: Vec<String>,
    /// How many overlays are ours, by kind.
    pub owned: BTreeMap<&'static str, usize>,
    /// How many machines commitments may cover.
    pub machines: usize,
    /// What cannot be believed, by kind.
    pub doubts: BTreeMap<&'static str, String>,
}

/// What is kept between two looks.
#[derive(Clone, Debug)]
pub struct Decider {
    settings: Settings,
    memory: Memory,
    observed: Option<(Timestamp, Ledger)>,
}

impl Decider {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            memory: Memory::default(),
            observed: None,
        }
    }

    /// Takes over what was learned about commitments.
    pub fn learn(&mut self, at: Timestamp, ledger: Ledger) {
        self.observed = Some((at, ledger));
    }

    /// What was learned last.
    #[must_use]
    pub fn ledger(&self) -> Option<&Ledger> {
        self.observed.as_ref().map(|(_, ledger)| ledger)
    }

    /// When that was.
    #[must_use]
    pub fn observed_at(&self) -> Option<Timestamp> {
        self.observed.as_ref().map(|(at, _)| *at)
    }

    /// The doubt to report: a fault rather than old data.
    #[must_use]
    pub fn worst_doubt(&self) -> Option<&Doubt> {
        let doubts = || {
            self.ledger()
                .into_iter()
                .flat_map(Ledger::doubts)
                .map(|(_, doubt)| doubt)
        };
        let fault = doubts().find(|doubt| !matches!(doubt, Doubt::Stale { .. }));
        fault.or_else(|| doubts().next())
    }

    /// Decides about every overlay that is ours or should be.
    pub fn decide(
        &mut self,
        pools: &[SteeredPool<'_>],
        existing: &[Existing],
        machines: &[Machine],
    ) -> Decided {
        let mut decided = Decided::default();
        for one in existing {
            if let Some(kind) = one.purpose().capacity_type() {
                *decided.owned.entry(kind).or_default() += 1;
            }
        }
        self.preferences(pools, existing, &mut decided);
        self.commitments(pools, existing, machines, &mut decided);
        decided
    }

    fn preferences(&self, pools: &[SteeredPool<'_>], existing: &[Existing], decided: &mut Decided) {
        let mut desired = Vec::new();
        // A pool that goes takes its overlays with it.
        let pools = pools
            .iter()
            .filter(|pool| self.settings.preferences && !pool.deleting);
        for pool in pools {
            let read = Preferences::read(pool.annotations);
            let owner = PoolRef {
                name: pool.name,
                uid: pool.uid,
            };
            desired.extend(
                read.good
                    .iter()
                    .map(|one| preference(owner, one, self.settings.disabled)),
            );
            decided.pools.push(PoolPreferences {
                name: pool.name.to_owned(),
                uid: pool.uid.to_owned(),
                read,
            });
        }
        let plan = plan(&desired, existing, Family::Preferences, |_| false);
        decided.actions.extend(plan.actions);
        decided.taken.extend(plan.taken);
    }

    fn commitments(
        &mut self,
        pools: &[SteeredPool<'_>],
        existing: &[Existing],
        machines: &[Machine],
        decided: &mut Decided,
    ) {
        let rendering = self.rendering(pools, &decided.pools);
        let Some((_, ledger)) = &self.observed else {
            return;
        };
        let doubts = ledger
            .doubts()
            .map(|(kind, doubt)| (kind.label(), doubt.to_string()));
        decided.doubts = doubts.collect();
        decided.machines = machines.len();
        let policy = Policy {
            threshold: self.settings.threshold,
            hysteresis: self.settings.hysteresis,
            any_pool: rendering
                .only_pools
                .as_ref()
                .is_none_or(|pools| !pools.is_empty()),
        };
        let targets: BTreeSet<_> = existing_targets(existing);
        decided.decisions = decide(ledger, &targets, machines, policy, &mut self.memory);
        let desired: Vec<_> = decided
            .decisions
            .iter()
            .filter(|decision| decision.should_exist())
            .map(|decision| cost_aware(&decision.target, &rendering))
            .collect();
        // An overlay of ours that does not say what it covers can only be judged when everything is known.
        let keep = |one: &Existing| match one.purpose() {
            Purpose::CostAware(kind, None) => !matches!(ledger.books.get(&kind), Some(Ok(_))),
            _ => false,
        };
        let plan = plan(&desired, existing, Family::CostAware, keep);
        decided.actions.extend(plan.actions);
        decided.taken.extend(plan.taken);
    }

    fn rendering(&self, pools: &[SteeredPool<'_>], preferences: &[PoolPreferences]) -> Rendering {
        let Settings {
            weights,
            naming,
            pricing,
            disabled,
            family_label,
            mixed_pools,
            ..
        } = &self.settings;
        let only_kwok = !pools.is_empty() && pools.iter().all(|pool| pool.node_class_group == kwok::GROUP);
        let default_label = if only_kwok {
            kwok::INSTANCE_FAMILY
        } else {
            aws::INSTANCE_FAMILY
        };
        let only_pools = (*mixed_pools == MixedPools::Exclude).then(|| {
            let pools = pools.iter().filter(|pool| on_demand_only(pool.requirements));
            pools.map(|pool| pool.name.to_owned()).collect()
        });
        let taken = preferences.iter().flat_map(|pool| &pool.read.good);
        let taken: BTreeSet<i32> = taken.map(|preference| preference.number).collect();
        let weights = weights.beside(&taken);
        Rendering {
            weights,
            zonal_weight: weights.zonal(&taken),
            naming: naming.clone(),
            pricing: pricing.clone(),
            disabled: *disabled,
            family_label: family_label.clone().unwrap_or_else(|| default_label.to_owned()),
            only_pools,
        }
    }
}

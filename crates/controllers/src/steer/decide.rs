//! From what was seen to what should be written. The decisions themselves are made in `veneer_steering`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::{aws, kwok};
use veneer_engine::instance_type::Catalogue;
use veneer_steering::commitments::{Doubt, Ledger};
use veneer_steering::decisions::{Decision, Memory, Policy, decide};
use veneer_steering::overlays::{
    Action, Existing, Family, MixedPools, PoolRef, Purpose, Rendering, cost_aware, existing_targets,
    on_demand_only, plan, preference,
};
use veneer_steering::preferences::Preferences;

use super::SteeringSettings;
use super::machines::{Prices, machines};
use crate::observe::{SeenPool, SteeringSnapshot};

/// The preferences of one pool.
#[derive(Debug)]
pub(super) struct PoolPreferences {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) read: Preferences,
}

/// Everything that follows from one look.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) decisions: Vec<Decision>,
    pub(super) pools: Vec<PoolPreferences>,
    pub(super) actions: Vec<Action>,
    /// Names that overlays of somebody else have.
    pub(super) taken: Vec<String>,
    /// How many overlays are ours, by kind.
    pub(super) owned: BTreeMap<&'static str, usize>,
    pub(super) machines: usize,
    pub(super) doubts: BTreeMap<&'static str, String>,
}

/// What is kept between two looks.
pub(super) struct Decider {
    settings: Arc<SteeringSettings>,
    prices: Prices,
    memory: Memory,
    observed: Option<(Timestamp, Ledger)>,
}

impl Decider {
    pub(super) fn new(settings: Arc<SteeringSettings>, catalogue: &Catalogue) -> Self {
        Self {
            settings,
            prices: Prices::of(catalogue),
            memory: Memory::default(),
            observed: None,
        }
    }

    pub(super) fn learn(&mut self, at: Timestamp, ledger: Ledger) {
        self.observed = Some((at, ledger));
    }

    pub(super) fn ledger(&self) -> Option<&Ledger> {
        self.observed.as_ref().map(|(_, ledger)| ledger)
    }

    pub(super) fn observed_at(&self) -> Option<Timestamp> {
        self.observed.as_ref().map(|(at, _)| *at)
    }

    /// The doubt to report: a fault rather than old data.
    pub(super) fn worst_doubt(&self) -> Option<&Doubt> {
        let doubts = || {
            self.ledger()
                .into_iter()
                .flat_map(Ledger::doubts)
                .map(|(_, doubt)| doubt)
        };
        let fault = doubts().find(|doubt| !matches!(doubt, Doubt::Stale { .. }));
        fault.or_else(|| doubts().next())
    }

    pub(super) fn decide(&mut self, snapshot: &SteeringSnapshot) -> Decided {
        let existing: Vec<Existing> = snapshot
            .overlays
            .iter()
            .map(|seen| seen.existing.clone())
            .collect();
        let mut decided = Decided::default();
        for one in &existing {
            if let Some(kind) = one.capacity_type() {
                *decided.owned.entry(kind).or_default() += 1;
            }
        }
        self.preferences(snapshot, &existing, &mut decided);
        self.commitments(snapshot, &existing, &mut decided);
        decided
    }

    fn preferences(&self, snapshot: &SteeringSnapshot, existing: &[Existing], decided: &mut Decided) {
        let mut desired = Vec::new();
        // A pool that goes takes its overlays with it.
        let pools = snapshot
            .pools
            .iter()
            .filter(|pool| self.settings.preferences && !pool.deleting);
        for pool in pools {
            let read = Preferences::read(&pool.annotations);
            let owner = PoolRef {
                name: &pool.pool.name,
                uid: &pool.uid,
            };
            desired.extend(
                read.good
                    .iter()
                    .map(|one| preference(owner, one, self.settings.disabled)),
            );
            decided.pools.push(PoolPreferences {
                name: pool.pool.name.clone(),
                uid: pool.uid.clone(),
                read,
            });
        }
        let plan = plan(&desired, existing, Family::Preferences, |_| false);
        decided.actions.extend(plan.actions);
        decided.taken.extend(plan.taken);
    }

    fn commitments(&mut self, snapshot: &SteeringSnapshot, existing: &[Existing], decided: &mut Decided) {
        let Some((_, ledger)) = &self.observed else {
            return;
        };
        let doubts = ledger
            .doubts()
            .map(|(kind, doubt)| (kind.label(), doubt.to_string()));
        decided.doubts = doubts.collect();
        let machines = machines(
            snapshot.claims.iter().map(AsRef::as_ref),
            snapshot.nodes.iter().map(AsRef::as_ref),
            &self.prices,
        );
        decided.machines = machines.len();
        let rendering = self.rendering(&snapshot.pools);
        let policy = Policy {
            threshold: self.settings.threshold,
            hysteresis: self.settings.hysteresis,
            any_pool: rendering
                .only_pools
                .as_ref()
                .is_none_or(|pools| !pools.is_empty()),
        };
        decided.decisions = decide(
            ledger,
            &existing_targets(existing),
            &machines,
            policy,
            &mut self.memory,
        );
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

    fn rendering(&self, pools: &[Arc<SeenPool>]) -> Rendering {
        let SteeringSettings {
            weights,
            naming,
            pricing,
            disabled,
            family_label,
            mixed_pools,
            ..
        } = &*self.settings;
        let only_kwok = !pools.is_empty() && pools.iter().all(|pool| pool.node_class_group == kwok::GROUP);
        let default_label = if only_kwok {
            kwok::INSTANCE_FAMILY
        } else {
            aws::INSTANCE_FAMILY
        };
        let only_pools = (*mixed_pools == MixedPools::Exclude).then(|| {
            let pools = pools.iter().filter(|pool| on_demand_only(&pool.requirements));
            pools.map(|pool| pool.pool.name.clone()).collect()
        });
        Rendering {
            weights: *weights,
            naming: naming.clone(),
            pricing: pricing.clone(),
            disabled: *disabled,
            family_label: family_label.clone().unwrap_or_else(|| default_label.to_owned()),
            only_pools,
        }
    }
}

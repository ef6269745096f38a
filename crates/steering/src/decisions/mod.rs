//! Which commitments are worth an overlay now.
//!
//! [`decide`] is a pure function of the ledger, the machines of the cluster and what was decided before. A target is
//! *Active* while enough of it is left, *Preserved* while the data about it cannot be believed, and *Removed*
//! otherwise. Doubt changes nothing in either direction: what exists stays, what does not exist is not made.
//!
//! The data is minutes old, so machines that were launched since then are counted against it (the cap): an overlay
//! goes away as soon as they would use up what was left.

mod cover;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::commitments::{Balance, Certainty, Doubt, Kind, Ledger, Target, family_of, is_size_flexible};

pub use cover::{Used, cover, price_launches};

/// Amounts below this are nothing: sums of decimal prices are not exact.
pub(crate) const NOTHING: f64 = 1e-9;

/// An on-demand machine of the cluster: a NodeClaim (also one in flight) or a Node without one.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name, for a defined order.
    pub name: String,
    /// When it was asked for.
    pub created: Timestamp,
    /// Its instance type, or the one that it will most likely get.
    pub instance_type: String,
    /// Its zone, or those that it may get; none if it may get every one.
    pub zones: Vec<String>,
    /// The list price in dollars per hour.
    pub price: f64,
}

/// When an overlay is worth having.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// In percent; plans used more than this get no overlay.
    pub threshold: f64,
    /// In percent; a plan whose overlay was removed gets it back this far below the threshold.
    pub hysteresis: f64,
    /// Whether any NodePool may use cost-aware overlays at all.
    pub any_pool: bool,
}

/// The life of a cost-aware overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It should exist.
    Active,
    /// It exists, the data about it cannot be believed, and so it stays.
    Preserved,
    /// It should not exist.
    Removed,
}

/// Why; the names are labels of metrics and of overlays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A plan has capacity left.
    CapacityAvailable,
    /// Reserved Instances are unused.
    ReservedInstancesAvailable,
    /// Reserved Instances are owned, and how many of them are unused cannot be known.
    ReservedInstancesAssumedAvailable,
    /// A plan is used past the threshold.
    UtilizationAboveThreshold,
    /// Nothing is left of a plan.
    NoCapacityLeft,
    /// Every Reserved Instance is in use.
    NoUnusedReservedInstances,
    /// Nobody pays for this any more.
    NoCommitment,
    /// Machines launched since the data was taken use up what was left.
    UsedUpByLaunches,
    /// What is left would not cover a machine like those of the cluster.
    TooSmallForTypicalNode,
    /// It was removed before, and is not yet far enough below the threshold.
    WaitingForHysteresis,
    /// Every NodePool can also launch spot, and such pools are excluded.
    NoOnDemandOnlyPool,
    /// A query got no answer.
    QueryFailed,
    /// The data is too old.
    StaleData,
    /// Nothing says how old the data is.
    NoFreshness,
    /// A part of the data is missing or is no number.
    IncompleteData,
    /// A value cannot be.
    ImplausibleData,
}

impl Reason {
    /// The same for people.
    #[must_use]
    pub fn in_words(self) -> String {
        match self {
            Self::TooSmallForTypicalNode => "what is left covers no further node".to_owned(),
            Self::UsedUpByLaunches => "launches since the last data use it up".to_owned(),
            Self::UtilizationAboveThreshold => "nearly all of it is used".to_owned(),
            Self::ReservedInstancesAssumedAvailable => {
                "the data does not say how many are unused, so one counts as available".to_owned()
            }
            Self::NoUnusedReservedInstances => "all of them are used".to_owned(),
            Self::WaitingForHysteresis => "used up lately, not yet free enough".to_owned(),
            other => other.as_str().replace('-', " "),
        }
    }

    /// The name, as it stands in labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CapacityAvailable => "capacity-available",
            Self::ReservedInstancesAvailable => "reserved-instances-available",
            Self::ReservedInstancesAssumedAvailable => "reserved-instances-assumed-available",
            Self::UtilizationAboveThreshold => "utilization-above-threshold",
            Self::NoCapacityLeft => "no-capacity-left",
            Self::NoUnusedReservedInstances => "no-unused-reserved-instances",
            Self::NoCommitment => "no-commitment",
            Self::UsedUpByLaunches => "used-up-by-launches",
            Self::TooSmallForTypicalNode => "too-small-for-typical-node",
            Self::WaitingForHysteresis => "waiting-for-hysteresis",
            Self::NoOnDemandOnlyPool => "no-on-demand-only-pool",
            Self::QueryFailed => "query-failed",
            Self::StaleData => "stale-data",
            Self::NoFreshness => "no-freshness",
            Self::IncompleteData => "incomplete-data",
            Self::ImplausibleData => "implausible-data",
        }
    }
}

impl From<&Doubt> for Reason {
    fn from(doubt: &Doubt) -> Self {
        match doubt {
            Doubt::QueryFailed(_) => Self::QueryFailed,
            Doubt::Stale { .. } => Self::StaleData,
            Doubt::NoFreshness(_) => Self::NoFreshness,
            Doubt::Incomplete(_) => Self::IncompleteData,
            Doubt::Implausible(_) => Self::ImplausibleData,
        }
    }
}

/// What was decided about one target, with what it was decided from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// What it is about.
    pub target: Target,
    /// What should be.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// What such a commitment covers, with the rules of the guide ("Commitments: who pays for what").
    pub rule: &'static str,
    /// Whether state or reason differ from the last time.
    pub changed: bool,
    /// What the data says is there and is left.
    pub balance: Option<Balance>,
    /// What machines launched since then take of it.
    pub used: Used,
    /// The price of a typical machine that it could cover, if there are any.
    pub typical_price: Option<f64>,
    /// What cannot be believed, in words.
    pub doubt: Option<String>,
}

impl Decision {
    /// Whether the overlay should exist.
    #[must_use]
    pub fn should_exist(&self) -> bool {
        self.state != State::Removed
    }
}

/// What was decided before.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    last: BTreeMap<Target, (State, Reason)>,
    /// Plans whose overlay was removed because they were used up, and that must wait.
    waiting: BTreeSet<Target>,
}

/// Decides about every target that is known or has an overlay, in a defined order.
pub fn decide(
    ledger: &Ledger,
    existing: &BTreeSet<Target>,
    machines: &[Machine],
    policy: Policy,
    memory: &mut Memory,
) -> Vec<Decision> {
    let used = cover(ledger, machines);
    let mut decisions = Vec::new();
    for (kind, book) in &ledger.books {
        let mut targets: BTreeSet<&Target> = existing.iter().filter(|target| target.kind == *kind).collect();
        if let Ok(book) = book {
            targets.extend(book.balances.keys());
        }
        for target in targets {
            let exists = existing.contains(target);
            let balance = match book {
                Err(doubt) => Some(Err(doubt)),
                Ok(book) => match (book.balances.get(target), &book.unlisted) {
                    (Some(balance), _) => Some(balance.as_ref()),
                    (None, Some(doubt)) => Some(Err(doubt)),
                    (None, None) => None,
                },
            };
            let used = used.get(target).copied().unwrap_or_default();
            let typical_price = typical(target, machines);
            let (state, reason) = match balance {
                _ if !policy.any_pool => (State::Removed, Reason::NoOnDemandOnlyPool),
                Some(Err(doubt)) if exists => (State::Preserved, doubt.into()),
                Some(Err(doubt)) => (State::Removed, doubt.into()),
                None => (State::Removed, Reason::NoCommitment),
                Some(Ok(balance)) => {
                    let waits = !exists && memory.waiting.contains(target);
                    match judge(target.kind, *balance, used, typical_price, policy, waits) {
                        Ok(reason) => (State::Active, reason),
                        Err(reason) => (State::Removed, reason),
                    }
                }
            };
            decisions.push(Decision {
                target: target.clone(),
                state,
                reason,
                rule: rule(target),
                changed: memory.last.get(target) != Some(&(state, reason)),
                balance: balance.and_then(|balance| balance.ok().copied()),
                used,
                typical_price,
                doubt: balance.and_then(Result::err).map(ToString::to_string),
            });
        }
    }
    remember(memory, &decisions, existing);
    decisions
}

/// What a commitment covers, with the rules that say so.
fn rule(target: &Target) -> &'static str {
    match target.kind {
        Kind::ReservedInstance if !target.zone.is_empty() => {
            "Zonal Reserved Instances: this type and size in this zone, before regional ones (rules 2, 3, 7, 8)"
        }
        Kind::ReservedInstance if is_size_flexible(family_of(&target.covers)) => {
            "Regional Reserved Instances: every size of the family, smallest first (rules 2, 3, 4, 5, 8)"
        }
        Kind::ReservedInstance => {
            "Regional Reserved Instances: this type and size only, its family is not flexible (rules 2, 3, 8)"
        }
        Kind::Ec2InstanceSavingsPlan => {
            "EC2 Instance Savings Plan: every size of the family in its region, after Reserved Instances (rules 2, 9, 10)"
        }
        Kind::ComputeSavingsPlan => {
            "Compute Savings Plan: everything that is left, Fargate and Lambda too (rules 2, 9, 10)"
        }
    }
}

/// Whether enough is left, and why or why not.
fn judge(
    kind: Kind,
    balance: Balance,
    used: Used,
    typical_price: Option<f64>,
    policy: Policy,
    waits: bool,
) -> Result<Reason, Reason> {
    let left = balance.left - used.taken;
    let launched = used.taken > NOTHING;
    if kind == Kind::ReservedInstance {
        return if left >= 1.0 - NOTHING {
            Ok(if balance.certainty == Certainty::Assumed {
                Reason::ReservedInstancesAssumedAvailable
            } else {
                Reason::ReservedInstancesAvailable
            })
        } else if balance.left >= 1.0 - NOTHING {
            Err(Reason::UsedUpByLaunches)
        } else {
            Err(Reason::NoUnusedReservedInstances)
        };
    }
    let utilization = balance.utilization.unwrap_or(100.0);
    let with_launches = if balance.owned > 0.0 {
        utilization + 100.0 * used.taken / balance.owned
    } else {
        100.0
    };
    if utilization >= policy.threshold {
        Err(Reason::UtilizationAboveThreshold)
    } else if balance.left <= NOTHING {
        Err(Reason::NoCapacityLeft)
    } else if left <= NOTHING || with_launches >= policy.threshold {
        Err(Reason::UsedUpByLaunches)
    } else if typical_price.is_some_and(|price| price > left + NOTHING) {
        Err(if launched {
            Reason::UsedUpByLaunches
        } else {
            Reason::TooSmallForTypicalNode
        })
    } else if waits && with_launches >= policy.threshold - policy.hysteresis {
        Err(Reason::WaitingForHysteresis)
    } else {
        Ok(Reason::CapacityAvailable)
    }
}

/// The middle price of the machines that the target could cover.
fn typical(target: &Target, machines: &[Machine]) -> Option<f64> {
    let covered = machines
        .iter()
        .filter(|machine| target.may_cover(&machine.instance_type, &machine.zones));
    let mut prices: Vec<f64> = covered.map(|machine| machine.price).collect();
    prices.sort_by(f64::total_cmp);
    prices.get(prices.len().saturating_sub(1) / 2).copied()
}

fn remember(memory: &mut Memory, decisions: &[Decision], existing: &BTreeSet<Target>) {
    let mut waiting = BTreeSet::new();
    for decision in decisions {
        let target = &decision.target;
        // Only what was taken away for want of capacity waits; a doubt or a pool is no reason to.
        let ran_out = matches!(
            decision.reason,
            Reason::UtilizationAboveThreshold
                | Reason::NoCapacityLeft
                | Reason::UsedUpByLaunches
                | Reason::TooSmallForTypicalNode
        );
        let had_it = existing.contains(target)
            || memory
                .last
                .get(target)
                .is_some_and(|(state, _)| *state != State::Removed);
        let waits = decision.state == State::Removed
            && (memory.waiting.contains(target) || (ran_out && had_it))
            && decision.reason != Reason::NoCommitment;
        if waits {
            waiting.insert(target.clone());
        }
    }
    memory.waiting = waiting;
    memory.last = decisions
        .iter()
        .map(|decision| (decision.target.clone(), (decision.state, decision.reason)))
        .collect();
}

//! How many nodes of a pool may go at once.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::NodePool;
use veneer_api::node_pool::{Budget, DisruptionReason};

use crate::cron::Schedule;
use crate::plan::{name, parse_duration};

/// What a pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Its initialised nodes.
    pub(super) nodes: usize,
    /// Those of them that are going away, about to, or not ready.
    pub(super) disrupted: usize,
}

/// What the budgets of a pool say about one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// How many nodes may be disrupted at once; none for no bound.
    pub(super) allowed: Option<usize>,
    /// How many are.
    pub(super) disrupted: usize,
    /// When that changes by the passing of time alone.
    pub(super) until: Option<Timestamp>,
}

impl Allowance {
    /// How many more may go.
    pub(super) fn left(self) -> usize {
        self.allowed
            .map_or(usize::MAX, |allowed| allowed.saturating_sub(self.disrupted))
    }
}

/// The budgets of all pools, being used up.
#[derive(Clone, Debug, Default)]
pub(super) struct Budgets {
    rules: BTreeMap<(String, Reason), Allowance>,
}

/// Reasons that can be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    Empty,
    Drifted,
    Underutilized,
}

impl Reason {
    const ALL: [Self; 3] = [Self::Empty, Self::Drifted, Self::Underutilized];

    fn listed(self) -> DisruptionReason {
        match self {
            Self::Empty => DisruptionReason::Empty,
            Self::Drifted => DisruptionReason::Drifted,
            Self::Underutilized => DisruptionReason::Underutilized,
        }
    }

    /// As metrics and annotations have it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Drifted => "drifted",
            Self::Underutilized => "underutilized",
        }
    }

    /// The reason of a word; an unknown one bounds as consolidation does.
    pub(super) fn of_word(word: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.word() == word).unwrap_or(Self::Underutilized)
    }
}

impl Budgets {
    pub(super) fn new<'a>(
        pools: impl Iterator<Item = &'a NodePool>,
        counts: &BTreeMap<&str, Count>,
        now: Timestamp,
    ) -> Self {
        let mut rules = BTreeMap::new();
        for pool in pools {
            let count = counts.get(name(&pool.metadata)).copied().unwrap_or_default();
            for reason in Reason::ALL {
                let key = (name(&pool.metadata).to_owned(), reason);
                rules.insert(key, allowance(&pool.spec.disruption.budgets, count, reason, now));
            }
        }
        Self { rules }
    }

    /// What holds for a pool and a reason.
    pub(super) fn of(&self, pool: &str, reason: Reason) -> Allowance {
        let none = Allowance {
            allowed: Some(0),
            disrupted: 0,
            until: None,
        };
        self.rules
            .get(&(pool.to_owned(), reason))
            .copied()
            .unwrap_or(none)
    }

    /// How many more nodes of a pool may go.
    pub(super) fn left(&self, pool: &str, reason: Reason) -> usize {
        self.of(pool, reason).left()
    }

    /// Counts a node that goes; it counts against every reason.
    pub(super) fn take(&mut self, pool: &str) {
        for reason in Reason::ALL {
            if let Some(rule) = self.rules.get_mut(&(pool.to_owned(), reason)) {
                rule.disrupted += 1;
            }
        }
    }
}

/// A budget that cannot be read allows nothing for any reason, whatever its own reasons are, as in Karpenter.
fn allowance(budgets: &[Budget], count: Count, reason: Reason, now: Timestamp) -> Allowance {
    let mut allowed: Option<usize> = None;
    let mut until: Option<Timestamp> = None;
    for budget in budgets {
        let Some((share, changes)) = in_force(budget, count.nodes, now) else {
            return Allowance {
                allowed: Some(0),
                disrupted: count.disrupted,
                until: None,
            };
        };
        let reasons = budget.reasons.as_ref();
        if reasons.is_some_and(|reasons| !reasons.contains(&reason.listed())) {
            continue;
        }
        until = match (until, changes) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        allowed = match (allowed, share) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    Allowance {
        allowed,
        disrupted: count.disrupted,
        until,
    }
}

/// How many of `nodes` a budget allows now (none while it does not bound), and when that changes. None if the budget
/// cannot be read.
fn in_force(budget: &Budget, nodes: usize, now: Timestamp) -> Option<(Option<usize>, Option<Timestamp>)> {
    let always = || Some((Some(share(&budget.nodes, nodes)?), None));
    if budget.schedule.is_none() && budget.duration.is_none() {
        return always();
    }
    let (schedule, duration) = window(budget)?;
    let from = now.checked_sub(duration).ok()?;
    match schedule.next(from) {
        // A date that never comes bounds always: Karpenter takes the year 1 for its next time.
        None => always(),
        Some(hit) if hit <= now => Some((Some(share(&budget.nodes, nodes)?), hit.checked_add(duration).ok())),
        next => Some((None, next)),
    }
}

/// When a budget begins to bound, and for how long it then does.
fn window(budget: &Budget) -> Option<(Schedule, SignedDuration)> {
    let schedule = Schedule::parse(budget.schedule.as_deref().unwrap_or_default())?;
    let duration = budget
        .duration
        .as_deref()
        .map_or(Some(SignedDuration::ZERO), parse_duration)?;
    Some((schedule, duration))
}

/// A number, or a percentage of `nodes` rounded up; none if it is neither.
fn share(text: &str, nodes: usize) -> Option<usize> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: usize = percent.parse().ok()?;
            Some(percent.saturating_mul(nodes).div_ceil(100))
        }
        None => text.parse().ok(),
    }
}

/// What in a budget cannot be read, with the field; such a budget allows nothing.
pub(crate) fn budget_faults(budgets: &[Budget]) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, budget) in budgets.iter().enumerate() {
        let field = format!("spec.disruption.budgets[{at}]");
        if share(&budget.nodes, 0).is_none() {
            let found = &budget.nodes;
            faults.push(format!(
                "{field}.nodes: {found:?} is neither a number nor a percentage, so the budget allows nothing; write \"5\" or \"10%\""
            ));
        }
        if (budget.schedule.is_some() || budget.duration.is_some()) && window(budget).is_none() {
            let schedule = budget.schedule.as_deref().unwrap_or_default();
            faults.push(format!(
                "{field}.schedule: {schedule:?} cannot be read, so the budget allows nothing; write five cron fields in UTC without a \
                 time zone, as in \"0 9 * * mon-fri\", and a duration like 8h"
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(value: serde_json::Value) -> Budget {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_strictest_budget_in_force_counts() {
        use serde_json::json;
        let count = Count {
            nodes: 19,
            disrupted: 1,
        };
        let cases = [
            (json!([]), "12:00", Reason::Empty, usize::MAX),
            (json!([{"nodes": "10%"}]), "12:00", Reason::Empty, 1),
            (
                json!([{"nodes": "100%"}, {"nodes": "3"}]),
                "12:00",
                Reason::Empty,
                2,
            ),
            (
                json!([{"nodes": "0", "reasons": ["Drifted"]}]),
                "12:00",
                Reason::Empty,
                usize::MAX,
            ),
            (
                json!([{"nodes": "0", "reasons": ["Drifted"]}]),
                "12:00",
                Reason::Drifted,
                0,
            ),
            (
                json!([{"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}, {"nodes": "5"}]),
                "12:00",
                Reason::Empty,
                0,
            ),
            (
                json!([{"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}, {"nodes": "5"}]),
                "17:00",
                Reason::Empty,
                4,
            ),
            (
                json!([{"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}, {"nodes": "5"}]),
                "16:59",
                Reason::Empty,
                0,
            ),
            (json!([{"nodes": "many"}]), "12:00", Reason::Empty, 0),
            // What cannot be read allows nothing, for any reason.
            (
                json!([{"nodes": "5", "schedule": "what", "duration": "8h"}]),
                "12:00",
                Reason::Empty,
                0,
            ),
            (
                json!([{"nodes": "5", "schedule": "TZ=Europe/Berlin 0 9 * * *", "duration": "8h"}]),
                "20:00",
                Reason::Empty,
                0,
            ),
            (
                json!([{"nodes": "5", "schedule": "0 0 * * 7", "duration": "8h", "reasons": ["Drifted"]}, {"nodes": "9"}]),
                "12:00",
                Reason::Empty,
                0,
            ),
            (
                json!([{"nodes": "5", "duration": "8h"}]),
                "12:00",
                Reason::Empty,
                0,
            ),
            (
                json!([{"nodes": "many", "reasons": ["Drifted"]}]),
                "12:00",
                Reason::Empty,
                0,
            ),
            // A window without a length is never open, a date that never comes always is.
            (
                json!([{"nodes": "0", "schedule": "0 9 * * *"}]),
                "12:00",
                Reason::Empty,
                usize::MAX,
            ),
            (
                json!([{"nodes": "3", "schedule": "0 0 31 2 *", "duration": "1h"}]),
                "12:00",
                Reason::Empty,
                2,
            ),
        ];
        for (budgets, time, reason, expected) in cases {
            let list: Vec<Budget> = budgets.as_array().unwrap().iter().cloned().map(budget).collect();
            let now = format!("2026-01-01T{time}:00Z").parse().unwrap();
            let found = allowance(&list, count, reason, now);
            assert_eq!(found.left(), expected, "{budgets} at {time}");
        }
    }
}

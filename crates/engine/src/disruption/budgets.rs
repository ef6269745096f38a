//! How many nodes of a pool may go at once.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
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

fn allowance(budgets: &[Budget], count: Count, reason: Reason, now: Timestamp) -> Allowance {
    let mut allowed: Option<usize> = None;
    let mut until: Option<Timestamp> = None;
    for budget in budgets {
        let reasons = budget.reasons.as_ref();
        if reasons.is_some_and(|reasons| !reasons.contains(&reason.listed())) {
            continue;
        }
        let (active, changes) = in_force(budget, now);
        until = match (until, changes) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if active {
            let share = share(&budget.nodes, count.nodes);
            allowed = Some(allowed.map_or(share, |known| known.min(share)));
        }
    }
    Allowance {
        allowed,
        disrupted: count.disrupted,
        until,
    }
}

/// Whether a budget bounds now, and when that changes. One that cannot be read bounds always, and allows nothing.
fn in_force(budget: &Budget, now: Timestamp) -> (bool, Option<Timestamp>) {
    let (Some(schedule), Some(duration)) = (&budget.schedule, &budget.duration) else {
        return (true, None);
    };
    let (Some(schedule), Some(duration)) = (Schedule::parse(schedule), parse_duration(duration)) else {
        return (true, None);
    };
    let Ok(from) = now.checked_sub(duration) else {
        return (true, None);
    };
    match schedule.next(from) {
        Some(hit) if hit <= now => (true, hit.checked_add(duration).ok()),
        next => (false, next),
    }
}

/// A number, or a percentage of `nodes` rounded up. One that cannot be read allows nothing.
fn share(text: &str, nodes: usize) -> usize {
    match text.strip_suffix('%') {
        Some(percent) => percent
            .parse::<usize>()
            .map_or(0, |percent| (percent.saturating_mul(nodes)).div_ceil(100)),
        None => text.parse().unwrap_or(0),
    }
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
            (
                json!([{"nodes": "5", "schedule": "what", "duration": "8h"}]),
                "12:00",
                Reason::Empty,
                4,
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

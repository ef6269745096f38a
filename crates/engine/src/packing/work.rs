//! How much work the pods of each namespace cause.
//!
//! Pods are other people's, and some demands cost far more than others: a thousand pods with fifty preferences that
//! cannot be had are tried fifty thousand times. Nobody is held back until a run has taken [`FREE_STEPS`] in total, so
//! that everyday clusters are decided about as Karpenter does. From then on a namespace is held whose pods have taken
//! more steps than they were granted: its pods are not tried again in this run.
//!
//! Steps are counted, never timed: the same input gives the same answer on every machine. One takes some tens of nanoseconds at most.

/// The steps of a run before anybody is held back.
pub const FREE_STEPS: u64 = 10_000_000;
/// The steps that are granted for trying a pod, for each place that it could go to: enough to look at every place a
/// few times.
const STEPS_PER_PLACE: u64 = 16;
/// Places that are counted beside the real ones.
const MORE_PLACES: u64 = 64;
/// The demands of all forms of all pods that are compiled before anybody is held back.
pub(super) const FREE_DEMANDS: u64 = 1_000_000;

/// The steps of one namespace.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    granted: u64,
    spent: u64,
    is_held: bool,
}

/// The steps of a run, namespace by namespace.
#[derive(Clone, Debug)]
pub(super) struct Work {
    free: u64,
    total: u64,
    accounts: Vec<Account>,
}

impl Work {
    pub(super) fn new(namespaces: usize, free: u64) -> Self {
        Self {
            free,
            total: 0,
            accounts: vec![Account::default(); namespaces],
        }
    }

    /// The steps taken so far.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Grants what trying a pod may cost where there are so many places; says whether the namespace is held.
    pub(super) fn grant(&mut self, namespace: usize, places: usize) -> bool {
        let Some(account) = self.accounts.get_mut(namespace) else {
            return false;
        };
        if !account.is_held {
            let places = u64::try_from(places).unwrap_or(u64::MAX);
            let steps = places.saturating_add(MORE_PLACES).saturating_mul(STEPS_PER_PLACE);
            account.granted = account.granted.saturating_add(steps);
        }
        account.is_held
    }

    /// Counts steps; says whether the namespace is held from now on.
    pub(super) fn spend(&mut self, namespace: usize, steps: u64) -> bool {
        self.total = self.total.saturating_add(steps);
        let Some(account) = self.accounts.get_mut(namespace) else {
            return false;
        };
        account.spent = account.spent.saturating_add(steps);
        account.is_held |= self.total > self.free && account.spent > account.granted;
        account.is_held
    }

    /// Whether the pods of a namespace are not tried any more.
    pub(super) fn is_held(&self, namespace: usize) -> bool {
        self.accounts
            .get(namespace)
            .is_some_and(|account| account.is_held)
    }

    /// The namespaces that are held.
    pub(super) fn held(&self) -> impl Iterator<Item = usize> {
        let all = self.accounts.iter().enumerate();
        all.filter(|(_, account)| account.is_held).map(|(at, _)| at)
    }
}

/// The namespaces whose pods demand more than their share, if all together demand too much. They are told by what
/// their pods demand, before any of it is compiled.
pub(super) fn above_share(demands: &[u64]) -> Vec<usize> {
    let total: u64 = demands
        .iter()
        .fold(0, |total: u64, demand| total.saturating_add(*demand));
    if total <= FREE_DEMANDS {
        return Vec::new();
    }
    let share = share(demands);
    let above = demands.iter().enumerate().filter(|(_, demand)| **demand > share);
    above.map(|(at, _)| at).collect()
}

/// What each namespace that demands something may demand.
pub(super) fn share(demands: &[u64]) -> u64 {
    let count = demands.iter().filter(|demand| **demand > 0).count();
    FREE_DEMANDS / u64::try_from(count.max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_held_before_the_free_steps_are_used_up() {
        let mut work = Work::new(2, 10_000);
        work.grant(0, 0);
        assert!(!work.spend(0, 9_000));
        work.grant(1, 0);
        assert!(!work.spend(1, 1_000), "exactly the free steps");
        assert!(!work.spend(1, 10), "within what was granted");
        assert!(work.spend(0, 1), "beyond what was granted");
        assert!(work.is_held(0) && !work.is_held(1));
        assert_eq!(work.held().collect::<Vec<_>>(), [0]);
        assert!(work.grant(0, 1_000_000), "once held, held for the run");
        assert_eq!(work.total(), 10_011);
    }

    #[test]
    fn those_above_their_share_are_told_only_when_all_together_demand_too_much() {
        assert!(above_share(&[900_000, 50_000, 0]).is_empty());
        assert_eq!(above_share(&[900_000, 150_000, 0]), [0]);
        assert_eq!(above_share(&[900_000, 600_000, 10]), [0, 1]);
    }
}

//! A claim being built.

use super::amounts::Amount;
use super::host_ports::HostPort;
use super::ids::{PoolId, StateId};
use crate::bitset::BitSet;

/// A node that would be launched.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) pool: PoolId,
    /// What its labels must be.
    pub(super) state: StateId,
    /// The types that still fit.
    pub(super) types: BitSet,
    /// What its pods ask for, DaemonSets not included.
    pub(super) requests: Vec<Amount>,
    /// The resources that some pod names, of whatever amount.
    pub(super) named: BitSet,
    pub(super) ports: Vec<HostPort>,
    /// The reservations that it holds, in ascending order.
    pub(super) reserved: Vec<usize>,
    /// The pods on it, by position.
    pub(super) pods: Vec<usize>,
    pub(super) min_values_relaxed: bool,
}

/// What a claim becomes with one pod more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) state: StateId,
    pub(super) types: BitSet,
    pub(super) reserved: Vec<usize>,
    pub(super) min_values_relaxed: bool,
}

/// Why a pod does not go on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It never will, whatever its size.
    Never,
    /// It is too large for what is left, and always will be.
    Full,
    /// It is too large for what its own demands leave, and always will be.
    TooLarge,
    /// It may later.
    NotNow,
    /// Only reserved capacity would do, and all of it is taken for now.
    Reserved,
}

/// How many instances each reservation still has.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    free: Vec<i64>,
}

impl Reservations {
    pub(super) fn new(free: impl IntoIterator<Item = i64>) -> Self {
        Self {
            free: free.into_iter().collect(),
        }
    }

    /// Whether a claim that holds `held` can have `reservation`.
    pub(super) fn can_reserve(&self, held: &[usize], reservation: usize) -> bool {
        held.contains(&reservation) || self.free.get(reservation).is_some_and(|free| *free > 0)
    }

    /// Gives a claim `wanted` in place of `held`.
    pub(super) fn exchange(&mut self, held: &[usize], wanted: &[usize]) {
        for reservation in wanted.iter().filter(|reservation| !held.contains(reservation)) {
            if let Some(free) = self.free.get_mut(*reservation) {
                *free -= 1;
            }
        }
        for reservation in held.iter().filter(|reservation| !wanted.contains(reservation)) {
            if let Some(free) = self.free.get_mut(*reservation) {
                *free += 1;
            }
        }
    }
}

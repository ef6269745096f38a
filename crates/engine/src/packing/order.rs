//! The order in which claims are tried: fewest pods first, ties as Go's sort leaves them.
//!
//! Karpenter sorts all claims again before every pod. Between two sorts at most one claim has changed (one pod more,
//! or it is new at the end), so from 50 claims on the sort nearly always moves that one claim to the end of its
//! equals and nothing else; that is done directly. The exception is when the claim sits where the sort looks for its
//! pivot, and then the whole sort runs.

use super::go_sort::{looks_increasing, sort_slice};
use super::ids::{ClaimId, Id};

/// Below this length the sort may permute everything.
const DIRECT_FROM: usize = 50;

/// The claims in the order of the last sort, with what changed since.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    claims: Vec<ClaimId>,
    /// The number of pods of each claim.
    pods: Vec<u32>,
    change: Change,
}

#[derive(Clone, Copy, Debug, Default)]
enum Change {
    #[default]
    None,
    /// The claim at this position has one pod more.
    Grown(usize),
    /// The last claim is new.
    New,
}

impl Order {
    /// The claims, sorted if [`Order::sort`] was called after the last change.
    pub(super) fn claims(&self) -> &[ClaimId] {
        &self.claims
    }

    /// A claim with its first pod was made.
    pub(super) fn push(&mut self, claim: ClaimId) {
        self.claims.push(claim);
        self.pods.push(1);
        self.change = Change::New;
    }

    /// The claim at `position` got a pod.
    pub(super) fn grow(&mut self, position: usize) {
        if let Some(pods) = self
            .claims
            .get(position)
            .and_then(|claim| self.pods.get_mut(claim.index()))
        {
            *pods += 1;
        }
        self.change = Change::Grown(position);
    }

    /// Sorts as Karpenter would before it looks at the claims for the next pod.
    pub(super) fn sort(&mut self) {
        let change = std::mem::take(&mut self.change);
        if matches!(change, Change::None) {
            return;
        }
        let pods = &self.pods;
        let count = |claim: &ClaimId| pods.get(claim.index()).copied().unwrap_or(0);
        let less = |a: &ClaimId, b: &ClaimId| count(a) < count(b);
        if self.claims.len() < DIRECT_FROM || !looks_increasing(&mut self.claims, less) {
            return sort_slice(&mut self.claims, less);
        }
        match change {
            Change::None => {}
            Change::Grown(position) => {
                if let Some((first, rest)) = self.claims.get_mut(position..).and_then(<[_]>::split_first_mut)
                {
                    let grown = count(first);
                    let equals = rest.partition_point(|claim| count(claim) < grown);
                    if let Some(range) = self.claims.get_mut(position..=position + equals) {
                        range.rotate_left(1);
                    }
                }
            }
            Change::New => {
                if let Some((_, rest)) = self.claims.split_last() {
                    let start = rest.partition_point(|claim| count(claim) <= 1);
                    if let Some(range) = self.claims.get_mut(start..) {
                        range.rotate_right(1);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_direct_move_gives_the_order_of_the_whole_sort(
            steps in prop::collection::vec((0..10_u8, 0..10_000_usize), 1..1200),
        ) {
            let mut order = Order::default();
            let mut expected: Vec<ClaimId> = Vec::new();
            let mut pods: Vec<u32> = Vec::new();
            for (kind, pick) in steps {
                order.sort();
                sort_slice(&mut expected, |a, b| pods[a.index()] < pods[b.index()]);
                prop_assert_eq!(order.claims(), expected.as_slice());
                if kind < 3 || expected.is_empty() {
                    let claim = ClaimId::new(pods.len());
                    pods.push(1);
                    expected.push(claim);
                    order.push(claim);
                } else {
                    // Mostly among the first, as the scheduler does.
                    let position = pick % if kind < 8 { expected.len().min(5) } else { expected.len() };
                    pods[expected[position].index()] += 1;
                    order.grow(position);
                }
            }
        }
    }
}

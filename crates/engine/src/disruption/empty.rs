//! Empty nodes that go without a second look.
//!
//! The second look is for what may change meanwhile. Of a node that has been empty for as long as its NodePool says, in a
//! cluster in which no pod looks for a place, nothing is left to be seen. While any pod does, its node may be just this one,
//! and the usual way is taken.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::budgets::{Budgets, Reason};
use super::candidates::{Candidate, Candidates};
use super::search::may_go;
use super::{Command, Decision, announce};
use crate::cluster::Index;
use crate::plan::{Action, Snapshot, Target};
use crate::provision::{self, is_unbound};

/// How long ago the last pod left at least, whatever `consolidateAfter` says: a workload that is replaced is often gone for a
/// moment.
const EMPTY_FOR: SignedDuration = SignedDuration::from_secs(5);

/// Starts the end of empty nodes, as far as budgets allow; says whether any goes.
pub(super) fn start(
    (snapshot, index): (&Snapshot, &Index<'_>),
    candidates: &Candidates<'_>,
    budgets: &mut Budgets,
    now: Timestamp,
    decision: &mut Decision,
) -> bool {
    let mut empty = candidates
        .list
        .iter()
        .filter(|one| one.reason() == Reason::Empty && may_go(one))
        .peekable();
    if empty.peek().is_none()
        || snapshot.pods.iter().any(|pod| is_unbound(pod))
        || !provision::demand(snapshot, index).is_empty()
    {
        return false;
    }
    let before = decision.started.len();
    for one in empty {
        let left = snapshot.pod_events.get(one.node_name());
        let since = left.and_then(|left| left.checked_add(EMPTY_FOR).ok());
        if let Some(since) = since.filter(|since| *since > now) {
            decision.plan.look_again(since);
        } else if budgets.left(one.pool_name(), Reason::Empty) > 0 {
            budgets.take(one.pool_name());
            go(one, decision);
        }
    }
    decision.started.len() > before
}

fn go(one: &Candidate<'_>, decision: &mut Decision) {
    let command = Command {
        reason: Reason::Empty.word(),
        nodes: vec![one.node_name().to_owned()],
        replacements: 0,
        replacement: None,
        saving: one.price.unwrap_or_default(),
        moves: Vec::new(),
    };
    decision.plan.push(announce(one, &command));
    decision.plan.push(Action::DeleteClaim {
        target: Target::from(&one.claim.metadata),
        reason: command.reason,
    });
    decision.started.push(command);
}

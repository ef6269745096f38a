//! Commands under way, as the objects tell them.
//!
//! A command that launches replacements exists as long as one of its replacements does: the annotation
//! `veneer.io/replaces` names the claims that go, the reason, and how many replacements there are. Creating the
//! replacement is the one write that starts it; everything after that follows from what can be seen. So a process that
//! is killed at any point leaves either no command, or one that the next process carries on: candidates are tainted,
//! deleted once every replacement is initialised, and let go again when a replacement has failed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use veneer_api::NodeClaim;
use veneer_api::labels::{karpenter, veneer};
use veneer_api::node_claim::CONDITION_INITIALIZED;

use super::budgets::Reason;
use crate::cluster::Index;
use crate::plan::{
    Action, NodeChange, Plan, Snapshot, Target, condition_true, is_deleting, name, same_taint,
};

/// What the annotation of a replacement says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replaces {
    /// Why they go.
    pub(super) reason: Reason,
    /// How many replacements the command has.
    pub(super) of: usize,
    /// The claims that go.
    pub(super) claims: Vec<String>,
}

impl Replaces {
    /// As the annotation has it: `underutilized 1 claim-a claim-b`.
    pub(super) fn text(&self) -> String {
        format!("{} {} {}", self.reason.word(), self.of, self.claims.join(" "))
    }

    fn read(claim: &NodeClaim) -> Option<Self> {
        let text = claim.metadata.annotations.as_ref()?.get(veneer::REPLACES)?;
        let mut words = text.split(' ');
        let reason = Reason::of_word(words.next()?);
        let of = words.next()?.parse().ok()?;
        let claims: Vec<String> = words.map(str::to_owned).collect();
        (!claims.is_empty()).then_some(Self { reason, of, claims })
    }
}

/// One command under way.
#[derive(Clone, Debug)]
pub(super) struct Command<'a> {
    pub(super) says: Replaces,
    pub(super) replacements: Vec<&'a Arc<NodeClaim>>,
}

/// Every command under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands<'a> {
    pub(super) list: Vec<Command<'a>>,
    /// The claims that are to go, with the number of their command.
    going: HashMap<String, usize>,
    /// Replacements of commands that are not over, by name, with the number of their command.
    arriving: HashMap<&'a str, usize>,
}

impl<'a> Commands<'a> {
    pub(crate) fn read(snapshot: &'a Snapshot) -> Self {
        let existing: BTreeSet<&str> = snapshot
            .node_claims
            .iter()
            .map(|claim| name(&claim.metadata))
            .collect();
        let mut found: BTreeMap<String, Command<'a>> = BTreeMap::new();
        for claim in &snapshot.node_claims {
            let Some(says) = Replaces::read(claim).filter(|_| !is_deleting(&claim.metadata)) else {
                continue;
            };
            if !says.claims.iter().any(|one| existing.contains(one.as_str())) {
                continue;
            }
            let key = says.text();
            let command = found.entry(key).or_insert_with(|| Command {
                says,
                replacements: Vec::new(),
            });
            command.replacements.push(claim);
        }
        let mut commands = Self::default();
        for command in found.into_values() {
            let number = commands.list.len();
            for claim in &command.says.claims {
                commands.going.insert(claim.clone(), number);
            }
            for claim in &command.replacements {
                commands.arriving.insert(name(&claim.metadata), number);
            }
            commands.list.push(command);
        }
        commands
    }

    /// Whether a claim is to go.
    pub(crate) fn is_going(&self, claim: &str) -> bool {
        self.going.contains_key(claim)
    }

    /// The claims that a replacement takes the place of.
    pub(super) fn replaced_by(&self, claim: &str) -> Option<&[String]> {
        let command = self.list.get(*self.arriving.get(claim)?)?;
        Some(&command.says.claims)
    }
}

/// Carries commands on; `still_free` says whether nothing has come up that keeps a claim's node.
pub(super) fn carry_on(
    commands: &Commands<'_>,
    snapshot: &Snapshot,
    index: &Index<'_>,
    still_free: impl Fn(&str) -> bool,
    plan: &mut Plan,
) {
    for command in &commands.list {
        let candidates: Vec<&Arc<NodeClaim>> = command
            .says
            .claims
            .iter()
            .filter_map(|claim| index.of_claim(claim)?.claim())
            .filter(|claim| !is_deleting(&claim.metadata))
            .collect();
        if candidates.is_empty() {
            continue;
        }
        let is_whole = command.replacements.len() >= command.says.of;
        let is_kept = candidates.iter().any(|claim| !still_free(name(&claim.metadata)));
        if !is_whole || is_kept {
            // A replacement has failed, or a candidate has to stay: the others of the command are not needed.
            plan.actions
                .extend(command.replacements.iter().map(|claim| Action::DeleteClaim {
                    target: Target::from(&claim.metadata),
                    reason: "replacement_not_needed",
                }));
            continue;
        }
        let is_ready = |claim: &&Arc<NodeClaim>| condition_true(claim, CONDITION_INITIALIZED);
        if command.replacements.iter().all(is_ready) {
            plan.actions
                .extend(candidates.iter().map(|claim| Action::DeleteClaim {
                    target: Target::from(&claim.metadata),
                    reason: command.says.reason.word(),
                }));
        }
    }
    taints(commands, snapshot, index, plan);
}

/// Nodes of commands are tainted; nodes that are tainted without one are let go.
fn taints(commands: &Commands<'_>, snapshot: &Snapshot, index: &Index<'_>, plan: &mut Plan) {
    for node in snapshot.nodes.iter().filter(|node| !is_deleting(&node.metadata)) {
        let claim = index.claim_of(name(&node.metadata));
        let Some(claim) = claim.filter(|claim| !is_deleting(&claim.metadata)) else {
            continue;
        };
        let is_going = commands.is_going(name(&claim.metadata));
        if let Some(change) = retainted(node, is_going) {
            plan.push(Action::PatchNode {
                target: Target::from(&node.metadata),
                change,
            });
        }
    }
}

/// The taint that keeps new pods away.
fn disrupted() -> Taint {
    Taint {
        key: karpenter::DISRUPTED_TAINT.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

fn retainted(node: &Node, is_going: bool) -> Option<NodeChange> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let taints = taints.unwrap_or_default();
    let is_tainted = taints.iter().any(|taint| same_taint(taint, &disrupted()));
    if is_tainted == is_going {
        return None;
    }
    let others = taints.iter().filter(|taint| !same_taint(taint, &disrupted()));
    let others = others.cloned().chain(is_going.then(disrupted));
    Some(NodeChange {
        taints: Some(others.collect()),
        ..NodeChange::default()
    })
}

//! What becomes of every node, and when time alone changes that.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::{karpenter, kubernetes};

use super::balanced::hopeless;
use super::budgets::{Budgets, Reason};
use super::candidates::{Candidate, Candidates};
use super::search::{Verdict, may_drift};
use super::{Blocker, Chosen, Command};
use crate::cluster::Index;
use crate::plan::{Plan, Snapshot, label, name};

/// What becomes of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    /// The node.
    pub node: String,
    /// Its claim, if it has one.
    pub claim: Option<String>,
    /// Its pool.
    pub pool: String,
    /// Its instance type.
    pub instance_type: String,
    /// What it costs after overlays, in dollars per hour.
    pub price: Option<f64>,
    /// How many pods would need another place.
    pub pods: usize,
    /// What happens.
    pub outcome: Outcome,
}

/// What happens to a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is going away.
    Leaving,
    /// It goes with a command, now or after a second look.
    Goes(Command),
    /// It stays, for all of these reasons.
    Stays(Vec<Blocker>),
}

/// What becomes of every node.
pub(super) fn fates(
    candidates: &Candidates<'_>,
    alone: &[Option<Verdict>],
    chosen: Chosen,
    budgets: &Budgets,
    (snapshot, index): (&Snapshot, &Index<'_>),
) -> Vec<Fate> {
    let list = &candidates.list;
    let mut command_of: BTreeMap<usize, Command> = BTreeMap::new();
    let mut going: Vec<String> = Vec::new();
    for (nodes, command) in chosen {
        let claims = nodes.iter().filter_map(|at| list.get(*at));
        going.extend(claims.map(|one| one.claim_name().to_owned()));
        command_of.extend(nodes.iter().map(|at| (*at, command.clone())));
    }
    let mut fates: BTreeMap<String, Fate> = BTreeMap::new();
    for (at, one) in list.iter().enumerate() {
        let outcome = match command_of.remove(&at) {
            Some(command) => Outcome::Goes(command),
            None => {
                let tried = alone.get(at).and_then(Option::as_ref);
                let hopeless = hopeless(one, &candidates.totals);
                Outcome::Stays(keeps(one, tried, hopeless, budgets, &going))
            }
        };
        let fate = Fate {
            node: one.node_name().to_owned(),
            claim: Some(one.claim_name().to_owned()),
            pool: one.pool_name().to_owned(),
            instance_type: one.instance_type.to_owned(),
            price: one.price,
            pods: one.pods,
            outcome,
        };
        fates.insert(fate.node.clone(), fate);
    }
    for node in &candidates.unmanaged {
        let fate = plain(node, None, Outcome::Stays(vec![Blocker::Unmanaged]));
        fates.insert(fate.node.clone(), fate);
    }
    for node in &snapshot.nodes {
        let node_name = name(&node.metadata).to_owned();
        let claim = index.claim_of(&node_name);
        let claim = claim.map(|claim| name(&claim.metadata).to_owned());
        fates
            .entry(node_name)
            .or_insert_with(|| plain(node, claim, Outcome::Leaving));
    }
    fates.into_values().collect()
}

fn plain(node: &Node, claim: Option<String>, outcome: Outcome) -> Fate {
    let text = |key| label(&node.metadata, key).unwrap_or_default().to_owned();
    Fate {
        node: name(&node.metadata).to_owned(),
        claim,
        pool: text(karpenter::NODEPOOL),
        instance_type: text(kubernetes::INSTANCE_TYPE),
        price: None,
        pods: 0,
        outcome,
    }
}

/// What about the node itself keeps it.
fn own<'c>(one: &'c Candidate<'_>) -> impl Iterator<Item = &'c Blocker> {
    let (held, unconsolidated) = match one.reason() {
        Reason::Drifted if may_drift(one) => (&[][..], &[][..]),
        Reason::Drifted => (&one.held[..], &[][..]),
        Reason::Empty | Reason::Underutilized => (&one.held[..], &one.unconsolidated[..]),
    };
    held.iter().chain(unconsolidated)
}

/// Everything that keeps a node.
fn keeps(
    one: &Candidate<'_>,
    alone: Option<&Verdict>,
    hopeless: Option<Blocker>,
    budgets: &Budgets,
    going: &[String],
) -> Vec<Blocker> {
    let reason = one.reason();
    let mut blockers: Vec<Blocker> = own(one).cloned().collect();
    if let Some(Verdict::Stays(blocker)) = alone {
        blockers.push(blocker.clone());
    }
    // What its pool would not approve of if nothing else kept it.
    let is_weighed = blockers
        .iter()
        .any(|blocker| matches!(blocker, Blocker::Balanced { .. }));
    if reason == Reason::Underutilized && !is_weighed {
        blockers.extend(hopeless);
    }
    let rule = budgets.of(one.pool_name(), reason);
    if let Some(allowed) = rule.allowed.filter(|allowed| *allowed <= rule.disrupted) {
        blockers.push(Blocker::Budget {
            pool: one.pool_name().to_owned(),
            reason: reason.word(),
            allowed,
            disrupted: rule.disrupted,
            until: rule.until,
        });
    }
    if blockers.is_empty() {
        blockers.push(Blocker::Waits {
            claims: going.to_vec(),
        });
    }
    blockers
}

/// Remembers when time alone changes something for nodes that are not chosen.
pub(super) fn timers(
    candidates: &Candidates<'_>,
    chosen: &Chosen,
    budgets: &Budgets,
    now: Timestamp,
    plan: &mut Plan,
) {
    let chosen: BTreeSet<usize> = chosen.iter().flat_map(|(nodes, _)| nodes).copied().collect();
    let stay = candidates.list.iter().enumerate();
    for (_, one) in stay.filter(|(at, _)| !chosen.contains(at)) {
        let own = own(one).filter_map(|blocker| match blocker {
            Blocker::Quiet { until, .. } | Blocker::Nominated { until } | Blocker::Undone { until, .. } => {
                Some(*until)
            }
            Blocker::PodAnnotation { until, .. } => *until,
            _ => None,
        });
        let rule = budgets.of(one.pool_name(), one.reason());
        let budget = rule.until.filter(|_| rule.left() == 0);
        if let Some(at) = own.chain(budget).filter(|at| *at > now).min() {
            plan.look_again(at);
        }
    }
}

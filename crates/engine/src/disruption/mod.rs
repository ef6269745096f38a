//! Which nodes go, because others can take their pods, for less or at all; and why the others stay.
//!
//! [`decide`] looks at a whole cluster. Commands that launch replacements live in the objects ([`commands`]); a new one
//! is proposed, looked at again after a while on what is there then, and started if it still holds. Empty nodes go
//! first, then drifted ones, then nodes whose pods fit elsewhere or on a cheaper new node. Prices are those after
//! overlays, so a new discount moves nodes over as budgets allow; it never makes a node drift.
//!
//! Invariants: what goes is strictly dearer than what comes; budgets count every node that is going, about to go or
//! not ready; a node is tainted only while a command needs it to be; every node has a fate, and one that stays names
//! everything that keeps it.

mod balanced;
mod blockers;
mod budgets;
mod candidates;
mod commands;
pub(crate) mod drift;
mod empty;
mod fates;
mod memory;
mod pdbs;
mod replacement;
mod search;

pub use blockers::Blocker;
pub(crate) use commands::Commands;
pub use fates::{Fate, Outcome};
pub use memory::Memory;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::labels::veneer;

use crate::cluster::{CommitmentHeadroom, Commitments, Index};
use crate::packing::relocation::Relocation;
use crate::packing::{FREE_STEPS, Options, Pods, Problem, ReservedMode};
use crate::plan::{Action, Announcement, Plan, Snapshot, Subject, Target, is_deleting, name};
use crate::provision::{self, Market, relevant};
pub(crate) use budgets::budget_faults;

use budgets::Budgets;
use candidates::{Candidate, Candidates};
use commands::Replaces;
use fates::{fates, timers};
use memory::Proposal;
use search::{Discounts, Found, Search, Verdict, may_drift, may_go};

/// How long until something that was ordered and cannot be seen is ordered again.
const AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// After this time a replacement is looked at again for which too little was left of a commitment.
const COMMITMENTS_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// How to disrupt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// How long a command waits for a second look.
    pub validation: SignedDuration,
    /// The share of a node's price that a replacement has to save at least: nobody's pods move for cents.
    pub least_saving: f64,
    /// Whether spot nodes are replaced by spot nodes.
    pub spot_to_spot: bool,
    /// Whether every node gets a fate that names everything that keeps it: those that something keeps are tried too. What
    /// goes does not depend on it.
    pub explains: bool,
    /// The steps after which the pods of namespaces that take more than their part find no place any more.
    pub free_steps: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            validation: SignedDuration::from_secs(15),
            least_saving: 0.01,
            spot_to_spot: false,
            explains: false,
            free_steps: FREE_STEPS,
        }
    }
}

/// Nodes that go together.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Why: `empty`, `drifted` or `underutilized`.
    pub reason: &'static str,
    /// The nodes.
    pub nodes: Vec<String>,
    /// How many nodes are launched first.
    pub replacements: usize,
    /// The type and price of the one that was chosen for its price.
    pub replacement: Option<(String, f64)>,
    /// In dollars per hour.
    pub saving: f64,
    /// Where each pod would go, as `namespace/name` and the name of a node; none for a new one.
    pub moves: Vec<(String, Option<String>)>,
}

/// What a pass came to.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// What shall be done.
    pub plan: Plan,
    /// What was started.
    pub started: Vec<Command>,
    /// What becomes of every node, by name, if that is to be explained.
    pub fates: Arc<Vec<Fate>>,
    /// Whether the cluster was looked at anew; else nothing had changed.
    pub is_new: bool,
    /// The steps that moving pods took.
    pub steps: u64,
    /// The namespaces whose pods took too many steps, so that nodes with their pods stay.
    pub held: Vec<String>,
}

/// Decides what goes now, with nothing known about commitments.
pub fn decide(
    snapshot: &Snapshot,
    market: &mut Market,
    policy: &Policy,
    memory: &mut Memory,
    now: Timestamp,
) -> Decision {
    decide_within(snapshot, &Index::new(snapshot), market, None, policy, memory, now)
}

/// Decides what goes now. A replacement that is worth it only at the price of a commitment comes only as long as enough is left
/// of that.
pub fn decide_within<'a>(
    snapshot: &'a Snapshot,
    index: &Index<'a>,
    market: &mut Market,
    commitments: Option<&dyn Commitments>,
    policy: &Policy,
    memory: &mut Memory,
    now: Timestamp,
) -> Decision {
    let mut decision = Decision::default();
    let is_due = memory.look_again.is_some_and(|at| at <= now);
    if !memory.has_changed(snapshot, market) && !is_due {
        decision.fates = Arc::clone(&memory.fates);
        decision.plan.look_again = memory.look_again;
        return decision;
    }
    decision.is_new = true;
    let commands = Commands::read(snapshot);
    let candidates = Candidates::new(snapshot, index, &commands, market, now);
    carry_on((&commands, index), snapshot, market, now, &mut decision.plan);
    let started_empty = policy.validation > SignedDuration::ZERO
        && !policy.explains
        && empty::start(
            (snapshot, index),
            &candidates,
            &mut budgets(snapshot, &candidates, now),
            now,
            &mut decision,
        );
    let waits = memory.proposal.as_ref().filter(|proposal| proposal.due > now);
    let waits = waits.map(|proposal| named(proposal, &candidates));
    // With empty nodes on their way out the others are looked at next time: both would count the same budgets.
    let looked = if started_empty {
        Looked::default()
    } else if policy.explains || is_worth_a_look(&candidates, memory.proposal.as_ref(), now) {
        let needs_room = policy.explains || needs_room(&candidates, &commands, snapshot, index);
        let part = (!needs_room).then(|| part_of(snapshot, &candidates));
        let seen = part.as_ref().unwrap_or(snapshot);
        look(
            (seen, commitments),
            market,
            policy,
            memory,
            &candidates,
            now,
            &mut decision,
        )
    } else {
        Looked::default()
    };
    if let Some(proposal) = &memory.proposal {
        decision.plan.look_again(proposal.due);
    }
    if looked.lacks_commitment {
        // What is left of commitments is no part of a snapshot.
        decision
            .plan
            .look_again(now.checked_add(COMMITMENTS_AGAIN).unwrap_or(now));
    }
    memory.turn += decision.started.len();
    if !decision.plan.actions.is_empty() {
        // What could not be carried out has to be decided again, even if nothing changes.
        decision.plan.look_again(now.checked_add(AGAIN).unwrap_or(now));
    }
    let budgets = budgets(snapshot, &candidates, now);
    let chosen = waits.unwrap_or(looked.chosen);
    timers(&candidates, &chosen, &budgets, now, &mut decision.plan);
    if policy.explains {
        decision.fates = Arc::new(fates(
            &candidates,
            &looked.alone,
            chosen,
            &budgets,
            (snapshot, index),
        ));
    }
    memory.fates = Arc::clone(&decision.fates);
    memory.look_again = decision.plan.look_again;
    decision
}

/// Commands, each with the positions of its nodes in the list of candidates.
type Chosen = Vec<(Vec<usize>, Command)>;

/// What came of trying to move pods.
#[derive(Default)]
struct Looked {
    /// What goes now, or after a second look.
    chosen: Chosen,
    /// What becomes of each candidate by itself, as far as it was tried.
    alone: Vec<Option<Verdict>>,
    /// Whether anything stays for want of a commitment.
    lacks_commitment: bool,
}

fn budgets(snapshot: &Snapshot, candidates: &Candidates<'_>, now: Timestamp) -> Budgets {
    let pools = snapshot.node_pools.iter().map(|pool| &**pool);
    Budgets::new(pools, &candidates.counts, now)
}

/// Whether anything can come of trying to move pods: a proposal is due, or there is none and something could go.
fn is_worth_a_look(candidates: &Candidates<'_>, proposal: Option<&Proposal>, now: Timestamp) -> bool {
    proposal.map_or_else(
        || candidates.list.iter().any(may_go),
        |proposal| proposal.due <= now,
    )
}

/// Whether any pod has to find a place: on a node that may go, or because it has none already.
fn needs_room(
    candidates: &Candidates<'_>,
    commands: &Commands<'_>,
    snapshot: &Snapshot,
    index: &Index<'_>,
) -> bool {
    let mut foreign = candidates.unmanaged.iter();
    candidates.list.iter().any(|one| one.pods > 0 && may_go(one))
        || !commands.list.is_empty()
        || foreign.any(|node| is_deleting(&node.metadata))
        || !provision::demand(snapshot, index).is_empty()
}

/// The part of a cluster that matters where no pod has to find a place: the nodes that may go.
fn part_of(snapshot: &Snapshot, candidates: &Candidates<'_>) -> Snapshot {
    let free = || candidates.list.iter().filter(|one| may_go(one));
    Snapshot {
        nodes: free().map(|one| Arc::clone(one.node)).collect(),
        node_claims: free().map(|one| Arc::clone(one.claim)).collect(),
        node_pools: snapshot.node_pools.clone(),
        node_classes: snapshot.node_classes.clone(),
        ..Snapshot::default()
    }
}

/// Tries to move pods, and proposes or starts what that came to.
fn look(
    (snapshot, commitments): (&Snapshot, Option<&dyn Commitments>),
    market: &mut Market,
    policy: &Policy,
    memory: &mut Memory,
    candidates: &Candidates<'_>,
    now: Timestamp,
    decision: &mut Decision,
) -> Looked {
    let mut budgets = budgets(snapshot, candidates, now);
    let pods = if snapshot.pods.is_empty() {
        Pods::default()
    } else {
        market.readings.take(relevant(snapshot))
    };
    let objects = provision::objects(snapshot, pods, market, now);
    let problem = Problem::with_evaluation(&objects, market.catalogue(), market.evaluation().clone());
    let movable: Vec<usize> = relevant(snapshot)
        .enumerate()
        .filter(|(_, pod)| candidates::is_reschedulable(pod))
        .map(|(at, _)| at)
        .collect();
    let options = Options {
        reserved: ReservedMode::Fallback,
        free_steps: policy.free_steps,
        ..Options::default()
    };
    let mut relocation = Relocation::new(&problem, options, &movable);
    relocation.close_to_moves(candidates.closed_to_moves.keys().copied());
    let catalogue = Arc::clone(market.catalogue());
    let overlays = market.overlay_names().to_vec();
    let discounts = Discounts {
        evaluation: Arc::clone(market.evaluation()),
        overlays: &overlays,
        headroom: CommitmentHeadroom::new(commitments),
        lacks: false,
    };
    let mut search = Search::new(relocation, candidates, &catalogue, &objects, policy, discounts);
    search.judge_alone();
    let due = memory.proposal.take_if(|proposal| proposal.due <= now);
    let mut found = due.map_or_else(Vec::new, |due| validate(&due, &mut search, &mut budgets));
    if found.is_empty() && memory.proposal.is_none() {
        found = search.find(&mut budgets, memory.turn);
        if policy.validation > SignedDuration::ZERO && !found.is_empty() {
            let due = now.checked_add(policy.validation).unwrap_or(now);
            memory.proposal = Some(propose(&found, candidates, due));
        }
    }
    let chosen: Chosen = found
        .iter()
        .map(|one| (one.nodes.clone(), summary(one, &search)))
        .collect();
    if memory.proposal.is_none() {
        start(&found, &search, snapshot, market, now, decision);
    }
    decision.steps = search.relocation.steps();
    decision.held = search.relocation.held().collect();
    let lacks_commitment = search.discounts.lacks;
    let alone = search.into_alone();
    if !snapshot.pods.is_empty() {
        market.readings.keep(objects.pods);
    }
    Looked {
        chosen,
        alone,
        lacks_commitment,
    }
}

/// Carries commands under way on. A node that somebody protects in the meantime stays.
fn carry_on<'a>(
    (commands, index): (&Commands<'_>, &Index<'a>),
    snapshot: &'a Snapshot,
    market: &Market,
    now: Timestamp,
    plan: &mut Plan,
) {
    if commands.list.is_empty() {
        commands::carry_on(commands, snapshot, index, |_| true, plan);
        return;
    }
    let free = Candidates::new(snapshot, index, &Commands::default(), market, now);
    let kept: BTreeMap<&str, bool> = free
        .list
        .iter()
        .map(|one| {
            // Disruption budgets are respected while the node is drained.
            let holds = |blocker: &Blocker| {
                matches!(blocker, Blocker::NodeAnnotation | Blocker::PodAnnotation { .. })
            };
            let is_kept = one.held.iter().any(holds) && !(one.drifted.is_some() && may_drift(one));
            (one.claim_name(), is_kept)
        })
        .collect();
    let still_free = |claim: &str| !kept.get(claim).copied().unwrap_or(false);
    commands::carry_on(commands, snapshot, index, still_free, plan);
}

fn propose(found: &[Found], candidates: &Candidates<'_>, due: Timestamp) -> Proposal {
    let claims = |found: &Found| {
        let nodes = found.nodes.iter().filter_map(|at| candidates.list.get(*at));
        nodes.map(|one| one.claim_name().to_owned()).collect()
    };
    Proposal {
        due,
        commands: found.iter().map(|found| (found.reason, claims(found))).collect(),
    }
}

/// The positions of the claims of a proposal's command, if all are still there.
fn positions(claims: &[String], candidates: &Candidates<'_>) -> Option<Vec<usize>> {
    claims
        .iter()
        .map(|claim| candidates.list.iter().position(|one| one.claim_name() == claim))
        .collect()
}

/// A proposal as it stands, for whoever wants to know.
fn named(proposal: &Proposal, candidates: &Candidates<'_>) -> Chosen {
    let commands = proposal.commands.iter();
    commands
        .filter_map(|(reason, claims)| {
            let nodes = positions(claims, candidates)?;
            let command = Command {
                reason: reason.word(),
                nodes: candidates.names(&nodes),
                replacements: 0,
                replacement: None,
                saving: 0.0,
                moves: Vec::new(),
            };
            Some((nodes, command))
        })
        .collect()
}

/// Looks at proposed commands again, on what is there now.
fn validate(proposal: &Proposal, search: &mut Search<'_, '_, '_, '_>, budgets: &mut Budgets) -> Vec<Found> {
    let mut found = Vec::new();
    for (reason, claims) in &proposal.commands {
        let Some(nodes) = positions(claims, search.candidates) else {
            continue;
        };
        let mut left = budgets.clone();
        let allowed = nodes.iter().all(|at| {
            let one = search.candidates.list.get(*at);
            one.is_some_and(|one| {
                let fits = left.left(one.pool_name(), *reason) > 0;
                left.take(one.pool_name());
                may_go(one) && fits && one.reason() == *reason
            })
        });
        if !allowed {
            continue;
        }
        match search.attempt(&nodes, *reason) {
            Verdict::Goes {
                claims,
                replacement,
                saving,
                moves,
                need,
            } => {
                search.keep(need);
                *budgets = left;
                found.push(Found {
                    reason: *reason,
                    nodes,
                    claims,
                    replacement,
                    saving,
                    moves,
                });
            }
            Verdict::Stays(_) => search.relocation.undo(),
        }
    }
    found
}

/// Starts commands: nodes without replacements are deleted, replacements are made.
fn start(
    found: &[Found],
    search: &Search<'_, '_, '_, '_>,
    snapshot: &Snapshot,
    market: &mut Market,
    now: Timestamp,
    decision: &mut Decision,
) {
    let mut number = 0_usize;
    for found in found {
        let nodes: Vec<&Candidate<'_>> = found
            .nodes
            .iter()
            .filter_map(|at| search.candidates.list.get(*at))
            .collect();
        let command = summary(found, search);
        for one in &nodes {
            decision.plan.push(announce(one, &command));
            if found.claims.is_empty() {
                decision.plan.push(Action::DeleteClaim {
                    target: Target::from(&one.claim.metadata),
                    reason: found.reason.word(),
                });
            }
        }
        let replaces = Replaces {
            reason: found.reason,
            of: found.claims.len(),
            claims: nodes.iter().map(|one| one.claim_name().to_owned()).collect(),
        };
        for new in &found.claims {
            let mut pools = snapshot.node_pools.iter();
            let Some(pool) = pools.find(|pool| name(&pool.metadata) == new.node_pool) else {
                continue;
            };
            let pods: Vec<_> = new
                .pods
                .iter()
                .filter_map(|at| search.objects.pods.get(*at))
                .collect();
            let vocabulary = search.relocation.vocabulary();
            let mut claim = provision::dynamic(pool, new, vocabulary, market, &pods, (now, number));
            number += 1;
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(veneer::REPLACES.to_owned(), replaces.text());
            decision.plan.push(Action::CreateClaim(Box::new(claim)));
        }
        decision.started.push(command);
    }
}

fn announce(one: &Candidate<'_>, command: &Command) -> Action {
    let how = match (&command.replacement, command.replacements) {
        (Some((it, price)), _) => format!("replaced by {it} at ${price:.4}/h"),
        (None, 0) => "its pods fit elsewhere".to_owned(),
        (None, new) => format!("replaced by {new} new nodes"),
    };
    Action::Announce(Announcement {
        subject: Subject {
            api_version: "karpenter.sh/v1",
            kind: "NodeClaim",
            target: Target::from(&one.claim.metadata),
        },
        is_warning: false,
        reason: "Disrupting",
        message: format!(
            "{}: {how}; {} of {} nodes, saves ${:.4}/h",
            command.reason,
            one.node_name(),
            command.nodes.len(),
            command.saving
        ),
    })
}

fn summary(found: &Found, search: &Search<'_, '_, '_, '_>) -> Command {
    let moves = found.moves.iter().map(|(pod, node)| {
        let place = node.map(|node| search.relocation.name(node).to_owned());
        (search.pod_name(*pod), place)
    });
    Command {
        moves: moves.collect(),
        reason: found.reason.word(),
        nodes: search.candidates.names(&found.nodes),
        replacements: found.claims.len(),
        replacement: found.replacement.clone(),
        saving: found.saving,
    }
}

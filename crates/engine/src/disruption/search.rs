//! Which nodes can go, alone and together.
//!
//! Every node is judged by itself first: that is what an explanation says, and nodes that cannot go by themselves are
//! not tried again one by one. Then commands are looked for in two ways, and the one that saves more is taken: first
//! the largest prefix of nodes, by dollars per disturbance, that one new node or none can replace (as Karpenter looks
//! for them), then node after node; or node after node from the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::Policy;
use super::balanced::{hopeless, rejection};
use super::blockers::Blocker;
use super::budgets::{Budgets, Reason};
use super::candidates::{Candidate, Candidates};
use super::replacement::{Replacement, narrow};
use crate::cluster::{CommitmentHeadroom, Need};
use crate::instance_type::Catalogue;
use crate::overlay::Evaluation;
use crate::packing::go_sort::sort_slice;
use crate::packing::relocation::{Counted, Moved, Offer, Relocation};
use crate::packing::{NewNodeClaim, Objects};

/// How many nodes are tried together at most.
const TOGETHER: usize = 100;

/// Sums of prices that differ by less are the same.
const LITTLE: f64 = 1e-9;

/// What would happen to some nodes.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// They go, and what is launched first. The saving is in dollars per hour.
    Goes {
        claims: Vec<NewNodeClaim>,
        /// The type and price of the one replacement that was chosen for its price.
        replacement: Option<(String, f64)>,
        saving: f64,
        /// Where the pods go: the number of a node, or none for a new one.
        moves: Vec<(usize, Option<usize>)>,
        /// What the replacement takes of a commitment.
        need: Option<Need>,
    },
    /// They stay.
    Stays(Blocker),
}

/// Nodes that go together.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) reason: Reason,
    /// Positions in the list of candidates.
    pub(super) nodes: Vec<usize>,
    pub(super) claims: Vec<NewNodeClaim>,
    pub(super) replacement: Option<(String, f64)>,
    pub(super) saving: f64,
    pub(super) moves: Vec<(usize, Option<usize>)>,
}

/// Which overlays make offerings cheap, and what is left of the commitments that some of them stand for.
pub(super) struct Discounts<'s> {
    pub(super) evaluation: Arc<Evaluation>,
    /// The names of the overlays, in the order of the evaluation.
    pub(super) overlays: &'s [Arc<str>],
    pub(super) headroom: CommitmentHeadroom<'s>,
    /// Whether anything stays for want of a commitment.
    pub(super) lacks: bool,
}

impl Discounts<'_> {
    /// What a new node takes of a commitment, and the overlay that stands for that.
    fn need(&self, claim: &NewNodeClaim, offer: &Offer, catalogue: &Catalogue) -> Option<(Need, Arc<str>)> {
        let mut pools = self.evaluation.pools().iter();
        let pool = pools.position(|pool| pool.name == claim.node_pool)?;
        let winner = self.evaluation.winner(pool, offer.entry, offer.offering)?;
        let overlay = self.overlays.get(winner)?;
        let list = catalogue
            .types
            .get(offer.entry)?
            .offerings
            .get(offer.offering)?
            .price;
        Some((self.headroom.need(overlay, list)?, Arc::clone(overlay)))
    }
}

/// A cluster that is being searched.
pub(super) struct Search<'s, 'a, 'o, 'p> {
    pub(super) relocation: Relocation<'o, 'p>,
    pub(super) candidates: &'s Candidates<'a>,
    pub(super) catalogue: &'s Catalogue,
    pub(super) objects: &'p Objects,
    pub(super) policy: &'s Policy,
    pub(super) discounts: Discounts<'s>,
    /// Whether each candidate can go by itself: without a new node, with one, or not.
    alone: Vec<Option<Verdict>>,
}

impl<'s, 'a, 'o, 'p> Search<'s, 'a, 'o, 'p> {
    pub(super) fn new(
        relocation: Relocation<'o, 'p>,
        candidates: &'s Candidates<'a>,
        catalogue: &'s Catalogue,
        objects: &'p Objects,
        policy: &'s Policy,
        discounts: Discounts<'s>,
    ) -> Self {
        Self {
            relocation,
            candidates,
            catalogue,
            objects,
            policy,
            discounts,
            alone: Vec::new(),
        }
    }

    fn candidate(&self, at: usize) -> Option<&'s Candidate<'a>> {
        self.candidates.list.get(at)
    }

    /// What is known about each candidate by itself; none where nothing had to be tried.
    pub(super) fn alone(&self, at: usize) -> Option<&Verdict> {
        self.alone.get(at).and_then(Option::as_ref)
    }

    pub(super) fn into_alone(self) -> Vec<Option<Verdict>> {
        self.alone
    }

    /// Judges every node by itself that could go, or every one of which anything can be said.
    pub(super) fn judge_alone(&mut self) {
        self.alone = Vec::with_capacity(self.candidates.list.len());
        for at in 0..self.candidates.list.len() {
            let worth_it = self.candidate(at).is_some_and(|one| {
                let hopeless =
                    |blocker: &Blocker| matches!(blocker, Blocker::NotInitialised | Blocker::NoPool { .. });
                let can_be_tried = || !one.held.iter().chain(&one.unconsolidated).any(hopeless);
                may_go(one) || (self.policy.explains && can_be_tried())
            });
            let verdict = worth_it.then(|| {
                let one = self.candidate(at);
                let reason = one.map_or(Reason::Underutilized, Candidate::reason);
                if !self.policy.explains
                    && reason == Reason::Underutilized
                    && let Some(blocker) = one.and_then(|one| hopeless(one, &self.candidates.totals))
                {
                    return Verdict::Stays(blocker);
                }
                let verdict = self.attempt(&[at], reason);
                self.relocation.undo();
                verdict
            });
            self.alone.push(verdict);
        }
    }

    /// Takes nodes away; what was tried stands until it is kept or undone.
    pub(super) fn attempt(&mut self, nodes: &[usize], reason: Reason) -> Verdict {
        let chosen: Vec<&Candidate<'a>> = nodes.iter().filter_map(|at| self.candidate(*at)).collect();
        let numbers: Vec<usize> = chosen
            .iter()
            .filter_map(|one| self.relocation.number(one.node_name()))
            .collect();
        // Drifted nodes go whatever it takes; consolidation leaves nodes alone that pods have just come to.
        self.relocation.avoid(reason == Reason::Underutilized);
        let moved = self.relocation.without(&numbers, Counted::Present);
        if numbers.len() != nodes.len() {
            return Verdict::Stays(Blocker::NotInitialised);
        }
        match self.weigh(&chosen, &moved, reason) {
            Ok(verdict) => verdict,
            Err(blocker) if self.policy.explains => {
                let closer = self
                    .destinations(&chosen, &numbers, reason)
                    .or_else(|| self.limits(&chosen, &numbers, reason));
                Verdict::Stays(closer.unwrap_or(blocker))
            }
            Err(blocker) => Verdict::Stays(blocker),
        }
    }

    /// The limits, if nothing else keeps the nodes of the attempt that stands.
    fn limits(&mut self, chosen: &[&Candidate<'a>], numbers: &[usize], reason: Reason) -> Option<Blocker> {
        if !self.relocation.is_limited(numbers) {
            return None;
        }
        self.relocation.undo();
        self.relocation.avoid(reason == Reason::Underutilized);
        let moved = self.relocation.without(numbers, Counted::Gone);
        self.weigh(chosen, &moved, reason).ok()?;
        Some(Blocker::Limits {
            pool: chosen.first()?.pool_name().to_owned(),
            pods: self.names(moved.on_claims.iter().flatten().copied()),
        })
    }

    /// The nodes whose `consolidateAfter` has not passed, if nothing else keeps the nodes of the attempt that stands.
    fn destinations(
        &mut self,
        chosen: &[&Candidate<'a>],
        numbers: &[usize],
        reason: Reason,
    ) -> Option<Blocker> {
        if reason != Reason::Underutilized || !self.relocation.has_closed_nodes() {
            return None;
        }
        self.relocation.undo();
        self.relocation.avoid(false);
        let moved = self.relocation.without(numbers, Counted::Present);
        self.weigh(chosen, &moved, reason).ok()?;
        let closed = &self.candidates.closed_to_moves;
        let mut nodes: BTreeMap<&str, Timestamp> = BTreeMap::new();
        let mut pods = Vec::new();
        for (pod, node) in &moved.on_nodes {
            let node = self.relocation.name(*node);
            if let Some(until) = closed.get(node) {
                nodes.insert(node, *until);
                pods.push(self.pod_name(*pod));
            }
        }
        Some(Blocker::Destinations {
            pods,
            until: nodes.values().max().copied()?,
            nodes: nodes.keys().map(|node| (*node).to_owned()).collect(),
        })
    }

    /// A pod as people call it.
    pub(super) fn pod_name(&self, at: usize) -> String {
        let Some(pod) = self.objects.pods.get(at) else {
            return String::new();
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        format!("{namespace}/{}", pod.metadata.name.as_deref().unwrap_or_default())
    }

    fn names(&self, pods: impl Iterator<Item = usize>) -> Vec<String> {
        pods.map(|at| self.pod_name(at)).collect()
    }

    fn weigh(
        &mut self,
        chosen: &[&Candidate<'a>],
        moved: &Moved,
        reason: Reason,
    ) -> Result<Verdict, Blocker> {
        if !moved.nowhere.is_empty() {
            return Err(Blocker::NoPlace {
                pods: self.names(moved.nowhere.iter().copied()),
            });
        }
        if !moved.coming.is_empty() {
            return Err(Blocker::Coming {
                pods: self.names(moved.coming.iter().copied()),
            });
        }
        if let Some(node) = moved.unready {
            return Err(Blocker::Starting {
                node: self.relocation.name(node).to_owned(),
            });
        }
        let on_nodes = moved.on_nodes.iter().map(|(pod, node)| (*pod, Some(*node)));
        let on_claims = moved.on_claims.iter().flatten().map(|pod| (*pod, None));
        let moves: Vec<(usize, Option<usize>)> = on_nodes.chain(on_claims).collect();
        let price: f64 = chosen.iter().filter_map(|one| one.price).sum();
        let stuck = || self.names(moved.on_claims.iter().flatten().copied());
        let totals = &self.candidates.totals;
        let unbalanced = |saving: f64| match reason {
            Reason::Underutilized => rejection(chosen, saving, totals),
            Reason::Empty | Reason::Drifted => None,
        };
        if moved.on_claims.is_empty() {
            if let Some(blocker) = unbalanced(price) {
                return Err(blocker);
            }
            return Ok(Verdict::Goes {
                claims: Vec::new(),
                replacement: None,
                saving: price,
                moves,
                need: None,
            });
        }
        if moved.on_claims.len() > 1 && reason != Reason::Drifted {
            return Err(Blocker::SeveralNodes {
                pods: stuck(),
                nodes: moved.on_claims.len(),
            });
        }
        let pods = stuck();
        let claims = self.relocation.new_claims().map_err(|why| Blocker::MinValues {
            pods: pods.clone(),
            why: why.message,
        })?;
        if reason == Reason::Drifted {
            return Ok(Verdict::Goes {
                claims,
                replacement: None,
                saving: 0.0,
                moves,
                // Drift is no matter of price.
                need: None,
            });
        }
        let Some(claim) = claims.into_iter().next() else {
            return Err(Blocker::NoPlace { pods });
        };
        let Replacement {
            claim,
            price: new_price,
            instance_type,
            offer,
        } = narrow(
            &self.relocation,
            self.catalogue,
            chosen,
            claim,
            || pods.clone(),
            self.policy,
        )?;
        if let Some(blocker) = unbalanced(price - new_price) {
            return Err(blocker);
        }
        let need = self.discounts.need(&claim, &offer, self.catalogue);
        if let Some((_, overlay)) = need
            .as_ref()
            .filter(|(need, _)| !self.discounts.headroom.has(*need))
        {
            self.discounts.lacks = true;
            return Err(Blocker::Commitment {
                pods,
                instance_type,
                overlay: overlay.to_string(),
            });
        }
        Ok(Verdict::Goes {
            claims: vec![claim],
            replacement: Some((instance_type, new_price)),
            saving: price - new_price,
            moves,
            need: need.map(|(need, _)| need),
        })
    }

    /// Keeps the last attempt, and draws what it needs.
    pub(super) fn keep(&mut self, need: Option<Need>) {
        self.relocation.keep();
        if let Some(need) = need {
            self.discounts.headroom.take(need);
        }
    }

    /// From here on everything that is kept or drawn can be taken back as a whole, once.
    fn save(&mut self) -> usize {
        self.relocation.save();
        self.discounts.headroom.mark()
    }

    fn go_back(&mut self, mark: usize) {
        self.relocation.go_back();
        self.discounts.headroom.give_back(mark);
    }

    /// Keeps the last attempt if it came to something.
    fn settle(&mut self, reason: Reason, nodes: &[usize], verdict: Verdict, found: &mut Vec<Found>) -> bool {
        let Verdict::Goes {
            claims,
            replacement,
            saving,
            moves,
            need,
        } = verdict
        else {
            self.relocation.undo();
            return false;
        };
        self.keep(need);
        found.push(Found {
            reason,
            nodes: nodes.to_vec(),
            claims,
            replacement,
            saving,
            moves,
        });
        true
    }

    /// Looks for commands within the budgets.
    pub(super) fn find(&mut self, budgets: &mut Budgets, turn: usize) -> Vec<Found> {
        let mut found = Vec::new();
        let list = &self.candidates.list;
        let of_reason = |reason: Reason| {
            let all = list.iter().enumerate();
            all.filter(move |(_, one)| one.reason() == reason)
                .map(|(at, _)| at)
                .collect::<Vec<usize>>()
        };
        for at in of_reason(Reason::Empty) {
            let free = self.candidate(at).filter(|one| one.is_free());
            if let Some(one) = free.filter(|one| budgets.left(one.pool_name(), Reason::Empty) > 0) {
                let verdict = self.attempt(&[at], Reason::Empty);
                if self.settle(Reason::Empty, &[at], verdict, &mut found) {
                    budgets.take(one.pool_name());
                }
            }
        }
        let mut drifted = of_reason(Reason::Drifted);
        drifted.sort_by_key(|at| list.get(*at).map(|one| (one.pods > 0, one.drifted)));
        for at in drifted {
            let free = self.candidate(at).filter(|one| may_drift(one));
            if let Some(one) = free.filter(|one| budgets.left(one.pool_name(), Reason::Drifted) > 0) {
                let verdict = self.attempt(&[at], Reason::Drifted);
                if self.settle(Reason::Drifted, &[at], verdict, &mut found) {
                    budgets.take(one.pool_name());
                }
            }
        }
        let mut order = of_reason(Reason::Underutilized);
        order.retain(|at| list.get(*at).is_some_and(Candidate::is_free));
        let key = |at: &usize| list.get(*at).map_or(0.0, Candidate::ratio);
        // Ties fall as in Karpenter.
        sort_slice(&mut order, |a, b| key(a) > key(b));
        found.extend(self.underutilised(&order, budgets, turn));
        found
    }

    fn underutilised(&mut self, order: &[usize], budgets: &mut Budgets, turn: usize) -> Vec<Found> {
        let apart = self.apart(order, budgets, turn);
        let together = self.together(order, budgets);
        let chosen = match together {
            None => apart,
            Some(first) => {
                let mut left = budgets.clone();
                let mut found = Vec::new();
                let mark = self.save();
                let verdict = self.attempt(&first, Reason::Underutilized);
                if self.settle(Reason::Underutilized, &first, verdict, &mut found) {
                    for one in first.iter().filter_map(|at| self.candidate(*at)) {
                        left.take(one.pool_name());
                    }
                    let rest: Vec<usize> = order.iter().copied().filter(|at| !first.contains(at)).collect();
                    let rest = self.interleaved(&rest, turn);
                    let more = self.in_order(&rest, &[false, true], &mut left);
                    found.extend(more);
                }
                self.go_back(mark);
                if total(&found) > total(&apart) + LITTLE {
                    found
                } else {
                    apart
                }
            }
        };
        let nodes = chosen.iter().flat_map(|found| &found.nodes);
        for one in nodes.filter_map(|at| self.candidates.list.get(*at)) {
            budgets.take(one.pool_name());
        }
        chosen
    }

    /// Node after node: those that need no new node first, or those that save most by themselves first.
    fn apart(&mut self, order: &[usize], budgets: &Budgets, turn: usize) -> Vec<Found> {
        let mut by_saving: Vec<usize> = order.to_vec();
        let alone = |at: usize| match self.alone(at) {
            Some(Verdict::Goes { saving, .. }) => *saving,
            _ => 0.0,
        };
        by_saving.sort_by(|a, b| alone(*b).total_cmp(&alone(*a)).then(a.cmp(b)));
        let interleaved = self.interleaved(order, turn);
        let mut best: Vec<Found> = Vec::new();
        for (order, phases) in [(interleaved, &[false, true][..]), (by_saving, &[true][..])] {
            let mark = self.save();
            let found = self.in_order(&order, phases, &mut budgets.clone());
            self.go_back(mark);
            if total(&found) > total(&best) + LITTLE {
                best = found;
            }
        }
        best
    }

    /// A large prefix that goes together, of at least two; of those that were tried, the one that saves most.
    fn together(&mut self, order: &[usize], budgets: &Budgets) -> Option<Vec<usize>> {
        let mut left = budgets.clone();
        let mut allowed: Vec<usize> = Vec::new();
        for &at in order {
            let Some(one) = self.candidate(at) else { continue };
            if left.left(one.pool_name(), Reason::Underutilized) > 0 {
                left.take(one.pool_name());
                allowed.push(at);
            }
            if allowed.len() == TOGETHER {
                break;
            }
        }
        let (mut least, mut most) = (2, allowed.len());
        let mut best: Option<(f64, Vec<usize>)> = None;
        while least <= most {
            let middle = usize::midpoint(least, most);
            let prefix = allowed.get(..middle)?;
            let verdict = self.attempt(prefix, Reason::Underutilized);
            self.relocation.undo();
            match verdict {
                Verdict::Goes { saving, .. } if saving > 0.0 => {
                    if best.as_ref().is_none_or(|(most, _)| saving > *most) {
                        best = Some((saving, prefix.to_vec()));
                    }
                    least = middle + 1;
                }
                _ => most = middle - 1,
            }
        }
        best.map(|(_, prefix)| prefix)
    }

    /// Node after node in `order`, once without and once with new nodes, as the phases say.
    fn in_order(&mut self, order: &[usize], phases: &[bool], budgets: &mut Budgets) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        for &with_new in phases {
            for &at in order {
                let Some(one) = self.candidate(at) else { continue };
                // Room only ever shrinks, so what does not go by itself does not go now.
                let could = match self.alone(at) {
                    Some(Verdict::Goes { claims, .. }) => claims.is_empty() || with_new,
                    _ => false,
                };
                let is_chosen = found.iter().any(|found| found.nodes.contains(&at));
                if !could || is_chosen || budgets.left(one.pool_name(), Reason::Underutilized) == 0 {
                    continue;
                }
                let verdict = self.attempt(&[at], Reason::Underutilized);
                let goes = matches!(&verdict, Verdict::Goes { claims, .. } if claims.is_empty() || with_new);
                if !goes {
                    self.relocation.undo();
                } else if self.settle(Reason::Underutilized, &[at], verdict, &mut found) {
                    budgets.take(one.pool_name());
                }
            }
        }
        found
    }

    /// Pool by pool in turn, so that no pool waits for all of another.
    fn interleaved(&self, order: &[usize], turn: usize) -> Vec<usize> {
        let mut by_pool: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &at in order {
            if let Some(one) = self.candidate(at) {
                by_pool.entry(one.pool_name()).or_default().push(at);
            }
        }
        let mut pools: Vec<Vec<usize>> = by_pool.into_values().collect();
        if !pools.is_empty() {
            let first = turn % pools.len();
            pools.rotate_left(first);
        }
        let longest = pools.iter().map(Vec::len).max().unwrap_or(0);
        (0..longest)
            .flat_map(|round| pools.iter().filter_map(move |pool| pool.get(round).copied()))
            .collect()
    }
}

fn total(found: &[Found]) -> f64 {
    found.iter().map(|one| one.saving).sum()
}

/// Whether nothing but the other nodes keeps it.
pub(super) fn may_go(one: &Candidate<'_>) -> bool {
    match one.reason() {
        Reason::Drifted => may_drift(one),
        Reason::Empty | Reason::Underutilized => one.is_free(),
    }
}

/// Whether a drifted node may go. Its pods do not keep it where the claim bounds how long they may.
pub(super) fn may_drift(one: &Candidate<'_>) -> bool {
    let is_bounded = one.claim.spec.termination_grace_period.is_some();
    let of_pods = |blocker: &Blocker| {
        matches!(
            blocker,
            Blocker::PodAnnotation { .. } | Blocker::Pdb { .. } | Blocker::SeveralPdbs { .. }
        )
    };
    let is_static = one.pool.is_none_or(|pool| pool.spec.replicas.is_some());
    !is_static && one.held.iter().all(|blocker| is_bounded && of_pods(blocker))
}

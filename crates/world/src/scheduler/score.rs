//! The default scoring: what each plugin gives a node, 0 to 100, times the plugin's default weight.
//!
//! ImageLocality gives nothing, since nodes of the world have no images. The plugins of volumes and devices give nothing either.

use super::class::Class;
use super::cluster::{ClusterState, NodeState};
use super::filters::Static;
use super::{affinity, spread};

const TAINT_TOLERATION: i64 = 3;
const NODE_AFFINITY: i64 = 2;
const POD_TOPOLOGY_SPREAD: i64 = 2;
const INTER_POD_AFFINITY: i64 = 2;

/// The feasible nodes with the best score, in their order.
pub(super) fn best(
    state: &ClusterState<'_>,
    class: &Class,
    statics: &[Static],
    feasible: &[usize],
) -> Vec<usize> {
    let totals = totals(state, class, statics, feasible);
    let most = totals.iter().copied().max().unwrap_or_default();
    let nodes = feasible.iter().zip(totals);
    let mut best: Vec<usize> = nodes
        .filter(|(_, total)| *total == most)
        .map(|(at, _)| *at)
        .collect();
    best.sort_by(|one, other| {
        let name = |at: &usize| state.nodes.get(*at).map(|node| &node.name);
        name(one).cmp(&name(other))
    });
    best
}

/// The score of each feasible node.
pub(super) fn totals(
    state: &ClusterState<'_>,
    class: &Class,
    statics: &[Static],
    feasible: &[usize],
) -> Vec<i64> {
    let nodes = feasible.iter().filter_map(|at| state.nodes.get(*at));
    let mut totals: Vec<i64> = nodes
        .map(|node| least_allocated(class, node) + balanced_allocation(class, node))
        .collect();
    let fixed = || feasible.iter().filter_map(|at| statics.get(*at));
    let avoided: Vec<i64> = fixed().map(|one| one.avoided).collect();
    weigh(&mut totals, Some(shares(avoided, true)), TAINT_TOLERATION);
    if !class.preferred.is_empty() {
        let preferred: Vec<i64> = fixed().map(|one| one.preferred).collect();
        weigh(&mut totals, Some(shares(preferred, false)), NODE_AFFINITY);
    }
    let spread = spread::scores(state, class, statics, feasible);
    weigh(&mut totals, spread, POD_TOPOLOGY_SPREAD);
    weigh(
        &mut totals,
        affinity::scores(state, class, feasible),
        INTER_POD_AFFINITY,
    );
    totals
}

fn weigh(totals: &mut [i64], scores: Option<Vec<i64>>, weight: i64) {
    for (total, score) in totals.iter_mut().zip(scores.into_iter().flatten()) {
        *total += weight * score;
    }
}

/// Scores as shares of the greatest, 0 to 100; the other way round if less is better.
pub(super) fn shares(scores: Vec<i64>, less_is_better: bool) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or_default();
    let share = |score: i64| if most == 0 { 0 } else { 100 * score / most };
    let scores = scores.into_iter().map(share);
    scores
        .map(|share| if less_is_better { 100 - share } else { share })
        .collect()
}

/// NodeResourcesFit with its default strategy: the more is left of processors and memory, the better.
pub(super) fn least_allocated(class: &Class, node: &NodeState) -> i64 {
    let pairs = [
        (node.allocatable.cpu, node.compared.0 + class.compared.0),
        (node.allocatable.memory, node.compared.1 + class.compared.1),
    ];
    let (mut sum, mut count) = (0, 0);
    for (has, asked) in pairs.into_iter().filter(|(has, _)| *has != 0) {
        sum += if asked > has { 0 } else { (has - asked) * 100 / has };
        count += 1;
    }
    if count == 0 { 0 } else { sum / count }
}

/// NodeResourcesBalancedAllocation: how much closer the pod brings the shares of processors and memory that are taken.
/// Pods that ask for neither are not compared by it.
pub(super) fn balanced_allocation(class: &Class, node: &NodeState) -> i64 {
    let asked = &class.requests;
    if asked.cpu == 0 && asked.memory == 0 {
        return 0;
    }
    let used = &node.requested;
    let before = balance(node, used.cpu, used.memory);
    let after = balance(node, used.cpu + asked.cpu, used.memory + asked.memory);
    50 + (50 + after - before) / 2
}

/// 100 if the same share of processors and memory is taken, less if not.
fn balance(node: &NodeState, cpu: i64, memory: i64) -> i64 {
    let has = &node.allocatable;
    #[allow(clippy::cast_precision_loss, reason = "as kube-scheduler does it")]
    let share = |taken: i64, has: i64| (taken as f64 / has as f64).min(1.0);
    let deviation = if has.cpu == 0 || has.memory == 0 {
        0.0
    } else {
        ((share(cpu, has.cpu) - share(memory, has.memory)) / 2.0).abs()
    };
    #[allow(clippy::cast_possible_truncation, reason = "from 0 to 100")]
    let balance = ((1.0 - deviation) * 100.0) as i64;
    balance
}

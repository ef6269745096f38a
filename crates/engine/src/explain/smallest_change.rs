//! The smallest change that schedules a pod.
//!
//! For every instance type of every NodePool and for every node, the solver's end state says all that stands in the
//! way there, and so which fields have to change for the pod to go there. These changes are tried from the smallest
//! on, each by running the solver with it; the first that schedules the pod, and leaves no other pod without the place
//! that it had, is the answer. [`Measure`] says what smaller means.

use super::apply::apply;
use super::vocabulary::vocabulary;
use crate::packing::probe::{Edit, Measure};
use crate::packing::{Options, Problem, Results, solve};

/// How many changes of more than two fields are tried before giving up.
const TRIES: usize = 40;
/// Every pair of fields is tried where that is no more work than this, in pods placed.
const PAIRS: usize = 100_000;

/// A change that schedules the pod.
#[derive(Clone, Debug)]
pub struct Change {
    /// What changes.
    pub edits: Vec<Edit>,
    /// How large that is.
    pub measure: Measure,
}

/// Whether the pod has a place with `edits`, and no other pod has lost its own.
#[must_use]
pub fn schedules(
    problem: &Problem<'_>,
    options: &Options<'_>,
    position: usize,
    edits: &[Edit],
    before: &Results,
) -> bool {
    let mut objects = problem.objects().clone();
    edits.iter().all(|edit| apply(edit, &mut objects, position)) && {
        let after = solve(&problem.with_objects(&objects), options);
        has_place(&after, position)
            && after.unschedulable.iter().all(|pod| {
                let mut unschedulable = before.unschedulable.iter();
                unschedulable.any(|known| known.pod == pod.pod)
            })
    }
}

fn has_place(results: &Results, position: usize) -> bool {
    let claims = results.new_node_claims.iter().map(|claim| &claim.pods);
    let nodes = results.existing_nodes.iter().map(|node| &node.pods);
    claims.chain(nodes).any(|pods| pods.contains(&position))
}

/// A change to try.
struct Attempt {
    edits: Vec<Edit>,
    measure: Measure,
    /// Whether its amounts are as far off as can be, and not what a place needs.
    is_coarse: bool,
}

impl Attempt {
    fn new(edits: Vec<Edit>, is_coarse: bool) -> Self {
        Self {
            measure: Measure::of(&edits),
            edits,
            is_coarse,
        }
    }
}

/// Looks for the smallest change, starting from what stands in the way of each place. Every field of the vocabulary is
/// tried alone too, as far as it goes: other pods may go elsewhere with a change, and so open a place that was none.
pub(super) fn find(
    problem: &Problem<'_>,
    options: &Options<'_>,
    position: usize,
    targets: &[Vec<Edit>],
    before: &Results,
) -> Option<Change> {
    let near = targets.iter().map(|edits| Attempt::new(edits.clone(), false));
    let fields = vocabulary(problem.objects(), position);
    let single = fields.iter().map(|edit| Attempt::new(vec![edit.clone()], true));
    let mut queue: Vec<Attempt> = near.chain(single).collect();
    let pairs = fields.len() * fields.len() / 2;
    if pairs * problem.objects().pods.len() <= PAIRS {
        for (at, one) in fields.iter().enumerate() {
            let others = fields.iter().skip(at + 1);
            queue.extend(others.map(|other| Attempt::new(vec![one.clone(), other.clone()], true)));
        }
    }
    queue.sort_by(|a, b| a.measure.compare(&b.measure));
    queue.dedup_by(|a, b| a.edits == b.edits);
    let works = |edits: &[Edit]| schedules(problem, options, position, edits, before);
    let mut best: Option<Change> = None;
    let mut tries = 0;
    for attempt in &queue {
        let is_larger = |best: &Change| {
            best.edits.len() < attempt.edits.len()
                || (!attempt.is_coarse && !attempt.measure.compare(&best.measure).is_lt())
        };
        if best.as_ref().is_some_and(is_larger) {
            break;
        }
        tries += usize::from(attempt.edits.len() > 2);
        if tries > TRIES {
            break;
        }
        if works(&attempt.edits) {
            let edits = trimmed(attempt.edits.clone(), &works);
            let measure = Measure::of(&edits);
            if best
                .as_ref()
                .is_none_or(|best| measure.compare(&best.measure).is_lt())
            {
                best = Some(Change { edits, measure });
            }
            if !attempt.is_coarse {
                break;
            }
        }
    }
    best
}

/// The same with amounts that a step less of would not do. They are near that as a rule; where other pods take part
/// of what is gained, or leave more room than they seemed to, they may be further off.
fn trimmed(mut edits: Vec<Edit>, works: &impl Fn(&[Edit]) -> bool) -> Vec<Edit> {
    loop {
        let known = edits.clone();
        for at in 0..edits.len() {
            let Some((from, mut good)) = edits.get(at).and_then(Edit::amounts) else {
                continue;
            };
            let toward = (from - good).signum();
            let with = |steps: i128, edits: &[Edit]| {
                let mut tried = edits.to_vec();
                if let Some(edit) = tried.get_mut(at) {
                    edit.set_amount(steps);
                }
                tried
            };
            // A step less first: as a rule that is too little already.
            let (mut bad, mut next) = (from, good + toward);
            while (good - bad).abs() > 1 {
                let tried = with(next, &edits);
                if works(&tried) {
                    (edits, good) = (tried, next);
                } else {
                    bad = next;
                }
                next = bad + (good - bad) / 2;
            }
        }
        if edits == known {
            return edits;
        }
    }
}

//! The search for something cheaper than the best so far.
//!
//! First the whole problem is packed with claims of various sizes, then with another size for one kind of pods at a
//! time. Then claims that waste most are dissolved: all others are made again as they were, their leftover room is
//! filled without making them dearer, and what is left gets new claims of various sizes.

use std::cmp::Ordering;
use std::sync::Arc;

use super::bound::Bound;
use super::prices::Prices;
use super::steering::{Aim, Group, Measure, Merits, Plan, Steering};
use super::unplaced;
use crate::bitset::BitSet;
use crate::packing::hash::FastMap;
use crate::packing::model::Model;
use crate::packing::pods::PodEntry;
use crate::packing::solver::Solver;
use crate::packing::{Options, Problem, Results, results};

/// The sizes of nodes that are tried, in processors.
const SIZES: [f64; 9] = [16.0, 32.0, 8.0, 64.0, 4.0, 2.0, 96.0, 192.0, f64::INFINITY];
/// How much worse than the best types may be.
const TOLERANCES: [f64; 2] = [0.05, 0.25];
/// What claims aim by, and how particular they are about the pods they take.
const MEASURES: [(Measure, f64); 3] = [(Measure::Profile, 0.8), (Measure::Mix, 0.85), (Measure::Mix, 0.0)];

/// An answer.
pub(super) struct Found {
    pub(super) results: Results,
    pub(super) unplaced: BitSet,
    pub(super) hourly: f64,
    pub(super) groups: Arc<[Group]>,
}

/// The state of the search.
pub(super) struct Search<'p, 'a, 'o> {
    problem: &'p Problem<'a>,
    options: &'p Options<'o>,
    prices: Prices<'p, 'a>,
    merits: Arc<Merits>,
    bound: f64,
    pub(super) best: Found,
    pub(super) runs: usize,
}

/// What all claims cost.
pub(super) fn total(groups: &[Group]) -> f64 {
    groups.iter().map(|group| group.price).sum()
}

/// Leaves out the claims that are not made after all, because of `minValues`.
pub(super) fn keep_made(groups: &mut Vec<Group>, unplaced: &BitSet) {
    groups.retain(|group| !group.pods.iter().any(|pod| unplaced.contains(*pod)));
}

impl<'p, 'a, 'o> Search<'p, 'a, 'o> {
    /// A search that starts from `best`.
    pub(super) fn new(
        problem: &'p Problem<'a>,
        options: &'p Options<'o>,
        prices: Prices<'p, 'a>,
        best: Found,
    ) -> Self {
        Self {
            problem,
            options,
            prices,
            merits: Arc::default(),
            bound: 0.0,
            best,
            runs: 1,
        }
    }

    pub(super) fn improve(&mut self, merits: &Arc<Merits>, bound: &Bound) {
        self.merits = Arc::clone(merits);
        self.bound = bound.hourly;
        let kinds = bound.worth.len().max(1);
        let whole = |aim: Aim, (measure, strictness): (Measure, f64)| Plan {
            aims: vec![aim; kinds],
            measure,
            strictness,
            groups: Arc::default(),
            group_of: FastMap::default(),
        };
        let mut best = whole(
            Aim {
                most_processors: f64::INFINITY,
                tolerance: 0.1,
            },
            (Measure::Profile, 0.8),
        );
        for measure in MEASURES {
            for tolerance in TOLERANCES {
                for most_processors in SIZES {
                    let aim = Aim {
                        most_processors,
                        tolerance,
                    };
                    let plan = whole(aim, measure);
                    if self.attempt(&plan) {
                        best = plan;
                    }
                }
            }
        }
        for kind in 0..kinds {
            for most_processors in SIZES {
                let mut plan = best.clone();
                match plan.aims.get_mut(kind) {
                    Some(aim) if aim.most_processors != most_processors => {
                        aim.most_processors = most_processors;
                    }
                    _ => continue,
                }
                if self.runs * 2 < self.options.cost_runs && self.attempt(&plan) {
                    best = plan;
                }
            }
        }
        self.dissolve(&best);
    }

    /// Dissolves claims and packs their pods again, as long as there is something to try.
    fn dissolve(&mut self, plan: &Plan) {
        let worth = self.worth_of_pods();
        let mut skipped = 0;
        while !self.is_done() && skipped < self.best.groups.len() {
            let waste = |group: &Group| {
                let of_pods: f64 = group.pods.iter().filter_map(|pod| worth.get(pod)).sum();
                group.price - of_pods
            };
            let mut order: Vec<(f64, usize)> = self
                .best
                .groups
                .iter()
                .enumerate()
                .map(|(at, group)| (waste(group), at))
                .collect();
            order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let mut improved = false;
            let quarter = order.len() / 4;
            for count in [1, 2, 4, quarter.max(8)] {
                let released: Vec<usize> = order
                    .iter()
                    .skip(skipped)
                    .take(count)
                    .map(|(_, at)| *at)
                    .collect();
                if released.len() < count {
                    break;
                }
                for most_processors in [4.0, 16.0, 2.0, 8.0, 32.0, f64::INFINITY] {
                    let mut again = self.again(plan, &released);
                    again
                        .aims
                        .iter_mut()
                        .for_each(|aim| aim.most_processors = most_processors);
                    if self.attempt(&again) {
                        improved = true;
                        break;
                    }
                }
                if improved || self.is_done() {
                    break;
                }
            }
            skipped = if improved { 0 } else { skipped + 1 };
        }
    }

    /// The plan to make every claim again but the released ones.
    fn again(&self, plan: &Plan, released: &[usize]) -> Plan {
        let mut group_of = FastMap::default();
        for (at, group) in self.best.groups.iter().enumerate() {
            if !released.contains(&at) {
                group_of.extend(group.pods.iter().map(|pod| (*pod, at)));
            }
        }
        Plan {
            groups: Arc::clone(&self.best.groups),
            group_of,
            ..plan.clone()
        }
    }

    /// What each pod is worth, by position.
    fn worth_of_pods(&self) -> FastMap<usize, f64> {
        let model = Model::new(self.problem, self.options);
        let worth = |entry: &PodEntry| {
            let known = self.merits.pods.get(&(entry.shape, entry.size));
            known.map_or(0.0, |appraisal| appraisal.alone)
        };
        model
            .queue
            .iter()
            .map(|entry| (entry.position, worth(entry)))
            .collect()
    }

    /// What stays where it was comes first, so that the others fill the room it leaves; and pods that only dear
    /// offerings take come before others, so that they get the room that exists already.
    fn arrange(&self, queue: &mut [PodEntry], plan: &Plan) {
        let mut released = BitSet::empty(self.problem.objects.pods.len());
        if !plan.group_of.is_empty() {
            let pods = self.best.groups.iter().flat_map(|group| &group.pods);
            pods.filter(|pod| !plan.group_of.contains_key(pod))
                .for_each(|pod| released.insert(*pod));
        }
        // Rates within a quarter of each other count as the same.
        let level = |entry: &PodEntry| {
            let known = self.merits.pods.get(&(entry.shape, entry.size));
            let rate = known.map_or(f64::INFINITY, |appraisal| appraisal.rate);
            (rate.max(1e-30).ln() / 0.25_f64.ln_1p()).floor()
        };
        queue.sort_by(|a, b| {
            let (first, second) = (released.contains(a.position), released.contains(b.position));
            let by_level = if plan.strictness > 0.0 {
                level(b).total_cmp(&level(a))
            } else {
                Ordering::Equal
            };
            first.cmp(&second).then(by_level)
        });
    }

    fn is_done(&self) -> bool {
        self.runs >= self.options.cost_runs
            || self.best.hourly <= self.bound * (1.0 + 1e-9)
            || (self.options.should_stop)()
    }

    /// Runs the solver by a plan; keeps the answer if it is better.
    fn attempt(&mut self, plan: &Plan) -> bool {
        if self.is_done() {
            return false;
        }
        self.runs += 1;
        let mut solver = Solver::new(Model::new(self.problem, self.options), *self.options);
        self.arrange(&mut solver.model.queue, plan);
        solver.steering = Some(Steering::new(&self.merits, plan.clone()));
        solver.run();
        if solver.stopped {
            return false;
        }
        let mut groups = self.prices.groups(&mut solver);
        let hourly = total(&groups);
        if hourly >= self.best.hourly - 1e-9 {
            return false;
        }
        let results = results::collect(solver, self.problem);
        let unplaced = unplaced(&results, self.problem);
        let mut newly = unplaced.clone();
        newly.subtract(&self.best.unplaced);
        if !newly.is_empty() {
            return false;
        }
        keep_made(&mut groups, &unplaced);
        self.best = Found {
            results,
            unplaced,
            hourly: total(&groups),
            groups: groups.into(),
        };
        true
    }
}

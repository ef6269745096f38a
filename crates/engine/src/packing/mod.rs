//! Packing: which pods go on which nodes, and which nodes would be launched for them.
//!
//! First-fit decreasing, decision by decision as Karpenter makes them: pods by cpu and memory descending, existing
//! nodes first, then the claims that are being built (fewest pods first), then a new claim from the NodePools by
//! weight. A claim keeps every instance type that still fits. The guide's page on scheduling has the rules in full.
//!
//! [`Objects`] (what was parsed) → [`Problem`] (with prices and capacity after overlays) → [`solve`] → [`Results`].
//!
//! Invariants: no clock, no recursion on the size of the input, the same input gives the same result; where
//! Karpenter follows Go's random map order, the alphabetically first choice is taken.

mod amounts;
mod bounds;
mod claim;
mod cluster;
mod constraints;
pub mod cost;
mod daemons;
mod fingerprint;
mod forms;
pub(crate) mod go_sort;
mod grouping;
pub(crate) mod hash;
mod host_ports;
mod ids;
mod model;
mod nodes;
mod objects;
mod order;
mod pod_records;
mod pod_requests;
mod pods;
mod pools;
pub(crate) mod probe;
mod readings;
mod reasons;
pub(crate) mod relocation;
mod results;
mod selector;
mod shapes;
mod shares;
mod solver;
mod states;
mod taints;
mod terms;
mod topology;
mod types;
mod volumes;
mod work;

pub use bounds::{LeftOut, cut_demands};
pub use fingerprint::scheduling_class;
pub use objects::{Objects, Problem};
pub use pod_records::{PodMetadata, PodRecord, Pods};
pub use readings::Readings;
pub use selector::{Demand, Selector};

pub use results::{ExistingNode, HeldNamespace, NewNodeClaim, Notice, Reason, Results, Unschedulable};
pub use work::FREE_STEPS;

/// What happens to a claim when its types no longer have as many distinct values as `minValues` demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinValuesPolicy {
    /// The claim is not made.
    #[default]
    Strict,
    /// The claim is made and `minValues` lowered to what there is.
    BestEffort,
}

/// What preferences (preferred affinities, `ScheduleAnyway` spreads) mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreferencePolicy {
    /// They hold until a pod cannot be placed, and are then dropped one after the other.
    #[default]
    Respect,
    /// They are ignored from the start.
    Ignore,
}

/// What happens to a pod that could use reserved capacity when none is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservedMode {
    /// It waits for a later run, as in Karpenter's provisioner.
    #[default]
    Strict,
    /// It uses spot or on-demand capacity, as in Karpenter's consolidation.
    Fallback,
    /// Reservations are not tracked at all (Karpenter's gate `ReservedCapacity=false`).
    Off,
}

/// How to solve.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// What happens when `minValues` cannot be met.
    pub min_values: MinValuesPolicy,
    /// What preferences mean.
    pub preferences: PreferencePolicy,
    /// What happens when reserved capacity runs out.
    pub reserved: ReservedMode,
    /// How many instance types a claim keeps, the cheapest ones; Karpenter keeps 600.
    pub max_instance_types: usize,
    /// How many packings [`cost::solve`] may try, Karpenter's own included.
    pub cost_runs: usize,
    /// The steps of a run after which namespaces are held whose pods take more than their part ([`FREE_STEPS`]).
    pub free_steps: u64,
    /// Asked between pods; `true` ends the run early with what has been decided so far.
    pub should_stop: &'a dyn Fn() -> bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            min_values: MinValuesPolicy::default(),
            preferences: PreferencePolicy::default(),
            reserved: ReservedMode::default(),
            max_instance_types: 600,
            cost_runs: 200,
            free_steps: FREE_STEPS,
            should_stop: &|| false,
        }
    }
}

/// What a pod asks for as a whole; none if that cannot be read.
pub(crate) fn requests(pod: &PodRecord) -> Option<crate::resources::ResourceList> {
    pod_requests::pod_requests(pod).ok()
}

/// Decides where every pod goes.
#[must_use]
pub fn solve(problem: &Problem<'_>, options: &Options<'_>) -> Results {
    results::collect(run(problem, options), problem)
}

/// Where a pod went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A node that exists or is on its way, by name.
    Node(String),
    /// A claim that is being built: the how-manieth that was opened, from 0.
    Claim(usize),
}

/// One pod that was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The pod, as a position in [`Objects::pods`].
    pub pod: usize,
    /// How many of its preferences were dropped before.
    pub relaxations: usize,
    /// Where it went.
    pub place: Place,
}

/// The same with every placement in the order in which it was made.
#[must_use]
pub fn solve_step_by_step(problem: &Problem<'_>, options: &Options<'_>) -> (Results, Vec<Placement>) {
    let mut solver = solver::Solver::new(model::Model::new(problem, options), *options);
    solver.placements = Some(Vec::new());
    solver.run();
    let placements = solver.placements.take().unwrap_or_default();
    (results::collect(solver, problem), placements)
}

/// A run over all pods. Where namespaces had to be held, all is decided again: other pods first, and those of the
/// namespaces in question without their preferences.
fn run<'o, 'a>(problem: &Problem<'a>, options: &Options<'o>) -> solver::Solver<'o, 'a> {
    let mut solver = solver::Solver::new(model::Model::new(problem, options), *options);
    solver.run();
    let mut held = solver.held();
    if held.is_empty() || solver.stopped {
        return solver;
    }
    held.extend(solver.model.held.iter().cloned());
    let steps = solver.work.total();
    // Its memory is needed for the next one.
    drop(solver);
    let (model, _) = model::Model::with_movable(problem, options, &[], &held);
    let mut solver = solver::Solver::new(model, *options);
    solver.run();
    solver.earlier_steps = steps;
    solver
}

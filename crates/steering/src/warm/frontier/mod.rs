//! What mixes of running, stopped and cold capacity cost, and how long pods wait with each of them.
//!
//! A model of one pool, not a run of the controllers: its nodes are alike, each takes the same number of pods, and pods
//! go to the first node with room. Spares are used and replaced in the order of [`super::promote`] and [`super::keep`]
//! with the strategy KeepEmpty: running ones first, then those on their way, then stopped ones, then a launch; a stopped
//! spare becomes the next running one. [`measure`] takes latencies and arrivals from what a cluster has seen.

pub mod measure;
mod model;
pub mod pattern;

pub use model::play;

/// A pod that comes and goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// When it comes, in seconds.
    pub at: f64,
    /// How long it stays, in seconds.
    pub life: f64,
}

/// How long a pod waits for a node of each kind, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latencies {
    /// A running spare opens.
    pub running: f64,
    /// A stopped spare starts and joins.
    pub stopped: f64,
    /// A new instance is launched and joins.
    pub cold: f64,
}

impl Default for Latencies {
    /// What to expect of EC2 where nothing was measured.
    fn default() -> Self {
        Self {
            running: 1.0,
            stopped: 35.0,
            cold: 90.0,
        }
    }
}

/// What a pool is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// How long pods wait.
    pub latencies: Latencies,
    /// How many pods a node takes.
    pub pods_per_node: usize,
    /// What a running node costs per hour.
    pub hourly: f64,
    /// What a stopped one costs per hour: its disks.
    pub stopped_hourly: f64,
    /// How long a node stays after its last pod, in seconds.
    pub idle: f64,
    /// For how long the pool is looked at, in seconds.
    pub span: f64,
}

/// How many spares there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mix {
    /// Running ones.
    pub running: usize,
    /// Stopped ones.
    pub stopped: usize,
}

/// What a mix comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The mix.
    pub mix: Mix,
    /// All nodes of the pool, in dollars per month.
    pub monthly: f64,
    /// How long half of the pods wait at most, in seconds.
    pub p50: f64,
    /// 95 of 100.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
    /// How many pods waited for a launch.
    pub cold: usize,
    /// Whether no other mix is at least as good in everything and better in something.
    pub best: bool,
}

/// Hours of a month.
pub const MONTH: f64 = 730.0;
/// What a GiB of a stopped instance's disks costs per month, in dollars: gp3 in most regions of AWS.
pub const DISK: f64 = 0.08;
/// How many GiB of disks an instance has beside its memory, where nothing else is known.
pub const DISKS: f64 = 20.0;
/// How many spares of a kind are tried.
const TRIED: [usize; 9] = [0, 1, 2, 3, 5, 8, 13, 21, 34];

/// Plays mixes up to the number of nodes that the pool needs at most; the cheapest comes first.
#[must_use]
pub fn frontier(arrivals: &[Arrival], setting: &Setting) -> Vec<Outcome> {
    let most = most_nodes(arrivals, setting.pods_per_node);
    let counts: Vec<usize> = TRIED.into_iter().filter(|count| *count <= most).collect();
    let mixes = counts.iter().flat_map(|running| {
        counts.iter().map(|stopped| Mix {
            running: *running,
            stopped: *stopped,
        })
    });
    let mut outcomes: Vec<Outcome> = mixes.map(|mix| play(arrivals, mix, setting)).collect();
    let all = outcomes.clone();
    for one in &mut outcomes {
        one.best = !all.iter().any(|other| dominates(other, one));
    }
    outcomes.sort_by(|a, b| a.monthly.total_cmp(&b.monthly).then(a.mix.cmp(&b.mix)));
    outcomes
}

/// Whether one is at least as good in everything and better in something; of equals the one with fewer spares.
fn dominates(one: &Outcome, other: &Outcome) -> bool {
    let of = |one: &Outcome| [one.monthly, one.p50, one.p95, one.p99];
    let (a, b) = (of(one), of(other));
    let is_as_good = a.iter().zip(&b).all(|(a, b)| a <= b);
    is_as_good && (a != b || one.mix < other.mix)
}

/// How many nodes the pods need at most at the same time.
fn most_nodes(arrivals: &[Arrival], pods_per_node: usize) -> usize {
    let begins = arrivals.iter().map(|one| (one.at, 1_i64));
    let ends = arrivals.iter().map(|one| (one.at + one.life, -1));
    let mut changes: Vec<(f64, i64)> = begins.chain(ends).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut pods, mut most) = (0_i64, 0_i64);
    for (_, by) in changes {
        pods += by;
        most = most.max(pods);
    }
    usize::try_from(most)
        .unwrap_or_default()
        .div_ceil(pods_per_node.max(1))
}

//! One mix, played through.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::{Arrival, MONTH, Mix, Outcome, Setting};

/// What happens later.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Later {
    /// A pod leaves its node.
    Leaves(usize),
    /// A node may have been empty for long enough.
    Idle(usize),
    /// A spare that was launched to be stopped is stopped.
    Stops,
}

#[derive(Clone, Copy, Debug)]
struct Event(f64, Later);

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    ready: f64,
    pods: usize,
    /// When its last pod left.
    empty: f64,
    gone: bool,
}

#[derive(Debug)]
struct Pool<'a> {
    setting: &'a Setting,
    nodes: Vec<Node>,
    /// Running spares, by when they are ready.
    running: Vec<f64>,
    stopped: usize,
    /// Spares that run until they are stopped.
    stopping: usize,
    later: BinaryHeap<Reverse<Event>>,
    now: f64,
    spent: f64,
    cold: usize,
}

/// Plays a mix; arrivals are in the order of time.
#[must_use]
pub fn play(arrivals: &[Arrival], mix: Mix, setting: &Setting) -> Outcome {
    let mut pool = Pool {
        setting,
        nodes: Vec::new(),
        running: vec![0.0; mix.running],
        stopped: mix.stopped,
        stopping: 0,
        later: BinaryHeap::new(),
        now: 0.0,
        spent: 0.0,
        cold: 0,
    };
    let mut waits: Vec<f64> = Vec::with_capacity(arrivals.len());
    for arrival in arrivals.iter().filter(|one| one.at <= setting.span) {
        pool.pass_until(arrival.at);
        waits.push(pool.place(arrival));
    }
    pool.pass_until(setting.span);
    waits.sort_by(f64::total_cmp);
    let hours = setting.span / 3600.0;
    Outcome {
        mix,
        monthly: if hours > 0.0 {
            pool.spent / hours * MONTH
        } else {
            0.0
        },
        p50: percentile(&waits, 50),
        p95: percentile(&waits, 95),
        p99: percentile(&waits, 99),
        cold: pool.cold,
        best: false,
    }
}

/// The smallest value that this share of the sorted ones does not exceed.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

impl Pool<'_> {
    /// Lets time pass, with everything that happens meanwhile.
    fn pass_until(&mut self, until: f64) {
        while let Some(Reverse(Event(at, _))) = self.later.peek().copied()
            && at <= until
        {
            let Some(Reverse(Event(at, what))) = self.later.pop() else {
                break;
            };
            self.pay_until(at);
            self.happen(what);
        }
        self.pay_until(until);
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of nodes are small")]
    fn pay_until(&mut self, until: f64) {
        let on = self.nodes.iter().filter(|node| !node.gone).count() + self.running.len() + self.stopping;
        let hourly = on as f64 * self.setting.hourly + self.stopped as f64 * self.setting.stopped_hourly;
        self.spent += hourly * (until - self.now).max(0.0) / 3600.0;
        self.now = self.now.max(until);
    }

    fn happen(&mut self, what: Later) {
        match what {
            Later::Leaves(at) => {
                let Some(node) = self.nodes.get_mut(at) else {
                    return;
                };
                node.pods -= 1;
                if node.pods == 0 {
                    node.empty = self.now;
                    self.after(self.setting.idle, Later::Idle(at));
                }
            }
            Later::Idle(at) => {
                let (now, idle) = (self.now, self.setting.idle);
                if let Some(node) = self.nodes.get_mut(at) {
                    node.gone |= node.pods == 0 && now - node.empty >= idle;
                }
            }
            Later::Stops => {
                self.stopping -= 1;
                self.stopped += 1;
            }
        }
    }

    fn after(&mut self, delay: f64, what: Later) {
        self.later.push(Reverse(Event(self.now + delay, what)));
    }

    /// Finds a place for a pod, and says how long it waits.
    fn place(&mut self, arrival: &Arrival) -> f64 {
        let room = self.setting.pods_per_node.max(1);
        let nodes = self.nodes.iter().enumerate();
        let open = nodes
            .filter(|(_, node)| !node.gone && node.pods < room)
            .min_by(|(_, a), (_, b)| a.ready.max(self.now).total_cmp(&b.ready.max(self.now)))
            .map(|(at, _)| at);
        let at = open.unwrap_or_else(|| {
            let ready = self.now + self.node();
            self.nodes.push(Node {
                ready,
                pods: 0,
                empty: ready,
                gone: false,
            });
            self.nodes.len() - 1
        });
        let Some(node) = self.nodes.get_mut(at) else {
            return 0.0;
        };
        node.pods += 1;
        let wait = (node.ready - self.now).max(0.0);
        self.after(wait + arrival.life, Later::Leaves(at));
        wait
    }

    /// Makes a node for a pod out of the hottest there is, sees to its replacement, and says how long that takes.
    fn node(&mut self) -> f64 {
        let latencies = self.setting.latencies;
        let hottest = self
            .running
            .iter()
            .enumerate()
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        if let Some((at, ready)) = hottest.map(|(at, ready)| (at, *ready)) {
            self.running.swap_remove(at);
            let next = if self.stopped > 0 {
                self.refill();
                latencies.stopped
            } else {
                latencies.cold
            };
            self.running.push(self.now + next);
            return (ready - self.now).max(0.0) + latencies.running;
        }
        if self.stopped > 0 {
            self.refill();
            return latencies.stopped;
        }
        self.cold += 1;
        latencies.cold
    }

    /// A stopped spare is taken, and another one is launched to be stopped.
    fn refill(&mut self) {
        self.stopped -= 1;
        self.stopping += 1;
        self.after(self.setting.latencies.cold, Later::Stops);
    }
}

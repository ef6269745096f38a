//! The drivers of standalone mode (watches, stores, executor, lease, EC2 provider) against servers that are rude, without sockets
//! and without waiting: the real code talks to an API server and an EC2 in memory, on one thread whose time is simulated.
//!
//! A history follows from its seed alone: two replicas, users, a scheduler, kubelets, and servers that cut, delay, refuse and
//! halve answers, forget their logs and are thrown back to a backup. Then everybody behaves, and what was meant to be must be.
//! It lives in the crate, not in `tests/`: it compares what the stores believe with what the server has, and the bugs that it
//! must find (`bugs`) are in the drivers behind a switch that only tests compile.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail the test, and read better so"
)]

mod actors;
mod api_server;
mod bugs;
mod cloud;
mod events;
mod faults;
mod history;
mod invariants;
mod own_writes;
mod replica;
mod tests;
mod wire;

pub(crate) use bugs::{Bug, has};

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;
use veneer_engine::instance_type::Catalogue;
use veneer_world::rng::Rng;

use crate::standalone::Stores;
use api_server::{ApiServer, Backup};
use cloud::Cloud;
use faults::{EC2, Faults, Rude};
use wire::Process;

/// When a history begins.
const START: &str = "2026-01-01T00:00:00Z";
/// How often the same thing may be asked for within [`SPAN`]: of the API server, and of EC2, which is asked page by page and again
/// by itself.
const MOST: (usize, usize) = (40, 60);
const SPAN: Duration = Duration::from_secs(20);
/// How long two replicas may lead at once after somebody tampered with the Lease.
const TAMPERED: Duration = Duration::from_secs(20);

/// What is known about one replica.
#[derive(Debug, Default)]
struct Seat {
    /// The process that leads, if this replica does.
    leads: Option<String>,
    stores: Option<Arc<Stores>>,
    /// What it was answered to its writes, by kind and uid.
    answers: BTreeMap<(String, String), own_writes::Answer>,
}

#[derive(Debug)]
struct Inner {
    rng: Rng,
    api: ApiServer,
    cloud: Cloud,
    faults: Faults,
    types: Arc<Vec<String>>,
    catalogue: Arc<Catalogue>,
    page: usize,
    steps: u64,
    log: Vec<String>,
    violation: Option<String>,
    sent: BTreeMap<(usize, String), VecDeque<Duration>>,
    /// When somebody last wrote something that is not a Lease or an event.
    written: Duration,
    last_write: String,
    /// When somebody last tampered with the Lease.
    tampered: Option<Duration>,
    seats: Vec<Seat>,
    backup: Option<Backup>,
    workloads: BTreeMap<String, actors::Workload>,
    pods: u64,
}

/// One simulated world.
#[derive(Debug)]
struct Sim {
    began: Instant,
    inner: Mutex<Inner>,
    /// Not a `watch` channel: that wakes those who wait in random order.
    changed: Notify,
    violated: Notify,
    keeps_log: bool,
}

impl Sim {
    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn now(&self) -> Timestamp {
        let start: Timestamp = START.parse().unwrap_or_default();
        start.checked_add(self.elapsed()).unwrap_or(start)
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        self.with(|inner| draw(&mut inner.rng))
    }

    /// Tells open watches that there may be something to bring.
    fn wake(&self) {
        self.changed.notify_waiters();
    }

    fn log(&self, line: impl FnOnce() -> String) {
        let at = self.elapsed();
        if self.keeps_log {
            let line = format!("{:>9.3} {}", at.as_secs_f64(), line());
            self.with(|inner| inner.log.push(line));
        }
    }

    fn violate(&self, what: String) {
        self.log(|| format!("VIOLATION {what}"));
        self.with(|inner| {
            inner.violation.get_or_insert(what);
        });
        self.violated.notify_one();
    }

    /// How long a request is on its way there and back, and what goes wrong with it.
    fn fate(&self, plural: &str, replica: usize) -> (Duration, Duration, Option<Rude>) {
        let at = self.elapsed();
        self.with(|inner| {
            let rude = inner.faults.request(plural, replica, at, &mut inner.rng);
            let before = inner.faults.latency(&mut inner.rng);
            (before, inner.faults.latency(&mut inner.rng), rude)
        })
    }

    /// A process sends a request.
    fn sent(&self, process: &Process, what: &str, plural: &str, is_write: bool) {
        let at = self.elapsed();
        let is_ours = is_write && !matches!(plural, "leases" | "events");
        let wrong = self.with(|inner| {
            inner.steps += 1;
            if is_ours {
                inner.written = at;
                what.clone_into(&mut inner.last_write);
            }
            let most = if plural == EC2 { MOST.1 } else { MOST.0 };
            let times = inner.sent.entry((process.replica, what.to_owned())).or_default();
            times.push_back(at);
            while times.front().is_some_and(|first| *first + SPAN < at) {
                times.pop_front();
            }
            if times.len() > most && plural != "events" && !what.ends_with("(more)") {
                return Some(format!("{what} {} times within {SPAN:?}", times.len()));
            }
            let mut others = inner
                .seats
                .iter()
                .enumerate()
                .filter(|(seat, _)| *seat != process.replica);
            let other = others.find_map(|(_, seat)| seat.leads.clone());
            let is_excused = inner.tampered.is_some_and(|when| at < when + TAMPERED);
            other
                .filter(|_| is_ours && !is_excused)
                .map(|other| format!("{} sends {what} while {other} leads", process.identity))
        });
        if let Some(wrong) = wrong {
            self.violate(wrong);
        }
    }

    /// Something went wrong in the cloud.
    fn notice_cloud(&self) {
        if let Some(wrong) = self.with(|inner| inner.cloud.violation.take()) {
            self.violate(wrong);
        }
    }
}

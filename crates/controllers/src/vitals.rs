//! What has to go on whatever the controllers do: the Lease is renewed, the probes and metrics are answered.
//!
//! A decision may keep its thread busy for long, and everything else on that thread waits. So these have a thread and a
//! runtime of their own, and connections of their own: a connection belongs to the runtime that made it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use kube::Client;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::lease::{Candidate, Election, Fence};

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Vitals {
    handle: Handle,
    _running: oneshot::Sender<()>,
}

impl Vitals {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        thread::Builder::new().name("vitals".to_owned()).spawn(move || {
            // Nothing is ever sent: this ends when the sender is gone.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(Self {
            handle,
            _running: running,
        })
    }

    /// Where its tasks run.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Waits,
    Leads,
    Lost(String),
}

/// Says that the Lease is lost when the task that holds it ends in any other way.
struct Watchdog(watch::Sender<State>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.send_if_modified(|state| {
            let is_news = !matches!(state, State::Lost(_));
            if is_news {
                *state = State::Lost("the task that renews the Lease has ended".to_owned());
            }
            is_news
        });
    }
}

/// This replica's part in the election, played on a thread of its own.
pub(crate) struct Leadership {
    candidate: Arc<Candidate>,
    handle: Handle,
    state: watch::Sender<State>,
    tasks: Mutex<JoinSet<()>>,
}

impl Leadership {
    /// Takes no part yet.
    pub(crate) fn new(
        client: &Client,
        mut election: Election,
        vitals: Option<&Vitals>,
    ) -> Result<Self, kube::Error> {
        let (client, handle) = match (election.cluster.take(), vitals) {
            (Some(cluster), Some(vitals)) => {
                let _there = vitals.handle().enter();
                (Client::try_from(cluster)?, vitals.handle().clone())
            }
            _ => (client.clone(), Handle::current()),
        };
        Ok(Self {
            candidate: Arc::new(Candidate::new(&client, election)),
            handle,
            state: watch::Sender::new(State::Waits),
            tasks: Mutex::default(),
        })
    }

    /// Closes before another replica can lead.
    pub(crate) fn fence(&self) -> Fence {
        self.candidate.fence.clone()
    }

    /// Waits until this replica leads. From then on the Lease is renewed.
    pub(crate) async fn acquire(&self) {
        let mut seen = self.state.subscribe();
        {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            if tasks.is_empty() {
                let (candidate, state) = (Arc::clone(&self.candidate), self.state.clone());
                let work = async move {
                    let state = Watchdog(state);
                    candidate.acquire().await;
                    state.0.send_replace(State::Leads);
                    let why = candidate.hold().await;
                    state.0.send_replace(State::Lost(why));
                };
                tasks.spawn_on(work, &self.handle);
            }
        }
        // We hold a sender ourselves, so this cannot fail.
        let _ = seen.wait_for(|state| *state != State::Waits).await;
    }

    /// Waits until this replica leads no more, and says why.
    pub(crate) async fn lost(&self) -> String {
        let mut seen = self.state.subscribe();
        let found = seen.wait_for(|state| matches!(state, State::Lost(_))).await;
        match found.as_deref() {
            Ok(State::Lost(why)) => why.clone(),
            _ => "the election has ended".to_owned(),
        }
    }

    /// Gives the Lease back.
    pub(crate) async fn release(&self) {
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .abort_all();
        let candidate = Arc::clone(&self.candidate);
        let mut tasks = JoinSet::new();
        tasks.spawn_on(async move { candidate.release().await }, &self.handle);
        tasks.join_next().await;
    }
}

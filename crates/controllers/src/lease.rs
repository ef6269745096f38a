//! Leader election: one Lease, held by one replica at a time.
//!
//! The holder renews it; another takes it over once it has not changed for its whole duration, measured with the
//! watcher's own clock, so that clocks need not agree. Every write names the version of the Lease that it is about, so
//! two replicas cannot both take it. A holder that cannot renew in time gives up before anybody can take over: its [`Fence`]
//! closes by itself, also while a decision keeps the process busy.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::observe::chain;
use crate::standalone::Clock;

/// Where the Lease is, and who we are.
#[derive(Clone, Debug)]
pub struct Election {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are: different for every replica.
    pub identity: String,
    /// How long a silent holder stays holder.
    pub duration: Duration,
    /// How the Lease is reached from a thread of its own, so that nothing that keeps the process busy keeps it from being
    /// renewed. Without, the client of the controllers is used, on their thread.
    pub cluster: Option<kube::Config>,
}

/// Open as long as nobody else can hold the Lease; always, where there is no election.
#[derive(Clone, Debug, Default)]
pub struct Fence(Option<Arc<Mutex<Option<Instant>>>>);

impl Fence {
    fn closed() -> Self {
        Self(Some(Arc::default()))
    }

    fn open_until(&self, until: Instant) {
        if let Some(fence) = &self.0 {
            *fence.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        }
    }

    /// When it was last opened for so long.
    fn opened(&self, span: Duration) -> Instant {
        let until = self
            .0
            .as_ref()
            .and_then(|fence| *fence.lock().unwrap_or_else(PoisonError::into_inner));
        until
            .and_then(|until| until.checked_sub(span))
            .unwrap_or_else(Instant::now)
    }

    /// Whether this replica may act now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let Some(fence) = &self.0 else { return true };
        let until = *fence.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }
}

/// The Lease as it was last seen, and since when it is so.
struct Seen {
    version: Option<String>,
    since: Instant,
}

/// One replica's part in the election.
pub(crate) struct Candidate {
    api: Api<Lease>,
    election: Election,
    pub(crate) fence: Fence,
    pub(crate) clock: Clock,
}

impl Candidate {
    pub(crate) fn new(client: &Client, election: Election) -> Self {
        Self {
            api: Api::namespaced(client.clone(), &election.namespace),
            election,
            fence: Fence::closed(),
            clock: Clock::default(),
        }
    }

    /// After so long without a renewal the holder gives up.
    fn deadline(&self) -> Duration {
        self.election.duration * 2 / 3
    }

    fn retry(&self) -> Duration {
        self.election.duration / 8
    }

    /// Waits until we hold the Lease.
    pub(crate) async fn acquire(&self) {
        let mut seen = Seen {
            version: None,
            since: Instant::now(),
        };
        info!(
            lease = self.election.name,
            identity = self.election.identity,
            "waiting to become the leader"
        );
        let mut said = String::new();
        loop {
            let began = Instant::now();
            match self.try_acquire(&mut seen).await {
                Ok(true) => {
                    let began = if seeded!(LeaseCountsFromAnswer) {
                        Instant::now()
                    } else {
                        began
                    };
                    self.fence.open_until(began + self.deadline());
                    if self.fence.is_open() {
                        break;
                    }
                    // The answer came so late that another may lead by now.
                    debug!(
                        lease = self.election.name,
                        "the Lease was taken too late; taking it again"
                    );
                }
                Ok(false) => said.clear(),
                Err(error) => {
                    let error = chain(&error);
                    if error != said {
                        warn!(lease = self.election.name, %error, "cannot take the Lease; trying again");
                    }
                    said = error;
                }
            }
            sleep(self.retry()).await;
        }
        info!(
            lease = self.election.name,
            identity = self.election.identity,
            "this replica leads"
        );
    }

    async fn try_acquire(&self, seen: &mut Seen) -> Result<bool, kube::Error> {
        let Some(lease) = self.api.get_opt(&self.election.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.election.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.held(0)),
            };
            return won(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let duration = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        if lease.metadata.resource_version != seen.version {
            *seen = Seen {
                version: lease.metadata.resource_version.clone(),
                since: Instant::now(),
            };
        }
        let silent = seen.since.elapsed() >= Duration::from_secs(duration);
        if !holder.is_empty() && holder != self.election.identity && !silent {
            debug!(lease = self.election.name, holder, "somebody else leads");
            return Ok(false);
        }
        let transitions =
            spec.lease_transitions.unwrap_or_default() + i32::from(holder != self.election.identity);
        self.replace(lease, self.held(transitions)).await
    }

    fn held(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(self.clock.machine());
        // Whole seconds, rounded up: nobody may take over early.
        let seconds = self.election.duration.as_secs_f64().ceil();
        LeaseSpec {
            holder_identity: Some(self.election.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds as i64).unwrap_or(i32::MAX)),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    async fn replace(&self, mut lease: Lease, spec: LeaseSpec) -> Result<bool, kube::Error> {
        lease.spec = Some(spec);
        won(self
            .api
            .replace(&self.election.name, &PostParams::default(), &lease)
            .await)
    }

    /// Renews the Lease until that fails for too long, or somebody else has it; then says why.
    pub(crate) async fn hold(&self) -> String {
        let deadline = self.deadline();
        let mut renewed = self.fence.opened(deadline);
        let mut why = String::new();
        loop {
            let slept = Instant::now();
            sleep(self.retry()).await;
            let began = Instant::now();
            let overslept = began.duration_since(slept).saturating_sub(self.retry());
            let left = deadline.saturating_sub(renewed.elapsed());
            if left.is_zero() {
                // Whoever did not get to ask must not blame the one who was not asked.
                if overslept >= deadline / 2 {
                    why = format!(
                        "this process did not run for {overslept:?}: the machine is overloaded or was suspended"
                    );
                }
                return format!("the Lease could not be renewed within {deadline:?}: {why}");
            }
            why = match timeout(left, self.renew()).await {
                Ok(Ok(true)) => {
                    renewed = if seeded!(LeaseCountsFromAnswer) {
                        Instant::now()
                    } else {
                        began
                    };
                    self.fence.open_until(renewed + deadline);
                    continue;
                }
                Ok(Ok(false)) => return "another replica holds the Lease".to_owned(),
                Ok(Err(error)) => chain(&error),
                Err(_) => format!("no answer from the API server within {left:?}"),
            };
            debug!(
                lease = self.election.name,
                why, "cannot renew the Lease; trying again"
            );
        }
    }

    /// Whether the Lease is still ours, and renewed. A lost race is looked at again.
    async fn renew(&self) -> Result<bool, kube::Error> {
        loop {
            let lease = self.api.get(&self.election.name).await?;
            let mut spec = lease.spec.clone().unwrap_or_default();
            let is_ours = spec.holder_identity.as_deref() == Some(&self.election.identity);
            if !is_ours && !seeded!(StealsLease) {
                return Ok(false);
            }
            spec.renew_time = Some(MicroTime(self.clock.machine()));
            if self.replace(lease, spec).await? {
                return Ok(true);
            }
        }
    }

    /// Gives the Lease back, so that the next replica need not wait.
    pub(crate) async fn release(&self) {
        let released = async {
            let Some(lease) = self.api.get_opt(&self.election.name).await? else {
                return Ok(true);
            };
            let mut spec = lease.spec.clone().unwrap_or_default();
            if spec.holder_identity.as_deref() != Some(&self.election.identity) {
                return Ok(true);
            }
            spec.holder_identity = None;
            self.replace(lease, spec).await
        };
        let released: Result<bool, kube::Error> = released.await;
        if let Err(error) = released {
            warn!(lease = self.election.name, error = %chain(&error), "cannot release the Lease");
        }
    }
}

/// Whether a write succeeded; one that another replica was faster with did not.
fn won<T>(written: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_closed_until_the_lease_is_held_and_when_it_was_not_renewed() {
        assert!(Fence::default().is_open());
        let fence = Fence::closed();
        assert!(!fence.is_open());
        let now = Instant::now();
        fence.clone().open_until(now + Duration::from_secs(3600));
        assert!(fence.is_open());
        fence.open_until(now);
        assert!(!fence.is_open());
    }
}

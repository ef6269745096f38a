//! Leader election: one Lease, held by one replica at a time.
//!
//! The holder renews it; another takes it over once it has not changed for its whole duration, measured with the
//! watcher's own clock, so that clocks need not agree. Every write names the version of the Lease that it is about, so
//! two replicas cannot both take it. A holder that cannot renew in time gives up before anybody can take over.

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
    pub(crate) clock: Clock,
}

impl Candidate {
    pub(crate) fn new(client: &Client, election: Election) -> Self {
        Self {
            api: Api::namespaced(client.clone(), &election.namespace),
            election,
            clock: Clock::default(),
        }
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
            match self.try_acquire(&mut seen).await {
                Ok(true) => break,
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
        let deadline = self.election.duration * 2 / 3;
        let mut renewed = Instant::now();
        loop {
            sleep(self.retry()).await;
            let left = deadline.saturating_sub(renewed.elapsed());
            let why = match timeout(left, self.renew()).await {
                Ok(Ok(true)) => {
                    renewed = Instant::now();
                    continue;
                }
                Ok(Ok(false)) => return "another replica holds the Lease".to_owned(),
                Ok(Err(error)) => chain(&error),
                Err(_) => "no answer from the API server".to_owned(),
            };
            if renewed.elapsed() >= deadline {
                return format!("the Lease could not be renewed within {deadline:?}: {why}");
            }
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

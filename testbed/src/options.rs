//! What a cluster is made of, and how its parts are set up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;

use crate::Part;

/// Which parts a cluster has, how they are set up, and how long each may take to become ready.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) parts: BTreeSet<Part>,
    pub(crate) ready_within: Duration,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) audited: bool,
    pub(crate) default_rates: bool,
    pub(crate) added_affinity: Option<Value>,
    pub(crate) scraped_twice: bool,
}

impl Options {
    /// etcd and the API server alone: enough for anything that only stores and watches objects.
    pub fn api_server() -> Self {
        Options {
            parts: BTreeSet::from([Part::Etcd, Part::ApiServer]),
            ready_within: Duration::from_secs(120),
            stop: Arc::default(),
            audited: false,
            default_rates: false,
            added_affinity: None,
            scraped_twice: false,
        }
    }

    /// Adds the scheduler, the controller manager and kwok: Nodes turn Ready, Pods get bound and run.
    pub fn nodes() -> Self {
        Self::api_server()
            .with(Part::Scheduler)
            .with(Part::ControllerManager)
            .with(Part::Kwok)
    }

    /// Adds Karpenter with its KWOK provider: pending Pods get NodeClaims and Nodes.
    pub fn karpenter() -> Self {
        Self::nodes().with(Part::Karpenter)
    }

    /// AWS alone, as moto plays it.
    pub fn aws() -> Self {
        Options {
            parts: BTreeSet::from([Part::Moto]),
            ..Self::api_server()
        }
    }

    /// Adds one part.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.insert(part);
        self
    }

    /// Has the API server write down what service accounts and the provisioner ask for, and what moves pods; see
    /// [`crate::Cluster::requests`], [`crate::Cluster::provisioner_requests`] and [`crate::Cluster::pod_movements`].
    #[must_use]
    pub fn audited(mut self) -> Self {
        self.audited = true;
        self
    }

    /// Runs kube-scheduler and kube-controller-manager at the request rates that they have in a real cluster (50 and 20
    /// requests a second). Otherwise the rates are raised, so that a test with thousands of pods takes seconds.
    #[must_use]
    pub fn default_rates(mut self) -> Self {
        self.default_rates = true;
        self
    }

    /// Has Prometheus scrape [`crate::Cluster::exporter_port`] under two jobs, as if two exporters told the same.
    #[must_use]
    pub fn scraped_twice(mut self) -> Self {
        self.scraped_twice = true;
        self
    }

    /// Gives kube-scheduler a configuration file whose plugin NodeAffinity has this as its `addedAffinity`: a `NodeAffinity`
    /// that every pod has beside its own.
    #[must_use]
    pub fn added_affinity(mut self, affinity: Value) -> Self {
        self.added_affinity = Some(affinity);
        self
    }

    /// How long each part may take to become ready; two minutes unless said otherwise.
    #[must_use]
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.ready_within = limit;
        self
    }

    /// Calls the start off, with [`crate::Error::Stopped`], as soon as the flag is true.
    #[must_use]
    pub fn stop_on(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stop = flag;
        self
    }
}

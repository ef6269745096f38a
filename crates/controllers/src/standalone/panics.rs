//! What a panic in the middle of a launch leads to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use serde_json::json;
use tokio::time::{sleep, timeout};
use veneer_api::NodeClaim;
use veneer_engine::lifecycle::Launched;
use veneer_engine::plan::{Action, Instance};
use veneer_engine::provision::LaunchOption;

use super::execute::Executor;
use super::metrics::Meters;
use super::watch::{Kinds, NodeClasses, Tools, Watches};
use crate::provider::{LaunchError, Provider};

/// A provider with a bug.
#[derive(Default)]
struct Panics(AtomicUsize);

impl Provider for Panics {
    async fn launch(&self, _: &NodeClaim, _: &[LaunchOption]) -> Result<Launched, LaunchError> {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a bug, for the {before}th time")
    }

    async fn terminate(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn stop(&self, _: &str, _: bool) -> Result<(), String> {
        Ok(())
    }

    async fn start(&self, _: &str) -> Result<(), LaunchError> {
        Ok(())
    }

    async fn change_type(&self, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn instances(&self) -> Vec<Instance> {
        Vec::new()
    }

    fn resume(&self, _: &[Arc<NodeClaim>]) {}
}

#[tokio::test]
async fn a_launch_that_panics_is_tried_again() {
    // Nobody listens there.
    let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let kinds = Kinds {
        overlays: false,
        overprovisioners: false,
        node_classes: NodeClasses::None,
    };
    let watches = Watches::start(&client, kinds, Tools::default());
    let stores = Arc::clone(&watches.stores);
    let executor = Executor::new(&client, stores, Panics::default(), Meters::default());
    let executor = Arc::new(executor);
    let claim: Arc<NodeClaim> = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a", "uid": "1"},
        "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}))
    .map(Arc::new)
    .unwrap();
    let twice = async {
        while executor.provider.0.load(Ordering::SeqCst) < 2 {
            let options = Vec::new();
            let claim = Arc::clone(&claim);
            executor.run(vec![Action::Launch { claim, options }]).await;
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), twice).await.unwrap();
}

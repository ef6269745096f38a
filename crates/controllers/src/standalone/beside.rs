//! Spares of Overprovisioners beside a Karpenter, which launches the NodeClaims that we make.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::sleep;
use tracing::info;
use veneer_api::NodeClaim;
use veneer_engine::lifecycle::Launched;
use veneer_engine::plan::Instance;
use veneer_engine::provision::LaunchOption;
use veneer_steering::warm::Beside;

use super::execute::Executor;
use super::watch::{Kinds, NodeClasses, Tools, Watches};
use super::{Clock, IDLE, Meters, Shown, has_overprovisioners};
use crate::prices::LiveCatalog;
use crate::provider::{LaunchError, Provider, TerminateError};

/// Changes that arrive within this time of each other are one pass; Karpenter is given as little of a start as can be.
const COALESCE: Duration = Duration::from_millis(5);

/// Keeps spares until the process ends; waits for nothing more if the cluster does not know Overprovisioners.
pub(crate) async fn run_beside(
    client: Client,
    catalogue: LiveCatalog,
    node_overlay_gate: bool,
    clock: Clock,
    meters: Meters,
    shown: Shown,
) {
    if !has_overprovisioners(&client).await {
        info!("there are no Overprovisioners here: their CRD is not installed");
        return std::future::pending().await;
    }
    let kinds = Kinds {
        overlays: node_overlay_gate,
        overprovisioners: true,
        node_classes: NodeClasses::None,
    };
    let watches = Watches::start(
        &client,
        kinds,
        Tools {
            ages: shown.health.watches().clone(),
            clock: clock.clone(),
            ..Tools::default()
        },
    );
    let stores = Arc::clone(&watches.stores);
    stores.listed().await;
    let executor = Executor::new(&client, Arc::clone(&stores), Nobody, meters.clone());
    let executor = Arc::new(executor.behind(shown.fence));
    let mut beside = Beside::new(catalogue.base());
    loop {
        stores.listed().await;
        let now = clock.now();
        if let Some(catalogue) = catalogue.take() {
            beside.trade(catalogue);
        }
        let mut snapshot = stores.snapshot();
        let plan = beside.pass(&mut snapshot, now);
        meters.spares(&snapshot, &plan, beside.market(), now);
        executor.run(plan.actions).await;
        let wait = plan
            .look_again
            .map(|at| Duration::try_from(at.duration_since(clock.now())).unwrap_or_default());
        tokio::select! {
            () = stores.changed() => sleep(COALESCE).await,
            () = sleep(wait.unwrap_or(IDLE).min(IDLE)) => {}
        }
    }
}

/// No source of instances: Karpenter has its own.
struct Nobody;

fn refused() -> String {
    "instances are Karpenter's here".to_owned()
}

impl Provider for Nobody {
    async fn launch(&self, _: &NodeClaim, _: &[LaunchOption]) -> Result<Launched, LaunchError> {
        Err(LaunchError::Other(refused()))
    }

    async fn terminate(&self, _: &str) -> Result<(), TerminateError> {
        Err(TerminateError::Other(refused()))
    }

    async fn stop(&self, _: &str, _: bool) -> Result<(), String> {
        Err(refused())
    }

    async fn start(&self, _: &str) -> Result<(), LaunchError> {
        Err(LaunchError::Other(refused()))
    }

    async fn change_type(&self, _: &str, _: &str) -> Result<(), String> {
        Err(refused())
    }

    fn instances(&self) -> Vec<Instance> {
        Vec::new()
    }

    fn resume(&self, _: &[Arc<NodeClaim>]) {}
}

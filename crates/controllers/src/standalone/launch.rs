//! What the provider does for claims: launches, starts and other types of stopped instances.

use tokio::time::Instant;
use tracing::info;
use veneer_api::NodeClaim;
use veneer_engine::lifecycle::{after_change_type, after_launch, launch_failed};
use veneer_engine::plan::{Action, Announcement, Subject, Target, provider_id as provider_id_of};
use veneer_engine::provision::LaunchOption;

use super::execute::{Executor, Failure, SHORTAGE};
use super::store::lock;
use crate::provider::{LaunchError, Provider};

impl<P: Provider> Executor<P> {
    pub(super) async fn launch(&self, claim: &NodeClaim, options: &[LaunchOption]) -> Result<(), Failure> {
        let target = Target::from(&claim.metadata);
        let subject = Subject {
            api_version: "karpenter.sh/v1",
            kind: "NodeClaim",
            target: target.clone(),
        };
        let warn_of = |reason, error: &LaunchError| Announcement {
            subject: subject.clone(),
            is_warning: true,
            reason,
            message: format!("NodeClaim {} event: {error}", target.name),
        };
        match self.provider.launch(claim, options).await {
            Ok(launched) => {
                let label = |key: &str| launched.labels.get(key).cloned().unwrap_or_default();
                info!(
                    node_claim = target.name,
                    provider_id = launched.provider_id,
                    instance_type = label("node.kubernetes.io/instance-type"),
                    capacity_type = label("karpenter.sh/capacity-type"),
                    zone = label("topology.kubernetes.io/zone"),
                    "launched"
                );
                for action in after_launch(claim, &launched, self.stores.clock().machine()) {
                    Box::pin(self.act(action)).await?;
                }
                Ok(())
            }
            Err(error @ LaunchError::InsufficientCapacity(_)) => {
                self.events
                    .write(&warn_of("InsufficientCapacityError", &error))
                    .await;
                self.remember_shortages(error);
                let reason = "insufficient_capacity";
                Box::pin(self.act(Action::DeleteClaim { target, reason })).await
            }
            Err(error @ LaunchError::NodeClassNotReady(_)) => {
                self.events.write(&warn_of("NodeClassNotReady", &error)).await;
                let reason = "nodeclass_not_ready";
                Box::pin(self.act(Action::DeleteClaim { target, reason })).await
            }
            Err(LaunchError::Other(error)) => {
                let failed = launch_failed(claim, "LaunchFailed", &error, self.stores.clock().machine());
                Box::pin(self.act(failed)).await?;
                Err(Failure::Refused(error))
            }
        }
    }

    fn remember_shortages(&self, error: LaunchError) {
        if let LaunchError::InsufficientCapacity(shortages) = error {
            let until = Instant::now() + SHORTAGE;
            let shortages = shortages.into_iter().map(|one| (one, until));
            self.memory().shortages.extend(shortages);
        }
    }

    /// What is short is remembered, so that the next decision takes another type.
    pub(super) async fn start(&self, provider_id: &str) -> Result<(), Failure> {
        let started = self.provider.start(provider_id).await;
        started.map_err(|error| {
            let message = error.to_string();
            self.remember_shortages(error);
            Failure::Refused(message)
        })
    }

    pub(super) async fn change_type(&self, provider_id: &str, instance_type: &str) -> Result<(), Failure> {
        let changed = self.provider.change_type(provider_id, instance_type).await;
        changed.map_err(Failure::Refused)?;
        let claim = lock(&self.stores.node_claims)
            .objects()
            .find(|claim| provider_id_of(claim) == Some(provider_id))
            .cloned();
        match claim {
            Some(claim) => Box::pin(self.act(after_change_type(&claim, instance_type))).await,
            None => Ok(()),
        }
    }
}

//! Drains nodes ahead of what EC2 announces.
//!
//! A message is deleted once its claims are; so a crash in between repeats it, and a claim that is being deleted is left
//! alone.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};
use veneer_api::NodeClaim;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_aws::interruption::{Event, Kind, read};
use veneer_engine::plan::{
    Action, Announcement, Shortage, Subject, Target, is_deleting, is_to_be_stopped, label, name, provider_id,
};

use super::Ec2;
use crate::standalone::{Executor, locked};

/// How long one look at the queue waits for a message.
const WAIT_SECONDS: u32 = 20;
/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(5);

/// Reads the queue for as long as the process leads. Never ends.
pub(crate) async fn follow(executor: Arc<Executor<Ec2>>) {
    let Some(queue) = executor.provider.queue.clone() else {
        info!("aws.interruptionQueue is not set: nodes are not drained ahead of interruptions");
        return std::future::pending().await;
    };
    let aws = Arc::clone(&executor.provider.aws);
    let url = loop {
        match aws.client.queue_url(&queue).await {
            Ok(url) => break url,
            Err(error) => warn!(queue, %error, "cannot find the interruption queue; trying again"),
        }
        tokio::time::sleep(AGAIN).await;
    };
    info!(queue, "reading interruptions");
    loop {
        let messages = match aws.client.receive(&url, WAIT_SECONDS).await {
            Ok(messages) if messages.is_empty() => continue,
            Ok(messages) => messages,
            Err(error) => {
                warn!(queue, %error, "cannot read the interruption queue; trying again");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let mut done = Vec::with_capacity(messages.len());
        for message in messages {
            match read(&message.body) {
                None => {
                    debug!(
                        body = message.body,
                        "a message that is not about the end of instances"
                    );
                    done.push(message);
                }
                Some(event) => {
                    if handle(&executor, &event).await {
                        done.push(message);
                    }
                }
            }
        }
        if done.is_empty() {
            tokio::time::sleep(AGAIN).await;
        } else if let Err(error) = aws.client.delete_messages(&url, &done).await {
            warn!(queue, %error, "cannot delete messages; they will come again");
        }
    }
}

/// Acts on an event; says whether that is done.
async fn handle(executor: &Executor<Ec2>, event: &Event) -> bool {
    let claims: Vec<Arc<NodeClaim>> = {
        let claims = locked(&executor.stores.node_claims);
        let named = claims.objects().filter(|claim| {
            provider_id(claim).is_some_and(|id| {
                event
                    .instances
                    .iter()
                    .any(|one| one == veneer_aws::instance_id(id))
            })
        });
        named.cloned().collect()
    };
    let mut done = true;
    for claim in claims.iter().filter(|claim| !is_deleting(&claim.metadata)) {
        // We stop spares ourselves.
        if event.kind == Kind::Stopping && is_to_be_stopped(claim) {
            continue;
        }
        if event.kind == Kind::SpotInterruption {
            executor
                .provider
                .aws
                .note_shortages(shortage(claim).into_iter().collect());
        }
        info!(
            node_claim = name(&claim.metadata),
            kind = event.kind.label(),
            "interruption"
        );
        let target = Target::from(&claim.metadata);
        let announcement = Action::Announce(Announcement {
            subject: Subject {
                api_version: "karpenter.sh/v1",
                kind: "NodeClaim",
                target: target.clone(),
            },
            is_warning: event.kind.drains(),
            reason: event.kind.reason(),
            message: format!("NodeClaim {} event: {}", target.name, event.kind.describe()),
        });
        drop(executor.act(announcement).await);
        if event.kind.drains() {
            let reason = event.kind.label();
            if let Err(error) = executor.act(Action::DeleteClaim { target, reason }).await {
                warn!(node_claim = name(&claim.metadata), %error, "cannot delete the claim yet; the message will come again");
                done = false;
            }
        }
    }
    done
}

/// What EC2 takes back is not to be had for a while.
fn shortage(claim: &NodeClaim) -> Option<Shortage> {
    let of = |key: &str| label(&claim.metadata, key).map(str::to_owned);
    Some(Shortage {
        instance_type: of(kubernetes::INSTANCE_TYPE)?,
        capacity_type: karpenter::CAPACITY_TYPE_SPOT.to_owned(),
        zone: of(kubernetes::ZONE)?,
    })
}

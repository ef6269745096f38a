//! The end of an instance, and what is told when it is refused.

use veneer_engine::plan::{Announcement, Subject, Target, provider_id as provider_id_of};

use super::execute::{Executor, Failure};
use super::store::lock;
use crate::provider::{Provider, TerminateError};

impl<P: Provider> Executor<P> {
    /// Ends an instance. Whoever looks at its claim learns why it stays.
    pub(super) async fn terminate(&self, provider_id: &str) -> Result<(), Failure> {
        self.check_watches()?;
        self.check_end(provider_id).await?;
        self.check_pods(provider_id).await?;
        match self.provider.terminate(provider_id).await {
            // Only the provider's next list shows what came of it.
            Ok(()) => Err(Failure::UnderWay),
            Err(TerminateError::Other(why)) => Err(Failure::Refused(why)),
            Err(TerminateError::NeedsAction(why)) => {
                let claim = lock(&self.stores.node_claims)
                    .objects()
                    .find(|claim| provider_id_of(claim) == Some(provider_id))
                    .cloned();
                if let Some(claim) = claim {
                    let announcement = Announcement {
                        subject: Subject {
                            api_version: "karpenter.sh/v1",
                            kind: "NodeClaim",
                            target: Target::from(&claim.metadata),
                        },
                        is_warning: true,
                        reason: "TerminationRefused",
                        message: why.clone(),
                    };
                    self.events.write(&announcement).await;
                }
                Err(Failure::NeedsAction(why))
            }
        }
    }
}

//! The proof that is needed before an instance without a claim ends: its own tag, its age (both seen by the decision), and
//! the word of the API server that there is no claim of that name.

use super::execute::{Executor, Failure};
use super::store::lock;
use crate::observe::chain;
use crate::provider::Provider;

impl<P: Provider> Executor<P> {
    /// Asks the API server itself before an instance ends that has no claim here: our list may be old.
    pub(super) async fn check_end(&self, id: &str) -> Result<(), Failure> {
        let instances = self.provider.instances();
        let Some(instance) = instances.into_iter().find(|one| one.provider_id == id) else {
            return Ok(());
        };
        if instance.claim.is_empty() || lock(&self.stores.node_claims).get("", &instance.claim).is_some() {
            return Ok(());
        }
        let claim = self.claims.get_opt(&instance.claim).await;
        match claim.map_err(|error| Failure::Refused(chain(&error)))? {
            None => Ok(()),
            Some(claim) => {
                lock(&self.stores.node_claims).written(claim);
                Err(Failure::Outrun)
            }
        }
    }
}

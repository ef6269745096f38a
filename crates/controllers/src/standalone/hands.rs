//! What carries plans out, without what decides: for the suite that every executor passes.

use std::sync::Arc;

use kube::Client;
use veneer_engine::plan::{Action, Snapshot};

use super::execute::Executor;
use super::watch::{Kinds, NodeClasses, Watches};
use super::{Settings, kwok_provider};
use crate::Health;
use crate::provider::Provider;
use crate::provider::kwok::Kwok;

/// The executor of standalone mode with KWOK's instances, and the watches that it reads from.
pub struct Hands {
    executor: Arc<Executor<Kwok>>,
    _watches: Watches,
}

impl Hands {
    /// Waits until everything is listed.
    pub async fn start(client: &Client, settings: &Settings) -> Self {
        let kinds = Kinds {
            overlays: false,
            overprovisioners: false,
            node_classes: NodeClasses::Kwok,
        };
        let watches = Watches::start(client, kinds, settings.tools(&Health::default()));
        let stores = Arc::clone(&watches.stores);
        stores.listed().await;
        let provider = kwok_provider(client, &stores, settings);
        Self {
            executor: Arc::new(Executor::new(client, stores, provider, settings.meters.clone())),
            _watches: watches,
        }
    }

    /// Everything as it is seen now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.executor.stores.snapshot();
        snapshot.instances = self.executor.provider.instances();
        snapshot
    }

    /// Carries out what can be done now.
    pub async fn run(&self, actions: Vec<Action>) {
        self.executor.run(actions).await;
    }
}

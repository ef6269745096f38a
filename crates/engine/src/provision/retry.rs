//! When pods that nothing could be done for are worth another try.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::plan::{Snapshot, is_deleting, name};

/// A number that changes when something does, beside the pods, that may let refused pods in.
#[must_use]
pub fn retry_epoch(snapshot: &Snapshot) -> u64 {
    let mut digest = DefaultHasher::new();
    for pool in &snapshot.node_pools {
        (name(&pool.metadata), pool.metadata.generation).hash(&mut digest);
    }
    // A claim that goes gives its room away, and one that comes takes some.
    for claim in &snapshot.node_claims {
        (&claim.metadata.uid, is_deleting(&claim.metadata)).hash(&mut digest);
    }
    for overlay in &snapshot.overlays {
        (name(&overlay.metadata), overlay.metadata.generation).hash(&mut digest);
    }
    // A class that becomes usable lets pods in, too.
    for class in &snapshot.node_classes {
        (&class.kind, &class.name, class.not_ready.is_none()).hash(&mut digest);
    }
    digest.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::plan::world::{World, read};

    fn with_claims(uids: &[&str]) -> Snapshot {
        let claims = uids.iter().map(|uid| {
            read(json!({"metadata": {"name": format!("claim-{uid}"), "uid": uid},
                "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": []}}))
        });
        let mut world = World::new();
        world.pool("default", |_| {});
        world.snapshot.node_claims = claims.collect();
        world.snapshot
    }

    #[test]
    fn pods_are_tried_again_when_one_claim_goes_and_another_comes() {
        let before = with_claims(&["a", "b"]);
        assert_eq!(retry_epoch(&before), retry_epoch(&before.clone()));
        assert_ne!(retry_epoch(&before), retry_epoch(&with_claims(&["a", "c"])));
        assert_ne!(retry_epoch(&before), retry_epoch(&with_claims(&["a"])));
    }

    #[test]
    fn pods_are_tried_again_when_pools_or_classes_change() {
        let before = with_claims(&["a"]);
        let mut raised = before.clone();
        Arc::make_mut(&mut raised.node_pools[0]).metadata.generation = Some(2);
        assert_ne!(retry_epoch(&before), retry_epoch(&raised));
        let mut unready = before.clone();
        unready.node_classes[0].not_ready = Some("no subnets".to_owned());
        assert_ne!(retry_epoch(&before), retry_epoch(&unready));
        let mut ends = before.clone();
        Arc::make_mut(&mut ends.node_claims[0])
            .metadata
            .deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            "2026-01-01T00:00:00Z".parse().unwrap(),
        ));
        assert_ne!(retry_epoch(&before), retry_epoch(&ends));
    }
}

//! Manifests that are applied to the world, as `kubectl apply` and `kubectl delete` would.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use veneer_api::labels::karpenter;
use veneer_engine::plan::name;

use crate::objects::{Objects, whole};
use crate::scenario::ScenarioError;

/// What became of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// `kind/name`.
    pub object: String,
    /// `created`, `configured`, `unchanged` or `deleted`.
    pub outcome: &'static str,
}

fn read<T: DeserializeOwned>(kind: &str, manifest: &Value) -> Result<T, ScenarioError> {
    serde_path_to_error::deserialize(manifest.clone()).map_err(|error| {
        let name = manifest
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or("without a name");
        ScenarioError(format!("{kind} {name}: {}: {}", error.path(), error.inner()))
    })
}

/// Takes a manifest over. `kinds` that only a real cloud needs (node classes) are accepted and change nothing.
pub fn apply(objects: &mut Objects, manifest: &Value, now: Timestamp) -> Result<Applied, ScenarioError> {
    let kind = manifest.get("kind").and_then(Value::as_str).unwrap_or_default();
    let named = manifest
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if named.is_empty() && !kind.ends_with("List") {
        return Err(ScenarioError(format!(
            "a manifest of kind {kind:?} has no metadata.name; name it"
        )));
    }
    let outcome = match kind {
        "NodePool" => {
            let mut pool: veneer_api::NodePool = read(kind, manifest)?;
            let known = objects.pools.get(named).cloned();
            let metadata = known.as_ref().map(|known| &known.metadata);
            let same = known
                .as_ref()
                .is_some_and(|known| known.spec == pool.spec && covers(&known.metadata, &pool.metadata));
            pool.status = known.as_ref().and_then(|known| known.status.clone());
            let changed_spec = known.as_ref().is_some_and(|known| known.spec != pool.spec);
            let outcome = take_over(objects, &mut pool.metadata, metadata, same, changed_spec, now);
            if outcome != "unchanged" {
                objects.pools.insert(named.to_owned(), Arc::new(pool));
                objects.generation += 1;
            }
            outcome
        }
        "NodeOverlay" => {
            let mut overlay: veneer_api::NodeOverlay = read(kind, manifest)?;
            let known = objects.overlays.get(named).cloned();
            let metadata = known.as_ref().map(|known| &known.metadata);
            let same = known.as_ref().is_some_and(|known| {
                known.spec == overlay.spec && covers(&known.metadata, &overlay.metadata)
            });
            let outcome = take_over(objects, &mut overlay.metadata, metadata, same, !same, now);
            if outcome != "unchanged" {
                objects.overlays.insert(named.to_owned(), Arc::new(overlay));
                objects.generation += 1;
            }
            outcome
        }
        "Overprovisioner" => {
            let mut one: veneer_api::Overprovisioner = read(kind, manifest)?;
            let known = objects.overprovisioners.get(named).cloned();
            let same = known.as_ref().is_some_and(|known| known.spec == one.spec);
            let metadata = known.as_ref().map(|known| &known.metadata);
            one.status = known.as_ref().and_then(|known| known.status.clone());
            let outcome = take_over(objects, &mut one.metadata, metadata, same, !same, now);
            if outcome != "unchanged" {
                objects.overprovisioners.insert(named.to_owned(), Arc::new(one));
            }
            outcome
        }
        "DaemonSet" => {
            let mut set: k8s_openapi::api::apps::v1::DaemonSet = read(kind, manifest)?;
            let key = namespaced(&set.metadata);
            let known = objects.daemon_sets.get(&key).cloned();
            let same = known.as_ref().is_some_and(|known| known.spec == set.spec);
            let metadata = known.as_ref().map(|known| &known.metadata);
            let outcome = take_over(objects, &mut set.metadata, metadata, same, !same, now);
            objects.daemon_sets.insert(key, Arc::new(set));
            outcome
        }
        "PodDisruptionBudget" => {
            let mut budget: k8s_openapi::api::policy::v1::PodDisruptionBudget = read(kind, manifest)?;
            let key = namespaced(&budget.metadata);
            let known = objects.budgets.get(&key).cloned();
            let same = known.as_ref().is_some_and(|known| known.spec == budget.spec);
            let metadata = known.as_ref().map(|known| &known.metadata);
            let outcome = take_over(objects, &mut budget.metadata, metadata, same, !same, now);
            objects.budgets.insert(key, Arc::new(budget));
            outcome
        }
        "EC2NodeClass" | "KWOKNodeClass" | "Namespace" => "unchanged",
        _ => {
            return Err(ScenarioError(format!(
                "kind {kind:?} ({named}) is not known to the embedded world; it has NodePool, NodeOverlay, \
                 Overprovisioner, DaemonSet and PodDisruptionBudget, and pods come from the scenario's workloads"
            )));
        }
    };
    Ok(Applied {
        object: format!("{}/{named}", kind.to_lowercase()),
        outcome,
    })
}

/// Deletes `kind/name`. Owned objects go too.
pub fn delete(objects: &mut Objects, object: &str, now: Timestamp) -> Result<Applied, ScenarioError> {
    let (kind, named) = object
        .split_once('/')
        .ok_or_else(|| ScenarioError(format!("{object:?} is no object; expected kind/name")))?;
    let gone = match kind.to_lowercase().as_str() {
        "nodepool" => match objects.pools.remove(named) {
            Some(pool) => {
                let uid = pool.metadata.uid.clone().unwrap_or_default();
                let owned = |metadata: &ObjectMeta| {
                    let owners = metadata.owner_references.iter().flatten();
                    owners.into_iter().any(|owner| owner.uid == uid)
                };
                objects.overlays.retain(|_, one| !owned(&one.metadata));
                for claim in objects.claims.values_mut().filter(|one| owned(&one.metadata)) {
                    let claim = Arc::make_mut(claim);
                    claim.metadata.deletion_timestamp.get_or_insert(Time(whole(now)));
                }
                true
            }
            None => false,
        },
        "nodeoverlay" => objects.overlays.remove(named).is_some(),
        "overprovisioner" => objects.overprovisioners.remove(named).is_some(),
        "daemonset" => objects.daemon_sets.remove(named).is_some(),
        "poddisruptionbudget" => objects.budgets.remove(named).is_some(),
        "nodeclaim" => match objects.claims.get_mut(named) {
            Some(claim) => {
                let claim = Arc::make_mut(claim);
                claim.metadata.deletion_timestamp.get_or_insert(Time(whole(now)));
                true
            }
            None => false,
        },
        _ => {
            return Err(ScenarioError(format!(
                "kind {kind:?} cannot be deleted in the embedded world"
            )));
        }
    };
    objects.generation += 1;
    if !gone {
        return Err(ScenarioError(format!("there is no {object}")));
    }
    Ok(Applied {
        object: object.to_lowercase(),
        outcome: "deleted",
    })
}

fn namespaced(metadata: &ObjectMeta) -> String {
    format!(
        "{}/{}",
        metadata.namespace.as_deref().unwrap_or("default"),
        name(metadata)
    )
}

/// Whether labels and annotations are as a manifest has them, apart from what the controllers add.
fn covers(known: &ObjectMeta, wanted: &ObjectMeta) -> bool {
    let own = |key: &String| !key.starts_with(karpenter::NODEPOOL_HASH);
    let known_annotations = known.annotations.iter().flatten().filter(|(key, _)| own(key));
    let known_labels = known.labels.iter().flatten();
    known_annotations.eq(wanted.annotations.iter().flatten().filter(|(key, _)| own(key)))
        && known_labels.eq(wanted.labels.iter().flatten())
}

fn take_over(
    objects: &mut Objects,
    metadata: &mut ObjectMeta,
    known: Option<&ObjectMeta>,
    same: bool,
    changed_spec: bool,
    now: Timestamp,
) -> &'static str {
    let Some(known) = known else {
        objects.stamp(metadata, now);
        return "created";
    };
    if same {
        return "unchanged";
    }
    metadata.uid.clone_from(&known.uid);
    metadata.creation_timestamp.clone_from(&known.creation_timestamp);
    metadata.generation = known
        .generation
        .map(|generation| generation + i64::from(changed_spec));
    objects.stamp(metadata, now);
    "configured"
}

//! How changes look on the wire.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, Preconditions};
use serde_json::{Value, json};
use veneer_engine::plan::Target;

pub(super) fn uid_only(target: &Target) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(target.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

/// The object and the version of it that a write is meant for.
pub(super) fn version(target: &Target) -> Value {
    let mut metadata = json!({"uid": target.uid});
    if !target.resource_version.is_empty() {
        merge(
            &mut metadata,
            &json!({"resourceVersion": target.resource_version}),
        );
    }
    metadata
}

pub(super) fn metadata_patch(
    target: &Target,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    finalizers: Option<&Vec<String>>,
    mut rest: Value,
) -> Value {
    let mut metadata = version(target);
    if !labels.is_empty() {
        merge(&mut metadata, &json!({"labels": labels}));
    }
    if !annotations.is_empty() {
        merge(&mut metadata, &json!({"annotations": annotations}));
    }
    if let Some(finalizers) = finalizers {
        merge(&mut metadata, &json!({"finalizers": finalizers}));
    }
    merge(&mut rest, &json!({"metadata": metadata}));
    rest
}

pub(super) fn merge(into: &mut Value, more: &Value) {
    if let (Some(into), Some(more)) = (into.as_object_mut(), more.as_object()) {
        into.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}

//! Objects as they come from the API server: slim at once, and known by their metadata also where the rest cannot be read.

use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::any::Any;
use veneer_api::Pod;
use veneer_api::labels::karpenter;

use super::store::Stored;
use crate::feed::OnTheWire;

/// An object that was read, or what is known of one that does not fit its type.
#[derive(Clone, Debug)]
pub(crate) enum Watched<T> {
    Readable(Box<T>),
    Unreadable(Box<Unreadable>),
}

/// What is known of an object that does not fit its type.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) metadata: ObjectMeta,
    /// The field and what is wrong with it.
    pub(crate) error: String,
    node: Option<String>,
    phase: Option<String>,
}

impl<T: Stored> Watched<T> {
    pub(crate) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Readable(object) => object.metadata(),
            Self::Unreadable(object) => &object.metadata,
        }
    }
}

impl<T: Stored + Clone + DeserializeOwned> OnTheWire for Watched<T> {
    fn metadata(&self) -> &ObjectMeta {
        Self::metadata(self)
    }
}

impl<'de, T: Stored + DeserializeOwned> Deserialize<'de> for Watched<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        if let Ok(mut object) = T::deserialize(&value) {
            object.trim();
            return Ok(Self::Readable(Box::new(object)));
        }
        let read: Result<T, _> = serde_path_to_error::deserialize(&value);
        let error = match read {
            Ok(_) => String::new(),
            Err(error) => format!("{}: {}", error.path(), error.inner()),
        };
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let metadata = value
            .get("metadata")
            .and_then(|it| ObjectMeta::deserialize(it).ok());
        let mut metadata = metadata.unwrap_or_else(|| ObjectMeta {
            name: text("/metadata/name"),
            namespace: text("/metadata/namespace"),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            ..ObjectMeta::default()
        });
        metadata.managed_fields = None;
        metadata.annotations = None;
        Ok(Self::Unreadable(Box::new(Unreadable {
            metadata,
            error,
            node: text("/spec/nodeName").filter(|node| !node.is_empty()),
            phase: text("/status/phase"),
        })))
    }
}

impl Unreadable {
    /// What stands for it in decisions: a pod on a node is one that must not be disrupted; nothing else counts.
    pub(super) fn stand_in<T: Stored + Clone>(&self) -> Option<T> {
        let node = self.node.clone()?;
        let mut metadata = self.metadata.clone();
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(karpenter::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        let spec = PodSpec {
            node_name: Some(node),
            ..PodSpec::default()
        };
        let status = PodStatus {
            phase: self.phase.clone(),
            ..PodStatus::default()
        };
        let pod = Pod {
            metadata,
            spec: Some(spec.into()),
            status: Some(status.into()),
        };
        (&pod as &dyn Any).downcast_ref::<T>().cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use veneer_api::NodePool;

    use super::*;

    fn read<T: Stored + DeserializeOwned>(value: &Value) -> Watched<T> {
        Watched::deserialize(value).unwrap()
    }

    #[test]
    fn what_does_not_fit_its_type_is_known_by_its_metadata() {
        let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "a", "uid": "1", "resourceVersion": "7"}, "spec": {"template": 3}});
        let Watched::Unreadable(pool) = read::<NodePool>(&pool) else {
            panic!("a number is no template")
        };
        assert_eq!(pool.metadata.name.as_deref(), Some("a"));
        assert_eq!(pool.metadata.resource_version.as_deref(), Some("7"));
        assert!(pool.error.starts_with("spec.template: "), "{}", pool.error);
        assert!(pool.stand_in::<NodePool>().is_none());
    }

    #[test]
    fn a_pod_that_cannot_be_read_keeps_its_node() {
        let pod = json!({"metadata": {"name": "a", "namespace": "b", "uid": "1"},
            "spec": {"nodeName": "node", "containers": "none"}, "status": {"phase": "Running"}});
        let Watched::Unreadable(pod) = read::<Pod>(&pod) else {
            panic!("a text is no list of containers")
        };
        let stand_in: Pod = pod.stand_in().unwrap();
        assert_eq!(stand_in.spec.unwrap().node_name.as_deref(), Some("node"));
        let annotations = stand_in.metadata.annotations.unwrap();
        assert_eq!(annotations[karpenter::DO_NOT_DISRUPT], "true");
    }
}

//! A pod that shares with others what it has in common with them.
//!
//! A parsed pod of one container takes five kilobytes before anything is in it, and a Deployment's thousand pods ask for the
//! same. So a spec is kept apart from the node's name, a status apart from the time of the start, and both behind an [`Arc`]
//! that many pods may have. Reading and changing a pod is as with Kubernetes' own type; changing one leaves the others as they
//! are. Nothing is lost between the two types.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Who it is.
    pub metadata: ObjectMeta,
    /// What it asks for, and where it is.
    pub spec: Option<PodSpec>,
    /// How far it is.
    pub status: Option<PodStatus>,
}

/// What a pod asks for, and where it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSpec {
    /// The node that it is on. The shared part never says it.
    pub node_name: Option<String>,
    shared: Arc<core::PodSpec>,
}

/// How far a pod is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodStatus {
    /// When the kubelet took it. The shared part never says it.
    pub start_time: Option<Time>,
    shared: Arc<core::PodStatus>,
}

impl PodSpec {
    /// All but the node's name.
    #[must_use]
    pub const fn shared(&self) -> &Arc<core::PodSpec> {
        &self.shared
    }

    /// Takes the same from another pod instead. Whoever calls this has compared them.
    pub fn share(&mut self, same: Arc<core::PodSpec>) {
        self.shared = same;
    }
}

impl PodStatus {
    /// All but the time of the start.
    #[must_use]
    pub const fn shared(&self) -> &Arc<core::PodStatus> {
        &self.shared
    }

    /// Takes the same from another pod instead. Whoever calls this has compared them.
    pub fn share(&mut self, same: Arc<core::PodStatus>) {
        self.shared = same;
    }
}

impl Deref for PodSpec {
    type Target = core::PodSpec;

    fn deref(&self) -> &core::PodSpec {
        &self.shared
    }
}

impl DerefMut for PodSpec {
    fn deref_mut(&mut self) -> &mut core::PodSpec {
        Arc::make_mut(&mut self.shared)
    }
}

impl Deref for PodStatus {
    type Target = core::PodStatus;

    fn deref(&self) -> &core::PodStatus {
        &self.shared
    }
}

impl DerefMut for PodStatus {
    fn deref_mut(&mut self) -> &mut core::PodStatus {
        Arc::make_mut(&mut self.shared)
    }
}

impl From<core::PodSpec> for PodSpec {
    fn from(mut spec: core::PodSpec) -> Self {
        Self {
            node_name: spec.node_name.take(),
            shared: Arc::new(spec),
        }
    }
}

impl From<PodSpec> for core::PodSpec {
    fn from(spec: PodSpec) -> Self {
        Self {
            node_name: spec.node_name,
            ..Arc::unwrap_or_clone(spec.shared)
        }
    }
}

impl From<core::PodStatus> for PodStatus {
    fn from(mut status: core::PodStatus) -> Self {
        Self {
            start_time: status.start_time.take(),
            shared: Arc::new(status),
        }
    }
}

impl From<PodStatus> for core::PodStatus {
    fn from(status: PodStatus) -> Self {
        Self {
            start_time: status.start_time,
            ..Arc::unwrap_or_clone(status.shared)
        }
    }
}

impl From<core::Pod> for Pod {
    fn from(pod: core::Pod) -> Self {
        Self {
            metadata: pod.metadata,
            spec: pod.spec.map(PodSpec::from),
            status: pod.status.map(PodStatus::from),
        }
    }
}

impl From<Pod> for core::Pod {
    fn from(pod: Pod) -> Self {
        Self {
            metadata: pod.metadata,
            spec: pod.spec.map(core::PodSpec::from),
            status: pod.status.map(core::PodStatus::from),
        }
    }
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        core::Pod::deserialize(from).map(Self::from)
    }
}

impl Serialize for Pod {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        core::Pod::from(self.clone()).serialize(to)
    }
}

impl Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        core::Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        core::Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        core::Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        core::Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_lost_between_the_two_types() {
        let value = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "b", "annotations": {"c": "d"}},
            "spec": {"nodeName": "n", "hostNetwork": true, "containers": [{"name": "main", "image": "i"}]},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podIP": "10.0.0.1"}});
        let pod: Pod = serde_json::from_value(value.clone()).unwrap();
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.node_name.as_deref(), Some("n"));
        assert_eq!(spec.shared().node_name, None);
        assert_eq!(pod.status.as_ref().unwrap().shared().start_time, None);
        assert_eq!(serde_json::to_value(&pod).unwrap(), value);
        assert_eq!(Pod::url_path(&(), Some("b")), "/api/v1/namespaces/b/pods");
    }

    #[test]
    fn changing_one_leaves_those_that_share_with_it_as_they_are() {
        let value = json!({"spec": {"nodeName": "n", "containers": [{"name": "main"}]}, "status": {"phase": "Running"}});
        let one: Pod = serde_json::from_value(value).unwrap();
        let mut other = one.clone();
        let spec = other.spec.as_mut().unwrap();
        spec.node_name = None;
        assert!(Arc::ptr_eq(spec.shared(), one.spec.as_ref().unwrap().shared()));
        spec.priority = Some(7);
        other.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        assert_eq!(one.spec.as_ref().unwrap().priority, None);
        assert_eq!(one.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
        assert_eq!(other.spec.as_ref().unwrap().priority, Some(7));
    }
}

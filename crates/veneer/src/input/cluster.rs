//! The objects of a cluster beside Karpenter's own: what only scheduling needs.
//!
//! A large cluster has very many of them, so each keeps its place as text and not the document it came from.

use std::borrow::Cow;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::Resource;
use kube::api::ApiResource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use veneer_api::NodeClaim;
use veneer_engine::quantity::Quantity;

use super::documents;
use super::objects::Origin;
use crate::finding::{Finding, Rule};

/// An object and where it was found.
#[derive(Clone, Debug)]
pub(crate) struct Found<T> {
    pub(crate) object: T,
    file: String,
    line: usize,
}

impl<T: Resource<DynamicType = ()>> Found<T> {
    /// Namespace and name; an object without a namespace stands in the default one.
    fn key(&self) -> (&str, &str) {
        let metadata = self.object.meta();
        (
            metadata.namespace.as_deref().unwrap_or("default"),
            metadata.name.as_deref().unwrap_or_default(),
        )
    }
}

macro_rules! cluster {
    ($($field:ident: $kind:ty),+ $(,)?) => {
        /// What was found.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Cluster {
            $(pub(crate) $field: Vec<Found<$kind>>,)+
        }

        impl Cluster {
            /// The apiVersion of a kind that scheduling needs.
            pub(super) fn version_of(kind: &str) -> Option<Cow<'static, str>> {
                $(if <$kind>::kind(&()) == kind {
                    return Some(<$kind>::api_version(&()));
                })+
                None
            }

            fn resources() -> Vec<ApiResource> {
                vec![$(ApiResource::erase::<$kind>(&())),+]
            }

            /// Reads an object of one of the kinds.
            pub(super) fn take(&mut self, kind: &str, value: Value, origin: &Origin, findings: &mut Vec<Finding>) {
                $(if <$kind>::kind(&()) == kind {
                    return take(value, origin, &mut self.$field, findings);
                })+
            }

            fn append(&mut self, mut more: Self) {
                $(self.$field.append(&mut more.$field);)+
            }

            /// Puts `proposed` over these objects: what has the same kind, namespace and name is replaced.
            pub(super) fn layer(&mut self, proposed: Self) {
                $(layer(&mut self.$field, proposed.$field);)+
            }

            /// Sorts by namespace and name, and refuses all but the last of several objects with the same.
            pub(super) fn settle(&mut self, findings: &mut Vec<Finding>) {
                $(settle(&mut self.$field, findings);)+
            }

            /// Whether nothing was found.
            pub(super) fn is_empty(&self) -> bool {
                $(self.$field.is_empty())&&+
            }
        }
    };
}

cluster! {
    pods: Pod,
    nodes: Node,
    node_claims: NodeClaim,
    daemon_sets: DaemonSet,
    pvcs: PersistentVolumeClaim,
    pvs: PersistentVolume,
    storage_classes: StorageClass,
    csi_nodes: CSINode,
    namespaces: Namespace,
    pdbs: PodDisruptionBudget,
    deployments: Deployment,
    replica_sets: ReplicaSet,
    stateful_sets: StatefulSet,
    jobs: Job,
}

impl Cluster {
    /// The kinds to ask a live cluster for: workloads have their pods there.
    pub(super) fn live_resources() -> impl Iterator<Item = ApiResource> {
        let is_workload = |kind: &str| matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet" | "Job");
        Self::resources()
            .into_iter()
            .filter(move |resource| !is_workload(&resource.kind))
    }
}

/// Reads a JSON list of these kinds alone, as `kubectl get pods -o json` writes it, without keeping its lines: it may
/// be very long. Says whether that went well; where anything is wrong, nothing is read.
pub(super) fn read_list(file: &str, text: &str, cluster: &mut Cluster) -> bool {
    if !text.trim_start().starts_with('{') {
        return false;
    }
    let Ok(mut list) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
        return false;
    };
    let of_list = |field: &str| {
        list.get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (list_kind, list_version) = (of_list("kind"), of_list("apiVersion"));
    let origin = Origin {
        file: file.to_owned(),
        tree: None,
        made_of: None,
    };
    let (mut read, mut findings) = (Cluster::default(), Vec::new());
    for item in items {
        let text = |field: &str| item.get(field).and_then(Value::as_str).map(str::to_owned);
        let kind = text("kind").unwrap_or_else(|| list_kind.trim_end_matches("List").to_owned());
        let version = text("apiVersion").unwrap_or_else(|| list_version.clone());
        let is_named = item
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .is_some_and(|name| !name.is_empty());
        if !is_named || Cluster::version_of(&kind).is_none_or(|expected| expected != version) {
            return false;
        }
        read.take(&kind, item, &origin, &mut findings);
    }
    if findings.is_empty() {
        cluster.append(read);
    }
    findings.is_empty()
}

fn take<T: DeserializeOwned + Resource<DynamicType = ()>>(
    value: Value,
    origin: &Origin,
    into: &mut Vec<Found<T>>,
    findings: &mut Vec<Finding>,
) {
    if let Some((field, problem)) = wrong_amount(&value, "") {
        let name = value
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let message = format!("{problem}; the object was left out");
        let object = format!("{} {name}", T::kind(&()));
        findings.push(origin.finding(Rule::MalformedObject, &object, &field, message, ""));
        return;
    }
    let read = documents::parse(value, &T::kind(&()), origin, findings);
    into.extend(read.map(|object| Found {
        object,
        file: origin.file.clone(),
        line: origin.line_of(""),
    }));
}

/// The fields whose values are amounts.
const AMOUNTS: [&str; 5] = ["requests", "limits", "capacity", "allocatable", "overhead"];

/// The first amount that is none, and why. Where amounts stand, everything else is left to the types.
fn wrong_amount(value: &Value, at: &str) -> Option<(String, String)> {
    match value {
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| wrong_amount(item, &format!("{at}[{index}]")))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let at = if at.is_empty() {
                name.clone()
            } else {
                format!("{at}.{name}")
            };
            match value {
                Value::Object(amounts) if AMOUNTS.contains(&name.as_str()) => {
                    amounts.iter().find_map(|(resource, amount)| {
                        let problem = amount.as_str()?.parse::<Quantity>().err()?;
                        Some((format!("{at}.{resource}"), problem.to_string()))
                    })
                }
                _ => wrong_amount(value, &at),
            }
        }),
        _ => None,
    }
}

fn layer<T: Resource<DynamicType = ()>>(objects: &mut Vec<Found<T>>, mut proposed: Vec<Found<T>>) {
    proposed.sort_by(|a, b| a.key().cmp(&b.key()));
    let is_replaced = |object: &Found<T>| {
        proposed
            .binary_search_by(|new| new.key().cmp(&object.key()))
            .is_ok()
    };
    objects.retain(|object| !is_replaced(object));
    objects.extend(proposed);
}

fn settle<T: Resource<DynamicType = ()>>(objects: &mut Vec<Found<T>>, findings: &mut Vec<Finding>) {
    objects.sort_by(|a, b| a.key().cmp(&b.key()));
    let mut kept: Vec<Found<T>> = Vec::with_capacity(objects.len());
    for object in objects.drain(..) {
        match kept.last_mut().filter(|earlier| earlier.key() == object.key()) {
            Some(earlier) => {
                let mut finding = Finding {
                    rule: Rule::DuplicateObject,
                    file: earlier.file.clone(),
                    line: earlier.line,
                    object: format!("{} {}", T::kind(&()), object.key().1),
                    field: "metadata.name".to_owned(),
                    message: String::new(),
                    fix: "keep one of them".to_owned(),
                };
                finding.message = format!("is defined before at {}; the later one counts", finding.place());
                (finding.file, finding.line) = (object.file.clone(), object.line);
                findings.push(finding);
                *earlier = object;
            }
            None => kept.push(object),
        }
    }
    *objects = kept;
}

#[cfg(test)]
mod tests {
    use super::wrong_amount;
    use serde_json::json;

    #[test]
    fn an_amount_that_is_none_is_found_with_its_field() {
        let pod = |cpu: serde_json::Value| {
            json!({"metadata": {"labels": {"capacity": "a lot"}}, "spec": {"containers": [
                {"resources": {"limits": {"memory": "1Gi"}}}, {"resources": {"requests": {"cpu": cpu}}}]}})
        };
        assert_eq!(wrong_amount(&pod(json!("500m")), ""), None);
        assert_eq!(wrong_amount(&pod(json!(2)), ""), None);
        let (field, _) = wrong_amount(&pod(json!("two")), "").unwrap();
        assert_eq!(field, "spec.containers[1].resources.requests.cpu");
    }
}

//! The fields that a snapshot keeps, kind by kind.

use serde_json::{Map, Value};

/// What of a value is kept.
enum Keep {
    /// All of it.
    All,
    /// These fields of an object, or of each object of a list.
    Fields(&'static [(&'static str, Keep)]),
    /// All but these fields.
    Without(&'static [&'static str]),
    /// This one entry of a map, if its key is the one given.
    Entry(&'static str),
}

use Keep::{All, Entry, Fields, Without};

const OWNERS: Keep = Fields(&[
    ("apiVersion", All),
    ("kind", All),
    ("name", All),
    ("uid", All),
    ("controller", All),
]);

const METADATA: Keep = Fields(&[
    ("name", All),
    ("namespace", All),
    ("uid", All),
    ("labels", All),
    ("annotations", Entry("karpenter.sh/do-not-disrupt")),
    ("ownerReferences", OWNERS),
    ("creationTimestamp", All),
    ("deletionTimestamp", All),
]);

const RESOURCES: Keep = Fields(&[("requests", All), ("limits", All), ("claims", All)]);

const CONTAINER: Keep = Fields(&[
    ("name", All),
    ("resources", RESOURCES),
    (
        "ports",
        Fields(&[
            ("containerPort", All),
            ("hostPort", All),
            ("hostIP", All),
            ("protocol", All),
        ]),
    ),
    ("restartPolicy", All),
]);

const CLAIM_SPEC: Keep = Fields(&[
    ("accessModes", All),
    ("storageClassName", All),
    ("volumeName", All),
    ("resources", All),
]);

const VOLUME: Keep = Fields(&[
    ("name", All),
    ("persistentVolumeClaim", All),
    (
        "ephemeral",
        Fields(&[("volumeClaimTemplate", Fields(&[("spec", CLAIM_SPEC)]))]),
    ),
]);

const POD_SPEC: Keep = Fields(&[
    ("nodeName", All),
    ("nodeSelector", All),
    ("affinity", All),
    ("tolerations", All),
    ("topologySpreadConstraints", All),
    ("schedulingGates", All),
    ("overhead", All),
    ("resources", RESOURCES),
    ("resourceClaims", Fields(&[("name", All)])),
    ("priority", All),
    ("hostNetwork", All),
    ("containers", CONTAINER),
    ("initContainers", CONTAINER),
    ("volumes", VOLUME),
]);

const CONDITION: Keep = Fields(&[
    ("type", All),
    ("status", All),
    ("reason", All),
    ("lastTransitionTime", All),
]);

const CONTAINER_STATUS: Keep = Fields(&[
    ("name", All),
    ("ready", All),
    ("restartCount", All),
    ("resources", RESOURCES),
    ("allocatedResources", All),
]);

const POD: Keep = Fields(&[
    ("metadata", METADATA),
    ("spec", POD_SPEC),
    (
        "status",
        Fields(&[
            ("phase", All),
            ("startTime", All),
            ("nominatedNodeName", All),
            ("conditions", CONDITION),
            ("containerStatuses", CONTAINER_STATUS),
            ("initContainerStatuses", CONTAINER_STATUS),
        ]),
    ),
]);

const NODE: Keep = Fields(&[
    ("metadata", METADATA),
    (
        "spec",
        Fields(&[("providerID", All), ("taints", All), ("unschedulable", All)]),
    ),
    (
        "status",
        Fields(&[("capacity", All), ("allocatable", All), ("conditions", CONDITION)]),
    ),
]);

const DAEMON_SET: Keep = Fields(&[
    ("metadata", METADATA),
    (
        "spec",
        Fields(&[
            ("selector", All),
            (
                "template",
                Fields(&[("metadata", Fields(&[("labels", All)])), ("spec", POD_SPEC)]),
            ),
        ]),
    ),
]);

const VOLUME_OF_CLUSTER: Keep = Fields(&[
    ("metadata", METADATA),
    (
        "spec",
        Fields(&[
            ("nodeAffinity", All),
            ("storageClassName", All),
            ("accessModes", All),
            ("capacity", All),
            ("csi", Fields(&[("driver", All), ("volumeHandle", All)])),
            ("awsElasticBlockStore", All),
            ("local", Fields(&[("path", All)])),
            ("hostPath", Fields(&[("path", All)])),
        ]),
    ),
]);

const VOLUME_CLAIM: Keep = Fields(&[
    ("metadata", METADATA),
    ("spec", CLAIM_SPEC),
    ("status", Fields(&[("phase", All)])),
]);

const STORAGE_CLASS: Keep = Fields(&[
    ("metadata", STORAGE_METADATA),
    ("provisioner", All),
    ("volumeBindingMode", All),
    ("allowedTopologies", All),
]);

const STORAGE_METADATA: Keep = Fields(&[
    ("name", All),
    ("uid", All),
    ("labels", All),
    (
        "annotations",
        Entry("storageclass.kubernetes.io/is-default-class"),
    ),
    ("creationTimestamp", All),
]);

/// Karpenter's own kinds are settings, not secrets; only user data may hold some.
const SETTINGS: Keep = Fields(&[
    ("metadata", METADATA),
    ("spec", Without(&["userData", "tags", "context"])),
    ("status", All),
]);

const PLAIN: Keep = Fields(&[("metadata", METADATA), ("spec", All)]);

/// The object with the fields that are kept.
pub(super) fn keep(kind: &str, value: Value) -> Value {
    let keep = match kind {
        "Pod" => &POD,
        "Node" => &NODE,
        "DaemonSet" => &DAEMON_SET,
        "PersistentVolume" => &VOLUME_OF_CLUSTER,
        "PersistentVolumeClaim" => &VOLUME_CLAIM,
        "StorageClass" => &STORAGE_CLASS,
        "CSINode" => &PLAIN,
        "Namespace" => &Fields(&[("metadata", METADATA)]),
        "NodePool"
        | "NodeOverlay"
        | "Overprovisioner"
        | "NodeClaim"
        | "EC2NodeClass"
        | "KWOKNodeClass"
        | "PodDisruptionBudget" => &SETTINGS,
        _ => &Fields(&[("metadata", METADATA)]),
    };
    kept(keep, value).unwrap_or(Value::Null)
}

fn kept(keep: &Keep, value: Value) -> Option<Value> {
    match (keep, value) {
        (All, value) => Some(value),
        (Fields(_), Value::Array(items)) => {
            Some(items.into_iter().filter_map(|item| kept(keep, item)).collect())
        }
        (Fields(fields), Value::Object(mut object)) => {
            let mut rest = Map::new();
            for (name, keep) in *fields {
                let value = object.remove(*name).and_then(|value| kept(keep, value));
                rest.extend(value.map(|value| ((*name).to_owned(), value)));
            }
            Some(Value::Object(rest))
        }
        (Without(fields), Value::Object(mut object)) => {
            object.retain(|name, _| !fields.contains(&name.as_str()));
            Some(Value::Object(object))
        }
        (Entry(key), Value::Object(mut map)) => {
            let value = map.remove(*key)?;
            Some(Value::Object(Map::from_iter([((*key).to_owned(), value)])))
        }
        // What is not of the expected form is nothing that is needed.
        (Fields(_) | Without(_) | Entry(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::keep;
    use serde_json::json;

    #[test]
    fn of_a_pod_only_what_scheduling_reads_is_kept() {
        let pod = json!({
            "metadata": {
                "name": "web", "labels": {"app": "web"}, "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "karpenter.sh/do-not-disrupt": "true"},
            },
            "spec": {
                "containers": [{
                    "name": "main", "image": "registry.example/web:1", "args": ["--token=t0ps3cret"],
                    "env": [{"name": "PASSWORD", "value": "t0ps3cret"}],
                    "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 80, "hostPort": 80, "name": "http"}],
                }],
                "volumes": [{"name": "keys", "secret": {"secretName": "keys"}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                "nodeSelector": {"kubernetes.io/arch": "arm64"}, "serviceAccountName": "web",
            },
            "status": {"phase": "Pending", "podIP": "10.0.0.1"},
        });
        let expected = json!({
            "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "spec": {
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 80, "hostPort": 80}]}],
                "volumes": [{"name": "keys"}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                "nodeSelector": {"kubernetes.io/arch": "arm64"},
            },
            "status": {"phase": "Pending"},
        });
        assert_eq!(keep("Pod", pod), expected);
    }

    #[test]
    fn user_data_of_a_node_class_is_left_out() {
        let class =
            json!({"metadata": {"name": "default"}, "spec": {"userData": "#!/bin/sh", "role": "nodes"}});
        let expected = json!({"metadata": {"name": "default"}, "spec": {"role": "nodes"}});
        assert_eq!(keep("EC2NodeClass", class), expected);
    }
}

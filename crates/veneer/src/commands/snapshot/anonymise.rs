//! Names replaced by hashes, the same name by the same hash wherever it stands.
//!
//! Label keys stay, and so do the values of labels that Kubernetes and Karpenter define, numbers, and resources: they
//! decide what is scheduled where. What else can be a name is hashed.

use ring::digest::{SHA256, digest};
use serde_json::Value;
use veneer_engine::labels;

/// Fields that hold names, wherever they stand.
const NAMES: [&str; 16] = [
    "name",
    "namespace",
    "nodeName",
    "nominatedNodeName",
    "claimName",
    "volumeName",
    "storageClassName",
    "providerID",
    "volumeHandle",
    "volumeID",
    "nodeID",
    "path",
    "imageID",
    "role",
    "instanceProfile",
    "secretName",
];

/// Domains whose labels have values with a meaning of their own.
const PUBLIC: [&str; 6] = [
    "kubernetes.io",
    "k8s.io",
    "karpenter.sh",
    "karpenter.k8s.aws",
    "karpenter.kwok.sh",
    "k8s.aws",
];

/// Labels of those domains whose values are names all the same.
const NAMED_BY_LABEL: [&str; 4] = [
    labels::HOSTNAME,
    labels::NODE_POOL,
    "kubernetes.io/metadata.name",
    "app.kubernetes.io/",
];

pub(super) struct Anonymiser {
    salt: String,
}

impl Anonymiser {
    pub(super) fn new(salt: &str) -> Self {
        Self {
            salt: salt.to_owned(),
        }
    }

    /// The hash of a name: a letter and hexadecimal digits, so that it is a name for Kubernetes too.
    fn hash(&self, text: &str) -> String {
        let digest = digest(&SHA256, format!("{}\0{text}", self.salt).as_bytes());
        let digits: String = digest
            .as_ref()
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("n{digits}")
    }

    /// Hides the names in an object.
    pub(super) fn hide(&self, object: &mut Value) {
        self.walk("", object);
    }

    fn walk(&self, field: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let label = label_of(fields);
                for (name, value) in fields {
                    match name.as_str() {
                        "labels" | "matchLabels" | "nodeSelector" if is_label_map(value) => {
                            self.labels(value);
                        }
                        // The values of a requirement, taint or toleration on a label.
                        "values" | "value" => {
                            if let Some(label) = &label {
                                self.label_values(label, value);
                            }
                        }
                        "namespaces" => self.texts(value),
                        // Drivers and their limits are of the provider.
                        "name" if matches!(field, "drivers" | "csi") => {}
                        name if NAMES.contains(&name) && value.is_string() => self.texts(value),
                        name => self.walk(name, value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(field, item)),
            _ => {}
        }
    }

    fn labels(&self, value: &mut Value) {
        if let Value::Object(labels) = value {
            for (label, value) in labels {
                self.label_values(label, value);
            }
        }
    }

    fn label_values(&self, label: &str, value: &mut Value) {
        let is_name = NAMED_BY_LABEL.iter().any(|known| label.starts_with(known));
        if is_name || !is_public(label) {
            self.texts(value);
        }
    }

    fn texts(&self, value: &mut Value) {
        match value {
            Value::String(text) if text.is_empty() || text.parse::<i64>().is_ok() => {}
            Value::String(text) => *text = self.hash(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.texts(item)),
            _ => {}
        }
    }
}

/// The label that an expression, a taint or a toleration is about.
fn label_of(fields: &serde_json::Map<String, Value>) -> Option<String> {
    fields.get("key").and_then(Value::as_str).map(str::to_owned)
}

fn is_label_map(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|map| map.values().all(Value::is_string))
}

fn is_public(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else {
        return false;
    };
    PUBLIC.iter().any(|public| {
        domain == *public
            || domain
                .strip_suffix(public)
                .is_some_and(|rest| rest.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::Anonymiser;
    use serde_json::json;

    #[test]
    fn the_same_name_has_the_same_hash_and_what_scheduling_needs_stays() {
        let hidden = |salt: &str, mut object: serde_json::Value| {
            Anonymiser::new(salt).hide(&mut object);
            object
        };
        let pod = hidden(
            "",
            json!({
                "metadata": {"name": "checkout-0", "namespace": "shop", "labels": {"app": "checkout", "kubernetes.io/arch": "arm64"}},
                "spec": {"nodeName": "ip-10-0-1-17", "nodeSelector": {"kubernetes.io/arch": "arm64", "example.com/team": "checkout"},
                    "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "topology.kubernetes.io/zone", "namespaces": ["shop"],
                         "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["checkout"]}]}}]}},
                    "tolerations": [{"key": "dedicated", "value": "checkout"}, {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]},
            }),
        );
        let node = hidden(
            "",
            json!({"metadata": {"name": "ip-10-0-1-17", "labels": {
            "kubernetes.io/hostname": "ip-10-0-1-17", "node.kubernetes.io/instance-type": "m5.large", "size": "4"}}}),
        );
        let text = format!("{pod}{node}");
        for name in ["checkout", "shop", "ip-10-0-1-17"] {
            assert!(!text.contains(name), "{name} is in {text}");
        }
        for needed in [
            "arm64",
            "m5.large",
            "topology.kubernetes.io/zone",
            "not-ready",
            "\"size\":\"4\"",
        ] {
            assert!(text.contains(needed), "{needed} is not in {text}");
        }
        assert_eq!(pod.pointer("/spec/nodeName"), node.pointer("/metadata/name"));
        let team = pod.pointer("/spec/nodeSelector/example.com~1team");
        assert_eq!(team, pod.pointer("/metadata/labels/app"));
        assert_eq!(team, pod.pointer("/spec/tolerations/0/value"));
        let other = hidden("pepper", json!({"metadata": {"name": "checkout-0"}}));
        assert_ne!(other.pointer("/metadata/name"), pod.pointer("/metadata/name"));
    }
}

//! Tenants that make everything as costly as the API server lets them: pods with thousands of terms, NodePools and
//! NodeOverlays with as many requirements as fit, annotations and amounts that nobody needs.
//!
//! What a tenant has follows from a seed. Nothing here is refused by an API server for its form; whether any of it can
//! be scheduled is another matter.

use serde_json::{Map, Value, json};
use veneer_api::labels::kubernetes;

use crate::rng::Rng;

/// What a tenant's pods are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Many preferred terms of node affinity.
    PreferredNodeAffinity,
    /// Many OR-ed terms of required node affinity.
    Alternatives,
    /// Many preferred terms of pod affinity.
    PreferredPodAffinity,
    /// Many preferred terms of pod anti-affinity, by zone and by host.
    PreferredAntiAffinity,
    /// Many spreads with `ScheduleAnyway`.
    SoftSpreads,
    /// Required anti-affinity by labels that no node has.
    StrangeTopology,
    /// Selectors with many values.
    LongSelectors,
    /// Required node affinity that excludes many values of many labels.
    Exclusions,
    /// A long node selector.
    NodeSelector,
    /// Many tolerations, together with spreads that look at them.
    Tolerations,
    /// Many labels, and a rule that looks at each.
    Labels,
    /// Many host ports.
    HostPorts,
    /// Amounts with huge exponents and many digits.
    Amounts,
    /// Many containers.
    Containers,
    /// Large annotations.
    Annotations,
    /// Alternatives and spreads and preferences at once.
    Everything,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::PreferredNodeAffinity,
        Self::Alternatives,
        Self::PreferredPodAffinity,
        Self::PreferredAntiAffinity,
        Self::SoftSpreads,
        Self::StrangeTopology,
        Self::LongSelectors,
        Self::Exclusions,
        Self::NodeSelector,
        Self::Tolerations,
        Self::Labels,
        Self::HostPorts,
        Self::Amounts,
        Self::Containers,
        Self::Annotations,
        Self::Everything,
    ];
}

/// How much of it there is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Pods of each tenant.
    pub pods: usize,
    /// Terms, values, labels and the like of each pod.
    pub terms: usize,
    /// Whether every pod is different from all others.
    pub distinct: bool,
}

/// The objects of a tenant, as manifests.
#[derive(Clone, Debug, Default)]
pub struct Tenant {
    /// Its namespace.
    pub namespace: String,
    /// Its pods.
    pub pods: Vec<Value>,
    /// NodePools that it was allowed to make.
    pub node_pools: Vec<Value>,
    /// NodeOverlays that it was allowed to make.
    pub overlays: Vec<Value>,
}

/// The tenant of a seed with a number.
#[must_use]
pub fn tenant(seed: u64, number: usize, scale: Scale) -> Tenant {
    let mut rng = Rng::of(seed, &["adversary", &number.to_string()]);
    let kind = Kind::ALL.get(number % Kind::ALL.len());
    let kind = *kind.unwrap_or(&Kind::Everything);
    let namespace = format!("tenant-{number}");
    let alike = pod(kind, &mut rng, scale.terms, &namespace);
    let pods = (0..scale.pods).map(|at| {
        let mut pod = if scale.distinct {
            pod(kind, &mut rng, scale.terms, &format!("{namespace}-{at}"))
        } else {
            alike.clone()
        };
        pod.metadata.insert("name".to_owned(), json!(format!("pod-{at}")));
        pod.metadata.insert("namespace".to_owned(), json!(namespace));
        pod.metadata
            .insert("uid".to_owned(), json!(format!("{namespace}-{at}")));
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod.metadata, "spec": pod.spec})
    });
    Tenant {
        pods: pods.collect(),
        node_pools: vec![node_pool(&namespace, &mut rng, scale.terms)],
        overlays: (0..3)
            .map(|at| overlay(&format!("{namespace}-{at}"), &mut rng, scale.terms))
            .collect(),
        namespace,
    }
}

/// A pod in two parts.
#[derive(Clone, Debug, Default)]
pub struct PodParts {
    /// Labels and annotations.
    pub metadata: Map<String, Value>,
    /// The spec.
    pub spec: Map<String, Value>,
}

fn many(count: usize, item: impl FnMut(usize) -> Value) -> Value {
    Value::Array((0..count).map(item).collect())
}

fn expression(key: &str, operator: &str, values: Value) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

fn topology_key(at: usize) -> &'static str {
    if at.is_multiple_of(2) {
        kubernetes::ZONE
    } else {
        kubernetes::HOSTNAME
    }
}

fn weighted(at: usize, term: &Value) -> Value {
    json!({"weight": 1 + at % 100, "podAffinityTerm": term})
}

/// A pod of a kind with so many terms. `name` tells its labels from those of others.
#[must_use]
pub(crate) fn pod(kind: Kind, rng: &mut Rng, terms: usize, name: &str) -> PodParts {
    let mut labels = Map::from_iter([("app".to_owned(), json!(name))]);
    let mut parts = PodParts::default();
    let mut affinity = Map::new();
    let mut requests = json!({"cpu": format!("{}m", 50 + rng.below(400)), "memory": "128Mi"});
    let own = json!({"matchLabels": {"app": name}});
    let selector = |at: usize| match at % 3 {
        0 => own.clone(),
        1 => json!({"matchLabels": {"app": format!("{name}-{at}")}}),
        _ => json!({"matchExpressions": [{"key": format!("role-{at}"), "operator": "DoesNotExist"}]}),
    };
    let preferred_terms = |term: &dyn Fn(usize) -> Value| json!({"preferredDuringSchedulingIgnoredDuringExecution": many(terms, term)});
    let rule = |at: usize| json!({"topologyKey": topology_key(at), "labelSelector": selector(at)});
    let soft = |at: usize| {
        json!({"maxSkew": 1 + at % 5, "topologyKey": topology_key(at), "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector(at), "nodeTaintsPolicy": "Honor"})
    };
    let alternatives = |count: usize| {
        let term = |at: usize| json!({"matchExpressions": [expression("rack", "In", json!([format!("{name}-{at}")]))]});
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": many(count, term)}})
    };
    let mut spec = Map::new();
    match kind {
        Kind::PreferredNodeAffinity => {
            let term = |at: usize| {
                let expression = expression(&format!("example.com/{name}-{at}"), "In", json!(["a", "b"]));
                json!({"weight": 1 + at % 100, "preference": {"matchExpressions": [expression]}})
            };
            affinity.insert("nodeAffinity".to_owned(), preferred_terms(&term));
        }
        Kind::Alternatives => _ = affinity.insert("nodeAffinity".to_owned(), alternatives(terms * 3)),
        Kind::PreferredPodAffinity => {
            let terms = preferred_terms(&|at| weighted(at, &rule(at)));
            affinity.insert("podAffinity".to_owned(), terms);
        }
        Kind::PreferredAntiAffinity => {
            let terms = preferred_terms(&|at| weighted(at, &rule(at)));
            affinity.insert("podAntiAffinity".to_owned(), terms);
        }
        Kind::SoftSpreads => _ = spec.insert("topologySpreadConstraints".to_owned(), many(terms, soft)),
        Kind::StrangeTopology => {
            let term = |at: usize| json!({"topologyKey": format!("example.com/{name}-{at}"), "labelSelector": selector(at)});
            let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": many(terms, term)});
            affinity.insert("podAntiAffinity".to_owned(), terms);
        }
        Kind::LongSelectors => {
            let values = many(terms * 4, |at| json!(format!("{name}-{at}")));
            let selector = json!({"matchExpressions": [expression("app", "NotIn", values.clone()), expression("tier", "NotIn", values)]});
            let term = json!({"topologyKey": kubernetes::HOSTNAME, "labelSelector": selector});
            let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
            affinity.insert("podAntiAffinity".to_owned(), terms);
        }
        Kind::Exclusions => {
            let exclusion =
                |at: usize| expression(&format!("example.com/{name}-{at}"), "NotIn", json!(["x", "y"]));
            let term = json!({"matchExpressions": many(terms, exclusion)});
            let required =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
            affinity.insert("nodeAffinity".to_owned(), required);
        }
        Kind::NodeSelector => {
            let labels = (0..terms).map(|at| (format!("example.com/{name}-{at}"), json!("x")));
            spec.insert("nodeSelector".to_owned(), Value::Object(labels.collect()));
        }
        Kind::Tolerations => {
            let toleration = |at: usize| json!({"key": format!("{name}-{at}"), "operator": "Exists", "effect": "NoSchedule"});
            spec.insert("tolerations".to_owned(), many(terms, toleration));
            spec.insert("topologySpreadConstraints".to_owned(), many(terms / 10, soft));
        }
        Kind::Labels => {
            labels.extend((0..terms).map(|at| (format!("role-{at}"), json!(format!("{name}-{at}")))));
            let looks = |at: usize| {
                let selector = json!({"matchLabels": {format!("role-{at}"): format!("{name}-{at}")}});
                weighted(
                    at,
                    &json!({"topologyKey": topology_key(at), "labelSelector": selector}),
                )
            };
            affinity.insert("podAntiAffinity".to_owned(), preferred_terms(&looks));
        }
        Kind::HostPorts => {}
        Kind::Amounts => {
            let amounts = [
                "1e18",
                "1E-9",
                "999999999999999999999999999m",
                "0.000000000000000000001",
                "1e999999999",
                "-1",
            ];
            let at = usize::try_from(rng.below(amounts.len() as u64)).unwrap_or_default();
            requests = json!({"cpu": amounts.get(at), "memory": "9".repeat(terms.min(1_000)), "example.com/thing": "1e-30"});
        }
        Kind::Containers | Kind::Annotations => {}
        Kind::Everything => {
            affinity.insert("nodeAffinity".to_owned(), alternatives(terms));
            let terms_of_pods = preferred_terms(&|at| weighted(at, &rule(at)));
            affinity.insert("podAntiAffinity".to_owned(), terms_of_pods);
            spec.insert("topologySpreadConstraints".to_owned(), many(terms / 4, soft));
        }
    }
    let port = |at: usize| json!({"containerPort": 80, "hostPort": 1 + at % 65_000, "protocol": if at.is_multiple_of(2) { "TCP" } else { "UDP" }});
    let ports = if kind == Kind::HostPorts { terms } else { 0 };
    let containers = if kind == Kind::Containers { terms } else { 1 };
    let container = |at: usize| json!({"name": format!("c-{at}"), "ports": many(ports, port), "resources": {"requests": requests}});
    spec.insert("containers".to_owned(), many(containers, container));
    if !affinity.is_empty() {
        spec.insert("affinity".to_owned(), Value::Object(affinity));
    }
    if kind == Kind::Annotations {
        let text = "x".repeat(terms * 50);
        let annotations =
            json!({"example.com/a": text, "karpenter.sh/do-not-disrupt": text, "veneer.io/share": text});
        parts.metadata.insert("annotations".to_owned(), annotations);
    }
    parts.metadata.insert("labels".to_owned(), Value::Object(labels));
    parts.spec = spec;
    parts
}

/// A NodePool with as many requirements as its CRD allows, and preferences that make no sense.
fn node_pool(name: &str, rng: &mut Rng, terms: usize) -> Value {
    let requirement = |at: usize| {
        let values = many(1 + terms / 20, |value| json!(format!("v-{value}")));
        json!({"key": format!("example.com/{name}-{at}"), "operator": if at.is_multiple_of(3) { "NotIn" } else { "In" }, "values": values})
    };
    let taint =
        |at: usize| json!({"key": format!("example.com/{name}-{at}"), "effect": "NoSchedule", "value": "x"});
    let annotations = (0..50).map(|at| {
        let text = match at % 4 {
            0 => format!(
                "node.kubernetes.io/instance-type={} adjust=-10%",
                "m5.large,".repeat(terms.min(200))
            ),
            1 => format!("{}=x adjust=+1%", "k".repeat(200)),
            2 => "adjust=-1e999%".to_owned(),
            _ => "x".repeat(terms),
        };
        (format!("veneer.io/preference.{at}"), json!(text))
    });
    let schedule = |at: usize| {
        let schedule = [
            "TZ=Europe/Berlin 0 9 * * *",
            "0 0 31 2 *",
            "* * * * *",
            "0 0 * * 7",
        ];
        json!({"nodes": "10%", "schedule": schedule.get(at % 4), "duration": "9999999h"})
    };
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": name, "uid": name, "annotations": Value::Object(annotations.collect())},
        "spec": {
            "weight": 1 + rng.below(100),
            "limits": {"cpu": "1e99", "memory": "0.0000000000001", "example.com/thing": "1e-99"},
            "disruption": {"consolidateAfter": "0s", "budgets": many(50, schedule)},
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "taints": many(terms / 10, taint),
                "requirements": many(100, requirement)}}}})
}

/// A NodeOverlay with many requirements.
fn overlay(name: &str, rng: &mut Rng, terms: usize) -> Value {
    let requirement = |at: usize| {
        let values = many(1 + terms / 10, |value| json!(format!("m{value}.large")));
        let key = if at.is_multiple_of(2) {
            kubernetes::INSTANCE_TYPE.to_owned()
        } else {
            format!("example.com/{name}-{at}")
        };
        json!({"key": key, "operator": if at.is_multiple_of(5) { "In" } else { "NotIn" }, "values": values})
    };
    json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name, "uid": name},
        "spec": {"weight": 1 + rng.below(10_000), "priceAdjustment": "-0.000000000000000000001",
            "capacity": {"example.com/thing": "1e30"}, "requirements": many(100, requirement)}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use veneer_api::{NodeOverlay, NodePool};

    #[test]
    fn tenants_are_what_an_api_server_stores_and_the_same_every_time() {
        let scale = Scale {
            pods: 2,
            terms: 40,
            distinct: true,
        };
        for number in 0..Kind::ALL.len() {
            let one = tenant(7, number, scale);
            assert_eq!(format!("{one:?}"), format!("{:?}", tenant(7, number, scale)));
            for pod in &one.pods {
                serde_json::from_value::<Pod>(pod.clone())
                    .unwrap_or_else(|error| panic!("{number}: {error}"));
            }
            serde_json::from_value::<NodePool>(one.node_pools[0].clone()).unwrap();
            serde_json::from_value::<NodeOverlay>(one.overlays[0].clone()).unwrap();
        }
    }
}

//! What every executor of plans must do, in one list: a state, a plan, and the state that follows.
//!
//! The world and the Kubernetes driver both pass it (`tests/conformance.rs` of this crate and of `controllers`), so what
//! holds in the world holds on an API server. A case says what it needs as manifests; the plan is made from a snapshot, since
//! actions name objects by uid and version; and the outcome is read from a snapshot again.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};
use veneer_api::{NodeClaim, NodePool, NodePoolStatus, Pod};
use veneer_engine::plan::{
    Action, NodeChange, Snapshot, Target, condition_true, is_deleting, label, name, provider_id,
};
use veneer_engine::provision::LaunchOption;

/// Says what of a state is not as it should be.
pub type Check = fn(&Snapshot) -> Result<(), String>;

/// A state, a plan, and what follows.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it shows, as a sentence.
    pub name: &'static str,
    /// What exists at the beginning, with its status.
    pub objects: fn() -> Vec<Value>,
    /// The plan. Each list is carried out when the one before it has had its effect.
    pub plans: &'static [fn(&Snapshot) -> Vec<Action>],
    /// What has to hold after each plan, or what does not.
    pub holds: &'static [Check],
}

const FINALIZER: &str = "karpenter.sh/termination";

fn claim() -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "one", "labels": {"karpenter.sh/nodepool": "default", "kept": "yes"}, "finalizers": [FINALIZER]},
        "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}], "expireAfter": "Never"}})
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "one", "labels": {"kept": "yes"}, "finalizers": [FINALIZER]},
        "spec": {"providerID": "test://one", "taints": [{"key": "old", "effect": "NoSchedule"}]}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": "one", "terminationGracePeriodSeconds": 30, "containers": [{"name": "main", "image": "web"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn budget(needed: i32, allowed: i32) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": needed, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"currentHealthy": 2, "desiredHealthy": needed, "disruptionsAllowed": allowed, "expectedPods": 2,
            "observedGeneration": 1}})
}

fn pool() -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default", "annotations": {"kept": "yes"}},
        "spec": {"template": {"spec": {"expireAfter": "Never", "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}}})
}

fn class() -> Value {
    json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}})
}

fn the_claim(snapshot: &Snapshot) -> Result<&Arc<NodeClaim>, String> {
    let mut claims = snapshot.node_claims.iter();
    let found = claims.find(|one| name(&one.metadata) == "one");
    found.ok_or_else(|| "there is no NodeClaim one".to_owned())
}

fn the_node(snapshot: &Snapshot) -> Result<&Arc<Node>, String> {
    let mut nodes = snapshot.nodes.iter();
    let found = nodes.find(|one| name(&one.metadata) == "one");
    found.ok_or_else(|| "there is no Node one".to_owned())
}

fn the_pool(snapshot: &Snapshot) -> Result<&Arc<NodePool>, String> {
    let mut pools = snapshot.node_pools.iter();
    let found = pools.find(|one| name(&one.metadata) == "default");
    found.ok_or_else(|| "there is no NodePool default".to_owned())
}

fn the_pod<'a>(snapshot: &'a Snapshot, wanted: &str) -> Option<&'a Arc<Pod>> {
    snapshot.pods.iter().find(|one| name(&one.metadata) == wanted)
}

fn claim_target(snapshot: &Snapshot) -> Option<Target> {
    the_claim(snapshot)
        .ok()
        .map(|claim| Target::from(&claim.metadata))
}

/// Of the object that is there, as somebody saw it before another write.
fn outdated(target: Target) -> Target {
    Target {
        resource_version: "1".to_owned(),
        ..target
    }
}

/// An object of the same name that is no more.
fn of_old(target: Target) -> Target {
    Target {
        uid: "00000000-0000-0000-0000-000000000000".to_owned(),
        ..target
    }
}

fn holds(is: bool, what: &str) -> Result<(), String> {
    if is { Ok(()) } else { Err(what.to_owned()) }
}

fn text(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

fn patch(target: Option<Target>, finalizers: Option<Vec<String>>) -> Vec<Action> {
    let action = target.map(|target| Action::PatchClaim {
        target,
        labels: text("new", "1"),
        annotations: text("why", "test"),
        finalizers,
    });
    action.into_iter().collect()
}

fn delete(target: Option<Target>) -> Vec<Action> {
    let reason = "test";
    let action = target.map(|target| Action::DeleteClaim { target, reason });
    action.into_iter().collect()
}

fn evict(snapshot: &Snapshot, change: fn(Target) -> Target) -> Vec<Action> {
    let pod = the_pod(snapshot, "web-1").map(|pod| change(Target::from(&pod.metadata)));
    pod.map(|pod| Action::Evict { pod }).into_iter().collect()
}

/// Gone, or about to be.
fn leaves(snapshot: &Snapshot, pod: &str) -> bool {
    the_pod(snapshot, pod).is_none_or(|pod| is_deleting(&pod.metadata))
}

fn option() -> LaunchOption {
    let labels = [
        ("node.kubernetes.io/instance-type", "c-2x-amd64-linux"),
        ("karpenter.sh/capacity-type", "on-demand"),
        ("topology.kubernetes.io/zone", "test-zone-a"),
    ];
    let size = BTreeMap::from([(
        "cpu".to_owned(),
        k8s_openapi::apimachinery::pkg::api::resource::Quantity("2".to_owned()),
    )]);
    LaunchOption {
        instance_type: "c-2x-amd64-linux".to_owned(),
        capacity_type: "on-demand".to_owned(),
        zone: "test-zone-a".to_owned(),
        price: 0.1,
        list_price: 0.1,
        overlay: None,
        labels: Arc::new(
            labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        ),
        capacity: Arc::new(size.clone()),
        allocatable: Arc::new(size),
    }
}

fn launch(snapshot: &Snapshot) -> Vec<Action> {
    let claim = the_claim(snapshot).ok().cloned();
    let action = claim.map(|claim| Action::Launch {
        claim,
        options: vec![option()],
    });
    action.into_iter().collect()
}

fn is_launched(snapshot: &Snapshot) -> Result<(), String> {
    let claim = the_claim(snapshot)?;
    holds(provider_id(claim).is_some(), "the claim has no provider id")?;
    holds(condition_true(claim, "Launched"), "the claim is not Launched")?;
    let type_ = label(&claim.metadata, "node.kubernetes.io/instance-type");
    holds(
        type_ == Some("c-2x-amd64-linux"),
        "the claim does not say what it became",
    )?;
    holds(
        label(&claim.metadata, "kept") == Some("yes"),
        "the claim has lost a label",
    )?;
    let instances = snapshot.instances.iter().filter(|one| one.claim == "one");
    holds(instances.count() == 1, "there is not one instance for the claim")
}

/// All of them.
pub const CASES: &[Case] = &[
    Case {
        name: "a claim is made once, however often it is asked for",
        objects: Vec::new,
        plans: &[
            |_| create("first"),
            // The answer to the first attempt was lost.
            |_| create("second"),
        ],
        holds: &[
            |seen| {
                holds(
                    label(&the_claim(seen)?.metadata, "attempt") == Some("first"),
                    "it is another claim",
                )
            },
            |seen| {
                holds(
                    label(&the_claim(seen)?.metadata, "attempt") == Some("first"),
                    "it is another claim",
                )
            },
        ],
    },
    Case {
        name: "labels, annotations and finalizers are set, and others stay",
        objects: || vec![claim()],
        plans: &[|seen| {
            patch(
                claim_target(seen),
                Some(vec![FINALIZER.to_owned(), "test/other".to_owned()]),
            )
        }],
        holds: &[|seen| {
            let metadata = &the_claim(seen)?.metadata;
            holds(label(metadata, "new") == Some("1"), "the label is missing")?;
            holds(label(metadata, "kept") == Some("yes"), "a label was lost")?;
            let annotations = metadata.annotations.as_ref();
            let why = annotations.and_then(|list| list.get("why")).map(String::as_str);
            holds(why == Some("test"), "the annotation is missing")?;
            holds(
                metadata.finalizers.iter().flatten().count() == 2,
                "the finalizers are not the two",
            )
        }],
    },
    Case {
        name: "a write that was decided on an old version changes nothing",
        objects: || vec![claim()],
        plans: &[|seen| patch(claim_target(seen).map(outdated), None)],
        holds: &[|seen| {
            holds(
                label(&the_claim(seen)?.metadata, "new").is_none(),
                "it was written",
            )
        }],
    },
    Case {
        name: "a status is written as a whole, and nothing else with it",
        objects: || vec![claim()],
        plans: &[|seen| {
            let target = claim_target(seen);
            let action = target.map(|target| Action::ClaimStatus {
                target,
                status: Box::new(veneer_api::NodeClaimStatus {
                    provider_id: Some("test://one".to_owned()),
                    ..Default::default()
                }),
            });
            action.into_iter().collect()
        }],
        holds: &[|seen| {
            let claim = the_claim(seen)?;
            holds(
                provider_id(claim) == Some("test://one"),
                "the provider id is missing",
            )?;
            holds(label(&claim.metadata, "kept") == Some("yes"), "a label was lost")
        }],
    },
    Case {
        name: "a claim that is deleted stays until its last finalizer goes",
        objects: || vec![claim()],
        plans: &[
            |seen| delete(claim_target(seen)),
            |seen| patch(claim_target(seen), Some(Vec::new())),
        ],
        holds: &[
            |seen| holds(is_deleting(&the_claim(seen)?.metadata), "it is not being deleted"),
            |seen| holds(the_claim(seen).is_err(), "it is still there"),
        ],
    },
    Case {
        name: "a claim of the same name that is another one is left alone",
        objects: || vec![claim()],
        plans: &[|seen| delete(claim_target(seen).map(of_old))],
        holds: &[|seen| holds(!is_deleting(&the_claim(seen)?.metadata), "it was deleted")],
    },
    Case {
        name: "a node gets its labels, all of its taints and its finalizers",
        objects: || vec![node()],
        plans: &[|seen| {
            let target = the_node(seen).ok().map(|node| Target::from(&node.metadata));
            let change = NodeChange {
                labels: text("new", "1"),
                taints: Some(vec![Taint {
                    key: "karpenter.sh/disrupted".to_owned(),
                    effect: "NoSchedule".to_owned(),
                    ..Taint::default()
                }]),
                finalizers: Some(vec![FINALIZER.to_owned(), "test/other".to_owned()]),
                ..NodeChange::default()
            };
            target
                .map(|target| Action::PatchNode { target, change })
                .into_iter()
                .collect()
        }],
        holds: &[|seen| {
            let node = the_node(seen)?;
            holds(label(&node.metadata, "new") == Some("1"), "the label is missing")?;
            holds(label(&node.metadata, "kept") == Some("yes"), "a label was lost")?;
            let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            // An API server adds taints of its own.
            let taints: Vec<&str> = taints
                .map(|one| one.key.as_str())
                .filter(|key| !key.starts_with("node.kubernetes.io/"))
                .collect();
            holds(
                taints == ["karpenter.sh/disrupted"],
                &format!("the taints are {taints:?}"),
            )?;
            holds(
                node.metadata.finalizers.iter().flatten().count() == 2,
                "the finalizers are not the two",
            )
        }],
    },
    Case {
        name: "a node that is deleted stays until its last finalizer goes",
        objects: || vec![node()],
        plans: &[
            |seen| {
                let target = the_node(seen).ok().map(|node| Target::from(&node.metadata));
                target
                    .map(|target| Action::DeleteNode { target })
                    .into_iter()
                    .collect()
            },
            |seen| {
                let target = the_node(seen).ok().map(|node| Target::from(&node.metadata));
                let change = NodeChange {
                    finalizers: Some(Vec::new()),
                    ..NodeChange::default()
                };
                target
                    .map(|target| Action::PatchNode { target, change })
                    .into_iter()
                    .collect()
            },
        ],
        holds: &[
            |seen| holds(is_deleting(&the_node(seen)?.metadata), "it is not being deleted"),
            |seen| holds(the_node(seen).is_err(), "it is still there"),
        ],
    },
    Case {
        name: "a pod is evicted when its budget allows it",
        objects: || vec![node(), pod("web-1"), pod("web-2"), budget(1, 1)],
        plans: &[|seen| evict(seen, |target| target)],
        holds: &[|seen| {
            holds(leaves(seen, "web-1"), "web-1 stays")?;
            holds(!leaves(seen, "web-2"), "web-2 leaves")
        }],
    },
    Case {
        name: "a pod stays when its budget needs it",
        objects: || vec![node(), pod("web-1"), pod("web-2"), budget(2, 0)],
        plans: &[|seen| evict(seen, |target| target)],
        holds: &[|seen| holds(!leaves(seen, "web-1"), "it was evicted")],
    },
    Case {
        name: "a pod of the same name that is another one is not evicted",
        objects: || vec![node(), pod("web-1")],
        plans: &[|seen| evict(seen, of_old)],
        holds: &[|seen| holds(!leaves(seen, "web-1"), "it was evicted")],
    },
    Case {
        name: "a pod is deleted whatever its budget says",
        objects: || vec![node(), pod("web-1"), pod("web-2"), budget(2, 0)],
        plans: &[|seen| {
            let pod = the_pod(seen, "web-1").map(|pod| Target::from(&pod.metadata));
            let grace_seconds = 1;
            pod.map(|pod| Action::DeletePod { pod, grace_seconds })
                .into_iter()
                .collect()
        }],
        holds: &[|seen| holds(leaves(seen, "web-1"), "it stays")],
    },
    Case {
        name: "a pool gets its status and its annotations, and others stay",
        objects: || vec![pool()],
        plans: &[
            |seen| {
                let target = the_pool(seen).ok().map(|pool| Target::from(&pool.metadata));
                let status = NodePoolStatus {
                    nodes: 3,
                    ..NodePoolStatus::default()
                };
                let action = target.map(|target| Action::PoolStatus {
                    target,
                    status: Box::new(status),
                });
                action.into_iter().collect()
            },
            |seen| {
                let target = the_pool(seen).ok().map(|pool| Target::from(&pool.metadata));
                let annotations = text("karpenter.sh/nodepool-hash", "42");
                let action = target.map(|target| Action::AnnotatePool { target, annotations });
                action.into_iter().collect()
            },
        ],
        holds: &[
            |seen| {
                let status = the_pool(seen)?.status.as_ref();
                holds(
                    status.is_some_and(|status| status.nodes == 3),
                    "the status is missing",
                )
            },
            |seen| {
                let annotations = the_pool(seen)?.metadata.annotations.clone().unwrap_or_default();
                holds(
                    annotations.len() >= 2,
                    &format!("the annotations are {annotations:?}"),
                )
            },
        ],
    },
    Case {
        name: "a claim that is launched says what it became, and launching it again gives the same instance",
        objects: || vec![class(), claim()],
        plans: &[launch, launch],
        holds: &[is_launched, is_launched],
    },
    Case {
        name: "an instance ends, and ending it again is fine",
        objects: || vec![class(), claim()],
        plans: &[launch, terminate, terminate],
        holds: &[is_launched, is_ended, is_ended],
    },
];

fn create(attempt: &str) -> Vec<Action> {
    let claim = serde_json::from_value::<NodeClaim>(claim())
        .ok()
        .map(|mut claim| {
            let labels = claim.metadata.labels.get_or_insert_default();
            labels.insert("attempt".to_owned(), attempt.to_owned());
            Action::CreateClaim(Box::new(claim))
        });
    claim.into_iter().collect()
}

fn terminate(snapshot: &Snapshot) -> Vec<Action> {
    let claim = the_claim(snapshot).ok();
    let id = claim.and_then(|claim| provider_id(claim)).map(str::to_owned);
    id.map(|provider_id| Action::Terminate { provider_id })
        .into_iter()
        .collect()
}

fn is_ended(snapshot: &Snapshot) -> Result<(), String> {
    let mut instances = snapshot.instances.iter();
    let runs =
        instances.any(|one| one.claim == "one" && one.state == veneer_engine::plan::InstanceState::Running);
    holds(!runs, "the instance still runs")
}

//! Which spares pods get, asked directly, and what opening one changes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/spares.rs"]
mod spares;

use std::sync::Arc;

use cluster::{Cluster, catalogue, read};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};
use spares::count;
use veneer_engine::plan::{Action, NodeChange, label, name};
use veneer_engine::provision::Market;
use veneer_steering::warm::promote::{Promotion, SERVED, Search, open_for_pods};
use veneer_steering::warm::{Spare, Spares, Stage};

fn with_a_spare() -> Cluster {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    cluster
}

fn find(cluster: &Cluster, search: &mut Search) -> Promotion {
    let mut market = Market::new(catalogue());
    market.update(&cluster.snapshot);
    let spares = Spares::of(&cluster.snapshot);
    search.find(&cluster.snapshot, &spares, &SERVED, &mut market, cluster.now)
}

#[test]
fn what_did_not_fit_is_tried_again_after_ten_seconds() {
    let mut cluster = with_a_spare();
    let mut search = Search::default();
    assert!(find(&cluster, &mut search).expected.is_empty(), "nobody waits");
    cluster.pod_with("one", "1", json!({"nodeSelector": {"disk": "fast"}}));
    assert!(find(&cluster, &mut search).expected.is_empty(), "its disk is not");
    // Somebody labels the node: neither the pods nor the spares are others.
    let node = Arc::make_mut(&mut cluster.snapshot.nodes[0]);
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert("disk".to_owned(), "fast".to_owned());
    cluster.now += SignedDuration::from_millis(9_999);
    assert!(find(&cluster, &mut search).expected.is_empty());
    cluster.now += SignedDuration::from_millis(1);
    let found = find(&cluster, &mut search);
    let node = name(&cluster.snapshot.nodes[0].metadata).to_owned();
    assert_eq!(found.expected, [("uid-one".to_owned(), node.clone())].into());
    assert_eq!(found.claims, [node].into());
    // What was found is not remembered as tried.
    assert_eq!(find(&cluster, &mut search).expected.len(), 1);
}

#[test]
fn another_pod_is_tried_at_once() {
    let mut cluster = with_a_spare();
    let mut search = Search::default();
    cluster.pod("huge", "60");
    assert!(find(&cluster, &mut search).expected.is_empty());
    cluster.pod("one", "1");
    assert!(find(&cluster, &mut search).expected.contains_key("uid-one"));
}

#[test]
fn a_pod_for_which_a_node_is_on_its_way_takes_no_spare() {
    let mut cluster = Cluster::with_pool();
    cluster.joins = false;
    cluster.pod("one", "1");
    let plan = cluster.decide();
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    let plan = cluster.decide();
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    assert_eq!(cluster.snapshot.node_claims.len(), 1);
    // A spare that is ready comes beside it.
    let ready = with_a_spare();
    cluster
        .snapshot
        .node_claims
        .extend(ready.snapshot.node_claims.clone());
    cluster.snapshot.nodes.extend(ready.snapshot.nodes.clone());
    cluster
        .snapshot
        .instances
        .extend(ready.snapshot.instances.clone());
    assert!(find(&cluster, &mut Search::default()).expected.is_empty());
    // The node on its way has room for one of these.
    cluster.pod("two", "1500m");
    assert_eq!(find(&cluster, &mut Search::default()).expected.len(), 1);
}

#[test]
fn nothing_is_given_while_a_spare_that_was_given_is_closed() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    cluster.pod("one", "1");
    let mut search = Search::default();
    assert_eq!(find(&cluster, &mut search).expected.len(), 1);
    // One was given to pods: its claim says so, its node does not yet.
    let used = Arc::make_mut(&mut cluster.snapshot.node_claims[0]);
    let labels = used.metadata.labels.get_or_insert_default();
    labels.insert("veneer.io/overprovisioned".to_owned(), "used".to_owned());
    let closed = Spares::of(&cluster.snapshot);
    assert!(closed.used.values().flatten().all(Spare::is_closed));
    assert_eq!(
        closed.base.values().copied().collect::<Vec<_>>(),
        [1],
        "and counts as a node"
    );
    assert!(find(&cluster, &mut search).expected.is_empty());
}

#[test]
fn a_spare_says_how_it_was_bought_and_since_when_it_is_ready() {
    let cluster = with_a_spare();
    let spares = Spares::of(&cluster.snapshot);
    let spare = spares.empty.values().flatten().next().unwrap();
    assert_eq!((spare.stage, spare.bought_as()), (Stage::Ready, Some("spot")));
    let conditions = &spare.claim.status.as_ref().unwrap().conditions;
    let since = conditions.iter().find(|one| one.type_ == "Initialized").unwrap();
    assert_eq!(spare.initialised(), Some(since.last_transition_time.0));
    let mut claim = (**spare.claim).clone();
    let labels = claim.metadata.labels.get_or_insert_default();
    labels.remove("veneer.io/purchase-option");
    let unknown = Arc::new(claim.clone());
    let mut other = spare.clone();
    other.claim = &unknown;
    assert_eq!(other.bought_as(), None, "overprovisioned is no way to buy");
    let labels = claim.metadata.labels.get_or_insert_default();
    labels.insert("karpenter.sh/capacity-type".to_owned(), "on-demand".to_owned());
    let plain = Arc::new(claim);
    let mut other = spare.clone();
    other.claim = &plain;
    assert_eq!(other.bought_as(), Some("on-demand"));
}

/// How a node changes when it is given to pods.
fn opened(labels: Value, annotations: Value, taints: Value) -> Option<NodeChange> {
    let mut labels = labels;
    labels["karpenter.sh/registered"] = json!("true");
    let node: Arc<Node> = read(json!({
        "metadata": {"name": "node", "labels": labels, "annotations": annotations},
        "spec": {"taints": taints}}));
    match open_for_pods(&node)? {
        Action::PatchNode { change, .. } => Some(change),
        other => panic!("unexpected: {other}"),
    }
}

#[test]
fn opening_a_node_takes_off_what_made_it_a_spare() {
    let spare = || json!({"veneer.io/overprovisioned": "true"});
    let real = with_a_spare();
    let node = &real.snapshot.nodes[0];
    let known = node.spec.as_ref().unwrap().taints.as_ref().unwrap();
    assert_eq!(label(&node.metadata, "veneer.io/overprovisioned"), Some("true"));
    let taint_of_real = json!(known);
    // The taint goes, others stay.
    let mut both = taint_of_real.as_array().unwrap().clone();
    both.push(json!({"key": "own", "effect": "NoSchedule"}));
    let change = opened(spare(), json!({}), json!(both)).unwrap();
    let left: Vec<String> = change.taints.unwrap().into_iter().map(|one| one.key).collect();
    assert_eq!(left, ["own"]);
    assert_eq!(change.labels["veneer.io/overprovisioned"], "used");
    assert!(change.annotations.is_empty(), "nobody protected it");
    // The taint alone, or the label alone, makes it a spare; without both it is open.
    assert!(opened(json!({}), json!({}), taint_of_real).is_some());
    assert!(opened(spare(), json!({}), json!([])).is_some());
    assert!(opened(json!({}), json!({}), json!([])).is_none());
    // Beside a Karpenter it was protected for being a spare; else somebody wants it to stay.
    let protected = || json!({"karpenter.sh/do-not-disrupt": "true"});
    let change = opened(spare(), protected(), json!([])).unwrap();
    assert_eq!(change.annotations["karpenter.sh/do-not-disrupt"], "false");
    let bought = json!({"veneer.io/overprovisioned": "true", "veneer.io/purchase-option": "spot"});
    let change = opened(bought, protected(), json!([])).unwrap();
    assert!(change.annotations.is_empty());
    assert_eq!(change.labels["karpenter.sh/capacity-type"], "spot");
    let unprotected = json!({"karpenter.sh/do-not-disrupt": "false"});
    assert!(
        opened(spare(), unprotected, json!([]))
            .unwrap()
            .annotations
            .is_empty()
    );
}

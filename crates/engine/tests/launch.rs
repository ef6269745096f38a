//! From pods to the fleet request, on the embedded catalogue.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use veneer_engine::catalogue::aws;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::launch::{
    AllocationStrategy, Basis, Filter, Fleet, LaunchError, Launcher, MAX_INSTANCE_TYPES, NodeClass,
    TargetCapacity, choice, claim_of, offering_starts,
};
use veneer_engine::packing::{Objects, Options, Problem, solve};

static CATALOGUE: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(aws::region("us-east-1").unwrap().catalogue));

/// Ten pods of 10 vCPU in a pool of recent general types, with these further requirements and overlays.
fn objects(requirements: Vec<Value>, overlays: Vec<Value>) -> Objects {
    let mut all = vec![
        json!({ "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"] }),
        json!({ "key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["5"] }),
        json!({ "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a", "us-east-1b"] }),
    ];
    all.extend(requirements);
    let pool = json!({ "metadata": { "name": "default" }, "spec": { "template": { "spec": {
        "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
        "requirements": all,
    } } } });
    let pod = |name: usize| {
        let requests = json!({ "cpu": "10", "memory": "16Gi" });
        json!({ "metadata": { "name": format!("pod-{name}") }, "spec": {
            "containers": [{ "name": "main", "resources": { "requests": requests } }] } })
    };
    let read = |values: Vec<Value>| serde_json::from_value(Value::Array(values)).unwrap();
    Objects {
        pods: serde_json::from_value::<Vec<Pod>>(Value::Array((0..10).map(pod).collect()))
            .unwrap()
            .into_iter()
            .collect(),
        node_pools: serde_json::from_value(json!([pool])).unwrap(),
        overlays: read(overlays),
        ..Objects::default()
    }
}

fn at_most(cpu: u32) -> Value {
    json!({ "key": "karpenter.k8s.aws/instance-cpu", "operator": "Lte", "values": [cpu.to_string()] })
}

fn bought_as(capacity_types: &[&str]) -> Value {
    json!({ "key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity_types })
}

fn overlay(key: &str, value: &str, adjustment: &str) -> Value {
    json!({ "metadata": { "name": "discount" }, "spec": { "priceAdjustment": adjustment,
        "requirements": [{ "key": key, "operator": "In", "values": [value] }] } })
}

/// The request for the only claim, with the assumed node class changed by `change`.
fn fleet_with(objects: &Objects, change: impl Fn(&mut NodeClass)) -> Result<Fleet, LaunchError> {
    let mut objects = objects.clone();
    if objects.overlays.is_empty() {
        // An overlay that matches nothing, so that there is an evaluation to read prices from.
        objects.overlays = serde_json::from_value(json!([overlay("example.com/none", "x", "-1%")])).unwrap();
    }
    let problem = Problem::from_objects(&objects, &CATALOGUE);
    let results = solve(&problem, &Options::default());
    assert_eq!(results.new_node_claims.len(), 1);
    let mut launcher = Launcher::new(results.vocabulary, &CATALOGUE.rules);
    let mut class = launcher.assumed_node_class(&CATALOGUE);
    change(&mut class);
    let starts = offering_starts(&CATALOGUE);
    let evaluation = problem.evaluation().unwrap();
    let claim = claim_of(
        &mut launcher,
        &results.new_node_claims[0],
        &CATALOGUE,
        evaluation,
        0,
        &starts,
    );
    launcher.fleet(&claim, &class)
}

fn fleet(objects: &Objects) -> Fleet {
    fleet_with(objects, |_| {}).unwrap()
}

fn architectures(fleet: &Fleet) -> BTreeSet<&str> {
    fleet
        .request
        .overrides()
        .map(|(_, each)| each.architecture.as_str())
        .collect()
}

fn discount() -> Value {
    overlay("kubernetes.io/arch", "arm64", "-50%")
}

#[test]
fn in_the_gap_no_discount_on_graviton_reaches_the_request() {
    let fleet = fleet(&objects(
        vec![at_most(128), bought_as(&["on-demand"])],
        vec![discount()],
    ));
    assert_eq!(architectures(&fleet), BTreeSet::from(["amd64"]));
    assert_eq!(fleet.request.strategy, Some(AllocationStrategy::LowestPrice));
}

#[test]
fn with_the_cap_at_192_the_discounted_graviton_type_wins() {
    let fleet = fleet(&objects(
        vec![at_most(192), bought_as(&["on-demand"])],
        vec![discount()],
    ));
    assert_eq!(architectures(&fleet), BTreeSet::from(["amd64", "arm64"]));
    assert_eq!(fleet.request.strategy, Some(AllocationStrategy::Prioritized));
    let choice = choice(&fleet.request).unwrap();
    assert_eq!(
        (&*choice.chosen.instance_type, choice.basis),
        ("c8g.48xlarge", Basis::Priority)
    );
    assert!((choice.chosen.priority - choice.chosen.list_price / 2.0).abs() < 1e-9);
}

#[test]
fn a_request_has_the_cheapest_60_types_one_override_per_zone_and_priorities_in_order() {
    let fleet = fleet(&objects(vec![bought_as(&["on-demand"])], vec![discount()]));
    let mut names: Vec<&str> = Vec::new();
    for (_, each) in fleet.request.overrides() {
        if !names.contains(&&*each.instance_type) {
            names.push(&each.instance_type);
        }
        assert_eq!(each.subnet_id, format!("subnet-{}", each.zone));
    }
    assert_eq!(names.len(), MAX_INSTANCE_TYPES);
    assert!(!fleet.truncated.is_empty());
    for config in &fleet.request.configs {
        let priorities: Vec<f64> = config.overrides.iter().map(|each| each.priority).collect();
        assert!(priorities.is_sorted(), "{priorities:?}");
        let images: BTreeSet<&str> = config
            .overrides
            .iter()
            .map(|each| each.image_id.as_str())
            .collect();
        assert_eq!(images.len(), 1);
    }
}

#[test]
fn spot_comes_before_on_demand_and_its_choice_is_an_assumption() {
    let fleet = fleet(&objects(vec![bought_as(&["spot", "on-demand"])], vec![]));
    assert_eq!(fleet.request.target, TargetCapacity::Spot);
    assert_eq!(
        fleet.request.strategy,
        Some(AllocationStrategy::PriceCapacityOptimized)
    );
    assert!(choice(&fleet.request).unwrap().basis.is_assumption());
}

#[test]
fn an_overlay_that_prices_on_demand_below_spot_takes_spot_out() {
    let covered = overlay("karpenter.sh/capacity-type", "on-demand", "-95%");
    let fleet = fleet(&objects(vec![bought_as(&["spot", "on-demand"])], vec![covered]));
    assert_eq!(fleet.request.target, TargetCapacity::OnDemand);
    assert_eq!(fleet.request.strategy, Some(AllocationStrategy::Prioritized));
    let spot = fleet
        .rejected
        .iter()
        .find(|rejection| rejection.filter == Filter::SpotOffering);
    assert!(spot.unwrap().offerings > 0);
}

#[test]
fn without_an_image_or_a_subnet_nothing_is_launched_and_the_reason_is_named() {
    let objects = objects(vec![bought_as(&["on-demand"])], vec![]);
    let without = |change: fn(&mut NodeClass)| fleet_with(&objects, change).unwrap_err();
    assert_eq!(without(|class| class.amis.clear()), LaunchError::NoImages);
    assert_eq!(without(|class| class.subnets.clear()), LaunchError::NoSubnets);
    let arm_only = fleet_with(&objects, |class| class.amis.retain(|ami| ami.id == "ami-arm64")).unwrap();
    assert_eq!(architectures(&arm_only), BTreeSet::from(["arm64"]));
    assert!(!arm_only.without_image.is_empty());
}

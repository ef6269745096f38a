//! Small scenarios, one constraint each: topology, affinity, ports, volumes, minimum values, reservations; and the
//! worked examples of the bin-packing guide.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use veneer_engine::catalogue::{aws, kwok};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::packing::{MinValuesPolicy, Options, Problem, ReservedMode, solve};

#[path = "support/scenarios.rs"]
mod scenarios;
use scenarios::*;

#[test]
fn a_zone_spread_gives_every_zone_its_share() {
    let results = run(&objects(
        vec![default_pool()],
        pods(7, "1", "1Gi", &spread(ZONE, json!({}))),
    ));
    let zones: BTreeSet<String> = (0..3).map(|claim| demand(&results, claim, ZONE)).collect();
    assert_eq!(zones, ["In [a]", "In [b]", "In [c]"].map(str::to_owned).into());
    let mut counts = counts(&results);
    counts.sort_unstable();
    assert_eq!(counts, [2, 2, 3]);
}

#[test]
fn a_hostname_spread_bounds_the_pods_of_one_node() {
    let results = run(&objects(
        vec![default_pool()],
        pods(5, "1", "1Gi", &spread(HOSTNAME, json!({ "maxSkew": 2 }))),
    ));
    let mut counts = counts(&results);
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 2]);
}

#[test]
fn min_domains_demands_more_zones_than_there_are() {
    let spec = spread(ZONE, json!({ "minDomains": 4 }));
    let results = run(&objects(vec![default_pool()], pods(5, "1", "1Gi", &spec)));
    assert_eq!(
        results.unschedulable.len(),
        2,
        "with a fourth zone missing, each zone takes one pod"
    );
    assert_eq!(
        results.unschedulable[0].reasons[0].message,
        format!("topology spread by {ZONE} leaves no domain for it")
    );
}

#[test]
fn a_soft_spread_gives_way() {
    let spec = spread(
        "example.com/rack",
        json!({ "whenUnsatisfiable": "ScheduleAnyway" }),
    );
    assert_eq!(
        counts(&run(&objects(vec![default_pool()], pods(3, "1", "1Gi", &spec)))),
        [3]
    );
}

#[test]
fn affinity_keeps_pods_in_one_zone_and_anti_affinity_on_nodes_of_their_own() {
    let together = run(&objects(
        vec![default_pool()],
        pods(80, "1", "1Gi", &affinity("podAffinity", ZONE)),
    ));
    assert_eq!(together.new_node_claims.len(), 2);
    let zones: BTreeSet<String> = (0..2).map(|claim| demand(&together, claim, ZONE)).collect();
    assert_eq!(zones.len(), 1, "{zones:?}");
    let apart = run(&objects(
        vec![default_pool()],
        pods(4, "1", "1Gi", &affinity("podAntiAffinity", HOSTNAME)),
    ));
    assert_eq!(counts(&apart), [1, 1, 1, 1]);
}

#[test]
fn anti_affinity_of_a_running_pod_keeps_others_away() {
    let mut objects = objects(vec![default_pool()], pods(1, "1", "1Gi", &json!({})));
    objects.nodes = read_shared(vec![node("n0", "4", json!({}), json!([]))]);
    let mut spec = affinity("podAntiAffinity", HOSTNAME);
    spec["nodeName"] = json!("n0");
    objects.pods.extend(read(vec![pod("loner", "1", "1Gi", spec)]));
    let results = run(&objects);
    assert!(results.existing_nodes.is_empty());
    assert_eq!(counts(&results), [1]);
}

#[test]
fn host_ports_are_taken_once_per_node() {
    let port = json!({ "containers": [{ "name": "m", "ports": [{ "containerPort": 80, "hostPort": 80 }] }] });
    assert_eq!(
        counts(&run(&objects(vec![default_pool()], pods(3, "1", "1Gi", &port)))),
        [1, 1, 1]
    );
}

#[test]
fn a_volume_keeps_its_pod_in_its_zone() {
    let spec = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] });
    let mut objects = objects(vec![default_pool()], pods(1, "1", "1Gi", &spec));
    assert_eq!(
        reason(&run(&objects)),
        "PersistentVolumeClaim default/data does not exist; create it or remove the volume"
    );
    objects.pvcs = read(vec![
        json!({ "metadata": { "name": "data", "namespace": "default",
        "annotations": { "pv.kubernetes.io/bind-completed": "yes" } }, "spec": { "volumeName": "pv" } }),
    ]);
    objects.pvs = read(vec![
        json!({ "metadata": { "name": "pv" }, "spec": { "nodeAffinity": { "required": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": ["b"] }] }] } } } }),
    ]);
    assert_eq!(demand(&run(&objects), 0, ZONE), "In [b]");
}

#[test]
fn a_node_attaches_only_as_many_volumes_as_its_driver_allows() {
    let spec = |claim: usize| json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": format!("data-{claim}") } }] });
    let with_volumes: Vec<Value> = (0..3)
        .map(|at| pod(&format!("p{at}"), "1", "1Gi", spec(at)))
        .collect();
    let mut objects = objects(vec![default_pool()], with_volumes);
    objects.nodes = read_shared(vec![node("n0", "8", json!({}), json!([]))]);
    objects.csi_nodes = read(vec![json!({ "metadata": { "name": "n0" }, "spec": { "drivers": [
        { "name": "ebs.csi.aws.com", "nodeID": "n0", "allocatable": { "count": 2 } }] } })]);
    objects.storage_classes = read(vec![json!({ "metadata": { "name": "fast" },
        "provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer" })]);
    let claim = |at: usize| {
        json!({ "metadata": { "name": format!("data-{at}"), "namespace": "default" },
        "spec": { "storageClassName": "fast" } })
    };
    objects.pvcs = read((0..3).map(claim).collect());
    let results = run(&objects);
    assert_eq!(results.existing_nodes[0].pods.len(), 2);
    assert_eq!(counts(&results), [1]);
}

#[test]
fn min_values_are_kept_or_lowered() {
    let demanding = pool(
        "default",
        json!({ "requirements": [{ "key": "kubernetes.io/arch",
        "operator": "Exists", "minValues": 2 }] }),
        json!({}),
    );
    let arm = json!({ "nodeSelector": { "kubernetes.io/arch": "arm64" } });
    let objects = objects(vec![demanding], pods(1, "1", "1Gi", &arm));
    assert!(!reason(&run(&objects)).is_empty());
    let lenient = Options {
        min_values: MinValuesPolicy::BestEffort,
        ..Options::default()
    };
    let results = run_with(&objects, &lenient);
    assert_eq!(counts(&results), [1]);
    assert!(results.new_node_claims[0].min_values_relaxed);
}

#[test]
fn a_pod_that_needs_devices_is_refused_with_the_reason() {
    let spec = json!({ "resourceClaims": [{ "name": "gpu", "resourceClaimName": "gpu" }] });
    let results = run(&objects(vec![default_pool()], pods(1, "1", "1Gi", &spec)));
    assert!(
        reason(&results).contains("dynamic resource allocation"),
        "{}",
        reason(&results)
    );
}

#[test]
fn a_pod_that_is_too_large_is_told_so() {
    let results = run(&objects(vec![default_pool()], pods(1, "100", "1Gi", &json!({}))));
    let expected = "no instance type is large enough (the pod asks for cpu 100, memory 1Gi, pods 1, DaemonSets included)";
    assert_eq!(reason(&results), expected);
}

#[test]
fn a_run_can_be_stopped() {
    let asked = std::cell::Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let options = Options {
        should_stop: &stop,
        ..Options::default()
    };
    let results = run_with(
        &objects(vec![default_pool()], pods(9, "1", "1Gi", &json!({}))),
        &options,
    );
    assert!(results.stopped);
    assert_eq!(counts(&results), [3]);
}

/// A catalogue with one type that has a reservation for two instances, beside on-demand capacity.
fn with_reservation() -> Arc<Catalogue> {
    let offering = |values: &[(&str, &str)], price: f64, capacity: i64| {
        let requirements: Vec<Value> = values
            .iter()
            .map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] }))
            .collect();
        json!({ "Price": price, "Available": true, "Requirements": requirements, "ReservationCapacity": capacity })
    };
    let reserved = [
        ("karpenter.sh/capacity-type", "reserved"),
        (ZONE, "a"),
        ("karpenter.k8s.aws/capacity-reservation-id", "cr-1"),
    ];
    let on_demand = [("karpenter.sh/capacity-type", "on-demand"), (ZONE, "a")];
    let types = json!([{ "name": "c4.large", "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": { "cpu": "4", "memory": "8Gi", "pods": "110" },
        "offerings": [offering(&reserved, 0.0, 2), offering(&on_demand, 0.2, 0)] }]);
    Arc::new(kwok::parse(&types.to_string(), "test").unwrap())
}

#[test]
fn reserved_capacity_is_used_up_and_then_waited_for_or_bought() {
    let objects = objects(vec![default_pool()], pods(3, "3", "1Gi", &json!({})));
    for (mode, claims, reserved) in [
        (ReservedMode::Strict, 2, 2),
        (ReservedMode::Fallback, 3, 2),
        (ReservedMode::Off, 3, 0),
    ] {
        let options = Options {
            reserved: mode,
            ..Options::default()
        };
        let results = solve(&Problem::from_objects(&objects, &with_reservation()), &options);
        assert_eq!(results.new_node_claims.len(), claims, "{mode:?}");
        let of_reservation = (0..claims)
            .filter(|claim| demand(&results, *claim, "karpenter.sh/capacity-type") == "In [reserved]");
        assert_eq!(of_reservation.count(), reserved, "{mode:?}");
        if mode == ReservedMode::Strict {
            assert_eq!(
                reason(&results),
                "reserved capacity would do, but all of it is taken for now"
            );
        }
    }
}

fn ec2_pool(requirements: Value) -> Value {
    json!({ "metadata": { "name": "default" }, "spec": { "template": { "spec": { "requirements": requirements,
        "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" } } } } })
}

/// Seed: ten pods of 12 vCPU go on one node of at least 128 vCPU, and both architectures stay candidates.
#[test]
fn ten_pods_of_twelve_vcpu_make_one_node_of_at_least_128() {
    let catalogue = Arc::new(aws::region("us-east-1").unwrap().catalogue);
    let general = json!([{ "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"] }]);
    let objects = objects(vec![ec2_pool(general)], pods(10, "12", "1Gi", &json!({})));
    let results = solve(&Problem::from_objects(&objects, &catalogue), &Options::default());
    assert_eq!(counts(&results), [10]);
    let names = names(&results, 0, &catalogue);
    let has = |suffix: &str, graviton: bool| {
        names
            .iter()
            .any(|name| name.ends_with(suffix) && is_graviton(name) == graviton)
    };
    assert!(
        has("32xlarge", false) && has("48xlarge", false) && has("48xlarge", true),
        "{names:?}"
    );
    assert!(!has("24xlarge", false) && !has("24xlarge", true));
}

fn is_graviton(name: &str) -> bool {
    let family = name.split('.').next().unwrap_or_default();
    let after_digit = family.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    after_digit
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .starts_with('g')
}

/// Seed: a pool capped at 128 vCPU with a claim of 100 vCPU has x86 candidates only, nearly all of 32xlarge.
#[test]
fn a_cap_at_128_vcpu_leaves_no_graviton_for_100() {
    let catalogue = Arc::new(aws::region("us-east-1").unwrap().catalogue);
    let capped = json!([
        { "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"] },
        { "key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["129"] }]);
    let objects = objects(vec![ec2_pool(capped)], pods(10, "10", "1Gi", &json!({})));
    let results = solve(&Problem::from_objects(&objects, &catalogue), &Options::default());
    assert_eq!(counts(&results), [10]);
    let names = names(&results, 0, &catalogue);
    assert!(!names.is_empty());
    assert!(names.iter().all(|name| !is_graviton(name)), "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.ends_with(".32xlarge") || name.contains("metal")),
        "{names:?}"
    );
}

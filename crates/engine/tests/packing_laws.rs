//! Laws that hold for every problem: nothing is lost, nothing is overfull, no constraint is broken.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use veneer_engine::catalogue::kwok;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::packing::{NewNodeClaim, Objects, Options, PodRecord, Problem, Results, solve};
use veneer_engine::quantity::Quantity;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
const ARCH: &str = "kubernetes.io/arch";

/// Types of 2 to 16 processors; the largest of one architecture is only offered in one zone.
fn catalogue() -> Arc<Catalogue> {
    let mut types = Vec::new();
    for (cpu, architecture, zones) in [
        (2, "amd64", &["a", "b", "c"][..]),
        (4, "amd64", &["a", "b", "c"]),
        (16, "amd64", &["a", "b"]),
        (2, "arm64", &["a", "b", "c"]),
        (8, "arm64", &["b", "c"]),
        (16, "arm64", &["c"]),
    ] {
        let offerings: Vec<Value> = zones
            .iter()
            .flat_map(|zone| [("spot", 0.01, zone), ("on-demand", 0.03, zone)])
            .map(|(capacity_type, price, zone)| {
                json!({ "Price": price * f64::from(cpu), "Available": true, "Requirements": [
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type] },
                    { "key": ZONE, "operator": "In", "values": [zone] }] })
            })
            .collect();
        types.push(
            json!({ "name": format!("{architecture}-{cpu}"), "architecture": architecture,
            "operatingSystems": ["linux"], "offerings": offerings,
            "resources": { "cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4), "pods": "8" } }),
        );
    }
    Arc::new(kwok::parse(&Value::Array(types).to_string(), "test").unwrap())
}

/// What a generated pod demands; every kind has the label `app` of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Generic,
    Arm,
    ZoneSpread,
    HostSpread,
    Apart,
    Together,
    Port,
}

const KINDS: [Kind; 7] = [
    Kind::Generic,
    Kind::Arm,
    Kind::ZoneSpread,
    Kind::HostSpread,
    Kind::Apart,
    Kind::Together,
    Kind::Port,
];

fn pod(number: usize, kind: Kind, cpu: u32, memory: u32) -> Value {
    let app = format!("{kind:?}");
    let selector = json!({ "matchLabels": { "app": app } });
    let spread = |key: &str| {
        json!([{ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector }])
    };
    let term = |key: &str| {
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": key, "labelSelector": selector }] })
    };
    let mut container = json!({ "name": "main", "resources": { "requests": {
        "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") } } });
    let mut spec = json!({});
    match kind {
        Kind::Generic => {}
        Kind::Arm => spec["nodeSelector"] = json!({ ARCH: "arm64" }),
        Kind::ZoneSpread => spec["topologySpreadConstraints"] = spread(ZONE),
        Kind::HostSpread => spec["topologySpreadConstraints"] = spread(HOSTNAME),
        Kind::Apart => spec["affinity"] = json!({ "podAntiAffinity": term(HOSTNAME) }),
        Kind::Together => spec["affinity"] = json!({ "podAffinity": term(ZONE) }),
        Kind::Port => container["ports"] = json!([{ "containerPort": 1, "hostPort": 8080 }]),
    }
    spec["containers"] = json!([container]);
    json!({ "metadata": { "name": format!("pod-{number}"), "namespace": "default", "uid": format!("uid-{number:04}"),
        "labels": { "app": app } }, "spec": spec })
}

#[derive(Clone, Debug)]
struct Generated {
    pods: Vec<(usize, u32, u32)>,
    nodes: Vec<(u32, usize)>,
    daemon_cpu: u32,
    cpu_limit: Option<u32>,
}

fn generated() -> impl Strategy<Value = Generated> {
    let pods = prop::collection::vec(
        (
            0..KINDS.len(),
            prop::sample::select(vec![0, 100, 500, 1500, 3000, 9000, 20_000]),
            prop::sample::select(vec![64, 1024, 6000]),
        ),
        1..60,
    );
    let nodes = prop::collection::vec((1..9_u32, 0..3_usize), 0..4);
    (pods, nodes, 0..800_u32, prop::option::of(10..200_u32)).prop_map(
        |(pods, nodes, daemon_cpu, cpu_limit)| Generated {
            pods,
            nodes,
            daemon_cpu,
            cpu_limit,
        },
    )
}

fn objects(generated: &Generated) -> Objects {
    fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).unwrap()
    }
    let pods = generated.pods.iter().enumerate();
    let nodes = generated.nodes.iter().enumerate().map(|(number, (cpu, zone))| {
        let amounts = json!({ "cpu": cpu.to_string(), "memory": "16Gi", "pods": "6" });
        let zone = ["a", "b", "c"][*zone];
        read(
            json!({ "metadata": { "name": format!("node-{number}"), "labels": {
                HOSTNAME: format!("node-{number}"), ZONE: zone, ARCH: "amd64" } },
            "spec": { "providerID": format!("x://{number}") },
            "status": { "allocatable": amounts, "capacity": amounts } }),
        )
    });
    let mut pool = json!({ "metadata": { "name": "default" }, "spec": { "template": { "spec": { "requirements": [],
        "nodeClassRef": { "group": "g", "kind": "K", "name": "n" } } } } });
    if let Some(limit) = generated.cpu_limit {
        pool["spec"]["limits"] = json!({ "cpu": limit.to_string() });
    }
    let daemon = json!({ "metadata": { "name": "agent", "namespace": "kube-system" }, "spec": { "selector": {},
        "template": { "spec": { "containers": [{ "name": "agent",
            "resources": { "requests": { "cpu": format!("{}m", generated.daemon_cpu) } } }] } } } });
    Objects {
        pods: pods
            .map(|(number, (kind, cpu, memory))| read(pod(number, KINDS[*kind], *cpu, *memory)))
            .collect(),
        nodes: nodes.map(Arc::new).collect(),
        node_pools: vec![read(pool)],
        daemon_sets: vec![read(daemon)],
        ..Objects::default()
    }
}

fn request(pod: &PodRecord, resource: &str) -> Quantity {
    let requests = pod.spec.as_ref().unwrap().containers[0]
        .resources
        .as_ref()
        .unwrap()
        .requests
        .as_ref()
        .unwrap();
    requests[resource].0.parse().unwrap()
}

fn kind(pod: &PodRecord) -> &str {
    &pod.metadata.labels.as_ref().unwrap()["app"]
}

/// The single value that a claim demands of a label, if it is single.
fn single(results: &Results, claim: &NewNodeClaim, key: &str) -> Option<String> {
    let requirement = claim.requirements.get(results.vocabulary.get(key)?)?;
    Some(results.vocabulary.text(requirement.single_value()?).to_owned())
}

/// The pods of every new claim and existing node, each place with the zone it is in, if that is known.
fn places(results: &Results, objects: &Objects) -> Vec<(Vec<usize>, Option<String>)> {
    let claims = results.new_node_claims.iter();
    let zone_of = |name: &str| {
        let node = objects
            .nodes
            .iter()
            .find(|node| node.metadata.name.as_deref() == Some(name));
        node.map(|node| node.metadata.labels.as_ref().unwrap()[ZONE].clone())
    };
    let nodes = results.existing_nodes.iter();
    claims
        .map(|claim| (claim.pods.clone(), single(results, claim, ZONE)))
        .chain(nodes.map(|node| (node.pods.clone(), zone_of(&node.name))))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_pod_is_placed_once_and_no_constraint_is_broken(generated in generated()) {
        let objects = objects(&generated);
        let catalogue = catalogue();
        let results = solve(&Problem::from_objects(&objects, &catalogue), &Options::default());

        let places = places(&results, &objects);
        let mut seen: Vec<usize> = places.iter().flat_map(|(pods, _)| pods.iter().copied()).collect();
        seen.extend(results.unschedulable.iter().map(|pod| pod.pod));
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..objects.pods.len()).collect::<Vec<_>>(), "every pod is somewhere, once");
        prop_assert!(results.unschedulable.iter().all(|pod| pod.reasons.iter().all(|reason| !reason.message.is_empty())));

        let daemon = Quantity::from_milli(i64::from(generated.daemon_cpu));
        for claim in &results.new_node_claims {
            prop_assert!(!claim.pods.is_empty() && !claim.instance_types.is_empty());
            let pods = || claim.pods.iter().map(|at| &objects.pods[*at]);
            let cpu: Quantity = pods().map(|pod| request(pod, "cpu")).fold(daemon.clone(), |sum, one| &sum + &one);
            let memory: Quantity = pods().map(|pod| request(pod, "memory")).fold(Quantity::ZERO, |sum, one| &sum + &one);
            prop_assert_eq!(claim.requests.get("cpu"), Some(&cpu));
            let prices: Vec<f64> = claim.instance_types.iter().map(|entry| {
                let it = &catalogue.types[*entry];
                let allocatable = it.allocatable();
                prop_assert!(cpu <= *allocatable.get("cpu").unwrap() && memory <= *allocatable.get("memory").unwrap());
                prop_assert!(claim.pods.len() < 8, "seven pods and the daemonset");
                let zone = single(&results, claim, ZONE);
                let offered = it.offerings.iter().filter(|offering| {
                    zone.as_deref().is_none_or(|zone| offering.zone(&catalogue.vocabulary) == Some(zone))
                });
                let cheapest = offered.map(|offering| offering.price).fold(f64::MAX, f64::min);
                prop_assert!(cheapest < f64::MAX, "every type that is left is offered there");
                if pods().any(|pod| kind(pod) == "Arm") {
                    prop_assert!(it.name.starts_with("arm64"));
                }
                Ok(cheapest)
            }).collect::<Result<_, TestCaseError>>()?;
            prop_assert!(prices.is_sorted(), "by price");
        }
        for node in &results.existing_nodes {
            let pods = || node.pods.iter().map(|at| &objects.pods[*at]);
            let cpu: Quantity = pods().map(|pod| request(pod, "cpu")).fold(daemon.clone(), |sum, one| &sum + &one);
            let slot = objects.nodes.iter().find(|slot| slot.metadata.name.as_ref() == Some(&node.name)).unwrap();
            let allocatable = slot.status.as_ref().unwrap().allocatable.as_ref().unwrap();
            prop_assert!(cpu <= allocatable["cpu"].0.parse().unwrap());
            prop_assert!(node.pods.len() < 6, "five pods and the daemonset");
        }

        let mut per_zone: BTreeMap<String, i32> = ["a", "b", "c"].map(|zone| (zone.to_owned(), 0)).into();
        let mut zones_together: BTreeSet<String> = BTreeSet::new();
        for (pods, zone) in &places {
            let count = |wanted: &str| pods.iter().filter(|at| kind(&objects.pods[**at]) == wanted).count();
            prop_assert!(count("Apart") <= 1 && count("HostSpread") <= 1 && count("Port") <= 1);
            if count("ZoneSpread") > 0 {
                let zone = zone.clone();
                prop_assert!(zone.is_some(), "a spread decides the zone");
                *per_zone.entry(zone.unwrap_or_default()).or_default() += i32::try_from(count("ZoneSpread")).unwrap();
            }
            if count("Together") > 0 {
                zones_together.insert(zone.clone().unwrap_or_default());
            }
        }
        let (most, least) = (per_zone.values().max().unwrap(), per_zone.values().min().unwrap());
        prop_assert!(most - least <= 1, "{:?}", per_zone);
        prop_assert!(zones_together.len() <= 1, "{:?}", zones_together);
    }

    #[test]
    fn the_order_of_the_input_does_not_matter_and_a_second_run_is_the_same(generated in generated()) {
        let catalogue = catalogue();
        let mut objects = objects(&generated);
        let solved = |objects: &Objects| {
            let results = solve(&Problem::from_objects(objects, &catalogue), &Options::default());
            let name = |at: &usize| objects.pods[*at].metadata.name.clone().unwrap();
            let claims: Vec<(Vec<String>, Arc<[usize]>)> = results.new_node_claims.iter()
                .map(|claim| (claim.pods.iter().map(name).collect(), Arc::clone(&claim.instance_types)))
                .collect();
            let nodes: Vec<(String, Vec<String>)> = results.existing_nodes.iter()
                .map(|node| (node.name.clone(), node.pods.iter().map(name).collect()))
                .collect();
            let failed: BTreeSet<String> = results.unschedulable.iter().map(|pod| name(&pod.pod)).collect();
            (claims, nodes, failed)
        };
        let first = solved(&objects);
        prop_assert_eq!(&first, &solved(&objects));
        objects.pods.reverse();
        objects.nodes.reverse();
        prop_assert_eq!(&first, &solved(&objects));
    }
}

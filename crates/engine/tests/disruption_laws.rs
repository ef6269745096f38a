//! Generated clusters: what is decided holds under a checker of its own, and what is said about nodes that stay is true.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::float_cmp,
    reason = "a test"
)]

#[path = "support/fleet.rs"]
mod fleet;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet::{Fleet, Random, merge, read};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use veneer_engine::disruption::{Blocker, Decision, Outcome};
use veneer_engine::plan::{Action, Snapshot};

const APPS: [&str; 4] = ["web", "api", "db", "batch"];
/// Where nodes can be.
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// By how many pods zones may differ for those that are spread.
const MAX_SKEW: usize = 1;

/// A cluster with holes in it.
fn generate(seed: u64) -> Fleet {
    generate_in(seed, &["a", "a", "b"])
}

/// The same with nodes of these pools only.
fn generate_in(seed: u64, pools: &[&str]) -> Fleet {
    let mut random = Random(seed);
    let mut fleet = Fleet::new();
    let budgets = [
        json!([{"nodes": "100%"}]),
        json!([{"nodes": "2"}]),
        json!([{"nodes": "0"}]),
        json!([{"nodes": "30%"}]),
    ];
    for pool in ["a", "b"] {
        let policy = if random.below(8) == 0 {
            "WhenEmpty"
        } else {
            "WhenEmptyOrUnderutilized"
        };
        let after = if random.below(10) == 0 { "Never" } else { "30s" };
        let budgets = random.one_of(&budgets).clone();
        fleet.pool(
            pool,
            json!({"spec": {"disruption": {"consolidationPolicy": policy, "consolidateAfter": after,
            "budgets": budgets}}}),
        );
    }
    let types = ["c.4", "m.4", "r.4", "c.8", "m.8", "r.8", "c.16", "m.16"];
    let nodes = 3 + random.below(15);
    for node in 0..nodes {
        let name = format!("n{node:02}");
        let it = *random.one_of(&types);
        let pool = *random.one_of(pools);
        let zone = *random.one_of(&["zone-a", "zone-b"]);
        let mut change = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
        match random.below(25) {
            0 => merge(
                &mut change,
                json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}),
            ),
            1 => merge(
                &mut change,
                json!({"metadata": {"labels": {
                "karpenter.sh/capacity-type": "overprovisioned", "veneer.io/purchase-option": "on-demand"}}}),
            ),
            _ => {}
        }
        fleet.node(&name, pool, it, change);
        let mut left = it.split_once('.').unwrap().1.parse::<i64>().unwrap() * 1000;
        // Some are empty, some full, most in between.
        let fill = match random.below(6) {
            0 => 0,
            1 => left,
            _ => left * i64::try_from(20 + random.below(60)).unwrap() / 100,
        };
        let floor = left - fill;
        for pod in 0..20 {
            let cpu = 250 * i64::try_from(1 + random.below(8)).unwrap();
            if left - cpu < floor {
                break;
            }
            left -= cpu;
            let app = *random.one_of(&APPS);
            let mut more = json!({"metadata": {"labels": {"app": app}}});
            match random.below(20) {
                0 => merge(
                    &mut more,
                    json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}),
                ),
                1 => merge(
                    &mut more,
                    json!({"spec": {"nodeSelector": {"topology.kubernetes.io/zone": zone}}}),
                ),
                2 => merge(
                    &mut more,
                    json!({"metadata": {"labels": {"alone": format!("x{node}-{pod}")}}}),
                ),
                _ => {}
            }
            fleet.pod(&format!("p{node:02}-{pod:02}"), &name, &format!("{cpu}m"), more);
        }
    }
    // Pods that keep away from their own kind, at most one to a node.
    for node in 0..nodes {
        if random.below(3) == 0 {
            let name = format!("n{node:02}");
            let apart = json!({"metadata": {"labels": {"app": "apart"}}, "spec": {"affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "apart"}}}]}}}});
            fleet.pod(&format!("apart-{node:02}"), &name, "0", apart);
        }
    }
    // Pods that want to be spread over the zones; how they lie now may be uneven.
    for node in 0..nodes {
        if random.below(4) == 0 {
            let spread = json!({"metadata": {"labels": {"app": "spread"}}, "spec": {"topologySpreadConstraints": [{
                "maxSkew": MAX_SKEW, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "spread"}}}]}});
            fleet.pod(&format!("spread-{node:02}"), &format!("n{node:02}"), "0", spread);
        }
    }
    if random.below(3) == 0 {
        let app = *random.one_of(&APPS);
        fleet.pdb(
            "some",
            json!({"matchLabels": {"app": app}}),
            i32::try_from(random.below(2)).unwrap(),
        );
    }
    if random.below(4) == 0 {
        fleet.overlay("discount", json!({"priceAdjustment": "-40%", "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["r.4", "r.8", "r.16"]}]}));
    }
    fleet
}

fn millicores(pod: &Pod) -> i64 {
    let text = &pod.spec.as_ref().unwrap().containers[0]
        .resources
        .as_ref()
        .unwrap()
        .requests
        .as_ref()
        .unwrap()["cpu"]
        .0;
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap(),
        None => text.parse::<i64>().unwrap() * 1000,
    }
}

fn cpu_of_type(name: &str) -> i64 {
    name.split_once('.').unwrap().1.parse::<i64>().unwrap() * 1000
}

fn label<'a>(labels: Option<&'a BTreeMap<String, String>>, key: &str) -> &'a str {
    labels
        .and_then(|labels| labels.get(key))
        .map_or("", String::as_str)
}

/// Holds a decision against what the objects say, with arithmetic of its own.
fn check(fleet: &mut Fleet, decision: &Decision) -> f64 {
    let snapshot = fleet.snapshot.clone();
    let nodes: BTreeMap<&str, _> = snapshot
        .nodes
        .iter()
        .map(|node| (node.metadata.name.as_deref().unwrap(), node))
        .collect();
    let pods: BTreeMap<String, &Arc<Pod>> = snapshot
        .pods
        .iter()
        .map(|pod| (format!("default/{}", pod.metadata.name.as_deref().unwrap()), pod))
        .collect();
    let claims: Vec<_> = decision
        .plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::CreateClaim(claim) => Some(claim),
            _ => None,
        })
        .collect();
    let mut on: BTreeMap<&str, String> = pods
        .iter()
        .map(|(name, pod)| {
            (
                name.as_str(),
                pod.spec.as_ref().unwrap().node_name.clone().unwrap(),
            )
        })
        .collect();
    let zone_of = |node: &str| {
        label(
            nodes[node].metadata.labels.as_ref(),
            "topology.kubernetes.io/zone",
        )
    };
    let mut zones: BTreeMap<String, String> = nodes
        .keys()
        .map(|node| ((*node).to_owned(), zone_of(node).to_owned()))
        .collect();
    let mut going: BTreeSet<&str> = BTreeSet::new();
    let mut saved = 0.0;
    let mut new = claims.iter();
    for command in &decision.started {
        let mut before = 0.0;
        let mut must_move: BTreeSet<&str> = BTreeSet::new();
        for node in &command.nodes {
            assert!(going.insert(node), "{node} goes twice");
            let labels = nodes[node.as_str()].metadata.labels.as_ref();
            assert!(
                label(labels, "karpenter.sh/capacity-type") != "overprovisioned",
                "spares are exempt"
            );
            before += fleet
                .market
                .price(
                    label(labels, "karpenter.sh/nodepool"),
                    label(labels, "node.kubernetes.io/instance-type"),
                    "on-demand",
                    label(labels, "topology.kubernetes.io/zone"),
                )
                .unwrap();
            must_move.extend(on.iter().filter(|(_, at)| *at == node).map(|(pod, _)| *pod));
        }
        let moved: BTreeSet<&str> = command.moves.iter().map(|(pod, _)| pod.as_str()).collect();
        assert_eq!(moved, must_move, "every pod of {:?} moves once", command.nodes);
        assert_eq!(moved.len(), command.moves.len());
        let mut after = 0.0;
        if command.replacements > 0 {
            let claim = new.next().unwrap();
            let mut requirements = claim.spec.requirements.iter();
            let zone = requirements.find(|one| one.key == "topology.kubernetes.io/zone");
            if let Some([zone]) = zone.map(|one| one.values.as_slice()) {
                zones.insert(format!("new-{}", command.nodes[0]), zone.clone());
            }
            let types = claim
                .spec
                .requirements
                .iter()
                .find(|one| one.key == "node.kubernetes.io/instance-type")
                .unwrap();
            let needed: i64 = command
                .moves
                .iter()
                .filter(|(_, to)| to.is_none())
                .map(|(pod, _)| millicores(pods[pod]))
                .sum();
            let pool = claim.metadata.labels.as_ref().unwrap()["karpenter.sh/nodepool"].clone();
            for it in &types.values {
                assert!(needed <= cpu_of_type(it), "{it} is too small for {needed}");
                let price = fleet.market.price(&pool, it, "on-demand", "zone-a").unwrap();
                assert!(price < before, "{it} at {price} is no saving on {before}");
                after = f64::max(after, price);
            }
        } else {
            assert!(command.moves.iter().all(|(_, to)| to.is_some()));
        }
        saved += before - after;
        for (pod, to) in &command.moves {
            let place = to.clone().unwrap_or_else(|| format!("new-{}", command.nodes[0]));
            let key = pods.get_key_value(pod).unwrap().0.as_str();
            on.insert(key, place);
        }
        evenly_spread(&command.moves, &on, &zones);
        assert!(before > after, "{command:?}");
    }
    // Where everything ends up.
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    let mut apart: BTreeSet<&str> = BTreeSet::new();
    for (name, place) in &on {
        assert!(
            !going.contains(place.as_str()),
            "{name} stays on {place}, which goes"
        );
        let pod = pods[*name];
        *used.entry(place).or_default() += millicores(pod);
        if label(pod.metadata.labels.as_ref(), "app") == "apart" {
            assert!(apart.insert(place), "two that keep apart on {place}");
        }
        let zone = pod
            .spec
            .as_ref()
            .unwrap()
            .node_selector
            .as_ref()
            .and_then(|list| list.get("topology.kubernetes.io/zone"));
        if let (Some(zone), Some(node)) = (zone, nodes.get(place.as_str())) {
            assert_eq!(
                label(node.metadata.labels.as_ref(), "topology.kubernetes.io/zone"),
                zone
            );
        }
    }
    for (place, used) in used {
        if let Some(node) = nodes.get(place) {
            let it = label(node.metadata.labels.as_ref(), "node.kubernetes.io/instance-type");
            assert!(used <= cpu_of_type(it), "{place}: {used} of {it}");
        }
    }
    budgets_and_pdbs(&snapshot, &going, &pods);
    saved
}

/// A zone that got one of the pods that are spread has at most so many more than the one with the fewest: all pods left
/// before the first was placed, and whatever was placed later only raised the fewest.
fn evenly_spread(
    moves: &[(String, Option<String>)],
    on: &BTreeMap<&str, String>,
    zones: &BTreeMap<String, String>,
) {
    let mut counts: BTreeMap<&str, usize> = ZONES.iter().map(|zone| (*zone, 0)).collect();
    let zone_of = |pod: &str| {
        let place = &on[pod];
        zones
            .get(place)
            .unwrap_or_else(|| panic!("{pod} goes to {place}, in any zone"))
    };
    let is_spread = |pod: &str| pod.starts_with("default/spread-");
    for pod in on.keys().filter(|pod| is_spread(pod)) {
        *counts.get_mut(zone_of(pod).as_str()).unwrap() += 1;
    }
    let fewest = *counts.values().min().unwrap();
    for (pod, _) in moves.iter().filter(|(pod, _)| is_spread(pod)) {
        let count = counts[zone_of(pod).as_str()];
        assert!(
            count <= fewest + MAX_SKEW,
            "{pod} goes where there are {count}: {counts:?}"
        );
    }
}

fn budgets_and_pdbs(snapshot: &Snapshot, going: &BTreeSet<&str>, pods: &BTreeMap<String, &Arc<Pod>>) {
    for pool in &snapshot.node_pools {
        let of_pool = |node: &&Arc<k8s_openapi::api::core::v1::Node>| {
            label(node.metadata.labels.as_ref(), "karpenter.sh/nodepool")
                == pool.metadata.name.as_deref().unwrap()
        };
        let all = snapshot.nodes.iter().filter(of_pool).count();
        let gone = snapshot
            .nodes
            .iter()
            .filter(of_pool)
            .filter(|node| going.contains(node.metadata.name.as_deref().unwrap()))
            .count();
        for budget in &pool.spec.disruption.budgets {
            let allowed = match budget.nodes.strip_suffix('%') {
                Some(percent) => (percent.parse::<usize>().unwrap() * all).div_ceil(100),
                None => budget.nodes.parse().unwrap(),
            };
            assert!(gone <= allowed, "{gone} of {allowed}");
        }
    }
    let blocked: Vec<String> = snapshot
        .pdbs
        .iter()
        .filter(|pdb| pdb.status.as_ref().unwrap().disruptions_allowed == Some(0))
        .map(|pdb| {
            pdb.spec
                .as_ref()
                .unwrap()
                .selector
                .as_ref()
                .unwrap()
                .match_labels
                .as_ref()
                .unwrap()["app"]
                .clone()
        })
        .collect();
    for pod in pods.values() {
        let node = pod.spec.as_ref().unwrap().node_name.as_deref().unwrap();
        if going.contains(node) {
            assert!(
                !blocked
                    .iter()
                    .any(|app| app == label(pod.metadata.labels.as_ref(), "app")),
                "a PDB is violated"
            );
            assert!(label(pod.metadata.annotations.as_ref(), "karpenter.sh/do-not-disrupt").is_empty());
        }
    }
}

fn edit<T: serde::Serialize + serde::de::DeserializeOwned>(
    object: &mut Arc<T>,
    change: impl FnOnce(&mut Value),
) {
    let mut value = serde_json::to_value(&**object).unwrap();
    change(&mut value);
    *object = read(value);
}

/// Takes a blocker away, as its remedy says.
fn free(fleet: &mut Fleet, node: &str, blocker: &Blocker) {
    let named = |pods: &[String], fleet: &mut Fleet| {
        fleet
            .snapshot
            .pods
            .retain(|pod| !pods.contains(&format!("default/{}", pod.metadata.name.as_deref().unwrap())));
    };
    let each_pool = |fleet: &mut Fleet, change: &dyn Fn(&mut Value)| {
        for pool in &mut fleet.snapshot.node_pools {
            edit(pool, |value| change(value));
        }
    };
    match blocker {
        Blocker::NodeAnnotation => {
            let at = fleet
                .snapshot
                .nodes
                .iter()
                .position(|one| one.metadata.name.as_deref() == Some(node))
                .unwrap();
            edit(&mut fleet.snapshot.nodes[at], |value| {
                value["metadata"]["annotations"] = json!({});
            });
        }
        Blocker::Spare => {
            let at = fleet
                .snapshot
                .nodes
                .iter()
                .position(|one| one.metadata.name.as_deref() == Some(node))
                .unwrap();
            let used = |value: &mut Value| {
                value["metadata"]["labels"]["karpenter.sh/capacity-type"] = json!("on-demand");
            };
            edit(&mut fleet.snapshot.nodes[at], used);
            let claim = format!("claim-{node}");
            let at = fleet
                .snapshot
                .node_claims
                .iter()
                .position(|one| one.metadata.name.as_deref() == Some(&claim))
                .unwrap();
            edit(&mut fleet.snapshot.node_claims[at], used);
        }
        Blocker::ConsolidationOff { .. } => each_pool(fleet, &|pool| {
            pool["spec"]["disruption"]["consolidateAfter"] = json!("30s");
        }),
        Blocker::OnlyEmpty { .. } => each_pool(fleet, &|pool| {
            pool["spec"]["disruption"]["consolidationPolicy"] = json!("WhenEmptyOrUnderutilized");
        }),
        Blocker::Budget { .. } => each_pool(fleet, &|pool| pool["spec"]["disruption"]["budgets"] = json!([])),
        Blocker::PodAnnotation { pod, .. } => {
            let name = pod.strip_prefix("default/").unwrap();
            let at = fleet
                .snapshot
                .pods
                .iter()
                .position(|one| one.metadata.name.as_deref() == Some(name))
                .unwrap();
            edit(&mut fleet.snapshot.pods[at], |value| {
                value["metadata"]["annotations"] = json!({});
            });
        }
        Blocker::Pdb { .. } => fleet.snapshot.pdbs.clear(),
        Blocker::NoPlace { pods } | Blocker::SeveralNodes { pods, .. } | Blocker::Price { pods, .. } => {
            named(pods, fleet);
        }
        // The others are held below.
        Blocker::Waits { .. } => {}
        other => panic!("not generated: {other:?}"),
    }
}

/// Whether a node goes when everything that is said to keep it is taken away, and no other goes before it.
fn goes_when_freed(seed: u64, node: &str, blockers: &[Blocker]) -> Result<(), String> {
    let mut fleet = generate(seed);
    for other in &mut fleet.snapshot.nodes {
        if other.metadata.name.as_deref() != Some(node) {
            edit(other, |value| {
                merge(
                    value,
                    json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}),
                );
            });
        }
    }
    blockers
        .iter()
        .for_each(|blocker| free(&mut fleet, node, blocker));
    // With all other nodes held, none of them can take the budget.
    let decision = fleet.decide();
    let fate = decision.fates.iter().find(|fate| fate.node == node).unwrap();
    match &fate.outcome {
        Outcome::Goes(_) => Ok(()),
        other => Err(format!(
            "seed {seed}: {node} kept by {blockers:?}; freed: {other:?}"
        )),
    }
}

fn cases() -> u64 {
    std::env::var("VENEER_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(60)
}

#[test]
fn commands_hold_under_an_independent_checker() {
    let (mut commands, mut with_new, mut together, mut saved) = (0, 0, 0, 0.0);
    for seed in 0..cases() {
        let mut fleet = generate(seed);
        let decision = fleet.decide();
        commands += decision.started.len();
        with_new += decision.started.iter().filter(|one| one.replacements > 0).count();
        together += decision.started.iter().filter(|one| one.nodes.len() > 1).count();
        saved += check(&mut fleet, &decision);
    }
    assert!(
        commands > 0 && with_new > 0 && together > 0 && saved > 0.0,
        "{commands} {with_new} {together}"
    );
}

#[test]
fn every_node_that_stays_goes_when_what_keeps_it_is_taken_away() {
    let mut stays = 0;
    let mut wrong: Vec<String> = Vec::new();
    for seed in 0..cases() {
        let mut fleet = generate(seed);
        let decision = fleet.decide();
        assert_eq!(
            decision.fates.len(),
            fleet.snapshot.nodes.len(),
            "every node has a fate"
        );
        for fate in decision.fates.iter() {
            if let Outcome::Stays(blockers) = &fate.outcome {
                stays += 1;
                assert!(!blockers.is_empty());
                wrong.extend(goes_when_freed(seed, &fate.node, blockers).err());
            }
        }
    }
    assert!(stays > 0);
    assert!(
        wrong.is_empty(),
        "{} of {stays}:\n{}",
        wrong.len(),
        wrong.iter().take(5).cloned().collect::<Vec<_>>().join("\n")
    );
}

/// Something happens to a cluster.
fn disturb(fleet: &mut Fleet, random: &mut Random, round: u64) {
    let snapshot = &mut fleet.snapshot;
    let pods = snapshot.pods.len() as u64;
    let at = |random: &mut Random, of: u64| usize::try_from(random.below(of.max(1))).unwrap();
    let node = at(random, snapshot.nodes.len() as u64);
    let pod = at(random, pods);
    match random.below(7) {
        0 if pods > 0 => drop(snapshot.pods.remove(pod)),
        1 if pods > 0 => {
            let pod = Arc::make_mut(&mut snapshot.pods[pod]);
            pod.metadata.resource_version = Some(round.to_string());
        }
        2 if pods > 0 => {
            let pod = Arc::make_mut(&mut snapshot.pods[pod]);
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
        }
        3 => {
            let node = Arc::make_mut(&mut snapshot.nodes[node]);
            node.status.get_or_insert_default().phase = Some(round.to_string());
        }
        4 => {
            let node = Arc::make_mut(&mut snapshot.nodes[node]);
            let spec = node.spec.get_or_insert_default();
            let taint = read(json!({"key": "maintenance", "effect": "NoSchedule"}));
            spec.taints = Some(vec![Arc::unwrap_or_clone(taint)]);
        }
        5 if pods > 0 => {
            let pod = Arc::make_mut(&mut snapshot.pods[pod]);
            pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        }
        _ => {
            let name = snapshot.nodes[node].metadata.name.clone().unwrap();
            fleet.pod(&format!("new-{round}"), &name, "500m", json!({}));
        }
    }
}

#[test]
fn what_is_remembered_from_the_last_pass_changes_no_decision() {
    let (mut anew, mut same) = (0, 0);
    for seed in 0..cases() {
        // One pool, since pools take turns.
        let mut fleet = generate_in(seed, &["a"]);
        let mut random = Random(seed);
        let before = fleet.decide();
        let mut last = before.fates;
        for round in 0..12 {
            disturb(&mut fleet, &mut random, round);
            let decision = fleet.decide();
            let mut fresh = Fleet::new();
            fresh.snapshot = fleet.snapshot.clone();
            fresh.policy = fleet.policy;
            fresh.now = fleet.now;
            let expected = fresh.decide();
            assert_eq!(decision.fates, expected.fates, "seed {seed}, round {round}");
            if decision.is_new {
                anew += 1;
            } else {
                same += 1;
                assert!(Arc::ptr_eq(&decision.fates, &last), "nothing was worked out");
            }
            last = decision.fates;
        }
    }
    assert!(anew > 0 && same > 0, "{anew} {same}");
}

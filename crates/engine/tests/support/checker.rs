//! Holds decisions about which nodes go against what the objects say. It shares no code with the search.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use veneer_api::Pod;
use veneer_engine::disruption::Decision;
use veneer_engine::plan::{Action, Snapshot};

use crate::fleet::Fleet;

/// Where nodes can be.
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// By how many pods zones may differ for those that are spread.
pub(crate) const MAX_SKEW: usize = 1;

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
pub(crate) fn check(fleet: &mut Fleet, decision: &Decision) -> f64 {
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

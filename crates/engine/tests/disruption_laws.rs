//! Generated clusters: what is decided holds under a checker of its own, and what is said about nodes that stay is true.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::float_cmp,
    reason = "a test"
)]

#[path = "support/checker.rs"]
mod checker;
#[path = "support/fleet.rs"]
mod fleet;

use std::sync::Arc;

use checker::{MAX_SKEW, check};
use fleet::{Fleet, Random, merge, read};
use serde_json::{Value, json};
use veneer_api::node_pool::ConsolidationPolicy;
use veneer_engine::disruption::{Blocker, Decision, Outcome, Policy};
use veneer_engine::plan::Action;

const APPS: [&str; 4] = ["web", "api", "db", "batch"];

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
        let policy = match random.below(8) {
            0 => "WhenEmpty",
            1 | 2 => "Balanced",
            _ => "WhenEmptyOrUnderutilized",
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
        let mut pools = fleet.snapshot.node_pools.iter();
        let pool = pools.find(|one| one.metadata.name.as_deref() == Some(pool));
        if pool.unwrap().spec.disruption.consolidate_after != "Never" && random.below(6) == 0 {
            edit(fleet.snapshot.node_claims.last_mut().unwrap(), |claim| {
                claim["status"]["lastPodEventTime"] = json!("2026-01-01T11:59:45Z");
                let conditions = claim["status"]["conditions"].as_array_mut().unwrap();
                conditions.retain(|one| one["type"] != "Consolidatable");
            });
        }
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
    // Pools with little left of their limits, or nothing.
    if random.below(3) == 0 {
        for (at, pool) in ["a", "b"].into_iter().enumerate() {
            let cpu = processors(&fleet, pool) + 4 * random.below(6);
            let pool = Arc::make_mut(&mut fleet.snapshot.node_pools[at]);
            pool.spec.limits = serde_json::from_value(json!({"cpu": cpu.to_string()})).unwrap();
        }
    }
    fleet
}

/// What the name of a type says.
fn size(instance_type: &str) -> u64 {
    instance_type.split_once('.').unwrap().1.parse().unwrap()
}

/// The processors of the nodes of a pool.
fn processors(fleet: &Fleet, pool: &str) -> u64 {
    let labels = fleet
        .snapshot
        .nodes
        .iter()
        .map(|node| node.metadata.labels.as_ref().unwrap());
    let of_pool = labels.filter(|labels| labels["karpenter.sh/nodepool"] == pool);
    of_pool
        .map(|labels| size(&labels["node.kubernetes.io/instance-type"]))
        .sum()
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
        Blocker::Quiet { .. } | Blocker::Destinations { .. } => {
            for claim in &mut fleet.snapshot.node_claims {
                let own = format!("claim-{node}");
                let is_own = claim.metadata.name.as_deref() == Some(&own);
                let is_meant = is_own == matches!(blocker, Blocker::Quiet { .. });
                if is_meant && claim.status.as_ref().unwrap().last_pod_event_time.is_some() {
                    edit(claim, |claim| {
                        claim["status"]["lastPodEventTime"] = Value::Null;
                        let consolidatable = json!({"type": "Consolidatable", "status": "True", "reason": "x", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"});
                        claim["status"]["conditions"]
                            .as_array_mut()
                            .unwrap()
                            .push(consolidatable);
                    });
                }
            }
        }
        Blocker::Balanced { .. } => each_pool(fleet, &|pool| {
            pool["spec"]["disruption"]["consolidationPolicy"] = json!("WhenEmptyOrUnderutilized");
        }),
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
        Blocker::Limits { .. } => each_pool(fleet, &|pool| pool["spec"]["limits"] = json!({})),
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

/// Sees that what is launched has room within the limits of its pool beside everything that is there; says how many
/// were launched in pools with limits.
fn launched_within_limits(fleet: &Fleet, decision: &Decision) -> usize {
    let mut launched = 0;
    for pool in &fleet.snapshot.node_pools {
        let Some(limit) = pool.spec.limits.get("cpu") else {
            continue;
        };
        let name = pool.metadata.name.as_deref().unwrap();
        let claims = decision.plan.actions.iter().filter_map(|action| match action {
            Action::CreateClaim(claim) => Some(claim),
            _ => None,
        });
        let mine =
            claims.filter(|claim| claim.metadata.labels.as_ref().unwrap()["karpenter.sh/nodepool"] == name);
        let mut most = processors(fleet, name);
        for claim in mine {
            let mut wants = claim.spec.requirements.iter();
            let types = wants
                .find(|one| one.key == "node.kubernetes.io/instance-type")
                .unwrap();
            most += types.values.iter().map(|it| size(it)).max().unwrap();
            launched += 1;
        }
        assert!(
            most <= limit.0.parse().unwrap(),
            "{most} of {}: {:?}",
            limit.0,
            decision.started
        );
    }
    launched
}

/// Sees that no pod is moved to a node that others have just come to; says how many are moved.
fn moves_to_quiet_nodes(fleet: &Fleet, decision: &Decision) -> usize {
    let moves = decision.started.iter().flat_map(|command| &command.moves);
    let mut moved = 0;
    for node in moves.filter_map(|(_, node)| node.as_deref()) {
        moved += 1;
        let name = format!("claim-{node}");
        let mut claims = fleet.snapshot.node_claims.iter();
        let claim = claims.find(|one| one.metadata.name.as_deref() == Some(&name));
        let status = claim.unwrap().status.as_ref().unwrap();
        assert!(
            status.last_pod_event_time.is_none(),
            "{node}: {:?}",
            decision.started
        );
    }
    moved
}

#[test]
fn commands_hold_under_an_independent_checker() {
    let (mut commands, mut with_new, mut together, mut saved) = (0, 0, 0, 0.0);
    let (mut at_limits, mut moves) = (0, 0);
    for seed in 0..cases() {
        let mut fleet = generate(seed);
        let decision = fleet.decide();
        commands += decision.started.len();
        with_new += decision.started.iter().filter(|one| one.replacements > 0).count();
        together += decision.started.iter().filter(|one| one.nodes.len() > 1).count();
        saved += check(&mut fleet, &decision);
        moves += moves_to_quiet_nodes(&fleet, &decision);
        at_limits += launched_within_limits(&fleet, &decision);
    }
    assert!(at_limits > 0 && moves > 0, "{commands} {with_new}");
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
fn what_goes_does_not_depend_on_whether_it_is_explained() {
    let mut started = [0, 0];
    for seed in 0..cases() {
        let whole = generate(seed);
        // Where only empty nodes go, only those are looked at.
        let mut only_empty = generate(seed);
        for pool in &mut only_empty.snapshot.node_pools {
            Arc::make_mut(pool).spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
        }
        only_empty.snapshot.pods.retain(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            node.is_some_and(|node| !node.ends_with(['1', '4', '7']))
        });
        for (mut fleet, started) in [whole, only_empty].into_iter().zip(&mut started) {
            let explained = fleet.decide();
            let mut silent = Fleet::new();
            silent.snapshot = fleet.snapshot.clone();
            silent.policy = Policy {
                explains: false,
                ..fleet.policy
            };
            silent.now = fleet.now;
            let decided = silent.decide();
            assert_eq!(decided.started, explained.started, "seed {seed}");
            let [ours, theirs] = [&decided, &explained].map(|one| format!("{:?}", one.plan));
            assert_eq!(ours, theirs, "seed {seed}");
            *started += decided.started.len();
        }
    }
    assert!(started.iter().all(|started| *started > 0), "{started:?}");
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

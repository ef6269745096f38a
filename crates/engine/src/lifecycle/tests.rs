use k8s_openapi::api::core::v1::Taint;
use serde_json::json;
use veneer_api::node_claim::{
    CONDITION_DRAINED, CONDITION_INITIALIZED, CONDITION_LAUNCHED, CONDITION_REGISTERED,
    CONDITION_VOLUMES_DETACHED,
};

use super::*;
use crate::plan::world::{World, read};
use crate::plan::{Action, Target, condition_true};

/// A world with one claim for the pod `a`, not yet launched.
fn claimed() -> World {
    let mut world = World::new();
    world.pool("default", |pool| {
        pool.spec.template.spec.taints = vec![taint("team", "NoSchedule")];
        pool.spec.template.spec.startup_taints = vec![taint("agent", "NoExecute")];
    });
    world.pod("a", json!({"cpu": "1"}));
    world.edit_pod("a", |pod| {
        pod.spec.as_mut().unwrap().tolerations =
            serde_json::from_value(json!([{"key": "team", "operator": "Exists"}])).unwrap();
    });
    for action in world.provision().plan.actions {
        world.act(action);
    }
    world.events.clear();
    world
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    }
}

fn claim(world: &World) -> &NodeClaim {
    &world.snapshot.node_claims[0]
}

fn condition(world: &World, type_: &str) -> String {
    let conditions = &claim(world).status.as_ref().unwrap().conditions;
    let one = veneer_api::find_condition(conditions, type_).unwrap();
    format!("{} {}", one.status, one.reason)
}

fn drop_taint(world: &mut World, key: &str) {
    let target = Target::from(&world.snapshot.nodes[0].metadata);
    world.edit_node(&target, |node| {
        let taints = node.spec.as_mut().unwrap().taints.as_mut().unwrap();
        taints.retain(|taint| taint.key != key);
    });
}

/// A world whose claim is ready and has pod `a` on its node.
fn ready() -> World {
    let mut world = claimed();
    world.settle(usize::MAX);
    drop_taint(&mut world, "agent");
    world.settle(usize::MAX);
    let node = name(&world.snapshot.nodes[0].metadata).to_owned();
    world.bind("a", &node);
    world
}

fn delete(world: &mut World) {
    let target = Target::from(&claim(world).metadata);
    world.act(Action::DeleteClaim {
        target,
        reason: "test",
    });
}

fn is_gone(world: &World) -> bool {
    let snapshot = &world.snapshot;
    snapshot.node_claims.is_empty() && snapshot.nodes.is_empty() && snapshot.instances.is_empty()
}

#[test]
fn a_claim_becomes_launched_registered_initialised_and_ready() {
    let mut world = claimed();
    world.settle(usize::MAX);
    assert!(condition_true(claim(&world), CONDITION_LAUNCHED));
    assert!(condition_true(claim(&world), CONDITION_REGISTERED));
    assert_eq!(
        condition(&world, CONDITION_INITIALIZED),
        "Unknown StartupTaintsExist"
    );
    let node = &world.snapshot.nodes[0];
    let keys: Vec<&str> = node::taints(node)
        .iter()
        .map(|taint| taint.key.as_str())
        .collect();
    assert_eq!(
        keys,
        ["team", "agent"],
        "the claim's taints in place of the one for unregistered nodes"
    );
    let labels = node.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["karpenter.sh/registered"], "true");
    assert_eq!(labels["karpenter.sh/nodepool"], "default");
    assert_eq!(labels.get("karpenter.sh/initialized"), None);

    drop_taint(&mut world, "agent");
    world.settle(usize::MAX);
    assert_eq!(condition(&world, "Ready"), "True Ready");
    assert_eq!(
        world.snapshot.nodes[0].metadata.labels.as_ref().unwrap()["karpenter.sh/initialized"],
        "true"
    );
    let status = claim(&world).status.as_ref().unwrap();
    assert_eq!(status.node_name, world.snapshot.nodes[0].metadata.name);
    assert_eq!(world.snapshot.node_pools[0].status.as_ref().unwrap().nodes, 1);
    assert_eq!(world.lifecycle().actions.len(), 0, "nothing is written twice");
}

#[test]
fn a_node_that_is_ready_loses_the_taint_of_nodes_that_are_not() {
    let mut world = claimed();
    world.settle(usize::MAX);
    drop_taint(&mut world, "agent");
    let become_ready = |world: &mut World, is_ready: bool| {
        let target = Target::from(&world.snapshot.nodes[0].metadata);
        world.edit_node(&target, |node| {
            let taints = node.spec.as_mut().unwrap().taints.get_or_insert_default();
            taints.retain(|taint| taint.key == "team");
            let key = "node.kubernetes.io/not-ready";
            taints.extend([taint(key, "NoSchedule"), taint(key, "NoExecute")]);
            let conditions = node.status.as_mut().unwrap().conditions.get_or_insert_default();
            let ready = conditions.iter_mut().find(|one| one.type_ == "Ready").unwrap();
            ready.status = if is_ready { "True" } else { "False" }.to_owned();
        });
    };
    let keys = |world: &World| {
        let taints = node::taints(&world.snapshot.nodes[0]).iter();
        taints.map(|taint| taint.key.clone()).collect::<Vec<_>>()
    };
    become_ready(&mut world, false);
    world.settle(usize::MAX);
    assert_eq!(keys(&world).len(), 3, "it is not ready");
    become_ready(&mut world, true);
    world.settle(usize::MAX);
    assert_eq!(keys(&world), ["team"]);
    assert_eq!(condition(&world, "Ready"), "True Ready");
    // A node that was complete once and turns not ready is none of our business.
    become_ready(&mut world, true);
    world.settle(usize::MAX);
    assert_eq!(keys(&world).len(), 3);
}

#[test]
fn an_extended_resource_is_waited_for() {
    let mut world = claimed();
    let target = Target::from(&claim(&world).metadata);
    world.edit_claim(&target, |claim| {
        let requests = &mut claim.spec.resources.requests;
        requests.insert(
            "pods".to_owned(),
            k8s_openapi::apimachinery::pkg::api::resource::Quantity("1".to_owned()),
        );
    });
    world.settle(usize::MAX);
    drop_taint(&mut world, "agent");
    let target = Target::from(&world.snapshot.nodes[0].metadata);
    world.edit_node(&target, |node| {
        node.status
            .as_mut()
            .unwrap()
            .allocatable
            .as_mut()
            .unwrap()
            .remove("pods");
    });
    world.settle(usize::MAX);
    assert_eq!(
        condition(&world, CONDITION_INITIALIZED),
        "Unknown ResourceNotRegistered"
    );
}

#[test]
fn claims_that_do_not_get_on_are_deleted_in_time() {
    let mut world = claimed();
    world.joins = false;
    world.settle(usize::MAX);
    assert_eq!(condition(&world, CONDITION_REGISTERED), "Unknown NodeNotFound");
    world.pass_time(14 * 60);
    world.settle(usize::MAX);
    assert_eq!(world.snapshot.node_claims.len(), 1);
    assert!(world.lifecycle().look_again.is_some());
    world.pass_time(61);
    world.settle(usize::MAX);
    assert!(is_gone(&world));
    let pool = world.snapshot.node_pools[0].status.as_ref().unwrap();
    let healthy = veneer_api::find_condition(&pool.conditions, "NodeRegistrationHealthy").unwrap();
    assert_eq!(
        (healthy.status.as_str(), healthy.reason.as_str()),
        ("False", "RegistrationFailed")
    );
}

#[test]
fn expired_claims_are_deleted() {
    let mut world = ready();
    let target = Target::from(&claim(&world).metadata);
    world.edit_claim(&target, |claim| claim.spec.expire_after = "1h".to_owned());
    world.pass_time(3_599);
    world.settle(usize::MAX);
    assert_eq!(world.snapshot.node_claims.len(), 1);
    world.pass_time(1);
    world.settle(usize::MAX);
    assert!(claim(&world).metadata.deletion_timestamp.is_some());
}

#[test]
fn a_deleted_claim_drains_its_node_before_the_instance_ends() {
    let mut world = ready();
    delete(&mut world);
    let evicts = |world: &mut World| {
        let actions = world.lifecycle().actions;
        actions
            .iter()
            .filter(|action| matches!(action, Action::Evict { .. }))
            .count()
    };
    assert_eq!(evicts(&mut world), 0, "the node is tainted first");
    // The node is deleted, its pool says that it has one less, and the node is tainted.
    world.settle(3);
    let key = |world: &World| {
        node::taints(&world.snapshot.nodes[0])
            .iter()
            .any(|taint| taint.key == "karpenter.sh/disrupted")
    };
    assert!(key(&world));
    assert_eq!(evicts(&mut world), 1);
    world.settle(usize::MAX);
    assert!(world.snapshot.pods.is_empty());
    assert_eq!(condition(&world, CONDITION_DRAINED), "Unknown Draining");
    assert_eq!(
        world.snapshot.instances.len(),
        1,
        "the scheduler may not have seen the taint yet"
    );
    world.pass_time(5);
    world.settle(usize::MAX);
    assert!(is_gone(&world));
}

#[test]
fn pods_leave_by_priority_and_protected_ones_are_waited_for() {
    let mut world = ready();
    let node = name(&world.snapshot.nodes[0].metadata).to_owned();
    for (pod, class, annotation) in [
        ("plain", "", ""),
        ("critical", "system-cluster-critical", ""),
        ("protected", "", "true"),
        ("young", "", "10m"),
        ("odd", "", "soon"),
    ] {
        world.pod(pod, json!({"cpu": "100m"}));
        world.bind(pod, &node);
        world.edit_pod(pod, |pod| {
            pod.spec.as_mut().unwrap().priority_class_name = Some(class.to_owned());
            if !annotation.is_empty() {
                let key = "karpenter.sh/do-not-disrupt".to_owned();
                pod.metadata.annotations = Some([(key, annotation.to_owned())].into());
            }
        });
    }
    delete(&mut world);
    // The node is deleted, its pool says that it has one less, and the node is tainted.
    world.settle(3);
    let mut evicted: Vec<String> = Vec::new();
    for action in world.lifecycle().actions {
        if let Action::Evict { pod } = &action {
            evicted.push(pod.name.clone());
        }
    }
    evicted.sort();
    assert_eq!(
        evicted,
        ["a", "odd", "plain"],
        "neither the critical one nor those that are protected"
    );
}

#[test]
fn the_termination_grace_period_beats_budgets_and_protection() {
    let mut world = ready();
    let target = Target::from(&claim(&world).metadata);
    world.edit_claim(&target, |claim| {
        claim.spec.termination_grace_period = Some("60s".to_owned());
    });
    world.edit_pod("a", |pod| {
        let key = "karpenter.sh/do-not-disrupt".to_owned();
        pod.metadata.annotations = Some([(key, "true".to_owned())].into());
        pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(20);
    });
    delete(&mut world);
    world.settle(usize::MAX);
    assert_eq!(world.snapshot.pods.len(), 1);
    world.pass_time(45);
    let deleted = world
        .lifecycle()
        .actions
        .into_iter()
        .find_map(|action| match action {
            Action::DeletePod { grace_seconds, .. } => Some(grace_seconds),
            _ => None,
        });
    assert_eq!(deleted, Some(15), "what is left of the node's time");
    world.settle(usize::MAX);
    assert!(is_gone(&world));
}

#[test]
fn volumes_are_waited_for() {
    let mut world = ready();
    let node = name(&world.snapshot.nodes[0].metadata).to_owned();
    world.snapshot.volume_attachments.push(read(json!({
        "metadata": {"name": "v"},
        "spec": {"attacher": "csi", "nodeName": node, "source": {"persistentVolumeName": "pv-1"}},
    })));
    delete(&mut world);
    world.settle(usize::MAX);
    world.pass_time(6);
    world.settle(usize::MAX);
    assert_eq!(
        condition(&world, CONDITION_VOLUMES_DETACHED),
        "Unknown AwaitingVolumeDetachment"
    );
    world.snapshot.volume_attachments.clear();
    world.settle(usize::MAX);
    assert!(is_gone(&world));
}

#[test]
fn a_deleted_node_takes_its_claim_with_it() {
    let mut world = ready();
    let target = Target::from(&world.snapshot.nodes[0].metadata);
    world.act(Action::DeleteNode { target });
    world.settle(usize::MAX);
    world.pass_time(6);
    world.settle(usize::MAX);
    assert!(is_gone(&world));
}

#[test]
fn garbage_is_collected_both_ways() {
    // The instance is gone, the node not ready.
    let mut world = ready();
    world.snapshot.instances.clear();
    world.settle(usize::MAX);
    assert_eq!(world.snapshot.node_claims.len(), 1, "a ready node has a kubelet");
    let target = Target::from(&world.snapshot.nodes[0].metadata);
    world.edit_node(&target, |node| node.status.as_mut().unwrap().conditions = None);
    world.settle(usize::MAX);
    assert!(is_gone(&world));

    // The claim is gone.
    let mut world = ready();
    world.snapshot.node_claims.clear();
    world.settle(usize::MAX);
    assert_eq!(
        world.snapshot.instances.len(),
        1,
        "the list of claims may be behind"
    );
    world.pass_time(31);
    world.settle(usize::MAX);
    assert!(world.snapshot.instances.is_empty());
}

#[test]
fn empty_nodes_go_after_the_configured_time_as_far_as_budgets_allow() {
    let mut world = ready();
    world.pass_time(60);
    world.settle(usize::MAX);
    assert_eq!(world.snapshot.node_claims.len(), 1, "a pod is there");
    world.snapshot.pods.clear();
    let node = name(&world.snapshot.nodes[0].metadata).to_owned();
    world.snapshot.pod_events.insert(node.clone(), world.now);
    world.settle(usize::MAX);
    world.pass_time(29);
    world.settle(usize::MAX);
    assert_eq!(world.snapshot.node_claims.len(), 1, "not quiet for long enough");
    world.pass_time(1);
    world
        .snapshot
        .nominations
        .insert(node, world.now + SignedDuration::from_secs(20));
    world.settle(usize::MAX);
    assert_eq!(world.snapshot.node_claims.len(), 1, "a pod is expected");
    world.pass_time(20);
    let pool = Arc::make_mut(&mut world.snapshot.node_pools[0]);
    pool.spec.disruption.budgets[0].nodes = "0".to_owned();
    world.settle(usize::MAX);
    assert_eq!(world.snapshot.node_claims.len(), 1, "the budget");
    let pool = Arc::make_mut(&mut world.snapshot.node_pools[0]);
    pool.spec.disruption.budgets[0].nodes = "10%".to_owned();
    world.settle(usize::MAX);
    world.pass_time(6);
    world.settle(usize::MAX);
    assert!(is_gone(&world));
}

/// Whoever acts may be killed after any action; what was decided before is lost, what was done stays.
#[test]
fn a_crash_after_any_action_loses_and_doubles_nothing() {
    for survived in 0..40 {
        let mut world = World::new();
        world.pool("default", |_| {});
        for pod in 0..4 {
            world.pod(&format!("p{pod}"), json!({"cpu": "6"}));
        }
        let plan = world.provision().plan;
        let claims = plan
            .actions
            .into_iter()
            .filter(|action| matches!(action, Action::CreateClaim(_)));
        let claims: Vec<Action> = claims.collect();
        assert_eq!(claims.len(), 4);
        let first = survived.min(4);
        claims
            .into_iter()
            .take(first)
            .for_each(|action| world.act(action));
        world.settle(survived - first);
        // A new process knows the snapshot alone.
        world.pass_time(3);
        for action in world.provision().plan.actions {
            world.act(action);
        }
        world.settle(usize::MAX);
        let count = |world: &World| {
            let snapshot = &world.snapshot;
            (
                snapshot.node_claims.len(),
                snapshot.nodes.len(),
                snapshot.instances.len(),
                world.launched.len(),
            )
        };
        assert_eq!(count(&world), (4, 4, 4, 4), "crash after {survived} actions");

        let targets: Vec<Target> = world
            .snapshot
            .node_claims
            .iter()
            .map(|one| Target::from(&one.metadata))
            .collect();
        for target in targets {
            world.act(Action::DeleteClaim {
                target,
                reason: "test",
            });
        }
        world.settle(survived);
        world.pass_time(10);
        world.settle(usize::MAX);
        world.pass_time(10);
        world.settle(usize::MAX);
        assert!(is_gone(&world), "crash after {survived} actions of the end");
    }
}

/// The types that the claims of a plan may be launched as.
fn launches(plan: &Plan) -> Vec<Vec<&str>> {
    let launches = plan.actions.iter().filter_map(|action| match action {
        Action::Launch { options, .. } => Some(options),
        _ => None,
    });
    launches
        .map(|options| {
            let mut types: Vec<&str> = options.iter().map(|one| one.instance_type.as_str()).collect();
            types.dedup();
            types
        })
        .collect()
}

#[test]
fn a_launch_falls_back_to_nothing_that_would_exceed_the_limits_of_its_pool() {
    let mut world = claimed();
    let plan = world.lifecycle();
    assert_eq!(launches(&plan)[0].first(), Some(&"small"));
    assert!(launches(&plan)[0].contains(&"large"), "{:?}", launches(&plan));
    // With limits the first choice is the largest that it may become, so that others can count on it.
    let limit = |world: &mut World, cpu: &str| {
        let pool = Arc::make_mut(&mut world.snapshot.node_pools[0]);
        let amount = k8s_openapi::apimachinery::pkg::api::resource::Quantity(cpu.to_owned());
        pool.spec.limits.insert("cpu".to_owned(), amount);
    };
    limit(&mut world, "16");
    assert_eq!(launches(&world.lifecycle()), [["small"]]);
    limit(&mut world, "1");
    let plan = world.lifecycle();
    assert!(launches(&plan).is_empty());
    let said: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|one| one.contains("LimitReached")), "{said:?}");
    assert!(
        said.iter().any(|one| one.ends_with("delete (limit_reached)")),
        "{said:?}"
    );
}

/// The reasons for which claims are deleted.
fn deleted(plan: &Plan) -> Vec<&'static str> {
    let reasons = plan.actions.iter().filter_map(|action| match action {
        Action::DeleteClaim { reason, .. } => Some(*reason),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn claims_are_launched_within_their_shares_while_the_limits_have_room_for_all() {
    let mut world = World::new();
    let limit = |pool: &mut veneer_api::NodePool, cpu: &str| {
        let amount = k8s_openapi::apimachinery::pkg::api::resource::Quantity(cpu.to_owned());
        pool.spec.limits.insert("cpu".to_owned(), amount);
    };
    world.pool("default", |pool| limit(pool, "9"));
    for (pod, cpu) in [("a", "3"), ("b", "3")] {
        world.pod(pod, json!({"cpu": cpu}));
        for action in world.provision().plan.actions {
            world.act(action);
        }
        world.pass_time(1);
    }
    let shares = world.snapshot.node_claims.iter().map(|claim| {
        let annotations = claim.metadata.annotations.as_ref().unwrap();
        annotations["veneer.io/share"].as_str()
    });
    assert_eq!(shares.collect::<Vec<_>>(), [r#"{"cpu":"4"}"#; 2]);
    assert_eq!(launches(&world.lifecycle()), [["medium"], ["medium"]]);
    // One of them is under way and keeps its room; what is left is not enough for the other.
    let pool = Arc::make_mut(&mut world.snapshot.node_pools[0]);
    limit(pool, "7");
    let under_way = name(&claim(&world).metadata).to_owned();
    world.snapshot.launching.insert(under_way.clone());
    let plan = world.lifecycle();
    assert_eq!(
        (launches(&plan).len(), deleted(&plan)),
        (0, vec!["limit_reached"])
    );
    // Of two that wait, one goes and makes room for the other.
    world.snapshot.launching.clear();
    let plan = world.lifecycle();
    assert_eq!(launches(&plan), [["medium"]]);
    assert_eq!(deleted(&plan), ["limit_reached"]);
}

#[test]
fn a_claim_whose_pool_is_gone_is_not_launched() {
    for gone in [true, false] {
        let mut world = claimed();
        if gone {
            world.snapshot.node_pools.clear();
        } else {
            let pool = Arc::make_mut(&mut world.snapshot.node_pools[0]);
            pool.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
        }
        let plan = world.lifecycle();
        assert!(launches(&plan).is_empty());
        world.settle(usize::MAX);
        assert!(is_gone(&world), "{:?}", world.snapshot.node_claims);
        assert!(
            world
                .events
                .iter()
                .any(|event| event.reason == "NodePoolDeleted" && event.message.contains("another one"))
        );
    }
}

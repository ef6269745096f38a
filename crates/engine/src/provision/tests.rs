use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use veneer_api::NodeClaim;

use super::*;
use crate::plan::world::{World, read};
use crate::plan::{NodeClass, Shortage};

fn created(decided: &Provisioned) -> Vec<&NodeClaim> {
    let actions = decided.plan.actions.iter();
    actions
        .filter_map(|action| match action {
            Action::CreateClaim(claim) => Some(&**claim),
            _ => None,
        })
        .collect()
}

fn values<'a>(claim: &'a NodeClaim, key: &str) -> Vec<&'a str> {
    let found = claim.spec.requirements.iter().find(|one| one.key == key);
    found.map_or_else(Vec::new, |one| one.values.iter().map(String::as_str).collect())
}

fn world() -> World {
    let mut world = World::new();
    world.pool("default", |_| {});
    world
}

#[test]
fn a_pending_pod_gets_a_claim_with_everything_that_its_node_needs() {
    let mut world = World::new();
    world.pool("default", |pool| {
        pool.spec
            .template
            .metadata
            .labels
            .insert("team".to_owned(), "blue".to_owned());
        pool.spec.template.spec.expire_after = "24h".to_owned();
    });
    world.pod("a", json!({"cpu": "3"}));
    let decided = world.provision();
    let claims = created(&decided);
    let claim = claims[0];
    assert_eq!(claims.len(), 1);
    assert!(
        name(&claim.metadata).starts_with("default-"),
        "{:?}",
        claim.metadata.name
    );
    assert_eq!(
        values(claim, "node.kubernetes.io/instance-type"),
        ["medium", "large"]
    );
    assert_eq!(values(claim, "karpenter.sh/capacity-type"), ["on-demand", "spot"]);
    assert_eq!(claim.spec.expire_after, "24h");
    assert_eq!(claim.spec.resources.requests["cpu"], Quantity("3".to_owned()));
    let labels = claim.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["team"], "blue");
    assert_eq!(labels["karpenter.sh/nodepool"], "default");
    assert_eq!(labels["karpenter.kwok.sh/kwoknodeclass"], "default");
    assert!(
        !claim
            .spec
            .requirements
            .iter()
            .any(|one| one.key == "karpenter.sh/registered")
    );
    assert_eq!(
        claim.metadata.finalizers.as_deref().unwrap(),
        ["karpenter.sh/termination"]
    );
    assert_eq!(decided.expected["uid-a"], name(&claim.metadata));
    assert_eq!(decided.plan.actions.len(), 2, "the claim and the nomination");
}

#[test]
fn a_claim_that_is_not_launched_yet_takes_its_pods_and_counts_against_limits() {
    let mut world = World::new();
    world.pool("default", |pool| {
        pool.spec
            .limits
            .insert("cpu".to_owned(), Quantity("4".to_owned()));
    });
    world.pod("a", json!({"cpu": "3"}));
    let first = world.provision();
    first
        .plan
        .actions
        .into_iter()
        .for_each(|action| world.act(action));
    // The same pod again, and another one that would need a second node.
    world.pod("b", json!({"cpu": "3"}));
    world.pass_time(1);
    let second = world.provision();
    assert_eq!(created(&second).len(), 0);
    assert_eq!(second.expected.keys().collect::<Vec<_>>(), ["uid-a"]);
    let reasons = &second.pending["default/b"];
    assert_eq!(
        reasons[0].message,
        "every instance type would exceed what its limits leave"
    );
}

/// Everything of a type is short.
fn run_short(world: &mut World, instance_type: &str) {
    for capacity_type in ["spot", "on-demand"] {
        for zone in ["zone-a", "zone-b"] {
            world.snapshot.shortages.push(Shortage {
                instance_type: instance_type.to_owned(),
                capacity_type: capacity_type.to_owned(),
                zone: zone.to_owned(),
            });
        }
    }
}

#[test]
fn a_claim_keeps_its_share_of_the_limits_when_nothing_of_it_is_left_to_buy() {
    let mut world = World::new();
    world.pool("default", |pool| {
        let limits = [("cpu", "8"), ("nodes", "5")];
        let limits = limits.map(|(resource, most)| (resource.to_owned(), Quantity(most.to_owned())));
        pool.spec.limits.extend(limits);
    });
    world.pod("a", json!({"cpu": "3"}));
    let first = world.provision();
    let claim = created(&first)[0].clone();
    assert_eq!(
        claim.metadata.annotations.as_ref().unwrap()["veneer.io/share"],
        r#"{"cpu":"4","nodes":"1"}"#,
        "of what is limited, what the cheapest type has, and the node"
    );
    first
        .plan
        .actions
        .into_iter()
        .for_each(|action| world.act(action));
    // The launch may have been under way when the process was killed, so its instance may be there.
    run_short(&mut world, "medium");
    world.market.update(&world.snapshot);
    assert_eq!(
        world.market.options(&claim, 9),
        [],
        "nothing larger than its share"
    );
    world.pod("b", json!({"cpu": "5"}));
    world.pass_time(1);
    let second = world.provision();
    assert_eq!(created(&second).len(), 0, "{second:?}");
    assert!(second.pending.contains_key("default/b"));
    // Without limits a claim may become anything.
    Arc::make_mut(&mut world.snapshot.node_pools[0])
        .spec
        .limits
        .clear();
    let third = world.provision();
    let annotations = created(&third)[0].metadata.annotations.clone().unwrap();
    assert_eq!(annotations.get("veneer.io/share"), None);
}

#[test]
fn the_cheapest_offering_after_overlays_is_launched() {
    let mut world = world();
    world.pod("a", json!({"cpu": "1"}));
    let decided = world.provision();
    let claim = created(&decided)[0].clone();
    let first = world.market.options(&claim, 9).remove(0);
    assert_eq!(
        (first.instance_type.as_str(), first.zone.as_str()),
        ("small", "zone-a")
    );
    assert_eq!(
        (
            first.capacity_type.as_str(),
            first.labels["kubernetes.io/os"].as_str()
        ),
        ("spot", "linux")
    );

    world.snapshot.overlays.push(read(json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "large"},
        "spec": {"price": "0.01", "capacity": {"example.com/fuse": "5"}, "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}]},
    })));
    let decided = world.provision();
    let claim = created(&decided)[0].clone();
    let first = world.market.options(&claim, 9).remove(0);
    assert_eq!((first.instance_type.as_str(), first.price), ("large", 0.01));
    assert_eq!(first.allocatable["example.com/fuse"], Quantity("5".to_owned()));
    let annotations = claim.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["karpenter.sh/price-overlay-applied"], "true");
    assert_eq!(annotations["karpenter.sh/capacity-overlay-applied"], "true");
}

#[test]
fn what_the_provider_has_run_out_of_is_neither_packed_nor_launched() {
    let mut world = world();
    world.pod("a", json!({"cpu": "1"}));
    run_short(&mut world, "small");
    let decided = world.provision();
    let claim = created(&decided)[0];
    assert_eq!(
        values(claim, "node.kubernetes.io/instance-type"),
        ["medium", "large"]
    );
    world.snapshot.shortages.clear();
    world.market.update(&world.snapshot);
    assert_eq!(world.market.options(claim, 1)[0].instance_type, "medium");
}

#[test]
fn pools_that_cannot_launch_say_why_and_others_go_on() {
    let mut world = world();
    world.pool("lost", |pool| {
        pool.spec.weight = Some(100);
        pool.spec.template.spec.node_class_ref.name = "gone".to_owned();
    });
    world.pool("forbidden", |pool| {
        pool.spec.weight = Some(90);
        let labels = &mut pool.spec.template.metadata.labels;
        labels.insert("karpenter.sh/registered".to_owned(), "yes".to_owned());
    });
    world.snapshot.node_classes.push(NodeClass {
        name: "unready".to_owned(),
        not_ready: Some("no subnet matches".to_owned()),
        ..world.snapshot.node_classes[0].clone()
    });
    world.pool("waiting", |pool| {
        pool.spec.weight = Some(80);
        pool.spec.template.spec.node_class_ref.name = "unready".to_owned();
    });
    world.pod("a", json!({"cpu": "1"}));
    assert_eq!(
        created(&world.provision())[0].metadata.labels.as_ref().unwrap()["karpenter.sh/nodepool"],
        "default"
    );

    world.settle(usize::MAX);
    let message = |pool: &str, type_: &str| {
        let pools = world.snapshot.node_pools.iter();
        let pool = pools.clone().find(|one| name(&one.metadata) == pool).unwrap();
        let conditions = &pool.status.as_ref().unwrap().conditions;
        let one = veneer_api::find_condition(conditions, type_).unwrap();
        format!("{} {} {}", one.status, one.reason, one.message)
    };
    assert_eq!(message("default", "Ready"), "True Ready ");
    assert_eq!(
        message("lost", "NodeClassReady"),
        "False NodeClassNotFound spec.template.spec.nodeClassRef: there is no KWOKNodeClass \"gone\" of group \
         karpenter.kwok.sh; create it, or name one that exists"
    );
    assert_eq!(
        message("lost", "Ready"),
        "False UnhealthyDependents NodeClassReady=False"
    );
    assert_eq!(
        message("waiting", "NodeClassReady"),
        "False NodeClassNotReady no subnet matches"
    );
    assert!(
        message("forbidden", "ValidationSucceeded")
            .starts_with("False NodePoolValidationFailed spec.template.metadata.labels")
    );
    let warned: Vec<&str> = world
        .events
        .iter()
        .map(|event| event.subject.target.name.as_str())
        .collect();
    assert_eq!(warned, ["lost", "forbidden", "waiting"], "once each");
}

#[test]
fn a_pool_whose_requirements_leave_nothing_is_warned_about() {
    let mut world = World::new();
    world.pool("impossible", |pool| {
        pool.spec.template.spec.requirements = serde_json::from_value(json!([
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["huge"]}]))
        .unwrap();
    });
    world.settle(usize::MAX);
    let reasons: Vec<&str> = world.events.iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["NoCompatibleInstanceTypes"]);
}

#[test]
fn the_fingerprint_changes_with_the_template_but_not_with_requirements() {
    let mut world = world();
    let mut pool = NodePool::clone(&world.snapshot.node_pools[0]);
    let before = pool_hash(&pool);
    pool.spec.template.spec.requirements = serde_json::from_value(json!([
        {"key": "a", "operator": "Exists"}]))
    .unwrap();
    pool.spec.weight = Some(3);
    assert_eq!(pool_hash(&pool), before);
    pool.spec
        .template
        .metadata
        .labels
        .insert("a".to_owned(), "b".to_owned());
    assert_ne!(pool_hash(&pool), before);
    world.settle(usize::MAX);
    let annotations = world.snapshot.node_pools[0]
        .metadata
        .annotations
        .as_ref()
        .unwrap();
    assert_eq!(annotations["karpenter.sh/nodepool-hash"], before);
}

use veneer_api::NodePool;

#[test]
fn static_pools_keep_their_number_of_nodes() {
    let mut world = World::new();
    world.pool("fixed", |pool| {
        pool.spec.replicas = Some(3);
        pool.spec
            .limits
            .insert("nodes".to_owned(), Quantity("4".to_owned()));
    });
    world.settle(usize::MAX);
    assert_eq!(world.snapshot.nodes.len(), 3);
    let set = |world: &mut World, replicas| {
        std::sync::Arc::make_mut(&mut world.snapshot.node_pools[0])
            .spec
            .replicas = Some(replicas);
        world.pass_time(10);
        world.settle(usize::MAX);
        world.pass_time(10);
        world.settle(usize::MAX);
        world.snapshot.nodes.len()
    };
    assert_eq!(set(&mut world, 9), 4, "the limit");
    let busy = name(&world.snapshot.nodes[0].metadata).to_owned();
    world.pod("a", json!({"cpu": "1"}));
    world.bind("a", &busy);
    assert_eq!(set(&mut world, 1), 1);
    assert_eq!(
        name(&world.snapshot.nodes[0].metadata),
        busy,
        "empty nodes go first"
    );
    assert_eq!(set(&mut world, 0), 0);
    assert!(world.snapshot.instances.is_empty() && world.snapshot.node_claims.is_empty());
}

#[test]
fn a_pool_whose_last_node_is_gone_says_zero_once() {
    let mut world = World::new();
    world.pool("default", |pool| {
        let status = pool.status.get_or_insert_default();
        for (resource, amount) in [
            ("cpu", "8"),
            ("memory", "32Gi"),
            ("nvidia.com/gpu", "1"),
            ("nodes", "1"),
        ] {
            status
                .resources
                .insert(resource.to_owned(), Quantity(amount.to_owned()));
        }
        status.nodes = 1;
    });
    let mut statuses = 0;
    for _ in 0..5 {
        let plan = decide_pools(&world.snapshot, &mut world.market, world.now);
        for action in plan.actions {
            statuses += usize::from(matches!(action, Action::PoolStatus { .. }));
            world.act(action);
        }
        world.pass_time(1);
    }
    let status = world.snapshot.node_pools[0].status.clone().unwrap();
    assert_eq!(statuses, 1, "{status:?}");
    let shown: Vec<String> = status
        .resources
        .iter()
        .map(|(name, amount)| format!("{name}={}", amount.0))
        .collect();
    assert_eq!(
        shown.join(" "),
        "cpu=0 ephemeral-storage=0 memory=0 nodes=0 nvidia.com/gpu=0 pods=0"
    );
}

#[test]
fn pods_that_come_together_are_decided_about_together() {
    let window = Window::default();
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let at = |millis| start + SignedDuration::from_millis(millis);
    let pods = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let mut batch = Batch::default();
    let all = |_: &str| Place::Coming;
    assert_eq!(batch.take(&pods(&[]), all, 1, window, at(0)), Err(None));
    assert_eq!(
        batch.take(&pods(&["a"]), all, 1, window, at(0)),
        Err(Some(at(1_000)))
    );
    assert_eq!(
        batch.take(&pods(&["a", "b"]), all, 1, window, at(900)),
        Err(Some(at(1_900)))
    );
    assert_eq!(batch.take(&pods(&["a", "b"]), all, 1, window, at(1_900)), Ok(()));
    let places = [("a".to_owned(), "claim".to_owned())].into();
    batch.decided(
        &pods(&["a", "b"]),
        &places,
        SignedDuration::from_secs(20),
        window,
        at(1_900),
    );
    // `a` has its place, `b` is tried again later, or when something changes.
    assert_eq!(
        batch.take(&pods(&["a", "b"]), all, 1, window, at(2_000)),
        Err(Some(at(11_900)))
    );
    assert_eq!(
        batch.take(&pods(&["a", "b"]), all, 2, window, at(3_000)),
        Err(Some(at(4_000)))
    );
    assert_eq!(
        batch.take(&pods(&["a"]), all, 2, window, at(4_000)),
        Err(Some(at(21_900)))
    );
    // The node takes pods, and five seconds later `a` has still not come: it is decided about again.
    let open = |_: &str| Place::Open;
    assert_eq!(
        batch.take(&pods(&["a"]), open, 2, window, at(4_100)),
        Err(Some(at(9_100)))
    );
    let mut settled = batch.clone();
    assert_eq!(
        settled.take(&pods(&["a"]), open, 2, window, at(9_100)),
        Err(Some(at(10_100)))
    );
    assert_eq!(settled.take(&pods(&["a"]), open, 2, window, at(10_100)), Ok(()));
    // The claim is gone.
    assert_eq!(
        batch.take(&pods(&["a"]), |_| Place::Gone, 2, window, at(5_000)),
        Err(Some(at(6_000)))
    );
    // A stream of pods does not keep the batch open for ever.
    for second in 0..10 {
        let pods: Vec<String> = (0..=second).map(|pod| format!("p{pod}")).collect();
        let mut batch_pods: std::collections::BTreeSet<String> = pods.into_iter().collect();
        batch_pods.insert("a".to_owned());
        let found = batch.take(&batch_pods, |_| Place::Gone, 2, window, at(5_500 + second * 900));
        assert!(found.is_err(), "{second}");
    }
    assert_eq!(
        batch.take(&pods(&["a", "z"]), |_| Place::Gone, 2, window, at(15_000)),
        Ok(())
    );
}

#[test]
fn a_batch_stays_open_while_kube_scheduler_refuses_pods_again() {
    let window = Window::default();
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let at = |millis| start + SignedDuration::from_millis(millis);
    let pods = ["a".to_owned()].into();
    let mut batch = Batch::default();
    let mut take = |said, now| {
        batch.hear([("a".to_owned(), said)].into(), now);
        batch.take(&pods, |_| Place::Coming, 1, window, now)
    };
    assert_eq!(take(1, at(0)), Err(Some(at(1_000))));
    // The pod is the same, but kube-scheduler has looked at it again.
    assert_eq!(take(2, at(900)), Err(Some(at(1_900))));
    assert_eq!(take(2, at(1_000)), Err(Some(at(1_900))));
    for said in 3..12 {
        let now = at(i64::try_from(said).unwrap() * 900);
        assert!(take(said, now).is_err(), "{said}");
    }
    // Not for ever.
    assert_eq!(take(12, at(10_000)), Ok(()));
}

#[test]
fn a_pod_that_is_refused_with_its_node_in_view_is_not_waited_for() {
    let window = Window::default();
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let at = |millis| start + SignedDuration::from_millis(millis);
    let pods = ["a".to_owned()].into();
    let said = |number: u64| BTreeMap::from([("a".to_owned(), number)]);
    let mut batch = Batch::default();
    let places = [("a".to_owned(), "claim".to_owned())].into();
    let believed = SignedDuration::from_secs(20);
    batch.decided(&pods, &places, believed, window, at(0));
    // Refused again before the node takes pods: that says nothing.
    batch.hear(said(1), at(500));
    assert_eq!(
        batch.take(&pods, |_| Place::Coming, 0, window, at(500)),
        Err(Some(at(20_000)))
    );
    batch.hear(said(2), at(1_000));
    let open = |_: &str| Place::Open;
    assert_eq!(
        batch.take(&pods, open, 0, window, at(1_000)),
        Err(Some(at(6_000)))
    );
    assert_eq!(
        batch.take(&pods, open, 0, window, at(1_500)),
        Err(Some(at(6_000)))
    );
    batch.hear(said(3), at(2_000));
    assert_eq!(
        batch.take(&pods, open, 0, window, at(2_000)),
        Err(Some(at(3_000)))
    );
    assert_eq!(batch.take(&pods, open, 0, window, at(3_000)), Ok(()));
}

#[test]
fn pods_that_are_left_over_wait_for_the_other_nodes_of_their_decision() {
    let window = Window::default();
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let at = |seconds| start + SignedDuration::from_secs(seconds);
    let demand = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let mut batch = Batch::default();
    let believed = SignedDuration::from_secs(20);
    let placed = |pod: &str, place: &str| [(pod.to_owned(), place.to_owned())];
    let both = placed("a", "one").into_iter().chain(placed("b", "two")).collect();
    batch.decided(&demand(&["a", "b"]), &both, believed, window, at(0));
    batch.decided(
        &demand(&["c"]),
        &placed("c", "three").into(),
        believed,
        window,
        at(1),
    );
    // Node one is there; two, which was decided about with it, is not, and neither is three.
    let one = |place: &str| {
        if place == "one" {
            Place::Open
        } else {
            Place::Coming
        }
    };
    let all = demand(&["a", "b", "c"]);
    assert_eq!(batch.take(&all, one, 0, window, at(2)), Err(Some(at(20))));
    // Now two is there as well, and the time runs for both, whatever becomes of three.
    let two = |place: &str| {
        if place == "three" {
            Place::Coming
        } else {
            Place::Open
        }
    };
    assert_eq!(batch.take(&all, two, 0, window, at(3)), Err(Some(at(8))));
    // A place that nobody waits for any more holds nobody up.
    let mut left = Batch::default();
    left.decided(&demand(&["a", "b"]), &both, believed, window, at(0));
    assert_eq!(
        left.take(&demand(&["a"]), one, 0, window, at(2)),
        Err(Some(at(7)))
    );
}

#[test]
fn a_place_is_kept_for_pods_until_they_have_come_or_are_gone() {
    let mut batch = Batch::default();
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let both = ["a".to_owned(), "b".to_owned()].into();
    let expected = [
        ("a".to_owned(), "node".to_owned()),
        ("b".to_owned(), "node".to_owned()),
    ]
    .into();
    let window = Window::default();
    batch.decided(&both, &expected, SignedDuration::from_secs(20), window, now);
    assert!(batch.expected(&both, now).contains_key("node"));
    assert!(batch.expected(&["b".to_owned()].into(), now).contains_key("node"));
    assert!(batch.expected(&[].into(), now).is_empty());
    // Until it was decided about them again, their places stay theirs.
    let later = now + SignedDuration::from_secs(20);
    let coming = |_: &str| Place::Coming;
    assert_eq!(
        batch.take(&both, coming, 0, window, later),
        Err(Some(later + window.idle))
    );
    assert!(batch.expected(&both, later)["node"] > later);
    assert_eq!(batch.take(&both, coming, 0, window, later + window.idle), Ok(()));
    batch.decided(
        &both,
        &Default::default(),
        SignedDuration::from_secs(20),
        window,
        later,
    );
    assert!(batch.expected(&both, later).is_empty());
}

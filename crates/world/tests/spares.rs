//! Spares of a wide pool, as their users have them: what comes in bursts finds room on them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;
use veneer_api::NodeClaim;
use veneer_api::labels::kubernetes;
use veneer_engine::plan::{is_spare, label, name};
use veneer_world::{Scenario, World, catalogue};

const WIDE: &str = "
name: bursts
duration: 4h
families: [t3, t4g, m5, m6g, c6g, c7g]
objects:
  - apiVersion: karpenter.sh/v1
    kind: NodePool
    metadata: {name: wide}
    spec:
      template:
        spec:
          nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
          expireAfter: Never
          requirements:
            - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
            - {key: topology.kubernetes.io/zone, operator: In, values: [us-west-2a, us-west-2b, us-west-2c]}
      disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1m, budgets: [{nodes: 100%}]}
  - apiVersion: karpenter.sh/v1beta1
    kind: Overprovisioner
    metadata: {name: warm}
    spec: {targetNodePools: [wide], sizing: {count: 6}}
workloads:
  - name: burst
    requests: {cpu: \"2\", memory: 1Gi}
    replicas: {min: 0}
steering: {enabled: false}
events:
  - {at: 1h, scale: {workload: burst, replicas: 12, for: 15m}}
  - {at: 2h, scale: {workload: burst, replicas: 12, for: 15m}}
  - {at: 3h, scale: {workload: burst, replicas: 12, for: 15m}}
";

fn world() -> World {
    let scenario = Scenario::parse(WIDE, "bursts").unwrap();
    let catalogue = catalogue(&scenario).unwrap();
    let seed = scenario.seed;
    World::new(Arc::new(scenario), catalogue, seed).unwrap()
}

/// The spares that nobody uses, by the name of their claim.
fn spares(world: &World) -> BTreeMap<String, Arc<NodeClaim>> {
    let claims = world.objects.claims.values();
    let spares = claims.filter(|claim| is_spare(&claim.metadata));
    spares
        .map(|claim| (name(&claim.metadata).to_owned(), Arc::clone(claim)))
        .collect()
}

/// How many pods of two processors the spares hold.
fn room(spares: &BTreeMap<String, Arc<NodeClaim>>) -> usize {
    let cpu = |claim: &NodeClaim| {
        let text = &claim.status.as_ref().unwrap().allocatable["cpu"].0;
        let milli = text
            .strip_suffix('m')
            .map(|milli| milli.parse::<usize>().unwrap());
        milli.unwrap_or_else(|| text.parse::<usize>().unwrap() * 1000)
    };
    spares.values().map(|claim| cpu(claim) / 2000).sum()
}

fn type_of(claim: &NodeClaim) -> &str {
    label(&claim.metadata, kubernetes::INSTANCE_TYPE).unwrap()
}

fn is_ready(world: &World) -> bool {
    let one = &world.objects.overprovisioners["warm"];
    let conditions = &one.status.as_ref().unwrap().conditions;
    conditions
        .iter()
        .any(|one| one.type_ == "Ready" && one.status.to_string() == "True")
}

/// Plays one burst, which begins at this hour; gives the spares before it, and how many of its pods land on those.
fn burst(world: &mut World, hour: i64) -> (BTreeMap<String, Arc<NodeClaim>>, usize) {
    let begin = world.scenario.start + SignedDuration::from_hours(hour);
    world.advance(begin - SignedDuration::from_secs(1));
    let before = spares(world);
    world.advance(begin + SignedDuration::from_mins(10));
    let nodes: BTreeMap<&str, &str> = world
        .objects
        .nodes
        .values()
        .map(|node| {
            let id = node.spec.as_ref().unwrap().provider_id.as_deref().unwrap();
            (id, name(&node.metadata))
        })
        .collect();
    let claims = world.objects.claims.values();
    let on_spares: BTreeSet<&str> = claims
        .filter(|claim| before.contains_key(name(&claim.metadata)))
        .filter_map(|claim| claim.status.as_ref()?.provider_id.as_deref())
        .filter_map(|id| nodes.get(id).copied())
        .collect();
    let pods: Vec<&str> = world
        .objects
        .pods
        .values()
        .map(|pod| {
            pod.spec
                .as_ref()
                .unwrap()
                .node_name
                .as_deref()
                .expect("every pod has a place")
        })
        .collect();
    assert_eq!(pods.len(), 12);
    let landed = pods.iter().filter(|node| on_spares.contains(*node)).count();
    (before, landed)
}

#[test]
fn bursts_land_on_the_spares_of_a_wide_pool_once_their_pods_are_known() {
    let mut world = world();
    // Nobody has seen the pods yet, nor a workload that would make them.
    world.deployments.clear();
    let (before, landed) = burst(&mut world, 1);
    assert_eq!(before.len(), 6);
    assert!(
        before.values().all(|spare| type_of(spare) == "t4g.nano"),
        "the cheapest"
    );
    assert_eq!(landed, 0);
    for hour in [2, 3] {
        let (before, landed) = burst(&mut world, hour);
        assert_eq!(before.len(), 6);
        let held = room(&before).min(12);
        assert!(held >= 6, "each spare holds a pod: {before:?}");
        assert!(landed * 10 >= held * 9, "{landed} of {held} landed on spares");
        let zones: BTreeSet<Option<&str>> = before
            .values()
            .map(|spare| label(&spare.metadata, kubernetes::ZONE))
            .collect();
        assert_eq!(zones.len(), 3);
    }
    world.advance(world.scenario.start + world.scenario.duration.0);
    assert!(is_ready(&world));
    assert_eq!(world.statistics.evictions, 0, "nobody had to leave");
    assert_eq!(world.statistics.unsettled, 0);
}

#[test]
fn a_workload_that_has_no_pods_yet_says_what_spares_are_for() {
    let mut world = world();
    let (before, landed) = burst(&mut world, 1);
    let held = room(&before).min(12);
    assert!(held >= 6, "{before:?}");
    assert!(landed * 10 >= held * 9, "{landed} of {held} landed on spares");
}

#[test]
fn the_controllers_look_at_the_start() {
    let mut world = world();
    world.advance(world.scenario.start);
    assert_eq!(
        spares(&world).len(),
        6,
        "without waiting for a change of the load"
    );
}

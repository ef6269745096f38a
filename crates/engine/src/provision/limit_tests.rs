use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use veneer_api::NodePool;

use super::*;
use crate::plan::world::World;
use crate::plan::{Shortage, condition_true};

fn limit(pool: &mut NodePool, resource: &str, most: &str) {
    let limits = &mut pool.spec.limits;
    limits.insert(resource.to_owned(), Quantity(most.to_owned()));
}

fn created(decided: &Provisioned) -> usize {
    let actions = decided.plan.actions.iter();
    actions
        .filter(|action| matches!(action, Action::CreateClaim(_)))
        .count()
}

/// A world with a claim for the pod `a` in a pool that may have one node.
fn one_node() -> World {
    let mut world = World::new();
    world.pool("default", |pool| limit(pool, "nodes", "1"));
    world.pod("a", json!({"cpu": "3"}));
    let first = world.provision();
    assert_eq!(created(&first), 1);
    first
        .plan
        .actions
        .into_iter()
        .for_each(|action| world.act(action));
    world
}

#[test]
fn a_claim_of_a_pool_that_limits_nodes_only_has_its_place_while_its_launch_is_under_way() {
    let mut world = one_node();
    let claim = Arc::clone(&world.snapshot.node_claims[0]);
    world.snapshot.launching.insert(name(&claim.metadata).to_owned());
    // Meanwhile everything that it could become runs short, so that nobody knows what it will be.
    for instance_type in ["medium", "large"] {
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
    world.market.update(&world.snapshot);
    assert_eq!(world.market.options(&claim, 9), []);
    world.pod("b", json!({"cpu": "1"}));
    world.pass_time(1);
    let second = world.provision();
    assert_eq!(created(&second), 0, "{second:?}");
    assert!(second.pending.contains_key("default/b"));
}

#[test]
fn a_pool_says_what_it_has_without_what_is_on_its_way_out() {
    let mut world = World::new();
    world.pool("default", |_| {});
    for pod in ["a", "b"] {
        world.pod(pod, json!({"cpu": "7"}));
    }
    world
        .provision()
        .plan
        .actions
        .into_iter()
        .for_each(|action| world.act(action));
    world.settle(usize::MAX);
    let says = |world: &World| {
        let status = world.snapshot.node_pools[0].status.clone().unwrap();
        (
            status.nodes,
            status.resources["cpu"].0.clone(),
            status.resources["nodes"].0.clone(),
        )
    };
    assert_eq!(says(&world), (2, "16".to_owned(), "2".to_owned()));
    let claim = Arc::make_mut(&mut world.snapshot.node_claims[0]);
    assert!(condition_true(claim, "Registered"));
    claim.metadata.deletion_timestamp = Some(Time(world.now));
    let plan = decide_pools(&world.snapshot, &mut world.market, world.now);
    plan.actions.into_iter().for_each(|action| world.act(action));
    assert_eq!(
        says(&world),
        (1, "8".to_owned(), "1".to_owned()),
        "as Karpenter says it"
    );
}

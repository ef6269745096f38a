use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;

use super::*;
use crate::plan::Action;
use crate::plan::world::World;

fn launched(plan: &Plan) -> Vec<&str> {
    let launches = plan.actions.iter().filter_map(|action| match action {
        Action::Launch { claim, .. } => Some(name(&claim.metadata)),
        _ => None,
    });
    launches.collect()
}

fn deleted(plan: &Plan) -> Vec<(&str, &'static str)> {
    let deletes = plan.actions.iter().filter_map(|action| match action {
        Action::DeleteClaim { target, reason } => Some((target.name.as_str(), *reason)),
        _ => None,
    });
    deletes.collect()
}

/// Two claims `a` and `z` of the same second, made before their pool had a limit of one node.
fn two_claims() -> World {
    let mut world = World::new();
    world.pool("default", |_| {});
    for (pod, claim) in [("p", "a"), ("q", "z")] {
        world.pod(pod, json!({"cpu": "3"}));
        for action in world.provision().plan.actions {
            world.act(action);
        }
        let made = world.snapshot.node_claims.last_mut().unwrap();
        Arc::make_mut(made).metadata.name = Some(claim.to_owned());
    }
    assert_eq!(launched(&world.lifecycle()), ["a", "z"]);
    let pool = Arc::make_mut(&mut world.snapshot.node_pools[0]);
    pool.spec
        .limits
        .insert("nodes".to_owned(), Quantity("1".to_owned()));
    world
}

#[test]
fn a_launch_under_way_keeps_its_room_from_another_claim_of_the_same_second() {
    let mut world = two_claims();
    // Kubernetes cuts times to whole seconds, so nobody knows which of the two is older.
    world.snapshot.launching.insert("z".to_owned());
    let plan = world.lifecycle();
    assert_eq!(launched(&plan), [""; 0]);
    assert_eq!(deleted(&plan), [("a", "limit_reached")]);
    // When neither is under way, one of them goes ahead.
    world.snapshot.launching.clear();
    let plan = world.lifecycle();
    assert_eq!(launched(&plan), ["a"]);
    assert_eq!(deleted(&plan), [("z", "limit_reached")]);
}

//! The executor of the world passes the suite that the Kubernetes driver passes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;
use serde_json::Value;
use veneer_world::conformance::CASES;
use veneer_world::{Scenario, World, catalogue, manifests};

fn world() -> World {
    let scenario = Scenario::parse(
        "name: conformance\nfamilies: [m5]\nsteering: {enabled: false}\n",
        "suite",
    )
    .unwrap();
    let catalogue = catalogue(&scenario).unwrap();
    let mut world = World::new(Arc::new(scenario), catalogue, 1).unwrap();
    // An API server has written before, too.
    for _ in 0..5 {
        world.objects.stamp(&mut Default::default(), world.scenario.start);
    }
    world
}

fn add(world: &mut World, object: Value) {
    let now = world.now;
    match object["kind"].as_str().unwrap() {
        "Pod" => {
            world
                .objects
                .add_pod(serde_json::from_value(object).unwrap(), now);
        }
        "Node" => world
            .objects
            .add_node(serde_json::from_value(object).unwrap(), now),
        "NodeClaim" => {
            let mut claim: veneer_api::NodeClaim = serde_json::from_value(object).unwrap();
            world.objects.stamp(&mut claim.metadata, now);
            let name = claim.metadata.name.clone().unwrap();
            world.objects.claims.insert(name, Arc::new(claim));
        }
        _ => {
            manifests::apply(&mut world.objects, &object, now).unwrap();
        }
    }
}

#[test]
fn the_world_does_what_every_executor_must() {
    for case in CASES {
        let mut world = world();
        for object in (case.objects)() {
            add(&mut world, object);
        }
        assert_eq!(case.plans.len(), case.holds.len());
        for (plan, holds) in case.plans.iter().zip(case.holds) {
            let snapshot = world.snapshot();
            world.carry_out(plan(&snapshot));
            world.idle(SignedDuration::from_secs(5));
            if let Err(why) = holds(&world.snapshot()) {
                panic!("{}: {why}", case.name);
            }
        }
    }
}

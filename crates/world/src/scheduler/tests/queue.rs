use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::labels::veneer;

use super::super::{Bindings, Scheduler};
use super::*;
use crate::objects::Objects;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn objects(nodes: Vec<Node>) -> Objects {
    let mut objects = Objects::default();
    nodes.into_iter().for_each(|node| objects.add_node(node, at(0)));
    objects
}

fn scheduler(back_off: bool) -> Scheduler {
    let settings = Settings {
        back_off,
        ..Settings::default()
    };
    Scheduler::new(settings, Vec::new())
}

fn asks(name: &str, cpu: &str, priority: i32) -> Pod {
    let spec = json!({"priority": priority, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]});
    Pod::clone(&pod(name, json!({"spec": spec})))
}

fn names(bindings: &Bindings) -> Vec<&str> {
    bindings.bound.iter().map(|(key, _)| key.as_str()).collect()
}

#[test]
fn the_order_is_priority_then_creation_then_name() {
    let mut objects = objects(vec![node("n", json!({}))]);
    objects.add_pod(asks("late", "1", 0), at(9));
    objects.add_pod(asks("b", "1", 0), at(1));
    objects.add_pod(asks("a", "1", 0), at(1));
    objects.add_pod(asks("important", "1", 5), at(9));
    let bindings = scheduler(false).schedule(&objects, at(9), true);
    assert_eq!(
        names(&bindings),
        ["default/important", "default/a", "default/b", "default/late"]
    );
}

#[test]
fn each_pod_sees_those_that_were_bound_before_it() {
    let mut objects = objects(vec![node("a", json!({})), node("b", json!({}))]);
    for name in ["one", "three", "two"] {
        objects.add_pod(asks(name, "3", 0), at(0));
    }
    let bindings = scheduler(false).schedule(&objects, at(0), true);
    let expected = [("default/one", "a"), ("default/three", "b")];
    assert_eq!(
        bindings.bound,
        expected.map(|(pod, node)| (pod.to_owned(), node.to_owned()))
    );
    assert_eq!(bindings.refused, ["default/two"]);
}

#[test]
fn gated_and_leaving_pods_are_left_alone() {
    let mut objects = objects(vec![node("n", json!({}))]);
    let mut gated = asks("gated", "1", 0);
    gated.spec.as_mut().unwrap().scheduling_gates =
        Some(serde_json::from_value(json!([{"name": "wait"}])).unwrap());
    objects.add_pod(gated, at(0));
    assert_eq!(
        scheduler(false).schedule(&objects, at(0), true),
        Bindings::default()
    );
}

#[test]
fn a_refused_pod_is_tried_again_when_something_happened() {
    let mut objects = objects(vec![]);
    objects.add_pod(asks("pod", "1", 0), at(0));
    let mut scheduler = scheduler(false);
    assert_eq!(scheduler.schedule(&objects, at(0), true).refused.len(), 1);
    assert_eq!(
        scheduler.schedule(&objects, at(1), false),
        Bindings::default(),
        "nothing happened"
    );
    assert_eq!(
        scheduler.look_again(),
        Some(at(300)),
        "in five minutes in any case"
    );
    objects.add_node(node("n", json!({})), at(2));
    assert_eq!(scheduler.schedule(&objects, at(2), true).bound.len(), 1);
    assert_eq!(scheduler.look_again(), None);
}

#[test]
fn back_off_doubles_up_to_ten_seconds() {
    let mut objects = objects(vec![]);
    objects.add_pod(asks("pod", "1", 0), at(0));
    let mut scheduler = scheduler(true);
    let mut now = 0;
    let mut waited = Vec::new();
    for _ in 0..6 {
        assert_eq!(scheduler.schedule(&objects, at(now), true).refused.len(), 1);
        // Something happens right after that.
        assert!(scheduler.schedule(&objects, at(now), true).refused.is_empty());
        let next = scheduler.look_again().unwrap();
        waited.push(next.as_second() - now);
        now = next.as_second();
    }
    assert_eq!(waited, [1, 2, 4, 8, 10, 10]);
}

#[test]
fn a_nomination_is_taken_back_when_the_pod_is_refused_everywhere() {
    for (policy, taken_back) in [("PreemptLowerPriority", 1), ("Never", 0)] {
        let mut objects = objects(vec![node("n", json!({}))]);
        let mut pod = asks("pod", "5", 0);
        pod.spec.as_mut().unwrap().preemption_policy = Some(policy.to_owned());
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(veneer::NOMINATED.to_owned(), "n".to_owned());
        objects.add_pod(pod, at(0));
        let bindings = scheduler(false).schedule(&objects, at(0), true);
        assert_eq!(bindings.taken_back.len(), taken_back, "{policy}");
    }
}

#[test]
fn others_come_to_know_of_each_nomination_that_is_taken_back() {
    let mut objects = objects(vec![node("n", json!({}))]);
    for name in ["a", "b", "c"] {
        let pod = nominated(&Arc::new(asks(name, "3", 0)), "n");
        objects.add_pod(Pod::clone(&pod), at(0));
    }
    let mut scheduler = scheduler(false);
    for key in ["default/a", "default/b"] {
        let bindings = scheduler.schedule(&objects, at(0), key == "default/a");
        assert_eq!(
            (bindings.taken_back, bindings.bound),
            (vec![key.to_owned()], vec![])
        );
        assert_eq!(
            scheduler.look_again(),
            Some(at(0)),
            "the others are still to be tried"
        );
        objects.take_nomination_back(key);
    }
    // The first is tried again after the second; it finds the room kept for the third, which gets it.
    let bindings = scheduler.schedule(&objects, at(0), false);
    assert_eq!(bindings.refused, ["default/a"]);
    assert_eq!(names(&bindings), ["default/c"]);
}

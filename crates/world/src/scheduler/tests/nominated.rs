use super::*;

fn asks(name: &str, cpu: &str, priority: i32) -> Arc<Pod> {
    let spec = json!({"priority": priority, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]});
    pod(name, json!({"spec": spec}))
}

fn two() -> Vec<Node> {
    vec![in_zone("a", "a"), in_zone("b", "b")]
}

#[test]
fn room_is_kept_for_pods_that_are_at_least_as_important() {
    for (priority, expected) in [(-1, vec!["a", "b"]), (0, vec!["b"]), (1, vec!["b"])] {
        let expected_there = nominated(&asks("other", "3", priority), "a");
        let found = feasible(two(), &[expected_there], &asks("new", "2", 0));
        assert_eq!(found, expected, "priority {priority}");
    }
}

#[test]
fn the_nominated_node_is_taken_if_the_pod_fits() {
    let busy = of_app("busy", "web", "a", json!({}));
    let new = nominated(&asks("new", "2", 0), "a");
    let found = cluster(two(), &[Arc::clone(&busy), Arc::clone(&new)]).decide(&new);
    assert_eq!(
        (found.feasible, found.best),
        (vec!["a".to_owned()], vec!["a".to_owned()])
    );
    let large = nominated(&asks("new", "4", 0), "a");
    let full = pod(
        "full",
        json!({"spec": {"nodeName": "a", "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}),
    );
    assert_eq!(
        feasible(two(), &[full, Arc::clone(&large)], &large),
        ["b"],
        "else any other"
    );
    let gone = nominated(&asks("new", "4", 0), "gone");
    assert_eq!(
        feasible(two(), &[Arc::clone(&gone)], &gone),
        ["a", "b"],
        "a node that is gone is none"
    );
}

#[test]
fn nominated_pods_count_for_spread_constraints() {
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let web = |name: &str| nominated(&of_app(name, "web", "", spread.clone()), "a");
    let (one, other) = (web("one"), web("other"));
    // Both are expected on one node, and each has to reckon with the other.
    let pods = [Arc::clone(&one), Arc::clone(&other)];
    assert_eq!(feasible(two(), &pods, &one), ["b"]);
    let cordoned = json!({"metadata": {"labels": {"zone": "b"}}, "spec": {"unschedulable": true}});
    let closed = vec![in_zone("a", "a"), node("b", cordoned)];
    assert!(feasible(closed, &pods, &one).is_empty(), "nor is there another");
    assert_eq!(feasible(two(), &pods[..1], &one), ["a"], "alone it is taken");
}

#[test]
fn nominated_pods_keep_others_away_only_where_a_rule_is_looked_at() {
    let far = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    let shy = nominated(&of_app("shy", "other", "", far.clone()), "a");
    let plain = of_app("new", "web", "", json!({}));
    // Nothing that runs has a rule about it and it has none itself: kube-scheduler skips the plugin.
    assert_eq!(feasible(two(), &[Arc::clone(&shy)], &plain), ["a", "b"]);
    let minds = of_app("new", "web", "", far.clone());
    assert_eq!(
        feasible(two(), &[Arc::clone(&shy)], &minds),
        ["b"],
        "it has one itself"
    );
    let web = nominated(&of_app("web", "web", "", json!({})), "a");
    assert_eq!(
        feasible(two(), &[web], &minds),
        ["b"],
        "its rule is about the nominated one"
    );
}

#[test]
fn affinity_to_a_pod_that_is_only_nominated_is_not_enough() {
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    let web = nominated(&of_app("web", "web", "", json!({})), "a");
    let new = of_app("new", "other", "", near);
    assert!(feasible(two(), &[web], &new).is_empty());
}

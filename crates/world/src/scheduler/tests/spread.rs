use super::*;

fn spread(key: &str, change: Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    merge(&mut constraint, change);
    json!({"topologySpreadConstraints": [constraint]})
}

/// Two zones, one node each, and a third node in the first zone.
fn zones() -> Vec<Node> {
    vec![in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b")]
}

fn running(on: &[&str]) -> Vec<Arc<Pod>> {
    let pods = on.iter().enumerate();
    pods.map(|(number, on)| of_app(&format!("web-{number}"), "web", on, json!({})))
        .collect()
}

#[test]
fn hard_constraints() {
    let cases: [(&str, &[&str], Value, &[&str]); 9] = [
        ("nothing runs", &[], json!({}), &["a1", "a2", "b1"]),
        ("one zone is ahead", &["a1"], json!({}), &["b1"]),
        ("both are even", &["a1", "b1"], json!({}), &["a1", "a2", "b1"]),
        ("more skew", &["a1"], json!({"maxSkew": 2}), &["a1", "a2", "b1"]),
        (
            "by host",
            &["a1"],
            json!({"topologyKey": "kubernetes.io/hostname"}),
            &["a2", "b1"],
        ),
        ("too few domains", &["a1", "b1"], json!({"minDomains": 3}), &[]),
        (
            "enough domains",
            &["a1", "b1"],
            json!({"minDomains": 2}),
            &["a1", "a2", "b1"],
        ),
        ("a key that no node has", &[], json!({"topologyKey": "rack"}), &[]),
        (
            "a selector without requirements counts none",
            &["a1"],
            json!({"labelSelector": {"matchLabels": null}}),
            &["a1", "a2", "b1"],
        ),
    ];
    for (what, on, change, expected) in cases {
        let new = of_app("new", "web", "", spread("zone", change));
        assert_eq!(feasible(zones(), &running(on), &new), expected, "{what}");
    }
}

#[test]
fn a_pod_that_its_own_selector_does_not_choose() {
    let new = of_app("new", "other", "", spread("zone", json!({})));
    assert_eq!(feasible(zones(), &running(&["a1"]), &new), ["a1", "a2", "b1"]);
    assert_eq!(feasible(zones(), &running(&["a1", "a2"]), &new), ["b1"]);
}

#[test]
fn which_pods_count() {
    let new = of_app("new", "web", "", spread("zone", json!({})));
    let mut ending = Pod::clone(&running(&["a1"])[0]);
    ending.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    assert_eq!(
        feasible(zones(), &[Arc::new(ending)], &new).len(),
        3,
        "one on its way out"
    );
    let mut elsewhere = Pod::clone(&running(&["a1"])[0]);
    elsewhere.metadata.namespace = Some("elsewhere".to_owned());
    assert_eq!(
        feasible(zones(), &[Arc::new(elsewhere)], &new).len(),
        3,
        "one of another namespace"
    );
}

#[test]
fn labels_that_must_be_the_same() {
    let keys = spread("zone", json!({"matchLabelKeys": ["version"]}));
    let mut new = Pod::clone(&of_app("new", "web", "", keys));
    let labels = new.metadata.labels.get_or_insert_default();
    labels.insert("version".to_owned(), "2".to_owned());
    assert_eq!(
        feasible(zones(), &running(&["a1"]), &Arc::new(new)).len(),
        3,
        "another version"
    );
}

#[test]
fn nodes_that_do_not_count() {
    let closed = |taint: bool| {
        let taints = if taint {
            json!([{"key": "team", "effect": "NoSchedule"}])
        } else {
            json!([])
        };
        vec![
            in_zone("a1", "a"),
            node(
                "b1",
                json!({"metadata": {"labels": {"zone": "b", "disk": "hdd"}}, "spec": {"taints": taints}}),
            ),
        ]
    };
    let selected = |change: Value| {
        let mut spec = spread("zone", change);
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}]}}});
        of_app("new", "web", "", spec)
    };
    let on = running(&["a1"]);
    assert_eq!(
        feasible(closed(false), &on, &selected(json!({}))),
        ["a1"],
        "what it does not select is no domain"
    );
    let ignored = selected(json!({"nodeAffinityPolicy": "Ignore"}));
    assert!(
        feasible(closed(false), &on, &ignored).is_empty(),
        "unless it says so"
    );
    let tainted = of_app("new", "web", "", spread("zone", json!({})));
    assert!(
        feasible(closed(true), &on, &tainted).is_empty(),
        "what it does not tolerate is a domain"
    );
    let honored = of_app(
        "new",
        "web",
        "",
        spread("zone", json!({"nodeTaintsPolicy": "Honor"})),
    );
    assert_eq!(feasible(closed(true), &on, &honored), ["a1"], "unless it says so");
}

#[test]
fn soft_constraints_prefer() {
    let soft = spread("zone", json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    let new = of_app("new", "web", "", soft);
    assert_eq!(best(zones(), &running(&["a1"]), &new), ["b1"]);
    assert_eq!(best(zones(), &running(&["b1"]), &new), ["a1", "a2"]);
}

#[test]
fn pods_of_a_controller_are_spread_by_default() {
    let owner = Owner {
        kind: "ReplicaSet".to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        selector: serde_json::from_value(json!({"matchLabels": {"app": "web"}})).unwrap(),
    };
    let owned = |name: &str, on: &str| {
        let mut pod = Pod::clone(&of_app(name, "web", on, json!({})));
        let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]);
        pod.metadata.owner_references = Some(serde_json::from_value(owners).unwrap());
        pod
    };
    let other = |name: &str, on: &str| Pod::clone(&of_app(name, "other", on, json!({})));
    for (owners, expected) in [(vec![owner], vec!["b"]), (Vec::new(), vec!["a", "b"])] {
        let mut cluster = Cluster::new(Settings::default(), owners);
        for name in ["a", "b"] {
            cluster.put_node(node(name, json!({})));
        }
        cluster.put_pod(owned("running", "a"));
        cluster.put_pod(other("beside", "b"));
        assert_eq!(cluster.decide(&Arc::new(owned("new", ""))).best, expected);
    }
}

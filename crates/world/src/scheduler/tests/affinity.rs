use super::*;

fn term(app: &str, change: Value) -> Value {
    let mut term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}});
    merge(&mut term, change);
    term
}

fn near(terms: Value) -> Value {
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn far(terms: Value) -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn zones() -> Vec<Node> {
    vec![
        in_zone("a1", "a"),
        in_zone("a2", "a"),
        in_zone("b1", "b"),
        node("nowhere", json!({})),
    ]
}

#[test]
fn required_affinity() {
    let web = of_app("web", "web", "a1", json!({}));
    let db = of_app("db", "db", "b1", json!({}));
    let cases = [
        ("near it", term("web", json!({})), vec!["a1", "a2"]),
        (
            "on its node",
            term("web", json!({"topologyKey": "kubernetes.io/hostname"})),
            vec!["a1"],
        ),
        ("near nobody", term("none", json!({})), vec![]),
        (
            "of another namespace",
            term("web", json!({"namespaces": ["elsewhere"]})),
            vec![],
        ),
        (
            "of all namespaces",
            term("web", json!({"namespaceSelector": {}})),
            vec!["a1", "a2"],
        ),
        (
            "of a namespace by its name",
            term(
                "web",
                json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}),
            ),
            vec!["a1", "a2"],
        ),
        (
            "without a selector",
            term("web", json!({"labelSelector": null})),
            vec![],
        ),
    ];
    for (what, term, expected) in cases {
        let new = of_app("new", "new", "", near(json!([term])));
        let found = feasible(zones(), &[Arc::clone(&web), Arc::clone(&db)], &new);
        assert_eq!(found, expected, "{what}");
    }
    let both = of_app(
        "new",
        "new",
        "",
        near(json!([term("web", json!({})), term("db", json!({}))])),
    );
    assert!(
        feasible(zones(), &[web, db], &both).is_empty(),
        "one pod has to match all terms"
    );
}

#[test]
fn the_first_pod_of_those_that_want_to_be_together() {
    let new = of_app("new", "web", "", near(json!([term("web", json!({}))])));
    assert_eq!(
        feasible(zones(), &[], &new),
        ["a1", "a2", "b1"],
        "anywhere with the key"
    );
    let second = of_app("first", "web", "b1", json!({}));
    assert_eq!(feasible(zones(), &[second], &new), ["b1"]);
}

#[test]
fn required_anti_affinity_in_both_directions() {
    let plain = |on: &str| of_app("running", "web", on, json!({}));
    let shy = |name: &str, on: &str| of_app(name, "web", on, far(json!([term("web", json!({}))])));
    assert_eq!(
        feasible(zones(), &[plain("a1")], &shy("new", "")),
        ["b1", "nowhere"],
        "the new one minds"
    );
    assert_eq!(
        feasible(zones(), &[shy("running", "a1")], &plain("")),
        ["b1", "nowhere"],
        "the running one minds"
    );
    let other = of_app("new", "other", "", json!({}));
    assert_eq!(
        feasible(zones(), &[shy("running", "a1")], &other).len(),
        4,
        "not about this one"
    );
}

#[test]
fn labels_that_must_be_the_same_or_not() {
    let versioned = |name: &str, version: &str, on: &str, spec: Value| {
        let mut pod = Pod::clone(&of_app(name, "web", on, spec));
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert("version".to_owned(), version.to_owned());
        Arc::new(pod)
    };
    let running = versioned("running", "1", "a1", json!({}));
    for (keys, version, expected) in [
        ("matchLabelKeys", "1", vec!["b1", "nowhere"]),
        ("matchLabelKeys", "2", vec!["a1", "a2", "b1", "nowhere"]),
        ("mismatchLabelKeys", "1", vec!["a1", "a2", "b1", "nowhere"]),
        ("mismatchLabelKeys", "2", vec!["b1", "nowhere"]),
    ] {
        let spec = far(json!([term("web", json!({keys: ["version"]}))]));
        let new = versioned("new", version, "", spec);
        assert_eq!(
            feasible(zones(), &[Arc::clone(&running)], &new),
            expected,
            "{keys}, {version}"
        );
    }
}

#[test]
fn preferred_terms() {
    let preferred = |kind: &str| {
        let terms = json!([{"weight": 10, "podAffinityTerm": term("web", json!({}))}]);
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
    };
    let web = of_app("web", "web", "b1", json!({}));
    let nodes = || vec![in_zone("a1", "a"), in_zone("b1", "b"), in_zone("b2", "b")];
    let new = |kind: &str| of_app("new", "new", "", preferred(kind));
    assert_eq!(
        best(nodes(), &[Arc::clone(&web)], &new("podAffinity")),
        ["b2"],
        "near it, where more is left"
    );
    assert_eq!(best(nodes(), &[web], &new("podAntiAffinity")), ["a1"]);
    // What a running pod prefers counts for those that it means.
    let wishes = |kind: &str| of_app("running", "other", "b1", preferred(kind));
    let web = of_app("new", "web", "", json!({}));
    assert_eq!(best(nodes(), &[wishes("podAffinity")], &web), ["b2"]);
    assert_eq!(best(nodes(), &[wishes("podAntiAffinity")], &web), ["a1"]);
    let required = of_app("running", "other", "b1", near(json!([term("web", json!({}))])));
    assert_eq!(
        best(nodes(), &[required], &web),
        ["b2"],
        "what it requires attracts too"
    );
}

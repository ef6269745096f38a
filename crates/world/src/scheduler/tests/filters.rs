use super::*;

/// What differs at the node, what differs at the pod, what runs on the node, and whether the pod fits.
type Case = (&'static str, Value, Value, Vec<Value>, bool);

fn holds(cases: Vec<Case>) {
    for (what, at_node, at_pod, running, fits) in cases {
        let running: Vec<Arc<Pod>> = running
            .into_iter()
            .enumerate()
            .map(|(number, mut one)| {
                merge(&mut one, json!({"spec": {"nodeName": "n"}}));
                pod(&format!("running-{number}"), one)
            })
            .collect();
        let found = feasible(vec![node("n", at_node)], &running, &pod("new", at_pod));
        assert_eq!(!found.is_empty(), fits, "{what}");
    }
}

fn asks(requests: Value) -> Value {
    json!({"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}})
}

#[test]
fn nodes_that_take_no_pods() {
    let closed = json!({"spec": {"unschedulable": true}});
    let tolerates =
        json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}});
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    holds(vec![
        ("an open node", json!({}), json!({}), vec![], true),
        ("a cordoned node", closed.clone(), json!({}), vec![], false),
        ("a cordoned node, tolerated", closed, tolerates, vec![], true),
        ("a node that is not ready", unready, json!({}), vec![], false),
    ]);
}

#[test]
fn taints_and_tolerations() {
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "team", "value": "x", "effect": effect}]}});
    let with = |toleration: Value| json!({"spec": {"tolerations": [toleration]}});
    holds(vec![
        ("NoSchedule", taint("NoSchedule"), json!({}), vec![], false),
        ("NoExecute", taint("NoExecute"), json!({}), vec![], false),
        (
            "PreferNoSchedule",
            taint("PreferNoSchedule"),
            json!({}),
            vec![],
            true,
        ),
        (
            "the same value",
            taint("NoSchedule"),
            with(json!({"key": "team", "value": "x"})),
            vec![],
            true,
        ),
        (
            "another value",
            taint("NoSchedule"),
            with(json!({"key": "team", "value": "y"})),
            vec![],
            false,
        ),
        (
            "any value",
            taint("NoSchedule"),
            with(json!({"key": "team", "operator": "Exists"})),
            vec![],
            true,
        ),
        (
            "any taint",
            taint("NoSchedule"),
            with(json!({"operator": "Exists"})),
            vec![],
            true,
        ),
        (
            "another key",
            taint("NoSchedule"),
            with(json!({"key": "a", "operator": "Exists"})),
            vec![],
            false,
        ),
        (
            "another effect",
            taint("NoExecute"),
            with(json!({"key": "team", "operator": "Exists", "effect": "NoSchedule"})),
            vec![],
            false,
        ),
    ]);
}

#[test]
fn node_selectors_and_node_affinity() {
    let labels = json!({"metadata": {"labels": {"disk": "ssd", "rank": "5"}}});
    let terms = |terms: Value| {
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        json!({"spec": {"affinity": {"nodeAffinity": required}}})
    };
    let one = |key: &str, operator: &str, values: Value| {
        terms(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
    };
    let named = |operator: &str, name: &str| {
        terms(json!([{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}]))
    };
    let cases = [
        (
            "its selector",
            json!({"spec": {"nodeSelector": {"disk": "ssd"}}}),
            true,
        ),
        (
            "another selector",
            json!({"spec": {"nodeSelector": {"disk": "hdd"}}}),
            false,
        ),
        ("In", one("disk", "In", json!(["hdd", "ssd"])), true),
        ("In, absent", one("gpu", "In", json!(["a"])), false),
        ("NotIn", one("disk", "NotIn", json!(["ssd"])), false),
        ("NotIn, absent", one("gpu", "NotIn", json!(["a"])), true),
        ("Exists", one("disk", "Exists", json!([])), true),
        ("DoesNotExist", one("disk", "DoesNotExist", json!([])), false),
        ("Gt", one("rank", "Gt", json!(["4"])), true),
        ("Gt, equal", one("rank", "Gt", json!(["5"])), false),
        ("Lt", one("rank", "Lt", json!(["6"])), true),
        ("Lt, no number", one("disk", "Lt", json!(["6"])), false),
        ("its name", named("In", "n"), true),
        ("another name", named("In", "m"), false),
        ("not its name", named("NotIn", "n"), false),
        ("an empty term", terms(json!([{}])), false),
        (
            "one of two terms",
            terms(
                json!([{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]),
            ),
            true,
        ),
    ];
    holds(
        cases
            .into_iter()
            .map(|(what, at_pod, fits)| (what, labels.clone(), at_pod, vec![], fits))
            .collect(),
    );
}

#[test]
fn what_the_scheduler_adds_to_every_affinity() {
    for (zone, fits) in [("a", true), ("b", false)] {
        let added = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]});
        let settings = Settings {
            added_affinity: Some(serde_json::from_value(added).unwrap()),
            ..Settings::default()
        };
        let mut cluster = Cluster::new(settings, Vec::new());
        cluster.put_node(in_zone("n", "a"));
        let found = cluster.decide(&pod("new", json!({})));
        assert_eq!(!found.feasible.is_empty(), fits, "zone {zone}");
    }
}

#[test]
fn host_ports() {
    let port = |port: Value| json!({"spec": {"containers": [{"name": "main", "ports": [port]}]}});
    let tcp = port(json!({"containerPort": 80, "hostPort": 80}));
    let cases = [
        ("the same port", tcp.clone(), false),
        (
            "another port",
            port(json!({"containerPort": 80, "hostPort": 81})),
            true,
        ),
        (
            "another protocol",
            port(json!({"containerPort": 80, "hostPort": 80, "protocol": "UDP"})),
            true,
        ),
        (
            "one address of all",
            port(json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"})),
            false,
        ),
        ("no host port", port(json!({"containerPort": 80})), true),
    ];
    holds(
        cases
            .into_iter()
            .map(|(what, at_pod, fits)| (what, json!({}), at_pod, vec![tcp.clone()], fits))
            .collect(),
    );
    let at = |address: &str| port(json!({"containerPort": 80, "hostPort": 80, "hostIP": address}));
    holds(vec![
        (
            "two addresses",
            json!({}),
            at("10.0.0.1"),
            vec![at("10.0.0.2")],
            true,
        ),
        (
            "the same address",
            json!({}),
            at("10.0.0.1"),
            vec![at("10.0.0.1")],
            false,
        ),
        (
            "all addresses",
            json!({}),
            at("0.0.0.0"),
            vec![at("10.0.0.2")],
            false,
        ),
    ]);
}

#[test]
fn resources() {
    let init = |containers: Value| {
        let mut pod = asks(json!({"cpu": "1"}));
        pod["spec"]["initContainers"] = containers;
        pod
    };
    let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let gpu = json!({"status": {"allocatable": {"example.com/gpu": "1"}}});
    let mut heavy = asks(json!({"cpu": "3"}));
    heavy["spec"]["overhead"] = json!({"cpu": "1001m"});
    let mut whole = asks(json!({"cpu": "1"}));
    whole["spec"]["resources"] = json!({"requests": {"cpu": "5"}});
    let full = asks(json!({"cpu": "3"}));
    let none = json!({});
    holds(vec![
        (
            "all of it",
            none.clone(),
            asks(json!({"cpu": "4", "memory": "8Gi"})),
            vec![],
            true,
        ),
        (
            "more processors",
            none.clone(),
            asks(json!({"cpu": "4001m"})),
            vec![],
            false,
        ),
        (
            "more memory",
            none.clone(),
            asks(json!({"memory": "8193Mi"})),
            vec![],
            false,
        ),
        (
            "what is left",
            none.clone(),
            asks(json!({"cpu": "1"})),
            vec![full.clone()],
            true,
        ),
        (
            "more than is left",
            none.clone(),
            asks(json!({"cpu": "1001m"})),
            vec![full.clone()],
            false,
        ),
        (
            "a large init container",
            none.clone(),
            init(json!([{"name": "i", "resources": cpu("5")}])),
            vec![],
            false,
        ),
        (
            "two init containers after each other",
            none.clone(),
            init(json!([{"name": "i", "resources": cpu("3")}, {"name": "j", "resources": cpu("4")}])),
            vec![],
            true,
        ),
        (
            "a sidecar beside the container",
            none.clone(),
            init(json!([{"name": "i", "restartPolicy": "Always", "resources": cpu("3500m")}])),
            vec![],
            false,
        ),
        (
            "a sidecar beside a later init container",
            none.clone(),
            init(
                json!([{"name": "i", "restartPolicy": "Always", "resources": cpu("2")}, {"name": "j", "resources": cpu("3")}]),
            ),
            vec![],
            false,
        ),
        (
            "a sidecar after an init container",
            none.clone(),
            init(
                json!([{"name": "j", "resources": cpu("3")}, {"name": "i", "restartPolicy": "Always", "resources": cpu("2")}]),
            ),
            vec![],
            true,
        ),
        ("overhead", none.clone(), heavy, vec![], false),
        ("asked for the pod as a whole", none.clone(), whole, vec![], false),
        (
            "a device",
            gpu.clone(),
            asks(json!({"example.com/gpu": "1"})),
            vec![],
            true,
        ),
        (
            "a taken device",
            gpu.clone(),
            asks(json!({"example.com/gpu": "1"})),
            vec![asks(json!({"example.com/gpu": "1"}))],
            false,
        ),
        (
            "a device that is not there",
            none.clone(),
            asks(json!({"example.com/gpu": "1"})),
            vec![],
            false,
        ),
        (
            "a node with too little already",
            json!({"status": {"allocatable": {"cpu": "1"}}}),
            asks(json!({"memory": "1Gi"})),
            vec![full],
            true,
        ),
        (
            "one pod too many",
            json!({"status": {"allocatable": {"pods": "1"}}}),
            none.clone(),
            vec![none.clone()],
            false,
        ),
        (
            "pods that have ended",
            json!({"status": {"allocatable": {"pods": "1"}}}),
            none.clone(),
            vec![json!({"status": {"phase": "Succeeded"}})],
            true,
        ),
    ]);
}

#[test]
fn a_claim_that_does_not_exist_is_waited_for() {
    let volume =
        json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    holds(vec![("a claim", json!({}), volume, vec![], false)]);
}

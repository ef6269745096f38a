use super::super::class::ClassId;
use super::super::score::{balanced_allocation, least_allocated, shares, totals};
use super::*;

fn asks(name: &str, on: &str, cpu: &str, memory: &str) -> Arc<Pod> {
    let requests = json!({"cpu": cpu, "memory": memory});
    pod(
        name,
        json!({"spec": {"nodeName": on, "containers": [{"name": "main", "resources": {"requests": requests}}]}}),
    )
}

/// What a state of one node says about a pod.
fn with_state<T>(
    nodes: Vec<Node>,
    pods: &[Arc<Pod>],
    new: &Arc<Pod>,
    ask: impl FnOnce(&mut ClusterState<'_>, ClassId) -> T,
) -> T {
    let (mut classes, settings) = (Classes::default(), Settings::default());
    let id = classes.of("default/new", new);
    let nodes: Vec<Arc<Node>> = nodes.into_iter().map(Arc::new).collect();
    let pods: Vec<(String, Arc<Pod>)> = pods
        .iter()
        .map(|pod| (crate::objects::pod_key(pod), Arc::clone(pod)))
        .collect();
    let pods = pods.iter().map(|(key, pod)| (key, pod));
    ask(
        &mut ClusterState::new(nodes.iter(), pods, &mut Nodes::default(), &mut classes, &settings),
        id,
    )
}

#[test]
fn resources_that_are_left() {
    // Of 4 processors and 8 GiB: the share that is left of each, and their mean.
    let cases = [
        ("1", "2Gi", 75),
        ("4", "8Gi", 0),
        ("2", "0", 75),
        ("5", "0", 50),
        ("1", "1Gi", 81),
    ];
    for (cpu, memory, expected) in cases {
        let found = with_state(
            vec![node("n", json!({}))],
            &[],
            &asks("new", "", cpu, memory),
            |state, id| least_allocated(state.classes.get(id).unwrap(), &state.nodes[0]),
        );
        assert_eq!(found, expected, "{cpu} {memory}");
    }
    let nothing = pod("new", json!({}));
    let found = with_state(vec![node("n", json!({}))], &[], &nothing, |state, id| {
        least_allocated(state.classes.get(id).unwrap(), &state.nodes[0])
    });
    assert_eq!(
        found, 97,
        "a container that asks for nothing counts for 100m and 200Mi"
    );
}

#[test]
fn resources_that_are_taken_evenly() {
    let cases = [
        ("even", "1", "2Gi", vec![], 75),
        ("uneven", "4", "0", vec![], 50),
        (
            "more even than before",
            "2",
            "0",
            vec![asks("running", "n", "0", "4Gi")],
            87,
        ),
        ("nothing at all", "0", "0", vec![], 0),
    ];
    for (what, cpu, memory, running, expected) in cases {
        let found = with_state(
            vec![node("n", json!({}))],
            &running,
            &asks("new", "", cpu, memory),
            |state, id| balanced_allocation(state.classes.get(id).unwrap(), &state.nodes[0]),
        );
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn shares_of_the_greatest() {
    assert_eq!(shares(vec![0, 1, 3], false), [0, 33, 100]);
    assert_eq!(shares(vec![0, 1, 3], true), [100, 67, 0]);
    assert_eq!(shares(vec![0, 0], false), [0, 0]);
    assert_eq!(shares(vec![0, 0], true), [100, 100]);
}

#[test]
fn weights() {
    let slow = json!({"spec": {"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]}});
    let nodes = || vec![node("a", slow.clone()), in_zone("b", "b"), in_zone("c", "c")];
    let preferred = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 10, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "c"]}]}},
        {"weight": 30, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}}]}}}});
    let found = |new: Arc<Pod>| {
        with_state(nodes(), &[], &new, |state, id| {
            let (class, statics) = (Arc::clone(state.classes.get(id).unwrap()), state.statics(id));
            totals(state, &class, &statics, &[0, 1, 2])
        })
    };
    assert_eq!(found(pod("new", json!({}))), [97, 97 + 300, 97 + 300]);
    assert_eq!(found(pod("new", preferred)), [97, 97 + 300 + 200, 97 + 300 + 50]);
    let tolerates =
        json!({"spec": {"tolerations": [{"key": "slow", "operator": "Exists", "effect": "NoSchedule"}]}});
    assert_eq!(
        found(pod("new", tolerates))[0],
        97,
        "a toleration of another effect"
    );
    let tolerates = json!({"spec": {"tolerations": [{"key": "slow", "operator": "Exists"}]}});
    assert_eq!(found(pod("new", tolerates)), [97 + 300; 3]);
}

#[test]
fn of_equal_nodes_the_first_by_name_comes_first() {
    let nodes = ["c", "a", "b"].map(|name| node(name, json!({}))).to_vec();
    assert_eq!(best(nodes, &[], &pod("new", json!({}))), ["a", "b", "c"]);
}

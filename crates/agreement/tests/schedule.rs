//! A fresh random sample of scenarios against Karpenter's provisioner. The seed is printed; `agreement schedule` repeats
//! it, runs the full number and makes differing scenarios smaller.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use veneer_agreement::schedule::{
    Answer, Constraint, Facts, Oracle, Programs, Scenario, Selection, check_theirs, generate, run, violations,
};

/// What fits into a minute or so on two cores, oracle included.
const CASES: u64 = 240;

fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 % 1_000_000_000
}

fn sample(seed: u64, cases: u64) -> Selection {
    Selection {
        seed,
        numbers: 0..cases,
        only: None,
        jobs: 2,
        strict: false,
        shrink: true,
    }
}

#[test]
fn the_scheduler_agrees_with_karpenter() {
    let facts = Facts::load().expect("Karpenter's catalogue");
    let seed = seed();
    let report = run(&facts, &sample(seed, CASES), &|_, _| {}).expect("both sides answer");
    println!(
        "schedule: {CASES} scenarios of seed {seed} in {:.1} s: {:?}",
        report.elapsed.as_secs_f64(),
        report.total
    );
    assert!(report.refused.is_empty(), "seed {seed}: {:#?}", report.refused);
    // Where Karpenter's answers follow Go's map order, about one scenario in ten thousand gets an answer of ours that it
    // gives too rarely to be seen (the guide explains the class). It is printed; two in one sample are no chance.
    let (exact, unsettled): (Vec<_>, Vec<_>) = report.differences.iter().partition(|one| one.repeats);
    for difference in &unsettled {
        println!("differs where Karpenter does not repeat itself: {difference:#?}");
    }
    assert!(
        exact.is_empty() && unsettled.len() <= 1,
        "{} of {CASES} scenarios differ; repeat with `agreement schedule --seed {seed} --case NUMBER`: {:#?}",
        report.total.differs,
        report.differences
    );
}

#[test]
fn every_constraint_is_drawn_alone_and_with_others() {
    let facts = Facts::load().expect("Karpenter's catalogue");
    let numbers = 0..3 * Constraint::ALL.len() as u64;
    let drawn: Vec<_> = numbers
        .map(|number| generate(&facts, 1, number, None).0)
        .collect();
    for constraint in Constraint::ALL {
        let with = |alone: bool| {
            drawn
                .iter()
                .any(|set| set.contains(constraint) && (set.len() == 1) == alone)
        };
        assert!(with(true) && with(false), "{}", constraint.name());
    }
}

#[test]
fn the_checker_finds_next_to_nothing_in_karpenters_own_answers() {
    let facts = Facts::load().expect("Karpenter's catalogue");
    let seed = seed();
    let found = check_theirs(&facts, &sample(seed, 60)).expect("Karpenter answers");
    println!("the checker objects to {found:#?}");
    // Karpenter itself breaks a constraint in one scenario of a thousand: the guide says when. A checker that objects
    // to more than a single one of sixty is wrong.
    assert!(found.len() <= 1, "seed {seed}: {found:#?}");
}

/// Two pods that may not share a node, each with a demand of its own.
fn two_pods() -> Scenario {
    let pod = |name: &str, zone: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "a"}},
            "spec": {
                "containers": [{
                    "name": "main", "resources": {"requests": {"cpu": "1"}},
                    "ports": [{"containerPort": 80, "hostPort": 80}],
                }],
                "nodeSelector": {"topology.kubernetes.io/zone": zone},
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}},
                ]}},
            },
        })
    };
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"limits": {"cpu": "4"}, "template": {"spec": {
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        }}},
    });
    Scenario {
        objects: vec![pool, pod("first", "us-west-2a"), pod("second", "us-west-2b")],
        types: Some(vec!["m5.large".to_owned()]),
        catalog: None,
        options: veneer_agreement::schedule::Options::default(),
    }
}

#[test]
fn the_checker_finds_each_fault_that_is_put_into_an_answer() {
    let facts = Facts::load().expect("Karpenter's catalogue");
    let programs = Programs::build().expect("the oracle builds");
    let mut oracle = Oracle::start(&programs.karpenter, &facts).expect("the oracle starts");
    let scenario = two_pods();
    let good = oracle.ask(&scenario, 1).expect("Karpenter answers").remove(0);
    assert_eq!(good.new_node_claims.len(), 2, "{good:?}");
    let found = |scenario: &Scenario, answer: &Answer| -> String {
        violations(&facts, scenario, answer)
            .expect("the checker runs")
            .join("; ")
    };
    assert_eq!(found(&scenario, &good), "");

    let mut together = good.clone();
    let other = together.new_node_claims.remove(1);
    together.new_node_claims[0].pods.extend(other.pods);
    let text = found(&scenario, &together);
    for fault in ["node selection", "host ports", "pod anti-affinity"] {
        assert!(text.contains(fault), "{fault} is not in: {text}");
    }

    let mut lost = good.clone();
    lost.new_node_claims.remove(0);
    assert!(found(&scenario, &lost).contains("completeness"));

    let mut small = scenario.clone();
    small.objects[1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    assert!(found(&small, &good).contains("resources"));

    let mut tight = scenario.clone();
    tight.objects[0]["spec"]["limits"]["cpu"] = json!("3");
    assert!(found(&tight, &good).contains("limits"));

    let mut tainted = scenario.clone();
    tainted.objects[0]["spec"]["template"]["spec"]["taints"] =
        json!([{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]);
    assert!(found(&tainted, &good).contains("taints"));

    let mut picky = scenario;
    picky.objects[0]["spec"]["template"]["spec"]["requirements"] =
        json!([{"key": "karpenter.kwok.sh/instance-family", "operator": "Exists", "minValues": 2}]);
    assert!(found(&picky, &good).contains("minValues"));
}

//! Overlay evaluation on a small catalogue: one test per rule.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use serde_json::{Value, json};
use veneer_api::NodeOverlay;
use veneer_engine::catalogue::kwok;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::labels::LabelRules;
use veneer_engine::overlay::{
    ConflictField, Evaluation, Evaluator, Fate, Overlay, Pool, Problem, Standing, TieBreak, Verdict,
};

fn instance_type(name: &str, arch: &str, cpu: &str, price: f64) -> Value {
    let offering = |capacity_type: &str, zone: &str, price: f64| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
        ]})
    };
    json!({
        "name": name, "architecture": arch, "operatingSystems": ["linux"],
        "resources": {"cpu": cpu, "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"},
        "offerings": [
            offering("spot", "zone-a", price * 0.4), offering("on-demand", "zone-a", price),
            offering("spot", "zone-b", price * 0.5), offering("on-demand", "zone-b", price),
        ],
    })
}

const SPOT_A: usize = 0;
const ON_DEMAND_A: usize = 1;
const ON_DEMAND_B: usize = 3;
const M5_LARGE: usize = 0;
const M5_2XLARGE: usize = 1;
const C5_LARGE: usize = 2;
const M6G_LARGE: usize = 3;

fn catalogue() -> Arc<Catalogue> {
    let types = json!([
        instance_type("m5.large", "amd64", "2", 0.096),
        instance_type("m5.2xlarge", "amd64", "8", 0.384),
        instance_type("c5.large", "amd64", "2", 0.085),
        instance_type("m6g.large", "arm64", "2", 0.077),
    ]);
    Arc::new(kwok::parse(&types.to_string(), "test.json").unwrap())
}

fn pool(name: &str, labels: &[(&str, &str)]) -> Pool {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    Pool {
        name: name.to_owned(),
        labels,
    }
}

fn overlay(name: &str, spec: Value) -> Result<Overlay, (String, Vec<Problem>)> {
    let manifest: NodeOverlay = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap();
    Overlay::read(&manifest, &LabelRules::kwok())
}

fn requires(key: &str, operator: &str, values: &[&str]) -> Value {
    json!([{"key": key, "operator": operator, "values": values}])
}

fn evaluate_in(pools: &[Pool], overlays: &[Result<Overlay, (String, Vec<Problem>)>]) -> Evaluation {
    Evaluator::new(catalogue(), TieBreak::default()).evaluate(pools, overlays)
}

fn evaluate(overlays: &[Result<Overlay, (String, Vec<Problem>)>]) -> Evaluation {
    evaluate_in(&[pool("default", &[])], overlays)
}

fn price(evaluation: &Evaluation, pool: usize, entry: usize, offering: usize) -> f64 {
    evaluation.prices(pool)[entry * 4 + offering]
}

#[test]
fn without_overlays_every_price_is_the_list_price_and_capacity_is_borrowed() {
    let evaluation = evaluate(&[]);
    assert_eq!(price(&evaluation, 0, M5_LARGE, ON_DEMAND_A), 0.096);
    let it = &evaluation.catalogue().types[M5_LARGE];
    assert!(matches!(
        evaluation.capacity(0, M5_LARGE, it),
        std::borrow::Cow::Borrowed(_)
    ));
    assert_eq!(evaluation.allocatable(0, M5_LARGE, it), it.allocatable());
}

#[test]
fn a_price_overlay_changes_the_offerings_it_selects_and_no_other() {
    let spec = json!({"requirements": requires("karpenter.sh/capacity-type", "In", &["on-demand"]), "priceAdjustment": "-50%"});
    let evaluation = evaluate(&[overlay("half", spec)]);
    assert_eq!(price(&evaluation, 0, M5_LARGE, ON_DEMAND_A), 0.096 * 0.5);
    assert_eq!(price(&evaluation, 0, M5_LARGE, SPOT_A), 0.096 * 0.4);
    assert_eq!(evaluation.winner(0, M5_LARGE, ON_DEMAND_A), Some(0));
    assert_eq!(evaluation.winner(0, M5_LARGE, SPOT_A), None);
    assert_eq!(evaluation.match_counts(0), (4, 8));
}

#[test]
fn an_overlay_without_requirements_matches_everything() {
    let evaluation = evaluate(&[overlay("all", json!({"price": "5.00"}))]);
    assert!(evaluation.prices(0).iter().all(|price| *price == 5.0));
}

#[test]
fn each_operator_selects_by_label() {
    let cases = [
        ("In", vec!["2"], [true, false]),
        ("NotIn", vec!["2"], [false, true]),
        ("Exists", vec![], [true, true]),
        ("DoesNotExist", vec![], [false, false]),
        ("Gt", vec!["2"], [false, true]),
        ("Gte", vec!["2"], [true, true]),
        ("Lt", vec!["8"], [true, false]),
        ("Lte", vec!["8"], [true, true]),
    ];
    for (operator, values, expected) in cases {
        let spec = json!({"requirements": requires("karpenter.kwok.sh/instance-cpu", operator, &values), "price": "1"});
        let evaluation = evaluate(&[overlay("o", spec)]);
        let changed = [M5_LARGE, M5_2XLARGE].map(|entry| evaluation.winner(0, entry, ON_DEMAND_A).is_some());
        assert_eq!(changed, expected, "{operator}");
    }
}

#[test]
fn a_label_that_no_type_has_is_matched_by_its_absence_only() {
    for (operator, values, expected) in [
        ("NotIn", vec!["x"], 4),
        ("DoesNotExist", vec![], 4),
        ("In", vec!["x"], 0),
        ("Exists", vec![], 0),
        ("Lt", vec!["5"], 0),
    ] {
        let spec = json!({"requirements": requires("example.com/team", operator, &values), "price": "1"});
        assert_eq!(
            evaluate(&[overlay("o", spec)]).match_counts(0).0,
            expected,
            "{operator}"
        );
    }
}

#[test]
fn pools_are_selected_by_name_and_by_template_label_but_not_by_requirement() {
    let pools = [pool("a", &[("team", "red")]), pool("b", &[("team", "blue")])];
    let by_name = json!({"requirements": requires("karpenter.sh/nodepool", "In", &["a"]), "price": "1"});
    let by_label = json!({"requirements": requires("team", "In", &["blue"]), "price": "2", "weight": 1});
    let evaluation = evaluate_in(
        &pools,
        &[overlay("by-name", by_name), overlay("by-label", by_label)],
    );
    assert_eq!(price(&evaluation, 0, M5_LARGE, ON_DEMAND_A), 1.0);
    assert_eq!(price(&evaluation, 1, M5_LARGE, ON_DEMAND_A), 2.0);
}

#[test]
fn a_template_label_narrows_the_label_of_the_type() {
    let pools = [pool("arm", &[("kubernetes.io/arch", "arm64")])];
    let spec =
        json!({"requirements": requires("kubernetes.io/arch", "In", &["amd64", "arm64"]), "price": "1"});
    let evaluation = evaluate_in(&pools, &[overlay("o", spec)]);
    assert_eq!(evaluation.winner(0, M6G_LARGE, ON_DEMAND_A), Some(0));
    assert_eq!(evaluation.winner(0, M5_LARGE, ON_DEMAND_A), None);
}

#[test]
fn the_heavier_overlay_sets_the_price_and_the_lighter_one_the_rest() {
    let all = overlay("all", json!({"priceAdjustment": "+1.00"}));
    let m5 = json!({"requirements": requires("karpenter.kwok.sh/instance-family", "In", &["m5"]), "price": "9", "weight": 10});
    let evaluation = evaluate(&[all, overlay("m5", m5)]);
    assert_eq!(evaluation.verdicts(), [Verdict::Ready, Verdict::Ready]);
    assert_eq!(price(&evaluation, 0, M5_LARGE, ON_DEMAND_B), 9.0);
    assert_eq!(price(&evaluation, 0, C5_LARGE, ON_DEMAND_B), 1.085);
    let expected = [
        Standing {
            overlay: 1,
            fate: Fate::Won,
        },
        Standing {
            overlay: 0,
            fate: Fate::LostTo(1),
        },
    ];
    assert_eq!(evaluation.standings(0, M5_LARGE, ON_DEMAND_B), expected);
}

#[test]
fn of_two_equal_weights_the_name_later_in_the_alphabet_stays_and_the_other_is_left_out_everywhere() {
    let a = json!({"requirements": requires("node.kubernetes.io/instance-type", "In", &["m5.large", "c5.large"]), "price": "1", "weight": 5});
    let b = json!({"requirements": requires("node.kubernetes.io/instance-type", "In", &["m5.large"]), "price": "2", "weight": 5});
    let evaluation = evaluate(&[overlay("a", a.clone()), overlay("b", b.clone())]);
    let Verdict::Conflict(conflict) = &evaluation.verdicts()[0] else {
        panic!("{:?}", evaluation.verdicts())
    };
    assert_eq!(
        (conflict.with.as_slice(), conflict.field),
        (["b".to_owned()].as_slice(), ConflictField::Price)
    );
    assert_eq!(
        (conflict.node_pool.as_str(), conflict.instance_type.as_str()),
        ("default", "m5.large")
    );
    assert!(conflict.offering.contains("zone-a"), "{}", conflict.offering);
    assert_eq!(price(&evaluation, 0, M5_LARGE, ON_DEMAND_A), 2.0);
    assert_eq!(
        price(&evaluation, 0, C5_LARGE, ON_DEMAND_A),
        0.085,
        "the overlay left out acts nowhere"
    );
    assert_eq!(
        evaluation.standings(0, C5_LARGE, ON_DEMAND_A),
        [Standing {
            overlay: 0,
            fate: Fate::LeftOut
        }]
    );

    let alphabetical = Evaluator::new(catalogue(), TieBreak::Alphabetical)
        .evaluate(&[pool("default", &[])], &[overlay("a", a), overlay("b", b)]);
    assert_eq!(alphabetical.verdicts()[0], Verdict::Ready);
    assert!(matches!(&alphabetical.verdicts()[1], Verdict::Conflict(conflict) if conflict.with == ["a"]));
}

#[test]
fn a_conflict_in_one_pool_leaves_the_overlay_out_of_all_pools() {
    let pools = [pool("a", &[]), pool("b", &[])];
    let only_b = json!({"requirements": requires("karpenter.sh/nodepool", "In", &["b"]), "price": "2"});
    let evaluation = evaluate_in(
        &pools,
        &[
            overlay("everywhere", json!({"price": "1"})),
            overlay("only-b", only_b),
        ],
    );
    assert!(matches!(&evaluation.verdicts()[0], Verdict::Conflict(conflict) if conflict.node_pool == "b"));
    assert_eq!(price(&evaluation, 0, M5_LARGE, ON_DEMAND_A), 0.096);
    assert_eq!(price(&evaluation, 1, M5_LARGE, ON_DEMAND_A), 2.0);
}

#[test]
fn equal_weights_without_a_common_field_or_offering_agree() {
    let spot = json!({"requirements": requires("karpenter.sh/capacity-type", "In", &["spot"]), "price": "1"});
    let on_demand =
        json!({"requirements": requires("karpenter.sh/capacity-type", "In", &["on-demand"]), "price": "2"});
    let fuse = json!({"capacity": {"smarter-devices/fuse": "1"}});
    let evaluation = evaluate(&[overlay("a", spot), overlay("b", on_demand), overlay("c", fuse)]);
    assert!(
        evaluation
            .verdicts()
            .iter()
            .all(|verdict| *verdict == Verdict::Ready),
        "{:?}",
        evaluation.verdicts()
    );
    assert_eq!(
        (
            price(&evaluation, 0, M5_LARGE, SPOT_A),
            price(&evaluation, 0, M5_LARGE, ON_DEMAND_A)
        ),
        (1.0, 2.0)
    );
}

#[test]
fn a_loser_that_was_touched_at_its_weight_still_conflicts_with_its_equals() {
    let heavy = json!({"price": "9", "weight": 2});
    let evaluation = evaluate(&[
        overlay("a", json!({"price": "1", "weight": 1})),
        overlay("b", json!({"price": "2", "weight": 1})),
        overlay("heavy", heavy),
    ]);
    assert_eq!(evaluation.verdicts()[1], Verdict::Ready);
    assert!(matches!(&evaluation.verdicts()[0], Verdict::Conflict(conflict) if conflict.with == ["b"]));
    assert!(evaluation.prices(0).iter().all(|price| *price == 9.0));
}

#[test]
fn capacity_merges_by_resource_and_the_heaviest_has_the_last_word() {
    let evaluation = evaluate(&[
        overlay(
            "light",
            json!({"capacity": {"example.com/a": "1", "example.com/b": "1"}}),
        ),
        overlay("heavy", json!({"capacity": {"example.com/a": "5"}, "weight": 3})),
    ]);
    let it = &evaluation.catalogue().types[M5_LARGE];
    let capacity = evaluation.capacity(0, M5_LARGE, it);
    assert_eq!(capacity.get("example.com/a").unwrap().to_string(), "5");
    assert_eq!(capacity.get("example.com/b").unwrap().to_string(), "1");
    assert_eq!(capacity.get("cpu").unwrap().to_string(), "2");
    assert_eq!(evaluation.capacity_overlays(0, M5_LARGE), [1, 0]);
}

#[test]
fn huge_pages_are_cut_out_of_the_memory() {
    let evaluation = evaluate(&[overlay(
        "pages",
        json!({"capacity": {"hugepages-2Mi": "100Mi", "hugepages-1Gi": "2Gi"}}),
    )]);
    let it = &evaluation.catalogue().types[M5_LARGE];
    let allocatable = evaluation.allocatable(0, M5_LARGE, it);
    assert_eq!(allocatable.get("hugepages-1Gi").unwrap().to_string(), "2Gi");
    // 8Gi less 10Mi for the kubelet, 100Mi and 2Gi of pages.
    assert_eq!(allocatable.get("memory").unwrap().to_string(), "6034Mi");
    let evaluation = evaluate(&[overlay("too-many", json!({"capacity": {"hugepages-1Gi": "9Gi"}}))]);
    assert_eq!(
        evaluation
            .allocatable(0, M5_LARGE, it)
            .get("memory")
            .unwrap()
            .to_string(),
        "0"
    );
}

#[test]
fn a_capacity_overlay_on_spot_changes_the_type_for_all_its_offerings() {
    let spec = json!({"requirements": requires("karpenter.sh/capacity-type", "In", &["spot"]), "capacity": {"example.com/x": "1"}});
    let evaluation = evaluate(&[overlay("spot-only", spec)]);
    let it = &evaluation.catalogue().types[M5_LARGE];
    assert!(evaluation.capacity(0, M5_LARGE, it).contains("example.com/x"));
}

#[test]
fn capacity_is_compared_with_the_last_overlay_of_the_weight_only() {
    let sets = |resource: &str| json!({"capacity": {resource: "1"}, "weight": 7});
    let x_y_x = [
        overlay("c", sets("x")),
        overlay("b", sets("y")),
        overlay("a", sets("x")),
    ];
    assert!(
        evaluate(&x_y_x)
            .verdicts()
            .iter()
            .all(|verdict| *verdict == Verdict::Ready)
    );
    let x_x_y = [
        overlay("c", sets("x")),
        overlay("b", sets("x")),
        overlay("a", sets("y")),
    ];
    let evaluation = evaluate(&x_x_y);
    assert!(
        matches!(&evaluation.verdicts()[1], Verdict::Conflict(conflict) if conflict.field == ConflictField::Capacity)
    );
    assert_eq!(evaluation.verdicts()[2], Verdict::Ready);
}

#[test]
fn an_overlay_with_overhead_compares_its_capacity_with_the_last_one_too() {
    let sets = |resource: &str| json!({"capacity": {resource: "1"}, "weight": 7});
    let with_overhead =
        |resource: &str| json!({"capacity": {resource: "1"}, "overhead": {"memory": "50Mi"}, "weight": 7});
    // The last overlay of the weight sets y, so that x has been forgotten.
    let forgotten = [
        overlay("c", sets("x")),
        overlay("b", sets("y")),
        overlay("a", with_overhead("x")),
    ];
    assert_eq!(evaluate(&forgotten).verdicts()[2], Verdict::Ready);
    let met = [
        overlay("c", sets("x")),
        overlay("b", sets("y")),
        overlay("a", with_overhead("y")),
    ];
    assert!(matches!(&evaluate(&met).verdicts()[2], Verdict::Conflict(_)));
}

#[test]
fn conflicts_are_found_on_the_hundredth_kind_of_offering_as_on_the_first() {
    let offering = |zone: usize| {
        json!({"Price": 1.0, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [format!("zone-{zone}")]},
        ]})
    };
    let many = |name: &str| {
        json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
            "resources": {"cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"},
            "offerings": (0..130).map(offering).collect::<Vec<_>>()})
    };
    let types = json!([many("a.large"), many("b.large"), many("c.large")]);
    let catalogue = Arc::new(kwok::parse(&types.to_string(), "test.json").unwrap());
    let sets = |name: &str, instance_type: &str, zone: usize| {
        let requirements = json!([
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [instance_type]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [format!("zone-{zone}")]},
        ]);
        overlay(name, json!({"requirements": requirements, "price": "2"}))
    };
    for zone in [0, 63, 64, 99, 129] {
        for instance_type in ["a.large", "b.large", "c.large"] {
            let other = if zone < 64 { zone + 64 } else { zone - 64 };
            let overlays = [
                sets("a", instance_type, zone),
                sets("b", instance_type, other),
                sets("c", instance_type, zone),
            ];
            let evaluation = Evaluator::new(Arc::clone(&catalogue), TieBreak::default())
                .evaluate(&[pool("default", &[])], &overlays);
            let why = format!("{instance_type} in zone {zone}");
            assert!(
                matches!(&evaluation.verdicts()[0], Verdict::Conflict(conflict) if conflict.with == ["c"]),
                "{why}: {:?}",
                evaluation.verdicts()
            );
            assert_eq!(evaluation.verdicts()[1], Verdict::Ready, "{why}");
            let changed = evaluation.prices(0).iter().filter(|price| **price == 2.0);
            assert_eq!(changed.count(), 2, "{why}");
        }
    }
}

#[test]
fn every_rule_of_advice_says_in_its_own_words_what_it_is_about() {
    use veneer_engine::overlay::advice::Rule;
    let summaries: std::collections::BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.summary()).collect();
    assert_eq!(summaries.len(), Rule::ALL.len());
}

#[test]
fn overhead_is_taken_from_what_pods_can_use_and_conflicts_by_resource() {
    let evaluation = evaluate(&[
        overlay("fixed", json!({"overhead": {"memory": "50Mi"}})),
        overlay("share", json!({"overheadPercent": {"cpu": "12.5"}})),
    ]);
    let it = &evaluation.catalogue().types[M5_2XLARGE];
    let allocatable = evaluation.allocatable(0, M5_2XLARGE, it);
    assert_eq!(allocatable.get("memory").unwrap().to_string(), "8132Mi");
    assert_eq!(allocatable.get("cpu").unwrap().to_string(), "6900m");
    let twice = evaluate(&[
        overlay("a", json!({"overhead": {"memory": "50Mi"}})),
        overlay("b", json!({"overheadPercent": {"memory": 5}})),
    ]);
    assert!(matches!(&twice.verdicts()[0], Verdict::Conflict(conflict) if conflict.with == ["b"]));
}

#[test]
fn types_of_one_name_share_what_overlays_do_to_them() {
    let mut linux = instance_type("m5.large", "amd64", "2", 0.1);
    let mut windows = instance_type("m5.large", "amd64", "2", 0.2);
    linux["operatingSystems"] = json!(["linux"]);
    windows["operatingSystems"] = json!(["windows"]);
    let catalogue = Arc::new(kwok::parse(&json!([linux, windows]).to_string(), "test.json").unwrap());
    let spec =
        json!({"requirements": requires("kubernetes.io/os", "In", &["windows"]), "priceAdjustment": "-50%"});
    let evaluation = Evaluator::new(catalogue, TieBreak::default())
        .evaluate(&[pool("default", &[])], &[overlay("windows", spec)]);
    assert_eq!(evaluation.prices(0)[ON_DEMAND_A], 0.05);
    assert_eq!(evaluation.prices(0)[4 + ON_DEMAND_A], 0.1);
}

#[test]
fn an_invalid_overlay_is_left_out_with_every_fault_named_and_the_others_go_on() {
    let bad = json!({
        "weight": 0, "price": "5", "priceAdjustment": "-5",
        "requirements": [
            {"key": "karpenter.sh/registered", "operator": "Exists"},
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Gt", "values": ["four"]},
            {"key": "a b", "operator": "in", "values": ["x"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["ondemand"]},
            {"key": "team", "operator": "NotIn"},
        ],
        "capacity": {"memory": "1Gi", "example.com/x": "many"},
    });
    let evaluation = evaluate(&[overlay("bad", bad), overlay("good", json!({"price": "1"}))]);
    let Verdict::Invalid(problems) = &evaluation.verdicts()[0] else {
        panic!("{:?}", evaluation.verdicts())
    };
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    for field in [
        "spec.weight",
        "spec.price",
        "spec.requirements[0].key",
        "spec.requirements[1].values",
        "spec.requirements[2].key",
        "spec.requirements[2].operator",
        "spec.requirements[3].values",
        "spec.requirements[4].values",
        "spec.capacity.memory",
        "spec.capacity.example.com/x",
    ] {
        assert!(fields.contains(&field), "{field} in {problems:#?}");
    }
    assert_eq!(evaluation.verdicts()[1], Verdict::Ready);
    assert_eq!(price(&evaluation, 0, M5_LARGE, ON_DEMAND_A), 1.0);
}

#[test]
fn evaluating_again_after_a_change_gives_the_same_as_evaluating_afresh() {
    let pools = [pool("a", &[("team", "red")]), pool("b", &[])];
    let spec = |price: &str, weight: i32| json!({"price": price, "weight": weight, "requirements": requires("team", "In", &["red"])});
    let mut evaluator = Evaluator::new(catalogue(), TieBreak::default());
    let steps = [
        (
            pools.to_vec(),
            vec![overlay("x", spec("1", 1)), overlay("y", spec("2", 2))],
        ),
        (
            pools.to_vec(),
            vec![overlay("x", spec("1", 3)), overlay("y", spec("2", 2))],
        ),
        (pools.to_vec(), vec![overlay("y", spec("2", 2))]),
        (pools[1..].to_vec(), vec![overlay("y", spec("2", 2))]),
        (
            pools.to_vec(),
            vec![overlay("x", spec("1", 2)), overlay("y", spec("2", 2))],
        ),
    ];
    for (pools, overlays) in steps {
        let again = evaluator.evaluate(&pools, &overlays);
        let afresh = evaluate_in(&pools, &overlays);
        assert_eq!(again.verdicts(), afresh.verdicts());
        for pool in 0..pools.len() {
            assert_eq!(again.prices(pool), afresh.prices(pool));
        }
    }
}

#[test]
fn a_conflict_names_exactly_those_that_set_the_same_field_of_the_same_offering() {
    let m5 = || requires("karpenter.kwok.sh/instance-family", "In", &["m5"]);
    let on = |capacity_type: &str| {
        json!([
            {"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": ["m5"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
        ])
    };
    let named = |overlays: &[_]| match &evaluate(overlays).verdicts()[0] {
        Verdict::Conflict(conflict) => conflict.with.clone(),
        other => panic!("{other:?}"),
    };
    // Of four others of the same weight, one sets another field, one other offerings, one another type.
    let price = [
        overlay("a", json!({"requirements": on("spot"), "price": "1"})),
        overlay(
            "capacity",
            json!({"requirements": m5(), "capacity": {"example.com/x": "1"}}),
        ),
        overlay(
            "on-demand",
            json!({"requirements": on("on-demand"), "price": "2"}),
        ),
        overlay(
            "c5",
            json!({"requirements": requires("karpenter.kwok.sh/instance-family", "In", &["c5"]), "price": "3"}),
        ),
        overlay("spot", json!({"requirements": on("spot"), "price": "4"})),
    ];
    assert_eq!(named(&price), ["spot"]);
    let capacity = [
        overlay(
            "a",
            json!({"requirements": m5(), "capacity": {"example.com/x": "1"}}),
        ),
        overlay("b-price", json!({"requirements": m5(), "price": "2"})),
        overlay(
            "c-other",
            json!({"requirements": requires("karpenter.kwok.sh/instance-family", "In", &["c5"]), "capacity": {"example.com/x": "3"}}),
        ),
        overlay(
            "d-same",
            json!({"requirements": m5(), "capacity": {"example.com/x": "4"}}),
        ),
    ];
    assert_eq!(named(&capacity), ["d-same"]);
    let lighter = [
        overlay("a", json!({"requirements": m5(), "price": "1", "weight": 2})),
        overlay("b", json!({"requirements": m5(), "price": "2", "weight": 2})),
        overlay("c", json!({"requirements": m5(), "price": "3", "weight": 1})),
    ];
    assert_eq!(named(&lighter), ["b"]);
}

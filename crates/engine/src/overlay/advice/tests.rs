//! Each piece of advice where it belongs, and none where it does not.

use std::sync::Arc;

use serde_json::{Value, json};
use veneer_api::{NodeOverlay, NodePool};

use super::{Advice, Effect, Level, Rule, survey};
use crate::catalogue::kwok;
use crate::instance_type::Catalogue;
use crate::overlay::{Evaluation, Evaluator, Overlay, Pool, TieBreak, launchable};

const FAMILY: &str = "karpenter.kwok.sh/instance-family";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
const TYPE: &str = "node.kubernetes.io/instance-type";

/// Three types on demand and as spot at 40 % in two zones, one of them also for Windows.
fn catalogue() -> Catalogue {
    let offering = |capacity_type: &str, zone: &str, price: f64| {
        json!({ "Price": price, "Available": true, "Requirements": [
            { "key": CAPACITY_TYPE, "operator": "In", "values": [capacity_type] },
            { "key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone] },
        ] })
    };
    let entry = |name: &str, cpu: i64, price: f64, os: &str| {
        json!({ "name": name, "architecture": "amd64", "operatingSystems": [os],
            "resources": { "cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 2) },
            "offerings": [
                offering("on-demand", "a", price), offering("on-demand", "b", price),
                offering("spot", "a", price * 0.4), offering("spot", "b", price * 0.4),
            ] })
    };
    let entries = json!([
        entry("m5.large", 2, 0.10, "linux"),
        entry("m5.large", 2, 0.19, "windows"),
        entry("m5.xlarge", 4, 0.20, "linux"),
        entry("c5.large", 2, 0.08, "linux"),
    ]);
    kwok::parse(&entries.to_string(), "test").unwrap()
}

fn pool(name: &str, requirements: &Value) -> NodePool {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": name },
        "spec": { "template": {
            "metadata": { "labels": { "team": "web" } },
            "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "d" },
                "requirements": requirements,
            },
        } },
    }))
    .unwrap()
}

fn linux() -> NodePool {
    pool(
        "linux",
        &json!([{ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }]),
    )
}

fn evaluate(pools: &[NodePool], overlays: &[(&str, Value)]) -> (Evaluation, Vec<Effect>) {
    let catalogue = Arc::new(catalogue());
    let read = |(name, spec): &(&str, Value)| {
        let manifest: NodeOverlay = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": name }, "spec": spec,
        }))
        .unwrap();
        Overlay::read(&manifest, &catalogue.rules)
    };
    let overlays: Vec<_> = overlays.iter().map(read).collect();
    let seen: Vec<Pool> = pools
        .iter()
        .map(|pool| Pool {
            name: pool.metadata.name.clone().unwrap(),
            labels: pool.spec.template.metadata.labels.clone().into_iter().collect(),
        })
        .collect();
    let reach: Vec<_> = pools.iter().map(|pool| launchable(&catalogue, pool)).collect();
    let evaluation = Evaluator::new(catalogue, TieBreak::default()).evaluate(&seen, &overlays);
    let effects = survey(&evaluation, &reach);
    (evaluation, effects)
}

fn effects(overlays: &[(&str, Value)]) -> Vec<Effect> {
    evaluate(&[linux()], overlays).1
}

/// The advice about the first of `overlays`.
fn advice(overlays: &[(&str, Value)]) -> Vec<Advice> {
    effects(overlays).swap_remove(0).advice
}

fn rules(overlays: &[(&str, Value)]) -> Vec<&'static str> {
    advice(overlays).iter().map(|advice| advice.rule.id()).collect()
}

fn requires(key: &str, operator: &str, values: &[&str]) -> Value {
    json!([{ "key": key, "operator": operator, "values": values }])
}

fn matches_nothing(key: &str, operator: &str, values: &[&str]) -> Option<String> {
    let spec = json!({ "requirements": requires(key, operator, values), "priceAdjustment": "-5%" });
    let advice = advice(&[("o", spec)]);
    let found = advice
        .into_iter()
        .find(|advice| advice.rule == Rule::MatchesNothing)?;
    assert_eq!(found.field, "spec.requirements[0]");
    Some(
        found
            .message
            .strip_prefix("matches nothing: ")
            .unwrap()
            .to_owned(),
    )
}

#[test]
fn a_useful_overlay_gets_no_advice_and_its_effects_are_counted() {
    let m5 = json!({ "weight": 2, "requirements": requires(TYPE, "In", &["m5.large"]), "priceAdjustment": "-30%" });
    let all = json!({ "weight": 1, "requirements": requires(CAPACITY_TYPE, "In", &["spot"]), "priceAdjustment": "+140%" });
    let effects = effects(&[("m5", m5), ("all", all)]);
    assert_eq!((effects[0].changed, effects[0].lost), (8, 0));
    // Of eight spot offerings, the four of m5.large (linux and windows) go to the heavier one.
    assert_eq!((effects[1].changed, effects[1].lost), (4, 4));
    assert_eq!(effects[0].advice, []);
    assert_eq!(effects[1].advice, []);
}

#[test]
fn what_takes_no_part_loses_nothing() {
    let same = || json!({ "requirements": requires(TYPE, "In", &["c5.large"]), "priceAdjustment": "-30%" });
    let effects = effects(&[("a", same()), ("b", same())]);
    assert_eq!((effects[0].changed, effects[0].lost), (0, 0));
    assert_eq!((effects[1].changed, effects[1].lost), (4, 0));
}

#[test]
fn a_requirement_that_nothing_satisfies_is_named_with_what_was_meant() {
    let said = matches_nothing(FAMILY, "In", &["m55"]).unwrap();
    assert_eq!(
        said,
        "nothing has \"karpenter.kwok.sh/instance-family\" In [m55]; did you mean m5?"
    );
    let said = matches_nothing(FAMILY, "In", &["trn1x"]).unwrap();
    assert_eq!(
        said,
        "nothing has \"karpenter.kwok.sh/instance-family\" In [trn1x]; there are c5, m5"
    );
    let said = matches_nothing("node.kubernetes.io/instance-family", "Exists", &[]).unwrap();
    assert!(
        said.ends_with("did you mean \"karpenter.kwok.sh/instance-family\"?"),
        "{said}"
    );
    let said = matches_nothing("karpenter.kwok.sh/instance-cpu", "Gt", &["4"]).unwrap();
    assert_eq!(
        said,
        "nothing has \"karpenter.kwok.sh/instance-cpu\" Gt 4; the values go from 2 to 4"
    );
    let said = matches_nothing("karpenter.kwok.sh/instance-cpu", "Lt", &["2"]).unwrap();
    assert_eq!(
        said,
        "nothing has \"karpenter.kwok.sh/instance-cpu\" Lt 2; the values go from 2 to 4"
    );
    assert!(matches_nothing("karpenter.kwok.sh/instance-cpu", "Lte", &["1"]).is_some());
    assert!(matches_nothing("karpenter.kwok.sh/instance-cpu", "Gte", &["5"]).is_some());
    let said = matches_nothing(FAMILY, "Gt", &["4"]).unwrap();
    assert_eq!(
        said,
        "Gt compares integers, but the values of \"karpenter.kwok.sh/instance-family\" are none: c5, m5, …"
    );
    let said = matches_nothing(FAMILY, "NotIn", &["c5", "m5"]).unwrap();
    assert_eq!(
        said,
        "every instance type has \"karpenter.kwok.sh/instance-family\" among the excluded values"
    );
    let said = matches_nothing(FAMILY, "DoesNotExist", &[]).unwrap();
    assert_eq!(
        said,
        "every instance type has the label \"karpenter.kwok.sh/instance-family\""
    );
    assert!(
        matches_nothing("karpenter.sh/nodepool", "In", &["other"])
            .unwrap()
            .ends_with("there are linux")
    );
    assert!(
        matches_nothing("team", "In", &["wep"])
            .unwrap()
            .ends_with("did you mean web?")
    );
}

#[test]
fn a_requirement_that_something_satisfies_is_not_blamed() {
    for (key, operator, values) in [
        ("karpenter.kwok.sh/instance-cpu", "Gt", &["3"][..]),
        ("karpenter.kwok.sh/instance-cpu", "Gte", &["4"]),
        ("karpenter.kwok.sh/instance-cpu", "Lt", &["3"]),
        ("karpenter.kwok.sh/instance-cpu", "Lte", &["2"]),
        (FAMILY, "NotIn", &["m5"]),
        ("unheard-of", "NotIn", &["x"]),
        ("unheard-of", "DoesNotExist", &[]),
        ("team", "In", &["web"]),
    ] {
        assert_eq!(matches_nothing(key, operator, values), None, "{key} {operator}");
    }
    let both = json!([
        { "key": TYPE, "operator": "In", "values": ["m5.large"] },
        { "key": "karpenter.kwok.sh/instance-cpu", "operator": "Gt", "values": ["3"] },
    ]);
    let advice = advice(&[("o", json!({ "requirements": both, "price": "1" }))]);
    assert_eq!(advice[0].field, "spec.requirements");
    assert!(
        advice[0]
            .message
            .ends_with("each requirement matches something, but no offering satisfies all of them")
    );
}

#[test]
fn types_that_no_pool_launches_are_told_apart_from_types_that_share_a_name() {
    let windows = json!({ "requirements": requires("kubernetes.io/os", "In", &["windows"]), "priceAdjustment": "+0.50" });
    let found = advice(&[("o", windows)]);
    assert_eq!(
        found.iter().map(|advice| advice.rule).collect::<Vec<_>>(),
        [Rule::SharedName]
    );
    assert!(
        found[0].message.contains("for 1 type, e.g. m5.large"),
        "{}",
        found[0].message
    );

    let only_c5 = pool("c5", &requires(FAMILY, "In", &["c5"]));
    let m5 = json!({ "requirements": requires(FAMILY, "In", &["m5"]), "priceAdjustment": "-50%" });
    let (_, effects) = evaluate(&[only_c5], &[("o", m5)]);
    assert_eq!(effects[0].advice[0].rule, Rule::NotLaunchable);
    assert_eq!(
        effects[0].advice[0].message,
        "matches 12 offerings, but no NodePool can launch any of them"
    );
}

#[test]
fn an_overlay_that_wins_nowhere_is_shadowed_by_those_that_win() {
    let light = json!({ "weight": 1, "requirements": requires(TYPE, "In", &["c5.large"]), "price": "1" });
    let heavy =
        json!({ "weight": 9, "requirements": requires(FAMILY, "In", &["c5"]), "priceAdjustment": "-50%" });
    let elsewhere =
        json!({ "weight": 8, "requirements": requires(FAMILY, "In", &["m5"]), "priceAdjustment": "-50%" });
    let found = advice(&[
        ("light", light.clone()),
        ("heavy", heavy.clone()),
        ("elsewhere", elsewhere),
    ]);
    assert_eq!(found[0].rule, Rule::Shadowed);
    assert_eq!(
        found[0].message,
        "heavier overlays set everything that it sets, at all 4 offerings: heavy"
    );
    let partly = json!({ "weight": 9, "requirements": requires(CAPACITY_TYPE, "In", &["spot"]), "priceAdjustment": "-50%" });
    assert!(!rules(&[("light", light), ("partly", partly)]).contains(&"shadowed"));
}

#[test]
fn capacity_that_a_heavier_overlay_gives_too_is_shadowed() {
    let capacity = |weight: i32, resource: &str| json!({ "weight": weight, "capacity": { resource: "1" } });
    let found = advice(&[
        ("light", capacity(1, "x")),
        ("heavy", capacity(2, "x")),
        ("other", capacity(3, "y")),
    ]);
    assert_eq!(
        found[0].message,
        "heavier overlays set everything that it sets, at all 16 offerings: heavy"
    );
    assert_eq!(
        rules(&[("light", capacity(1, "x")), ("other", capacity(3, "y"))]),
        [""; 0]
    );
}

#[test]
fn on_demand_below_spot_blames_the_overlay_that_put_it_there() {
    let discount = |percent: i32| json!({ "weight": 5, "requirements": requires(CAPACITY_TYPE, "In", &["on-demand"]), "priceAdjustment": format!("-{percent}%") });
    let found = advice(&[("deep", discount(70))]);
    let found = found
        .iter()
        .find(|advice| advice.rule == Rule::OnDemandBelowSpot)
        .unwrap();
    assert!(found.message.starts_with(
        "on-demand becomes cheaper than spot for 3 types, e.g. m5.large in a (NodePool linux): on-demand $0.0300, spot $0.0400;"
    ), "{}", found.message);
    assert!(
        found.fix.starts_with("reduce on-demand by at most 59%, "),
        "{}",
        found.fix
    );
    assert!(!rules(&[("mild", discount(59))]).contains(&"on-demand-below-spot"));

    // A dearer spot offering is another way to get there.
    let spot =
        json!({ "requirements": requires(CAPACITY_TYPE, "In", &["spot"]), "priceAdjustment": "+200%" });
    let found = advice(&[("spot", spot.clone())]);
    assert!(
        found
            .iter()
            .any(|advice| advice.rule == Rule::OnDemandBelowSpot && advice.fix.starts_with("limit"))
    );
    // It is not to blame where on-demand is below the list price of spot anyway.
    let mild = json!({ "requirements": requires(CAPACITY_TYPE, "In", &["spot"]), "priceAdjustment": "+10%" });
    assert!(!rules(&[("mild", mild), ("deep", discount(70))]).contains(&"on-demand-below-spot"));
    // Nor is there anything to say about a pool that has no spot.
    let on_demand = pool("od", &requires(CAPACITY_TYPE, "In", &["on-demand"]));
    let (_, effects) = evaluate(&[on_demand], &[("deep", discount(70))]);
    assert!(
        effects[0]
            .advice
            .iter()
            .all(|advice| advice.rule != Rule::OnDemandBelowSpot)
    );
}

#[test]
fn one_price_for_several_sizes_is_told_and_for_one_size_not() {
    let found = advice(&[(
        "flat",
        json!({ "requirements": requires(FAMILY, "In", &["m5"]), "price": "0.05" }),
    )]);
    let same = found
        .iter()
        .find(|advice| advice.rule == Rule::SamePrice)
        .unwrap();
    assert_eq!(same.field, "spec.price");
    assert!(
        same.message
            .starts_with("m5.large (2 vCPU) and m5.xlarge (4 vCPU) both cost $0.0500,"),
        "{}",
        same.message
    );
    let floor = json!({ "priceAdjustment": "-1.00" });
    let found = advice(&[("floor", floor)]);
    let same = found
        .iter()
        .find(|advice| advice.rule == Rule::SamePrice)
        .unwrap();
    assert_eq!(same.field, "spec.priceAdjustment");
    assert!(same.message.contains("both cost $0.0000"));
    let one = json!({ "requirements": requires(TYPE, "In", &["m5.large", "c5.large"]), "price": "0.05" });
    assert!(!rules(&[("one", one)]).contains(&"same-price"));
    // c5.large on demand and m5.xlarge as spot cost the same by accident.
    let all = json!({ "priceAdjustment": "+0.10" });
    assert!(!rules(&[("all", all)]).contains(&"same-price"));
}

#[test]
fn an_order_that_stays_is_told_and_one_that_changes_is_not() {
    let found = advice(&[("tenth", json!({ "priceAdjustment": "-10%" }))]);
    assert_eq!(
        found.iter().map(|advice| advice.rule).collect::<Vec<_>>(),
        [Rule::SameOrder]
    );
    assert!(
        found[0].message.starts_with("changes 12 prices, but"),
        "{}",
        found[0].message
    );
    // m5.large becomes cheaper than c5.large.
    let m5 = json!({ "requirements": requires(TYPE, "In", &["m5.large"]), "priceAdjustment": "-30%" });
    assert_eq!(rules(&[("m5", m5.clone())]), [""; 0]);
    // What it overrides had put it there already.
    let before = json!({ "weight": 1, "requirements": requires(TYPE, "In", &["m5.large"]), "priceAdjustment": "-31%" });
    let heavier = json!({ "weight": 2, "requirements": requires(TYPE, "In", &["m5.large"]), "priceAdjustment": "-30%" });
    assert_eq!(rules(&[("heavier", heavier), ("before", before)]), ["same-order"]);
    // This is not enough to overtake c5.large.
    let little = json!({ "requirements": requires(TYPE, "In", &["m5.large"]), "priceAdjustment": "-15%" });
    assert_eq!(rules(&[("little", little)]), ["same-order"]);
}

#[test]
fn same_weight_capacity_that_karpenter_lets_through_is_told_to_the_one_that_loses() {
    let capacity = |resources: Value| json!({ "capacity": resources });
    let overlays = [
        ("a", capacity(json!({ "x": "7" }))),
        ("b", capacity(json!({ "y": "1" }))),
        ("c", capacity(json!({ "x": "1" }))),
    ];
    let effects = effects(&overlays);
    assert_eq!(effects[0].advice.len(), 1);
    let found = &effects[0].advice[0];
    assert_eq!(
        (found.rule, found.field.as_str()),
        (Rule::UncheckedCapacity, "spec.capacity.x")
    );
    assert!(
        found
            .message
            .starts_with("sets \"x\" on m5.large with the same weight (0) as overlay c;"),
        "{}",
        found.message
    );
    assert_eq!(effects[1].advice, []);
    assert_eq!(effects[2].advice, []);
}

#[test]
fn capacity_by_offering_and_huge_pages_without_memory_are_told() {
    let spot = json!({ "requirements": requires(CAPACITY_TYPE, "In", &["spot"]), "capacity": { "x": "1" } });
    let found = advice(&[("spot", spot)]);
    assert_eq!(
        (found[0].rule, found[0].field.as_str()),
        (Rule::CapacityForAllOfferings, "spec.requirements[0]")
    );
    assert!(
        found[0]
            .message
            .contains("every offering of 3 types gets it, e.g. c5.large"),
        "{}",
        found[0].message
    );
    let any = json!({ "requirements": requires(CAPACITY_TYPE, "In", &["spot", "on-demand"]), "capacity": { "x": "1" } });
    assert_eq!(rules(&[("any", any)]), [""; 0]);

    let found = advice(&[("pages", json!({ "capacity": { "hugepages-1Gi": "4Gi" } }))]);
    assert_eq!(found[0].rule, Rule::NoMemoryLeft);
    assert!(
        found[0].message.contains("on 2 types, e.g. m5.large with 4Gi"),
        "{}",
        found[0].message
    );
    assert_eq!(
        rules(&[("pages", json!({ "capacity": { "hugepages-1Gi": "3Gi" } }))]),
        [""; 0]
    );
    assert_eq!(
        rules(&[("other", json!({ "capacity": { "example.com/pages": "4Gi" } }))]),
        [""; 0]
    );
}

#[test]
fn fields_are_judged_whatever_becomes_of_the_overlay() {
    assert_eq!(rules(&[("nothing", json!({}))]), ["sets-nothing"]);
    assert_eq!(rules(&[("nothing", json!({ "capacity": {} }))]), ["sets-nothing"]);
    let found = advice(&[("o", json!({ "overhead": { "memory": "10Mi" } }))]);
    assert_eq!((found.len(), found[0].rule), (1, Rule::Overhead));

    let bound = |operator: &str, value: &str| {
        let requirements = requires("karpenter.kwok.sh/instance-cpu", operator, &[value]);
        let found = advice(&[(
            "o",
            json!({ "requirements": requirements, "capacity": { "x": "1" } }),
        )]);
        let new = found.into_iter().find(|advice| advice.rule == Rule::NewOperator);
        new.map(|advice| advice.fix.split_once(", write ").unwrap().1.to_owned())
    };
    assert_eq!(bound("Gte", "4").unwrap(), "Gt [\"3\"], which means the same");
    assert_eq!(
        bound("Gte", "0").unwrap(),
        "Exists, which means the same for a label that is a number"
    );
    assert_eq!(bound("Lte", "4").unwrap(), "Lt [\"5\"], which means the same");
    assert_eq!(bound("Gt", "1"), None);
    assert_eq!(bound("Lt", "5"), None);
}

#[test]
fn the_worst_comes_first_and_every_rule_has_its_own_name() {
    let requirements = requires("karpenter.kwok.sh/instance-cpu", "Gte", &["99"]);
    assert_eq!(
        rules(&[("o", json!({ "requirements": requirements, "price": "1" }))]),
        ["matches-nothing", "new-operator"]
    );
    let mut names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Rule::ALL.len());
    assert!(Rule::ALL.iter().all(|rule| !rule.summary().is_empty()));
    assert!(Level::Info < Level::Warning && Level::Warning < Level::Error);
    assert_eq!(
        [Level::Info, Level::Warning, Level::Error].map(|level| level.to_string()),
        ["info", "warning", "error"]
    );
}

#[test]
fn a_pool_launches_what_its_requirements_and_labels_allow() {
    let catalogue = catalogue();
    let count = |requirements: Value| launchable(&catalogue, &pool("p", &requirements)).len();
    assert_eq!(count(json!([])), 16);
    assert_eq!(count(requires("kubernetes.io/os", "In", &["windows"])), 4);
    assert_eq!(count(requires(CAPACITY_TYPE, "In", &["spot"])), 8);
    assert_eq!(count(requires("topology.kubernetes.io/zone", "NotIn", &["a"])), 8);
    assert_eq!(count(requires("karpenter.kwok.sh/instance-cpu", "Gt", &["2"])), 4);
    assert_eq!(count(requires("own-label", "In", &["x"])), 16);
    let mut labelled = pool("p", &json!([]));
    labelled
        .spec
        .template
        .metadata
        .labels
        .insert(FAMILY.to_owned(), "c5".to_owned());
    assert_eq!(launchable(&catalogue, &labelled).len(), 4);
    let mut closed = catalogue.clone();
    closed.types[0].offerings[0].available = false;
    assert_eq!(launchable(&closed, &pool("p", &json!([]))).len(), 15);
}

//! The overlays that are written: names, labels, requirements, weights; whose they are; and when nothing is written.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use support::REGION;
use veneer_api::{NodeOverlay, NodeSelectorRequirementWithMinValues};
use veneer_steering::commitments::{Kind, Target};
use veneer_steering::overlays::{
    Action, Existing, Family, Naming, PoolRef, Pricing, Purpose, Rendering, Weights, cost_aware, diff,
    existing_targets, on_demand_only, plan, preference,
};
use veneer_steering::preferences::parse;

fn rendering() -> Rendering {
    support::rendering(Pricing::Zero)
}

fn written(overlay: &NodeOverlay) -> Value {
    let mut value = serde_json::to_value(overlay).unwrap();
    value
        .as_object_mut()
        .unwrap()
        .retain(|key, _| key == "metadata" || key == "spec");
    value
}

fn stored(overlay: &NodeOverlay) -> Existing {
    Existing {
        name: overlay.metadata.name.clone().unwrap(),
        labels: overlay.metadata.labels.clone().unwrap(),
        owners: overlay.metadata.owner_references.clone().unwrap_or_default(),
        spec: serde_json::to_value(&overlay.spec).unwrap(),
        ..Existing::default()
    }
}

fn pref(pool: &str, number: i32, text: &str) -> NodeOverlay {
    let read = parse(&format!("veneer.io/preference.{number}"), text).unwrap();
    preference(
        PoolRef {
            name: pool,
            uid: "uid-1",
        },
        &read,
        false,
    )
}

fn never(_: &Existing) -> bool {
    false
}

#[test]
fn cost_aware_overlays_are_those_of_the_first_release_under_zero_pricing() {
    let on_demand = json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]});
    for (target, expected) in [
        (
            Target::reserved("m5.xlarge", REGION),
            json!({
                "metadata": {"name": "cost-aware-ri-m5.xlarge-us-west-2", "labels": {
                    "app.kubernetes.io/managed-by": "veneer",
                    "veneer.io/type": "cost-aware",
                    "veneer.io/capacity-type": "reserved-instance",
                    "veneer.io/instance-type": "m5.xlarge",
                    "veneer.io/instance-family": "m5",
                    "veneer.io/region": "us-west-2",
                    "veneer.io/optimization-reason": "reserved-instances-available",
                }},
                "spec": {"weight": 30, "price": "0.00", "requirements": [on_demand,
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]}]},
            }),
        ),
        (
            Target::reserved_in("m5.xlarge", REGION, "us-west-2b"),
            json!({
                "metadata": {"name": "cost-aware-ri-m5.xlarge-us-west-2b", "labels": {
                    "app.kubernetes.io/managed-by": "veneer",
                    "veneer.io/type": "cost-aware",
                    "veneer.io/capacity-type": "reserved-instance",
                    "veneer.io/instance-type": "m5.xlarge",
                    "veneer.io/instance-family": "m5",
                    "veneer.io/region": "us-west-2",
                    "veneer.io/zone": "us-west-2b",
                    "veneer.io/optimization-reason": "reserved-instances-available",
                }},
                "spec": {"weight": 31, "price": "0.00", "requirements": [on_demand,
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2b"]}]},
            }),
        ),
        (
            Target::family("m5", REGION),
            json!({
                "metadata": {"name": "cost-aware-ec2-sp-m5-us-west-2", "labels": {
                    "app.kubernetes.io/managed-by": "veneer",
                    "veneer.io/type": "cost-aware",
                    "veneer.io/capacity-type": "ec2-instance-savings-plan",
                    "veneer.io/instance-family": "m5",
                    "veneer.io/region": "us-west-2",
                    "veneer.io/optimization-reason": "capacity-available",
                }},
                "spec": {"weight": 20, "price": "0.00", "requirements": [on_demand,
                    {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"]}]},
            }),
        ),
        (
            Target::compute(),
            json!({
                "metadata": {"name": "cost-aware-compute-sp-global", "labels": {
                    "app.kubernetes.io/managed-by": "veneer",
                    "veneer.io/type": "cost-aware",
                    "veneer.io/capacity-type": "compute-savings-plan",
                    "veneer.io/optimization-reason": "capacity-available",
                }},
                "spec": {"weight": 10, "price": "0.00", "requirements": [on_demand]},
            }),
        ),
    ] {
        assert_eq!(written(&cost_aware(&target, &rendering())), expected);
    }
}

#[test]
fn ordered_pricing_takes_a_share_off_instead_of_naming_a_price() {
    let mut ordered = rendering();
    ordered.pricing = Pricing::Ordered {
        adjustment: "-95%".to_owned(),
    };
    let spec = cost_aware(&Target::compute(), &ordered).spec;
    assert_eq!(
        (spec.price.as_deref(), spec.price_adjustment.as_deref()),
        (None, Some("-95%"))
    );
}

#[test]
fn weights_names_family_label_and_pools_follow_the_settings() {
    let custom = Rendering {
        weights: Weights {
            reserved_instance: 300,
            ec2_instance_savings_plan: 200,
            compute_savings_plan: 100,
        },
        naming: Naming {
            reserved_instance: "a".to_owned(),
            ec2_instance_savings_plan: "b".to_owned(),
            compute_savings_plan: "c".to_owned(),
        },
        family_label: "karpenter.kwok.sh/instance-family".to_owned(),
        only_pools: Some(vec!["one".to_owned(), "two".to_owned()]),
        ..rendering()
    };
    let overlays = [
        Target::reserved("m5.large", REGION),
        Target::family("m5", REGION),
        Target::compute(),
    ]
    .map(|target| cost_aware(&target, &custom));
    let names: Vec<&str> = overlays
        .iter()
        .map(|one| one.metadata.name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["a-m5.large-us-west-2", "b-m5-us-west-2", "c-global"]);
    let weights: Vec<i32> = overlays.iter().map(|one| one.spec.weight.unwrap()).collect();
    assert_eq!(weights, [300, 200, 100]);
    assert_eq!(
        overlays[1].spec.requirements[1].key,
        "karpenter.kwok.sh/instance-family"
    );
    for overlay in &overlays {
        let last = overlay.spec.requirements.last().unwrap();
        assert_eq!(last.key, "karpenter.sh/nodepool");
        assert_eq!(last.values, ["one", "two"]);
    }
}

#[test]
fn disabled_mode_adds_a_requirement_that_nothing_meets() {
    let disabled = Rendering {
        disabled: true,
        ..rendering()
    };
    let read = parse("veneer.io/preference.1", "a=b adjust=-1%").unwrap();
    let pool = PoolRef { name: "p", uid: "u" };
    let pairs = [
        (
            cost_aware(&Target::compute(), &rendering()),
            cost_aware(&Target::compute(), &disabled),
        ),
        (preference(pool, &read, false), preference(pool, &read, true)),
    ];
    for (on, off) in pairs {
        let (last, rest) = off.spec.requirements.split_last().unwrap();
        assert_eq!(rest, on.spec.requirements);
        assert_eq!(
            serde_json::to_value(last).unwrap(),
            json!({"key": "veneer.io/disabled", "operator": "In", "values": ["true"]})
        );
        // Both ways it is an update of the same overlay.
        for (from, to) in [(&on, &off), (&off, &on)] {
            let family = match stored(from).purpose() {
                Purpose::Preference => Family::Preferences,
                _ => Family::CostAware,
            };
            let plan = plan(std::slice::from_ref(to), &[stored(from)], family, never);
            assert_eq!(plan.actions.len(), 1);
            assert_eq!(plan.actions[0].operation(), "update");
        }
    }
}

#[test]
fn a_preference_becomes_an_overlay_of_its_pool() {
    let overlay = pref(
        "web",
        3,
        "kubernetes.io/arch=arm64 karpenter.k8s.aws/instance-cpu>7 adjust=-20%",
    );
    assert_eq!(
        written(&overlay),
        json!({
            "metadata": {"name": "pref-web-3",
                "labels": {
                    "app.kubernetes.io/managed-by": "veneer",
                    "veneer.io/type": "preference",
                    "veneer.io/source-nodepool": "web",
                    "veneer.io/preference-number": "3",
                },
                "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "web", "uid": "uid-1"}],
            },
            "spec": {"weight": 3, "priceAdjustment": "-20%", "requirements": [
                {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["web"]},
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
                {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["7"]},
            ]},
        })
    );
}

#[test]
fn labels_say_whose_an_overlay_is() {
    let labelled = |labels: &[(&str, &str)]| Existing {
        name: "cost-aware-compute-sp-global".to_owned(),
        labels: labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        ..Existing::default()
    };
    let ours = ("app.kubernetes.io/managed-by", "veneer");
    let family = Target::family("m5", REGION);
    for (labels, expected) in [
        (vec![], Purpose::Foreign),
        (vec![ours], Purpose::Foreign),
        (
            vec![
                ("app.kubernetes.io/managed-by", "helm"),
                ("veneer.io/type", "preference"),
            ],
            Purpose::Foreign,
        ),
        (
            vec![("veneer.io/capacity-type", "compute-savings-plan")],
            Purpose::Foreign,
        ),
        (vec![ours, ("veneer.io/type", "preference")], Purpose::Preference),
        (vec![ours, ("veneer.io/type", "cost-aware")], Purpose::Foreign),
        (
            vec![ours, ("veneer.io/capacity-type", "compute-savings-plan")],
            Purpose::CostAware(Kind::ComputeSavingsPlan, Some(Target::compute())),
        ),
        (
            vec![
                ours,
                ("veneer.io/capacity-type", "ec2-instance-savings-plan"),
                ("veneer.io/instance-family", "m5"),
                ("veneer.io/region", REGION),
            ],
            Purpose::CostAware(Kind::Ec2InstanceSavingsPlan, Some(family)),
        ),
        (
            vec![
                ours,
                ("veneer.io/capacity-type", "ec2-instance-savings-plan"),
                ("veneer.io/instance-family", "m5"),
            ],
            Purpose::CostAware(Kind::Ec2InstanceSavingsPlan, None),
        ),
        (
            vec![
                ours,
                ("veneer.io/capacity-type", "reserved-instance"),
                ("veneer.io/instance-type", "m5.large"),
                ("veneer.io/region", REGION),
            ],
            Purpose::CostAware(Kind::ReservedInstance, Some(Target::reserved("m5.large", REGION))),
        ),
    ] {
        assert_eq!(labelled(&labels).purpose(), expected, "{labels:?}");
    }
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let overlays = [
        cost_aware(&Target::compute(), &rendering()),
        cost_aware(&Target::family("m5", REGION), &rendering()),
    ];
    let mut existing: Vec<Existing> = overlays.iter().map(stored).collect();
    assert_eq!(plan(&overlays, &existing, Family::CostAware, never).actions, []);
    // What others add does not matter, nor does an empty field.
    existing[0].labels.insert("team".to_owned(), "x".to_owned());
    existing[0].spec["capacity"] = json!({});
    existing[0].spec["priceAdjustment"] = Value::Null;
    assert_eq!(plan(&overlays, &existing, Family::CostAware, never).actions, []);
    assert_eq!(existing_targets(&existing).len(), 2);
}

#[test]
fn every_difference_in_what_we_write_is_an_update() {
    let wanted = pref("web", 3, "a=b adjust=-20%");
    let changes: [fn(&mut Existing); 8] = [
        |one| one.spec["weight"] = json!(4),
        |one| one.spec["priceAdjustment"] = json!("-21%"),
        |one| one.spec["requirements"][1]["values"] = json!(["c"]),
        |one| one.spec["requirements"] = json!([]),
        |one| one.spec["capacity"] = json!({"example.com/x": "1"}),
        |one| {
            one.labels
                .insert("veneer.io/preference-number".to_owned(), "4".to_owned());
        },
        |one| {
            one.labels.remove("veneer.io/source-nodepool");
        },
        |one| one.owners[0].uid = "uid-2".to_owned(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut existing = stored(&wanted);
        change(&mut existing);
        let plan = plan(
            std::slice::from_ref(&wanted),
            &[existing],
            Family::Preferences,
            never,
        );
        let operations: Vec<&str> = plan.actions.iter().map(Action::operation).collect();
        assert_eq!(operations, ["update"], "change {at}");
    }
}

#[test]
fn an_overlay_of_an_earlier_release_is_adopted_and_its_price_gives_way() {
    let mut old = stored(&cost_aware(&Target::compute(), &rendering()));
    old.labels.remove("veneer.io/type");
    assert_eq!(
        existing_targets(std::slice::from_ref(&old)),
        BTreeSet::from([Target::compute()])
    );
    let mut ordered = rendering();
    ordered.pricing = Pricing::Ordered {
        adjustment: "-95%".to_owned(),
    };
    let wanted = cost_aware(&Target::compute(), &ordered);
    let plan = plan(&[wanted], &[old], Family::CostAware, never);
    let [Action::Update { strip, .. }] = plan.actions.as_slice() else {
        panic!("{plan:?}");
    };
    assert_eq!(strip, &["price"]);
}

#[test]
fn foreign_overlays_are_never_touched_even_under_our_name() {
    let wanted = cost_aware(&Target::compute(), &rendering());
    let mut foreign = stored(&wanted);
    foreign.labels.clear();
    let mut other = foreign.clone();
    other.name = "somebody-elses".to_owned();
    let both = [foreign, other];
    let with = plan(&[wanted], &both, Family::CostAware, never);
    assert_eq!(
        (with.actions.len(), with.taken),
        (0, vec!["cost-aware-compute-sp-global".to_owned()])
    );
    assert_eq!(plan(&[], &both, Family::CostAware, never).actions, []);
    // A preference is foreign to the cost-aware side, and the other way round.
    let preference = stored(&pref("web", 3, "a=b adjust=-20%"));
    assert_eq!(plan(&[], &[preference], Family::CostAware, never).actions, []);
    let ours = stored(&cost_aware(&Target::compute(), &rendering()));
    assert_eq!(plan(&[], &[ours], Family::Preferences, never).actions, []);
}

#[test]
fn a_new_prefix_makes_the_new_overlay_before_the_old_one_goes() {
    let old = stored(&cost_aware(&Target::compute(), &rendering()));
    let mut renamed = rendering();
    renamed.naming.compute_savings_plan = "new".to_owned();
    let wanted = cost_aware(&Target::compute(), &renamed);
    let plan = plan(&[wanted], &[old], Family::CostAware, never);
    let steps: Vec<String> = plan
        .actions
        .iter()
        .map(|one| format!("{} {} {}", one.operation(), one.name(), one.capacity_type()))
        .collect();
    assert_eq!(
        steps,
        [
            "create new-global compute-savings-plan",
            "delete cost-aware-compute-sp-global compute-savings-plan"
        ]
    );
}

#[test]
fn what_is_kept_or_being_deleted_is_left_alone() {
    let overlay = cost_aware(&Target::compute(), &rendering());
    let existing = stored(&overlay);
    assert_eq!(
        plan(&[], std::slice::from_ref(&existing), Family::CostAware, |_| true).actions,
        []
    );
    let mut deleting = existing;
    deleting.deleting = true;
    deleting.spec["weight"] = json!(7);
    assert_eq!(
        plan(&[], std::slice::from_ref(&deleting), Family::CostAware, never).actions,
        []
    );
    assert_eq!(
        plan(
            &[overlay],
            std::slice::from_ref(&deleting),
            Family::CostAware,
            never
        )
        .actions,
        []
    );
    assert!(existing_targets(&[deleting]).is_empty());
}

#[test]
fn a_difference_is_shown_line_by_line() {
    let overlay = pref("web", 3, "a=b adjust=-20%");
    let mut before = stored(&overlay);
    before.spec["priceAdjustment"] = json!("-10%");
    let update = plan(
        std::slice::from_ref(&overlay),
        &[before],
        Family::Preferences,
        never,
    );
    let text = diff(&update.actions[0]);
    assert!(text.starts_with("update NodeOverlay pref-web-3\n"), "{text}");
    let changed: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("  + ") || line.starts_with("  - "))
        .collect();
    assert_eq!(changed.len(), 2, "{text}");
    assert!(
        changed[0].starts_with("  - ") && changed[0].contains("-10%"),
        "{text}"
    );
    assert!(
        changed[1].starts_with("  + ") && changed[1].contains("-20%"),
        "{text}"
    );

    let create = diff(&Action::Create(Box::new(overlay.clone())));
    assert!(
        create.lines().skip(1).all(|line| line.starts_with("  + ")),
        "{create}"
    );
    let delete = diff(&Action::Delete(Box::new(stored(&overlay))));
    assert!(
        delete.lines().skip(1).all(|line| line.starts_with("  - ")),
        "{delete}"
    );
    assert_eq!(create.lines().count(), delete.lines().count());
}

#[test]
fn a_pool_is_on_demand_only_when_it_cannot_launch_spot() {
    let pool = |requirements: Value| {
        let read: Vec<NodeSelectorRequirementWithMinValues> = serde_json::from_value(requirements).unwrap();
        on_demand_only(&read)
    };
    let capacity = |operator: &str, values: &[&str]| json!([{"key": "karpenter.sh/capacity-type", "operator": operator, "values": values}]);
    assert!(pool(capacity("In", &["on-demand"])));
    assert!(pool(capacity("In", &["on-demand", "reserved"])));
    assert!(pool(capacity("NotIn", &["spot"])));
    assert!(!pool(capacity("In", &["on-demand", "spot"])));
    assert!(!pool(capacity("In", &["reserved"])));
    assert!(!pool(capacity("NotIn", &["on-demand"])));
    assert!(!pool(capacity("Exists", &[])));
    assert!(!pool(capacity("DoesNotExist", &[])));
    assert!(!pool(json!([])));
    assert!(!pool(
        json!([{"key": "team", "operator": "In", "values": ["on-demand"]}])
    ));
}

fn any_target() -> impl Strategy<Value = Target> {
    prop_oneof![
        ("[a-z][0-9][a-z]?\\.(large|[0-9]{0,2}xlarge)", "(us-west-2[abc])?")
            .prop_map(|(it, zone)| Target::reserved_in(&it, REGION, &zone)),
        "[a-z][0-9][a-z]?".prop_map(|family| Target::family(&family, REGION)),
        Just(Target::compute()),
    ]
}

proptest! {
    #[test]
    fn an_overlay_tells_its_target_and_is_stable(target in any_target(), disabled: bool, zero: bool) {
        let mut rendering = rendering();
        rendering.disabled = disabled;
        if !zero {
            rendering.pricing = Pricing::Ordered { adjustment: "-95%".to_owned() };
        }
        let overlay = cost_aware(&target, &rendering);
        let existing = stored(&overlay);
        prop_assert_eq!(existing.purpose(), Purpose::CostAware(target.kind, Some(target.clone())));
        prop_assert!(plan(&[overlay], &[existing], Family::CostAware, never).actions.is_empty());
    }

    #[test]
    fn carrying_out_a_plan_leaves_nothing_to_do(
        wanted in prop::collection::btree_set(any_target(), 0..6),
        there in prop::collection::btree_set(any_target(), 0..6),
    ) {
        let rendering = rendering();
        let desired: Vec<NodeOverlay> = wanted.iter().map(|one| cost_aware(one, &rendering)).collect();
        let mut disabled = rendering.clone();
        disabled.disabled = true;
        let mut existing: Vec<Existing> = there.iter().map(|one| stored(&cost_aware(one, &disabled))).collect();
        for action in plan(&desired, &existing, Family::CostAware, never).actions {
            existing.retain(|one| one.name != action.name());
            if let Action::Create(overlay) | Action::Update { overlay, .. } = action {
                existing.push(stored(&overlay));
            }
        }
        prop_assert_eq!(existing_targets(&existing), wanted);
        prop_assert!(plan(&desired, &existing, Family::CostAware, never).actions.is_empty());
    }
}

#[test]
fn a_weight_that_a_preference_has_moves_up_and_the_order_stays() {
    let weights = |reserved_instance, ec2_instance_savings_plan, compute_savings_plan| Weights {
        reserved_instance,
        ec2_instance_savings_plan,
        compute_savings_plan,
    };
    let usual = Weights::default();
    for (configured, taken, expected) in [
        (usual, vec![1, 2, 9, 15, 40], usual),
        (usual, vec![10, 20, 30], weights(31, 21, 11)),
        (usual, vec![10, 11, 12], weights(30, 20, 13)),
        (usual, (10..20).collect(), weights(30, 21, 20)),
        (usual, (10..30).collect(), weights(32, 31, 30)),
        (weights(10, 20, 30), vec![10, 30], weights(11, 20, 31)),
        (weights(5, 5, 5), vec![5], weights(6, 6, 6)),
        (weights(10_000, 20, 10), vec![10_000], weights(10_000, 20, 10)),
    ] {
        let taken = taken.into_iter().collect();
        assert_eq!(configured.beside(&taken), expected, "{taken:?}");
    }
}

//! The controller's decision, on a catalogue of two types with two offerings each.

use std::sync::Arc;

use serde_json::{Value, json};
use veneer_api::NodeOverlay;

use super::*;
use crate::catalogue::kwok;
use crate::labels::LabelRules;
use crate::overlay::{Conflict, ConflictField, Evaluator, Overlay, Pool, TieBreak};

const MINUTE: SignedDuration = SignedDuration::from_secs(60);
const STANDALONE: Policy = Policy {
    owner: Owner::Veneer,
    event_interval: SignedDuration::from_secs(600),
};
const COMPANION: Policy = Policy {
    owner: Owner::Karpenter { settle: MINUTE },
    event_interval: SignedDuration::from_secs(600),
};

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + 60 * minutes).unwrap()
}

/// A cluster as the controller sees it, with its memory.
struct Scene {
    policy: Policy,
    pools: Vec<&'static str>,
    overlays: Vec<(&'static str, Value)>,
    objects: BTreeMap<&'static str, (i64, Vec<Condition>)>,
    memory: Memory,
}

impl Scene {
    fn new(policy: Policy, overlays: &[(&'static str, Value)]) -> Self {
        Self {
            policy,
            pools: vec!["default"],
            overlays: overlays.to_vec(),
            objects: BTreeMap::new(),
            memory: Memory::default(),
        }
    }

    fn evaluate(&self) -> Evaluation {
        let offering = |capacity_type: &str, price: f64| {
            json!({"Price": price, "Requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
            ]})
        };
        let one = |name: &str, price: f64| {
            json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": {"cpu": "2", "memory": "8Gi"},
                "offerings": [offering("spot", price / 2.0), offering("on-demand", price)]})
        };
        let types = json!([one("m5.large", 0.5), one("c5.large", 0.25)]);
        let catalogue = Arc::new(kwok::parse(&types.to_string(), "test").unwrap());
        let overlays: Vec<_> = self
            .overlays
            .iter()
            .map(|(name, spec)| {
                let manifest: NodeOverlay = serde_json::from_value(json!({
                    "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
                    "metadata": {"name": name}, "spec": spec,
                }))
                .unwrap();
                Overlay::read(&manifest, &LabelRules::kwok())
            })
            .collect();
        let pools: Vec<_> = self
            .pools
            .iter()
            .map(|name| Pool {
                name: (*name).to_owned(),
                labels: Vec::new(),
            })
            .collect();
        Evaluator::new(catalogue, TieBreak::default()).evaluate(&pools, &overlays)
    }

    /// Decides, and carries the decision out on the objects.
    fn decide(&mut self, now: Timestamp) -> Plan {
        let evaluation = self.evaluate();
        let empty = (1, Vec::new());
        let subjects: Vec<_> = self
            .overlays
            .iter()
            .map(|(name, _)| self.objects.get(name).unwrap_or(&empty))
            .map(|(generation, conditions)| Subject {
                generation: *generation,
                conditions,
            })
            .collect();
        let effects = Effects::of(&evaluation);
        let plan = decide(
            &subjects,
            &evaluation,
            &effects,
            self.policy,
            &mut self.memory,
            now,
        );
        for change in &plan.statuses {
            let name = self.overlays[change.overlay].0;
            self.objects.entry(name).or_insert((1, Vec::new())).1 = change.conditions.clone();
        }
        plan
    }

    fn condition(&self, name: &str, type_: &str) -> &Condition {
        veneer_api::find_condition(&self.objects[name].1, type_).unwrap()
    }

    fn says(&self, name: &str, type_: &str) -> String {
        let condition = self.condition(name, type_);
        format!("{} {}", condition.status, condition.reason)
    }

    /// What Karpenter would have written.
    fn karpenter_says(&mut self, name: &'static str, generation: i64, status: &str, reason: &str) {
        let condition = |type_: &str, reason: &str| {
            serde_json::from_value(
                json!({"type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation}),
            )
            .unwrap()
        };
        let conditions = vec![
            condition("ValidationSucceeded", reason),
            condition("Ready", "any"),
        ];
        self.objects.insert(name, (1, conditions));
    }
}

fn price(price: &str) -> Value {
    json!({"price": price})
}

fn families(value: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["requirements"] =
        json!([{"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": [value]}]);
    spec
}

#[test]
fn a_good_overlay_gets_karpenters_conditions_and_applied() {
    let mut scene = Scene::new(STANDALONE, &[("a", price("0.10"))]);
    scene.decide(at(0));
    assert_eq!(scene.says("a", "ValidationSucceeded"), "True ValidationSucceeded");
    assert_eq!(scene.says("a", "Ready"), "True Ready");
    assert_eq!(scene.says("a", "Applied"), "True Applied");
    assert_eq!(
        scene.condition("a", "Applied").message,
        "changes 4 offerings in 1 NodePool"
    );
    assert_eq!(scene.condition("a", "Ready").message, "");
    assert_eq!(scene.condition("a", "Ready").observed_generation, Some(1));
    assert_eq!(scene.condition("a", "Ready").last_transition_time.0, at(0));
}

#[test]
fn a_conflict_names_the_other_overlay_and_an_offering_and_says_what_to_do() {
    let mut scene = Scene::new(STANDALONE, &[("a", price("0.10")), ("b", price("0.20"))]);
    scene.decide(at(0));
    assert_eq!(scene.says("a", "ValidationSucceeded"), "False Conflict");
    assert_eq!(scene.says("a", "Ready"), "False UnhealthyDependents");
    assert_eq!(scene.condition("a", "Ready").message, "ValidationSucceeded=False");
    assert_eq!(scene.says("a", "Applied"), "False Conflict");
    assert_eq!(scene.says("b", "Ready"), "True Ready");
    let message = &scene.condition("a", "ValidationSucceeded").message;
    for part in [
        "\"b\"",
        "the price of m5.large",
        "spot",
        "zone-a",
        "NodePool \"default\"",
        "weight",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_conflict_over_a_resource_says_so_and_many_names_are_counted() {
    let capacity = json!({"capacity": {"example.com/x": "1"}});
    let overlays = [
        ("a", families("m5", capacity.clone())),
        ("z", families("m5", capacity)),
    ];
    let mut scene = Scene::new(STANDALONE, &overlays);
    scene.decide(at(0));
    let message = &scene.condition("a", "ValidationSucceeded").message;
    assert!(
        message.contains("both set a resource of m5.large in NodePool"),
        "{message}"
    );

    let conflict = Conflict {
        with: ["b", "c", "d", "e", "f", "g", "h"].map(str::to_owned).to_vec(),
        field: ConflictField::Price,
        node_pool: "default".to_owned(),
        instance_type: "m5.large".to_owned(),
        offering: "spot".to_owned(),
    };
    let words = conditions::explain(&Verdict::Conflict(conflict));
    assert!(words.contains("\"f\", 2 more of the same weight"), "{words}");
}

#[test]
fn an_invalid_overlay_lists_its_problems_in_a_message_that_is_not_too_long() {
    let requirement = json!({"key": "karpenter.sh/nodeclaim", "operator": "In", "values": []});
    let spec = json!({"price": "1", "requirements": vec![requirement; 90]});
    let mut scene = Scene::new(STANDALONE, &[("a", spec)]);
    scene.decide(at(0));
    assert_eq!(scene.says("a", "ValidationSucceeded"), "False RuntimeValidation");
    assert_eq!(scene.says("a", "Applied"), "False RuntimeValidation");
    let message = &scene.condition("a", "ValidationSucceeded").message;
    assert!(message.starts_with("spec.requirements[0].key: "), "{message}");
    assert!((1900..2100).contains(&message.len()), "{}", message.len());
}

#[test]
fn applied_says_why_nothing_changes_and_ready_does_not_depend_on_it() {
    let cases = [
        ("nothing", families("x9", price("0.10")), "MatchesNothing"),
        ("empty", json!({}), "SetsNothing"),
        ("light", families("m5", price("0.10")), "Shadowed"),
        (
            "same",
            families("c5", json!({"priceAdjustment": "+0%"})),
            "NoDifference",
        ),
    ];
    let mut overlays: Vec<_> = cases
        .iter()
        .map(|(name, spec, _)| (*name, spec.clone()))
        .collect();
    overlays.push(("heavy", families("m5", json!({"price": "0.20", "weight": 7}))));
    let mut scene = Scene::new(STANDALONE, &overlays);
    scene.decide(at(0));
    for (name, _, reason) in cases {
        assert_eq!(scene.says(name, "Applied"), format!("False {reason}"), "{name}");
        assert_eq!(scene.says(name, "Ready"), "True Ready", "{name}");
    }

    scene.pools.clear();
    scene.decide(at(1));
    assert_eq!(scene.says("heavy", "Applied"), "False NoNodePool");
}

#[test]
fn nothing_is_written_when_nothing_changed_and_a_transition_time_moves_with_the_status_alone() {
    let mut scene = Scene::new(
        STANDALONE,
        &[("a", price("0.10")), ("b", families("m5", json!({})))],
    );
    assert_eq!(scene.decide(at(0)).statuses.len(), 2);
    assert_eq!(scene.decide(at(1)).statuses, []);

    // A new generation is observed without a transition.
    scene.objects.get_mut("a").unwrap().0 = 2;
    assert_eq!(scene.decide(at(2)).statuses.len(), 1);
    let ready = scene.condition("a", "Ready");
    assert_eq!(
        (ready.observed_generation, ready.last_transition_time.0),
        (Some(2), at(0))
    );

    // A conflict turns Ready, and leaves what b says of itself alone.
    scene.overlays[1].1 = price("0.20");
    assert_eq!(scene.decide(at(3)).statuses.len(), 2);
    assert_eq!(scene.condition("a", "Ready").last_transition_time.0, at(3));
    assert_eq!(scene.condition("b", "Ready").last_transition_time.0, at(0));
}

#[test]
fn conditions_of_others_and_fields_that_are_not_known_stay() {
    let mut scene = Scene::new(STANDALONE, &[("a", price("0.10"))]);
    let theirs: Vec<Condition> = serde_json::from_value(json!([
        {"type": "Audited", "status": "True", "reason": "Ok", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
         "future": 1},
    ]))
    .unwrap();
    scene.objects.insert("a", (1, theirs.clone()));
    let plan = scene.decide(at(0));
    assert_eq!(plan.statuses[0].conditions[0], theirs[0]);
    assert_eq!(scene.condition("a", "Ready").extra["future"], 1);
    assert_eq!(
        scene.condition("a", "Ready").last_transition_time,
        theirs[1].last_transition_time
    );
}

#[test]
fn a_verdict_is_new_once() {
    let mut scene = Scene::new(STANDALONE, &[("a", price("0.10")), ("b", json!({}))]);
    assert_eq!(scene.decide(at(0)).new_verdicts, [0, 1]);
    assert!(scene.decide(at(1)).new_verdicts.is_empty());
    scene.overlays[1].1 = price("0.30");
    assert_eq!(scene.decide(at(2)).new_verdicts, [0], "a lost its place");
    scene.overlays.remove(0);
    scene.decide(at(3));
    scene.overlays.insert(0, ("a", price("0.10")));
    assert_eq!(
        scene.decide(at(4)).new_verdicts,
        [0],
        "made again, it is new again"
    );
}

#[test]
fn a_pool_gets_one_event_per_change_and_at_most_one_in_ten_minutes() {
    let mut scene = Scene::new(STANDALONE, &[("a", families("m5", price("0.10")))]);
    assert_eq!(
        scene.decide(at(0)).announcements,
        [],
        "what holds at the start is no change"
    );

    scene
        .overlays
        .push(("b", families("c5", json!({"capacity": {"example.com/x": "1"}}))));
    let plan = scene.decide(at(1));
    assert_eq!(plan.announcements.len(), 1);
    assert_eq!(plan.announcements[0].node_pool, "default");
    assert_eq!(
        plan.announcements[0].note,
        "2 NodeOverlays in effect: 2 of 4 offerings with another price, 1 instance type with other resources"
    );
    assert_eq!(scene.decide(at(2)).announcements, []);

    // Another price of the same offerings is a change too, but it has to wait.
    scene.overlays[0].1 = families("m5", price("0.11"));
    let plan = scene.decide(at(5));
    assert_eq!((plan.announcements.len(), plan.look_again), (0, Some(at(11))));
    let plan = scene.decide(at(11));
    assert_eq!((plan.announcements.len(), plan.look_again), (1, None));

    // A change that is taken back while it waits is never told.
    scene.overlays.clear();
    assert_eq!(scene.decide(at(12)).look_again, Some(at(21)));
    scene.overlays = vec![
        ("a", families("m5", price("0.11"))),
        ("b", families("c5", json!({"capacity": {"example.com/x": "1"}}))),
    ];
    assert_eq!(scene.decide(at(13)).look_again, None);
    scene.overlays.clear();
    let plan = scene.decide(at(30));
    assert!(
        plan.announcements[0].note.starts_with("no NodeOverlay"),
        "{plan:?}"
    );
}

#[test]
fn a_new_pool_is_told_about_overlays_and_not_about_none() {
    let mut scene = Scene::new(STANDALONE, &[("a", price("0.10"))]);
    scene.decide(at(0));
    scene.pools.push("other");
    let plan = scene.decide(at(1));
    let pools: Vec<_> = plan
        .announcements
        .iter()
        .map(|one| one.node_pool.as_str())
        .collect();
    assert_eq!(pools, ["other"]);

    let mut scene = Scene::new(STANDALONE, &[]);
    scene.decide(at(0));
    scene.pools.push("other");
    assert_eq!(scene.decide(at(1)).announcements, []);
}

#[test]
fn beside_karpenter_no_condition_is_written() {
    let mut scene = Scene::new(COMPANION, &[("a", price("0.10")), ("b", price("0.20"))]);
    let plan = scene.decide(at(0));
    assert_eq!((plan.statuses, plan.findings), (vec![], vec![]));
}

#[test]
fn a_difference_from_karpenter_is_told_once_it_lasts_and_again_when_it_ends() {
    let mut scene = Scene::new(COMPANION, &[("a", price("0.10"))]);
    scene.karpenter_says("a", 1, "False", "Conflict");
    let plan = scene.decide(at(0));
    assert_eq!(
        (plan.findings, plan.differing, plan.look_again),
        (vec![], vec![], Some(at(1)))
    );

    let plan = scene.decide(at(1));
    let difference = Difference {
        overlay: "a".to_owned(),
        ours: "True (ValidationSucceeded)".to_owned(),
        because: String::new(),
        karpenters: "False (Conflict)".to_owned(),
    };
    assert_eq!(plan.findings, [Finding::Differs(difference)]);
    assert_eq!((plan.differing, plan.look_again), (vec!["a".to_owned()], None));

    let plan = scene.decide(at(2));
    assert_eq!((plan.findings, plan.differing), (vec![], vec!["a".to_owned()]));

    // Another difference is another warning, after its own time.
    scene.karpenter_says("a", 1, "False", "RuntimeValidation");
    assert_eq!(scene.decide(at(3)).differing, [""; 0]);
    assert_eq!(scene.decide(at(4)).findings.len(), 1);

    scene.karpenter_says("a", 1, "True", "ValidationSucceeded");
    let plan = scene.decide(at(5));
    assert_eq!(plan.findings, [Finding::AgreesAgain("a".to_owned())]);
    assert_eq!(plan.differing, [""; 0]);
}

#[test]
fn conditions_of_an_older_generation_are_not_compared() {
    let mut scene = Scene::new(COMPANION, &[("a", price("0.10"))]);
    scene.karpenter_says("a", 0, "False", "Conflict");
    assert_eq!(scene.decide(at(0)).look_again, None);
    assert_eq!(scene.decide(at(9)).findings, []);
}

#[test]
fn a_root_that_contradicts_its_dependents_is_a_difference() {
    let mut scene = Scene::new(COMPANION, &[("a", price("0.10"))]);
    scene.karpenter_says("a", 1, "True", "ValidationSucceeded");
    scene.objects.get_mut("a").unwrap().1[1].status = veneer_api::ConditionStatus::Unknown;
    scene.decide(at(0));
    let plan = scene.decide(at(1));
    let Finding::Differs(difference) = &plan.findings[0] else {
        panic!("{plan:?}")
    };
    assert_eq!(
        difference.karpenters,
        "True (ValidationSucceeded), and Ready Unknown"
    );
}

#[test]
fn effects_are_counted_per_overlay_and_pool() {
    let overlays = [
        ("heavy", families("m5", json!({"price": "9", "weight": 3}))),
        ("light", price("8")),
        (
            "other-pool",
            json!({"price": "7", "weight": 5,
            "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["two"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]}),
        ),
        (
            "resource",
            families("c5", json!({"capacity": {"example.com/x": "1"}, "weight": 2})),
        ),
        (
            "same-resource",
            families("c5", json!({"capacity": {"example.com/x": "2"}, "weight": 1})),
        ),
        (
            "draft",
            families("c5", json!({"overhead": {"memory": "1Gi"}, "weight": 7})),
        ),
        ("nothing", families("c5", json!({"weight": 8}))),
    ];
    let mut scene = Scene::new(STANDALONE, &overlays);
    scene.pools = vec!["one", "two", "like-one"];
    let effects = Effects::of(&scene.evaluate());
    let found: Vec<_> = overlays
        .iter()
        .zip(&effects.overlays)
        .map(|((name, _), one)| {
            (
                *name,
                one.matched.as_slice(),
                one.changed.as_slice(),
                one.wins,
                one.sets_something,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("heavy", &[2, 2, 2][..], &[2, 1, 2][..], true, true),
            ("light", &[4, 4, 4], &[2, 1, 2], true, true),
            ("other-pool", &[0, 2, 0], &[0, 2, 0], true, true),
            ("resource", &[2, 2, 2], &[2, 2, 2], true, true),
            ("same-resource", &[2, 2, 2], &[0, 0, 0], false, true),
            ("draft", &[2, 2, 2], &[2, 2, 2], true, true),
            ("nothing", &[2, 2, 2], &[0, 0, 0], false, false),
        ]
    );
    let pools: Vec<_> = effects
        .pools
        .iter()
        .map(|one| {
            (
                one.overlays,
                one.repriced,
                one.offerings,
                one.types_with_resources,
            )
        })
        .collect();
    assert_eq!(pools, [(4, 4, 4, 1), (5, 4, 4, 1), (4, 4, 4, 1)]);
}

#[test]
fn a_fingerprint_tells_other_prices_and_resources_and_nothing_else() {
    let fingerprint = |overlays: &[(&'static str, Value)]| {
        let scene = Scene::new(STANDALONE, overlays);
        Effects::of(&scene.evaluate()).pools[0].fingerprint
    };
    let resource = |amount: &str| families("m5", json!({"capacity": {"example.com/x": amount}}));
    let base = fingerprint(&[("a", price("1")), ("b", resource("1"))]);
    assert_eq!(
        base,
        fingerprint(&[("renamed", price("1")), ("b", resource("1"))])
    );
    assert_ne!(base, fingerprint(&[("a", price("2")), ("b", resource("1"))]));
    assert_ne!(base, fingerprint(&[("a", price("1")), ("b", resource("2"))]));
    let elsewhere = families("c5", json!({"capacity": {"example.com/x": "1"}}));
    assert_ne!(base, fingerprint(&[("a", price("1")), ("b", elsewhere)]));
}

#[test]
fn of_an_event_and_a_difference_that_wait_the_earlier_decides_when_to_look_again() {
    let mut scene = Scene::new(COMPANION, &[("a", price("0.10"))]);
    scene.karpenter_says("a", 1, "True", "ValidationSucceeded");
    scene.decide(at(0));
    scene.overlays[0].1 = price("0.20");
    assert_eq!(scene.decide(at(1)).announcements.len(), 1);
    scene.overlays[0].1 = price("0.30");
    assert_eq!(scene.decide(at(2)).look_again, Some(at(11)));
    scene.karpenter_says("a", 1, "False", "Conflict");
    assert_eq!(scene.decide(at(3)).look_again, Some(at(4)));
    assert_eq!(scene.decide(at(10)).look_again, Some(at(11)));
}

#[test]
fn a_message_is_cut_between_characters() {
    let requirement = json!({"key": "ü".repeat(63), "operator": "In", "values": ["a"]});
    for extra in 0..2 {
        let mut requirements = vec![requirement.clone(); 40];
        requirements.push(json!({"key": "a".repeat(extra), "operator": "In", "values": []}));
        let mut scene = Scene::new(
            STANDALONE,
            &[("a", json!({"price": "1", "requirements": requirements}))],
        );
        scene.decide(at(0));
        let message = &scene.condition("a", "ValidationSucceeded").message;
        assert!(
            message.ends_with('…') && message.len() <= 2_003,
            "{}",
            message.len()
        );
    }
}

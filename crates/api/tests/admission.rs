//! Our checks of objects beside a real API server: the same verdict for every object, for our own CRDs and for
//! Karpenter's.
//!
//! For every bound of every schema and for every rule there is at least one object that breaks it, and there are random
//! ones. `VENEER_ADMISSION_OBJECTS` sets how many objects are sent in all, `VENEER_SEED` which random ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use support::{
    cases::{Table, tables},
    generate, karpenter,
    random::{Among, Random, random_object},
    server::{Server, Verdict},
};
use tokio::task::JoinSet;
use veneer_api::{Mode, Provider, admission::Admission, crds, to_yaml};
use veneer_schema::{Constraint, Definition, Refusal, Schema};

/// Requests that are under way at a time.
const AT_ONCE: usize = 8;

/// Bounds that no new object can break, with the reason.
const UNBREAKABLE: [(&str, &str); 1] = [(
    "NodePool spec.disruption.budgets[] nodes is required",
    "nodes has a default, so it is never missing",
)];

/// One thing that a definition demands: kind, place and bound.
type Demand = (String, String, String);

#[test]
fn every_rule_of_our_crds_is_understood_and_those_about_updates_are_these() {
    for (mode, provider) in [
        (Mode::Standalone, None),
        (Mode::Standalone, Some(Provider::Ec2)),
        (Mode::Companion, Some(Provider::Kwok)),
    ] {
        let admission = Admission::new(mode, provider).unwrap();
        let updates: Vec<String> = admission
            .definitions()
            .flat_map(|definition| {
                let rules = definition.transition_rules().into_iter();
                rules.map(|(path, rule)| format!("{} {path}: {rule}", definition.kind))
            })
            .collect();
        assert_eq!(
            updates,
            [
                "NodeClaim spec: self == oldSelf",
                "NodePool spec: has(self.replicas) == has(oldSelf.replicas)",
                "NodePool spec.template.spec.nodeClassRef: self.group == oldSelf.group",
                "NodePool spec.template.spec.nodeClassRef: self.kind == oldSelf.kind",
            ]
        );
    }
}

#[test]
fn karpenters_own_crds_are_understood_too() {
    let mut rules = 0;
    for crd in karpenter::neutral()
        .iter()
        .chain(&karpenter::of_ec2())
        .chain(&karpenter::of_kwok())
    {
        let crd: Value = serde_saphyr::from_str(crd).unwrap();
        // CapacityBuffer is no kind of ours.
        if crd["spec"]["names"]["kind"] == "CapacityBuffer" {
            continue;
        }
        for definition in Definition::read(&crd).unwrap() {
            definition
                .schema
                .visit("", &mut |_, schema| rules += schema.rules.len());
        }
    }
    assert!(rules > 150, "{rules}");
}

#[test]
fn beside_karpenter_requirements_must_be_there_and_overhead_must_not() {
    let object = |spec: Value| json!({ "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "a" }, "spec": spec });
    let fields = |mode, spec: Value| {
        let refusals = Admission::new(mode, None).unwrap().check(&object(spec)).unwrap();
        refusals
            .into_iter()
            .map(|refusal| refusal.field)
            .collect::<Vec<_>>()
    };
    let without = json!({ "price": "5.00" });
    let overhead = json!({ "requirements": [], "overhead": { "memory": "1Gi" } });
    assert_eq!(fields(Mode::Standalone, without.clone()), [""; 0]);
    assert_eq!(fields(Mode::Companion, without), ["spec.requirements"]);
    assert_eq!(fields(Mode::Standalone, overhead.clone()), [""; 0]);
    assert_eq!(fields(Mode::Companion, overhead), ["spec.overhead"]);
}

#[tokio::test]
async fn our_verdict_is_the_api_servers_for_every_bound_and_rule_of_every_kind() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (total, seed) = (number("VENEER_ADMISSION_OBJECTS", 4500), number("VENEER_SEED", 1));
    let server = Arc::new(Server::start().await);
    let ours = |mode, provider| -> Vec<String> {
        crds(mode, provider)
            .iter()
            .map(|crd| to_yaml(crd).unwrap())
            .collect()
    };
    let beside = |mut crds: Vec<String>| {
        crds.extend(ours(Mode::Companion, None));
        crds
    };
    let sets = [
        ("standalone", Mode::Standalone, None, ours(Mode::Standalone, None)),
        ("companion", Mode::Companion, None, beside(karpenter::neutral())),
        (
            "companion on EC2",
            Mode::Companion,
            Some(Provider::Ec2),
            beside(karpenter::of_ec2()),
        ),
    ];
    let each = usize::try_from(total).unwrap() / sets.len();
    let mut differences = Vec::new();
    for (name, mode, provider, crds) in sets {
        server.replace_crds(&crds).await;
        let admission = Admission::new(mode, provider).unwrap();
        let (objects, unbroken) = objects(&admission, each, seed);
        // What our own CRDs demand is broken by an object of its own; the other sets have the same demands.
        if mode == Mode::Standalone {
            assert_eq!(unbroken, Vec::<String>::new(), "no object breaks these");
        }
        let verdicts = verdicts(&server, objects).await;
        let count = |wanted: (bool, bool)| {
            let of = |(_, ours, theirs): &&(Value, Vec<Refusal>, Verdict)| {
                (ours.is_empty(), theirs.is_accepted()) == wanted
            };
            verdicts.iter().filter(of).count()
        };
        println!(
            "{name}: {} objects: {} accepted and {} refused by both",
            verdicts.len(),
            count((true, true)),
            count((false, false))
        );
        assert!(
            count((true, true)) * 10 > verdicts.len(),
            "the objects are too much alike"
        );
        for (object, ours, theirs) in verdicts {
            if ours.is_empty() != theirs.is_accepted() {
                let ours: Vec<String> = ours
                    .iter()
                    .map(|one| format!("{}: {}", one.field, one.sentence()))
                    .collect();
                let theirs = match theirs {
                    Verdict::Accepted(_) => "accepted".to_owned(),
                    Verdict::Refused(message) => message.chars().take(400).collect(),
                };
                let object: String = object.to_string().chars().take(1500).collect();
                differences.push(format!(
                    "{name}: {object}\n  ours: {ours:?}\n  API server: {theirs}"
                ));
            }
        }
    }
    println!("differences: {}", differences.len());
    let shown = differences
        .iter()
        .take(12)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(differences.is_empty(), "{} differ:\n{shown}", differences.len());
}

/// Asks the API server about every object.
async fn verdicts(
    server: &Arc<Server>,
    objects: Vec<(Value, Vec<Refusal>)>,
) -> Vec<(Value, Vec<Refusal>, Verdict)> {
    let mut verdicts = Vec::new();
    let mut under_way = JoinSet::new();
    for (object, ours) in objects {
        while under_way.len() >= AT_ONCE {
            verdicts.push(under_way.join_next().await.unwrap().unwrap());
        }
        let server = Arc::clone(server);
        under_way.spawn(async move {
            let theirs = server.create(&object).await;
            (object, ours, theirs)
        });
    }
    while let Some(verdict) = under_way.join_next().await {
        verdicts.push(verdict.unwrap());
    }
    verdicts
}

/// Objects with our verdict: one at least for every demand, then random ones until there are `count`. And the demands
/// that none of them breaks.
fn objects(admission: &Admission, count: usize, seed: u64) -> (Vec<(Value, Vec<Refusal>)>, Vec<String>) {
    let mut chosen: Vec<(Value, Vec<Refusal>)> = Vec::new();
    let mut spare = Vec::new();
    let mut open: BTreeSet<Demand> = admission.definitions().flat_map(demands).collect();
    let mut seen: BTreeMap<(String, String, &'static str, bool), usize> = BTreeMap::new();
    let tables = tables();
    let definition_of = |object: &Value| {
        let text = |field: &str| object[field].as_str().unwrap().to_owned();
        admission.definition(&text("apiVersion"), &text("kind")).unwrap()
    };
    for (_, table) in &tables {
        let definition = definition_of(&table.base);
        chosen.extend(metadata(table).into_iter().map(|object| {
            let refusals = definition.check(&object);
            (object, refusals)
        }));
        let mut accepted: Vec<Value> = Vec::new();
        for case in table.accepted.iter().chain(&table.refused) {
            let object = table.object(&case.spec);
            let refusals = definition.check(&object);
            // Long lists take their time and have no more places.
            if refusals.is_empty() && object.to_string().len() < 3000 {
                accepted.push(object.clone());
            }
            chosen.push((object, refusals));
        }
        // Everything filled in that the schema has: a place for the changes to happen in.
        let mut whole = table.base.clone();
        fill(&mut whole, &definition.schema);
        let mut visits: BTreeMap<String, usize> = BTreeMap::new();
        for object in [&whole].into_iter().chain(&accepted) {
            // A place that was changed before has shown what there is to see, unless something there is not broken yet.
            let mut fresh = |place: &str| {
                let times = visits.entry(place.to_owned()).or_default();
                *times += 1;
                *times <= 1 || (*times <= 12 && open_places(&open, place))
            };
            for change in generate::changes(object, &definition.schema, &mut fresh) {
                // Without a kind there is nobody to send it to.
                if ["apiVersion", "kind"]
                    .iter()
                    .any(|field| !change.object[*field].is_string())
                {
                    continue;
                }
                let refusals = definition.check(&change.object);
                let broken: Vec<Demand> = refusals
                    .iter()
                    .map(|refusal| demand(definition, refusal))
                    .collect();
                let covers = broken.iter().filter(|broken| open.remove(broken)).count() > 0;
                let key = (
                    definition.kind.clone(),
                    change.place,
                    change.what,
                    refusals.is_empty(),
                );
                let times = seen.entry(key).or_default();
                *times += 1;
                if covers {
                    chosen.push((change.object, refusals));
                } else if *times <= 2 {
                    spare.push((change.object, refusals));
                }
            }
        }
    }
    let mut random = Random(seed);
    let systematic = chosen.len() + spare.len();
    // Half of the rest is systematic, as far as it goes; every other one is random.
    while chosen.len() < count {
        if !spare.is_empty() && random.below(2) == 0 {
            chosen.push(spare.swap_remove(random.below(spare.len())));
            continue;
        }
        let (_, table) = &tables[random.below(tables.len())];
        let object = random_object(table, Among::All, &mut random);
        let refusals = definition_of(&object).check(&object);
        chosen.push((object, refusals));
    }
    println!(
        "{systematic} systematic objects, {} of them left out",
        spare.len()
    );
    let listed = |name: &String| !UNBREAKABLE.iter().any(|(listed, _)| listed == name);
    let unbroken = open
        .iter()
        .map(|(kind, place, bound)| format!("{kind} {place} {bound}"));
    (chosen, unbroken.filter(listed).collect())
}

/// Whether a demand about this place, or one around it, is not broken yet.
fn open_places(open: &BTreeSet<Demand>, place: &str) -> bool {
    open.iter()
        .any(|(_, demanded, _)| place.starts_with(demanded.as_str()))
}

/// Puts something into every field that has nothing, except the status.
fn fill(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) => {
            for (name, property) in schema.properties.iter().filter(|(name, _)| *name != "status") {
                fields
                    .entry(name.clone())
                    .or_insert_with(|| generate::sample(property));
            }
            for (name, value) in fields.iter_mut() {
                if let Some(schema) = schema.field(name) {
                    fill(value, schema);
                }
            }
        }
        Value::Array(list) => {
            for item in list {
                schema.items.iter().for_each(|items| fill(item, items));
            }
        }
        _ => {}
    }
}

/// Everything that a definition demands of a new object.
fn demands(definition: &Definition) -> Vec<Demand> {
    let mut demands = Vec::new();
    definition.schema.visit("", &mut |place, schema| {
        // The status of a new object is thrown away.
        if place.starts_with("status") {
            return;
        }
        let mut demand = |bound: String| demands.push((definition.kind.clone(), place.to_owned(), bound));
        if !place.is_empty() && !schema.types.is_empty() {
            demand("type".to_owned());
        }
        for name in &schema.required {
            demand(format!("{name} is required"));
        }
        for (is_there, name) in [
            (!schema.values.is_empty(), "enum"),
            (schema.pattern.is_some(), "pattern"),
            (schema.format.as_deref() == Some("date-time"), "format"),
            (schema.minimum.or(schema.maximum).is_some(), "range"),
            (schema.min_length.or(schema.max_length).is_some(), "size"),
            (schema.min_items.or(schema.max_items).is_some(), "size"),
            (schema.min_properties.or(schema.max_properties).is_some(), "size"),
            (
                schema.unique_items || matches!(schema.list_type.as_deref(), Some("set" | "map")),
                "unique",
            ),
        ] {
            if is_there {
                demand(name.to_owned());
            }
        }
        for rule in schema.rules.iter().filter(|rule| !rule.program.is_transition()) {
            demand(format!("rule: {}", rule.message));
        }
    });
    demands
}

/// The demand that a refusal is about.
fn demand(definition: &Definition, refusal: &Refusal) -> Demand {
    let mut place = place_of(&refusal.field, &definition.schema);
    let bound = match refusal.constraint {
        Constraint::Required => {
            let (parent, name) = place.rsplit_once('.').unwrap_or(("", &place));
            let bound = format!("{name} is required");
            place = parent.to_owned();
            bound
        }
        Constraint::Rule => format!("rule: {}", refusal.expected),
        Constraint::Unique => {
            place = place.trim_end_matches("[]").to_owned();
            "unique".to_owned()
        }
        Constraint::Type => "type".to_owned(),
        Constraint::Enum => "enum".to_owned(),
        Constraint::Pattern => "pattern".to_owned(),
        Constraint::Format => "format".to_owned(),
        Constraint::Range => "range".to_owned(),
        Constraint::Size => "size".to_owned(),
        Constraint::Metadata | Constraint::UnknownField | Constraint::Choice => String::new(),
    };
    (definition.kind.clone(), place, bound)
}

/// The place in the schema of a field in an object.
fn place_of(field: &str, schema: &Schema) -> String {
    let mut place = String::new();
    let (mut rest, mut schema) = (field, Some(schema));
    while !rest.is_empty() {
        rest = rest.trim_start_matches('.');
        if let Some(after) = rest.strip_prefix('[') {
            rest = after.split_once(']').unwrap().1;
            schema = schema.and_then(|schema| schema.items.as_deref());
            place.push_str("[]");
            continue;
        }
        let known = schema.into_iter().flat_map(|schema| schema.properties.iter());
        let known = known.filter(|(name, _)| {
            rest.strip_prefix(name.as_str())
                .is_some_and(|after| after.is_empty() || after.starts_with(['.', '[']))
        });
        let (step, after, below) = match known.max_by_key(|(name, _)| name.len()) {
            Some((name, below)) => (name.as_str(), &rest[name.len()..], Some(below)),
            // An entry of a map has any name, and is the last step here.
            None => ("*", "", schema.and_then(|schema| schema.field("*"))),
        };
        place = if place.is_empty() {
            step.to_owned()
        } else {
            format!("{place}.{step}")
        };
        (rest, schema) = (after, below);
    }
    place
}

/// The base of a table with metadata on both sides of what is accepted, and what else stands outside the spec.
fn metadata(table: &Table) -> Vec<Value> {
    let long = |length: usize| "a".repeat(length);
    let patches = [
        json!({ "name": "A" }),
        json!({ "name": "a_b" }),
        json!({ "name": "a.b-c" }),
        json!({ "name": "-a" }),
        json!({ "name": "a." }),
        json!({ "name": "" }),
        json!({ "name": null }),
        json!({ "name": 5 }),
        json!({ "name": long(253) }),
        json!({ "name": long(254) }),
        json!({ "name": null, "generateName": "a-" }),
        json!({ "name": null, "generateName": "A-" }),
        json!({ "namespace": "default" }),
        json!({ "namespace": "other" }),
        json!({ "nmae": "a" }),
        json!({ "resourceVersion": "5" }),
        json!({ "resourceVersion": "" }),
        json!({ "uid": "5" }),
        json!({ "generation": 5 }),
        json!({ "generation": "5" }),
        json!({ "creationTimestamp": null }),
        json!({ "creationTimestamp": "yesterday" }),
        json!({ "labels": { "a": "b", "example.com/a": "B.c_d-e" } }),
        json!({ "labels": { "a": "" } }),
        json!({ "labels": { "a": null } }),
        json!({ "labels": { "a": 1 } }),
        json!({ "labels": { "a": "-" } }),
        json!({ "labels": { "a": "b c" } }),
        json!({ "labels": { "a": long(63) } }),
        json!({ "labels": { "a": long(64) } }),
        json!({ "labels": { "a/b/c": "d" } }),
        json!({ "labels": { "/b": "d" } }),
        json!({ "labels": { "A.b/b": "d" } }),
        json!({ "labels": { "": "d" } }),
        json!({ "labels": [] }),
        json!({ "annotations": { "Example.com/A": "any thing" } }),
        json!({ "annotations": { "a b": "" } }),
        json!({ "annotations": { "a": true } }),
        json!({ "annotations": { "a": long(256 * 1024) } }),
        json!({ "annotations": { "a": long(256 * 1024 - 1) } }),
        json!({ "finalizers": ["a", "example.com/b"] }),
        json!({ "finalizers": ["a b"] }),
        json!({ "finalizers": "a" }),
        json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1" }] }),
        json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a" }] }),
        json!({ "ownerReferences": {} }),
    ];
    let mut objects: Vec<Value> = patches
        .iter()
        .map(|patch| {
            let mut object = table.base.clone();
            let metadata = object["metadata"].as_object_mut().unwrap();
            for (key, value) in patch.as_object().unwrap() {
                metadata.insert(key.clone(), value.clone());
            }
            object
        })
        .collect();
    let changes: [(&str, Value); 7] = [
        ("metadata", json!(null)),
        ("metadata", json!("a")),
        ("spec", json!(null)),
        ("spec", json!([])),
        ("status", json!({ "unknownThing": 1 })),
        ("status", json!("x")),
        ("sepc", json!({})),
    ];
    for (field, value) in changes {
        let mut object = table.base.clone();
        object[field] = value;
        objects.push(object);
    }
    objects
}

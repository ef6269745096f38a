//! The CRDs on a real API server: what is accepted, what is refused and in which words, and that Karpenter's own
//! CRDs give the same verdicts.

mod support;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use support::{
    cases::{Case, Table, tables},
    examples::examples,
    karpenter,
    server::{Server, Verdict, collection},
};
use veneer_api::{Mode, Provider, crds, to_yaml};

fn ours(mode: Mode, provider: Option<Provider>) -> Vec<String> {
    crds(mode, provider)
        .iter()
        .map(|crd| to_yaml(crd).unwrap())
        .collect()
}

/// Collects differences, so that one run shows all of them.
#[derive(Default)]
struct Report {
    accepted: usize,
    refused: usize,
    messages: Vec<String>,
    wrong: Vec<String>,
}

impl Report {
    /// Notes a verdict; `expected` is the text that a refusal must contain, or None for an accepted object.
    fn note(&mut self, case: &str, verdict: Verdict, expected: Option<&str>) {
        match (verdict, expected) {
            (Verdict::Accepted(_), None) => self.accepted += 1,
            (Verdict::Refused(message), Some(text)) if message.contains(text) => {
                self.refused += 1;
                self.messages.push(message);
            }
            (Verdict::Accepted(_), Some(text)) => self
                .wrong
                .push(format!("{case}: accepted, expected refusal with '{text}'")),
            (Verdict::Refused(message), Some(text)) => {
                self.wrong
                    .push(format!("{case}: the refusal lacks '{text}': {message}"));
            }
            (Verdict::Refused(message), None) => self.wrong.push(format!("{case}: refused: {message}")),
        }
    }

    fn finish(&self, what: &str) {
        println!(
            "{what}: {} accepted, {} refused as expected",
            self.accepted, self.refused
        );
        assert!(
            self.wrong.is_empty(),
            "{what}: {} differ:\n{}",
            self.wrong.len(),
            self.wrong.join("\n")
        );
    }
}

/// Whose CRDs are asked, which decides what a case expects.
#[derive(Clone, Copy, PartialEq)]
enum Whose {
    Ours,
    Karpenters,
}

impl Whose {
    /// The text that a refusal must contain: our words in ours, any words in Karpenter's.
    fn words<'a>(self, says: &'a Option<String>) -> Option<&'a str> {
        match self {
            Whose::Ours => says.as_deref(),
            Whose::Karpenters => says.as_ref().map(|_| ""),
        }
    }
}

async fn run(server: &Server, whose: Whose, provider: Option<&str>) -> Report {
    let mut report = Report::default();
    for (name, table) in tables() {
        if whose == Whose::Karpenters && name == "overprovisioner" {
            continue;
        }
        new_objects(server, whose, provider, &name, &table, &mut report).await;
        for update in &table.updates {
            let verdict = server
                .update(&table.object(&update.from), &table.object(&update.to))
                .await;
            report.note(
                &format!("{name}, update: {}", update.case),
                verdict,
                whose.words(&update.says),
            );
        }
        for status in &table.status {
            let verdict = server.status(&table.with_status(&status.status)).await;
            report.note(
                &format!("{name}, status: {}", status.case),
                verdict,
                whose.words(&status.says),
            );
        }
    }
    report
}

async fn new_objects(
    server: &Server,
    whose: Whose,
    provider: Option<&str>,
    name: &str,
    table: &Table,
    report: &mut Report,
) {
    let deviates = |case: &Case| whose == Whose::Karpenters && case.karpenter.is_some();
    for case in &table.accepted {
        assert!(
            case.says.is_none(),
            "{name}, {}: an accepted case says nothing",
            case.case
        );
        let verdict = server.create(&table.object(&case.spec)).await;
        report.note(
            &format!("{name}: {}", case.case),
            verdict,
            deviates(case).then_some(""),
        );
    }
    for case in &table.refused {
        assert!(
            case.says.is_some(),
            "{name}, {}: what does the refusal say?",
            case.case
        );
        let verdict = server.create(&table.object(&case.spec)).await;
        let expected = if deviates(case) {
            None
        } else {
            whose.words(&case.says)
        };
        report.note(&format!("{name}: {}", case.case), verdict, expected);
    }
    for case in &table.refused_by_provider {
        let closed = provider.is_some() && case.provider.as_deref() == provider;
        let verdict = server.create(&table.object(&case.spec)).await;
        let expected = if closed { whose.words(&case.says) } else { None };
        report.note(&format!("{name}, {provider:?}: {}", case.case), verdict, expected);
    }
}

#[tokio::test]
async fn our_crds_accept_and_refuse_what_the_tables_say_in_words_that_name_the_field() {
    let server = Server::start().await;
    let crds = ours(Mode::Standalone, None);
    server.replace_crds(&crds).await;

    let report = run(&server, Whose::Ours, None).await;

    report.finish("ours");
    for crd in crds {
        let crd: Value = serde_saphyr::from_str(&crd).unwrap();
        for message in rule_messages(&crd) {
            assert!(
                report.messages.iter().any(|refusal| refusal.contains(&message)),
                "no case breaks the rule '{message}' of {}",
                crd["spec"]["names"]["kind"]
            );
        }
    }
    assert!(report.accepted >= 60 && report.refused >= 60);
}

#[tokio::test]
async fn karpenters_own_crds_give_the_same_verdicts() {
    let server = Server::start().await;
    server.replace_crds(&karpenter::neutral()).await;

    run(&server, Whose::Karpenters, None).await.finish("Karpenter's");
}

#[tokio::test]
async fn with_a_provider_both_close_its_label_domain() {
    let server = Server::start().await;
    for (provider, name, karpenters) in [
        (Provider::Ec2, "ec2", karpenter::of_ec2()),
        (Provider::Kwok, "kwok", karpenter::of_kwok()),
    ] {
        server.replace_crds(&ours(Mode::Standalone, Some(provider))).await;
        run(&server, Whose::Ours, Some(name))
            .await
            .finish(&format!("ours for {name}"));
        server.replace_crds(&karpenters).await;
        run(&server, Whose::Karpenters, Some(name))
            .await
            .finish(&format!("Karpenter's for {name}"));
    }
}

#[tokio::test]
async fn beside_karpenters_crds_ours_for_companion_mode_install_too() {
    let server = Server::start().await;
    let mut crds = karpenter::neutral();
    crds.extend(ours(Mode::Companion, None));
    server.replace_crds(&crds).await;

    let tables = tables();
    let (_, table) = tables.iter().find(|(name, _)| name == "overprovisioner").unwrap();
    let verdict = server.create(&table.object(&json!({}))).await;

    assert!(verdict.is_accepted(), "{verdict:?}");
}

#[tokio::test]
async fn the_manifests_of_the_design_documents_are_accepted_or_refused_for_a_stated_reason() {
    let server = Server::start().await;
    server.replace_crds(&ours(Mode::Standalone, None)).await;

    let mut report = Report::default();
    for example in examples() {
        let object = json!({ "apiVersion": example.api_version, "kind": example.kind });
        let verdict = server.create_from_yaml(&collection(&object), &example.yaml).await;
        report.note(&example.name, verdict, example.refused.as_deref());
    }

    report.finish("examples");
    assert!(report.accepted >= 10, "{}", report.accepted);
}

#[tokio::test]
async fn an_object_of_the_api_server_reads_as_our_type_and_writes_back_the_same() {
    let server = Server::start().await;
    server.replace_crds(&ours(Mode::Standalone, None)).await;

    for (name, table) in tables() {
        for case in &table.accepted {
            let stored = server.store(&table.object(&case.spec)).await;
            let written = through_our_type(&stored);
            assert_eq!(
                without_server_fields(&written),
                without_server_fields(&stored),
                "{name}: {}",
                case.case
            );
            server.delete(&stored).await;
        }
    }
}

#[tokio::test]
async fn kubectl_shows_the_columns_that_karpenter_shows_and_ours_for_spares() {
    let server = Server::start().await;
    let kinds = ["nodepools", "nodeclaims", "nodeoverlays"];
    let mut columns = Vec::new();
    for crds in [ours(Mode::Standalone, None), karpenter::neutral()] {
        server.replace_crds(&crds).await;
        let mut found = Vec::new();
        for (kind, version) in kinds.iter().zip(["v1", "v1", "v1alpha1"]) {
            found.push(
                server
                    .columns(&format!("/apis/karpenter.sh/{version}/{kind}"))
                    .await,
            );
        }
        found.push(
            server
                .columns("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses")
                .await,
        );
        found.push(server.columns("/apis/karpenter.k8s.aws/v1/ec2nodeclasses").await);
        columns.push(found);
    }
    assert_eq!(columns[0], columns[1]);
    server.replace_crds(&ours(Mode::Companion, None)).await;
    assert_eq!(
        server
            .columns("/apis/karpenter.sh/v1beta1/overprovisioners")
            .await,
        [
            "Name",
            "State",
            "Desired",
            "Ready",
            "In Use",
            "Next Override",
            "Age",
            "Strategy",
            "NodePools"
        ]
    );
}

/// Reads an object as the type of its kind and writes it again.
fn through_our_type(object: &Value) -> Value {
    fn pass<T: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> Value {
        let typed: T =
            serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{object}: {error}"));
        serde_json::to_value(typed).unwrap()
    }
    match object["kind"].as_str().unwrap() {
        "NodeOverlay" => pass::<veneer_api::NodeOverlay>(object),
        "NodePool" => pass::<veneer_api::NodePool>(object),
        "NodeClaim" => pass::<veneer_api::NodeClaim>(object),
        "Overprovisioner" => pass::<veneer_api::Overprovisioner>(object),
        "KWOKNodeClass" => pass::<veneer_api::KWOKNodeClass>(object),
        "EC2NodeClass" => pass::<veneer_api::EC2NodeClass>(object),
        kind => panic!("unknown kind {kind}"),
    }
}

/// Drops empty collections and numbers' form, which mean the same present or absent, as text or as integers.
fn without_server_fields(object: &Value) -> Value {
    match object {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), without_server_fields(value)))
            .filter(|(_, value)| *value != json!({}) && *value != json!([]))
            .collect(),
        Value::Array(items) => items.iter().map(without_server_fields).collect(),
        Value::Number(number) => number.to_string().into(),
        plain => plain.clone(),
    }
}

fn rule_messages(schema: &Value) -> BTreeSet<String> {
    let mut messages = BTreeSet::new();
    if let Some(rules) = schema.get("x-kubernetes-validations").and_then(Value::as_array) {
        messages.extend(
            rules
                .iter()
                .map(|rule| rule["message"].as_str().unwrap().to_owned()),
        );
    }
    match schema {
        Value::Object(fields) => messages.extend(fields.values().flat_map(rule_messages)),
        Value::Array(items) => messages.extend(items.iter().flat_map(rule_messages)),
        _ => {}
    }
    messages
}

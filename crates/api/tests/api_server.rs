//! The CRDs on a real API server: what is accepted, what is refused and in which words, and that Karpenter's own
//! CRDs give the same verdicts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod support;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use support::{
    cases::{Case, Table, tables},
    examples::examples,
    karpenter,
    server::{Server, Verdict, collection},
    types::{comparable, through_our_type},
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
    fn words(self, says: &Option<String>) -> Option<&str> {
        match self {
            Whose::Ours => says.as_deref(),
            Whose::Karpenters => says.as_ref().map(|_| ""),
        }
    }
}

async fn run(server: &Server, whose: Whose, provider: Option<&str>) -> Report {
    let mut report = Report::default();
    for (name, table) in tables() {
        // Karpenter does not have this kind.
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
async fn karpenters_own_crds_give_the_same_verdicts_with_ours_for_companion_mode_beside_them() {
    let server = Server::start().await;
    let mut crds = karpenter::neutral();
    crds.extend(ours(Mode::Companion, None));
    server.replace_crds(&crds).await;

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
async fn manifests_of_the_design_documents_are_accepted_or_refused_for_a_stated_reason_and_objects_round_trip()
 {
    let server = Server::start().await;
    server.replace_crds(&ours(Mode::Standalone, None)).await;

    let mut report = Report::default();
    for example in examples() {
        let object = json!({ "apiVersion": example.api_version, "kind": example.kind });
        let verdict = server.create_from_yaml(&collection(&object), &example.yaml).await;
        report.note(&example.name, verdict, example.refused.as_deref());
    }
    report.finish("examples");
    assert!(report.accepted >= 15, "{}", report.accepted);

    for (name, table) in tables() {
        for case in &table.accepted {
            let stored = server.store(&table.object(&case.spec)).await;
            let written = through_our_type(&stored);
            assert_eq!(comparable(&written), comparable(&stored), "{name}: {}", case.case);
            server.delete(&stored).await;
        }
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

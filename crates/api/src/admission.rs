//! What the API server would say to an object of one of our kinds or of Karpenter's, without an API server.
//!
//! The definitions are made from our own CRDs. Beside Karpenter, its CRDs are installed instead of ours; they differ
//! in what [`as_karpenter_has_it`] lists and in nothing else, which `tests/admission.rs` holds against the real ones.

use serde_json::Value;
use veneer_schema::{Constraint, Definition, Refusal, Unreadable};

use crate::{
    crds::{Mode, crds},
    node_overlay::PRICE_ADJUSTMENT,
    provider::Provider,
    schema::{DURATION, DURATION_OR_NEVER, LABEL_KEY, LABEL_VALUE, QUANTITY, UNSIGNED_DECIMAL},
};

/// The definitions of all kinds that a mode works with.
#[derive(Debug)]
pub struct Admission {
    definitions: Vec<Definition>,
}

impl Admission {
    /// The definitions of a mode: in companion mode those of Karpenter, with ours on top.
    ///
    /// # Errors
    ///
    /// When one of our own CRDs has something that the checks do not know, which would be a fault of ours.
    pub fn new(mode: Mode, provider: Option<Provider>) -> Result<Self, Unreadable> {
        let mut definitions = Vec::new();
        for crd in crds(Mode::Standalone, provider) {
            let mut crd = serde_json::to_value(crd).map_err(|error| Unreadable(error.to_string()))?;
            if mode == Mode::Companion {
                as_karpenter_has_it(&mut crd);
            }
            definitions.extend(Definition::read(&crd)?);
        }
        Ok(Self { definitions })
    }

    /// The definition of a kind.
    #[must_use]
    pub fn definition(&self, api_version: &str, kind: &str) -> Option<&Definition> {
        self.definitions
            .iter()
            .find(|known| known.kind == kind && known.api_version == api_version)
    }

    /// All definitions.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.definitions.iter()
    }

    /// Everything for which a new object would be refused; None for a kind that is not known here.
    #[must_use]
    pub fn check(&self, object: &Value) -> Option<Vec<Refusal>> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let definition = self.definition(text("apiVersion"), text("kind"))?;
        let mut refusals = definition.check(object);
        for refusal in &mut refusals {
            let words = refusal.pattern.as_deref().and_then(in_words);
            if let (Constraint::Pattern, Some(words)) = (refusal.constraint, words) {
                words.clone_into(&mut refusal.expected);
            }
        }
        Some(refusals)
    }
}

/// Karpenter's NodeOverlay requires `requirements` and has no overhead; everything else is as in ours.
fn as_karpenter_has_it(crd: &mut Value) {
    if crd.pointer("/spec/names/kind").and_then(Value::as_str) != Some("NodeOverlay") {
        return;
    }
    let versions = crd.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let spec = version.pointer_mut("/schema/openAPIV3Schema/properties/spec");
        let Some(spec) = spec.and_then(Value::as_object_mut) else {
            continue;
        };
        let required = spec.entry("required").or_insert_with(|| Value::Array(Vec::new()));
        if let Some(required) = required.as_array_mut() {
            required.push("requirements".into());
        }
        if let Some(properties) = spec.get_mut("properties").and_then(Value::as_object_mut) {
            properties.remove("overhead");
            properties.remove("overheadPercent");
            if let Some(requirements) = properties.get_mut("requirements").and_then(Value::as_object_mut) {
                requirements.remove("default");
            }
        }
        if let Some(rules) = spec
            .get_mut("x-kubernetes-validations")
            .and_then(Value::as_array_mut)
        {
            let mentions = |rule: &Value| {
                rule["rule"]
                    .as_str()
                    .is_some_and(|rule| rule.contains("self.overhead"))
            };
            rules.retain(|rule| !mentions(rule));
        }
    }
}

/// What a pattern of our CRDs means to a person.
fn in_words(pattern: &str) -> Option<&'static str> {
    Some(match pattern {
        QUANTITY => "a quantity such as 4, 500m or 16Gi",
        LABEL_KEY => "a label key such as team or example.com/team",
        LABEL_VALUE => "letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        DURATION => "a duration in hours, minutes and seconds, such as 90s, 10m or 1h30m",
        DURATION_OR_NEVER => "a duration in hours, minutes and seconds, such as 720h or 1h30m, or Never",
        UNSIGNED_DECIMAL => "a decimal number without a sign, such as 0.25",
        PRICE_ADJUSTMENT => {
            "a signed amount or percentage, such as -0.05 or +10%; a reduction is 100% at most"
        }
        "^((100|[0-9]{1,2})%|[0-9]+)$" => "a number of nodes such as \"10\", or a percentage from 0% to 100%",
        r"^@(annually|yearly|monthly|weekly|daily|midnight|hourly)|(.+)\s(.+)\s(.+)\s(.+)\s(.+)$" => {
            "five cron fields such as \"0 9 * * mon-fri\", or a word such as @daily"
        }
        "^([0-9]+[hm]|[0-9]+h[0-9]+m)(0s)?$" => "a duration in hours and minutes, such as 8h or 1h30m",
        _ => return None,
    })
}

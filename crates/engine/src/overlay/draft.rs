//! The earlier draft of NodeOverlay, rewritten to today's fields.
//!
//! `selector` becomes `requirements` and `pricePercent` becomes `priceAdjustment`. `overhead` and `overheadPercent`
//! stay as they are: this program honours them, Karpenter's CRD lacks them.

use veneer_api::{NodeOverlay, NodeSelectorRequirement, Operator};

use super::Problem;

/// A manifest in today's fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The manifest.
    pub overlay: NodeOverlay,
    /// What was rewritten, by the field that the draft used. Empty for a manifest that was up to date.
    pub notes: Vec<Problem>,
    /// What could not be rewritten; the draft's field is left as it was.
    pub problems: Vec<Problem>,
}

/// Rewrites `manifest` to today's fields.
#[must_use]
pub fn convert(manifest: &NodeOverlay) -> Converted {
    let mut converted = Converted {
        overlay: manifest.clone(),
        notes: Vec::new(),
        problems: Vec::new(),
    };
    selector(&mut converted);
    price_percent(&mut converted);
    converted
}

fn note(field: &str, message: impl Into<String>) -> Problem {
    Problem {
        field: field.to_owned(),
        message: message.into(),
    }
}

fn selector(converted: &mut Converted) {
    let spec = &mut converted.overlay.spec;
    let Some(selector) = spec.selector.take() else {
        return;
    };
    let requirement = |key: String, operator: &str, values: Vec<String>| NodeSelectorRequirement {
        key,
        operator: Operator::from(operator),
        values,
        extra: Default::default(),
    };
    let labels = selector.match_labels.into_iter().flatten();
    let expressions = selector.match_expressions.into_iter().flatten();
    let added: Vec<NodeSelectorRequirement> = labels
        .map(|(key, value)| requirement(key, "In", vec![value]))
        .chain(expressions.map(|e| requirement(e.key, &e.operator, e.values.unwrap_or_default())))
        .collect();
    let count = added.len();
    spec.requirements.extend(added);
    let noun = if count == 1 { "requirement" } else { "requirements" };
    converted.notes.push(note(
        "spec.selector",
        format!("the earlier draft's selector is now spec.requirements ({count} {noun})"),
    ));
}

fn price_percent(converted: &mut Converted) {
    let spec = &mut converted.overlay.spec;
    let Some(percent) = spec.price_percent else { return };
    let field = "spec.pricePercent";
    if spec.price.is_some() || spec.price_adjustment.is_some() {
        let message = "is set together with spec.price or spec.priceAdjustment; set one of them";
        converted.problems.push(note(field, message));
        return;
    }
    let change = percent.checked_sub(100).filter(|change| *change >= -100);
    let Some(change) = change else {
        let message =
            format!("{percent} is no percentage of the price; expected 0 or more, such as 90 for -10%");
        converted.problems.push(note(field, message));
        return;
    };
    let adjustment = format!("{change:+}%");
    converted.notes.push(note(
        field,
        format!("the earlier draft's pricePercent: {percent} is now priceAdjustment: {adjustment:?}"),
    ));
    spec.price_adjustment = Some(adjustment);
    spec.price_percent = None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::LabelRules;
    use crate::overlay::Overlay;
    use serde_json::json;

    fn overlay(spec: serde_json::Value) -> NodeOverlay {
        let manifest = json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "o" }, "spec": spec,
        });
        serde_json::from_value(manifest).unwrap()
    }

    #[test]
    fn a_percentage_of_the_price_becomes_an_adjustment() {
        for (percent, adjustment) in [(90, "-10%"), (115, "+15%"), (100, "+0%"), (0, "-100%")] {
            let converted = convert(&overlay(json!({ "pricePercent": percent })));
            assert_eq!(
                converted.overlay.spec.price_adjustment.as_deref(),
                Some(adjustment)
            );
            assert_eq!(converted.overlay.spec.price_percent, None);
            assert!(Overlay::read(&converted.overlay, &LabelRules::core()).is_ok());
        }
    }

    #[test]
    fn a_selector_becomes_requirements_after_those_that_are_there() {
        let converted = convert(&overlay(json!({
            "requirements": [{ "key": "team", "operator": "Exists" }],
            "selector": {
                "matchLabels": { "karpenter.sh/capacity-type": "on-demand" },
                "matchExpressions": [{ "key": "cpu", "operator": "Gt", "values": ["4"] }],
            },
        })));
        let written: Vec<String> = converted
            .overlay
            .spec
            .requirements
            .iter()
            .map(|r| format!("{} {} {:?}", r.key, r.operator, r.values))
            .collect();
        assert_eq!(
            written,
            [
                "team Exists []",
                "karpenter.sh/capacity-type In [\"on-demand\"]",
                "cpu Gt [\"4\"]"
            ]
        );
        assert_eq!(converted.overlay.spec.selector, None);
    }

    #[test]
    fn what_is_up_to_date_stays_as_it_is() {
        let manifest = overlay(json!({ "priceAdjustment": "-10%", "overhead": { "memory": "10Mi" } }));
        let converted = convert(&manifest);
        assert_eq!(converted.overlay, manifest);
        assert!(converted.notes.is_empty() && converted.problems.is_empty());
    }

    #[test]
    fn what_cannot_be_rewritten_is_said_and_left() {
        for spec in [
            json!({ "pricePercent": -1 }),
            json!({ "pricePercent": 90, "price": "1.00" }),
        ] {
            let converted = convert(&overlay(spec));
            assert_eq!(converted.problems.len(), 1);
            assert!(converted.overlay.spec.price_percent.is_some());
        }
    }
}

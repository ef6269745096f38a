//! YAML that anybody may have written.
//!
//! A few lines of aliases (`*name`) can stand for gigabytes, so what they come to is bounded in proportion to the size of
//! everything that is read together: twice as much text may expand to twice as much. Splitting the same text into more
//! documents or files gains nothing, because each document gets the share of its length. Text without aliases is limited
//! by its own length only, and by how deep it is nested.

use serde::de::DeserializeOwned;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, Options};

/// How many values the aliases of a small input may come to.
const LEAST_VALUES: usize = 50_000;
/// Up to this many, values may be four times as many as the input has bytes; beyond, as many as it has bytes.
const MANY_VALUES: usize = 1_000_000;
/// How much text the aliases of a small input may come to, in bytes.
const LEAST_TEXT: usize = 4 << 20;
/// Up to this much, text may be 64 times as long as the input; beyond, as long as it.
const MUCH_TEXT: usize = 64 << 20;
/// How deep lists and mappings may be nested; manifests have a third of it.
const DEPTH: usize = 64;

/// What aliases may come to in all documents that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AliasBudget {
    input: usize,
    values: usize,
    text: usize,
}

impl AliasBudget {
    /// The budget of an input of so many bytes: of all files together, not of one of them.
    #[must_use]
    pub fn for_input(bytes: usize) -> Self {
        Self {
            input: bytes.max(1),
            values: LEAST_VALUES
                .max(MANY_VALUES.min(bytes.saturating_mul(4)))
                .max(bytes),
            text: LEAST_TEXT.max(MUCH_TEXT.min(bytes.saturating_mul(64))).max(bytes),
        }
    }

    /// The share of one document.
    fn share(self, all: usize, document: &str) -> usize {
        let share = all as u128 * document.len() as u128 / self.input as u128;
        usize::try_from(share).unwrap_or(usize::MAX).min(all)
    }

    /// Reads one document of the input.
    pub fn read<T: DeserializeOwned>(self, document: &str) -> Result<T, Box<Error>> {
        Ok(serde_saphyr::from_str_with_options(
            document,
            self.options(document),
        )?)
    }

    fn options(self, document: &str) -> Options {
        let values = self.share(self.values, document);
        let text = self.share(self.text, document);
        // What stands in the document itself: no character makes more than one value and the end of another, and an
        // escape of two bytes becomes three at most.
        let own = document.len().saturating_mul(2).saturating_add(64);
        serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_events: own.saturating_mul(2).saturating_add(values),
                max_nodes: own.saturating_add(values),
                max_total_scalar_bytes: own.saturating_add(text),
                max_aliases: own,
                max_anchors: own,
                // Every anchor keeps a copy of what it names, also inside another one.
                max_recorded_anchor_events: own.saturating_add(values),
                max_recorded_anchor_bytes: own.saturating_add(text),
                max_merge_keys: own,
                max_depth: DEPTH,
                // What aliases come to is bounded, so how many there are says nothing.
                enforce_alias_anchor_ratio: false,
            },
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: values,
            },
            with_snippet: false,
        }
    }
}

/// Reads the one document of an input.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Box<Error>> {
    AliasBudget::for_input(text.len()).read(text)
}

/// What is wrong, in one line without the place, which [`Error::location`] gives.
#[must_use]
pub fn describe(error: &Error) -> String {
    let error = error.without_snippet();
    let of_aliases =
        "its aliases (*name) stand for far more than is written; write the values out, or use fewer aliases";
    match error {
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. } => of_aliases.to_owned(),
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { .. } => {
                format!("it is nested more than {DEPTH} levels deep; no manifest needs that")
            }
            BudgetBreach::Documents { .. } => "it has more than one document".to_owned(),
            _ => of_aliases.to_owned(),
        },
        // What an alias stands for has the place of the alias too; the cause is inside.
        Error::AliasError { error, .. } => describe(error),
        other => {
            let text = other.to_string();
            // The place stands elsewhere.
            let text = text.split(" at line ").next().unwrap_or_default();
            let first = text.lines().next().unwrap_or_default();
            first
                .trim_start_matches("error: ")
                .trim_end_matches([':', ','])
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_budget_grows_with_the_input_and_is_shared_by_length() {
        for (bytes, values, text) in [
            (0, 50_000, 4 << 20),
            (2_000, 50_000, 4 << 20),
            (184_000, 736_000, 184_000 * 64),
            (900_000, 1_000_000, 900_000 * 64),
            (50_000_000, 50_000_000, 64 << 20),
            (100_000_000, 100_000_000, 100_000_000),
        ] {
            let budget = AliasBudget::for_input(bytes);
            assert_eq!((budget.values, budget.text), (values, text), "{bytes}");
            let document = "x".repeat(bytes.min(1000) / 4);
            let share = budget.share(budget.values, &document);
            let expected = values as f64 * document.len() as f64 / bytes.max(1) as f64;
            assert!((share as f64 - expected).abs() <= 1.0, "{bytes}: {share}");
        }
    }

    #[test]
    fn aliases_and_merge_keys_are_read() {
        let text = "base: &base {a: 1, b: [x, z]}\none: *base\ntwo: {<<: *base, a: 2}\n";
        let expected = json!({
            "base": {"a": 1, "b": ["x", "z"]}, "one": {"a": 1, "b": ["x", "z"]}, "two": {"a": 2, "b": ["x", "z"]},
        });
        assert_eq!(read::<Value>(text).unwrap(), expected);
        // One anchor, a thousand aliases.
        let text = format!("a: &a [1, 2, 3]\nb:\n{}", "- *a\n".repeat(1000));
        assert_eq!(read::<Value>(&text).unwrap()["b"].as_array().unwrap().len(), 1000);
    }

    #[test]
    fn what_is_refused_says_why() {
        let laughs = "a: &a [l,l,l,l,l,l,l,l,l,l]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n";
        let long = format!("a: &a {}\nb:\n{}", "x".repeat(50_000), "- *a\n".repeat(1000));
        for text in [laughs, &long] {
            let error = read::<Value>(text).unwrap_err();
            assert!(
                describe(&error).starts_with("its aliases (*name) stand for far more"),
                "{error}"
            );
            assert!(error.location().is_some_and(|at| at.line() > 1), "{error}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let error = read::<Value>(&deep).unwrap_err();
        assert!(
            describe(&error).starts_with("it is nested more than 64 levels deep"),
            "{error}"
        );
        let error = read::<Value>("a: [1").unwrap_err();
        let text = describe(&error);
        assert!(
            !text.is_empty() && !text.contains('\n') && !text.contains("line"),
            "{text}"
        );
    }
}

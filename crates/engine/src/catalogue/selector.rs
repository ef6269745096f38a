//! Label selectors as `kubectl -l` takes them, with integer comparisons added: `arch=arm64,cpu>8,zone in (a,b),!gpu-name`.
//!
//! A selector becomes [`Requirements`], so it selects what the same requirements in a NodePool would select: a type
//! that several zones offer matches `zone=a`, and also `zone!=a` as long as another zone is left.

use crate::instance_type::Catalogue;
use crate::labels;
use crate::requirements::{Operator, Requirements};

/// A parsed selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// Why a selector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The text is no selector.
    #[error("selector {selector:?}: at character {at}, found {found}; expected {expected}")]
    Syntax {
        /// The whole text.
        selector: String,
        /// Where it goes wrong, counted from 1.
        at: usize,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// Nothing in the catalogue has the label.
    #[error("no instance type has the label {key:?}; there are {}", known.join(", "))]
    UnknownLabel {
        /// What was asked for.
        key: String,
        /// What there is, sorted.
        known: Vec<String>,
    },
    /// A short name stands for several labels.
    #[error("{key:?} may mean {}; write the whole label", labels.join(" or "))]
    AmbiguousLabel {
        /// What was asked for.
        key: String,
        /// The labels that end in it, sorted.
        labels: Vec<String>,
    },
}

impl Selector {
    /// Reads a selector; an empty one selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { text, at: 0 };
        let mut terms = Vec::new();
        parser.space();
        while !parser.rest().is_empty() {
            terms.push(parser.term()?);
            parser.space();
            if parser.rest().is_empty() {
                break;
            }
            parser.expect(",", "`,` before another requirement")?;
            parser.space();
            if parser.rest().is_empty() {
                return Err(parser.fault("another requirement after `,`"));
            }
        }
        Ok(Self { terms })
    }

    /// The selector as requirements on the labels of `catalogue`. A key without a prefix may leave out the common
    /// beginning: `cpu` stands for `karpenter.k8s.aws/instance-cpu`, `zone` for `topology.kubernetes.io/zone`.
    pub fn requirements(&self, catalogue: &mut Catalogue) -> Result<Requirements, SelectorError> {
        let known = label_keys(catalogue);
        let mut requirements = Requirements::new();
        for Term {
            key,
            operator,
            values,
        } in &self.terms
        {
            let label = resolve(key, &known)?;
            requirements.add_selector(label, *operator, values, None, &mut catalogue.vocabulary);
        }
        Ok(requirements)
    }
}

/// The labels that some instance type or offering of `catalogue` has, sorted.
fn label_keys(catalogue: &Catalogue) -> Vec<String> {
    let of_types = catalogue
        .types
        .iter()
        .map(|instance_type| &instance_type.requirements);
    let of_offerings = catalogue
        .types
        .iter()
        .flat_map(|t| &t.offerings)
        .map(|offering| &offering.requirements);
    let mut symbols: Vec<_> = of_types
        .chain(of_offerings)
        .flat_map(|r| r.iter().map(|(key, _)| key))
        .collect();
    symbols.sort_unstable();
    symbols.dedup();
    catalogue
        .vocabulary
        .sorted_texts(&symbols)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

fn resolve<'a>(key: &'a str, known: &'a [String]) -> Result<&'a str, SelectorError> {
    let key = labels::normalise(key);
    if known.iter().any(|label| label == key) {
        return Ok(key);
    }
    let short = |label: &&String| {
        let name = label.split_once('/').map_or("", |(_, name)| name);
        name == key || name.strip_prefix("instance-") == Some(key)
    };
    let matches: Vec<&String> = known.iter().filter(short).collect();
    match matches.as_slice() {
        [label] => Ok(label),
        [] => Err(SelectorError::UnknownLabel {
            key: key.to_owned(),
            known: known.to_vec(),
        }),
        several => Err(SelectorError::AmbiguousLabel {
            key: key.to_owned(),
            labels: several.iter().map(|label| (*label).clone()).collect(),
        }),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str, expected: &'static str) -> Result<(), SelectorError> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.fault(expected))
        }
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')))
            .unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn fault(&self, expected: &'static str) -> SelectorError {
        let found = match self.rest() {
            "" => "the end".to_owned(),
            rest => format!("{rest:?}"),
        };
        let at = self.text.get(..self.at).unwrap_or_default().chars().count() + 1;
        SelectorError::Syntax {
            selector: self.text.to_owned(),
            at,
            found,
            expected,
        }
    }

    fn term(&mut self) -> Result<Term, SelectorError> {
        if self.take("!") {
            self.space();
            return Ok(Term {
                key: self.key()?,
                operator: Operator::DoesNotExist,
                values: Vec::new(),
            });
        }
        let key = self.key()?;
        self.space();
        // Longer tokens first: `==` before `=`.
        let comparisons = [
            ("==", Operator::In),
            ("=", Operator::In),
            ("!=", Operator::NotIn),
            (">=", Operator::Gte),
            ("<=", Operator::Lte),
            (">", Operator::Gt),
            ("<", Operator::Lt),
        ];
        for (token, operator) in comparisons {
            if self.take(token) {
                self.space();
                let value = if operator.is_bound() {
                    self.integer()?
                } else {
                    self.value()?
                };
                return Ok(Term {
                    key,
                    operator,
                    values: vec![value],
                });
            }
        }
        if self.rest().is_empty() || self.rest().starts_with(',') {
            return Ok(Term {
                key,
                operator: Operator::Exists,
                values: Vec::new(),
            });
        }
        let before = self.at;
        let operator = match self.word() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            _ => {
                self.at = before;
                return Err(self.fault("one of = != in notin > < >= <= or `,`"));
            }
        };
        Ok(Term {
            key,
            operator,
            values: self.list()?,
        })
    }

    fn key(&mut self) -> Result<String, SelectorError> {
        let before = self.at;
        let key = self.word();
        if labels::check_key(key).is_err() {
            self.at = before;
            return Err(self.fault("a label, like kubernetes.io/arch"));
        }
        Ok(key.to_owned())
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        let before = self.at;
        let value = self.word();
        if labels::check_value(value).is_err() {
            self.at = before;
            return Err(self.fault("a label value"));
        }
        Ok(value.to_owned())
    }

    fn integer(&mut self) -> Result<String, SelectorError> {
        let before = self.at;
        let value = self.word();
        if value.parse::<i64>().is_err() {
            self.at = before;
            return Err(self.fault("an integer"));
        }
        Ok(value.to_owned())
    }

    fn list(&mut self) -> Result<Vec<String>, SelectorError> {
        self.space();
        self.expect("(", "`(` and values, like (a, b)")?;
        let mut values = Vec::new();
        loop {
            self.space();
            values.push(self.value()?);
            self.space();
            if self.take(")") {
                return Ok(values);
            }
            self.expect(",", "`,` or `)`")?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::aws;
    use crate::labels::LabelSet;

    fn selected(text: &str) -> Vec<String> {
        let mut catalogue = aws::region("us-east-1").unwrap().catalogue;
        let requirements = Selector::parse(text)
            .unwrap()
            .requirements(&mut catalogue)
            .unwrap();
        let matches = |requirements: &Requirements, labels: &Requirements| {
            labels
                .compatible(requirements, &LabelSet::none(), &catalogue.vocabulary)
                .is_ok()
        };
        let types = catalogue
            .types
            .iter()
            .filter(|t| matches(&requirements, &t.requirements));
        types.map(|t| t.name.to_string()).collect()
    }

    #[test]
    fn selectors_select_as_kubectl_and_node_pools_do() {
        assert_eq!(
            selected("node.kubernetes.io/instance-type in (m5.large, c5.large)"),
            ["c5.large", "m5.large"]
        );
        assert_eq!(selected("family=m5,cpu>8,cpu<=32"), ["m5.4xlarge", "m5.8xlarge"]);
        assert_eq!(
            selected("family == m5, size notin (metal,24xlarge,16xlarge,12xlarge), cpu >= 16").len(),
            2
        );
        assert!(
            selected("gpu-name,arch=arm64")
                .iter()
                .all(|name| name.starts_with("g5g."))
        );
        assert!(selected("!gpu-name").contains(&"m5.large".to_owned()));
        assert!(selected("beta.kubernetes.io/arch!=amd64").contains(&"m6g.large".to_owned()));
        assert_eq!(selected("").len(), selected("cpu").len());
    }

    #[test]
    fn a_zone_is_excluded_only_if_no_other_is_left() {
        assert!(selected("zone!=us-east-1a,family=m5").contains(&"m5.large".to_owned()));
        assert!(!selected("zone=us-east-1e,family=m5").contains(&"m5.large".to_owned()));
    }

    #[test]
    fn a_bad_selector_shows_the_offending_part() {
        for (text, expected) in [
            ("arch=", ""),
            (
                "=arm64",
                "at character 1, found \"=arm64\"; expected a label, like kubernetes.io/arch",
            ),
            (
                "arch in x",
                "at character 9, found \"x\"; expected `(` and values",
            ),
            (
                "arch in (x",
                "at character 11, found the end; expected `,` or `)`",
            ),
            ("cpu>many", "at character 5, found \"many\"; expected an integer"),
            ("cpu>8 arch=x", "at character 7, found \"arch=x\"; expected `,`"),
            (
                "arch=a,",
                "at character 8, found the end; expected another requirement",
            ),
            ("arch~a", "at character 5, found \"~a\"; expected one of ="),
            ("é", "at character 1, found \"é\"; expected a label"),
        ] {
            match Selector::parse(text) {
                Ok(_) => assert_eq!(expected, "", "{text}"),
                Err(error) => assert!(error.to_string().contains(expected), "{text}: {error}"),
            }
        }
    }

    #[test]
    fn an_unknown_label_is_refused_with_the_known_ones() {
        let mut catalogue = aws::region("us-east-1").unwrap().catalogue;
        let error = Selector::parse("famly=m5")
            .unwrap()
            .requirements(&mut catalogue)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("no instance type has the label \"famly\"; there are "),
            "{error}"
        );
        assert!(error.contains("karpenter.k8s.aws/instance-family"), "{error}");
    }
}

//! Requirements: what several of them on one key amount to, what two lists have in common, and whether one may be
//! demanded of the other.

use serde::{Deserialize, Serialize};
use veneer_engine::labels::{LabelRules, LabelSet};
use veneer_engine::requirements::{Operator, Requirement, Requirements};
use veneer_engine::vocabulary::Vocabulary;

use crate::harness::{Subject, differ};
use crate::rng::Rng;

/// The subject.
pub struct RequirementPairs;

/// Two lists of requirements, and values to probe them with.
#[derive(Debug, Serialize)]
pub struct Case {
    a: Vec<Stated>,
    b: Vec<Stated>,
    probes: Vec<String>,
}

/// A requirement as a manifest states it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stated {
    key: String,
    operator: &'static str,
    values: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_values: Option<i64>,
}

/// What the oracle makes of a case; the fields are those of `oracle/internal/requirements`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    a: Set,
    b: Set,
    both: Set,
    overlap: String,
    intersects: bool,
    compatible: bool,
    compatible_well_known: bool,
    reverse_intersects: bool,
    reverse_compatible: bool,
    reverse_compatible_well_known: bool,
    conflicts: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Set {
    keys: Vec<Combined>,
}

/// Everything about one key.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Combined {
    key: String,
    operator: String,
    #[serde(default)]
    complement: bool,
    values: Vec<String>,
    gte: Option<i64>,
    lte: Option<i64>,
    min_values: Option<i64>,
    len: i64,
    text: String,
    has: String,
}

impl Subject for RequirementPairs {
    type Case = Case;
    type Answer = Answer;

    fn arguments(&self) -> Vec<String> {
        vec!["requirements".to_owned()]
    }

    fn generate(&self, rng: &mut Rng) -> Case {
        let keys: Vec<&str> = (0..=rng.below(4)).map(|_| *rng.pick(&KEYS)).collect();
        // A few values, so that the two sides often have some in common.
        let values: Vec<String> = (0..1 + rng.below(8)).map(|_| value(rng)).collect();
        let mut list = || (0..rng.below(6)).map(|_| stated(&keys, &values, rng)).collect();
        let (a, b) = (list(), list());
        let mut probes = values;
        probes.extend((0..4).map(|_| value(rng)));
        Case { a, b, probes }
    }

    fn differences(&self, case: &Case, answer: &Answer) -> Vec<String> {
        let mut vocabulary = Vocabulary::new();
        let well_known = LabelSet::of(LabelRules::kwok().well_known(), &mut vocabulary);
        let a = read(&case.a, &mut vocabulary);
        let b = read(&case.b, &mut vocabulary);
        let mut both = a.clone();
        both.extend(&b, &vocabulary);
        for probe in &case.probes {
            vocabulary.intern(probe);
        }
        let vocabulary = &vocabulary;

        let mut details = Vec::new();
        for (name, oracle, ours) in [
            ("a", &answer.a, &a),
            ("b", &answer.b, &b),
            ("both", &answer.both, &both),
        ] {
            compare_set(name, oracle, ours, &case.probes, vocabulary, &mut details);
        }
        let mut common: Vec<(&str, &Requirement, &Requirement)> = a
            .iter()
            .filter_map(|(key, in_a)| Some((vocabulary.text(key), in_a, b.get(key)?)))
            .collect();
        common.sort_unstable_by_key(|(key, ..)| *key);
        let letters = |pick: fn(bool, bool) -> bool| -> Vec<(&str, bool)> {
            let overlap = |x: &Requirement, y: &Requirement| {
                pick(
                    x.has_intersection(y, vocabulary),
                    x.accepts_absence() && y.accepts_absence(),
                )
            };
            common.iter().map(|(key, x, y)| (*key, overlap(x, y))).collect()
        };
        let overlap: String = letters(|shares, _| shares)
            .iter()
            .map(|(_, yes)| letter(*yes))
            .collect();
        let conflicts: Vec<String> = letters(|shares, absent| !shares && !absent)
            .iter()
            .filter(|(_, conflict)| *conflict)
            .map(|(key, _)| (*key).to_owned())
            .collect();
        differ(&mut details, || "overlap".to_owned(), &answer.overlap, &overlap);
        differ(
            &mut details,
            || "conflicts".to_owned(),
            &answer.conflicts,
            &conflicts,
        );
        let none = LabelSet::none();
        for (what, oracle, ours) in [
            (
                "a intersects b",
                answer.intersects,
                a.intersects(&b, vocabulary).is_ok(),
            ),
            (
                "b intersects a",
                answer.reverse_intersects,
                b.intersects(&a, vocabulary).is_ok(),
            ),
            (
                "a compatible with b",
                answer.compatible,
                a.compatible(&b, &none, vocabulary).is_ok(),
            ),
            (
                "b compatible with a",
                answer.reverse_compatible,
                b.compatible(&a, &none, vocabulary).is_ok(),
            ),
            (
                "a compatible with b, well-known labels undefined",
                answer.compatible_well_known,
                a.compatible(&b, &well_known, vocabulary).is_ok(),
            ),
            (
                "b compatible with a, well-known labels undefined",
                answer.reverse_compatible_well_known,
                b.compatible(&a, &well_known, vocabulary).is_ok(),
            ),
        ] {
            differ(&mut details, || what.to_owned(), oracle, ours);
        }
        details
    }
}

fn read(list: &[Stated], vocabulary: &mut Vocabulary) -> Requirements {
    let mut requirements = Requirements::new();
    for stated in list {
        let operator = stated.operator.parse().unwrap_or(Operator::In);
        requirements.add_selector(
            &stated.key,
            operator,
            &stated.values,
            stated.min_values,
            vocabulary,
        );
    }
    requirements
}

fn compare_set(
    name: &str,
    oracle: &Set,
    ours: &Requirements,
    probes: &[String],
    vocabulary: &Vocabulary,
    details: &mut Vec<String>,
) {
    let mut keys: Vec<Combined> = ours
        .iter()
        .map(|(key, requirement)| combined(vocabulary.text(key), requirement, probes, vocabulary))
        .collect();
    keys.sort_unstable_by(|x, y| x.key.cmp(&y.key));
    differ(
        details,
        || format!("number of keys of {name}"),
        oracle.keys.len(),
        keys.len(),
    );
    for (oracle, ours) in oracle.keys.iter().zip(&keys) {
        differ(details, || format!("{name}, key {}", oracle.key), oracle, ours);
    }
}

fn combined(key: &str, requirement: &Requirement, probes: &[String], vocabulary: &Vocabulary) -> Combined {
    let listed = requirement.values().len() as i64;
    let has = |probe: &String| {
        vocabulary
            .get(probe)
            .is_some_and(|value| requirement.has(value, vocabulary))
    };
    Combined {
        key: key.to_owned(),
        operator: requirement.operator().to_string(),
        complement: requirement.is_complement(),
        values: vocabulary
            .sorted_texts(requirement.values())
            .into_iter()
            .map(str::to_owned)
            .collect(),
        gte: requirement.bounds().gte,
        lte: requirement.bounds().lte,
        min_values: requirement.min_values(),
        len: if requirement.is_complement() {
            i64::MAX - listed
        } else {
            listed
        },
        text: format!("{key} {}", requirement.describe(vocabulary)),
        has: probes.iter().map(|probe| letter(has(probe))).collect(),
    }
}

fn letter(yes: bool) -> char {
    if yes { 'y' } else { 'n' }
}

/// Custom keys, well-known ones, their older names, and keys that only some provider knows.
const KEYS: [&str; 26] = [
    "team",
    "example.com/pool",
    "generation",
    "a",
    "karpenter.sh/nodepool",
    "karpenter.sh/capacity-type",
    "karpenter.sh/initialized",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "kubernetes.io/hostname",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "karpenter.kwok.sh/instance-cpu",
    "karpenter.kwok.sh/instance-family",
    "karpenter.kwok.sh/instance-memory",
    "karpenter.kwok.sh/instance-size",
    "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-category",
    "topology.ebs.csi.aws.com/zone",
];

/// Values that are integers for Go, values that only look like it, and values that are not.
const VALUES: [&str; 38] = [
    "a",
    "b",
    "c",
    "A",
    "arm64",
    "amd64",
    "spot",
    "on-demand",
    "m5.large",
    "us-west-2a",
    "",
    "-",
    "+",
    "é",
    "٣",
    "0",
    "-0",
    "+0",
    "00",
    "1",
    "01",
    "+1",
    "-1",
    "2",
    "5",
    "5.0",
    "5e0",
    "0x5",
    "1_0",
    " 5",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999",
    "18446744073709551616",
];

fn value(rng: &mut Rng) -> String {
    match rng.below(6) {
        0 | 1 => rng.between(-2, 12).to_string(),
        2 => (rng.next() as i64).to_string(),
        // Where an integer overflows before it turns out not to be one.
        3 if rng.chance(30) => format!("{}x", rng.pick(&VALUES)),
        _ => (*rng.pick(&VALUES)).to_owned(),
    }
}

fn stated(keys: &[&str], values: &[String], rng: &mut Rng) -> Stated {
    let operator = *rng.pick(&Operator::ALL);
    let count = match operator {
        // A bound without a value is refused by the API server and crashes the original.
        _ if operator.is_bound() => 1 + usize::from(rng.chance(5)),
        Operator::In | Operator::NotIn => rng.below(7),
        _ => usize::from(rng.chance(10)),
    };
    let min_values = rng.chance(25).then(|| rng.between(-1, 6));
    Stated {
        key: (*rng.pick(keys)).to_owned(),
        operator: operator.as_str(),
        values: (0..count).map(|_| rng.pick(values).clone()).collect(),
        min_values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_is_reported() {
        let one = |operator, values: &[&str]| Stated {
            key: "a".to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            min_values: None,
        };
        let case = Case {
            a: vec![one("In", &["x", "y"])],
            b: vec![one("NotIn", &["y"])],
            probes: vec!["x".to_owned()],
        };
        let honest = r#"{"a":{"keys":[{"key":"a","operator":"In","values":["x","y"],"len":2,"text":"a In [x y]","has":"y"}]},
            "b":{"keys":[{"key":"a","operator":"NotIn","complement":true,"values":["y"],"len":9223372036854775806,"text":"a NotIn [y]","has":"y"}]},
            "both":{"keys":[{"key":"a","operator":"In","values":["x"],"len":1,"text":"a In [x]","has":"y"}]},
            "overlap":"y","intersects":true,"compatible":true,"compatibleWellKnown":true,
            "reverseIntersects":true,"reverseCompatible":true,"reverseCompatibleWellKnown":true,"conflicts":[]}"#;
        let differences = |json: &str| {
            let answer = serde_json::from_str(json).expect("an answer");
            RequirementPairs.differences(&case, &answer).len()
        };
        assert_eq!(differences(honest), 0);
        for (from, to) in [
            (r#""values":["x"]"#, r#""values":["y"]"#),
            (r#""len":1"#, r#""gte":1,"len":1"#),
            (r#""has":"y""#, r#""has":"n""#),
            (r#""overlap":"y""#, r#""overlap":"n""#),
            (r#""compatible":true"#, r#""compatible":false"#),
            (r#""conflicts":[]"#, r#""conflicts":["a"]"#),
        ] {
            assert_eq!(differences(&honest.replacen(from, to, 1)), 1, "{to}");
        }
    }

    #[test]
    fn the_generator_reaches_every_operator_and_outcome() {
        let mut reached = std::collections::BTreeMap::<String, usize>::new();
        for number in 0..5_000 {
            let case = RequirementPairs.generate(&mut Rng::new(7, number));
            let mut vocabulary = Vocabulary::new();
            let (a, b) = (read(&case.a, &mut vocabulary), read(&case.b, &mut vocabulary));
            for (_, requirement) in a.iter() {
                let bounded = if requirement.bounds() == Default::default() {
                    ""
                } else {
                    " within bounds"
                };
                *reached
                    .entry(format!("{}{bounded}", requirement.operator()))
                    .or_default() += 1;
            }
            let outcome = match a.compatible(&b, &LabelSet::none(), &vocabulary) {
                Ok(()) if a.iter().any(|(key, _)| b.contains(key)) => "compatible on a common key",
                Ok(()) => "compatible",
                Err(reason) if b.get(reason.key()).is_some_and(|_| a.contains(reason.key())) => {
                    "no common value"
                }
                Err(_) => "undefined",
            };
            *reached.entry(outcome.to_owned()).or_default() += 1;
        }
        assert_eq!(reached.len(), 10, "{reached:?}");
        assert!(reached.values().all(|&times| times >= 100), "{reached:?}");
    }
}

//! The laws of requirements: intersection is a meet (commutative, associative, idempotent), membership follows it,
//! and two requirements are compatible exactly when their intersection is not empty, under the label rules.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use proptest::prelude::*;
use veneer_engine::labels::LabelSet;
use veneer_engine::requirements::{Operator, Requirement, Requirements};
use veneer_engine::vocabulary::{Symbol, Vocabulary};

/// Few values, so that sets meet often: integers around the bounds, and words.
const VALUES: [&str; 9] = ["0", "1", "2", "3", "7", "-1", "9223372036854775807", "a", "b"];
const KEYS: [&str; 4] = [
    "kubernetes.io/arch",
    "example.com/team",
    "karpenter.sh/capacity-type",
    "size",
];

fn vocabulary() -> (Vocabulary, Vec<Symbol>) {
    let mut vocabulary = Vocabulary::new();
    let symbols = VALUES.iter().map(|value| vocabulary.intern(value)).collect();
    (vocabulary, symbols)
}

#[derive(Clone, Debug)]
struct Recipe {
    operator: Operator,
    values: Vec<usize>,
    min_values: Option<i64>,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let operator = prop::sample::select(Operator::ALL.to_vec());
    let values = prop::collection::vec(0..VALUES.len(), 1..5);
    let min_values = prop::option::weighted(0.2, 1..4_i64);
    (operator, values, min_values).prop_map(|(operator, values, min_values)| Recipe {
        operator,
        values,
        min_values,
    })
}

/// A requirement made of one or two recipes, so that bounds and exclusions occur together.
fn build(recipes: &[Recipe], vocabulary: &Vocabulary, symbols: &[Symbol]) -> Requirement {
    let one = |recipe: &Recipe| {
        let values: Vec<Symbol> = recipe.values.iter().map(|at| symbols[*at]).collect();
        Requirement::new(recipe.operator, &values, vocabulary).with_min_values(recipe.min_values)
    };
    recipes
        .iter()
        .map(one)
        .reduce(|a, b| a.intersection(&b, vocabulary))
        .unwrap_or_else(Requirement::exists)
}

fn recipes() -> impl Strategy<Value = Vec<Recipe>> {
    prop::collection::vec(recipe(), 1..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn intersection_is_commutative_and_idempotent(a in recipes(), b in recipes()) {
        let (vocabulary, symbols) = vocabulary();
        let (a, b) = (build(&a, &vocabulary, &symbols), build(&b, &vocabulary, &symbols));
        prop_assert_eq!(a.intersection(&b, &vocabulary), b.intersection(&a, &vocabulary));
        let twice = a.intersection(&a, &vocabulary);
        prop_assert_eq!(twice.intersection(&a, &vocabulary), twice.clone());
        for symbol in symbols {
            prop_assert_eq!(twice.has(symbol, &vocabulary), a.has(symbol, &vocabulary));
        }
    }

    #[test]
    fn intersection_is_associative_in_what_it_allows(a in recipes(), b in recipes(), c in recipes()) {
        let (vocabulary, symbols) = vocabulary();
        let [a, b, c] = [a, b, c].map(|recipes| build(&recipes, &vocabulary, &symbols));
        let left = a.intersection(&b, &vocabulary).intersection(&c, &vocabulary);
        let right = a.intersection(&b.intersection(&c, &vocabulary), &vocabulary);
        prop_assert_eq!(left.min_values(), right.min_values());
        for symbol in symbols {
            prop_assert_eq!(left.has(symbol, &vocabulary), right.has(symbol, &vocabulary));
        }
    }

    #[test]
    fn a_value_is_in_the_intersection_exactly_when_it_is_in_both(a in recipes(), b in recipes()) {
        let (vocabulary, symbols) = vocabulary();
        let (a, b) = (build(&a, &vocabulary, &symbols), build(&b, &vocabulary, &symbols));
        let both = a.intersection(&b, &vocabulary);
        for symbol in &symbols {
            let expected = a.has(*symbol, &vocabulary) && b.has(*symbol, &vocabulary);
            prop_assert_eq!(both.has(*symbol, &vocabulary), expected, "{}", vocabulary.text(*symbol));
        }
    }

    #[test]
    fn requirements_meet_exactly_when_their_intersection_is_not_empty(a in recipes(), b in recipes()) {
        let (vocabulary, symbols) = vocabulary();
        let (a, b) = (build(&a, &vocabulary, &symbols), build(&b, &vocabulary, &symbols));
        let empty = a.intersection(&b, &vocabulary).operator() == Operator::DoesNotExist;
        prop_assert_eq!(a.has_intersection(&b, &vocabulary), !empty);
        prop_assert_eq!(a.has_intersection(&b, &vocabulary), b.has_intersection(&a, &vocabulary));
    }

    #[test]
    fn compatible_means_defined_or_allowed_and_overlapping(
        existing in prop::collection::btree_map(0..KEYS.len(), recipes(), 0..4),
        incoming in prop::collection::btree_map(0..KEYS.len(), recipes(), 0..4),
        allowed in prop::collection::btree_set(0..KEYS.len(), 0..4),
    ) {
        let (mut vocabulary, symbols) = vocabulary();
        let keys: Vec<Symbol> = KEYS.iter().map(|key| vocabulary.intern(key)).collect();
        let make = |recipes: &std::collections::BTreeMap<usize, Vec<Recipe>>| {
            let mut requirements = Requirements::new();
            for (key, recipes) in recipes {
                requirements.add(keys[*key], build(recipes, &vocabulary, &symbols), &vocabulary);
            }
            requirements
        };
        let (existing, incoming) = (make(&existing), make(&incoming));
        let allow = LabelSet::of(allowed.iter().map(|key| KEYS[*key]), &mut vocabulary.clone());
        let expected = incoming.iter().all(|(key, wanted)| match existing.get(key) {
            Some(have) => {
                have.intersection(wanted, &vocabulary).operator() != Operator::DoesNotExist
                    || (have.accepts_absence() && wanted.accepts_absence())
            }
            None => allow.contains(key) || wanted.accepts_absence(),
        });
        prop_assert_eq!(existing.compatible(&incoming, &allow, &vocabulary).is_ok(), expected);
    }
}

#[test]
fn aliases_of_a_label_are_the_label() {
    let mut vocabulary = Vocabulary::new();
    let mut requirements = Requirements::new();
    requirements.add_selector(
        "beta.kubernetes.io/arch",
        Operator::In,
        &["arm64", "amd64"],
        None,
        &mut vocabulary,
    );
    requirements.add_selector(
        "kubernetes.io/arch",
        Operator::NotIn,
        &["amd64"],
        None,
        &mut vocabulary,
    );
    assert_eq!(
        requirements.describe(&vocabulary),
        "kubernetes.io/arch In [arm64]"
    );
}

#[test]
fn the_reason_of_a_mismatch_names_the_label_and_both_sides() {
    let mut vocabulary = Vocabulary::new();
    let have = Requirements::from_labels([("kubernetes.io/arch", "amd64")], &mut vocabulary);
    let mut want = Requirements::new();
    want.add_selector(
        "kubernetes.io/arch",
        Operator::In,
        &["arm64"],
        None,
        &mut vocabulary,
    );
    let reason = have
        .compatible(&want, &LabelSet::none(), &vocabulary)
        .unwrap_err();
    assert_eq!(
        reason.describe(&vocabulary),
        r#"label "kubernetes.io/arch": In [amd64] excludes In [arm64]"#
    );
    let mut team = Requirements::new();
    team.add_selector("team", Operator::Exists, &[] as &[&str], None, &mut vocabulary);
    let reason = have
        .compatible(&team, &LabelSet::none(), &vocabulary)
        .unwrap_err();
    assert_eq!(
        reason.describe(&vocabulary),
        r#"label "team" has no known values"#
    );
}

//! The grammar of `veneer.io/preference.N`, both sides of every rule.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::type_complexity,
    reason = "helpers of tests fail as tests do; tables are wide"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use veneer_steering::preferences::{Preferences, parse};

/// `key operator values` of each matcher, and the adjustment.
fn words(value: &str) -> Result<String, String> {
    let read = parse("veneer.io/preference.3", value).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    assert_eq!(read.number, 3);
    let matchers: Vec<String> = read
        .matchers
        .iter()
        .map(|one| format!("{} {} {}", one.key, one.operator, one.values.join("|")))
        .collect();
    Ok(format!("{} => {}", matchers.join(" & "), read.adjustment))
}

#[test]
fn every_matcher_becomes_its_operator() {
    for (value, expected) in [
        ("team=a adjust=-20%", "team In a => -20%"),
        ("team=a,b adjust=+5%", "team In a|b => +5%"),
        ("team!=a adjust=-1%", "team NotIn a => -1%"),
        ("team!=a,b adjust=-1%", "team NotIn a|b => -1%"),
        (
            "karpenter.k8s.aws/instance-generation>4 adjust=-10%",
            "karpenter.k8s.aws/instance-generation Gt 4 => -10%",
        ),
        (
            "karpenter.k8s.aws/instance-cpu<64 adjust=-10%",
            "karpenter.k8s.aws/instance-cpu Lt 64 => -10%",
        ),
        (
            "kubernetes.io/arch=arm64 karpenter.sh/capacity-type=spot  karpenter.k8s.aws/instance-cpu>7 adjust=-12.5%",
            "kubernetes.io/arch In arm64 & karpenter.sh/capacity-type In spot & karpenter.k8s.aws/instance-cpu Gt 7 => -12.5%",
        ),
        ("adjust=-20% team=a", "team In a => -20%"),
        ("a=b adjust=-100%", "a In b => -100%"),
        ("a=b adjust=-99.9%", "a In b => -99.9%"),
        ("a=b adjust=+250%", "a In b => +250%"),
        ("adjusted=yes adjust=-0%", "adjusted In yes => -0%"),
        ("a>0 adjust=+0.5%", "a Gt 0 => +0.5%"),
    ] {
        assert_eq!(words(value).as_deref(), Ok(expected), "{value}");
    }
}

#[test]
fn a_bad_part_is_quoted_with_the_right_form() {
    const MATCHER: &str = "key=a,b or key!=a,b or key>4 or key<4, without spaces";
    const PERCENT: &str = "adjust=-20% or adjust=+15%";
    for (value, part, problem, expected) in [
        (
            "",
            "",
            "has no adjustment",
            "<key>=<value>[,<value>…] adjust=-20%",
        ),
        (
            "a=b",
            "a=b",
            "has no adjustment",
            "<key>=<value>[,<value>…] adjust=-20%",
        ),
        (
            "adjust=-20%",
            "adjust=-20%",
            "has no matcher, and would change every instance type",
            "<key>=<value>[,<value>…] adjust=-20%",
        ),
        (
            "a=b adjust=20%",
            "adjust=20%",
            "has no sign",
            "adjust=-20% or adjust=+20%",
        ),
        ("a=b adjust=-20", "adjust=-20", "is no percentage", PERCENT),
        ("a=b adjust=-%", "adjust=-%", "is no percentage", PERCENT),
        ("a=b adjust=%", "adjust=%", "is no percentage", PERCENT),
        ("a=b adjust=-.5%", "adjust=-.5%", "is no percentage", PERCENT),
        ("a=b adjust=--5%", "adjust=--5%", "is no percentage", PERCENT),
        ("a=b adjust:-5%", "adjust:-5%", "is no adjustment", PERCENT),
        ("a=b adjust", "adjust", "is no adjustment", PERCENT),
        (
            "a=b adjust=-101%",
            "adjust=-101%",
            "takes away more than the whole price",
            "adjust=-100% at most",
        ),
        (
            "a=b adjust=-005%",
            "adjust=-005%",
            "is not written as a NodeOverlay writes it",
            "adjust=-100% or two digits before the point, such as adjust=-7.5%",
        ),
        (
            "a=b adjust=-100.0%",
            "adjust=-100.0%",
            "is not written as a NodeOverlay writes it",
            "adjust=-100% or two digits before the point, such as adjust=-7.5%",
        ),
        (
            "a=b adjust=-1% adjust=-2%",
            "adjust=-2%",
            "is a second adjustment",
            "one adjust=[+-]N% per annotation",
        ),
        ("team adjust=-1%", "team", "is no matcher", MATCHER),
        ("team!a adjust=-1%", "team!a", "is no matcher", MATCHER),
        (
            "=a adjust=-1%",
            "=a",
            "has the label key \"\", which is empty; expected a name such as `team` or `example.com/team`",
            MATCHER,
        ),
        (
            "a/b/c=a adjust=-1%",
            "a/b/c=a",
            "has the label key \"a/b/c\", which may have one `/` at most",
            MATCHER,
        ),
        (
            "team= adjust=-1%",
            "team=",
            "has an empty value",
            "team=value or team=a,b",
        ),
        (
            "team=a, adjust=-1%",
            "team=a,",
            "has an empty value",
            "team=value or team=a,b",
        ),
        (
            "team!=-a adjust=-1%",
            "team!=-a",
            "has the value \"-a\", which may have letters, digits, `-`, `_` and `.`, and must begin and end with a letter or digit",
            "team!=value or team!=a,b",
        ),
        (
            "cpu>=4 adjust=-1%",
            "cpu>=4",
            "uses >=, which is no operator",
            "cpu>3",
        ),
        (
            "cpu<=4 adjust=-1%",
            "cpu<=4",
            "uses <=, which is no operator",
            "cpu<5",
        ),
        (
            "cpu>=0 adjust=-1%",
            "cpu>=0",
            "uses >=, which is no operator",
            "cpu>4",
        ),
        (
            "cpu>many adjust=-1%",
            "cpu>many",
            "compares with \"many\", which is no integer of 0 or more",
            "cpu>4",
        ),
        (
            "cpu<-1 adjust=-1%",
            "cpu<-1",
            "compares with \"-1\", which is no integer of 0 or more",
            "cpu<4",
        ),
        (
            "cpu> adjust=-1%",
            "cpu>",
            "compares with \"\", which is no integer of 0 or more",
            "cpu>4",
        ),
        (
            "kubernetes.io/hostname=a adjust=-1%",
            "kubernetes.io/hostname=a",
            "uses the label kubernetes.io/hostname, which no overlay may require",
            "another label",
        ),
        (
            "karpenter.sh/initialized=true adjust=-1%",
            "karpenter.sh/initialized=true",
            "uses the label karpenter.sh/initialized, which no overlay may require",
            "another label",
        ),
    ] {
        let message = format!("veneer.io/preference.3: {part:?} {problem}; expected {expected}");
        assert_eq!(words(value), Err(message), "{value}");
    }
}

#[test]
fn every_bad_part_is_named_not_only_the_first() {
    let message = words("team cpu>=x adjust=5%").unwrap_err();
    assert_eq!(message.lines().count(), 3, "{message}");
}

#[test]
fn the_number_is_the_weight_and_has_one_spelling() {
    for (suffix, good) in [
        ("1", true),
        ("9", true),
        ("10", true),
        ("10000", true),
        ("0", false),
        ("10001", false),
        ("01", false),
        ("+1", false),
        ("-1", false),
        ("x", false),
        ("", false),
        ("1.5", false),
    ] {
        let key = format!("veneer.io/preference.{suffix}");
        let read = parse(&key, "a=b adjust=-1%");
        assert_eq!(read.is_ok(), good, "{key}");
        match read {
            Ok(preference) => assert_eq!(preference.number.to_string(), suffix),
            Err(faults) => assert_eq!(faults[0].part, suffix),
        }
    }
}

#[test]
fn a_bad_annotation_leaves_the_good_ones_working() {
    let annotations = [
        ("veneer.io/preference.10", "a=b adjust=-1%"),
        ("veneer.io/preference.2", "a=b adjust=1%"),
        ("veneer.io/preference.1", "a=b adjust=-1%"),
        ("veneer.io/other", "x"),
        ("team", "y"),
    ];
    let annotations: BTreeMap<String, String> = annotations
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let read = Preferences::read(&annotations);
    let numbers: Vec<i32> = read.good.iter().map(|one| one.number).collect();
    assert_eq!(numbers, [1, 10]);
    assert_eq!(read.faults.len(), 1);
    assert_eq!(read.faults[0].annotation, "veneer.io/preference.2");
    let outranking: Vec<i32> = read.outranking().map(|one| one.number).collect();
    assert_eq!(outranking, [10]);
}

#[test]
fn an_annotation_that_is_nearly_a_preference_is_found() {
    let faults = |key: &str| {
        let annotations = [(key.to_owned(), "a=b adjust=-1%".to_owned())].into();
        Preferences::read(&annotations).faults
    };
    for (key, expected) in [
        ("veneer.io/preferences.2", "veneer.io/preference.2"),
        ("veneer.io/preferance.1", "veneer.io/preference.1"),
        ("veneer.io/Preference.3", "veneer.io/preference.3"),
        ("venner.io/preference.4", "veneer.io/preference.4"),
        ("veneer.io/preference-5", "veneer.io/preference.5"),
        ("veneer.io/preference", "veneer.io/preference.1"),
    ] {
        let found = faults(key);
        let found: Vec<&str> = found.iter().map(|fault| fault.expected.as_str()).collect();
        assert_eq!(found, [expected], "{key}");
    }
    for other in [
        "veneer.io/other",
        "example.com/preference.1",
        "team",
        "veneer.io/disabled",
    ] {
        assert_eq!(faults(other), [], "{other}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_diagnosed(key in ".{0,12}", value in ".{0,80}") {
        let annotation = format!("veneer.io/preference.{key}");
        if let Err(faults) = parse(&annotation, &value) {
            prop_assert!(!faults.is_empty());
            for fault in faults {
                prop_assert!(key.contains(&fault.part) || value.contains(&fault.part));
            }
        }
    }

    #[test]
    fn what_was_written_is_what_was_read(
        keys in prop::collection::vec("[a-z]{1,8}(\\.[a-z]{1,4}/[a-z]{1,5})?", 1..5),
        values in prop::collection::vec("[a-z0-9]{1,6}", 1..4),
        percent in 0_u32..100,
        number in 1_i32..=10_000,
    ) {
        let list = values.join(",");
        let text: String = keys.iter().map(|key| format!("x{key}={list} ")).collect();
        let read = parse(&format!("veneer.io/preference.{number}"), &format!("{text}adjust=-{percent}%")).unwrap();
        prop_assert_eq!(read.number, number);
        prop_assert_eq!(read.adjustment, format!("-{percent}%"));
        prop_assert_eq!(read.matchers.len(), keys.len());
        for (matcher, key) in read.matchers.iter().zip(&keys) {
            prop_assert_eq!(&matcher.key, &format!("x{key}"));
            prop_assert_eq!(&matcher.values, &values);
        }
    }
}

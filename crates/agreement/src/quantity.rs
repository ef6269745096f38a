//! Quantities: parse or refuse, canonical text, order, arithmetic.
//!
//! Not compared, because the original's answer is an accident there: `Value` and `MilliValue` beyond 64 bits, and of
//! negative amounts that it holds as big decimals. Texts on which it would compute for ever are only given to ours.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use veneer_engine::quantity::{Quantity, QuantityFault, rewritten};

use crate::harness::{Subject, differ};
use crate::rng::Rng;

/// The subject.
pub struct Quantities;

/// Two texts.
#[derive(Debug, Serialize)]
pub struct Case {
    a: String,
    b: String,
}

/// What the oracle makes of two texts.
#[derive(Debug, Deserialize)]
pub struct Answer {
    a: Parsed,
    b: Parsed,
    /// Whether the arithmetic was done.
    #[serde(default)]
    pair: bool,
    cmp: i32,
    #[serde(default)]
    sum: String,
    #[serde(default)]
    minus: String,
}

#[derive(Debug, Deserialize)]
struct Parsed {
    fault: Option<String>,
    #[serde(default)]
    endless: bool,
    #[serde(default)]
    text: String,
    #[serde(default)]
    canonical: String,
    #[serde(default)]
    negated: String,
    value: i64,
    milli: i64,
    #[serde(default)]
    slow: bool,
}

impl Subject for Quantities {
    type Case = Case;
    type Answer = Answer;

    fn arguments(&self) -> Vec<String> {
        vec!["quantity".to_owned()]
    }

    fn generate(&self, rng: &mut Rng) -> Case {
        let a = text(rng);
        // Close neighbours find what unrelated numbers never do.
        let b = match rng.below(4) {
            0 => mutated(&a, rng),
            1 => same_number_other_unit(&a, rng),
            _ => text(rng),
        };
        Case { a, b }
    }

    fn differences(&self, case: &Case, answer: &Answer) -> Vec<String> {
        let mut details = Vec::new();
        let a = compare_one(&case.a, &answer.a, &mut details);
        let b = compare_one(&case.b, &answer.b, &mut details);
        if let (Some(a), Some(b)) = (a, b) {
            // Ours must cope with pairs that the original cannot compute, too.
            let order = match a.cmp(&b) {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            };
            let (sum, minus) = ((&a + &b).to_string(), (&a - &b).to_string());
            if answer.pair {
                differ(&mut details, || "order".to_owned(), answer.cmp, order);
                differ(&mut details, || "equality".to_owned(), answer.cmp == 0, a == b);
                differ(&mut details, || "a + b".to_owned(), answer.sum.clone(), sum);
                differ(&mut details, || "a - b".to_owned(), answer.minus.clone(), minus);
            }
        }
        details
    }
}

fn compare_one(text: &str, oracle: &Parsed, details: &mut Vec<String>) -> Option<Quantity> {
    let ours = text.parse::<Quantity>();
    if oracle.endless {
        return ours.ok();
    }
    let fault = ours.as_ref().err().map(|error| match error.fault {
        QuantityFault::Form => "form".to_owned(),
        QuantityFault::Number => "number".to_owned(),
        QuantityFault::Suffix => "suffix".to_owned(),
    });
    differ(
        details,
        || format!("fault of {text:?}"),
        oracle.fault.clone(),
        fault,
    );
    let quantity = ours.ok()?;
    if oracle.fault.is_some() {
        return None;
    }
    let kept = rewritten(text).unwrap_or_default().into_owned();
    differ(
        details,
        || format!("rewritten {text:?}"),
        oracle.text.as_str(),
        &kept,
    );
    differ(
        details,
        || format!("canonical {text:?}"),
        &oracle.canonical,
        &quantity.to_string(),
    );
    differ(
        details,
        || format!("negated {text:?}"),
        &oracle.negated,
        &(-quantity.clone()).to_string(),
    );
    let accidental = oracle.slow && quantity.is_negative();
    let fits = |unit: i128| {
        quantity
            .nanos()
            .is_some_and(|nanos| i64::try_from(nanos / unit + nanos.signum()).is_ok())
    };
    if !accidental && fits(1_000_000_000) {
        differ(
            details,
            || format!("value of {text:?}"),
            oracle.value,
            quantity.value(),
        );
    }
    if !accidental && fits(1_000_000) {
        differ(
            details,
            || format!("milli value of {text:?}"),
            oracle.milli,
            quantity.milli_value(),
        );
    }
    Some(quantity)
}

const UNITS: [&str; 16] = [
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
];
const BAD_UNITS: [&str; 22] = [
    "K", "ki", "mi", "i", "KiB", "B", "e", "e+", "E-", "ee3", "eE3", "Kii", "Mim", "g", "t", "p", "h", "-3",
    "+3", "m3", "Ki3", " ",
];
const EXPONENTS: [i64; 26] = [
    0,
    3,
    6,
    9,
    18,
    19,
    21,
    -3,
    -6,
    -8,
    -9,
    -10,
    -12,
    300,
    -300,
    2_147_483_647,
    -2_147_483_648,
    2_147_483_646,
    2_147_483_640,
    2_147_483_648,
    -2_147_483_649,
    4_294_967_296,
    4_294_967_299,
    4_294_967_287,
    i64::MAX,
    i64::MIN,
];
const SOUP: [char; 34] = [
    '0', '1', '2', '5', '8', '9', '0', '0', '+', '-', '.', 'e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G',
    'T', 'P', ' ', ',', '_', 'x', '\t', '\n', 'é', '１', '٣', '−', '\0',
];

/// A text, mostly well formed.
fn text(rng: &mut Rng) -> String {
    match rng.below(20) {
        0 => (0..rng.below(8)).map(|_| *rng.pick(&SOUP)).collect(),
        1 | 2 => {
            let text = well_formed(rng);
            mutated(&text, rng)
        }
        _ => well_formed(rng),
    }
}

fn well_formed(rng: &mut Rng) -> String {
    let sign = *rng.pick(&["", "", "", "", "-", "-", "+"]);
    format!("{sign}{}{}", number(rng), unit(rng))
}

fn unit(rng: &mut Rng) -> String {
    match rng.below(10) {
        0 => (*rng.pick(&BAD_UNITS)).to_owned(),
        1 | 2 => {
            let exponent = if rng.chance(60) {
                rng.between(-25, 45)
            } else {
                *rng.pick(&EXPONENTS)
            };
            let sign = if exponent >= 0 && rng.chance(20) { "+" } else { "" };
            format!("{}{sign}{exponent}", rng.pick(&["e", "E"]))
        }
        _ => (*rng.pick(&UNITS)).to_owned(),
    }
}

fn number(rng: &mut Rng) -> String {
    let whole = match rng.below(8) {
        0 => String::new(),
        1 => boundary(rng),
        2 => digits(rng, 50),
        3 => digits(rng, 22),
        4 => format!("{}000", digits(rng, 15)),
        5 => "0".repeat(rng.below(4)) + &digits(rng, 4),
        _ => digits(rng, 4),
    };
    match rng.below(8) {
        0 => format!("{whole}."),
        1 => format!("{whole}.{}", digits(rng, 4)),
        2 => format!("{whole}.{}{}", "0".repeat(rng.below(13)), digits(rng, 3)),
        3 => format!("{whole}.{}{}", digits(rng, 24), "0".repeat(rng.below(4))),
        _ => whole,
    }
}

fn digits(rng: &mut Rng, longest: usize) -> String {
    let length = 1 + rng.below(longest);
    // Runs of nines and zeros carry and cancel.
    let kind = rng.below(6);
    (0..length)
        .map(|_| match kind {
            0 => '9',
            1 => *rng.pick(&['0', '0', '0', '1']),
            _ => *rng.pick(&['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']),
        })
        .collect()
}

/// A number next to a power of two or ten, or to the edge of 64 or 128 bits.
fn boundary(rng: &mut Rng) -> String {
    let near = match rng.below(4) {
        0 => 1i128 << rng.below(126),
        1 => 10i128.pow(rng.below(38) as u32),
        2 => i128::from(i64::MAX) * i128::from(*rng.pick(&[1, 2, 1000, 1024])),
        _ => i128::MAX - 10_000,
    };
    near.saturating_add(i128::from(rng.between(-2, 2)))
        .unsigned_abs()
        .to_string()
}

fn mutated(text: &str, rng: &mut Rng) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let at = rng.below(characters.len() + 1);
    match rng.below(4) {
        0 if at < characters.len() => _ = characters.remove(at),
        1 if at < characters.len() => characters.splice(at..=at, [*rng.pick(&SOUP)]).for_each(drop),
        2 => characters.truncate(at),
        _ => characters.insert(at, *rng.pick(&SOUP)),
    }
    characters.into_iter().collect()
}

fn same_number_other_unit(text: &str, rng: &mut Rng) -> String {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    format!("{number}{}", unit(rng))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_is_reported() {
        let case = Case {
            a: "1".to_owned(),
            b: "-".to_owned(),
        };
        let honest = r#"{"a":{"text":"1","canonical":"1","negated":"-1","value":1,"milli":1000},
            "b":{"text":"0","canonical":"0","negated":"0","value":0,"milli":0},"pair":true,"cmp":1,"sum":"1","minus":"1"}"#;
        let differences = |json: &str| {
            let answer = serde_json::from_str(json).expect("an answer");
            Quantities.differences(&case, &answer).len()
        };
        assert_eq!(differences(honest), 0);
        for (from, to) in [
            (r#""text":"1""#, r#""text":"+1""#),
            (r#""canonical":"1""#, r#""canonical":"1000m""#),
            (r#""milli":1000"#, r#""milli":1"#),
            (r#""cmp":1"#, r#""cmp":-1"#),
            (r#""sum":"1""#, r#""sum":"2""#),
            (r#"{"text":"0""#, r#"{"fault":"form","text":"0""#),
        ] {
            assert_eq!(differences(&honest.replacen(from, to, 1)), 1, "{to}");
        }
    }

    #[test]
    fn the_generator_reaches_every_corner() {
        let mut reached = std::collections::BTreeMap::<&str, usize>::new();
        for number in 0..20_000 {
            let Case { a: text, b } = Quantities.generate(&mut Rng::new(7, number));
            let corner = match text.parse::<Quantity>() {
                Err(error) => match error.fault {
                    QuantityFault::Form => "refused for its form",
                    QuantityFault::Number => "refused for its number",
                    QuantityFault::Suffix => "refused for its unit",
                },
                Ok(quantity) if quantity.nanos().is_none() => "beyond 128 bits",
                Ok(quantity) if quantity.is_zero() => "zero",
                Ok(quantity) if quantity.to_string() == text => "canonical",
                Ok(_) if rewritten(&text).is_ok_and(|kept| kept == text) => "kept although not canonical",
                Ok(quantity) if quantity.is_negative() => "negative and rewritten",
                Ok(quantity) if quantity == "1n".parse().expect("a quantity") => "rounded up to the smallest",
                Ok(_) if text.ends_with('i') && text.contains('.') => "fraction of a binary unit",
                Ok(_) => "rewritten",
            };
            *reached.entry(corner).or_default() += 1;
            let equal =
                text != b && text.parse::<Quantity>().is_ok() && text.parse::<Quantity>() == b.parse();
            *reached.entry("two texts of one amount").or_default() += usize::from(equal);
        }
        assert_eq!(reached.len(), 12, "{reached:?}");
        assert!(reached.values().all(|&times| times >= 40), "{reached:?}");
    }
}

//! Tables of texts and results (each checked against Kubernetes itself by the agreement tests), and laws.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn q(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn fault(text: &str) -> QuantityFault {
    text.parse::<Quantity>().expect_err(text).fault
}

#[test]
fn canonical_text_uses_the_largest_unit_without_a_fraction() {
    for (text, canonical) in [
        ("0", "0"),
        ("-0", "0"),
        ("1", "1"),
        ("1.5", "1500m"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("12000", "12k"),
        ("0.001", "1m"),
        ("1u", "1u"),
        ("1n", "1n"),
        ("0.0000000005", "1n"),
        ("-0.0000000005", "-1n"),
        ("0.1n", "1n"),
        ("100P", "100P"),
        ("1E", "1E"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e4", "10e3"),
        ("1e-10", "1e-9"),
        ("1024", "1024"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1023Mi", "1023Mi"),
        ("0.0001Ki", "102400u"),
        ("1.0001Ki", "1024102400u"),
        ("9Ei", "9223372036854775807"),
        ("-9Ei", "-9223372036854775807"),
        ("10E", "10E"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        (
            "12345678901234567890123456789012345678901234567890",
            "12345678901234567890123456789012345678901234567890",
        ),
        ("+5", "5"),
        ("007", "7"),
        (".5", "500m"),
        ("5.", "5"),
        ("1.Ki", "1Ki"),
        ("1e2147483647", "10e2147483646"),
        ("1e-2147483647", "1e-9"),
    ] {
        assert_eq!(q(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn oddities_of_kubernetes_are_kept() {
    for zero in ["+", "-", ".", "-.", "m", "Ki", "Ti", "e5", ".k"] {
        assert!(q(zero).is_zero(), "{zero}");
    }
    // No unit is written where none has a name, although the number then means something else.
    assert_eq!(q("1000E").to_string(), "1");
    assert_eq!(q("1000E"), q("1e21"));
    // Exponents are counted in 32 bits.
    assert_eq!(q("5e4294967296"), q("5"));
    assert!(q("1.5e-2147483648") > q("1e2147483640"));
    assert_eq!(q("1000e2147483647").to_string(), "1e-2147483646");
}

#[test]
fn malformed_texts_are_refused_with_the_reason() {
    for text in [
        "", " ", "1 ", " 1", "1,5", "1_000", "1..5", "1.5.5", "1e5.5", "0x10", "１", "1é", "NaN", "1Kib",
    ] {
        assert_eq!(fault(text), QuantityFault::Form, "{text}");
    }
    for text in [
        "1e",
        "1Kii",
        "1i",
        "1ki",
        "1K",
        "1mm",
        "1Mm",
        "1-5",
        "1e+",
        "1ee5",
        "--1",
        "+-1",
        "1e9223372036854775808",
        "1Ki5",
    ] {
        assert_eq!(fault(text), QuantityFault::Suffix, "{text}");
    }
    for text in ["Pi", "Ei", "-Pi", ".Ei", "e-10", ".e-10", "+e-99"] {
        assert_eq!(fault(text), QuantityFault::Number, "{text}");
    }
    assert_eq!(
        "10gb".parse::<Quantity>().expect_err("no such unit").to_string(),
        "\"10gb\" is not a quantity: it does not have the form of a number and a unit; expected a number with an \
         optional unit, like 500m, 1.5, 2Gi, 100M or 1e3"
    );
    assert_eq!(
        "9x".repeat(1000)
            .parse::<Quantity>()
            .expect_err("too long")
            .found
            .len(),
        64
    );
}

#[test]
fn the_api_server_keeps_some_texts_that_are_not_canonical() {
    for kept in [
        "1",
        "+1",
        "007",
        "1.500",
        "1E3",
        "1e03",
        "1.",
        "+1Ki",
        "01Mi",
        "5e4294967296",
    ] {
        assert_eq!(rewritten(kept).expect(kept), kept);
    }
    for (text, canonical) in [
        ("1000", "1k"),
        ("0.5", "500m"),
        ("8Ki", "8Ki"),
        ("1.5Ki", "1536"),
        ("00", "0"),
    ] {
        assert_eq!(rewritten(text).expect(text), canonical);
    }
}

#[test]
fn values_round_away_from_zero_and_saturate() {
    for (text, value, milli) in [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("1m", 1, 1),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("1500m", 2, 1500),
        ("-1500m", -2, -1500),
        ("1.0000001", 2, 1001),
        ("1Ki", 1024, 1_024_000),
        ("9223372036854775807", i64::MAX, i64::MAX),
        ("9223372036854775808", i64::MAX, i64::MAX),
        ("-1e19", i64::MIN, i64::MIN),
        ("1e400", i64::MAX, i64::MAX),
        ("-1e400", i64::MIN, i64::MIN),
    ] {
        assert_eq!((q(text).value(), q(text).milli_value()), (value, milli), "{text}");
    }
}

#[test]
fn order_is_by_amount_whatever_the_notation() {
    let ascending = [
        "-1e2147483647",
        "-1e400",
        "-1e40",
        "-1Ei",
        "-1",
        "-1n",
        "0",
        "1n",
        "1u",
        "999u",
        "1m",
        "1",
        "1023",
        "1Ki",
        "1025",
        "1M",
        "1Mi",
        "8Ei",
        "1e20",
        "1e30",
        "1e38",
        "123456789012345678901234567890123456789012",
        "1e42",
        "1.1e42",
        "1e400",
        "2e400",
        "1e2147483647",
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(q(a).cmp(&q(b)), i.cmp(&j), "{a} and {b}");
        }
    }
    let same: HashSet<_> = ["1024", "1Ki", "1.024k", "1024000m", "1024e0"]
        .into_iter()
        .map(q)
        .collect();
    assert_eq!(same.len(), 1);
}

#[test]
fn sums_keep_the_notation_of_the_first_part_that_is_not_zero() {
    for (a, b, sum, difference) in [
        ("1Ki", "1", "1025", "1023"),
        ("1Ki", "1k", "2024", "24"),
        ("0", "1Ki", "1Ki", "-1Ki"),
        ("1", "1Ki", "1025", "-1023"),
        ("1e3", "1", "1001", "999"),
        ("500m", "0.5", "1", "0"),
        ("1Gi", "100m", "1073741824100m", "1073741823900m"),
        ("8Ei", "8Ei", "18446744073709551614", "0"),
        (
            "170141183460469231731687303715e0",
            "1e29",
            "270141183460469231731687303715",
            "70141183460469231731687303715",
        ),
        ("1e40", "1e40", "20e39", "0"),
    ] {
        assert_eq!((&q(a) + &q(b)).to_string(), sum, "{a} + {b}");
        assert_eq!((&q(a) - &q(b)).to_string(), difference, "{a} - {b}");
    }
    assert_eq!(
        [q("1"), q("2"), q("500m")].iter().sum::<Quantity>().to_string(),
        "3500m"
    );
}

#[test]
fn enormous_exponents_cost_nothing() {
    let enormous = q("1e2147483647");
    assert_eq!(&enormous + &q("1n"), enormous);
    assert_eq!(&q("1n") - &enormous, -enormous.clone());
    assert_eq!(&enormous - &enormous, Quantity::ZERO);
    assert_eq!((&q("1Ki") + &enormous).to_string(), "10");
    assert_eq!(
        q("123456789012345678901e2147483000").to_string(),
        "12345678901234567890100e2147482998"
    );
    assert!(q("123456789012345678901e-2147483000") == q("1n"));
}

#[test]
fn numbers_of_any_length_keep_every_digit() {
    for length in [999, 1000, 1001, 2500, 5003] {
        let digits: String = ('1'..='9').cycle().take(length).collect();
        let printed = q(&format!("{digits}e3")).to_string();
        assert_eq!(printed, format!("{digits}e3"), "{length} digits");
    }
}

#[test]
fn constructors_and_documents() {
    assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    assert_eq!(Quantity::binary(3 << 30).to_string(), "3Gi");
    assert_eq!(Quantity::from(-7).to_string(), "-7");
    assert_eq!(q("1.5").nanos(), Some(1_500_000_000));
    assert_eq!(q("1e40").nanos(), None);
    assert_eq!(size_of::<Quantity>(), 32);
    for (json, text) in [
        ("\" 1.5Gi \"", "1536Mi"),
        ("2", "2"),
        ("-3", "-3"),
        ("0.1", "100m"),
        ("1e3", "1k"),
        ("null", "0"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        let quantity: Quantity = serde_json::from_str(json).expect(json);
        assert_eq!(
            serde_json::to_string(&quantity).expect(json),
            format!("\"{text}\""),
            "{json}"
        );
    }
    let error = serde_json::from_str::<Quantity>("\"lots\"")
        .expect_err("not a quantity")
        .to_string();
    assert!(error.starts_with("\"lots\" is not a quantity"), "{error}");
    assert!(serde_json::from_str::<Quantity>("[1]").is_err());
}

/// Texts of every shape: mostly well formed, with magnitudes on both sides of every internal limit.
fn text() -> impl Strategy<Value = String> {
    "[+-]?[0-9]{1,45}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2}|E[0-9]{1,2})?"
}

proptest! {
    #[test]
    fn nothing_panics(text in ".{0,40}") {
        let _ = text.parse::<Quantity>().map(|quantity| (quantity.to_string(), quantity.value()));
    }

    #[test]
    fn canonical_text_is_a_fixed_point_and_keeps_the_amount(text in text()) {
        let quantity = q(&text);
        let canonical = quantity.to_string();
        // Beyond the largest unit, canonical text of unit notation is ambiguous by design.
        prop_assume!(quantity.format() == Format::DecimalExponent || quantity < q("1000E") && quantity > q("-1000E"));
        prop_assert_eq!(&q(&canonical), &quantity);
        prop_assert_eq!(q(&canonical).to_string(), canonical);
    }

    #[test]
    fn addition_is_commutative_associative_and_undone_by_subtraction(a in text(), b in text(), c in text()) {
        let (a, b, c) = (q(&a), q(&b), q(&c));
        prop_assert_eq!(&a + &b, &b + &a);
        prop_assert_eq!(&(&a + &b) + &c, &a + &(&b + &c));
        prop_assert_eq!(&(&a + &b) - &b, a.clone());
        prop_assert_eq!(&a - &b, -(&b - &a));
        prop_assert!((&a - &a).is_zero());
    }

    #[test]
    fn order_agrees_with_differences(a in text(), b in text()) {
        let (a, b) = (q(&a), q(&b));
        let difference = &a - &b;
        prop_assert_eq!(a.cmp(&b) == Ordering::Less, difference.is_negative());
        prop_assert_eq!(a == b, difference.is_zero());
    }

    #[test]
    fn values_are_the_smallest_integers_not_below(nanos in -(1i128 << 90)..(1i128 << 90)) {
        let quantity = Quantity::from_nanos(nanos);
        let value = i128::from(quantity.value());
        if value.unsigned_abs() < i64::MAX as u128 {
            prop_assert!(value.abs() * NANOS >= nanos.abs() && (value.abs() - 1) * NANOS < nanos.abs());
        }
    }
}

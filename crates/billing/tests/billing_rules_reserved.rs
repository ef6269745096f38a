//! Cases by hand, rule by rule: the order, Reserved Instances, sizes and seconds. The numbers are those of the guide ("Commitments: who pays for what").
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use support::{Case, START, exact, priced};
use veneer_billing::{Allocator, Exact, HOUR, Interval, Purchase, Reach, SharingMode, size_quarters};

// Rule 1: the unit is the clock hour.

#[test]
fn rule_1_what_an_hour_does_not_use_is_lost_for_the_next() {
    let case = priced().compute("plan", ".70").instance("i", "m5.large", |one| {
        one.running = vec![Interval::new(START + HOUR, START + 3 * HOUR)];
    });
    let allocator = Allocator::new(&case.org);
    let period = allocator.period(Interval::new(START, START + 3 * HOUR));
    assert_eq!(period.hours, 3);
    assert_eq!(period.totals.unused, exact(".70"));
    assert_eq!(period.totals.total(), exact("2.10"));
}

#[test]
fn rule_1_an_instance_over_two_hours_is_in_both() {
    let case = priced().instance("i", "m5.large", |one| {
        one.running = vec![Interval::new(START - 900, START + 1800)];
    });
    let allocator = Allocator::new(&case.org);
    assert_eq!(allocator.hour(START - 1).totals().on_demand, exact(".25"));
    assert_eq!(allocator.hour(START).totals().on_demand, exact(".5"));
    assert_eq!(allocator.hour(START + 3599).totals().on_demand, exact(".5"));
    assert_eq!(allocator.hour(START + 3600).totals().on_demand, Exact::ZERO);
}

// Rule 2: the order.

#[test]
fn rule_2_each_kind_of_commitment_pays_before_the_next() {
    let case = priced()
        .run_many(4, "i", "m5.large")
        .reserve("ri", 1, "m5.large")
        .ec2_plan("ec2", "m5", ".60")
        .compute("compute", ".70");
    assert_eq!(case.payers("i-1"), "ri 1");
    assert_eq!(case.payers("i-2"), "ec2 1");
    assert_eq!(case.payers("i-3"), "compute 1");
    assert_eq!(case.payers("i-4"), "on demand 1");
}

#[test]
fn rule_2_three_kinds_pay_one_instance() {
    let case = priced()
        .run("i", "m5.xlarge")
        .reserve("ri", 1, "m5.large")
        .ec2_plan("ec2", "m5", ".30")
        .compute("compute", "1");
    assert_eq!(case.payers("i"), "ri 0.5, ec2 0.25, compute 0.25");
    case.bill(|bill| {
        let rules: Vec<Vec<u8>> = bill
            .usage("i")
            .unwrap()
            .shares()
            .map(|share| share.rules())
            .collect();
        assert_eq!(rules, [vec![2, 3, 4, 5, 8], vec![2, 9, 10], vec![2, 9, 10]]);
    });
}

#[test]
fn rule_2_nothing_covers_spot() {
    let case = priced()
        .instance("i", "m5.large", |one| one.purchase = Purchase::Spot(exact(".3")))
        .reserve("ri", 1, "m5.large")
        .reserve_zonal("zonal", 1, "m5.large")
        .ec2_plan("ec2", "m5", "5")
        .compute("compute", "5");
    case.bill(|bill| {
        assert_eq!(bill.usage("i").unwrap().shares().count(), 0);
        assert_eq!(bill.usage("i").unwrap().effective_cost(), exact(".3"));
        assert_eq!(bill.totals().own_price, exact(".3"));
        assert_eq!(bill.totals().unused, exact("10"));
        assert!(bill.usage("i").unwrap().why_uncovered().contains("rule 2"));
    });
}

#[test]
fn rule_2_an_ec2_plan_pays_first_where_a_compute_plan_would_save_more() {
    let case = Case::new()
        .price("m5.large", "1")
        .rate("ec2", "m5.large", ".9")
        .rate("compute", "m5.large", ".5")
        .run("i", "m5.large")
        .ec2_plan("ec2", "m5", "1")
        .compute("compute", "1");
    assert_eq!(case.payers("i"), "ec2 1");
}

// Rule 3: what Reserved Instances match.

/// Whether Reserved Instances for one thing cover another in `us-east-1a`, and in `us-east-1b`.
fn covers(reserved: &str, used: &str, is_zonal: bool) -> [bool; 2] {
    ["us-east-1a", "us-east-1b"].map(|zone| {
        let case = Case::new()
            .run_in("i", used, "a", zone)
            .reserved("ri", 100, reserved, |one| {
                one.zone = is_zonal.then(|| "us-east-1a".to_owned());
            });
        case.bill(|bill| bill.usage("i").unwrap().uncovered().is_zero())
    })
}

#[test]
fn rule_3_zonal_ones_match_zone_type_platform_and_tenancy() {
    for (reserved, used, expected) in [
        ("m5.large", "m5.large", [true, false]),
        ("m5.large", "m5.xlarge", [false, false]),
        ("m5.xlarge", "m5.large", [false, false]),
        ("windows m5.large", "m5.large", [false, false]),
        ("windows m5.large", "windows m5.large", [true, false]),
        ("dedicated m5.large", "m5.large", [false, false]),
        ("dedicated m5.large", "dedicated m5.large", [true, false]),
        ("m5.large eu-west-1", "m5.large", [false, false]),
    ] {
        assert_eq!(covers(reserved, used, true), expected, "{reserved} for {used}");
    }
}

#[test]
fn rule_3_regional_ones_match_any_zone_and_every_size_of_a_flexible_family() {
    for (reserved, used, expected) in [
        ("m5.large", "m5.large", true),
        ("m5.large", "m5.xlarge", true),
        ("m5.large", "m5.24xlarge", true),
        ("m5.large", "m5d.large", false),
        ("m5.large", "c5.large", false),
        ("m5.large eu-west-1", "m5.large", false),
    ] {
        assert_eq!(
            covers(reserved, used, false),
            [expected; 2],
            "{reserved} for {used}"
        );
    }
}

#[test]
fn rule_3_other_platforms_and_tenancies_have_one_size_only() {
    for platform in [
        "windows",
        "rhel",
        "suse",
        "byol",
        "dedicated",
        "dedicated windows",
    ] {
        let (large, xlarge) = (format!("{platform} m5.large"), format!("{platform} m5.xlarge"));
        assert_eq!(covers(&large, &large, false), [true; 2], "{platform}");
        assert_eq!(covers(&large, &xlarge, false), [false; 2], "{platform}");
        assert_eq!(covers(&large, "m5.large", false), [false; 2], "{platform}");
    }
}

#[test]
fn rule_3_excluded_families_have_one_size_only() {
    for family in [
        "g4ad", "g4dn", "g5", "g5g", "g6", "g6e", "g6f", "gr6", "gr6f", "hpc7a", "p5", "inf1", "inf2",
        "u7i-6tb", "u7i-8tb",
    ] {
        let (small, large) = (format!("{family}.xlarge"), format!("{family}.2xlarge"));
        assert_eq!(covers(&large, &small, false), [false; 2], "{family}");
        assert_eq!(covers(&large, &large, false), [true; 2], "{family}");
    }
    // Their neighbors are flexible.
    for family in ["g3", "p4d", "inf3", "u7i-12tb", "hpc6a"] {
        let (small, large) = (format!("{family}.xlarge"), format!("{family}.2xlarge"));
        assert_eq!(covers(&large, &small, false), [true; 2], "{family}");
    }
}

// Rules 4, 5 and 6: sizes.

#[test]
fn rule_4_the_smallest_comes_first_whatever_its_id_and_the_last_is_covered_in_part() {
    let case = priced()
        .run("a-2xlarge", "m5.2xlarge")
        .run("b-xlarge", "m5.xlarge")
        .run("c-large", "m5.large")
        .reserve("ri", 5, "m5.large");
    assert_eq!(case.payers("c-large"), "ri 1");
    assert_eq!(case.payers("b-xlarge"), "ri 1");
    assert_eq!(case.payers("a-2xlarge"), "ri 0.5, on demand 0.5");
}

#[test]
fn rule_4_several_reserved_sizes_are_one_pool() {
    let case = priced()
        .run("large", "m5.large")
        .run("xlarge", "m5.xlarge")
        .reserve("ri-1", 1, "m5.xlarge")
        .reserve("ri-2", 1, "m5.large");
    assert_eq!(case.payers("large"), "ri-1 1");
    assert_eq!(case.payers("xlarge"), "ri-1 0.5, ri-2 0.5");
}

#[test]
fn rule_5_factors_of_sizes() {
    for (size, quarters) in [
        ("nano", 1),
        ("micro", 2),
        ("small", 4),
        ("medium", 8),
        ("large", 16),
        ("xlarge", 32),
        ("2xlarge", 64),
        ("9xlarge", 288),
        ("112xlarge", 896 * 4),
    ] {
        assert_eq!(size_quarters(&format!("t3.{size}")), Some(quarters), "{size}");
    }
    assert_eq!(size_quarters("t3.huge"), None);
}

#[test]
fn rule_5_eight_nanos_are_one_medium() {
    let case = Case::new()
        .run_many(9, "i", "t3.nano")
        .reserve("ri", 1, "t3.medium");
    assert_eq!(case.payers("i-8"), "ri 1");
    assert_eq!(case.payers("i-9"), "on demand 1");
}

#[test]
fn rule_6_metal_counts_as_its_virtual_equal() {
    for (metal, equal) in [
        ("a1.metal", "a1.4xlarge"),
        ("z1d.metal", "z1d.12xlarge"),
        ("m6g.metal", "m6g.16xlarge"),
        ("c5n.metal", "c5n.18xlarge"),
        ("m5.metal", "m5.24xlarge"),
        ("c6i.metal", "c6i.32xlarge"),
        ("u-24tb1.metal", "u-24tb1.56xlarge"),
        ("u-6tb1.metal", "u-6tb1.112xlarge"),
        ("m7i.metal-24xl", "m7i.24xlarge"),
        ("m7i.metal-48xl", "m7i.48xlarge"),
    ] {
        let case = Case::new().run("i", metal).reserve("ri", 1, equal);
        case.bill(|bill| {
            let usage = bill.usage("i").unwrap();
            let share = usage.shares().next().unwrap();
            assert_eq!(share.amount(), Exact::ONE, "{metal}");
            assert!(share.rules().contains(&6), "{metal}");
        });
    }
}

#[test]
fn rule_6_a_metal_size_that_nobody_lists_covers_itself_only() {
    assert_eq!(covers("x9z.metal", "x9z.metal", false), [true; 2]);
    assert_eq!(covers("x9z.metal", "x9z.large", false), [false; 2]);
    assert_eq!(covers("x9z.large", "x9z.metal", false), [false; 2]);
}

// Rule 7: sharing of Reserved Instances.

#[test]
fn rule_7_what_the_owner_does_not_use_goes_to_others() {
    let case = priced()
        .run("own", "m5.large")
        .run_in("a-first-id", "m5.large", "b", "us-east-1b")
        .reserve("ri", 2, "m5.large");
    assert_eq!(case.payers("own"), "ri 1");
    assert_eq!(case.payers("a-first-id"), "ri 1");
    case.bill(|bill| {
        let usage = bill.usage("a-first-id").unwrap();
        let share = usage.shares().next().unwrap();
        assert_eq!(
            (share.reach(), share.rules()),
            (Reach::Organization, vec![2, 3, 4, 5, 7, 8])
        );
        assert!(
            share
                .to_string()
                .contains("another account of the organization (rules"),
            "{share}"
        );
    });
}

#[test]
fn rule_7_the_owners_largest_goes_before_anothers_smallest() {
    let case = priced()
        .run("own", "m5.2xlarge")
        .run_in("other", "m5.large", "b", "us-east-1a")
        .reserve("ri", 4, "m5.large");
    assert_eq!(case.payers("own"), "ri 1");
    assert_eq!(case.payers("other"), "on demand 1");
}

#[test]
fn rule_7_without_sharing_the_rest_is_lost() {
    let case = priced()
        .sharing(SharingMode::Off, &[])
        .run_in("other", "m5.large", "b", "us-east-1a")
        .reserve("ri", 1, "m5.large");
    assert_eq!(case.payers("other"), "on demand 1");
    case.bill(|bill| assert_eq!(bill.commitment("ri").unwrap().left(), Exact::ONE));
}

#[test]
fn rule_7_an_account_without_sharing_neither_gives_nor_gets() {
    for excluded in ["a", "b"] {
        let mut case = priced()
            .run_in("other", "m5.large", "b", "us-east-1a")
            .reserve("ri", 1, "m5.large")
            .compute("plan", "1");
        case.org.sharing.excluded.insert(excluded.to_owned());
        assert_eq!(case.payers("other"), "on demand 1", "{excluded}");
    }
}

#[test]
fn rule_7_ones_own_zonal_goes_before_anothers_zonal() {
    let zonal = |account: &'static str| {
        move |one: &mut veneer_billing::ReservedInstances| {
            one.account = account.to_owned();
            one.zone = Some("us-east-1a".to_owned());
        }
    };
    let case = priced()
        .run_in("of-b", "m5.large", "b", "us-east-1a")
        .reserved("1-of-a", 1, "m5.large", zonal("a"))
        .reserved("2-of-b", 1, "m5.large", zonal("b"));
    assert_eq!(case.payers("of-b"), "2-of-b 1");
}

#[test]
fn rules_7_and_11_a_prioritized_group_comes_before_the_rest() {
    let case = priced()
        .sharing(
            SharingMode::PrioritizedGroup,
            &[("a", "blue"), ("b", "blue"), ("c", "green")],
        )
        .run_in("1-of-c", "m5.large", "c", "us-east-1a")
        .run_in("2-of-b", "m5.large", "b", "us-east-1a")
        .run_in("3-of-d", "m5.large", "d", "us-east-1a");
    let reserved = case.clone().reserve("ri", 2, "m5.large");
    assert_eq!(reserved.payers("2-of-b"), "ri 1");
    assert_eq!(reserved.payers("1-of-c"), "ri 1");
    assert_eq!(reserved.payers("3-of-d"), "on demand 1");
    let planned = case.compute("plan", "1.05");
    assert_eq!(planned.payers("2-of-b"), "plan 1");
    assert_eq!(planned.payers("1-of-c"), "plan 0.5, on demand 0.5");
}

#[test]
fn rules_7_and_11_a_restricted_group_shares_with_nobody_else() {
    let case = priced()
        .sharing(
            SharingMode::RestrictedGroup,
            &[("a", "blue"), ("b", "blue"), ("c", "green")],
        )
        .run_in("1-of-c", "m5.large", "c", "us-east-1a")
        .run_in("2-of-b", "m5.large", "b", "us-east-1a")
        .reserve("ri", 5, "m5.large")
        .compute("plan", "5");
    assert_eq!(case.payers("2-of-b"), "ri 1");
    assert_eq!(case.payers("1-of-c"), "on demand 1");
}

#[test]
fn rule_7_in_a_restricted_mode_an_account_without_a_group_is_alone() {
    let case = priced()
        .sharing(SharingMode::RestrictedGroup, &[])
        .run_in("of-b", "m5.large", "b", "us-east-1a")
        .reserve("ri", 1, "m5.large");
    assert_eq!(case.payers("of-b"), "on demand 1");
}

// Rule 8: seconds.

#[test]
fn rule_8_a_reserved_instance_gives_3600_seconds_to_what_runs() {
    let case = priced()
        .run_between("i-1", "m5.large", 0, 3000)
        .run_between("i-2", "m5.large", 0, 1000)
        .reserve_zonal("ri", 1, "m5.large");
    assert_eq!(case.payers("i-1"), "ri 0.833");
    case.bill(|bill| {
        assert_eq!(
            bill.usage("i-2").unwrap().uncovered(),
            Exact::fraction(400, 3600).unwrap()
        );
    });
}

#[test]
fn rule_8_a_count_of_three_gives_three_hours() {
    let case = priced()
        .run_many(4, "i", "m5.large")
        .reserve_zonal("ri", 3, "m5.large");
    assert_eq!(case.bill(|bill| bill.totals().on_demand), Exact::ONE);
}

#[test]
fn rule_8_overlapping_records_of_one_instance_are_one() {
    let case = priced()
        .run_between("i", "m5.large", 0, 2000)
        .run_between("i", "m5.large", 1000, 3000);
    case.bill(|bill| {
        assert_eq!(
            bill.usage("i").unwrap().amount(),
            Exact::fraction(3000, 3600).unwrap()
        );
    });
}

#[test]
fn rule_8_an_instance_that_changes_its_type_is_two_usages() {
    let case = priced()
        .run_between("i", "m5.large", 0, 1800)
        .run_between("i", "m5.xlarge", 1800, 3600)
        .reserve_zonal("ri", 1, "m5.xlarge");
    case.bill(|bill| {
        assert_eq!(bill.usages().count(), 2);
        assert_eq!(bill.totals().on_demand, exact(".5"));
        assert_eq!(bill.commitment("ri").unwrap().used, exact(".5"));
    });
}

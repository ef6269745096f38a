//! AWS's own worked examples, to the printed digit, and seven totals of ours. Each test names the rules that it shows.

mod support;

use support::{Case, START, TERM, exact, payers};
use veneer_billing::{Allocator, Exact, HOUR, Interval, Machine, PeriodBill, Priced};

const MONTH: Interval = Interval::new(START, START + 744 * HOUR);

/// The usage of W1 to W5: 59.10 on demand.
fn base() -> Case {
    Case::new()
        .price("r5.4xlarge", "1.00")
        .rate("compute", "r5.4xlarge", ".70")
        .rate("ec2", "r5.4xlarge", ".60")
        .price("dedicated windows m5.24xlarge", "10")
        .rate("compute", "dedicated windows m5.24xlarge", "8.20")
        .rate("ec2", "dedicated windows m5.24xlarge", "7.80")
        .usage_price("Fargate-vCPU", ".04", &[("compute", ".03")])
        .usage_price("Fargate-GB", ".004", &[("compute", ".003")])
        .usage_price("Lambda-GB-Second", ".000015", &[("compute", ".00001275")])
        .usage_price("Lambda-1M-Requests", ".20", &[("compute", ".20")])
        .run_many(4, "r5", "r5.4xlarge")
        .run("m5", "dedicated windows m5.24xlarge")
        .line("vcpu", "Fargate-vCPU", "400")
        .line("gb", "Fargate-GB", "1600")
        .line("gb-s", "Lambda-GB-Second", "1500000")
        .line("requests", "Lambda-1M-Requests", "1")
}

/// What a commitment pays of some usages together.
fn paid(case: &Case, commitment: &str, usages: &[&str]) -> Exact {
    case.bill(|bill| {
        let of = bill
            .usages()
            .filter(|usage| usages.iter().any(|id| usage.id().starts_with(id)));
        let shares = of.flat_map(|usage| usage.shares().collect::<Vec<_>>());
        shares
            .filter(|share| share.id() == commitment)
            .map(|share| share.cost())
            .sum()
    })
}

fn open_cost(case: &Case, usages: &[&str]) -> Exact {
    case.bill(|bill| {
        let of = bill
            .usages()
            .filter(|usage| usages.iter().any(|id| usage.id().starts_with(id)));
        of.map(|usage| usage.uncovered_cost()).sum()
    })
}

#[test]
fn w1_rules_9_and_10_a_compute_plan_of_50_covers_everything() {
    let case = base().compute("plan", "50");
    assert_eq!(base().total().decimal(2), "59.10");
    case.bill(|bill| {
        assert_eq!(bill.commitment("plan").unwrap().used.decimal(2), "47.13");
        assert_eq!(bill.totals().total().decimal(2), "50.00");
        assert_eq!(payers(bill, "requests"), "plan 1", "a saving of 0 % is covered");
    });
}

#[test]
fn w2_rule_9_a_compute_plan_of_2_covers_a_part_of_the_highest_saving() {
    let case = base().compute("plan", "2");
    let covered: Exact = case.bill(|bill| {
        let of = bill.usages().filter(|usage| usage.id().starts_with("r5"));
        of.map(|usage| usage.amount().minus(&usage.uncovered())).sum()
    });
    assert_eq!(covered.decimal(3), "2.857");
    assert_eq!(open_cost(&case, &["r5"]).decimal(2), "1.14");
    assert_eq!(
        open_cost(&case, &["m5", "vcpu", "gb", "requests"]).decimal(2),
        "55.10"
    );
    assert_eq!(case.total().decimal(2), "58.24");
}

#[test]
fn w3_rule_9_equal_savings_go_to_the_lowest_rate() {
    let case = base().compute("plan", "19.60");
    assert_eq!(paid(&case, "plan", &["r5"]).decimal(2), "2.80");
    assert_eq!(
        case.bill(|bill| bill.usage("gb").unwrap().effective_cost())
            .decimal(2),
        "4.80"
    );
    assert_eq!(paid(&case, "plan", &["vcpu"]).decimal(2), "12.00");
    assert_eq!(case.on_demand().decimal(2), "32.70");
    assert_eq!(case.total().decimal(2), "52.30");
}

#[test]
fn w4_rule_2_reserved_instances_come_before_plans() {
    let case = base().reserve("ri", 2, "r5.4xlarge").compute("plan", "18.20");
    assert_eq!(paid(&case, "plan", &["r5"]).decimal(2), "1.40");
    assert_eq!(
        case.bill(|bill| bill.usage("gb").unwrap().effective_cost())
            .decimal(2),
        "4.80"
    );
    assert_eq!(paid(&case, "plan", &["vcpu"]).decimal(2), "12.00");
    assert_eq!(case.on_demand().decimal(2), "32.70");
}

#[test]
fn w5_rules_2_and_9_an_ec2_plan_comes_before_compute_and_its_rest_is_lost() {
    let case = base().ec2_plan("ec2", "r5", "3.00").compute("plan", "16.80");
    case.bill(|bill| {
        let plan = bill.commitment("ec2").unwrap();
        assert_eq!(plan.used.decimal(2), "2.40");
        assert_eq!(plan.unused_cost().decimal(2), "0.60");
        assert_eq!(bill.totals().on_demand.decimal(2), "32.70");
        assert_eq!(bill.totals().total().decimal(2), "52.50");
    });
}

#[test]
fn w7_rule_1_utilization_is_what_is_used_of_the_commitment() {
    let case = Case::new()
        .price("m5.large", "14")
        .rate("compute", "m5.large", "9.80")
        .run("i", "m5.large")
        .compute("plan", "10");
    case.bill(|bill| {
        let plan = bill.commitment("plan").unwrap();
        let percent = plan.utilization().unwrap().times_whole(100);
        assert_eq!(
            (plan.used.decimal(2), percent.decimal(0)),
            ("9.80".to_owned(), "98".to_owned())
        );
    });
}

#[test]
fn w8_rule_3_two_zonal_reserved_instances_cover_two_of_their_zone() {
    let case = Case::new()
        .run_many(3, "i", "c4.xlarge")
        .run_in("other-zone", "c4.xlarge", "a", "us-east-1b")
        .reserve_zonal("ri", 2, "c4.xlarge");
    assert_eq!(case.payers("i-1"), "ri 1");
    assert_eq!(case.payers("i-2"), "ri 1");
    assert_eq!(case.payers("i-3"), "on demand 1");
    assert_eq!(case.payers("other-zone"), "on demand 1");
}

/// How many instances of a type one reserved type covers.
fn covers(reserved: &str, count: u32, used: &str) -> String {
    let case = Case::new().run_many(40, "i", used).reserve("ri", count, reserved);
    let covered: Exact = case.bill(|bill| {
        bill.usages()
            .map(|usage| usage.amount().minus(&usage.uncovered()))
            .sum()
    });
    support::short(&covered)
}

#[test]
fn w9_to_w13_rules_3_5_and_6_sizes_are_exchanged_by_their_factors() {
    for (example, reserved, count, used, covered) in [
        ("W9", "t2.medium", 1, "t2.small", "2"),
        ("W10", "t2.medium", 1, "t2.large", "0.5"),
        ("W11", "c4.8xlarge", 1, "c4.4xlarge", "2"),
        ("W11", "c4.8xlarge", 1, "c4.2xlarge", "4"),
        ("W11", "c4.8xlarge", 1, "c4.large", "16"),
        ("W12", "i3.metal", 1, "i3.16xlarge", "1"),
        ("W12", "i3.metal", 1, "i3.8xlarge", "2"),
        ("W12", "i3.metal", 1, "i3.4xlarge", "4"),
        ("W13", "i3.8xlarge", 2, "i3.metal", "1"),
    ] {
        assert_eq!(
            covers(reserved, count, used),
            covered,
            "{example}: {reserved} for {used}"
        );
    }
}

#[test]
fn w14_rules_3_and_4_zonal_in_full_and_regional_by_size() {
    let case = Case::new()
        .run_many(4, "m3", "m3.large")
        .run_many(2, "m4", "m4.xlarge")
        .run("c4", "c4.xlarge")
        .reserve_zonal("zonal", 4, "m3.large")
        .reserve("m4", 4, "m4.large")
        .reserve("c4", 1, "c4.large");
    for id in ["m3-1", "m3-2", "m3-3", "m3-4"] {
        assert_eq!(case.payers(id), "zonal 1");
    }
    assert_eq!(case.payers("m4-1"), "m4 1");
    assert_eq!(case.payers("m4-2"), "m4 1");
    assert_eq!(case.payers("c4"), "c4 0.5, on demand 0.5");
}

#[test]
fn w15_rule_4_the_smallest_sizes_come_first() {
    let case = Case::new()
        .run_many(2, "xlarge", "m3.xlarge")
        .run_many(2, "large", "m3.large")
        .reserve("ri", 1, "m3.2xlarge");
    assert_eq!(case.payers("large-1"), "ri 1");
    assert_eq!(case.payers("large-2"), "ri 1");
    assert_eq!(case.payers("xlarge-1"), "ri 1");
    assert_eq!(case.payers("xlarge-2"), "on demand 1");
}

#[test]
fn w16_rule_7_the_owning_account_comes_first() {
    let case = Case::new()
        .run_many(2, "m4.xlarge", "m4.xlarge")
        .run("m4.2xlarge", "m4.2xlarge")
        .run_many(2, "c4.xlarge", "c4.xlarge")
        .run("c4.2xlarge", "c4.2xlarge")
        .run_in("b-1", "m4.xlarge", "b", "us-east-1a")
        .run_in("b-2", "m4.xlarge", "b", "us-east-1a")
        .reserve("m4", 4, "m4.xlarge")
        .reserve("c4", 2, "c4.xlarge");
    for (id, by) in [
        ("m4.xlarge-1", "m4 1"),
        ("m4.xlarge-2", "m4 1"),
        ("m4.2xlarge", "m4 1"),
        ("c4.xlarge-1", "c4 1"),
        ("c4.xlarge-2", "c4 1"),
        ("c4.2xlarge", "on demand 1"),
        ("b-1", "on demand 1"),
        ("b-2", "on demand 1"),
    ] {
        assert_eq!(case.payers(id), by, "{id}");
    }
}

#[test]
fn w17_rule_7_anothers_zonal_reserved_instance_goes_before_ones_own_regional_one() {
    let case = Case::new()
        .run_in("of-a", "m4.large", "a", "us-east-1a")
        .run_in("of-b", "m4.large", "b", "us-east-1b")
        .reserve("regional-of-a", 1, "m4.large")
        .reserved("zonal-of-c", 1, "m4.large", |one| {
            one.account = "c".to_owned();
            one.zone = Some("us-east-1a".to_owned());
        });
    assert_eq!(case.payers("of-a"), "zonal-of-c 1");
    assert_eq!(case.payers("of-b"), "regional-of-a 1");
}

#[test]
fn w18_rule_8_one_reserved_hour_for_four_instances() {
    let case = Case::new()
        .run_many(4, "i", "m4.large")
        .reserve_zonal("ri", 1, "m4.large");
    let open: Exact = case.bill(|bill| bill.usages().map(|usage| usage.uncovered()).sum());
    assert_eq!(open.decimal(0), "3");
    case.bill(|bill| assert_eq!(bill.commitment("ri").unwrap().used.decimal(0), "1"));
}

#[test]
fn w19_rule_8_four_quarters_of_an_hour_are_one_reserved_hour() {
    let mut case = Case::new().reserve_zonal("ri", 1, "m4.large");
    for (number, from) in [0, 0, 900, 2700].into_iter().enumerate() {
        case = case.run_between(&format!("i-{number}"), "m4.large", from, from + 900);
    }
    case.bill(|bill| {
        assert!(bill.usages().all(|usage| usage.uncovered().is_zero()));
        assert_eq!(bill.commitment("ri").unwrap().used, Exact::ONE);
    });
}

fn month<T>(case: &Case, look: impl FnOnce(&PeriodBill<'_>) -> T) -> T {
    let allocator = Allocator::new(&case.org);
    look(&allocator.period(MONTH))
}

/// An instance for the first hours of the month.
fn hours(case: Case, id: &str, words: &str, hours: i64) -> Case {
    case.instance(id, words, |one| {
        one.running = vec![Interval::new(START, START + hours * HOUR)];
    })
}

fn fees(case: Case, id: &str, words: &str, upfront: &str, hourly: &str) -> Case {
    case.reserved(id, 1, words, |one| {
        one.upfront = exact(upfront);
        one.hourly = exact(hourly);
        one.term = Interval::new(START, START + 8760 * HOUR);
    })
}

#[test]
fn w20_rule_14_both_fees_of_a_year() {
    let case = fees(Case::new(), "ri", "t2.micro", "60", ".007");
    let allocator = Allocator::new(&case.org);
    let year = allocator.period(Interval::new(START, START + 8760 * HOUR));
    assert_eq!(year.totals.total().decimal(2), "121.32");
    assert_eq!(year.totals.total(), exact("121.32"));
}

#[test]
fn w21_rule_14_365_dollars_at_once_are_a_dollar_a_day() {
    let case = fees(Case::new(), "ri", "t2.micro", "365", "0");
    let allocator = Allocator::new(&case.org);
    let day = allocator.period(Interval::new(START, START + 24 * HOUR));
    assert_eq!(day.totals.total(), Exact::ONE);
}

#[test]
fn w22_and_w23_rules_5_and_14_fees_and_units_of_a_month() {
    for (example, words, fee, dollars, units) in [
        ("W22", "m4.large", ".0309", "23", "2976"),
        ("W23", "m4.xlarge", ".0618", "46", "5952"),
    ] {
        let case = fees(Case::new(), "ri", words, "0", fee);
        month(&case, |month| {
            let ri = &month.commitments["ri"];
            assert_eq!(ri.recurring.decimal(0), dollars, "{example}");
            assert_eq!(ri.units().unwrap().decimal(0), units, "{example}");
        });
    }
}

#[test]
fn w24_rules_4_and_5_two_lines_of_half_an_hour() {
    let case = Case::new()
        .run("i", "m4.xlarge")
        .reserve("ri-1", 1, "m4.large")
        .reserve("ri-2", 1, "m4.large");
    case.bill(|bill| {
        let usage = bill.usage("i").unwrap();
        let lines: Vec<_> = usage
            .shares()
            .map(|one| (one.amount(), one.units().unwrap()))
            .collect();
        assert_eq!(lines, [(exact("0.5"), exact("4")), (exact("0.5"), exact("4"))]);
        assert!(usage.uncovered().is_zero());
    });
}

/// The Reserved Instance of W25 to W27: 0.10 an hour, and 5 dollars of its upfront fee are for this month.
fn c3() -> Case {
    let upfront = exact("5").times_whole(8760).over_whole(744);
    Case::new().reserved("ri", 1, "c3.8xlarge", |one| {
        one.upfront = upfront;
        one.hourly = exact(".10");
        one.term = Interval::new(START, START + 8760 * HOUR);
    })
}

#[test]
fn w25_rule_14_a_reserved_instance_that_is_used_all_month() {
    month(&hours(c3(), "i", "c3.8xlarge", 744), |month| {
        let ri = &month.commitments["ri"];
        assert_eq!(ri.used_part(&ri.recurring).decimal(1), "74.4");
        assert_eq!(ri.used_part(&ri.upfront).decimal(0), "5");
        assert_eq!(ri.used_part(&ri.cost).decimal(1), "79.4");
        assert!(ri.unused_cost().is_zero());
    });
}

#[test]
fn w26_rule_14_hundred_hours_are_unused() {
    month(&hours(c3(), "i", "c3.8xlarge", 644), |month| {
        let ri = &month.commitments["ri"];
        assert_eq!(ri.left().decimal(0), "100");
        assert_eq!(ri.used_part(&ri.recurring).decimal(1), "64.4");
        // AWS's example adds the upfront fee of the whole period.
        assert_eq!(ri.used_part(&ri.recurring).plus(&ri.upfront).decimal(1), "69.4");
        // Its definition of the column (by normalized usage) divides that fee, and so do we.
        assert_eq!(
            ri.used_part(&ri.cost),
            exact("64.4").plus(&exact("5").times_whole(644).over_whole(744))
        );
    });
}

#[test]
fn w27_rules_4_5_and_14_a_small_instance_on_a_large_reserved_instance() {
    month(&hours(c3(), "i", "c3.large", 644), |month| {
        let ri = &month.commitments["ri"];
        assert_eq!(ri.used_units().unwrap().decimal(0), "2576");
        let used = ri.used_part(&ri.recurring);
        assert_eq!(used.decimal(2), "4.03");
        // AWS subtracts what it has rounded before; without that it would be 70.375.
        assert_eq!(ri.recurring.minus(&exact(&used.decimal(2))).decimal(2), "70.37");
        assert_eq!(ri.recurring.minus(&used), exact("70.375"));
    });
}

/// A capacity reservation of which some are used for the hours given.
fn reservation(count: u32, used: usize, seconds: i64) -> Case {
    let mut case = Case::new().price("m4.large", "0.10").capacity_reservation(
        "cr",
        count,
        "m4.large",
        Interval::new(START, START + seconds),
    );
    for number in 0..used {
        case = case.instance(&format!("i-{number}"), "m4.large", |one| {
            one.capacity_reservation = Some("cr".to_owned());
            one.running = vec![Interval::new(START, START + seconds)];
        });
    }
    case
}

fn hours_of(case: &Case) -> (Exact, Exact) {
    let machine = Machine {
        region: support::REGION.to_owned(),
        instance_type: "m4.large".to_owned(),
        ..Machine::default()
    };
    let allocator = Allocator::new(&case.org);
    let day = allocator.period(Interval::new(START, START + 48 * HOUR));
    let of = |is_unused| {
        let usage = day.usages.get(&(Priced::Machine(machine.clone()), is_unused));
        usage.map(|usage| usage.amount.clone()).unwrap_or_default()
    };
    (of(false), of(true))
}

#[test]
fn w28_rule_12_what_a_reservation_has_beyond_what_runs_is_paid() {
    let case = reservation(20, 15, HOUR);
    assert_eq!(hours_of(&case), (exact("15"), exact("5")));
    assert_eq!(case.total(), exact("2.0"));
}

#[test]
fn w29_rule_12_reservations_are_billed_by_the_second() {
    assert_eq!(
        hours_of(&reservation(1, 0, 24 * HOUR + 900)),
        (Exact::ZERO, exact("24.25"))
    );
}

#[test]
fn w31_rule_12_reservation_box_usage_and_unused_box() {
    let (used, unused) = hours_of(&reservation(10, 2, HOUR));
    assert_eq!(
        (used.plus(&unused), used, unused),
        (exact("10"), exact("2"), exact("8"))
    );
}

#[test]
fn w32_rule_14_the_blended_rate_is_the_average_over_all_hours() {
    // Four instances for 720 hours; three are reserved and paid at once.
    let mut case = Case::new().price("t2.small", ".023").reserve("ri", 3, "t2.small");
    for number in 0..4 {
        case = hours(case, &format!("i-{number}"), "t2.small", 720);
    }
    month(&case, |month| {
        let usage = month.usages.values().next().unwrap();
        assert_eq!(usage.unblended.decimal(2), "16.56");
        assert_eq!(usage.amount.decimal(0), "2880");
        assert_eq!(usage.blended_rate().unwrap().decimal(5), "0.00575");
    });
}

#[test]
fn w33_rule_5_five_reserved_instances_for_a_month() {
    let case = Case::new().reserved("ri", 5, "t2.small", |one| {
        one.term = Interval::new(START, START + 8760 * HOUR);
    });
    month(&case, |month| {
        assert_eq!(month.commitments["ri"].units().unwrap().decimal(0), "3720");
    });
}

// Seven totals of ours, beside which a model of one plan for one instance goes wrong (its answers in brackets).

/// Instances of a price and a rate that both cards have.
fn instances(count: usize, words: &str, price: &str, rate: &str) -> Case {
    let case = Case::new()
        .price(words, price)
        .rate("compute", words, rate)
        .rate("ec2", words, rate);
    case.run_many(count, words, words)
}

#[test]
fn total_1_rule_9_the_last_instance_is_covered_in_part() {
    // (176.52)
    let case = instances(200, "m5.large", "1.00", ".72").compute("plan", "60");
    assert_eq!(case.total().decimal(4), "176.6667");
}

#[test]
fn total_2_rules_2_and_9_what_is_left_after_reserved_instances() {
    // (18.76)
    let case = instances(15, "m5.large", "2", "1.44")
        .reserve("ri", 5, "m5.large")
        .compute("plan", "3");
    assert_eq!(case.total().decimal(4), "18.8333");
}

#[test]
fn total_3_rule_9_the_lowest_rate_first_and_a_part_of_the_next() {
    // (2.44)
    let case = instances(1, "m5.large", "1", ".72")
        .price("m5.xlarge", "2")
        .rate("ec2", "m5.xlarge", "1.44");
    let case = case.run("xlarge", "m5.xlarge").ec2_plan("plan", "m5", "1");
    assert_eq!(case.total().decimal(4), "2.6111");
}

#[test]
fn total_4_rule_9_half_a_dollar_does_not_pay_an_instance() {
    // (0.50)
    let case = instances(1, "m5.large", "1", ".72").compute("plan", ".50");
    assert_eq!(case.total().decimal(4), "0.8056");
}

#[test]
fn total_5_rule_9_five_plans_are_taken_together() {
    // (15.28)
    let mut case = instances(20, "m5.large", "1", ".72");
    for (number, dollars) in ["3", "2.5", "2", "1.5", "1"].iter().enumerate() {
        case = case.compute(&format!("plan-{number}"), dollars);
    }
    assert_eq!(case.total().decimal(4), "16.1111");
}

#[test]
fn total_6_rule_9_two_plans_pay_one_instance() {
    // (.90)
    let case = instances(1, "m5.large", "1", ".72")
        .ec2_plan("ec2", "m5", ".10")
        .compute("plan", "2.00");
    assert_eq!(
        case.bill(|bill| bill.usages().next().unwrap().effective_cost())
            .decimal(2),
        "0.72"
    );
}

#[test]
fn total_7_rule_9_the_rest_of_a_large_one_goes_to_the_compute_plan() {
    // (1.50)
    let case = instances(1, "m5.large", "2", "1.44")
        .ec2_plan("ec2", "m5", ".50")
        .compute("plan", "60");
    assert_eq!(
        case.bill(|bill| bill.usages().next().unwrap().effective_cost())
            .decimal(2),
        "1.44"
    );
}

#[test]
fn terms_of_the_tests_have_their_hour_in_the_middle() {
    assert!(TERM.contains(START) && TERM.contains(START + 744 * HOUR));
}

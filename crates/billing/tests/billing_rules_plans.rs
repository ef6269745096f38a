//! Cases by hand, rule by rule: plans, sharing of plans and capacity reservations. The numbers are those of the guide ("Commitments: who pays for what").

mod support;

use support::{Case, START, exact, priced, reserved_capacity};
use veneer_billing::{Exact, Instance, Interval};

// Rule 9: plans.

#[test]
fn rule_9_the_highest_saving_comes_first_whatever_it_costs() {
    // m5 saves 30 %, c5 20 %.
    let case = priced()
        .run("1-c5", "c5.large")
        .run("2-m5", "m5.2xlarge")
        .compute("plan", "2.80");
    assert_eq!(case.payers("2-m5"), "plan 1");
    assert_eq!(case.payers("1-c5"), "on demand 1");
}

#[test]
fn rule_9_equal_savings_go_to_the_lowest_rate_before_the_id() {
    let case = priced()
        .run("1-xlarge", "m5.xlarge")
        .run("2-large", "m5.large")
        .compute("plan", ".70");
    assert_eq!(case.payers("2-large"), "plan 1");
    assert_eq!(case.payers("1-xlarge"), "on demand 1");
}

#[test]
fn rule_9_of_two_plans_the_one_that_saves_more_pays_first() {
    let case = priced()
        .rate("three-years", "m5.large", ".50")
        .run("i", "m5.large")
        .compute("1-year", "1")
        .plan("3-years", "three-years", ".25", |_| {});
    assert_eq!(case.payers("i"), "3-years 0.5, 1-year 0.5");
}

#[test]
fn rule_9_a_saving_of_nothing_is_covered_last() {
    let case = priced()
        .price("t3.large", "1")
        .rate("compute", "t3.large", "1")
        .run("1-t3", "t3.large")
        .run("2-m5", "m5.large")
        .compute("plan", "1.20");
    assert_eq!(case.payers("2-m5"), "plan 1");
    assert_eq!(case.payers("1-t3"), "plan 0.5, on demand 0.5");
}

#[test]
fn rule_9_a_rate_above_the_price_still_uses_what_would_be_lost() {
    let case = Case::new()
        .price("m5.large", "1")
        .rate("compute", "m5.large", "1.25")
        .run("i", "m5.large")
        .compute("plan", "5");
    assert_eq!(case.payers("i"), "plan 1");
    assert_eq!(case.total(), exact("5"));
}

#[test]
fn rule_9_a_rate_of_zero_takes_nothing() {
    let case = priced()
        .price("t3.large", "1")
        .rate("compute", "t3.large", "0")
        .run_many(3, "free", "t3.large")
        .run("i", "m5.large")
        .compute("plan", ".70");
    assert_eq!(case.payers("free-3"), "plan 1");
    assert_eq!(case.payers("i"), "plan 1");
    assert_eq!(case.total(), exact(".70"));
}

#[test]
fn rule_9_what_has_no_price_saves_nothing() {
    let case = Case::new()
        .price("t3.large", "0")
        .rate("compute", "t3.large", "0")
        .price("m5.large", "0")
        .rate("compute", "m5.large", ".1")
        .run("free", "t3.large")
        .run("m5", "m5.large")
        .compute("plan", ".05");
    assert_eq!(case.payers("free"), "plan 1");
    assert_eq!(case.payers("m5"), "plan 0.5, on demand 0.5");
    assert_eq!(case.total(), exact(".05"));
}

#[test]
fn rule_9_what_an_ec2_plan_has_left_does_not_help_another_family() {
    let case = priced().run("c5", "c5.large").ec2_plan("ec2", "m5", "9");
    assert_eq!(case.payers("c5"), "on demand 1");
}

#[test]
fn rule_9_part_of_an_hour_takes_that_part_of_the_rate() {
    let case = priced()
        .run_between("i", "m5.large", 0, 1800)
        .compute("plan", "1");
    case.bill(|bill| assert_eq!(bill.commitment("plan").unwrap().used, exact(".35")));
}

// Rule 10: what plans cover.

#[test]
fn rule_10_an_ec2_plan_covers_any_size_platform_and_tenancy_of_its_family_and_region() {
    let case = priced()
        .run("windows", "windows m5.large")
        .run("dedicated", "dedicated m5.large")
        .run("2xlarge", "m5.2xlarge")
        .run("abroad", "m5.large eu-west-1")
        .line("fargate", "Fargate-vCPU", "10")
        .ec2_plan("ec2", "m5", "20");
    for id in ["windows", "dedicated", "2xlarge"] {
        assert_eq!(case.payers(id), "ec2 1", "{id}");
    }
    assert_eq!(case.payers("abroad"), "on demand 1");
    assert_eq!(case.payers("fargate"), "on demand 10");
}

#[test]
fn rule_10_a_compute_plan_covers_all_regions_and_fargate() {
    let case = priced()
        .run("abroad", "m5.large eu-west-1")
        .line("fargate", "Fargate-vCPU", "10")
        .compute("plan", "20");
    assert_eq!(case.payers("abroad"), "plan 1");
    assert_eq!(case.payers("fargate"), "plan 10");
    case.bill(|bill| assert_eq!(bill.commitment("plan").unwrap().used, exact("1.2")));
}

#[test]
fn rule_10_excluded_families_and_metal_are_no_matter_for_plans() {
    let case = Case::new()
        .price("g5.xlarge", "1")
        .rate("ec2", "g5.xlarge", ".5")
        .price("g5.metal", "8")
        .rate("ec2", "g5.metal", "4")
        .run("xlarge", "g5.xlarge")
        .run("metal", "g5.metal")
        .ec2_plan("ec2", "g5", "4.5");
    assert_eq!(case.on_demand(), Exact::ZERO);
}

// Rule 11: sharing of plans.

#[test]
fn rule_11_the_owner_comes_before_a_higher_saving_elsewhere() {
    // c5 saves 20 % for the owner, m5 30 % for another.
    let case = priced()
        .run("own", "c5.large")
        .run_in("other", "m5.large", "b", "us-east-1a")
        .compute("plan", ".80");
    assert_eq!(case.payers("own"), "plan 1");
    assert_eq!(case.payers("other"), "on demand 1");
}

#[test]
fn rule_11_among_others_the_largest_saving_comes_first() {
    let case = priced()
        .run_in("1", "c5.large", "b", "us-east-1a")
        .run_in("2", "m5.large", "c", "us-east-1a")
        .compute("plan", ".70");
    assert_eq!(case.payers("2"), "plan 1");
    assert_eq!(case.payers("1"), "on demand 1");
    case.bill(|bill| {
        assert_eq!(
            bill.usage("2").unwrap().shares().next().unwrap().rules(),
            [2, 9, 10, 11]
        );
    });
}

#[test]
fn rule_11_two_owners_each_have_their_own_plan_first() {
    let case = priced()
        .run("of-a", "m5.large")
        .run_in("of-b", "m5.large", "b", "us-east-1a")
        .plan("1-of-b", "compute", ".70", |plan| plan.account = "b".to_owned())
        .compute("2-of-a", ".70");
    assert_eq!(case.payers("of-a"), "2-of-a 1");
    assert_eq!(case.payers("of-b"), "1-of-b 1");
}

// Rule 12: capacity reservations.

#[test]
fn rule_12_regional_reserved_instances_and_plans_cover_unused_capacity_and_zonal_ones_do_not() {
    assert_eq!(
        reserved_capacity(1).reserve("ri", 1, "m5.large").payers("cr"),
        "ri 1"
    );
    assert_eq!(reserved_capacity(1).compute("plan", "1").payers("cr"), "plan 1");
    assert_eq!(
        reserved_capacity(1).ec2_plan("ec2", "m5", "1").payers("cr"),
        "ec2 1"
    );
    assert_eq!(
        reserved_capacity(1)
            .reserve_zonal("ri", 1, "m5.large")
            .payers("cr"),
        "on demand 1"
    );
}

#[test]
fn rule_12_running_instances_come_before_unused_capacity() {
    // A larger instance, and one that saves less, all the same.
    let case = reserved_capacity(1).run("z", "m5.xlarge");
    assert_eq!(
        case.clone().reserve("ri", 2, "m5.large").payers("cr"),
        "on demand 1"
    );
    let case = case.run("y", "c5.large").compute("plan", "2.20");
    assert_eq!(case.payers("y"), "plan 1");
    assert_eq!(case.payers("cr"), "on demand 1");
}

#[test]
fn rule_12_the_owners_unused_capacity_comes_before_others_instances() {
    let case = reserved_capacity(1)
        .run_in("other", "m5.large", "b", "us-east-1a")
        .reserve("ri", 1, "m5.large");
    assert_eq!(case.payers("cr"), "ri 1");
    assert_eq!(case.payers("other"), "on demand 1");
}

#[test]
fn rule_12_seconds_that_are_used_are_not_unused() {
    let case = reserved_capacity(2).instance("i", "m5.large", |one| {
        one.capacity_reservation = Some("cr".to_owned());
        one.running = vec![Interval::new(START, START + 900)];
    });
    case.bill(|bill| assert_eq!(bill.usage("cr").unwrap().amount(), exact("1.75")));
}

#[test]
fn rule_12_an_instance_that_outlives_its_reservation_uses_nothing_of_it_then() {
    // Two are reserved for half an hour, and the instance starts when that ends.
    let case = priced()
        .capacity_reservation("cr", 2, "m5.large", Interval::new(START, START + 1800))
        .instance("i", "m5.large", |one| {
            one.capacity_reservation = Some("cr".to_owned());
            one.running = vec![Interval::new(START + 1800, START + 3600)];
        });
    case.bill(|bill| assert_eq!(bill.usage("cr").unwrap().amount(), Exact::ONE));
}

#[test]
fn rule_12_more_instances_than_reserved_leave_nothing_unused() {
    let case = reserved_capacity(1);
    let inside = |one: &mut Instance| one.capacity_reservation = Some("cr".to_owned());
    let case = case
        .instance("i", "m5.large", inside)
        .instance("j", "m5.large", inside);
    case.bill(|bill| assert!(bill.usage("cr").is_none()));
}

// Beyond the rules one by one.

#[test]
fn rules_2_to_9_the_example_of_the_guide() {
    let case = Case::new()
        .price("m5.xlarge", ".20")
        .rate("compute", "m5.xlarge", ".14")
        .run_many(2, "i", "m5.xlarge")
        .reserved("ri", 1, "m5.large", |one| one.hourly = exact(".06"))
        .compute("plan", ".10");
    assert_eq!(case.payers("i-1"), "ri 0.5, plan 0.5");
    case.bill(|bill| {
        let second = bill.usage("i-2").unwrap();
        assert_eq!(second.shares().next().unwrap().amount().decimal(4), "0.2143");
        assert_eq!(second.uncovered().decimal(4), "0.7857");
        assert_eq!(second.uncovered_cost().decimal(4), "0.1571");
        assert_eq!(bill.usage("i-1").unwrap().effective_cost(), exact(".13"));
        assert_eq!(second.effective_cost().decimal(4), "0.1871");
        assert_eq!(bill.totals().total().decimal(4), "0.3171");
    });
}

#[test]
fn rule_9_a_long_chain_of_plans_that_are_used_up_stays_exact() {
    // Each plan ends inside an instance, so that each divides by another rate: numbers beyond 128 bits.
    let (mut case, mut paid) = (Case::new().price("m5.large", "1"), Exact::ZERO);
    for number in 0..40_i64 {
        let (card, dollars) = (format!("card-{number}"), format!("0.{}", 300_007 + 2 * number));
        case = case
            .rate(&card, "m5.large", &format!("0.{}", 700_001 + 2 * number))
            .plan(&format!("plan-{number:02}"), &card, &dollars, |_| {});
        let rate = Exact::fraction(i128::from(700_001 + 2 * number), 1_000_000).unwrap();
        paid = paid.plus(&exact(&dollars).over(&rate).unwrap());
    }
    let case = case.run_many(30, "i", "m5.large");
    assert_eq!(case.on_demand(), exact("30").minus(&paid));
    assert_eq!(case.bill(|bill| bill.totals().unused), Exact::ZERO);
}

#[test]
fn rules_3_and_9_hours_of_instances_as_a_report_has_them() {
    // The same as three instances, given as one line.
    let mut case = priced()
        .reserve_zonal("zonal", 1, "m5.large")
        .compute("plan", ".70");
    case.org.usage_lines.push(veneer_billing::UsageLine {
        id: "line".to_owned(),
        account: "a".to_owned(),
        zone: Some("us-east-1a".to_owned()),
        what: veneer_billing::Priced::Machine(support::machine("m5.large")),
        purchase: veneer_billing::Purchase::OnDemand,
        at: START + 1,
        quantity: exact("3"),
    });
    assert_eq!(case.payers("line"), "zonal 1, plan 1, on demand 1");
}

//! Cases by hand, rule by rule: platforms, amortized cost, tie-breaks, terms. The numbers are those of the guide ("Commitments: who pays for what").

mod support;

use support::{Case, START, TERM, exact, priced};
use veneer_billing::{Allocator, Exact, HOUR, Interval, Platform, Problem, Purchase, State, Tenancy};

// Rule 13: platforms.

#[test]
fn rule_13_platforms_of_usage_operations_and_descriptions() {
    for (operation, platform) in [
        ("RunInstances", Platform::Linux),
        ("RunInstances:0010", Platform::RedHat),
        ("RunInstances:000g", Platform::Suse),
        ("RunInstances:0g00", Platform::UbuntuPro),
        ("RunInstances:0002", Platform::Windows),
        ("RunInstances:0800", Platform::WindowsByol),
        ("RunInstances:00g0", Platform::Linux),
        ("RunInstances:0102", Platform::Other("0102".to_owned())),
    ] {
        assert_eq!(Platform::from_usage_operation(operation), platform, "{operation}");
    }
    for (description, platform) in [
        ("Linux/UNIX", Platform::Linux),
        ("Linux/UNIX (Amazon VPC)", Platform::Linux),
        ("Red Hat Enterprise Linux", Platform::RedHat),
        ("SUSE Linux (Amazon VPC)", Platform::Suse),
        ("Windows", Platform::Windows),
        (
            "Windows with SQL Server Web",
            Platform::Other("Windows with SQL Server Web".to_owned()),
        ),
    ] {
        assert_eq!(
            Platform::from_product_description(description),
            platform,
            "{description}"
        );
    }
    assert_eq!(Tenancy::from_name("dedicated"), Some(Tenancy::Dedicated));
    assert_eq!(Tenancy::from_name("shared"), None);
}

#[test]
fn rule_13_there_are_no_reserved_instances_for_macos_and_ubuntu_pro() {
    for words in ["macos mac2.metal", "ubuntu-pro m5.large", "host m5.large"] {
        let case = Case::new().run("i", words).reserve("ri", 1, words);
        assert_eq!(case.payers("i"), "on demand 1", "{words}");
        let problems = Allocator::new(&case.org).problems().to_vec();
        assert!(
            problems.contains(&Problem::NoSuchReservedInstance { id: "ri".to_owned() }),
            "{problems:?}"
        );
    }
}

#[test]
fn rule_13_plans_cover_them() {
    let case = Case::new()
        .price("ubuntu-pro m5.large", "1")
        .rate("compute", "ubuntu-pro m5.large", ".7")
        .run("i", "ubuntu-pro m5.large")
        .compute("plan", "1");
    assert_eq!(case.payers("i"), "plan 1");
}

// Rule 14: amortized cost.

#[test]
fn rule_14_a_covered_instance_costs_its_share_of_both_fees() {
    let case = priced()
        .run("large", "m5.large")
        .run("xlarge", "m5.xlarge")
        .reserved("ri", 2, "m5.xlarge", |one| {
            one.upfront = exact("876");
            one.hourly = exact(".30");
        });
    // .40 an hour for an xlarge.
    case.bill(|bill| {
        assert_eq!(bill.usage("large").unwrap().effective_per_hour(), exact(".20"));
        assert_eq!(bill.usage("xlarge").unwrap().effective_per_hour(), exact(".40"));
        let ri = bill.commitment("ri").unwrap();
        assert_eq!((ri.cost.clone(), ri.unused_cost()), (exact(".80"), exact(".20")));
        assert_eq!(
            (ri.recurring.clone(), ri.upfront.clone()),
            (exact(".60"), exact(".20"))
        );
        assert_eq!(ri.utilization(), Some(exact(".75")));
        assert_eq!(bill.totals().total(), exact(".80"));
    });
}

#[test]
fn rule_14_a_covered_instance_costs_its_share_of_the_commitment() {
    let case = priced().run_many(2, "i", "m5.large").compute("plan", "1.05");
    case.bill(|bill| {
        assert_eq!(bill.usage("i-1").unwrap().effective_cost(), exact(".70"));
        assert_eq!(bill.usage("i-2").unwrap().effective_cost(), exact(".85"));
        assert_eq!(bill.usage("i-2").unwrap().uncovered_per_hour(), exact(".50"));
        assert_eq!(bill.usage("i-2").unwrap().list_cost(), exact("1"));
    });
}

// Rule 15: what AWS does not say.

#[test]
fn rule_15_of_equal_plans_the_one_that_ends_first_then_the_id() {
    let until =
        |end: i64| move |plan: &mut veneer_billing::SavingsPlan| plan.term = Interval::new(TERM.start, end);
    let case = priced()
        .run("i", "m5.large")
        .plan("1", "compute", ".35", until(TERM.end))
        .plan("3", "compute", ".35", until(TERM.end - HOUR))
        .plan("2", "compute", ".35", until(TERM.end));
    assert_eq!(case.payers("i"), "3 0.5, 1 0.5");
}

#[test]
fn rule_15_of_equal_reserved_instances_the_one_that_ends_first_then_the_id() {
    let case = priced()
        .run("i", "m5.large")
        .reserve("b", 1, "m5.large")
        .reserve("a", 1, "m5.large")
        .reserved("z", 1, "m5.large", |one| one.term.end -= HOUR);
    assert_eq!(case.payers("i"), "z 1");
    let case = priced()
        .run("i", "m5.large")
        .reserve("b", 1, "m5.large")
        .reserve("a", 1, "m5.large");
    assert_eq!(case.payers("i"), "a 1");
}

#[test]
fn rule_15_of_equal_instances_the_first_id() {
    let case = priced()
        .run("i-2", "m5.large")
        .run_in("i-1", "m5.large", "a", "us-east-1b")
        .compute("plan", ".70");
    assert_eq!(case.payers("i-1"), "plan 1");
    assert_eq!(case.payers("i-2"), "on demand 1");
}

#[test]
fn rule_15_capacity_blocks_are_not_eligible() {
    let case = priced()
        .instance("i", "m5.large", |one| {
            one.purchase = Purchase::CapacityBlock(exact(".9"));
        })
        .reserve("ri", 1, "m5.large")
        .compute("plan", "1");
    case.bill(|bill| {
        let usage = bill.usage("i").unwrap();
        assert_eq!((usage.shares().count(), usage.effective_cost()), (0, exact(".9")));
    });
}

// Terms and states.

#[test]
fn rule_1_states_say_whether_a_commitment_counts() {
    for (name, counts) in [
        ("active", true),
        ("queued", true),
        ("retired", true),
        ("expired", true),
        ("pending-return", true),
        ("payment-pending", false),
        ("payment-failed", false),
        ("queued-deleted", false),
        ("returned", false),
    ] {
        let state = State::from_name(name).unwrap();
        let case = priced()
            .run_many(2, "i", "m5.large")
            .reserved("ri", 1, "m5.large", |one| one.state = state)
            .plan("plan", "compute", ".70", |plan| plan.state = state);
        let expected = if counts { Exact::ZERO } else { exact("2") };
        assert_eq!(case.on_demand(), expected, "{name}");
    }
    assert_eq!(State::from_name("gone"), None);
}

#[test]
fn rule_1_a_queued_commitment_counts_from_its_start_and_an_expired_one_until_its_end() {
    for (start, end, covered) in [
        (START + HOUR, START + 9 * HOUR, "0"),
        (START - 9 * HOUR, START, "0"),
        (START, START + HOUR, "1"),
        (START + 900, START + 9 * HOUR, ".75"),
        (START - 9 * HOUR, START + 900, ".25"),
    ] {
        let term = Interval::new(start, end);
        let case = priced().run_many(2, "i", "m5.large");
        let reserved = case.clone().reserved("ri", 1, "m5.large", |one| {
            one.term = term;
            one.hourly = exact(".4");
        });
        assert_eq!(
            exact("2").minus(&reserved.on_demand()),
            exact(covered),
            "{term:?}"
        );
        let cost = reserved.bill(|bill| bill.totals().commitments);
        assert_eq!(cost, exact(".4").times(&exact(covered)), "{term:?}");
        let planned = case.plan("plan", "compute", ".70", |plan| plan.term = term);
        assert_eq!(exact("2").minus(&planned.on_demand()), exact(covered), "{term:?}");
    }
}

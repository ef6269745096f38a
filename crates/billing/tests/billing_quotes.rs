//! What the answer says beyond the bill: what runs now, what is left for one more instance, what cannot be billed.

mod support;

use support::{Case, START, exact, instance, machine, priced, reserved_capacity};
use veneer_billing::{
    Allocator, Basis, CapacityReservation, Exact, HOUR, Interval, Moment, Purchase, SharingMode, UsageLine,
};

fn of(account: &str) -> impl Fn(&mut veneer_billing::ReservedInstances) {
    move |one| one.account = account.to_owned()
}

#[test]
fn what_is_running_now_is_billed_as_a_whole_hour() {
    let case = priced()
        .run_between("gone", "m5.large", 0, 1000)
        .run_between("here", "m5.large", 1000, 2000)
        .capacity_reservation("cr", 2, "m5.large", Interval::new(START + 500, START + 1500))
        .plan("plan", "compute", ".70", |plan| plan.term.end = START + 1600);
    let allocator = Allocator::new(&case.org);
    let now = allocator.now(START + 1200);
    assert_eq!(now.moment(), Moment::Now(START + 1200));
    assert_eq!(support::payers(&now, "here"), "plan 1");
    assert_eq!(support::payers(&now, "cr"), "on demand 2");
    assert!(now.usage("gone").is_none());
    assert!(allocator.now(START + 1700).commitment("plan").is_none());
}

#[test]
fn a_quote_says_what_is_left_by_commitment_size_and_zone() {
    let case = priced()
        .run("i", "m5.large")
        .reserve_zonal("zonal", 2, "m5.large")
        .reserve("ri", 1, "m5.large")
        .ec2_plan("ec2", "m5", ".30")
        .compute("compute", "0.14");
    case.bill(|bill| {
        let quote = bill.quote(&instance("new", "m5.xlarge"));
        let left: Vec<(&str, Option<Exact>, Exact)> = quote
            .available
            .iter()
            .map(|one| (one.commitment.id(), one.hours.clone(), one.pays.clone()))
            .collect();
        assert_eq!(
            left,
            [
                ("ri", Some(exact(".5")), exact(".5")),
                ("ec2", Some(exact(".25")), exact(".25")),
                ("compute", Some(exact(".1")), exact(".1")),
            ]
        );
        assert_eq!(quote.uncovered, exact(".15"));
        assert_eq!(quote.marginal, Some(exact(".30")));
        assert_eq!(quote.effective, Some(exact(".30").plus(&exact(".44"))));
        let same_zone = bill.quote(&instance("new", "m5.large"));
        assert_eq!(same_zone.available[0].commitment.id(), "zonal");
        assert_eq!(same_zone.available[0].basis, Basis::ZonalReservedInstance);
        assert_eq!(same_zone.marginal, Some(Exact::ZERO));
        let mut elsewhere = instance("new", "m5.large");
        elsewhere.zone = "us-east-1b".to_owned();
        assert_eq!(bill.quote(&elsewhere).available[0].commitment.id(), "ri");
        let mut spot = instance("new", "m5.large");
        spot.purchase = Purchase::Spot(exact(".2"));
        let spot = bill.quote(&spot);
        assert_eq!((spot.available.len(), spot.marginal), (0, Some(exact(".2"))));
        assert_eq!(bill.quote(&instance("new", "x1.large")).marginal, None);
    });
}

#[test]
fn a_quote_knows_other_accounts() {
    let case = priced()
        .sharing(SharingMode::Off, &[])
        .reserved("ri", 1, "m5.large", of("b"))
        .compute("plan", "1");
    case.bill(|bill| {
        let quote = bill.quote(&instance("new", "m5.large"));
        let ids: Vec<&str> = quote.available.iter().map(|one| one.commitment.id()).collect();
        assert_eq!(ids, ["plan"]);
    });
}

#[test]
fn one_more_instance_may_take_a_plan_from_another_one() {
    // The plan is used up by c5, on which it saves less; what is left says 1.00 for an m5, the bill rises by less.
    let case = priced()
        .run("c5", "c5.large")
        .compute("plan", ".80")
        .instance("new", "m5.large", |one| one.running.clear());
    let allocator = Allocator::new(&case.org);
    let moment = Moment::Hour(START);
    case.bill(|bill| {
        assert_eq!(
            bill.quote(&instance("new", "m5.large")).marginal,
            Some(exact("1"))
        );
    });
    // .70 go to the m5, and .10 of .80 remain for the c5.
    assert_eq!(allocator.one_more(moment, "new"), Some(exact(".875")));
    assert_eq!(allocator.one_more(moment, "nobody"), None);
}

#[test]
fn without_an_instance_the_bill_falls_by_what_nothing_takes_over() {
    let moment = Moment::Hour(START);
    let marginal = |case: &Case, id: &str| Allocator::new(&case.org).marginal(moment, id);
    let alone = priced().run("i", "m5.large").compute("plan", "1");
    assert_eq!(marginal(&alone, "i"), Some(Exact::ZERO));
    let two = priced().run_many(2, "i", "m5.large").compute("plan", ".70");
    // The covered one is worth as much as the other: that one takes the plan over.
    assert_eq!(marginal(&two, "i-1"), Some(exact("1")));
    assert_eq!(marginal(&two, "i-2"), Some(exact("1")));
    // A zonal Reserved Instance pays for it, but not for the capacity that it leaves unused: without it the bill is higher.
    let reserved = reserved_capacity(1)
        .reserve_zonal("ri", 1, "m5.large")
        .instance("i", "m5.large", |one| {
            one.capacity_reservation = Some("cr".to_owned());
        });
    assert_eq!(marginal(&reserved, "i"), Some(exact("-1")));
}

#[test]
fn of_two_that_run_equally_long_one_may_use_a_capacity_reservation_that_has_ended_for_the_other() {
    let moment = Moment::Hour(START);
    let half = HOUR / 2;
    let mut case = priced()
        .run_between("early", "m5.large", 0, half)
        .run_between("late", "m5.large", half, HOUR)
        .capacity_reservation("cr", 1, "m5.large", Interval::new(START, START + half));
    for one in &mut case.org.instances {
        one.capacity_reservation = Some("cr".to_owned());
    }
    // Without the early one its half hour is paid for as unused capacity; without the late one nothing is.
    let allocator = Allocator::new(&case.org);
    assert_eq!(allocator.marginal(moment, "early"), Some(Exact::ZERO));
    assert_eq!(allocator.marginal(moment, "late"), Some(exact(".5")));
}

#[test]
fn what_cannot_be_billed_is_told() {
    let mut case = priced()
        .run("unpriced", "x1.large")
        .run("i", "m5.large")
        .price("t3.large", "1")
        .run("no-rate", "t3.large")
        .compute("plan", "5")
        .plan("cardless", "none", "5", |_| {})
        .plan("negative", "compute", "-1", |_| {})
        .reserve("twice", 1, "m5.xlarge")
        .reserve("twice", 2, "m5.xlarge");
    case.org.usage_lines.push(UsageLine {
        id: "line".to_owned(),
        account: "a".to_owned(),
        zone: None,
        what: support::usage_type("Fargate-vCPU"),
        purchase: Purchase::OnDemand,
        at: START,
        quantity: exact("-1"),
    });
    let allocator = Allocator::new(&case.org);
    let told: Vec<String> = allocator.problems().iter().map(ToString::to_string).collect();
    for part in [
        "No on-demand price for x1.large",
        "Savings Plan plan has no rate for t3.large",
        "Savings Plan cardless has no rates",
        "negative has a negative amount",
        "line has a negative amount",
        "twice is given twice",
    ] {
        assert!(told.iter().any(|line| line.contains(part)), "{part}: {told:#?}");
    }
    let bill = allocator.hour(START);
    assert_eq!(bill.totals().list, exact("2"), "what has no price counts as 0");
    assert_eq!(support::payers(&bill, "no-rate"), "on demand 1");
    assert_eq!(bill.commitment("twice").unwrap().capacity, Exact::ONE);
}

#[test]
fn the_same_commitment_seen_twice_is_one() {
    let mut case = priced()
        .run_many(3, "i", "m5.large")
        .reserve("ri", 1, "m5.large")
        .compute("plan", ".70");
    case.org
        .reserved_instances
        .extend(case.org.reserved_instances.clone());
    case.org.savings_plans.extend(case.org.savings_plans.clone());
    case.org.instances.extend(case.org.instances.clone());
    assert_eq!(case.on_demand(), Exact::ONE);
    assert_eq!(Allocator::new(&case.org).problems(), []);
}

#[test]
fn a_reservation_of_another_machine_is_its_own_price() {
    let mut case = priced();
    case.org.capacity_reservations.push(CapacityReservation {
        id: "cr".to_owned(),
        account: "b".to_owned(),
        zone: "us-east-1b".to_owned(),
        machine: machine("windows m5.large"),
        count: 1,
        active: Interval::new(START + 1800, START + HOUR),
    });
    assert_eq!(case.total(), Exact::ONE);
}

//! Commitments from an inventory of the accounts: what is left, and what is a doubt.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use veneer_billing::{
    Exact, HOUR, Interval, Machine, PlanKind, Platform, Priced, Prices, ReservedInstances, SavingsPlan,
    Sharing, SharingMode, State,
};
use veneer_inventory::{Account, DataKind, InstanceKind, InstanceRow, Inventory, Part, Rows};
use veneer_steering::commitments::{Balance, Certainty, Doubt, Kind, Ledger, Scope, Target};
use veneer_steering::decisions::{Memory, Policy, State as DecisionState, decide};

const NOW: i64 = 1_763_450_000;
const OWN: &str = "111111111111";
const OTHER: &str = "222222222222";
const REGION: &str = "us-west-2";

fn machine(instance_type: &str) -> Machine {
    Machine {
        region: REGION.to_owned(),
        instance_type: instance_type.to_owned(),
        ..Machine::default()
    }
}

fn dollars(text: &str) -> Exact {
    Exact::parse(text).expect("a number")
}

fn part(account: &str, kind: DataKind) -> Part {
    let region = match kind {
        DataKind::SavingsPlans | DataKind::PlanRates | DataKind::Sharing => "",
        _ => REGION,
    };
    Part::new(account, region, kind)
}

/// Two accounts that were collected a minute ago, with prices and rates and nothing else.
struct World {
    inventory: Inventory,
    instances: [Vec<InstanceRow>; 2],
    reserved: Vec<ReservedInstances>,
    plans: Vec<SavingsPlan>,
}

impl World {
    fn new() -> Self {
        let accounts = [OWN, OTHER].map(|id| Account {
            id: id.to_owned(),
            name: String::new(),
        });
        Self {
            inventory: Inventory::new(accounts.to_vec()),
            instances: [Vec::new(), Vec::new()],
            reserved: Vec::new(),
            plans: Vec::new(),
        }
    }

    fn runs(mut self, account: &str, count: usize, instance_type: &str) -> Self {
        let rows = &mut self.instances[usize::from(account == OTHER)];
        for _ in 0..count {
            rows.push(InstanceRow {
                id: format!("i-{account}-{instance_type}-{}", rows.len()),
                kind: InstanceKind {
                    machine: machine(instance_type),
                    zone: "us-west-2a".to_owned(),
                    ..InstanceKind::default()
                },
                launched: NOW - 7200,
                ..InstanceRow::default()
            });
        }
        self
    }

    fn reserves(mut self, account: &str, count: u32, instance_type: &str, zone: Option<&str>) -> Self {
        self.reserved.push(ReservedInstances {
            id: format!("ri-{}", self.reserved.len()),
            account: account.to_owned(),
            machine: machine(instance_type),
            zone: zone.map(str::to_owned),
            count,
            term: Interval::new(NOW - 1000 * HOUR, NOW + 1000 * HOUR),
            state: State::Active,
            upfront: Exact::ZERO,
            hourly: dollars("0.05"),
        });
        self
    }

    fn commits(mut self, account: &str, kind: PlanKind, commitment: &str) -> Self {
        self.plans.push(SavingsPlan {
            id: format!("plan-{}", self.plans.len()),
            account: account.to_owned(),
            kind,
            commitment: dollars(commitment),
            rates: "card".to_owned(),
            term: Interval::new(NOW - 1000 * HOUR, NOW + 1000 * HOUR),
            state: State::Active,
        });
        self
    }

    fn inventory(self) -> Inventory {
        let Self {
            mut inventory,
            instances,
            reserved,
            plans,
        } = self;
        let at = NOW - 60;
        for (account, rows) in [OWN, OTHER].into_iter().zip(instances) {
            let of = |kind| part(account, kind);
            inventory.replace(
                &of(DataKind::Instances),
                Rows::Instances(rows.into_iter().collect()),
                at,
            );
            let own = reserved.iter().filter(|one| one.account == account).cloned();
            inventory.replace(
                &of(DataKind::ReservedInstances),
                Rows::ReservedInstances(own.collect()),
                at,
            );
            inventory.replace(
                &of(DataKind::CapacityReservations),
                Rows::CapacityReservations(Vec::new()),
                at,
            );
            let own = plans.iter().filter(|one| one.account == account).cloned();
            inventory.replace(&of(DataKind::SavingsPlans), Rows::SavingsPlans(own.collect()), at);
        }
        let prices = [
            ("m5.large", "0.10"),
            ("m5.xlarge", "0.20"),
            ("m5.2xlarge", "0.40"),
            ("g5.xlarge", "1.00"),
            ("g5.2xlarge", "1.20"),
        ];
        let table = |factor: &str| {
            let rows = prices.iter();
            let row = |(name, price): &(&str, &str)| {
                (
                    Priced::Machine(machine(name)),
                    dollars(price).times(&dollars(factor)),
                )
            };
            rows.map(row).collect()
        };
        let on_demand = Prices {
            currency: "USD".to_owned(),
            on_demand: table("1"),
        };
        inventory.replace(&part("", DataKind::Prices), Rows::Prices(on_demand), NOW - 80_000);
        let cards = [("card".to_owned(), table("0.7"))];
        inventory.replace(
            &part(OWN, DataKind::PlanRates),
            Rows::PlanRates(cards.into()),
            NOW - 80_000,
        );
        inventory
    }

    fn ledger(self) -> Ledger {
        ledger(&self.inventory())
    }
}

fn scope() -> Scope {
    Scope {
        account: OWN.to_owned(),
        region: REGION.to_owned(),
        shared_plans: true,
        freshness_limit: "65m".parse().expect("a duration"),
    }
}

fn at() -> Timestamp {
    Timestamp::from_second(NOW).expect("a time")
}

fn ledger(inventory: &Inventory) -> Ledger {
    Ledger::of_inventory(inventory, &scope(), at())
}

/// What is left of Reserved Instances, by type.
fn left(ledger: &Ledger) -> Vec<(String, f64)> {
    let book = ledger.books[&Kind::ReservedInstance].as_ref().expect("a book");
    let balances = book.balances.iter();
    let left =
        balances.map(|(target, balance)| (target.covers.clone(), balance.as_ref().expect("known").left));
    left.collect()
}

fn pairs(expected: &[(&str, f64)]) -> Vec<(String, f64)> {
    expected
        .iter()
        .map(|(name, left)| ((*name).to_owned(), *left))
        .collect()
}

fn balance(ledger: &Ledger, target: &Target) -> Option<Balance> {
    let book = ledger.books[&target.kind].as_ref().expect("a book");
    book.balances
        .get(target)
        .map(|balance| *balance.as_ref().expect("known"))
}

fn compute() -> PlanKind {
    PlanKind::Compute
}

fn family(name: &str) -> PlanKind {
    PlanKind::Ec2Instance {
        family: name.to_owned(),
        region: REGION.to_owned(),
    }
}

#[test]
fn smaller_sizes_use_up_a_size_flexible_reservation() {
    // Lumina would call both unused: no m5.xlarge runs.
    let world = World::new()
        .reserves(OWN, 2, "m5.xlarge", None)
        .runs(OWN, 4, "m5.large");
    assert_eq!(left(&world.ledger()), pairs(&[("m5.xlarge", 0.0)]));
    let world = World::new()
        .reserves(OWN, 2, "m5.xlarge", None)
        .runs(OWN, 2, "m5.large");
    assert_eq!(left(&world.ledger()), pairs(&[("m5.xlarge", 1.0)]));
}

#[test]
fn what_is_less_than_a_reserved_type_goes_to_the_largest_type_that_it_pays_for() {
    // Half an m5.xlarge is left: one m5.large runs for nothing.
    let world = World::new()
        .reserves(OWN, 2, "m5.xlarge", None)
        .runs(OWN, 3, "m5.large");
    assert_eq!(
        left(&world.ledger()),
        pairs(&[("m5.large", 1.0), ("m5.xlarge", 0.0)])
    );
    // An inflexible family has no such half.
    let world = World::new()
        .reserves(OWN, 1, "g5.2xlarge", None)
        .runs(OWN, 1, "g5.xlarge");
    assert_eq!(left(&world.ledger()), pairs(&[("g5.2xlarge", 1.0)]));
}

#[test]
fn several_reserved_sizes_of_a_family_share_what_is_left_once() {
    let world = World::new()
        .reserves(OWN, 1, "m5.2xlarge", None)
        .reserves(OWN, 2, "m5.large", None)
        .runs(OWN, 1, "m5.xlarge");
    // Six large-equivalents less two: one whole m5.2xlarge.
    assert_eq!(
        left(&world.ledger()),
        pairs(&[("m5.2xlarge", 1.0), ("m5.large", 0.0)])
    );
    let world = World::new()
        .reserves(OWN, 1, "m5.2xlarge", None)
        .reserves(OWN, 2, "m5.large", None)
        .runs(OWN, 3, "m5.large");
    assert_eq!(
        left(&world.ledger()),
        pairs(&[("m5.2xlarge", 0.0), ("m5.large", 3.0)])
    );
}

#[test]
fn a_zonal_reservation_is_used_in_its_zone_only() {
    let world = World::new()
        .reserves(OWN, 1, "m5.large", Some("us-west-2b"))
        .runs(OWN, 3, "m5.large");
    assert_eq!(left(&world.ledger()), pairs(&[("m5.large", 1.0)]));
    let world = World::new()
        .reserves(OWN, 1, "m5.large", Some("us-west-2a"))
        .runs(OWN, 3, "m5.large");
    assert_eq!(left(&world.ledger()), pairs(&[("m5.large", 0.0)]));
}

#[test]
fn a_zonal_reservation_of_another_account_is_in_the_zone_that_we_name_otherwise() {
    let theirs = || {
        World::new()
            .reserves(OTHER, 1, "m5.large", Some("us-west-2a"))
            .inventory()
    };
    let zones = |rows: &[(&str, &str)]| {
        let rows = rows.iter();
        Rows::Zones(
            rows.map(|(name, id)| ((*name).to_owned(), (*id).to_owned()))
                .collect(),
        )
    };
    let mut inventory = theirs();
    let at = NOW - 80_000;
    inventory.replace(
        &part(OWN, DataKind::Zones),
        zones(&[("us-west-2a", "usw2-az2"), ("us-west-2c", "usw2-az1")]),
        at,
    );
    inventory.replace(
        &part(OTHER, DataKind::Zones),
        zones(&[("us-west-2a", "usw2-az1")]),
        at,
    );
    let known = ledger(&inventory);
    let here = Target::reserved_in("m5.large", REGION, "us-west-2c");
    assert_eq!(balance(&known, &here).map(|balance| balance.left), Some(1.0));
    assert_eq!(left(&known), pairs(&[("m5.large", 1.0)]));

    // Which zone they mean nobody knows: nothing is made, and what exists stays.
    let unknown = ledger(&theirs());
    assert_eq!(left(&unknown), []);
    let existing = BTreeSet::from([here.clone()]);
    let policy = Policy {
        threshold: 95.0,
        hysteresis: 5.0,
        any_pool: true,
    };
    let decisions = decide(&unknown, &existing, &[], policy, &mut Memory::default());
    let decision = decisions
        .iter()
        .find(|one| one.target == here)
        .expect("a decision");
    assert_eq!(decision.state, DecisionState::Preserved);
    let doubt = decision.doubt.as_deref().expect("a doubt");
    assert!(
        doubt.contains("ri-0 of account 222222222222 are in zone us-west-2a"),
        "{doubt}"
    );
}

#[test]
fn reservations_for_windows_say_nothing_about_nodes() {
    let mut world = World::new().reserves(OWN, 4, "m5.large", None);
    world.reserved[0].machine.platform = Platform::Windows;
    assert_eq!(left(&world.ledger()), []);
}

#[test]
fn another_account_uses_ours_and_ours_theirs_where_they_are_shared() {
    let world = || {
        World::new()
            .reserves(OWN, 2, "m5.large", None)
            .runs(OTHER, 2, "m5.large")
    };
    assert_eq!(left(&world().ledger()), pairs(&[("m5.large", 0.0)]));
    let mut alone = world().inventory();
    let off = Sharing {
        mode: SharingMode::Off,
        ..Sharing::default()
    };
    alone.replace(
        &part(OWN, DataKind::Sharing),
        Rows::Sharing(off.clone()),
        NOW - 60,
    );
    assert_eq!(left(&ledger(&alone)), pairs(&[("m5.large", 2.0)]));

    let theirs = || World::new().reserves(OTHER, 2, "m5.large", None);
    assert_eq!(left(&theirs().ledger()), pairs(&[("m5.large", 2.0)]));
    let mut alone = theirs().inventory();
    alone.replace(&part(OWN, DataKind::Sharing), Rows::Sharing(off), NOW - 60);
    assert_eq!(left(&ledger(&alone)), []);
    // The user says that only commitments of this account count.
    let scope = Scope {
        shared_plans: false,
        ..scope()
    };
    assert_eq!(
        left(&Ledger::of_inventory(&theirs().inventory(), &scope, at())),
        []
    );
}

#[test]
fn plans_have_left_what_the_allocator_says() {
    // Two m5.large at 0.07: the plan of the family pays one and 3/7 of the other, the Compute plans the rest.
    let ledger = World::new()
        .commits(OWN, family("m5"), "0.10")
        .commits(OWN, compute(), "0.50")
        .commits(OTHER, compute(), "0.50")
        .runs(OWN, 2, "m5.large")
        .ledger();
    let of_family = balance(&ledger, &Target::family("m5", REGION)).expect("a plan");
    assert_eq!(
        (of_family.owned, of_family.left, of_family.utilization),
        (0.1, 0.0, Some(100.0))
    );
    assert_eq!(of_family.certainty, Certainty::Exact);
    let of_compute = balance(&ledger, &Target::compute()).expect("two plans");
    assert!((of_compute.left - 0.96).abs() < 1e-9, "{of_compute:?}");
    assert!((of_compute.utilization.expect("known") - 4.0).abs() < 1e-9);
    assert_eq!((of_compute.owned, of_compute.certainty), (1.0, Certainty::AtMost));
}

#[test]
fn nothing_bought_is_none_left_and_no_doubt() {
    let ledger = World::new().runs(OWN, 1, "m5.large").ledger();
    assert!(ledger.doubts().next().is_none());
    assert!(
        ledger
            .books
            .values()
            .all(|book| book.as_ref().is_ok_and(|book| book.balances.is_empty()))
    );
    // A minute old, and another two for what may not run yet.
    let book = ledger.books[&Kind::ReservedInstance].as_ref().expect("a book");
    assert_eq!(book.data_at.as_second(), NOW - 180);
    assert_eq!(ledger.age.map(|age| age.as_secs()), Some(60));
}

#[test]
fn a_part_that_is_too_old_or_was_never_collected_is_a_doubt_about_what_it_could_change() {
    let world = || {
        World::new()
            .reserves(OWN, 2, "m5.large", None)
            .commits(OWN, family("m5"), "1")
            .commits(OWN, compute(), "1")
            .inventory()
    };
    let doubts = |inventory: &Inventory| {
        let ledger = ledger(inventory);
        let doubts = ledger.doubts();
        doubts
            .map(|(kind, doubt)| format!("{kind}: {}", doubt.category()))
            .collect::<Vec<_>>()
    };
    assert_eq!(doubts(&world()), Vec::<String>::new());

    let mut old = world();
    old.replace(
        &part(OTHER, DataKind::Instances),
        Rows::Instances([].into_iter().collect()),
        NOW - 4000,
    );
    let all = [
        "reserved-instance",
        "ec2-instance-savings-plan",
        "compute-savings-plan",
    ];
    assert_eq!(doubts(&old), all.map(|kind| format!("{kind}: stale-data")));

    // Another region's instances can use Compute plans only.
    let mut denied = world();
    denied.failed(
        &Part::new(OTHER, "eu-west-1", DataKind::Instances),
        "AccessDenied",
        NOW,
    );
    assert_eq!(doubts(&denied), ["compute-savings-plan: query-failed"]);

    let mut waiting = world();
    waiting.expect(Part::new("333333333333", REGION, DataKind::ReservedInstances));
    assert_eq!(doubts(&waiting), ["reserved-instance: no-freshness"]);

    let mut unpriced = world();
    unpriced.failed(&part(OTHER, DataKind::PlanRates), "Throttling", NOW);
    assert_eq!(
        doubts(&unpriced),
        [
            "ec2-instance-savings-plan: query-failed",
            "compute-savings-plan: query-failed"
        ]
    );
    // A new failure alone is no doubt while what is known is fresh.
    let mut failing = world();
    failing.failed(&part(OWN, DataKind::Instances), "Throttling", NOW);
    assert_eq!(doubts(&failing), Vec::<String>::new());
}

#[test]
fn an_account_that_is_not_collected_is_a_doubt_and_not_an_empty_answer() {
    let scope = Scope {
        account: "999999999999".to_owned(),
        ..scope()
    };
    let ledger = Ledger::of_inventory(&World::new().inventory(), &scope, at());
    assert_eq!(ledger.doubts().count(), 3);
    assert!(
        ledger
            .doubts()
            .all(|(_, doubt)| matches!(doubt, Doubt::NoFreshness(_)))
    );
}

#[test]
fn a_plan_without_rates_is_a_doubt_about_its_target_only() {
    let mut world = World::new()
        .commits(OWN, family("m5"), "1")
        .commits(OWN, compute(), "1");
    world.plans[0].rates = "unknown".to_owned();
    let ledger = world.runs(OWN, 1, "m5.large").ledger();
    let book = ledger.books[&Kind::Ec2InstanceSavingsPlan]
        .as_ref()
        .expect("a book");
    let doubt = book.balances[&Target::family("m5", REGION)]
        .as_ref()
        .expect_err("a doubt");
    assert!(doubt.to_string().contains("plan-0 has no rates"), "{doubt}");
    assert!(balance(&ledger, &Target::compute()).is_some());
}

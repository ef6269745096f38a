//! How long billing takes: `cargo run --release -p veneer-billing --example allocate`.
//!
//! One clock hour of 50,000 instances (goal: under 200 ms, from the raw records to the effective cost of each), and a month of 744 hours of
//! 5,000 instances of which a tenth is replaced every day (goal: under 10 s). Five accounts, three zones, forty types, two platforms, 300
//! purchases of Reserved Instances, twenty plans with three rate cards, which are used up in the middle of the usage.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it measures time"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "its numbers are its own"
)]

use std::time::Instant;

use veneer_billing::{
    Allocator, Exact, HOUR, Instance, Interval, Machine, Organization, PlanKind, Platform, Priced, Purchase,
    ReservedInstances, SavingsPlan, State,
};

const START: i64 = 472_224 * HOUR;
const FAMILIES: [&str; 8] = ["m5", "c5", "r5", "m6g", "c6i", "r6g", "g5", "t3"];
const SIZES: [&str; 5] = ["large", "xlarge", "2xlarge", "4xlarge", "8xlarge"];
const ZONES: [&str; 3] = ["use1-az1", "use1-az2", "use1-az4"];

fn machine(number: usize) -> Machine {
    let family = FAMILIES[number % FAMILIES.len()];
    let size = SIZES[number / FAMILIES.len() % SIZES.len()];
    Machine {
        region: "us-east-1".to_owned(),
        instance_type: format!("{family}.{size}"),
        platform: if number.is_multiple_of(11) {
            Platform::Windows
        } else {
            Platform::Linux
        },
        ..Machine::default()
    }
}

fn account(number: usize) -> String {
    format!("1111222233{:02}", number % 5)
}

/// Numbers that look as if by chance.
fn mixed(number: usize) -> usize {
    let mixed = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)) as usize >> 8
}

fn organization(instances: usize, hours: i64) -> Organization {
    let mut organization = Organization::default();
    let mut usage = Exact::ZERO;
    for (number, kind) in (0..40 * 11).map(|number| (number, machine(number))) {
        // Prices with four to five decimals, as on the list.
        let size = 1 << (number / FAMILIES.len() % SIZES.len());
        let price =
            Exact::fraction(size * (9_610 + 371 * (number % FAMILIES.len()) as i128), 100_000).unwrap();
        let priced = Priced::Machine(kind);
        for (card, share) in [("one-year", 73), ("three-years", 52), ("ec2", 61)] {
            let rate = Exact::parse(
                &price
                    .times_whole(share + (number % 7) as i128)
                    .over_whole(100)
                    .decimal(5),
            );
            let card = organization.rates.entry(card.to_owned()).or_default();
            card.insert(priced.clone(), rate.unwrap());
        }
        usage = usage.plus(&price);
        organization.prices.on_demand.insert(priced, price);
    }
    for number in 0..instances {
        let (kind, place) = (mixed(number) % 440, mixed(number + 7) % 15);
        // On a month, each place is taken by one instance after the other.
        let days = hours / 24;
        let first = (mixed(number + 13) % 10) as i64;
        let mut begin = START - HOUR;
        let mut day = first;
        let mut generation = 0;
        while begin < START + hours * HOUR {
            let end = if day >= days {
                START + (hours + 1) * HOUR
            } else {
                START + day * 24 * HOUR + (mixed(number) % 3600) as i64
            };
            organization.instances.push(Instance {
                id: format!("i-{:016x}", mixed(number * 64 + generation)),
                account: account(place),
                zone: ZONES[place % 3].to_owned(),
                machine: machine(kind),
                purchase: if number.is_multiple_of(17) {
                    Purchase::Spot(Exact::fraction(31, 1000).unwrap())
                } else {
                    Purchase::OnDemand
                },
                capacity_reservation: None,
                running: vec![Interval::new(begin, end)],
            });
            begin = end;
            day += 10;
            generation += 1;
        }
    }
    let term = Interval::new(START - 5000 * HOUR, START + 5000 * HOUR);
    for number in 0..300_usize {
        organization.reserved_instances.push(ReservedInstances {
            id: format!("ri-{number:04}"),
            account: account(number),
            machine: machine(mixed(number) % 440),
            zone: number.is_multiple_of(3).then(|| ZONES[number % 3].to_owned()),
            count: u32::try_from(instances / 1500 + 1).unwrap(),
            term,
            state: State::Active,
            upfront: Exact::whole(300),
            hourly: Exact::fraction(61, 1000).unwrap(),
        });
    }
    // Together two fifths of what everything costs.
    let all = usage.times_whole(instances as i128).over_whole(440 * 50);
    for number in 0..20_usize {
        let is_compute = number.is_multiple_of(2);
        organization.savings_plans.push(SavingsPlan {
            id: format!("arn:aws:savingsplans::1:savingsplan/{number:04}"),
            account: account(number),
            kind: if is_compute {
                PlanKind::Compute
            } else {
                PlanKind::Ec2Instance {
                    family: FAMILIES[number / 2 % FAMILIES.len()].to_owned(),
                    region: "us-east-1".to_owned(),
                }
            },
            commitment: Exact::parse(&all.decimal(3)).unwrap(),
            rates: match (is_compute, number % 4) {
                (false, _) => "ec2",
                (true, 0) => "one-year",
                _ => "three-years",
            }
            .to_owned(),
            term: Interval::new(term.start, term.end + number as i64),
            state: State::Active,
        });
    }
    organization
}

/// Time on the processor, which another program on the machine does not lengthen much; where the system does not tell, time on the wall.
struct Watch(Instant, Option<u64>);

fn on_processor() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

impl Watch {
    fn start() -> Self {
        Self(Instant::now(), on_processor())
    }

    fn milliseconds(&self) -> u128 {
        match (self.1, on_processor()) {
            (Some(start), Some(now)) => u128::from(now.saturating_sub(start)) / 1_000_000,
            _ => self.0.elapsed().as_millis(),
        }
    }
}

fn main() {
    let hour = organization(50_000, 1);
    for _ in 0..3 {
        let begin = Watch::start();
        let allocator = Allocator::new(&hour);
        let ready = begin.milliseconds();
        let bill = allocator.hour(START);
        let billed = begin.milliseconds();
        let totals = bill.totals();
        let effective: f64 = bill.usages().map(|usage| usage.effective_cost().to_f64()).sum();
        let shown = begin.milliseconds();
        let shares: usize = bill.usages().map(|usage| usage.shares().count()).sum();
        let used_up = bill.commitments().filter(|one| one.left().is_zero()).count();
        println!(
            "one hour: {} instances, {shares} shares, {used_up} of {} commitments used up; ready {} ms, billed {} ms, with effective costs {} ms; \
             list {:.2}, paid {:.2}, on demand {:.2}, effective {:.2}",
            hour.instances.len(),
            bill.commitments().count(),
            ready,
            billed,
            shown,
            totals.list,
            totals.total(),
            totals.on_demand,
            effective,
        );
    }
    let month = organization(5_000, 744);
    let begin = Watch::start();
    let allocator = Allocator::new(&month);
    let mut count = 0;
    let mut totals = veneer_billing::Totals::default();
    for number in 0..744 {
        let bill = allocator.hour(START + number * HOUR);
        count += bill.usages().count();
        totals.add(&bill.totals());
    }
    let billed = begin.milliseconds();
    println!(
        "a month: {} instances in all, {count} instance-hours in {} ms; list {:.2}, paid {:.2}",
        month.instances.len(),
        billed,
        totals.list,
        totals.total(),
    );
    let begin = Watch::start();
    let period = allocator.period(Interval::new(START, START + 744 * HOUR));
    println!(
        "the same with sums by commitment and by price: {} ms; paid {:.2}",
        begin.milliseconds(),
        period.totals.total()
    );
}

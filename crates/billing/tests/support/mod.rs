//! Organizations in a few words: account `a`, zone `us-east-1a`, Linux on shared hardware, unless said otherwise.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test; each test file uses a part of them"
)]

use veneer_billing::{
    Allocator, Bill, CapacityReservation, Exact, HOUR, Instance, Interval, Machine, Organization, PlanKind,
    Platform, Priced, Purchase, ReservedInstances, SavingsPlan, SharingMode, State, Tenancy, UsageLine,
};

/// The clock hour of the tests.
pub(crate) const START: i64 = 1_700_000_400 / HOUR * HOUR;
/// A term that has it somewhere in the middle.
pub(crate) const TERM: Interval = Interval::new(START - 1000 * HOUR, START - 1000 * HOUR + 8760 * HOUR);
pub(crate) const REGION: &str = "us-east-1";

pub(crate) fn exact(text: &str) -> Exact {
    Exact::parse(text).unwrap_or_else(|| panic!("{text:?} is no number"))
}

/// `c5.large`, `windows c5.large`, `dedicated windows c5.large`, `c5.large eu-west-1`.
pub(crate) fn machine(words: &str) -> Machine {
    let mut machine = Machine {
        region: REGION.to_owned(),
        ..Machine::default()
    };
    for word in words.split(' ') {
        match word {
            "linux" => machine.platform = Platform::Linux,
            "windows" => machine.platform = Platform::Windows,
            "byol" => machine.platform = Platform::WindowsByol,
            "rhel" => machine.platform = Platform::RedHat,
            "suse" => machine.platform = Platform::Suse,
            "ubuntu-pro" => machine.platform = Platform::UbuntuPro,
            "macos" => machine.platform = Platform::MacOs,
            "dedicated" => machine.tenancy = Tenancy::Dedicated,
            "host" => machine.tenancy = Tenancy::Host,
            word if word.contains('.') => machine.instance_type = word.to_owned(),
            word => machine.region = word.to_owned(),
        }
    }
    machine
}

pub(crate) fn usage_type(name: &str) -> Priced {
    Priced::Usage {
        region: REGION.to_owned(),
        usage_type: name.to_owned(),
    }
}

#[derive(Clone, Default)]
pub(crate) struct Case {
    pub(crate) org: Organization,
}

impl Case {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// An on-demand price.
    pub(crate) fn price(mut self, words: &str, dollars: &str) -> Self {
        self.org
            .prices
            .on_demand
            .insert(Priced::Machine(machine(words)), exact(dollars));
        self
    }

    /// A rate on the card of that name.
    pub(crate) fn rate(mut self, card: &str, words: &str, dollars: &str) -> Self {
        let card = self.org.rates.entry(card.to_owned()).or_default();
        card.insert(Priced::Machine(machine(words)), exact(dollars));
        self
    }

    /// Price and rates of other usage.
    pub(crate) fn usage_price(mut self, name: &str, dollars: &str, rates: &[(&str, &str)]) -> Self {
        self.org.prices.on_demand.insert(usage_type(name), exact(dollars));
        for (card, rate) in rates {
            let card = self.org.rates.entry((*card).to_owned()).or_default();
            card.insert(usage_type(name), exact(rate));
        }
        self
    }

    /// An instance for the whole hour.
    pub(crate) fn run(self, id: &str, words: &str) -> Self {
        self.instance(id, words, |_| {})
    }

    /// Several, `id-1` and so on.
    pub(crate) fn run_many(mut self, count: usize, id: &str, words: &str) -> Self {
        for number in 1..=count {
            self = self.run(&format!("{id}-{number}"), words);
        }
        self
    }

    pub(crate) fn run_in(self, id: &str, words: &str, account: &str, zone: &str) -> Self {
        self.instance(id, words, |instance| {
            instance.account = account.to_owned();
            instance.zone = zone.to_owned();
        })
    }

    /// An instance that runs from one second of the hour to another.
    pub(crate) fn run_between(self, id: &str, words: &str, from: i64, to: i64) -> Self {
        self.instance(id, words, |instance| {
            instance.running = vec![Interval::new(START + from, START + to)];
        })
    }

    pub(crate) fn instance(mut self, id: &str, words: &str, change: impl FnOnce(&mut Instance)) -> Self {
        let mut instance = instance(id, words);
        change(&mut instance);
        self.org.instances.push(instance);
        self
    }

    pub(crate) fn line(mut self, id: &str, name: &str, quantity: &str) -> Self {
        self.org.usage_lines.push(UsageLine {
            id: id.to_owned(),
            account: "a".to_owned(),
            zone: None,
            what: usage_type(name),
            purchase: Purchase::OnDemand,
            at: START,
            quantity: exact(quantity),
        });
        self
    }

    pub(crate) fn capacity_reservation(
        mut self,
        id: &str,
        count: u32,
        words: &str,
        active: Interval,
    ) -> Self {
        self.org.capacity_reservations.push(CapacityReservation {
            id: id.to_owned(),
            account: "a".to_owned(),
            zone: "us-east-1a".to_owned(),
            machine: machine(words),
            count,
            active,
        });
        self
    }

    /// Regional Reserved Instances.
    pub(crate) fn reserve(self, id: &str, count: u32, words: &str) -> Self {
        self.reserved(id, count, words, |_| {})
    }

    /// Zonal ones, in `us-east-1a`.
    pub(crate) fn reserve_zonal(self, id: &str, count: u32, words: &str) -> Self {
        self.reserved(id, count, words, |one| one.zone = Some("us-east-1a".to_owned()))
    }

    pub(crate) fn reserved(
        mut self,
        id: &str,
        count: u32,
        words: &str,
        change: impl FnOnce(&mut ReservedInstances),
    ) -> Self {
        let mut one = ReservedInstances {
            id: id.to_owned(),
            account: "a".to_owned(),
            machine: machine(words),
            zone: None,
            count,
            term: TERM,
            state: State::Active,
            upfront: Exact::ZERO,
            hourly: Exact::ZERO,
        };
        change(&mut one);
        self.org.reserved_instances.push(one);
        self
    }

    /// A Compute plan with the rates of the card `compute`.
    pub(crate) fn compute(self, id: &str, dollars: &str) -> Self {
        self.plan(id, "compute", dollars, |_| {})
    }

    /// An EC2 Instance plan with the rates of the card `ec2`.
    pub(crate) fn ec2_plan(self, id: &str, family: &str, dollars: &str) -> Self {
        self.plan(id, "ec2", dollars, |plan| {
            plan.kind = PlanKind::Ec2Instance {
                family: family.to_owned(),
                region: REGION.to_owned(),
            };
        })
    }

    pub(crate) fn plan(
        mut self,
        id: &str,
        card: &str,
        dollars: &str,
        change: impl FnOnce(&mut SavingsPlan),
    ) -> Self {
        let mut plan = SavingsPlan {
            id: id.to_owned(),
            account: "a".to_owned(),
            kind: PlanKind::Compute,
            commitment: exact(dollars),
            rates: card.to_owned(),
            term: TERM,
            state: State::Active,
        };
        change(&mut plan);
        self.org.savings_plans.push(plan);
        self
    }

    pub(crate) fn sharing(mut self, mode: SharingMode, groups: &[(&str, &str)]) -> Self {
        self.org.sharing.mode = mode;
        let group = |(account, group): &(&str, &str)| ((*account).to_owned(), (*group).to_owned());
        self.org.sharing.groups = groups.iter().map(group).collect();
        self
    }

    /// Looks at the bill of the hour.
    pub(crate) fn bill<T>(&self, look: impl FnOnce(&Bill<'_>) -> T) -> T {
        let allocator = Allocator::new(&self.org);
        let bill = allocator.hour(START);
        check(&bill);
        look(&bill)
    }

    /// What pays for a usage, as `payer hours`, and the rest as `on demand hours`; hours with up to three decimals.
    pub(crate) fn payers(&self, id: &str) -> String {
        self.bill(|bill| payers(bill, id))
    }

    pub(crate) fn on_demand(&self) -> Exact {
        self.bill(|bill| bill.totals().on_demand)
    }

    pub(crate) fn total(&self) -> Exact {
        self.bill(|bill| bill.totals().total())
    }
}

/// One account, prices and both rates for a few types: on demand 1, Compute .70, EC2 .60 for m5.large; twice that for m5.xlarge.
pub(crate) fn priced() -> Case {
    let mut case = Case::new();
    for (words, price, compute, ec2) in [
        ("m5.large", "1", ".70", ".60"),
        ("m5.xlarge", "2", "1.40", "1.20"),
        ("m5.2xlarge", "4", "2.80", "2.40"),
        ("c5.large", "1", ".80", ".75"),
        ("windows m5.large", "2", "1.50", "1.40"),
        ("dedicated m5.large", "1.1", ".80", ".70"),
        ("m5.large eu-west-1", "1.2", ".90", ".80"),
    ] {
        case = case
            .price(words, price)
            .rate("compute", words, compute)
            .rate("ec2", words, ec2);
    }
    case.usage_price("Fargate-vCPU", ".04", &[("compute", ".03")])
}

/// An unused reservation for m5.large.
pub(crate) fn reserved_capacity(count: u32) -> Case {
    priced().capacity_reservation("cr", count, "m5.large", Interval::hour(START))
}

pub(crate) fn instance(id: &str, words: &str) -> Instance {
    Instance {
        id: id.to_owned(),
        account: "a".to_owned(),
        zone: "us-east-1a".to_owned(),
        machine: machine(words),
        purchase: Purchase::OnDemand,
        capacity_reservation: None,
        running: vec![Interval::hour(START)],
    }
}

/// At most three decimals.
pub(crate) fn short(number: &Exact) -> String {
    let text = number.decimal(3);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(crate) fn payers(bill: &Bill<'_>, id: &str) -> String {
    let usage = bill
        .usage(id)
        .unwrap_or_else(|| panic!("{id} is not in the bill"));
    let mut parts: Vec<String> = usage
        .shares()
        .map(|share| format!("{} {}", share.id(), short(&share.amount())))
        .collect();
    if usage.uncovered().is_positive() {
        parts.push(format!("on demand {}", short(&usage.uncovered())));
    }
    parts.join(", ")
}

/// What is true of every bill (rules 1, 8, 9 and 14).
pub(crate) fn check(bill: &Bill<'_>) {
    let totals = bill.totals();
    let mut effective = Exact::ZERO;
    for usage in bill.usages() {
        let covered: Exact = usage.shares().map(|share| share.amount()).sum();
        assert_eq!(
            covered.plus(&usage.uncovered()),
            usage.amount(),
            "parts of {}",
            usage.id()
        );
        assert!(
            usage.shares().all(|share| share.amount().is_positive()),
            "{}",
            usage.id()
        );
        assert!(!usage.uncovered().is_negative(), "{}", usage.id());
        effective = effective.plus(&usage.effective_cost());
    }
    let mut unused = Exact::ZERO;
    for one in bill.commitments() {
        assert!(
            !one.used.is_negative() && one.used <= one.capacity,
            "{}",
            one.commitment.id()
        );
        unused = unused.plus(&one.unused_cost());
        let paid: Exact = bill
            .usages()
            .flat_map(|usage| usage.shares().collect::<Vec<_>>())
            .filter(|share| share.id() == one.commitment.id())
            .map(|share| share.cost())
            .sum();
        assert_eq!(
            paid.plus(&one.unused_cost()),
            one.cost,
            "dollars of {}",
            one.commitment.id()
        );
    }
    assert_eq!(effective, totals.effective());
    assert_eq!(unused, totals.unused);
    let commitments_and_rest = totals.commitments.plus(&totals.on_demand).plus(&totals.own_price);
    assert_eq!(effective.plus(&unused), commitments_and_rest);
}

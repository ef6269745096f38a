//! The allocator and the second implementation agree on generated organizations, to the last digit.
//!
//! 2,000 by default; `VENEER_BILLING_CASES=100000` asks for more.
#![allow(
    clippy::disallowed_methods,
    reason = "the test asks how many organizations there shall be"
)]

mod support;

use veneer_billing::{Allocator, Bill, Organization};
use veneer_billing_reference::generated::Chance;
use veneer_billing_reference::{generated, reference};

fn show(bill: &Bill<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for usage in bill.usages() {
        let shares: Vec<String> = usage
            .shares()
            .map(|share| format!("{} {}", share.id(), share.amount()))
            .collect();
        lines.push(format!(
            "{} {}: {} + {} = ${}",
            usage.id(),
            usage.amount(),
            shares.join(", "),
            usage.uncovered(),
            usage.uncovered_cost()
        ));
    }
    for one in bill.commitments() {
        lines.push(format!(
            "{}: ${}, unused ${}",
            one.commitment.id(),
            one.cost,
            one.unused_cost()
        ));
    }
    let totals = bill.totals();
    let uncovered = totals.on_demand.plus(&totals.own_price);
    lines.push(format!(
        "commitments {}, unused {}, uncovered {uncovered}",
        totals.commitments, totals.unused
    ));
    lines
}

fn shuffle(organization: &mut Organization, chance: &mut Chance) {
    chance.shuffle(&mut organization.instances);
    chance.shuffle(&mut organization.capacity_reservations);
    chance.shuffle(&mut organization.usage_lines);
    chance.shuffle(&mut organization.reserved_instances);
    chance.shuffle(&mut organization.savings_plans);
}

/// How often the cases had what they are for; a generator that has none of something tests nothing.
#[derive(Default)]
struct Seen {
    shares: usize,
    several_payers: usize,
    shared: usize,
    groups: usize,
    unused_covered: usize,
    flexible: usize,
    zonal: usize,
    exact_size: usize,
    metal: usize,
    lines: usize,
    part_of_hour: usize,
    used_up: usize,
    free: usize,
    mid_hour: usize,
}

impl Seen {
    fn look(&mut self, bill: &Bill<'_>) {
        use veneer_billing::{Basis, Covered, Exact, Reach};
        for usage in bill.usages() {
            let shares: Vec<_> = usage.shares().collect();
            self.shares += shares.len();
            self.several_payers += usize::from(shares.len() > 1);
            self.part_of_hour += usize::from(usage.amount() < Exact::ONE && !shares.is_empty());
            for share in &shares {
                self.shared += usize::from(share.reach() != Reach::Owner);
                self.groups += usize::from(share.reach() == Reach::Group);
                self.flexible += usize::from(share.basis() == Basis::SizeFlexibleReservedInstance);
                self.zonal += usize::from(share.basis() == Basis::ZonalReservedInstance);
                self.exact_size += usize::from(share.basis() == Basis::RegionalReservedInstance);
                self.metal += usize::from(share.rules().contains(&6));
                self.unused_covered += usize::from(matches!(usage.covered(), Covered::UnusedReservation(_)));
                self.lines += usize::from(matches!(usage.covered(), Covered::Usage(_)));
                self.free += usize::from(share.cost().is_zero());
            }
        }
        for one in bill.commitments() {
            self.used_up += usize::from(one.left().is_zero() && one.used.is_positive());
            let hours = match one.commitment {
                veneer_billing::Commitment::Plan(plan) => one.capacity.over(&plan.commitment),
                veneer_billing::Commitment::Reserved(of) => {
                    one.capacity.over(&Exact::from(i64::from(of.count)))
                }
            };
            self.mid_hour +=
                usize::from(hours.is_some_and(|hours| hours < Exact::ONE) && one.used.is_positive());
        }
    }

    fn all(&self) -> [(&'static str, usize); 14] {
        [
            ("shares", self.shares),
            ("usages with several payers", self.several_payers),
            ("shared", self.shared),
            ("in a group", self.groups),
            ("unused reservations covered", self.unused_covered),
            ("size-flexible", self.flexible),
            ("zonal", self.zonal),
            ("regional of one size", self.exact_size),
            ("metal", self.metal),
            ("other usage", self.lines),
            ("parts of an hour", self.part_of_hour),
            ("commitments used up", self.used_up),
            ("free shares", self.free),
            ("terms that begin or end in the hour", self.mid_hour),
        ]
    }
}

#[test]
fn both_implementations_agree_on_generated_organizations() {
    let cases = std::env::var("VENEER_BILLING_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000);
    let mut seen = Seen::default();
    for seed in 0..cases {
        let spec = generated::spec(seed);
        let mut organization = generated::organization(&spec);
        shuffle(&mut organization, &mut Chance(seed));
        let allocator = Allocator::new(&organization);
        let bill = allocator.hour(generated::START + 17);
        support::check(&bill);
        seen.look(&bill);
        let (ours, theirs) = (show(&bill), reference::bill(&spec));
        assert_eq!(ours, theirs, "case {seed}: {spec:#?}");
    }
    for (what, count) in seen.all() {
        println!("{what}: {count}");
        assert!(
            count as u64 * 200 >= cases,
            "the cases hardly have {what}: {count} in {cases}"
        );
    }
}

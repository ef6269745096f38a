//! Mistakes put into a right bill on purpose: each is found, has its name, and leaves nothing unexplained.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

mod written;

use veneer_billing::Sharing;
use veneer_billing_reference::generated::{Capacity, Kind, MILLION, Other, Plan, Ran, Reserved, START, Spec};
use veneer_reports::{CurLine, format_time};

const HOURS: i64 = 8;
/// The hour in which things go wrong.
const WRONG: i64 = START + 5 * 3600;

const TYPE: &str = "line_item_line_item_type";
const RESOURCE: &str = "line_item_resource_id";
const RI: &str = "reservation_reservation_a_r_n";
const SP: &str = "savings_plan_savings_plan_a_r_n";
const COST: &str = "line_item_unblended_cost";
const RATE: &str = "savings_plan_savings_plan_rate";
const SP_COST: &str = "savings_plan_savings_plan_effective_cost";
const RI_COST: &str = "reservation_effective_cost";

fn kind(region: &'static str, instance_type: &'static str) -> Kind {
    Kind {
        region,
        instance_type,
        platform: 0,
        tenancy: 0,
    }
}

fn runs(id: &str, account: usize, zone: usize, kind: Kind) -> Ran {
    Ran {
        id: id.to_owned(),
        account,
        zone,
        kind,
        purchase: 0,
        own_price: 0,
        reservation: None,
        running: vec![(START, START + HOURS * 3600)],
    }
}

fn reserved(id: &str, account: usize, zone: Option<usize>, kind: Kind) -> Reserved {
    Reserved {
        id: id.to_owned(),
        account,
        zone,
        kind,
        count: 1,
        term: (START - 3600, START + 8760 * 3600),
        state: 0,
        upfront: 0,
        hourly: 30_000,
    }
}

fn plan(id: &str, family: Option<(&'static str, &'static str)>, commitment: i64) -> Plan {
    Plan {
        id: id.to_owned(),
        account: 0,
        family,
        commitment,
        card: 0,
        term: (START - 3600, START + 8760 * 3600),
        state: 0,
    }
}

/// Accounts 0 and 1 share; account 2 does not.
fn base() -> Spec {
    let (us, eu) = ("us-east-1", "eu-west-1");
    let mut spec = Spec {
        mode: 1,
        groups: vec![None; 3],
        excluded: vec![false, false, true],
        ..Spec::default()
    };
    let mut spot = runs("i-spot", 0, 0, kind(us, "m5.large"));
    spot.purchase = 1;
    spot.own_price = 30_000;
    spec.ran = vec![
        runs("i-m5-a", 0, 0, kind(us, "m5.large")),
        runs("i-m5-b", 0, 0, kind(us, "m5.large")),
        runs("i-m5-c", 0, 0, kind(us, "m5.xlarge")),
        runs("i-m5-other", 1, 0, kind(us, "m5.large")),
        runs("i-m5-alone", 2, 0, kind(us, "m5.large")),
        runs("i-c5-a", 0, 0, kind(us, "c5.large")),
        runs("i-c5-b", 0, 0, kind(us, "c5.xlarge")),
        runs("i-t3-a", 0, 0, kind(us, "t3.medium")),
        runs("i-t3-b", 0, 1, kind(us, "t3.medium")),
        runs("i-g5-a", 0, 0, kind(us, "g5.xlarge")),
        runs("i-g5-b", 0, 0, kind(us, "g5.2xlarge")),
        runs("i-r5-us", 0, 0, kind(us, "r5.large")),
        runs("i-r5-eu", 0, 0, kind(eu, "r5.large")),
        runs("i-i3", 0, 0, kind(us, "i3.large")),
        spot,
    ];
    spec.capacity = vec![Capacity {
        account: 0,
        zone: 0,
        kind: kind(us, "i3.large"),
        count: 1,
        active: (START, START + HOURS * 3600),
    }];
    spec.other = (0..HOURS)
        .map(|hour| Other {
            id: "task".to_owned(),
            account: 0,
            region: us,
            usage_type: "Fargate-vCPU",
            kind: None,
            spot: None,
            at: START + hour * 3600,
            quantity: 10 * MILLION,
        })
        .collect();
    let mut ended = reserved("ri-ended", 1, None, kind(us, "z1d.large"));
    ended.term.1 = START + 3 * 3600;
    spec.ran.push(runs("i-z1d", 1, 0, kind(us, "z1d.large")));
    spec.reserved = vec![
        // Two m5.large of the owner: not the m5.xlarge, not the other account.
        reserved("ri-m5", 0, None, kind(us, "m5.xlarge")),
        reserved("ri-t3", 0, Some(0), kind(us, "t3.medium")),
        reserved("ri-g5", 0, None, kind(us, "g5.xlarge")),
        reserved("ri-i3", 0, None, kind(us, "i3.large")),
        ended,
    ];
    spec.plans = vec![
        // Covers the c5.large and a part of the c5.xlarge.
        plan("sp-c5", Some(("c5", us)), 80_000),
        // Covers r5 in both regions; little is left.
        plan("sp-compute", None, 170_000),
    ];
    for (name, price, rate) in [
        ("us-east-1/m5.large/0/0", 96_000, 95_000),
        ("us-east-1/m5.xlarge/0/0", 192_000, 190_000),
        ("us-east-1/c5.large/0/0", 85_000, 50_000),
        ("us-east-1/c5.xlarge/0/0", 170_000, 105_000),
        ("us-east-1/t3.medium/0/0", 41_600, 41_000),
        ("us-east-1/g5.xlarge/0/0", 1_006_000, 1_000_000),
        ("us-east-1/g5.2xlarge/0/0", 1_212_000, 1_200_000),
        ("us-east-1/r5.large/0/0", 126_000, 70_000),
        ("eu-west-1/r5.large/0/0", 141_000, 80_000),
        ("us-east-1/i3.large/0/0", 156_000, 155_000),
        ("us-east-1/z1d.large/0/0", 186_000, 185_000),
        ("us-east-1/Fargate-vCPU", 40_480, 40_000),
    ] {
        spec.prices.push((name.to_owned(), price));
        if spec.cards.is_empty() {
            spec.cards.push(Vec::new());
        }
        spec.cards[0].push((name.to_owned(), rate));
    }
    spec
}

/// A bill that can be spoiled.
struct Bill {
    lines: Vec<CurLine>,
    sharing: Sharing,
}

impl Bill {
    fn new() -> Self {
        let spec = base();
        Self {
            lines: written::write(&spec, HOURS).lines,
            sharing: written::sharing(&spec),
        }
    }

    fn at(&self, kind: &str, resource: &str, payer: &str) -> usize {
        let hour = format_time(WRONG);
        let found = self.lines.iter().position(|line| {
            line.get(TYPE) == kind
                && (line.get("line_item_usage_start_date") == hour || kind == "RIFee")
                && line.get(RESOURCE) == resource
                && (line.get(RI) == payer || line.get(SP) == payer)
        });
        found.unwrap_or_else(|| panic!("there is no {kind} line of {resource} by {payer}"))
    }

    fn line(&mut self, kind: &str, resource: &str, payer: &str) -> &mut CurLine {
        let at = self.at(kind, resource, payer);
        &mut self.lines[at]
    }

    fn remove(&mut self, kind: &str, resource: &str, payer: &str) -> CurLine {
        let at = self.at(kind, resource, payer);
        self.lines.remove(at)
    }

    /// Makes usage on demand that a commitment paid.
    fn uncover(&mut self, kind: &str, resource: &str, payer: &str) {
        if kind == "SavingsPlanCoveredUsage" {
            self.remove("SavingsPlanNegation", resource, payer);
        }
        let line = self.line(kind, resource, payer);
        let cost = line.get("pricing_public_on_demand_cost").to_owned();
        for column in [RI, RI_COST, SP, SP_COST, RATE] {
            line.set(column, "");
        }
        line.set(TYPE, "Usage");
        line.set(COST, &cost);
    }

    /// Lets Reserved Instances pay for usage, with these fees.
    fn reserve(&mut self, kind: &str, resource: &str, payer: &str, reserved: &str, cost: &str) {
        if kind == "SavingsPlanCoveredUsage" {
            self.remove("SavingsPlanNegation", resource, payer);
        }
        let line = self.line(kind, resource, payer);
        for (column, value) in [
            (TYPE, "DiscountedUsage"),
            (RI, reserved),
            (RI_COST, cost),
            (COST, "0"),
            (SP, ""),
            (SP_COST, ""),
        ] {
            line.set(column, value);
        }
        let is_large = line.get("product_instance_type").ends_with(".large");
        line.set("line_item_normalization_factor", if is_large { "4" } else { "8" });
    }

    /// Lets a plan pay for usage at a rate.
    fn plan(&mut self, kind: &str, resource: &str, payer: &str, plan: &str, rate: &str) {
        let like = self
            .lines
            .iter()
            .find(|line| line.get(TYPE) == "SavingsPlanCoveredUsage" && line.get(SP) == plan);
        let like = like.unwrap().clone();
        let line = self.line(kind, resource, payer);
        let amount: f64 = line.get("line_item_usage_amount").parse().unwrap();
        let list = match line.get("pricing_public_on_demand_cost") {
            "" => line.get(COST).to_owned(),
            cost => cost.to_owned(),
        };
        let cost = format!("{:.10}", amount * rate.parse::<f64>().unwrap());
        for column in [
            "savings_plan_start_time",
            "savings_plan_end_time",
            "savings_plan_offering_type",
            "savings_plan_instance_type_family",
            "savings_plan_region",
            "savings_plan_purchase_term",
            "savings_plan_payment_option",
        ] {
            line.set(column, like.get(column));
        }
        for (column, value) in [
            (TYPE, "SavingsPlanCoveredUsage"),
            (SP, plan),
            (RATE, rate),
            (SP_COST, &cost),
            (COST, &list),
            (RI, ""),
            (RI_COST, ""),
        ] {
            line.set(column, value);
        }
        let negation = line
            .clone()
            .with(TYPE, "SavingsPlanNegation")
            .with(COST, &format!("-{list}"))
            .with(RATE, "")
            .with(SP_COST, "");
        self.lines.push(negation);
    }

    /// Makes what fees say of the wrong hour follow from the lines again.
    fn settle(&mut self) {
        let hour = format_time(WRONG);
        let used = |lines: &[CurLine], plan: &str| -> f64 {
            let of = lines.iter().filter(|line| {
                line.get(TYPE) == "SavingsPlanCoveredUsage"
                    && line.get(SP) == plan
                    && line.get("line_item_usage_start_date") == hour
            });
            of.map(|line| line.get(SP_COST).parse::<f64>().unwrap()).sum()
        };
        for plan in ["sp-c5", "sp-compute"] {
            let sum = used(&self.lines, plan);
            self.line("SavingsPlanRecurringFee", "", plan)
                .set("savings_plan_used_commitment", &format!("{sum:.10}"));
        }
        for (reserved, own, hourly) in [("ri-m5", 8.0, 0.03), ("ri-i3", 4.0, 0.03)] {
            let lines = self
                .lines
                .iter()
                .filter(|line| line.get(TYPE) == "DiscountedUsage" && line.get(RI) == reserved);
            let used: f64 = lines
                .map(|line| {
                    let factor: f64 = match line.get("line_item_normalization_factor") {
                        "" => own,
                        factor => factor.parse().unwrap(),
                    };
                    line.get("line_item_usage_amount").parse::<f64>().unwrap() * factor / own
                })
                .sum();
            let fee = self.line("RIFee", "", reserved);
            let left = fee.get("line_item_usage_amount").parse::<f64>().unwrap() - used;
            fee.set("reservation_unused_quantity", &format!("{left:.10}"));
            fee.set(
                "reservation_unused_recurring_fee",
                &format!("{:.10}", left * hourly),
            );
        }
    }

    /// Reconciles and expects this kind of mistake, and at most these others.
    #[track_caller]
    fn expect(&self, name: &str, others: &[&str]) {
        let report = written::reconcile(&self.lines, self.sharing.clone());
        let kinds: Vec<&str> = report.mistakes.iter().map(|one| one.kind.as_str()).collect();
        assert!(kinds.contains(&name), "{name} was not found: {report:#?}");
        assert!(
            kinds.iter().all(|kind| *kind == name || others.contains(kind)),
            "besides {name} there are {kinds:?}: {:#?}",
            report.mistakes
        );
        assert_eq!(
            report.line_hours.unexplained, 0,
            "{name}: {:#?}",
            report.unexplained
        );
        let found = report.mistakes.iter().find(|one| one.kind == name).unwrap();
        assert!(!found.rules.is_empty() && !found.meaning.is_empty() && !found.examples.is_empty());
    }
}

const COVERED: &str = "SavingsPlanCoveredUsage";
const DISCOUNTED: &str = "DiscountedUsage";

#[test]
fn the_bill_is_right_before_it_is_spoiled() {
    let bill = Bill::new();
    let report = written::reconcile(&bill.lines, bill.sharing.clone());
    assert!(report.is_right(), "{report:#?}");
    assert_eq!(report.line_hours.agreed, report.line_hours.compared);
}

#[test]
fn a_commitment_never_pays_for_spot() {
    let mut bill = Bill::new();
    bill.plan("Usage", "i-spot", "", "sp-compute", "0.02");
    bill.settle();
    bill.expect("plan-on-spot", &["commitment-exceeded"]);
    let mut bill = Bill::new();
    bill.reserve("Usage", "i-spot", "", "ri-m5", "0.015");
    bill.settle();
    bill.expect(
        "reserved-instance-on-spot",
        &["commitment-exceeded", "wrong-unused"],
    );
}

#[test]
fn a_commitment_stays_in_its_zone_its_region_and_its_family() {
    let mut bill = Bill::new();
    bill.line(DISCOUNTED, "i-t3-a", "ri-t3")
        .set("line_item_availability_zone", "us-east-1b");
    bill.expect("other-zone", &[]);
    let mut bill = Bill::new();
    let line = bill.line(COVERED, "i-c5-a", "sp-c5");
    line.set("product_region_code", "eu-west-1");
    bill.line("SavingsPlanNegation", "i-c5-a", "sp-c5")
        .set("product_region_code", "eu-west-1");
    bill.expect("other-region", &[]);
    let mut bill = Bill::new();
    bill.plan("Usage", "i-m5-other", "", "sp-c5", "0.05");
    bill.settle();
    bill.expect("other-family", &["commitment-exceeded"]);
}

#[test]
fn a_reserved_instance_stays_with_its_size_platform_and_tenancy() {
    let cases = [
        (
            "i-g5-a",
            "ri-g5",
            "product_instance_type",
            "g5.2xlarge",
            "other-size",
        ),
        (
            "i-m5-a",
            "ri-m5",
            "line_item_operation",
            "RunInstances:0002",
            "other-platform",
        ),
        (
            "i-m5-a",
            "ri-m5",
            "line_item_operation",
            "RunInstances:0g00",
            "platform-without-reserved-instances",
        ),
        (
            "i-m5-a",
            "ri-m5",
            "line_item_usage_type",
            "DedicatedUsage:m5.large",
            "other-tenancy",
        ),
        (
            "i-t3-a",
            "ri-t3",
            "line_item_usage_type",
            "UnusedBox:t3.medium",
            "zonal-on-unused-reservation",
        ),
    ];
    for (resource, reserved, column, value, name) in cases {
        let mut bill = Bill::new();
        bill.line(DISCOUNTED, resource, reserved).set(column, value);
        bill.expect(name, &[]);
    }
}

#[test]
fn a_commitment_stays_within_its_term_and_its_accounts() {
    let mut bill = Bill::new();
    bill.reserve("Usage", "i-z1d", "", "ri-ended", "0.03");
    bill.expect("outside-term", &["wrong-unused"]);
    let mut bill = Bill::new();
    bill.reserve("Usage", "i-m5-alone", "", "ri-m5", "0.015");
    bill.uncover(DISCOUNTED, "i-m5-b", "ri-m5");
    bill.expect("not-shared", &[]);
}

#[test]
fn factors_rates_prices_and_effective_costs_are_checked() {
    let mut bill = Bill::new();
    bill.line(DISCOUNTED, "i-m5-a", "ri-m5")
        .set("line_item_normalization_factor", "8");
    bill.expect("wrong-normalization-factor", &[]);
    let mut bill = Bill::new();
    let line = bill.line(COVERED, "i-r5-us", "sp-compute");
    line.set(RATE, "0.08");
    line.set(SP_COST, "0.08");
    bill.settle();
    bill.expect("rate-of-other-region", &["commitment-exceeded"]);
    let mut bill = Bill::new();
    let line = bill.line(COVERED, "i-r5-us", "sp-compute");
    line.set(RATE, "0.0712");
    line.set(SP_COST, "0.0712");
    bill.settle();
    bill.expect("wrong-rate", &["commitment-exceeded"]);
    let mut bill = Bill::new();
    bill.uncover(COVERED, "i-r5-us", "sp-compute");
    bill.line("Usage", "i-r5-us", "").set(COST, "0.141");
    bill.settle();
    bill.expect("price-of-other-region", &[]);
    let mut bill = Bill::new();
    bill.line("Usage", "i-g5-b", "").set(COST, "1.3");
    bill.expect("wrong-price", &[]);
    let mut bill = Bill::new();
    bill.line(DISCOUNTED, "i-g5-a", "ri-g5").set(RI_COST, "0.06");
    bill.expect("wrong-effective-cost", &[]);
}

#[test]
fn lines_are_there_once() {
    let mut bill = Bill::new();
    let line = bill.line("Usage", "i-g5-b", "").clone();
    bill.lines.push(line);
    bill.expect("duplicate-line", &[]);
    let mut bill = Bill::new();
    let line = bill.line("Usage", "i-g5-b", "");
    line.set("line_item_usage_amount", "2");
    line.set(COST, "2.424");
    bill.expect("more-than-an-hour", &[]);
    let mut bill = Bill::new();
    bill.remove(COVERED, "i-r5-eu", "sp-compute");
    bill.remove("SavingsPlanNegation", "i-r5-eu", "sp-compute");
    bill.expect("missing-line", &[]);
    let mut bill = Bill::new();
    bill.remove(DISCOUNTED, "i-g5-a", "ri-g5");
    bill.expect("missing-line", &[]);
    let mut bill = Bill::new();
    bill.remove("SavingsPlanNegation", "i-r5-eu", "sp-compute");
    bill.expect("missing-negation", &[]);
    let mut bill = Bill::new();
    bill.line("SavingsPlanNegation", "i-r5-eu", "sp-compute")
        .set(COST, "-0.1");
    bill.expect("wrong-negation", &[]);
}

#[test]
fn fees_agree_with_lines_and_with_other_hours() {
    let mut bill = Bill::new();
    bill.remove("SavingsPlanRecurringFee", "", "sp-compute");
    bill.expect("missing-fee", &[]);
    let mut bill = Bill::new();
    bill.remove("RIFee", "", "ri-g5");
    bill.expect("missing-fee", &[]);
    let mut bill = Bill::new();
    bill.line("SavingsPlanRecurringFee", "", "sp-compute")
        .set("savings_plan_total_commitment_to_date", "0.34");
    bill.expect("wrong-fee", &[]);
    let mut bill = Bill::new();
    bill.line("RIFee", "", "ri-t3")
        .set("reservation_unused_quantity", "3");
    bill.expect("wrong-unused", &[]);
    let mut bill = Bill::new();
    bill.reserve("Usage", "i-m5-c", "", "ri-m5", "0.03");
    bill.settle();
    bill.expect("commitment-exceeded", &["wrong-unused"]);
}

#[test]
fn the_order_of_commitments_and_of_usage_is_that_of_the_rules() {
    // An instance stays on demand although its Reserved Instance has an hour left.
    let mut bill = Bill::new();
    bill.uncover(DISCOUNTED, "i-i3", "ri-i3");
    bill.settle();
    bill.expect("coverage-missed", &[]);
    // A Compute plan pays for what the EC2 Instance plan should.
    let mut bill = Bill::new();
    bill.uncover(COVERED, "i-r5-us", "sp-compute");
    bill.plan(COVERED, "i-c5-a", "sp-c5", "sp-compute", "0.05");
    bill.remove("SavingsPlanNegation", "i-c5-a", "sp-c5");
    bill.settle();
    bill.expect("wrong-order", &["lower-saving-first"]);
    // Another account comes before the owner.
    let mut bill = Bill::new();
    bill.reserve("Usage", "i-m5-other", "", "ri-m5", "0.015");
    bill.uncover(DISCOUNTED, "i-m5-b", "ri-m5");
    bill.settle();
    bill.expect("owner-not-first", &[]);
    // The unused hour of a capacity reservation comes before the instance.
    let mut bill = Bill::new();
    bill.reserve("Usage", "cr-0", "", "ri-i3", "0.03");
    bill.uncover(DISCOUNTED, "i-i3", "ri-i3");
    bill.settle();
    bill.expect("unused-reservation-first", &[]);
    // A larger size comes before two smaller ones.
    let mut bill = Bill::new();
    bill.reserve("Usage", "i-m5-c", "", "ri-m5", "0.03");
    bill.uncover(DISCOUNTED, "i-m5-a", "ri-m5");
    bill.uncover(DISCOUNTED, "i-m5-b", "ri-m5");
    bill.line(DISCOUNTED, "i-m5-c", "ri-m5")
        .set("line_item_normalization_factor", "8");
    bill.settle();
    bill.expect("larger-size-first", &[]);
    // A plan saves less than it could.
    let mut bill = Bill::new();
    bill.uncover(COVERED, "i-r5-us", "sp-compute");
    let line = bill.line("Usage", "i-m5-c", "");
    let mut rest = line.clone();
    for (part, amount, cost) in [
        (line, "0.3684210526", "0.0707368421"),
        (&mut rest, "0.6315789474", "0.1212631579"),
    ] {
        part.set("line_item_usage_amount", amount);
        part.set("pricing_public_on_demand_cost", cost);
        part.set(COST, cost);
    }
    bill.plan("Usage", "i-m5-c", "", "sp-compute", "0.19");
    bill.lines.push(rest);
    bill.settle();
    bill.expect("lower-saving-first", &[]);
}

#[test]
fn equal_usage_in_another_order_is_no_mistake() {
    // Of two equal instances one is covered: AWS does not say which.
    let mut spec = base();
    spec.ran
        .push(runs("i-g5-c", 0, 0, kind("us-east-1", "g5.xlarge")));
    let lines = written::write(&spec, HOURS).lines;
    let mut bill = Bill {
        lines,
        sharing: written::sharing(&spec),
    };
    bill.line(DISCOUNTED, "i-g5-a", "ri-g5")
        .set(RESOURCE, "i-swapped");
    bill.line("Usage", "i-g5-c", "").set(RESOURCE, "i-g5-a");
    bill.line(DISCOUNTED, "i-swapped", "ri-g5")
        .set(RESOURCE, "i-g5-c");
    let report = written::reconcile(&bill.lines, bill.sharing.clone());
    assert!(report.is_right(), "{report:#?}");
    assert_eq!(report.line_hours.order_among_equals, 4);
}

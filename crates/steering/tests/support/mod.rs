//! What the tests of steering share: an observation to start from, with one builder per series.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test; each test file uses a part of them"
)]

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_steering::commitments::{Balance, Doubt, Kind, Ledger, Observation, Sample, Scope, Target};
use veneer_steering::decisions::{Decision, Machine, Memory, Policy, decide};
use veneer_steering::overlays::{Naming, Pricing, Rendering, Weights};

pub(crate) const ACCOUNT: &str = "111111111111";
pub(crate) const OTHER: &str = "222222222222";
pub(crate) const REGION: &str = "us-west-2";

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

pub(crate) fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

pub(crate) fn scope() -> Scope {
    Scope {
        account: ACCOUNT.to_owned(),
        region: REGION.to_owned(),
        shared_plans: true,
        freshness_limit: seconds(65 * 60),
    }
}

pub(crate) fn policy() -> Policy {
    Policy {
        threshold: 95.0,
        hysteresis: 5.0,
        any_pool: true,
    }
}

/// The usual 95 % off.
pub(crate) fn ordered() -> Pricing {
    Pricing::Ordered {
        adjustment: "-95%".to_owned(),
    }
}

/// Cost-aware overlays in their default form, at this price.
pub(crate) fn rendering(pricing: Pricing) -> Rendering {
    let weights = Weights::default();
    Rendering {
        weights,
        zonal_weight: weights.zonal(&BTreeSet::new()),
        naming: Naming::default(),
        pricing,
        disabled: false,
        family_label: "karpenter.k8s.aws/instance-family".to_owned(),
        only_pools: None,
    }
}

/// Answers, built series by series.
#[derive(Clone)]
pub(crate) struct Answers(pub(crate) Observation);

impl Answers {
    /// Nothing is owned, and the data is a minute old.
    pub(crate) fn empty() -> Self {
        let none = || Ok(Vec::new());
        let mut answers = Self(Observation {
            at: now(),
            commitment: none(),
            remaining: none(),
            utilization: none(),
            reserved: none(),
            reserved_counts: none(),
            counted: none(),
            unused: none(),
            running: none(),
            freshness: none(),
        });
        answers.age(ACCOUNT, "savings_plans", 60.0);
        answers.age(ACCOUNT, "reserved_instances", 60.0);
        answers
    }

    pub(crate) fn age(&mut self, account: &str, data: &str, value: f64) -> &mut Self {
        let samples = self.0.freshness.as_mut().unwrap();
        samples.retain(|one| one.label("account_id") != account || one.label("data_type") != data);
        samples.push(Sample::new(
            &[("account_id", account), ("data_type", data)],
            value,
        ));
        self
    }

    /// A plan with its three series; `at` is account, family and region, the last two empty for Compute.
    pub(crate) fn plan(&mut self, arn: &str, at: [&str; 3], numbers: [f64; 3]) -> &mut Self {
        let [account, family, region] = at;
        let kind = if family.is_empty() {
            "compute"
        } else {
            "ec2_instance"
        };
        let short = [("account_id", account), ("type", kind), ("savings_plan_arn", arn)];
        let mut long = short.to_vec();
        long.extend([("instance_family", family), ("region", region)]);
        let [commitment, remaining, utilization] = numbers;
        let observation = &mut self.0;
        observation
            .commitment
            .as_mut()
            .unwrap()
            .push(Sample::new(&long, commitment));
        observation
            .remaining
            .as_mut()
            .unwrap()
            .push(Sample::new(&short, remaining));
        observation
            .utilization
            .as_mut()
            .unwrap()
            .push(Sample::new(&short, utilization));
        self
    }

    pub(crate) fn reserve(
        &mut self,
        account: &str,
        region: &str,
        zone: &str,
        it: &str,
        count: f64,
    ) -> &mut Self {
        let labels = [
            ("account_id", account),
            ("region", region),
            ("availability_zone", zone),
            ("instance_type", it),
        ];
        self.0
            .reserved
            .as_mut()
            .unwrap()
            .push(Sample::new(&labels, count));
        self
    }

    /// How many Reserved Instances of a family there are, as Lumina tells it.
    pub(crate) fn family_count(&mut self, family: &str, count: f64) -> &mut Self {
        let labels = [
            ("account_id", ACCOUNT),
            ("region", REGION),
            ("instance_family", family),
        ];
        let samples = self.0.reserved_counts.as_mut().unwrap();
        samples.push(Sample::new(&labels, count));
        self
    }

    /// Reserved Instances of a type and zone for Linux, and how many of them are unused, as `veneer export` tells it.
    pub(crate) fn count(&mut self, zone: &str, it: &str, owned: f64, unused: f64) -> &mut Self {
        let labels = [
            ("account_id", ACCOUNT),
            ("region", REGION),
            ("availability_zone", zone),
            ("instance_type", it),
            ("platform", "Linux/UNIX"),
            ("tenancy", "default"),
        ];
        self.0.counted.as_mut().unwrap().push(Sample::new(&labels, owned));
        self.0.unused.as_mut().unwrap().push(Sample::new(&labels, unused));
        self
    }

    pub(crate) fn running(&mut self, zone: &str, it: &str, cost_type: &str, count: f64) -> &mut Self {
        let labels = [
            ("account_id", ACCOUNT),
            ("region", REGION),
            ("availability_zone", zone),
            ("instance_type", it),
            ("cost_type", cost_type),
        ];
        self.0.running.as_mut().unwrap().push(Sample::new(&labels, count));
        self
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::read(&self.0, &scope())
    }

    pub(crate) fn decide(&self, existing: &[Target], machines: &[Machine]) -> Vec<Decision> {
        let existing: BTreeSet<Target> = existing.iter().cloned().collect();
        decide(
            &self.ledger(),
            &existing,
            machines,
            policy(),
            &mut Memory::default(),
        )
    }
}

pub(crate) fn balance(ledger: &Ledger, target: &Target) -> Option<Result<Balance, Doubt>> {
    ledger.books[&target.kind]
        .as_ref()
        .unwrap()
        .balances
        .get(target)
        .cloned()
}

pub(crate) fn doubt(ledger: &Ledger, kind: Kind) -> Option<&'static str> {
    ledger.books[&kind].as_ref().err().map(Doubt::category)
}

/// A machine that was asked for this many seconds before now.
pub(crate) fn machine(name: &str, it: &str, price: f64, age: i64) -> Machine {
    Machine {
        name: name.to_owned(),
        created: now() - seconds(age),
        instance_type: it.to_owned(),
        zones: Vec::new(),
        price,
    }
}

/// `state reason` of a target.
pub(crate) fn verdict(decisions: &[Decision], target: &Target) -> String {
    let found = decisions.iter().find(|one| one.target == *target);
    found.map_or_else(String::new, |one| {
        format!("{:?} {}", one.state, one.reason.as_str())
    })
}

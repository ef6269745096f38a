//! A small organization: two accounts that name their zones differently, and one region.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test; each test file uses a part of them"
)]

use std::collections::BTreeMap;

use veneer_billing::{
    Exact, HOUR, Interval, Machine, PlanKind, Platform, Priced, Prices, ReservedInstances, SavingsPlan,
    Sharing, State,
};
use veneer_inventory::{
    Account, DataKind, InstanceKind, InstanceRow, Inventory, Lifecycle, Part, Rows, SpotPrice,
};

pub(crate) const NOW: i64 = 1_763_450_000;
pub(crate) const A: &str = "111111111111";
pub(crate) const B: &str = "222222222222";
pub(crate) const REGION: &str = "us-east-1";
pub(crate) const COMPUTE: &str = "arn:aws:savingsplans::111111111111:savingsplan/compute";
pub(crate) const FAMILY: &str = "arn:aws:savingsplans::222222222222:savingsplan/c5";

pub(crate) fn exact(text: &str) -> Exact {
    Exact::parse(text).unwrap()
}

pub(crate) fn machine(instance_type: &str) -> Machine {
    Machine {
        region: REGION.to_owned(),
        instance_type: instance_type.to_owned(),
        ..Machine::default()
    }
}

pub(crate) fn part(account: &str, kind: DataKind) -> Part {
    let region = match kind {
        DataKind::SavingsPlans | DataKind::PlanRates | DataKind::Sharing => "",
        _ => REGION,
    };
    Part::new(account, region, kind)
}

/// An instance of a cluster in zone `us-east-1a`; in account A that is use1-az1, in account B use1-az2.
pub(crate) fn instance(id: &str, instance_type: &str) -> InstanceRow {
    InstanceRow {
        id: id.to_owned(),
        kind: InstanceKind {
            machine: machine(instance_type),
            zone: "us-east-1a".to_owned(),
            cluster: "prod".to_owned(),
            ..InstanceKind::default()
        },
        launched: NOW - 100,
        private_dns_name: format!("{id}.ec2.internal"),
        node_name: format!("node-{id}"),
    }
}

pub(crate) fn spot(id: &str, instance_type: &str) -> InstanceRow {
    let mut row = instance(id, instance_type);
    row.kind.lifecycle = Lifecycle::Spot;
    row
}

pub(crate) fn reserved(
    id: &str,
    account: &str,
    instance_type: &str,
    zone: Option<&str>,
    count: u32,
) -> ReservedInstances {
    ReservedInstances {
        id: id.to_owned(),
        account: account.to_owned(),
        machine: machine(instance_type),
        zone: zone.map(str::to_owned),
        count,
        term: Interval::new(NOW - 1000 * HOUR, NOW + 7760 * HOUR),
        state: State::Active,
        upfront: exact("87.6"),
        hourly: exact("0.05"),
    }
}

pub(crate) fn plan(id: &str, account: &str, kind: PlanKind, dollars: &str) -> SavingsPlan {
    SavingsPlan {
        id: id.to_owned(),
        account: account.to_owned(),
        kind,
        commitment: exact(dollars),
        rates: id.to_owned(),
        term: Interval::new(NOW - 1000 * HOUR, NOW + 100 * HOUR),
        state: State::Active,
    }
}

fn zones(pairs: [(&str, &str); 2]) -> Rows {
    let pairs = pairs.map(|(name, id)| (name.to_owned(), id.to_owned()));
    Rows::Zones(pairs.into())
}

/// In A: four m5.large under two regional Reserved Instances of m5.xlarge and one more m5.large, a zonal c5.large Reserved Instance in
/// use1-az1 that only B's zone b could use, one spot instance; in B: two c5.large, the first in A's use1-az2.
pub(crate) fn organization() -> Inventory {
    let mut inventory = Inventory::new(vec![
        Account {
            id: A.to_owned(),
            name: "Production".to_owned(),
        },
        Account {
            id: B.to_owned(),
            name: "Staging \"2\"".to_owned(),
        },
    ]);
    let at = NOW - 30;
    inventory.replace(
        &part(A, DataKind::Zones),
        zones([("us-east-1a", "use1-az1"), ("us-east-1b", "use1-az2")]),
        at,
    );
    inventory.replace(
        &part(B, DataKind::Zones),
        zones([("us-east-1a", "use1-az2"), ("us-east-1b", "use1-az1")]),
        at,
    );
    let mut of_a: Vec<InstanceRow> = (1..=5)
        .map(|n| instance(&format!("i-a{n}"), "m5.large"))
        .collect();
    of_a.push(spot("i-a6", "m5.large"));
    inventory.replace(
        &part(A, DataKind::Instances),
        Rows::Instances(of_a.into_iter().collect()),
        at,
    );
    let mut windows = instance("i-b2", "c5.large");
    windows.kind.machine.platform = Platform::Windows;
    windows.kind.cluster = String::new();
    let of_b = [instance("i-b1", "c5.large"), windows];
    inventory.replace(
        &part(B, DataKind::Instances),
        Rows::Instances(of_b.into_iter().collect()),
        NOW - 50,
    );
    inventory.replace(
        &part(A, DataKind::ReservedInstances),
        Rows::ReservedInstances(vec![
            reserved("ri-1", A, "m5.xlarge", None, 1),
            reserved("ri-2", A, "m5.xlarge", None, 1),
            reserved("ri-3", A, "c5.large", Some("us-east-1a"), 3),
        ]),
        at,
    );
    inventory.replace(
        &part(B, DataKind::ReservedInstances),
        Rows::ReservedInstances(Vec::new()),
        at,
    );
    inventory.replace(
        &part(A, DataKind::SavingsPlans),
        Rows::SavingsPlans(vec![plan(COMPUTE, A, PlanKind::Compute, "0.50")]),
        at,
    );
    let c5 = PlanKind::Ec2Instance {
        family: "c5".to_owned(),
        region: REGION.to_owned(),
    };
    inventory.replace(
        &part(B, DataKind::SavingsPlans),
        Rows::SavingsPlans(vec![plan(FAMILY, B, c5, "0.03")]),
        at,
    );
    let rate = |what: &str, dollars: &str| (Priced::Machine(machine(what)), exact(dollars));
    let cards = BTreeMap::from([
        (
            COMPUTE.to_owned(),
            BTreeMap::from([rate("m5.large", "0.07"), rate("c5.large", "0.06")]),
        ),
        (FAMILY.to_owned(), BTreeMap::from([rate("c5.large", "0.05")])),
    ]);
    inventory.replace(&part(A, DataKind::PlanRates), Rows::PlanRates(cards), at);
    let prices = [
        rate("m5.large", "0.096"),
        rate("c5.large", "0.085"),
        rate("m5.xlarge", "0.192"),
    ];
    inventory.replace(
        &part("", DataKind::Prices),
        Rows::Prices(Prices {
            currency: "USD".to_owned(),
            on_demand: prices.into(),
        }),
        NOW - 3600,
    );
    let spot = SpotPrice {
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        platform: Platform::Linux,
        price: exact("0.035"),
        since: NOW - 900,
    };
    inventory.replace(
        &part(A, DataKind::SpotPrices),
        Rows::SpotPrices(vec![spot]),
        NOW - 60,
    );
    inventory.replace(
        &part("", DataKind::Sharing),
        Rows::Sharing(Sharing::default()),
        at,
    );
    inventory.validated(A, Ok(()), NOW - 10, 0.3);
    inventory.validated(B, Err("AccessDenied".to_owned()), NOW - 10, 3.0);
    inventory
}

/// One line of the text format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Sample {
    pub(crate) fn label(&self, name: &str) -> &str {
        &self.labels[name]
    }
}

/// Reads the text format; panics where it is none, and where a series is told twice.
pub(crate) fn parse(text: &str) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        assert!(seen.insert(series.to_owned()), "{series} is told twice");
        let (name, rest) = series.split_once('{').unwrap_or((series, ""));
        let mut labels = BTreeMap::new();
        let mut rest = rest.strip_suffix('}').unwrap_or(rest);
        while let Some((label, after)) = rest.split_once("=\"") {
            let mut value = String::new();
            let mut letters = after.char_indices();
            let end = loop {
                match letters.next().expect("a closing quote") {
                    (_, '\\') => value.push(match letters.next().unwrap().1 {
                        'n' => '\n',
                        letter => letter,
                    }),
                    (at, '"') => break at,
                    (_, letter) => value.push(letter),
                }
            };
            assert!(
                labels.insert(label.to_owned(), value).is_none(),
                "{label} twice in {line}"
            );
            rest = after[end + 1..].trim_start_matches(',');
        }
        samples.push(Sample {
            name: name.to_owned(),
            labels,
            value: value.parse().unwrap(),
        });
    }
    samples
}

/// The samples of a name, by the values of some labels.
pub(crate) fn values(text: &str, name: &str, labels: &[&str]) -> Vec<(String, f64)> {
    let samples = parse(text).into_iter().filter(|sample| sample.name == name);
    let key = |sample: &Sample| {
        labels
            .iter()
            .map(|label| sample.label(label))
            .collect::<Vec<_>>()
            .join(" ")
    };
    samples.map(|sample| (key(&sample), sample.value)).collect()
}

//! One organization twice: as the double of AWS is told it, and as the allocator would be given it directly.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]
#![allow(dead_code, reason = "not every test uses every helper")]

use std::collections::BTreeMap;
use std::time::Duration;

use aws_credential_types::Credentials;
use veneer_aws::collect::{Collector, Intervals, Settings, Target};
use veneer_aws::{Client, Patience};
use veneer_billing::{
    CapacityReservation, Exact, Instance, Interval, Machine, Organization, PlanKind, Platform, Priced,
    Purchase, ReservedInstances, SavingsPlan, State, Tenancy,
};
use veneer_testbed::aws_double::{
    AwsDouble, Described, DescribedAccount, DescribedCapacity, DescribedInstance, DescribedPlan,
    DescribedPrice, DescribedRate, DescribedRegion, DescribedReserved, DescribedSpot,
};

pub(crate) const ACCOUNTS: [&str; 3] = ["111111111111", "222222222222", "333333333333"];
pub(crate) const REGIONS: [&str; 2] = ["eu-west-1", "us-west-2"];
/// 2026-11-18T08:00:00Z.
pub(crate) const NOW: i64 = 1_794_988_800;
const LAUNCHED: (&str, i64) = ("2026-11-17T23:00:00.000Z", 1_794_956_400);
const START: (&str, i64) = ("2026-01-01T00:00:00.000Z", 1_767_225_600);
const END: (&str, i64) = ("2027-01-01T00:00:00.000Z", 1_798_761_600);
/// Types with what an hour of Linux costs, in millionths of a dollar.
const TYPES: [(&str, i64); 4] = [
    ("m5.large", 96_000),
    ("m5.xlarge", 192_000),
    ("c5.large", 85_010),
    ("r5.2xlarge", 504_003),
];

/// An organization, both ways.
pub(crate) struct Both {
    pub(crate) described: Described,
    pub(crate) direct: Organization,
}

fn dollars(millionths: i64) -> String {
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

fn exact(millionths: i64) -> Exact {
    Exact::fraction(millionths.into(), 1_000_000).unwrap()
}

/// The zones of a region as an account has them: the same names mean different zones.
fn zones(account: usize, region: &str) -> [(String, String); 2] {
    let prefix = if region == "us-west-2" { "usw2" } else { "euw1" };
    ["a", "b"].map(|letter| {
        let number = (usize::from(letter == "b") + account) % 2 + 1;
        (format!("{region}{letter}"), format!("{prefix}-az{number}"))
    })
}

fn machine(region: &str, instance_type: &str, platform: Platform, tenancy: Tenancy) -> Machine {
    Machine {
        region: region.to_owned(),
        instance_type: instance_type.to_owned(),
        platform,
        tenancy,
    }
}

/// Operating systems and tenancies with their words in each API, and what they cost compared with Linux, in percent.
const KINDS: [(Platform, Tenancy, [&str; 5], i64); 3] = [
    (
        Platform::Linux,
        Tenancy::Default,
        ["RunInstances", "Linux/UNIX", "Linux", "Shared", "BoxUsage"],
        100,
    ),
    (
        Platform::Windows,
        Tenancy::Default,
        ["RunInstances:0002", "Windows", "Windows", "Shared", "BoxUsage"],
        190,
    ),
    (
        Platform::Linux,
        Tenancy::Dedicated,
        [
            "RunInstances",
            "Linux/UNIX",
            "Linux",
            "Dedicated",
            "DedicatedUsage",
        ],
        110,
    ),
];

impl Both {
    /// One with so many running instances in each account and region; `turn` makes others of them.
    pub(crate) fn new(instances: usize, turn: usize) -> Self {
        let mut both = Self {
            described: Described::default(),
            direct: Organization::default(),
        };
        both.direct.sharing.excluded.insert(ACCOUNTS[2].to_owned());
        both.prices();
        for (at, account) in ACCOUNTS.into_iter().enumerate() {
            let mut described = DescribedAccount {
                id: account.to_owned(),
                role_arn: (at > 0).then(|| format!("arn:aws:iam::{account}:role/veneer")),
                external_id: (at == 2).then(|| "told you".to_owned()),
                shares: at < 2,
                ..DescribedAccount::default()
            };
            for region in REGIONS {
                let zones = zones(at, region);
                let mut content = DescribedRegion {
                    zones: zones.to_vec(),
                    ..DescribedRegion::default()
                };
                both.instances(&mut content, account, region, instances, turn);
                both.reserved(&mut content, account, region, turn);
                both.capacity(&mut content, account, region);
                described.regions.insert(region.to_owned(), content);
            }
            both.plans(&mut described, at, turn);
            both.described.accounts.push(described);
        }
        both.sort();
        both
    }

    fn sort(&mut self) {
        self.direct.instances.sort();
        self.direct.reserved_instances.sort();
        self.direct.capacity_reservations.sort();
        self.direct.savings_plans.sort();
    }

    fn prices(&mut self) {
        self.direct.prices.currency = "USD".to_owned();
        for region in REGIONS {
            for (name, price) in TYPES {
                for (platform, tenancy, [operation, _, system, word, _], percent) in KINDS {
                    let price = price * percent / 100;
                    self.described.prices.push(DescribedPrice {
                        region: region.to_owned(),
                        instance_type: name.to_owned(),
                        operating_system: system.to_owned(),
                        operation: operation.to_owned(),
                        tenancy: word.to_owned(),
                        price: format!("{}0000", dollars(price)),
                    });
                    let what = Priced::Machine(machine(region, name, platform, tenancy));
                    self.direct.prices.on_demand.insert(what, exact(price));
                }
                for (at, (_, zone_id)) in zones(0, region).into_iter().enumerate() {
                    // An older price, which does not count, comes last.
                    for (since, factor) in [("2026-11-18T07:50:00.000Z", 1), ("2026-11-18T01:00:00.000Z", 5)]
                    {
                        self.described.spot.push(DescribedSpot {
                            region: region.to_owned(),
                            zone_id: zone_id.clone(),
                            instance_type: name.to_owned(),
                            product: "Linux/UNIX".to_owned(),
                            price: dollars(spot(price, at) * factor),
                            since: since.to_owned(),
                        });
                    }
                }
            }
        }
    }

    fn instances(
        &mut self,
        content: &mut DescribedRegion,
        account: &str,
        region: &str,
        count: usize,
        turn: usize,
    ) {
        for at in 0..count {
            let (name, price) = TYPES[(at / 3) % TYPES.len()];
            let is_spot = at % 7 == 0;
            let kind = match at % 10 {
                4 if !is_spot => &KINDS[1],
                5 if !is_spot && at % 50 == 5 => &KINDS[2],
                _ => &KINDS[0],
            };
            let (platform, tenancy, [operation, ..], _) = kind.clone();
            let (zone, zone_id) = content.zones[at % 2].clone();
            let held = (!is_spot && kind == &KINDS[0] && name == "c5.large" && at % 2 == 1 && at < 60)
                .then(|| format!("cr-{account}-{region}"));
            let id = format!("i-{turn}{account}{}{at:05}", region.len());
            content.instances.push(DescribedInstance {
                id: id.clone(),
                instance_type: name.to_owned(),
                zone,
                state: "running".to_owned(),
                usage_operation: operation.to_owned(),
                tenancy: if tenancy == Tenancy::Dedicated {
                    "dedicated"
                } else {
                    "default"
                }
                .to_owned(),
                lifecycle: if is_spot { "spot" } else { "" }.to_owned(),
                launched: LAUNCHED.0.to_owned(),
                capacity_reservation: held.clone().unwrap_or_default(),
                tags: vec![
                    ("Name".to_owned(), format!("node-{at}")),
                    ("kubernetes.io/cluster/<prod>".to_owned(), "owned".to_owned()),
                ],
            });
            let place = zones(0, region)
                .iter()
                .position(|(_, one)| *one == zone_id)
                .unwrap();
            self.direct.instances.push(Instance {
                id,
                account: account.to_owned(),
                zone: zone_id,
                machine: machine(region, name, platform, tenancy),
                purchase: match is_spot {
                    true => Purchase::Spot(exact(spot(price, place))),
                    false => Purchase::OnDemand,
                },
                capacity_reservation: held,
                running: vec![Interval::new(LAUNCHED.1, i64::MAX)],
            });
            // What does not run is not billed.
            if at % 100 == 0 {
                let mut stopped = content.instances.last().unwrap().clone();
                stopped.id.push('s');
                stopped.state = "stopped".to_owned();
                content.instances.push(stopped);
            }
        }
    }

    fn reserved(&mut self, content: &mut DescribedRegion, account: &str, region: &str, turn: usize) {
        let (zone, zone_id) = content.zones[0].clone();
        let rows = [
            (
                "m5.large",
                None,
                "Linux/UNIX",
                Platform::Linux,
                120 + turn,
                "active",
            ),
            (
                "c5.large",
                Some((zone, zone_id)),
                "Linux/UNIX (Amazon VPC)",
                Platform::Linux,
                30,
                "active",
            ),
            ("r5.2xlarge", None, "Windows", Platform::Windows, 5, "active"),
            ("m5.large", None, "Linux/UNIX", Platform::Linux, 7, "retired"),
        ];
        for (at, (name, zone, product, platform, count, state)) in rows.into_iter().enumerate() {
            let id = format!("ri-{account}-{region}-{at}");
            content.reserved.push(DescribedReserved {
                id: id.clone(),
                instance_type: name.to_owned(),
                zone: zone.clone().map(|(name, _)| name),
                product: product.to_owned(),
                tenancy: "default".to_owned(),
                count: u32::try_from(count).unwrap(),
                start: START.0.to_owned(),
                end: END.0.to_owned(),
                state: state.to_owned(),
                fixed_price: "219.0".to_owned(),
                // Numbers come as programs print them.
                hourly: "3.09E-2".to_owned(),
            });
            if state == "active" {
                self.direct.reserved_instances.push(ReservedInstances {
                    id,
                    account: account.to_owned(),
                    machine: machine(region, name, platform, Tenancy::Default),
                    zone: zone.map(|(_, id)| id),
                    count: u32::try_from(count).unwrap(),
                    term: Interval::new(START.1, END.1),
                    state: State::Active,
                    upfront: Exact::whole(219),
                    hourly: exact(30_900),
                });
            }
        }
    }

    fn capacity(&mut self, content: &mut DescribedRegion, account: &str, region: &str) {
        let (zone, zone_id) = content.zones[1].clone();
        let id = format!("cr-{account}-{region}");
        let row = DescribedCapacity {
            id: id.clone(),
            owner: String::new(),
            instance_type: "c5.large".to_owned(),
            zone,
            platform: "Linux/UNIX".to_owned(),
            state: "active".to_owned(),
            count: 25,
            start: START.0.to_owned(),
        };
        // What others share with the account is theirs, and what was canceled costs nothing.
        content.capacity.push(DescribedCapacity {
            id: "cr-of-others".to_owned(),
            owner: "999999999999".to_owned(),
            ..row.clone()
        });
        content.capacity.push(DescribedCapacity {
            id: "cr-gone".to_owned(),
            state: "cancelled".to_owned(),
            ..row.clone()
        });
        content.capacity.push(row);
        self.direct.capacity_reservations.push(CapacityReservation {
            id,
            account: account.to_owned(),
            zone: zone_id,
            machine: machine(region, "c5.large", Platform::Linux, Tenancy::Default),
            count: 25,
            active: Interval::new(START.1, i64::MAX),
        });
    }

    fn plans(&mut self, account: &mut DescribedAccount, at: usize, turn: usize) {
        let commitment = 20_500_000 + i64::try_from(turn).unwrap();
        let rows = [
            ("Compute", "", commitment, 72),
            ("EC2Instance", "m5", 15_250_000, 61),
            ("SageMaker", "", 5_000_000, 50),
        ];
        for (number, (kind, family, commitment, percent)) in rows.into_iter().enumerate() {
            let id = format!("{at}{number}f0c1de-0000-4000-8000-00000000000{number}");
            let mut plan = DescribedPlan {
                id: id.clone(),
                kind: kind.to_owned(),
                family: family.to_owned(),
                region: if family.is_empty() { "" } else { "us-west-2" }.to_owned(),
                commitment: dollars(commitment),
                state: "active".to_owned(),
                start: START.0.to_owned(),
                end: END.0.to_owned(),
                rates: Vec::new(),
            };
            let mut card = BTreeMap::new();
            let regions = REGIONS
                .iter()
                .filter(|one| plan.region.is_empty() || plan.region == **one);
            for region in regions {
                for (name, price) in TYPES.iter().filter(|(name, _)| name.starts_with(family)) {
                    for (platform, tenancy, [operation, product, _, word, usage], factor) in KINDS {
                        let rate = price * factor / 100 * percent / 100;
                        let row = DescribedRate {
                            region: (*region).to_owned(),
                            instance_type: (*name).to_owned(),
                            product: product.to_owned(),
                            operation: operation.to_owned(),
                            usage_type: format!("USW2-{usage}:{name}"),
                            tenancy: word.to_lowercase(),
                            rate: dollars(rate),
                        };
                        // What a reservation does not use has a line of its own.
                        plan.rates.push(DescribedRate {
                            usage_type: format!("USW2-UnusedBox:{name}"),
                            rate: "99".to_owned(),
                            ..row.clone()
                        });
                        plan.rates.push(row);
                        let what = Priced::Machine(machine(region, name, platform, tenancy));
                        card.insert(what, exact(rate));
                    }
                }
            }
            if kind != "SageMaker" {
                self.direct.savings_plans.push(SavingsPlan {
                    id: plan.arn(&account.id),
                    account: account.id.clone(),
                    kind: match family {
                        "" => PlanKind::Compute,
                        family => PlanKind::Ec2Instance {
                            family: family.to_owned(),
                            region: plan.region.clone(),
                        },
                    },
                    commitment: exact(commitment),
                    rates: id.clone(),
                    term: Interval::new(START.1, END.1),
                    state: State::Active,
                });
                self.direct.rates.insert(id, card);
            }
            account.plans.push(plan.clone());
            // One of before.
            plan.id = plan.id.replace("f0c1de", "dead00");
            plan.state = "retired".to_owned();
            account.plans.push(plan);
        }
    }
}

/// A spot price in one of the two zones.
fn spot(price: i64, zone: usize) -> i64 {
    price * (31 + i64::try_from(zone).unwrap()) / 100
}

/// Everything in an order that does not depend on how it came.
pub(crate) fn sorted(mut organization: Organization) -> Organization {
    organization.instances.sort();
    organization.reserved_instances.sort();
    organization.capacity_reservations.sort();
    organization.savings_plans.sort();
    organization
}

pub(crate) async fn client(double: &AwsDouble) -> Client {
    let (key, secret) = AwsDouble::keys(ACCOUNTS[0]);
    let keys = Credentials::new(key, secret, None, None, "test");
    Client::at("us-west-2", &double.url(), keys).await.unwrap()
}

/// Collects all three accounts: the first with the credentials that we have, the others through roles.
pub(crate) async fn collector(double: &AwsDouble, described: &Described) -> Collector {
    let accounts = described.accounts.iter().map(|account| Target {
        id: account.id.clone(),
        name: format!("account {}", account.id),
        role_arn: account.role_arn.clone(),
        external_id: account.external_id.clone(),
        regions: account.regions.keys().cloned().collect(),
    });
    let settings = Settings {
        accounts: accounts.collect(),
        intervals: Intervals {
            instances: Duration::from_secs(300),
            ..Intervals::default()
        },
        patience: Patience {
            attempts: 4,
            timeout: Duration::from_secs(4),
            pause: (Duration::from_millis(5), Duration::from_millis(50)),
        },
        ..Settings::default()
    };
    Collector::new(settings, &client(double).await)
}

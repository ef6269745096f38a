//! Organizations made by chance, as plain numbers and words: the allocator and the second implementation each read them in their own way.
//!
//! Few types, prices and amounts, so that usage and commitments meet, savings are equal, and commitments are used up.

use veneer_billing::{
    CapacityReservation, Exact, HOUR, Instance, Interval, Machine, Organization, PlanKind, Platform, Priced,
    Purchase, ReservedInstances, SavingsPlan, Sharing, SharingMode, State, Tenancy, UsageLine,
};

pub const START: i64 = 472_222 * HOUR;
/// Money is counted in millionths.
pub const MILLION: i64 = 1_000_000;

/// Random numbers (SplitMix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_number() % bound.max(1) as u64) as usize
    }

    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from + 1) as usize) as i64
    }

    pub fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }
}

const TYPES: [&str; 22] = [
    "m5.large",
    "m5.xlarge",
    "m5.2xlarge",
    "m5.24xlarge",
    "m5.metal",
    "t3.nano",
    "t3.micro",
    "t3.small",
    "t3.medium",
    "g5.xlarge",
    "g5.2xlarge",
    "p5.48xlarge",
    "inf1.xlarge",
    "u-6tb1.metal",
    "u-6tb1.112xlarge",
    "m7i.metal-24xl",
    "m7i.48xlarge",
    "m7i.large",
    "mac2.metal",
    "x9z.metal",
    "c5n.metal",
    "c5n.9xlarge",
];
const REGIONS: [&str; 2] = ["us-east-1", "eu-west-1"];
const LINES: [&str; 3] = ["Fargate-vCPU", "Fargate-GB", "Lambda-GB-Second"];
const PRICES: [i64; 8] = [MILLION, 2 * MILLION, 4 * MILLION, MILLION, 96_000, 3_100, 40, 0];
/// What is paid under a plan, in percent of the price.
const SHARES: [i64; 9] = [72, 72, 60, 50, 50, 28, 100, 0, 120];
pub const STATES: [&str; 8] = [
    "active",
    "queued",
    "retired",
    "pending-return",
    "payment-pending",
    "payment-failed",
    "queued-deleted",
    "returned",
];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub region: &'static str,
    pub instance_type: &'static str,
    pub platform: usize,
    pub tenancy: usize,
}

impl Kind {
    pub fn name(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            self.region, self.instance_type, self.platform, self.tenancy
        )
    }
}

#[derive(Clone, Debug)]
pub struct Ran {
    pub id: String,
    pub account: usize,
    pub zone: usize,
    pub kind: Kind,
    /// 0 on demand, 1 spot, 2 capacity block.
    pub purchase: usize,
    pub own_price: i64,
    pub reservation: Option<usize>,
    pub running: Vec<(i64, i64)>,
}

#[derive(Clone, Debug)]
pub struct Capacity {
    pub account: usize,
    pub zone: usize,
    pub kind: Kind,
    pub count: i64,
    pub active: (i64, i64),
}

#[derive(Clone, Debug)]
pub struct Other {
    pub id: String,
    pub account: usize,
    pub region: &'static str,
    pub usage_type: &'static str,
    /// Of hours of instances: what and in which zone.
    pub kind: Option<(Kind, usize)>,
    /// Whether it is spot, and for how much.
    pub spot: Option<i64>,
    pub at: i64,
    pub quantity: i64,
}

#[derive(Clone, Debug)]
pub struct Reserved {
    pub id: String,
    pub account: usize,
    pub zone: Option<usize>,
    pub kind: Kind,
    pub count: i64,
    pub term: (i64, i64),
    pub state: usize,
    pub upfront: i64,
    pub hourly: i64,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub id: String,
    pub account: usize,
    pub family: Option<(&'static str, &'static str)>,
    pub commitment: i64,
    pub card: usize,
    pub term: (i64, i64),
    pub state: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// 0 off, 1 organization, 2 prioritized, 3 restricted.
    pub mode: usize,
    pub groups: Vec<Option<usize>>,
    pub excluded: Vec<bool>,
    pub ran: Vec<Ran>,
    pub capacity: Vec<Capacity>,
    pub other: Vec<Other>,
    pub reserved: Vec<Reserved>,
    pub plans: Vec<Plan>,
    /// Millionths by name.
    pub prices: Vec<(String, i64)>,
    pub cards: Vec<Vec<(String, i64)>>,
}

pub fn zone_name(region: &str, zone: usize) -> String {
    format!("{region}{}", ["a", "b"][zone])
}

pub fn line_name(region: &str, usage_type: &str) -> String {
    format!("{region}/{usage_type}")
}

fn term(chance: &mut Chance) -> (i64, i64) {
    let year = 8760 * HOUR;
    match chance.below(12) {
        0 => (START - year, START + chance.between(1, 3599)),
        1 => (START + chance.between(1, 3599), START + year),
        2 => (
            START + chance.between(1, 1800),
            START + chance.between(1800, 3599),
        ),
        3 => (START - year, START),
        4 => (START + HOUR, START + year),
        5 => (START, START + HOUR),
        // Few distinct ends, so that the id decides.
        _ => (
            START - 100 * HOUR,
            START - 100 * HOUR + year * chance.pick(&[1, 1, 3]),
        ),
    }
}

fn running(chance: &mut Chance) -> Vec<(i64, i64)> {
    match chance.below(8) {
        0 => {
            let from = chance.between(0, 3599);
            vec![(START + from, START + chance.between(from, 3600))]
        }
        1 => vec![
            (START - 5000, START + chance.between(0, 3600)),
            (START + 1800, START + 2700),
        ],
        2 => vec![
            (START + 100, START + 1000),
            (START + chance.between(0, 2000), START + 9999),
        ],
        3 => vec![(START, START + 900)],
        4 => vec![],
        _ => vec![(START - 10 * HOUR, START + 10 * HOUR)],
    }
}

/// The organization of a number.
pub fn spec(seed: u64) -> Spec {
    let chance = &mut Chance(seed.wrapping_mul(0xA24B_AED4_963E_E407));
    let accounts = 1 + chance.below(4);
    let mut kinds = Vec::new();
    let plain = chance.one_in(2);
    let types: Vec<&'static str> = {
        let first = chance.below(TYPES.len());
        (0..1 + chance.below(5))
            .map(|step| TYPES[(first + step) % TYPES.len()])
            .collect()
    };
    for _ in 0..1 + chance.below(6) {
        kinds.push(Kind {
            region: if plain || chance.one_in(2) {
                REGIONS[0]
            } else {
                chance.pick(&REGIONS)
            },
            instance_type: chance.pick(&types),
            platform: if plain || chance.one_in(2) {
                0
            } else {
                chance.below(8)
            },
            tenancy: if plain || chance.one_in(2) {
                0
            } else {
                chance.below(3)
            },
        });
    }
    let mut spec = Spec {
        mode: chance.pick(&[1, 1, 2, 3, 0]),
        groups: (0..accounts)
            .map(|_| (!chance.one_in(3)).then(|| chance.below(2)))
            .collect(),
        excluded: (0..accounts).map(|_| chance.one_in(10)).collect(),
        ..Spec::default()
    };
    for _ in 0..chance.pick(&[0, 0, 1, 2]) {
        spec.capacity.push(Capacity {
            account: chance.below(accounts),
            zone: chance.below(2),
            kind: chance.pick(&kinds),
            count: chance.between(0, 4),
            active: term(chance),
        });
    }
    for number in 0..chance.below(13) {
        let reservation =
            (!spec.capacity.is_empty() && chance.one_in(3)).then(|| chance.below(spec.capacity.len()));
        let mut one = Ran {
            id: format!("i-{}", (number * 7) % 10),
            account: chance.below(accounts),
            zone: chance.below(2),
            kind: chance.pick(&kinds),
            purchase: chance.pick(&[0, 0, 0, 0, 0, 0, 0, 1, 2]),
            own_price: chance.pick(&PRICES),
            reservation,
            running: running(chance),
        };
        if chance.one_in(30) {
            // A reservation that nobody knows.
            one.reservation = Some(99);
        } else if let Some(number) = reservation.filter(|_| !chance.one_in(4)) {
            one.kind = spec.capacity[number].kind.clone();
            one.zone = spec.capacity[number].zone;
        }
        spec.ran.push(one);
    }
    for number in 0..chance.pick(&[0, 0, 1, 3, 4]) {
        spec.other.push(Other {
            id: if chance.one_in(4) {
                "i-3".to_owned()
            } else {
                format!("line-{}", number % 2)
            },
            account: chance.below(accounts),
            region: chance.pick(&REGIONS),
            usage_type: chance.pick(&LINES),
            kind: chance.one_in(3).then(|| (chance.pick(&kinds), chance.below(2))),
            spot: chance.one_in(9).then(|| chance.pick(&PRICES)),
            at: START + chance.pick(&[0, 0, 5, 3599, 3600, -1]),
            quantity: chance.pick(&[0, 1, 3, 7, 1000]) * MILLION / chance.pick(&[1, 1, 3]),
        });
    }
    prices(chance, &kinds, &mut spec);
    for number in 0..chance.pick(&[0, 1, 2, 3, 6]) {
        let one = Reserved {
            id: format!("ri-{}", (number * 5 + 3) % 7),
            account: chance.below(accounts),
            zone: chance.one_in(3).then(|| chance.below(2)),
            kind: chance.pick(&kinds),
            count: chance.pick(&[1, 1, 1, 2, 3, 0]),
            term: term(chance),
            state: chance.pick(&[0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]),
            upfront: chance.pick(&[0, 0, 365 * MILLION, 60 * MILLION]),
            hourly: chance.pick(&[0, 7_000, 30_900, 100_000]),
        };
        if chance.one_in(12) {
            spec.reserved.push(one.clone());
        }
        spec.reserved.push(one);
    }
    for number in 0..chance.pick(&[0, 1, 1, 2, 3, 5]) {
        let kind = chance.pick(&kinds);
        let family = kind.instance_type.split('.').next().unwrap();
        let amount = match chance.below(4) {
            0 => chance.between(0, 3 * MILLION),
            _ => chance.pick(&[
                MILLION,
                MILLION / 2,
                3 * MILLION,
                20 * MILLION,
                MILLION / 10,
                0,
                5_000 * MILLION,
            ]),
        };
        let unknown_card = usize::from(chance.one_in(20));
        let one = Plan {
            id: format!("sp-{}", (number * 3 + 1) % 5),
            account: chance.below(accounts),
            family: chance.one_in(2).then_some((family, kind.region)),
            commitment: amount,
            card: chance.below(spec.cards.len() + unknown_card),
            term: term(chance),
            state: chance.pick(&[0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]),
        };
        if chance.one_in(12) {
            spec.plans.push(one.clone());
        }
        spec.plans.push(one);
    }
    spec
}

fn prices(chance: &mut Chance, kinds: &[Kind], spec: &mut Spec) {
    let mut names: Vec<String> = kinds.iter().map(Kind::name).collect();
    for region in REGIONS {
        names.extend(LINES.map(|usage_type| line_name(region, usage_type)));
    }
    names.sort();
    names.dedup();
    spec.cards = vec![Vec::new(); 1 + chance.below(3)];
    for name in names {
        let price = chance.pick(&PRICES);
        for card in &mut spec.cards {
            if !chance.one_in(15) {
                let rate = match chance.below(8) {
                    0 => chance.between(0, price),
                    _ => price * chance.pick(&SHARES) / 100,
                };
                card.push((name.clone(), rate + i64::from(chance.one_in(30))));
            }
        }
        if !chance.one_in(20) {
            spec.prices.push((name, price));
        }
    }
}

fn money(millionths: i64) -> Exact {
    Exact::fraction(i128::from(millionths), i128::from(MILLION)).unwrap()
}

impl Kind {
    fn machine(&self) -> Machine {
        let platforms = [
            Platform::Linux,
            Platform::RedHat,
            Platform::Suse,
            Platform::UbuntuPro,
            Platform::Windows,
            Platform::WindowsByol,
            Platform::MacOs,
            Platform::Other("0102".to_owned()),
        ];
        Machine {
            region: self.region.to_owned(),
            instance_type: self.instance_type.to_owned(),
            platform: platforms[self.platform].clone(),
            tenancy: [Tenancy::Default, Tenancy::Dedicated, Tenancy::Host][self.tenancy],
        }
    }
}

pub fn account_name(number: usize) -> String {
    format!("account-{number}")
}

pub fn capacity_name(number: usize) -> String {
    format!("cr-{number}")
}

fn table(spec: &Spec, list: &[(String, i64)]) -> veneer_billing::PriceTable {
    let machines = spec
        .ran
        .iter()
        .map(|one| &one.kind)
        .chain(spec.capacity.iter().map(|one| &one.kind))
        .chain(spec.other.iter().filter_map(|one| Some(&one.kind.as_ref()?.0)));
    let mut known: Vec<(String, Priced)> = machines
        .map(|kind| (kind.name(), Priced::Machine(kind.machine())))
        .collect();
    for region in REGIONS {
        known.extend(LINES.map(|usage_type| {
            let priced = Priced::Usage {
                region: region.to_owned(),
                usage_type: usage_type.to_owned(),
            };
            (line_name(region, usage_type), priced)
        }));
    }
    let find = |name: &str| {
        known
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, priced)| priced.clone())
    };
    list.iter()
        .filter_map(|(name, price)| Some((find(name)?, money(*price))))
        .collect()
}

/// As the allocator reads it.
pub fn organization(spec: &Spec) -> Organization {
    let interval = |(start, end): (i64, i64)| Interval::new(start, end);
    let mut organization = Organization {
        sharing: Sharing {
            mode: [
                SharingMode::Off,
                SharingMode::Organization,
                SharingMode::PrioritizedGroup,
                SharingMode::RestrictedGroup,
            ][spec.mode],
            groups: spec
                .groups
                .iter()
                .enumerate()
                .filter_map(|(account, group)| Some((account_name(account), group.as_ref()?.to_string())))
                .collect(),
            excluded: (0..spec.excluded.len())
                .filter(|one| spec.excluded[*one])
                .map(account_name)
                .collect(),
        },
        ..Organization::default()
    };
    for one in &spec.ran {
        organization.instances.push(Instance {
            id: one.id.clone(),
            account: account_name(one.account),
            zone: zone_name(one.kind.region, one.zone),
            machine: one.kind.machine(),
            purchase: match one.purchase {
                0 => Purchase::OnDemand,
                1 => Purchase::Spot(money(one.own_price)),
                _ => Purchase::CapacityBlock(money(one.own_price)),
            },
            capacity_reservation: one.reservation.map(capacity_name),
            running: one.running.iter().copied().map(interval).collect(),
        });
    }
    for (number, one) in spec.capacity.iter().enumerate() {
        organization.capacity_reservations.push(CapacityReservation {
            id: capacity_name(number),
            account: account_name(one.account),
            zone: zone_name(one.kind.region, one.zone),
            machine: one.kind.machine(),
            count: u32::try_from(one.count).unwrap(),
            active: interval(one.active),
        });
    }
    for one in &spec.other {
        organization.usage_lines.push(UsageLine {
            id: one.id.clone(),
            account: account_name(one.account),
            zone: one
                .kind
                .as_ref()
                .map(|(kind, zone)| zone_name(kind.region, *zone)),
            what: match &one.kind {
                Some((kind, _)) => Priced::Machine(kind.machine()),
                None => Priced::Usage {
                    region: one.region.to_owned(),
                    usage_type: one.usage_type.to_owned(),
                },
            },
            purchase: one
                .spot
                .map_or(Purchase::OnDemand, |price| Purchase::Spot(money(price))),
            at: one.at,
            quantity: money(one.quantity),
        });
    }
    for one in &spec.reserved {
        organization.reserved_instances.push(ReservedInstances {
            id: one.id.clone(),
            account: account_name(one.account),
            machine: one.kind.machine(),
            zone: one.zone.map(|zone| zone_name(one.kind.region, zone)),
            count: u32::try_from(one.count).unwrap(),
            term: interval(one.term),
            state: State::from_name(STATES[one.state]).unwrap(),
            upfront: money(one.upfront),
            hourly: money(one.hourly),
        });
    }
    for one in &spec.plans {
        organization.savings_plans.push(SavingsPlan {
            id: one.id.clone(),
            account: account_name(one.account),
            kind: match one.family {
                None => PlanKind::Compute,
                Some((family, region)) => PlanKind::Ec2Instance {
                    family: family.to_owned(),
                    region: region.to_owned(),
                },
            },
            commitment: money(one.commitment),
            rates: one.card.to_string(),
            term: interval(one.term),
            state: State::from_name(STATES[one.state]).unwrap(),
        });
    }
    organization.prices.on_demand = table(spec, &spec.prices);
    for (number, card) in spec.cards.iter().enumerate() {
        organization.rates.insert(number.to_string(), table(spec, card));
    }
    organization
}

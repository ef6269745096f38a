//! Days and months made by chance: organizations whose bills can be written as a report, in which one thing has one name.

use crate::generated::{Capacity, Chance, Kind, MILLION, Other, Plan, Ran, Reserved, START, Spec, line_name};

const TYPES: [&str; 14] = [
    "m5.large",
    "m5.xlarge",
    "m5.2xlarge",
    "m5.metal",
    "t3.micro",
    "t3.small",
    "t3.medium",
    "g5.xlarge",
    "g5.2xlarge",
    "m7i.large",
    "m7i.metal-24xl",
    "c5n.large",
    "c5n.9xlarge",
    "x9z.metal",
];
const REGIONS: [&str; 2] = ["us-east-1", "eu-west-1"];
const LINES: [&str; 3] = ["Fargate-vCPU", "Fargate-GB", "Lambda-GB-Second"];
const PRICES: [i64; 7] = [MILLION, 2 * MILLION, 4 * MILLION, MILLION, 96_000, 3_100, 417_600];
/// What is paid under a plan, in percent of the price.
const SHARES: [i64; 9] = [72, 72, 60, 50, 50, 28, 100, 0, 120];
/// All but macOS, which usage operations do not name.
const PLATFORMS: [usize; 7] = [0, 1, 2, 3, 4, 5, 7];

fn term(chance: &mut Chance, hours: i64) -> (i64, i64) {
    let year = 8760 * 3600;
    let inside = |chance: &mut Chance| START + chance.between(0, hours * 3600);
    match chance.below(8) {
        0 => (START - year, inside(chance)),
        1 => (inside(chance), START + year),
        2 => {
            let from = chance.between(0, hours * 1800);
            (START + from, START + chance.between(from + 1, hours * 3600))
        }
        // Few distinct ends, so that the id decides.
        _ => (
            START - 100 * 3600,
            START - 100 * 3600 + year * chance.pick(&[1, 1, 3]),
        ),
    }
}

fn running(chance: &mut Chance, hours: i64) -> Vec<(i64, i64)> {
    let end = hours * 3600;
    match chance.below(6) {
        0 => {
            let from = chance.between(0, end - 1);
            vec![(START + from, START + chance.between(from, end))]
        }
        1 => {
            let middle = chance.between(1, end - 1);
            vec![
                (START, START + chance.between(0, middle)),
                (START + middle, START + chance.between(middle, end)),
            ]
        }
        2 => vec![(START, START + chance.between(0, 7200))],
        _ => vec![(START - 10 * 3600, START + end)],
    }
}

/// The organization of a number, over so many hours.
pub fn spec(seed: u64, hours: i64) -> Spec {
    let chance = &mut Chance(seed.wrapping_mul(0xD1B5_4A32_D192_ED03) ^ 0x5EED);
    let accounts = 1 + chance.below(3);
    let plain = chance.one_in(2);
    let first = chance.below(TYPES.len());
    let types: Vec<&'static str> = (0..1 + chance.below(4))
        .map(|step| TYPES[(first + step) % TYPES.len()])
        .collect();
    let kinds: Vec<Kind> = (0..1 + chance.below(5))
        .map(|_| Kind {
            region: match plain || chance.one_in(2) {
                true => REGIONS[0],
                false => chance.pick(&REGIONS),
            },
            instance_type: chance.pick(&types),
            platform: match plain || chance.one_in(2) {
                true => 0,
                false => chance.pick(&PLATFORMS),
            },
            tenancy: match plain || chance.one_in(2) {
                true => 0,
                false => chance.below(2),
            },
        })
        .collect();
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
            count: chance.between(1, 4),
            active: term(chance, hours),
        });
    }
    for number in 0..1 + chance.below(9) {
        let reservation =
            (!spec.capacity.is_empty() && chance.one_in(3)).then(|| chance.below(spec.capacity.len()));
        let mut one = Ran {
            id: format!("i-{number}"),
            account: chance.below(accounts),
            zone: chance.below(2),
            kind: chance.pick(&kinds),
            purchase: chance.pick(&[0, 0, 0, 0, 0, 0, 0, 1]),
            own_price: chance.pick(&PRICES),
            reservation,
            running: running(chance, hours),
        };
        if let Some(number) = reservation {
            one.kind = spec.capacity[number].kind.clone();
            one.zone = spec.capacity[number].zone;
            one.purchase = 0;
        }
        if one.purchase == 1 {
            one.kind.tenancy = 0;
        }
        spec.ran.push(one);
    }
    for number in 0..chance.pick(&[0, 0, 1, 2]) {
        let (account, region, usage_type) =
            (chance.below(accounts), chance.pick(&REGIONS), chance.pick(&LINES));
        for hour in 0..hours {
            if !chance.one_in(4) {
                spec.other.push(Other {
                    id: format!("task-{number}"),
                    account,
                    region,
                    usage_type,
                    kind: None,
                    spot: None,
                    at: START + hour * 3600,
                    quantity: chance.pick(&[1, 3, 7, 1000]) * MILLION / chance.pick(&[1, 1, 3]),
                });
            }
        }
    }
    prices(chance, &kinds, &mut spec);
    for number in 0..chance.pick(&[0, 1, 2, 3, 5]) {
        spec.reserved.push(Reserved {
            id: format!("ri-{number}"),
            account: chance.below(accounts),
            zone: chance.one_in(3).then(|| chance.below(2)),
            kind: chance.pick(&kinds),
            count: chance.pick(&[1, 1, 1, 2, 3]),
            term: term(chance, hours),
            state: 0,
            upfront: chance.pick(&[0, 0, 365 * MILLION, 60 * MILLION]),
            hourly: chance.pick(&[0, 7_000, 30_900, 100_000]),
        });
    }
    for number in 0..chance.pick(&[0, 1, 1, 2, 3]) {
        let kind = chance.pick(&kinds);
        let family = kind.instance_type.split('.').next().unwrap();
        spec.plans.push(Plan {
            id: format!("sp-{number}"),
            account: chance.below(accounts),
            family: chance.one_in(2).then_some((family, kind.region)),
            commitment: match chance.below(4) {
                0 => chance.between(1, 3 * MILLION),
                _ => chance.pick(&[MILLION, MILLION / 2, 3 * MILLION, 20 * MILLION, MILLION / 10]),
            },
            card: chance.below(spec.cards.len()),
            term: term(chance, hours),
            state: 0,
        });
    }
    spec
}

fn prices(chance: &mut Chance, kinds: &[Kind], spec: &mut Spec) {
    let mut names: Vec<String> = kinds.iter().map(Kind::name).collect();
    names.extend(spec.ran.iter().map(|one| one.kind.name()));
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
                card.push((name.clone(), rate));
            }
        }
        spec.prices.push((name, price));
    }
}

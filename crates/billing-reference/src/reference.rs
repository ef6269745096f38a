//! The bill of an hour once more, slowly: every second is counted, every pair of a commitment and usage is written down with what decides its
//! place, the list is sorted, and each pair takes what it can get. It shares no code with the allocator: its own fractions, sizes and
//! matching, from the text of the rules.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use num_bigint::BigInt;

use crate::generated::{Kind, MILLION, START, STATES, Spec, account_name, capacity_name, line_name};

/// A fraction, reduced when it is shown or compared.
#[derive(Clone, Debug)]
pub struct Fraction(BigInt, BigInt);

impl Fraction {
    pub fn new(top: i64, bottom: i64) -> Self {
        Self(BigInt::from(top), BigInt::from(bottom)).reduce()
    }
    fn reduce(self) -> Self {
        let (mut a, mut b) = (self.0.clone(), self.1.clone());
        while b != BigInt::from(0) {
            (a, b) = (b.clone(), a % b);
        }
        if (a < BigInt::from(0)) != (self.1 < BigInt::from(0)) {
            a = -a;
        }
        Self(self.0 / &a, self.1 / &a)
    }
    pub fn add(&self, other: &Self) -> Self {
        Self(&self.0 * &other.1 + &other.0 * &self.1, &self.1 * &other.1).reduce()
    }
    pub fn sub(&self, other: &Self) -> Self {
        Self(&self.0 * &other.1 - &other.0 * &self.1, &self.1 * &other.1).reduce()
    }
    pub fn mul(&self, other: &Self) -> Self {
        Self(&self.0 * &other.0, &self.1 * &other.1).reduce()
    }
    pub fn div(&self, other: &Self) -> Self {
        Self(&self.0 * &other.1, &self.1 * &other.0).reduce()
    }
    pub fn is_zero(&self) -> bool {
        self.0 == BigInt::from(0)
    }
}

impl Fraction {
    /// Ten decimals, as a report has them; a half is rounded up.
    pub fn decimal(&self) -> String {
        let (top, bottom) = (&self.0, &self.1);
        let is_negative = *top < BigInt::from(0);
        let top = if is_negative { -top.clone() } else { top.clone() };
        let scaled = (top * 20_000_000_000_i64 + bottom) / (bottom * 2_i64);
        let (whole, rest) = (&scaled / 10_000_000_000_i64, &scaled % 10_000_000_000_i64);
        let sign = if is_negative { "-" } else { "" };
        format!("{sign}{whole}.{:0>10}", rest.to_string())
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Fraction {}
impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.0 * &other.1).cmp(&(&other.0 * &self.1))
    }
}
impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 == BigInt::from(1) {
            write!(f, "{}", self.0)
        } else {
            write!(f, "{}/{}", self.0, self.1)
        }
    }
}

/// Rules 5 and 6, as a fraction of AWS's unit.
pub fn factor(instance_type: &str) -> Option<Fraction> {
    let (family, size) = instance_type.split_once('.')?;
    let small = [
        ("nano", 1, 4),
        ("micro", 1, 2),
        ("small", 1, 1),
        ("medium", 2, 1),
        ("large", 4, 1),
        ("xlarge", 8, 1),
    ];
    if let Some((_, top, bottom)) = small.iter().find(|(name, _, _)| *name == size) {
        return Some(Fraction::new(*top, *bottom));
    }
    let metal = "a1 32|m5zn x2iezn z1d 96|c6g c6gd i3 m6g m6gd r6g r6gd x2gd 128|c5n 144|\
                 c5 c5d i3en m5 m5d m5dn m5n r5 r5b r5d r5dn r5n 192|c6i c6id m6i m6id r6id 256|\
                 u-18tb1 u-24tb1 448|u-6tb1 u-9tb1 u-12tb1 896";
    if size == "metal" {
        for row in metal.split('|') {
            let words: Vec<&str> = row.trim().split(' ').collect();
            let (number, families) = words.split_last()?;
            if families.contains(&family) {
                return Some(Fraction::new(number.parse().ok()?, 1));
            }
        }
        return None;
    }
    let digits: String = size.chars().filter(char::is_ascii_digit).collect();
    let count: i64 = digits.parse().ok()?;
    Some(Fraction::new(8 * count, 1))
}

/// Rule 3.
pub fn is_flexible(kind: &Kind) -> bool {
    let excluded = "g4ad g4dn g5 g5g g6 g6e g6f gr6 gr6f hpc7a p5 inf1 inf2 u7i-6tb u7i-8tb";
    let family = kind.instance_type.split('.').next().unwrap();
    kind.platform == 0
        && kind.tenancy == 0
        && !excluded.split(' ').any(|one| one == family)
        && factor(kind.instance_type).is_some()
}

/// Rules 7 and 11: 0 the owner, 1 its group, 2 the rest.
fn reach(spec: &Spec, owner: usize, user: usize) -> Option<i32> {
    if owner == user {
        return Some(0);
    }
    if spec.excluded[owner] || spec.excluded[user] {
        return None;
    }
    let same = spec.groups[owner].is_some() && spec.groups[owner] == spec.groups[user];
    match spec.mode {
        0 => None,
        1 => Some(2),
        2 => Some(if same { 1 } else { 2 }),
        _ => same.then_some(1),
    }
}

/// Something used in the hour. A unit of other usage counts as an hour.
#[derive(Clone, Debug)]
pub struct Used {
    pub id: String,
    /// Its place in the order of ids.
    order: (String, i32, String, String, String, usize, i64, usize, String),
    pub account: usize,
    pub zone: usize,
    pub kind: Option<Kind>,
    pub name: String,
    pub is_unused: bool,
    pub is_eligible: bool,
    /// Of spot and capacity blocks, in millionths.
    pub own_price: Option<i64>,
    pub hours: Fraction,
    /// What no commitment pays.
    pub left: Fraction,
    /// Who pays how many hours.
    pub shares: Vec<(String, Fraction)>,
}

fn seconds(hour: i64, intervals: &[(i64, i64)]) -> i64 {
    let all = hour..hour + 3600;
    all.filter(|second| intervals.iter().any(|(from, to)| from <= second && second < to))
        .count() as i64
}

fn usages(spec: &Spec, hour: i64) -> Vec<Used> {
    let mut found: BTreeMap<_, (Vec<(i64, i64)>, usize)> = BTreeMap::new();
    for (number, one) in spec.ran.iter().enumerate() {
        // The words that tell apart what one instance was in the hour.
        let own_price = if one.purchase == 0 { 0 } else { one.own_price };
        let reservation = one.reservation.map(capacity_name).unwrap_or_default();
        let kind = &one.kind;
        let order = (
            one.id.clone(),
            0,
            account_name(one.account),
            format!("{}/{}", kind.region, one.zone),
            format!("{}/{}/{}", kind.instance_type, kind.platform, kind.tenancy),
            one.purchase,
            own_price,
            0,
            reservation,
        );
        let entry = found.entry(order).or_insert((Vec::new(), number));
        entry.0.extend(&one.running);
    }
    let mut by_reservation: BTreeMap<usize, i64> = BTreeMap::new();
    let mut all = Vec::new();
    for (order, (running, number)) in found {
        let one = &spec.ran[number];
        let seconds = seconds(hour, &running);
        if let Some(reservation) = one.reservation {
            let active = spec.capacity.get(reservation).map_or((0, 0), |of| of.active);
            let inside = running
                .iter()
                .map(|(from, to)| (*from.max(&active.0), *to.min(&active.1)));
            let inside: Vec<(i64, i64)> = inside.collect();
            *by_reservation.entry(reservation).or_default() += self::seconds(hour, &inside);
        }
        all.push(Used {
            id: one.id.clone(),
            order,
            account: one.account,
            zone: one.zone,
            kind: Some(one.kind.clone()),
            name: one.kind.name(),
            is_unused: false,
            is_eligible: one.purchase == 0,
            own_price: (one.purchase != 0).then_some(one.own_price),
            hours: Fraction::new(seconds, 3600),
            left: Fraction::new(seconds, 3600),
            shares: Vec::new(),
        });
    }
    let mut lines: BTreeMap<_, (Fraction, usize)> = BTreeMap::new();
    for (number, one) in spec.other.iter().enumerate() {
        if one.at >= hour && one.at < hour + 3600 {
            // Without a zone comes before with one, machines before other usage.
            let (zone, what) = match &one.kind {
                Some((kind, zone)) => {
                    let what = format!("{}/{}/{}", kind.instance_type, kind.platform, kind.tenancy);
                    (format!("{}/{zone}", kind.region), what)
                }
                None => (String::new(), format!("{}/{}", one.region, one.usage_type)),
            };
            let spot = (usize::from(one.spot.is_some()), one.spot.unwrap_or_default());
            let key = (one.id.clone(), account_name(one.account), zone, what, spot);
            let entry = lines.entry(key).or_insert((Fraction::new(0, 1), number));
            entry.0 = entry.0.add(&Fraction::new(one.quantity, MILLION));
        }
    }
    for ((id, account, zone, what, spot), (quantity, number)) in lines {
        let one = &spec.other[number];
        let name = match &one.kind {
            Some((kind, _)) => kind.name(),
            None => line_name(one.region, one.usage_type),
        };
        all.push(Used {
            id: id.clone(),
            order: (id, 1, account, zone, what, spot.0, spot.1, 0, String::new()),
            account: one.account,
            zone: one.kind.as_ref().map_or(0, |(_, zone)| *zone),
            kind: one.kind.as_ref().map(|(kind, _)| kind.clone()),
            name,
            is_unused: false,
            is_eligible: one.spot.is_none(),
            own_price: one.spot,
            hours: quantity.clone(),
            left: quantity,
            shares: Vec::new(),
        });
    }
    for (number, one) in spec.capacity.iter().enumerate() {
        let used = by_reservation.get(&number).copied().unwrap_or_default();
        let unused = (seconds(hour, &[one.active]) * one.count - used).max(0);
        let id = capacity_name(number);
        all.push(Used {
            order: (
                id.clone(),
                2,
                String::new(),
                String::new(),
                String::new(),
                0,
                0,
                0,
                String::new(),
            ),
            id,
            account: one.account,
            zone: one.zone,
            kind: Some(one.kind.clone()),
            name: one.kind.name(),
            is_unused: true,
            is_eligible: true,
            own_price: None,
            hours: Fraction::new(unused, 3600),
            left: Fraction::new(unused, 3600),
            shares: Vec::new(),
        });
    }
    all.retain(|one| !one.hours.is_zero());
    all
}

/// A commitment in the hour: what it has in its own units, and what a unit costs.
#[derive(Clone, Debug)]
pub struct Committed {
    pub id: String,
    end: i64,
    /// Size-hours of Reserved Instances, dollars of a plan.
    pub capacity: Fraction,
    pub left: Fraction,
    /// Dollars for a unit of capacity.
    pub unit_cost: Fraction,
    /// How much of the capacity one Reserved Instance is for an hour; 1 for a plan.
    pub own: Fraction,
    pub is_plan: bool,
}

/// The bill of one hour.
pub struct Hour {
    pub usages: Vec<Used>,
    pub committed: Vec<Committed>,
    reserved: usize,
}

/// What decides the place of a pair, in this order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// 0 zonal, 1 regional, 2 EC2 Instance plans, 3 Compute plans.
    stage: i32,
    reach: i32,
    is_unused: bool,
    /// Of Reserved Instances: the size.
    size: Fraction,
    /// Of plans: infinitely bad, then the share of the price that is paid, then the rate.
    is_infinite: bool,
    paid: Fraction,
    rate: Fraction,
    end: i64,
    id: String,
    usage: usize,
}

/// One line for each usage and each commitment of the first hour, and one for the totals.
pub fn bill(spec: &Spec) -> Vec<String> {
    let hour = hour(spec, START);
    show(spec, &hour.usages, hour.committed, hour.reserved)
}

/// Bills the clock hour that begins at a second.
pub fn hour(spec: &Spec, hour: i64) -> Hour {
    let mut usages = usages(spec, hour);
    usages.sort_by(|a, b| a.order.cmp(&b.order));
    let mut committed: Vec<Committed> = Vec::new();
    let mut pairs: Vec<(Place, usize, Fraction)> = Vec::new();
    let zero = Fraction::new(0, 1);
    let counts = |state: usize| ["active", "queued", "retired", "pending-return"].contains(&STATES[state]);
    let mut seen = BTreeSet::new();
    for one in spec
        .reserved
        .iter()
        .filter(|one| counts(one.state) && seen.insert(one.id.clone()))
    {
        let active = seconds(hour, &[one.term]);
        if active == 0 {
            continue;
        }
        let is_flexible_one = one.zone.is_none() && is_flexible(&one.kind);
        let own = if is_flexible_one {
            factor(one.kind.instance_type).unwrap()
        } else {
            Fraction::new(1, 1)
        };
        let term_hours = Fraction::new(one.term.1 - one.term.0, 3600);
        let fees = Fraction::new(one.upfront, MILLION)
            .div(&term_hours)
            .add(&Fraction::new(one.hourly, MILLION));
        let capacity = Fraction::new(active * one.count, 3600).mul(&own);
        for (number, usage) in usages.iter().enumerate().filter(|(_, usage)| usage.is_eligible) {
            let Some(kind) = &usage.kind else { continue };
            let has_reserved = |kind: &Kind| kind.platform != 3 && kind.platform != 6 && kind.tenancy != 2;
            let family = |kind: &Kind| kind.instance_type.split('.').next().unwrap();
            let (stage, matches) = match one.zone {
                Some(zone) => (0, *kind == one.kind && zone == usage.zone && !usage.is_unused),
                None if is_flexible_one => {
                    let same = kind.region == one.kind.region && family(kind) == family(&one.kind);
                    (1, same && is_flexible(kind))
                }
                None => (1, *kind == one.kind),
            };
            let Some(reach) = reach(spec, one.account, usage.account) else {
                continue;
            };
            if !matches || !has_reserved(kind) {
                continue;
            }
            let size = if is_flexible_one {
                factor(kind.instance_type).unwrap()
            } else {
                Fraction::new(1, 1)
            };
            let place = Place {
                stage,
                reach,
                is_unused: usage.is_unused,
                size: size.clone(),
                is_infinite: false,
                paid: zero.clone(),
                rate: zero.clone(),
                end: one.term.1,
                id: one.id.clone(),
                usage: number,
            };
            pairs.push((place, committed.len(), size));
        }
        committed.push(Committed {
            id: one.id.clone(),
            end: one.term.1,
            left: capacity.clone(),
            capacity,
            unit_cost: fees.div(&own),
            own,
            is_plan: false,
        });
    }
    let reserved = committed.len();
    seen.clear();
    let find = |list: &[(String, i64)], name: &str| {
        let found = list.iter().find(|(other, _)| other == name);
        found.map(|(_, amount)| Fraction::new(*amount, MILLION))
    };
    for one in spec
        .plans
        .iter()
        .filter(|one| counts(one.state) && seen.insert(one.id.clone()))
    {
        let active = seconds(hour, &[one.term]);
        if active == 0 {
            continue;
        }
        for (number, usage) in usages.iter().enumerate().filter(|(_, usage)| usage.is_eligible) {
            let covers = match (one.family, &usage.kind) {
                (None, _) => true,
                (Some((family, region)), Some(kind)) => {
                    kind.region == region && kind.instance_type.split('.').next() == Some(family)
                }
                (Some(_), None) => false,
            };
            let reach = reach(spec, one.account, usage.account);
            let price = find(&spec.prices, &usage.name);
            let rate = spec.cards.get(one.card).and_then(|card| find(card, &usage.name));
            let (true, Some(reach), Some(price), Some(rate)) = (covers, reach, price, rate) else {
                continue;
            };
            let is_infinite = price.is_zero() && !rate.is_zero();
            let paid = match price.is_zero() {
                false => rate.div(&price),
                true => Fraction::new(1, 1),
            };
            let place = Place {
                stage: if one.family.is_some() { 2 } else { 3 },
                reach,
                is_unused: usage.is_unused,
                size: zero.clone(),
                is_infinite,
                paid,
                rate: rate.clone(),
                end: one.term.1,
                id: one.id.clone(),
                usage: number,
            };
            pairs.push((place, committed.len(), rate));
        }
        let capacity = Fraction::new(one.commitment, MILLION).mul(&Fraction::new(active, 3600));
        committed.push(Committed {
            id: one.id.clone(),
            end: one.term.1,
            left: capacity.clone(),
            capacity,
            unit_cost: Fraction::new(1, 1),
            own: Fraction::new(1, 1),
            is_plan: true,
        });
    }
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    for (place, number, needed_for_one) in pairs {
        let (usage, one) = (&mut usages[place.usage], &mut committed[number]);
        let covered = match needed_for_one.is_zero() {
            true => usage.left.clone(),
            false => one.left.div(&needed_for_one).min(usage.left.clone()),
        };
        if covered.is_zero() {
            continue;
        }
        usage.left = usage.left.sub(&covered);
        one.left = one.left.sub(&covered.mul(&needed_for_one));
        usage.shares.push((one.id.clone(), covered));
    }
    Hour {
        usages,
        committed,
        reserved,
    }
}

fn show(spec: &Spec, usages: &[Used], committed: Vec<Committed>, reserved: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut on_demand = Fraction::new(0, 1);
    for usage in usages {
        let price = match usage.own_price {
            Some(price) => Some(price),
            None => spec
                .prices
                .iter()
                .find(|(name, _)| *name == usage.name)
                .map(|(_, price)| *price),
        };
        let cost = usage.left.mul(&Fraction::new(price.unwrap_or_default(), MILLION));
        on_demand = on_demand.add(&cost);
        let shares: Vec<String> = usage
            .shares
            .iter()
            .map(|(id, hours)| format!("{id} {hours}"))
            .collect();
        lines.push(format!(
            "{} {}: {} + {} = ${cost}",
            usage.id,
            usage.hours,
            shares.join(", "),
            usage.left
        ));
    }
    let (mut paid, mut unused) = (Fraction::new(0, 1), Fraction::new(0, 1));
    let mut committed: Vec<(bool, Committed)> = committed
        .into_iter()
        .enumerate()
        .map(|(number, one)| (number >= reserved, one))
        .collect();
    committed.sort_by(|a, b| (a.0, a.1.end, &a.1.id).cmp(&(b.0, b.1.end, &b.1.id)));
    for (_, one) in committed {
        let cost = one.capacity.mul(&one.unit_cost);
        let waste = one.left.mul(&one.unit_cost);
        lines.push(format!("{}: ${cost}, unused ${waste}", one.id));
        paid = paid.add(&cost);
        unused = unused.add(&waste);
    }
    lines.push(format!(
        "commitments {paid}, unused {unused}, uncovered {on_demand}"
    ));
    lines
}

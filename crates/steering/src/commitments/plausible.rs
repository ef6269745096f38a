//! What cannot be, whoever says so.
//!
//! Anybody whose metrics are scraped can write any series, and exporters have faults. A number that no bill can hold is
//! a doubt about its target, never an amount: it makes no overlay and removes none. What looks right may still be made up;
//! against that, queries have a matcher.

use std::collections::BTreeSet;

use super::{Doubt, Kind, Ledger, family_of, size_factor};

/// More dollars per hour than any Savings Plan: 88 million a year.
pub const MOST_DOLLARS_PER_HOUR: f64 = 10_000.0;
/// More Reserved Instances of one type and zone than anybody has.
pub const MOST_INSTANCES: f64 = 100_000.0;
/// The longest value of a label.
const MOST_LETTERS_OF_A_ZONE: usize = 63;

fn implausible(what: &str, value: f64, expected: &str) -> Doubt {
    Doubt::Implausible(format!("{what} is {value}; expected {expected}"))
}

/// The dollars per hour of a plan. What remains of it may be negative and its use above 100 %, where it is used up.
pub(super) fn check_plan(arn: &str, commitment: f64, remaining: f64, utilization: f64) -> Result<(), Doubt> {
    let of = |series: &str| format!("{series} of plan {arn}");
    if !(0.0..=MOST_DOLLARS_PER_HOUR).contains(&commitment) {
        let expected = format!("0 to {MOST_DOLLARS_PER_HOUR} dollars per hour");
        return Err(implausible(
            &of("savings_plan_hourly_commitment"),
            commitment,
            &expected,
        ));
    }
    // Exporters compute what remains from rates that they have rounded.
    if remaining > commitment * 1.01 + 0.01 {
        let expected = format!("at most its commitment, which is {commitment}");
        return Err(implausible(
            &of("savings_plan_remaining_capacity"),
            remaining,
            &expected,
        ));
    }
    if utilization < 0.0 {
        return Err(implausible(
            &of("savings_plan_utilization_percent"),
            utilization,
            "0 or more",
        ));
    }
    Ok(())
}

/// How many Reserved Instances of one series nothing uses; parts of one too, where sizes are flexible.
pub(super) fn check_unused(of: &str, unused: f64, owned: f64) -> Result<(), Doubt> {
    if (0.0..=owned).contains(&unused) {
        return Ok(());
    }
    let what = format!("veneer_reserved_instances_unused of {of}");
    let expected = format!("0 to {owned}, which are owned");
    Err(implausible(&what, unused, &expected))
}

/// The zone of one series of Reserved Instances. It becomes a part of a name and the value of a label.
pub(super) fn check_zone(of: &str, zone: &str) -> Result<(), Doubt> {
    let is_inner = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    let is_name = zone.len() <= MOST_LETTERS_OF_A_ZONE
        && zone.bytes().all(is_inner)
        && !zone.starts_with('-')
        && !zone.ends_with('-');
    if is_name {
        return Ok(());
    }
    Err(Doubt::Implausible(format!(
        "availability_zone of ec2_reserved_instance of {of} is {zone:?}; expected a zone such as us-west-2a"
    )))
}

/// The number of Reserved Instances of one series.
pub(super) fn check_count(series: &str, of: &str, count: f64) -> Result<(), Doubt> {
    let is_count = (0.0..=MOST_INSTANCES).contains(&count) && count.fract() == 0.0;
    if is_count {
        return Ok(());
    }
    let what = format!("{series} of {of}");
    let expected = format!("a whole number from 0 to {MOST_INSTANCES}");
    Err(implausible(&what, count, &expected))
}

/// The names of EC2 instance types among those of a catalog; none where it has others, such as KWOK's.
#[must_use]
pub fn ec2_types<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let is_ec2 = |name: &&str| size_factor(name).is_some() || name.contains(".metal");
    names.into_iter().filter(is_ec2).map(str::to_owned).collect()
}

impl Ledger {
    /// Doubts Reserved Instances of types, and plans of families, that are not among the `known` types. Without any, nothing is
    /// judged.
    pub fn doubt_unknown_types(&mut self, known: &BTreeSet<String>) {
        if known.is_empty() {
            return;
        }
        let families: BTreeSet<&str> = known.iter().map(|name| family_of(name)).collect();
        for book in self.books.values_mut().flatten() {
            for (target, balance) in &mut book.balances {
                let covers = target.covers.as_str();
                let (is_known, what) = match target.kind {
                    Kind::ReservedInstance => (known.contains(covers), "instance type"),
                    Kind::Ec2InstanceSavingsPlan => (families.contains(covers), "instance family"),
                    Kind::ComputeSavingsPlan => (true, ""),
                };
                if !is_known {
                    *balance = Err(Doubt::Implausible(format!(
                        "{covers:?} is no {what} of the catalog; if it is new, a newer release of Veneer knows it"
                    )));
                }
            }
        }
    }
}

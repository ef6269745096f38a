//! Who pays for machines that were launched since the data was taken.
//!
//! In the order in which AWS applies commitments: an unused Reserved Instance of the type (one of the zone before a regional one), then
//! the plan of the family, then Compute plans. What is left of a plan is counted at plan rates and a machine at its list price, so a plan
//! counts as used up a little early, never late.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::{Machine, NOTHING};
use crate::commitments::{Kind, Ledger, Target};

/// What machines launched since the data was taken do to a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    /// How many there are that it covers, wholly or partly.
    pub machines: usize,
    /// Instances, or dollars per hour, that they take.
    pub taken: f64,
    /// Dollars per hour that they cost beyond everything that is paid for.
    pub overshoot: f64,
}

/// Whether data may have been taken before a machine was made. Kubernetes cuts times to whole seconds, so what was made in the
/// second of the data counts as not in it yet.
fn is_after(machine: &Machine, data_at: Timestamp) -> bool {
    machine.created.as_second() >= data_at.as_second()
}

/// Charges the machines to the commitments, oldest first.
#[must_use]
pub fn cover(ledger: &Ledger, machines: &[Machine]) -> BTreeMap<Target, Used> {
    let mut order: Vec<&Machine> = machines.iter().collect();
    order.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let mut used: BTreeMap<Target, Used> = BTreeMap::new();
    for machine in order {
        let mut cost = machine.price;
        let mut steered_by = None;
        let books = Kind::ALL
            .iter()
            .filter_map(|kind| ledger.books.get(kind)?.as_ref().ok());
        let books = books.filter(|book| is_after(machine, book.data_at));
        let targets = books.flat_map(|book| book.covering(&machine.instance_type, &machine.zones));
        let known = targets.filter_map(|(target, balance)| Some((target, balance.as_ref().ok()?)));
        for (target, balance) in known {
            let entry = used.entry(target.clone()).or_default();
            let left = balance.left - entry.taken;
            let (taken, paid) = match target.kind {
                Kind::ReservedInstance if left >= 1.0 - NOTHING => (1.0, cost),
                Kind::ReservedInstance => (0.0, 0.0),
                _ => (left.clamp(0.0, cost), left.clamp(0.0, cost)),
            };
            if taken > 0.0 {
                entry.taken += taken;
                entry.machines += 1;
                cost -= paid;
            }
            steered_by.get_or_insert_with(|| target.clone());
            // Nobody knows the price of some types; a reservation of their type may cover them all the same.
            if taken > 0.0 && cost <= NOTHING {
                break;
            }
        }
        // The overlay with the highest weight made it look covered.
        if let Some(entry) = steered_by
            .filter(|_| cost > NOTHING)
            .map(|target| used.entry(target).or_default())
        {
            entry.overshoot += cost;
        }
    }
    used
}

/// The prices at which a solver should see launches of one run, in their order: `discount` (0 to 1) off what is
/// left of a commitment, and the list price for everything beyond it.
#[must_use]
pub fn price_launches(list_prices: &[f64], left: f64, discount: f64) -> Vec<f64> {
    let mut left = left.max(0.0);
    let priced = list_prices.iter().map(|list| {
        let covered = left.min(*list);
        left -= covered;
        list - covered * discount
    });
    priced.collect()
}

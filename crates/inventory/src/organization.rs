//! The inventory as the allocator wants it: one organization, with zones that mean the same in all accounts.

use std::collections::{BTreeMap, BTreeSet};

use veneer_billing::{
    Exact, Instance, Interval, Machine, Organization, PlanKind, Platform, Priced, Purchase, SavingsPlan,
};

use crate::instances::{InstanceKind, InstanceView, Lifecycle};
use crate::part::{DataKind, Rows};
use crate::store::Inventory;

/// What plans pay of the on-demand price where their own rates are unknown, as factors: 0.72 is 28 % off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discounts {
    /// EC2 Instance Savings Plans.
    pub ec2_instance: Option<Exact>,
    /// Compute Savings Plans.
    pub compute: Option<Exact>,
}

/// Names of zones as (account, name) → id.
pub(crate) type ZoneIds<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

/// Spot prices by (zone id or name, type, platform).
pub(crate) type SpotTable<'a> = BTreeMap<(&'a str, &'a str, &'a Platform), (i64, &'a Exact)>;

/// An organization, and which of its prices are estimates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// What is billed.
    pub organization: Organization,
    /// Rates that follow from [`Discounts`], by card.
    pub rates: BTreeSet<(String, Priced)>,
    /// Instances with a price of their own (spot) that nobody knows.
    pub prices: BTreeSet<String>,
}

impl Inventory {
    /// Everything that was collected, to be billed together. What an instance did before it was collected is not known: it runs from its
    /// launch on. A part that was never collected is empty here; [`Inventory::oldest`] tells.
    #[must_use]
    pub fn organization(&self, now: i64) -> Organization {
        self.estimate(now).organization
    }

    /// [`Inventory::organization`], with what in it had to be estimated.
    #[must_use]
    pub fn estimate(&self, now: i64) -> Estimate {
        let zones = self.zone_ids();
        let spot = self.spot_table(&zones);
        let mut organization = Organization::default();
        let mut has_sharing = false;
        for (part, collected) in self.parts() {
            match &collected.rows {
                Some(Rows::ReservedInstances(rows)) => {
                    organization.reserved_instances.extend(rows.iter().map(|row| {
                        let mut row = row.clone();
                        row.zone = row
                            .zone
                            .map(|zone| zone_id(&zones, &row.account, &zone).to_owned());
                        row
                    }));
                }
                Some(Rows::CapacityReservations(rows)) => {
                    organization.capacity_reservations.extend(rows.iter().map(|row| {
                        let mut row = row.clone();
                        row.zone = zone_id(&zones, &row.account, &row.zone).to_owned();
                        row
                    }));
                }
                Some(Rows::SavingsPlans(rows)) => organization.savings_plans.extend_from_slice(rows),
                Some(Rows::PlanRates(cards)) => {
                    for (name, card) in cards {
                        let known = organization.rates.entry(name.clone()).or_default();
                        known.extend(card.iter().map(|(what, rate)| (what.clone(), rate.clone())));
                    }
                }
                Some(Rows::Prices(prices)) => {
                    let known = &mut organization.prices;
                    if known.currency.is_empty() {
                        known.currency.clone_from(&prices.currency);
                    }
                    let rows = prices.on_demand.iter();
                    known
                        .on_demand
                        .extend(rows.map(|(what, price)| (what.clone(), price.clone())));
                }
                Some(Rows::Sharing(sharing)) if !has_sharing => {
                    has_sharing = true;
                    organization.sharing.clone_from(sharing);
                }
                Some(Rows::Instances(rows)) => {
                    let rows = rows.iter();
                    organization
                        .instances
                        .extend(rows.map(|row| instance(&part.account, &row, &zones, &spot, now)));
                }
                Some(Rows::Sharing(_) | Rows::Zones(_) | Rows::SpotPrices(_)) | None => {}
            }
        }
        // Spot whose price nobody knows counts at its list price: no more than that is paid.
        let mut prices = BTreeSet::new();
        for instance in &mut organization.instances {
            if let Purchase::Spot(price) | Purchase::CapacityBlock(price) = &mut instance.purchase
                && price.is_negative()
            {
                let priced = Priced::Machine(instance.machine.clone());
                *price = organization
                    .prices
                    .on_demand
                    .get(&priced)
                    .cloned()
                    .unwrap_or_default();
                prices.insert(instance.id.clone());
            }
        }
        let rates = self.estimate_rates(&mut organization);
        Estimate {
            organization,
            rates,
            prices,
        }
    }

    /// The ids of zones: as the account lists them, and as its instances have them.
    pub(crate) fn zone_ids(&self) -> ZoneIds<'_> {
        let mut ids = ZoneIds::new();
        for (part, collected) in self.parts() {
            match &collected.rows {
                Some(Rows::Zones(zones)) => {
                    let zones = zones.iter();
                    ids.extend(zones.map(|(name, id)| ((part.account.as_str(), name.as_str()), id.as_str())));
                }
                Some(Rows::Instances(rows)) => {
                    let kinds = rows.kinds().iter().filter(|kind| !kind.zone_id.is_empty());
                    for kind in kinds {
                        ids.entry((&part.account, &kind.zone)).or_insert(&kind.zone_id);
                    }
                }
                _ => {}
            }
        }
        ids
    }

    /// The names that an account has for zones, by id.
    #[must_use]
    pub fn zone_names<'a>(&'a self, account: &str) -> BTreeMap<&'a str, &'a str> {
        let ids = self.zone_ids().into_iter();
        let own = ids.filter(|((of, _), _)| *of == account);
        own.map(|((_, name), id)| (id, name)).collect()
    }

    pub(crate) fn spot_table<'a>(&'a self, zones: &ZoneIds<'a>) -> SpotTable<'a> {
        let mut table = SpotTable::new();
        for (part, rows) in self.rows(DataKind::SpotPrices) {
            let Rows::SpotPrices(rows) = rows else {
                continue;
            };
            for row in rows {
                let zone = zone_id(zones, &part.account, &row.zone);
                let key = (zone, row.instance_type.as_str(), &row.platform);
                let known = table.entry(key).or_insert((row.since, &row.price));
                if row.since > known.0 {
                    *known = (row.since, &row.price);
                }
            }
        }
        table
    }

    /// Gives plans a rate for what runs and has none, if [`Inventory::discounts`] says which.
    fn estimate_rates(&self, organization: &mut Organization) -> BTreeSet<(String, Priced)> {
        let machines: BTreeSet<&Machine> = organization.instances.iter().map(|one| &one.machine).collect();
        let mut estimated = Vec::new();
        for plan in &organization.savings_plans {
            let Some(factor) = self.discounts.of(plan) else {
                continue;
            };
            for machine in &machines {
                let priced = Priced::Machine((*machine).clone());
                let rates = organization.rates.get(&plan.rates);
                let price = organization.prices.on_demand.get(&priced);
                if let Some(price) = price.filter(|_| rates.is_none_or(|rates| !rates.contains_key(&priced)))
                {
                    estimated.push((plan.rates.clone(), priced, price.times(factor)));
                }
            }
        }
        let mut rates = BTreeSet::new();
        for (card, priced, rate) in estimated {
            rates.insert((card.clone(), priced.clone()));
            organization.rates.entry(card).or_default().insert(priced, rate);
        }
        rates
    }
}

impl Discounts {
    fn of(&self, plan: &SavingsPlan) -> Option<&Exact> {
        match plan.kind {
            PlanKind::Ec2Instance { .. } => self.ec2_instance.as_ref(),
            PlanKind::Compute => self.compute.as_ref(),
        }
    }
}

/// The id of a zone of an account; its name where the id is unknown.
pub(crate) fn zone_id<'a>(zones: &ZoneIds<'a>, account: &'a str, zone: &'a str) -> &'a str {
    zones.get(&(account, zone)).copied().unwrap_or(zone)
}

/// The id of the zone of an instance; its name where the id is unknown.
pub(crate) fn zone_of<'a>(zones: &ZoneIds<'a>, account: &'a str, kind: &'a InstanceKind) -> &'a str {
    match kind.zone_id.as_str() {
        "" => zone_id(zones, account, &kind.zone),
        id => id,
    }
}

/// The spot price of an instance.
pub(crate) fn spot_price<'a>(table: &SpotTable<'a>, zone: &str, kind: &InstanceKind) -> Option<&'a Exact> {
    let key = (zone, kind.machine.instance_type.as_str(), &kind.machine.platform);
    table.get(&key).map(|(_, price)| *price)
}

fn instance<'a>(
    account: &'a str,
    row: &InstanceView<'a>,
    zones: &ZoneIds<'a>,
    spot: &SpotTable<'a>,
    now: i64,
) -> Instance {
    let kind = row.kind;
    let zone = zone_of(zones, account, kind);
    // Below zero: not known.
    let own = || {
        spot_price(spot, zone, kind)
            .cloned()
            .unwrap_or_else(|| Exact::whole(-1))
    };
    Instance {
        id: row.id.to_owned(),
        account: account.to_owned(),
        zone: zone.to_owned(),
        machine: kind.machine.clone(),
        purchase: match kind.lifecycle {
            Lifecycle::OnDemand => Purchase::OnDemand,
            Lifecycle::Spot => Purchase::Spot(own()),
            Lifecycle::CapacityBlock => Purchase::CapacityBlock(Exact::whole(-1)),
        },
        capacity_reservation: kind.capacity_reservation.clone(),
        // A clock that is ahead of ours must not hide it.
        running: vec![Interval::new(row.launched.min(now), i64::MAX)],
    }
}

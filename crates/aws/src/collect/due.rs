//! What is to be asked now: by age, and by what has become known since.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use veneer_billing::{Machine, Platform, Tenancy};
use veneer_inventory::{DataKind, Inventory, Lifecycle, Part, Rows};

use super::plans::{Cards, regions_of};
use super::settings::Settings;
use crate::client::Client;
use crate::error::Error;

/// One part to be collected.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) part: Part,
    /// Whose credentials are used.
    pub(super) account: String,
    scope: Scope,
}

/// What a part is to hold, where that follows from other parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Scope {
    /// Operating systems and tenancies.
    machines: BTreeSet<(Platform, Tenancy)>,
    /// The cards of rates, with the regions for which they are wanted.
    cards: BTreeMap<String, BTreeSet<String>>,
}

impl Scope {
    fn has(&self, other: &Self) -> bool {
        other.machines.is_subset(&self.machines)
            && other.cards.iter().all(|(card, regions)| {
                let known = self.cards.get(card);
                known.is_some_and(|known| regions.is_subset(known))
            })
    }

    fn platforms(&self) -> BTreeSet<Platform> {
        self.machines
            .iter()
            .map(|(platform, _)| platform.clone())
            .collect()
    }
}

/// What was asked before.
#[derive(Debug, Default)]
pub(super) struct Due {
    scopes: BTreeMap<Part, Scope>,
    /// When each account was last validated, and whether it could be reached.
    validated: BTreeMap<String, (i64, bool)>,
}

/// The regions that are collected.
pub(super) fn regions(settings: &Settings) -> BTreeSet<String> {
    let regions = settings.accounts.iter().flat_map(|target| &target.regions);
    regions.cloned().collect()
}

fn default_account(settings: &Settings) -> &str {
    let first = settings.accounts.first().map(|target| target.id.as_str());
    let default = settings.default_account.as_deref();
    default.or(first).unwrap_or_default()
}

/// Every part that there is to collect.
pub(super) fn parts(settings: &Settings) -> Vec<Part> {
    let mut parts = Vec::new();
    for target in &settings.accounts {
        let id = target.id.as_str();
        for region in &target.regions {
            for kind in [
                DataKind::Zones,
                DataKind::Instances,
                DataKind::ReservedInstances,
                DataKind::CapacityReservations,
            ] {
                parts.push(Part::new(id, region, kind));
            }
        }
        parts.push(Part::new(id, "", DataKind::SavingsPlans));
        parts.push(Part::new(id, "", DataKind::PlanRates));
    }
    let default = default_account(settings);
    for region in regions(settings) {
        parts.push(Part::new("", region.as_str(), DataKind::Prices));
        parts.push(Part::new(default, region, DataKind::SpotPrices));
    }
    if settings.sharing && !default.is_empty() {
        parts.push(Part::new(default, "", DataKind::Sharing));
    }
    parts
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

impl Due {
    /// Notes that a part is asked for.
    pub(super) fn tried(&mut self, ask: &Ask) {
        self.scopes.insert(ask.part.clone(), ask.scope.clone());
    }

    pub(super) fn validated(&mut self, account: &str, now: i64, reached: bool) {
        self.validated.insert(account.to_owned(), (now, reached));
    }

    /// Whether it is to be found out first if an account can be reached.
    pub(super) fn must_validate(&self, settings: &Settings, account: &str, now: i64) -> bool {
        let known = self.validated.get(account);
        known.is_none_or(|(at, reached)| {
            !reached || now.saturating_sub(*at) >= seconds(settings.intervals.validation)
        })
    }

    /// What is to be asked now.
    pub(super) fn asks(&self, settings: &Settings, inventory: &Inventory, now: i64) -> Vec<Ask> {
        let mut asks = Vec::new();
        for part in parts(settings) {
            let Some(scope) = scope(&part, settings, inventory) else {
                continue;
            };
            let asked = self.scopes.get(&part);
            let has_grown = asked.is_none_or(|asked| !asked.has(&scope));
            let known = inventory.part(&part);
            let interval = seconds(settings.intervals.of(part.kind));
            let retry = interval.min(seconds(settings.intervals.retry));
            let (at, tried) = known.map_or((None, None), |known| (known.at, known.tried));
            let has_failed = known.is_some_and(|known| known.error.is_some());
            let is_old = match tried.filter(|_| has_failed).or(at) {
                None => tried != Some(now),
                Some(last) => now.saturating_sub(last) >= if has_failed { retry } else { interval },
            };
            if has_grown || is_old {
                let account = match part.kind {
                    DataKind::Prices => default_account(settings).to_owned(),
                    _ => part.account.clone(),
                };
                asks.push(Ask { part, account, scope });
            }
        }
        asks
    }
}

/// Every machine that is known in a region, or in all of them.
fn machines<'a>(inventory: &'a Inventory, region: &'a str) -> impl Iterator<Item = &'a Machine> {
    let parts = inventory.parts();
    let parts = parts.filter(move |(part, _)| region.is_empty() || part.region == region);
    parts.flat_map(|(_, collected)| {
        let found: Vec<&Machine> = match &collected.rows {
            Some(Rows::Instances(rows)) => rows.kinds().iter().map(|kind| &kind.machine).collect(),
            Some(Rows::ReservedInstances(rows)) => rows.iter().map(|row| &row.machine).collect(),
            Some(Rows::CapacityReservations(rows)) => rows.iter().map(|row| &row.machine).collect(),
            _ => Vec::new(),
        };
        found
    })
}

/// What a part is to hold; nothing while that is not known yet.
fn scope(part: &Part, settings: &Settings, inventory: &Inventory) -> Option<Scope> {
    let configured = settings.platforms.iter();
    let configured = configured.map(|platform| (platform.clone(), Tenancy::Default));
    let seen = |region| {
        let seen = machines(inventory, region);
        seen.map(|machine| (machine.platform.clone(), machine.tenancy))
    };
    let mut scope = Scope::default();
    match part.kind {
        DataKind::Prices => scope.machines = configured.chain(seen(&part.region)).collect(),
        DataKind::SpotPrices => {
            let spot = inventory.of_kind(DataKind::Instances);
            let spot = spot.filter(|(one, _)| one.region == part.region);
            let kinds = spot.filter_map(|(_, collected)| match &collected.rows {
                Some(Rows::Instances(rows)) => Some(rows.kinds()),
                _ => None,
            });
            let kinds = kinds.flatten().filter(|kind| kind.lifecycle == Lifecycle::Spot);
            let spot = kinds.map(|kind| (kind.machine.platform.clone(), Tenancy::Default));
            scope.machines = configured.chain(spot).collect();
        }
        DataKind::PlanRates => {
            let plans = inventory.part(&Part::new(part.account.as_str(), "", DataKind::SavingsPlans));
            let Some(Rows::SavingsPlans(plans)) = &plans?.rows else {
                return None;
            };
            let regions = regions(settings);
            let cards = plans
                .iter()
                .map(|plan| (plan.rates.clone(), regions_of(plan, &regions)));
            scope.cards = cards.collect();
            if !scope.cards.is_empty() {
                scope.machines = configured.chain(seen("")).collect();
            }
        }
        _ => {}
    }
    Some(scope)
}

impl Ask {
    /// The rows of the part.
    pub(super) async fn answer(&self, client: &Client, node_name_tag: &str, now: i64) -> Result<Rows, Error> {
        let account = self.part.account.as_str();
        Ok(match self.part.kind {
            DataKind::Zones => Rows::Zones(client.zones().await?),
            DataKind::Instances => Rows::Instances(client.running_instances(node_name_tag).await?),
            DataKind::ReservedInstances => Rows::ReservedInstances(client.reserved_instances(account).await?),
            DataKind::CapacityReservations => {
                Rows::CapacityReservations(client.capacity_reservations(account).await?)
            }
            DataKind::SavingsPlans => Rows::SavingsPlans(client.savings_plans(account).await?),
            DataKind::PlanRates => {
                let platforms = self.scope.platforms();
                let mut cards = Cards::new();
                for (card, regions) in &self.scope.cards {
                    let rates = client.savings_plan_rates(card, regions, &platforms).await?;
                    cards.insert(card.clone(), rates);
                }
                Rows::PlanRates(cards)
            }
            DataKind::Prices => Rows::Prices(client.on_demand_prices(&self.scope.machines).await?),
            DataKind::SpotPrices => {
                let platforms: Vec<Platform> = self.scope.platforms().into_iter().collect();
                Rows::SpotPrices(client.current_spot_prices(&platforms, now).await?)
            }
            DataKind::Sharing => Rows::Sharing(client.sharing().await?),
        })
    }
}

//! Commitments from an inventory of the accounts: what is left is what the allocator says nothing uses.
//!
//! Reserved Instances and plans of other accounts count where AWS shares them with the account of the cluster. Only what covers nodes
//! counts: Reserved Instances for Linux on shared hardware, zonal ones for their zone. What a family's size-flexible Reserved Instances have left is given to the
//! reserved types from the largest to the smallest, each instance once; if it is less than the smallest of them, it goes to the largest
//! type that it still pays for whole.
//!
//! A part that was never collected, or that is too old, is a doubt about everything that it could change: usage that nobody sees makes a
//! commitment look unused.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_billing::{
    Allocator, Bill, Commitment, CommitmentBill, Exact, Machine, Organization, PlanKind, Platform, Priced,
    Problem, Tenancy, family_of, is_size_flexible, size_quarters,
};
use veneer_inventory::{DataKind, Inventory, Part};

use super::{Balance, Book, Certainty, Doubt, Kind, Ledger, Scope, Target};

/// How long an instance may take from its launch until it runs: until then, it is in no list.
const STARTING: SignedDuration = SignedDuration::from_secs(120);
/// Sums of exact numbers are rounded once, at the end.
const ROUNDING: f64 = 1e-9;

impl Ledger {
    /// Reads an inventory.
    #[must_use]
    pub fn of_inventory(inventory: &Inventory, scope: &Scope, at: Timestamp) -> Self {
        let organization = inventory.organization(at.as_second());
        let allocator = Allocator::new(&organization);
        let bill = allocator.now(at.as_second());
        let reader = Reader {
            inventory,
            scope,
            at,
            organization: &organization,
            problems: allocator.problems(),
        };
        let books = Kind::ALL.map(|kind| {
            let book = match kind {
                Kind::ReservedInstance => reader.reserved(&bill),
                Kind::Ec2InstanceSavingsPlan | Kind::ComputeSavingsPlan => reader.plans(&bill, kind),
            };
            (kind, book)
        });
        Self {
            books: books.into(),
            age: reader.oldest(),
        }
    }
}

struct Reader<'a> {
    inventory: &'a Inventory,
    scope: &'a Scope,
    at: Timestamp,
    organization: &'a Organization,
    problems: &'a [Problem],
}

/// Which data something follows from.
#[derive(Clone, Copy)]
struct Needs {
    commitments: DataKind,
    /// Whether instances of all regions use it.
    everywhere: bool,
    priced: bool,
}

impl Reader<'_> {
    /// Whether an account has a part in what the account of the cluster may use.
    fn shares(&self, account: &str) -> bool {
        let sharing = &self.organization.sharing;
        let own = self.scope.account.as_str();
        account == own || sharing.reach(account, own).is_some() || sharing.reach(own, account).is_some()
    }

    /// Whether the commitments of an account pay for the nodes of the cluster.
    fn pays(&self, owner: &str) -> bool {
        let own = self.scope.account.as_str();
        let sharing = &self.organization.sharing;
        owner == own || (self.scope.shared_plans && sharing.reach(owner, own).is_some())
    }

    fn of_kind(&self, kind: DataKind, everywhere: bool) -> impl Iterator<Item = &Part> {
        let parts = self.inventory.of_kind(kind).map(|(part, _)| part);
        parts.filter(move |part| {
            let is_here = everywhere || part.region.is_empty() || part.region == self.scope.region;
            is_here && (part.account.is_empty() || self.shares(&part.account))
        })
    }

    /// How old a part is, or why that is not known.
    fn age(&self, part: &Part) -> Result<SignedDuration, Doubt> {
        let age = self.inventory.age(part, self.at.as_second());
        age.map(SignedDuration::from_secs).ok_or_else(|| {
            let what = described(part);
            let known = self.inventory.part(part);
            match known.and_then(|known| known.error.as_ref()) {
                Some(error) => Doubt::QueryFailed(format!("{what}: {error}")),
                None => Doubt::NoFreshness(format!("{what}: not collected yet")),
            }
        })
    }

    /// When what runs was seen, if everything that is needed is fresh.
    fn data_at(&self, needs: Needs) -> Result<Timestamp, Doubt> {
        let usage = [DataKind::Instances, DataKind::CapacityReservations];
        let own = |kind| {
            let mut parts = self.of_kind(kind, false);
            parts.any(|part| part.account == self.scope.account)
        };
        if !own(DataKind::Instances) || !own(needs.commitments) {
            return Err(Doubt::NoFreshness(format!(
                "{} of account {} in {} is not collected",
                needs.commitments.name(),
                self.scope.account,
                self.scope.region
            )));
        }
        let mut seen = SignedDuration::ZERO;
        let timed = usage
            .into_iter()
            .map(|kind| (kind, needs.everywhere))
            .chain([(needs.commitments, false)]);
        for (kind, everywhere) in timed {
            for part in self.of_kind(kind, everywhere) {
                let age = self.age(part)?;
                if age > self.scope.freshness_limit {
                    let limit = self.scope.freshness_limit;
                    return Err(Doubt::Stale { age, limit });
                }
                if kind == DataKind::Instances {
                    seen = seen.max(age);
                }
            }
        }
        // Prices and rates change once in a while: they must be known, and may be old.
        let lists = [DataKind::Prices, DataKind::PlanRates];
        for kind in lists.into_iter().filter(|_| needs.priced) {
            for part in self.of_kind(kind, needs.everywhere) {
                self.age(part)?;
            }
        }
        let at = self.at.saturating_sub(seen.saturating_add(STARTING));
        Ok(at.unwrap_or(Timestamp::MIN))
    }

    /// The age of the oldest data that counts, for the gauge.
    fn oldest(&self) -> Option<SignedDuration> {
        let kinds = [
            DataKind::Instances,
            DataKind::ReservedInstances,
            DataKind::SavingsPlans,
        ];
        let parts = kinds.into_iter().flat_map(|kind| self.of_kind(kind, false));
        parts.filter_map(|part| self.age(part).ok()).max()
    }

    fn reserved(&self, bill: &Bill<'_>) -> Result<Book, Doubt> {
        let data_at = self.data_at(Needs {
            commitments: DataKind::ReservedInstances,
            everywhere: false,
            priced: false,
        })?;
        let zone_names = self.inventory.zone_names(&self.scope.account);
        let mut unlisted = None;
        let mut by_type: BTreeMap<String, Count> = BTreeMap::new();
        let mut zonal: BTreeMap<(&str, &str), (f64, Exact)> = BTreeMap::new();
        let mut families: BTreeMap<&str, Exact> = BTreeMap::new();
        let all: Vec<CommitmentBill<'_>> = bill.commitments().collect();
        for one in &all {
            let Commitment::Reserved(reserved) = one.commitment else {
                continue;
            };
            if !self.pays(&reserved.account) || !is_for_nodes(&reserved.machine, &self.scope.region) {
                continue;
            }
            let instance_type = reserved.machine.instance_type.as_str();
            if let Some(zone) = &reserved.zone {
                // Where ids of zones are unknown, the account's own name is all there is; another account may mean another zone by it.
                let own = (reserved.account == self.scope.account).then_some(zone.as_str());
                let Some(name) = zone_names.get(zone.as_str()).copied().or(own) else {
                    unlisted = Some(Doubt::Incomplete(format!(
                        "{} of account {} are in zone {zone}, whose name in account {} is not known",
                        reserved.id, reserved.account, self.scope.account
                    )));
                    continue;
                };
                let (owned, left) = zonal.entry((instance_type, name)).or_default();
                *owned += f64::from(reserved.count);
                *left = left.plus(&one.left());
                continue;
            }
            let count = by_type.entry(instance_type.to_owned()).or_default();
            count.owned += f64::from(reserved.count);
            let quarters =
                size_quarters(instance_type).filter(|_| is_size_flexible(family_of(instance_type)));
            match quarters {
                Some(quarters) => {
                    count.flexible += f64::from(reserved.count);
                    let left = one.left().times_whole(i128::from(quarters));
                    let family = families.entry(family_of(instance_type)).or_default();
                    *family = family.plus(&left);
                }
                None => count.left = count.left.plus(&one.left()),
            }
        }
        for (family, left) in families {
            self.hand_out(family, left.to_f64(), &mut by_type);
        }
        let region = self.scope.region.as_str();
        let balance = |owned: f64, left: f64| {
            Ok(Balance {
                owned,
                left,
                utilization: None,
                certainty: Certainty::Exact,
            })
        };
        let regional = by_type.into_iter().map(|(instance_type, count)| {
            let left = whole(&count.left) + count.handed_out;
            (
                Target::reserved(&instance_type, region),
                balance(count.owned, left),
            )
        });
        let zonal = zonal.into_iter().map(|((instance_type, zone), (owned, left))| {
            let target = Target::reserved_in(instance_type, region, zone);
            (target, balance(owned, whole(&left)))
        });
        Ok(Book {
            data_at,
            balances: regional.chain(zonal).collect(),
            unlisted,
        })
    }

    /// Gives what a family has left, in quarters of AWS's units, to its types.
    fn hand_out(&self, family: &str, mut left: f64, by_type: &mut BTreeMap<String, Count>) {
        let mut owned: Vec<(u64, String, f64)> = by_type
            .iter()
            .filter(|(name, count)| family_of(name) == family && count.flexible > 0.0)
            .filter_map(|(name, count)| Some((size_quarters(name)?, name.clone(), count.flexible)))
            .collect();
        // The largest first.
        owned.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
        let smallest = owned.len().saturating_sub(1);
        let mut handed_out = 0.0;
        for (at, (quarters, name, flexible)) in owned.into_iter().enumerate() {
            let whole = (left / quarters as f64 + ROUNDING).floor();
            let given = if at == smallest {
                whole
            } else {
                whole.min(flexible)
            };
            left -= given * quarters as f64;
            handed_out += given;
            if let Some(count) = by_type.get_mut(&name) {
                count.handed_out = given;
            }
        }
        if handed_out > 0.0 || left <= ROUNDING {
            return;
        }
        let priced = self.organization.prices.on_demand.keys();
        let smaller = priced.filter_map(|priced| match priced {
            Priced::Machine(machine) if is_for_nodes(machine, &self.scope.region) => {
                let name = machine.instance_type.as_str();
                let quarters = size_quarters(name).filter(|_| family_of(name) == family)?;
                (quarters as f64 <= left + ROUNDING).then_some((quarters, name))
            }
            _ => None,
        });
        if let Some((quarters, name)) = smaller.max() {
            let count = by_type.entry(name.to_owned()).or_default();
            count.handed_out = (left / quarters as f64 + ROUNDING).floor();
        }
    }

    fn plans(&self, bill: &Bill<'_>, kind: Kind) -> Result<Book, Doubt> {
        let data_at = self.data_at(Needs {
            commitments: DataKind::SavingsPlans,
            everywhere: kind == Kind::ComputeSavingsPlan,
            priced: true,
        })?;
        let without_rates: BTreeSet<&str> = self
            .problems
            .iter()
            .filter_map(|problem| match problem {
                Problem::NoRates { plan, .. } => Some(plan.as_str()),
                _ => None,
            })
            .collect();
        let mut sums: BTreeMap<Target, Result<(Exact, Exact), Doubt>> = BTreeMap::new();
        for one in bill.commitments() {
            let Commitment::Plan(plan) = one.commitment else {
                continue;
            };
            let target = match (&plan.kind, kind) {
                (PlanKind::Compute, Kind::ComputeSavingsPlan) => Target::compute(),
                (PlanKind::Ec2Instance { family, region }, Kind::Ec2InstanceSavingsPlan)
                    if *region == self.scope.region =>
                {
                    Target::family(family, region)
                }
                _ => continue,
            };
            if !self.pays(&plan.account) {
                continue;
            }
            let sum = sums.entry(target).or_insert_with(|| Ok(Default::default()));
            if without_rates.contains(plan.id.as_str()) {
                *sum = Err(Doubt::Incomplete(format!(
                    "plan {} has no rates, so what is left of it is not known",
                    plan.id
                )));
            } else if let Ok((owned, left)) = sum {
                *owned = owned.plus(&one.capacity);
                *left = left.plus(&one.left());
            }
        }
        let balances = sums.into_iter().map(|(target, sum)| {
            let balance = sum.map(|(owned, left)| Balance {
                owned: owned.to_f64(),
                left: left.to_f64(),
                // A commitment of nothing is used up.
                utilization: Some(
                    left.over(&owned)
                        .map_or(100.0, |left| Exact::ONE.minus(&left).times_whole(100).to_f64()),
                ),
                certainty: match kind {
                    // Fargate and Lambda are not collected.
                    Kind::ComputeSavingsPlan => Certainty::AtMost,
                    _ => Certainty::Exact,
                },
            });
            (target, balance)
        });
        Ok(Book {
            data_at,
            balances: balances.collect(),
            unlisted: None,
        })
    }
}

/// Whole instances.
fn whole(left: &Exact) -> f64 {
    (left.to_f64() + ROUNDING).floor()
}

/// What is known of the regional Reserved Instances of one type.
#[derive(Default)]
struct Count {
    owned: f64,
    /// How many of them are size-flexible.
    flexible: f64,
    /// What is left of the others.
    left: Exact,
    /// Whole instances that the size-flexible ones of the family still pay for.
    handed_out: f64,
}

/// Whether this is what nodes are: Linux on shared hardware, in the region of the cluster.
fn is_for_nodes(machine: &Machine, region: &str) -> bool {
    machine.region == region && machine.platform == Platform::Linux && machine.tenancy == Tenancy::Default
}

fn described(part: &Part) -> String {
    let mut text = part.kind.name().to_owned();
    if !part.account.is_empty() {
        text.push_str(&format!(" of account {}", part.account));
    }
    if !part.region.is_empty() {
        text.push_str(&format!(" in {}", part.region));
    }
    text
}

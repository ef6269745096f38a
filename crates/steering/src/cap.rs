//! The cap inside a run: of several launches, only as many are priced as covered as a commitment still covers.
//!
//! An overlay makes everything that a commitment covers cheap for as long as something is left of it. Launches of one
//! pass would all see that price, though the first of them may use up what is left. So they are charged one after the
//! other, and what is beyond the commitment counts with its list price when the offering is chosen.
//!
//! The other way round, what runs already and is paid for ([`paid_for`]) stays cheap when the overlay goes, because the
//! commitment is used up. Else consolidation would move nodes away again, the overlay would come back, and so on for ever.

use std::collections::{BTreeMap, BTreeSet};

use veneer_api::NodeOverlay;
use veneer_engine::cluster::{CommitmentHeadroom, Commitments, Need};
use veneer_engine::plan::{Action, Plan, Snapshot, name};
use veneer_engine::provision::{LaunchOption, Market};

use crate::commitments::{Kind, Ledger, Target};
use crate::decisions::{Machine, NOTHING, cover, price_launches};
use crate::machines::of_claims;
use crate::overlays::{Purpose, purpose};

/// What is left of the commitments that overlays steer to, beside everything that runs or is being launched already.
#[derive(Clone, Debug, Default)]
pub struct CommitmentBalances {
    /// By the name of the overlay, the number of its commitment.
    by_overlay: BTreeMap<String, usize>,
    /// The kind of each commitment, and what is left of it.
    balances: Vec<(Kind, f64)>,
}

impl CommitmentBalances {
    /// Those that the overlays of a snapshot stand for, beside what these machines use.
    #[must_use]
    pub fn new(machines: &[Machine], snapshot: &Snapshot, ledger: &Ledger) -> Self {
        let steered = steered(snapshot);
        let mut known = Self::default();
        if steered.is_empty() {
            return known;
        }
        let left = left(machines, ledger);
        let mut numbers: BTreeMap<&Target, usize> = BTreeMap::new();
        for (overlay, target) in &steered {
            let Some(left) = left.get(target) else { continue };
            let number = *numbers.entry(target).or_insert_with(|| {
                known.balances.push((target.kind, *left));
                known.balances.len() - 1
            });
            known.by_overlay.insert((*overlay).to_owned(), number);
        }
        known
    }
}

impl Commitments for CommitmentBalances {
    fn need(&self, overlay: &str, list_price: f64) -> Option<Need> {
        let commitment = *self.by_overlay.get(overlay)?;
        let amount = match self.balances.get(commitment)? {
            // A reservation covers one instance, whatever that costs.
            (Kind::ReservedInstance, _) => 1.0,
            _ => list_price,
        };
        Some(Need { commitment, amount })
    }

    fn left(&self, commitment: usize) -> f64 {
        self.balances.get(commitment).map_or(0.0, |(_, left)| *left)
    }
}

/// Puts the options of all launches of a plan into the order of what they would really cost.
pub fn apply(plan: &mut Plan, snapshot: &Snapshot, ledger: &Ledger, market: &Market) {
    let launches = plan.actions.iter().filter_map(|action| match action {
        Action::Launch { claim, .. } => Some(name(&claim.metadata)),
        _ => None,
    });
    // These are charged one after the other.
    let launches: BTreeSet<&str> = launches.collect();
    if launches.is_empty() {
        return;
    }
    let others = of_claims(
        snapshot,
        |it| market.on_demand_price(it),
        |claim| !launches.contains(name(&claim.metadata)),
    );
    let known = CommitmentBalances::new(&others, snapshot, ledger);
    if known.balances.is_empty() {
        return;
    }
    let mut headroom = CommitmentHeadroom::new(Some(&known));
    for action in &mut plan.actions {
        let Action::Launch { options, .. } = action else {
            continue;
        };
        let need = |option: &LaunchOption, headroom: &CommitmentHeadroom<'_>| {
            headroom.need(option.overlay.as_deref()?, option.list_price)
        };
        let price = |option: &LaunchOption| match need(option, &headroom) {
            // Nothing is known about the commitment: doubt changes no price.
            None => option.price,
            Some(need) => {
                let kind = known.balances.get(need.commitment).map(|(kind, _)| *kind);
                real_price(option, kind, headroom.left(need.commitment))
            }
        };
        options.sort_by_cached_key(|option| ordered(price(option)));
        if let Some(need) = options.first().and_then(|first| need(first, &headroom)) {
            headroom.take(need);
        }
    }
}

/// What the overlays of commitments steer to, by name.
fn steered(snapshot: &Snapshot) -> BTreeMap<&str, Target> {
    let overlays = snapshot.overlays.iter();
    overlays
        .filter_map(|overlay| Some((name(&overlay.metadata), target(overlay)?)))
        .collect()
}

/// What a machine takes of a plan at least, as a share of its list price: no discount of AWS is deeper than 72 %. What the
/// discount of a plan really is, the metrics do not say.
const DEEPEST: f64 = 0.28;

/// The claims whose machines cost nothing more, since a commitment is paid whether they run or not: oldest first, as many
/// as commitments may cover, wholly or partly. What cannot be known counts as paid for: doubt moves no node.
#[must_use]
pub fn paid_for(machines: &[Machine], ledger: &Ledger) -> BTreeSet<String> {
    let mut machines: Vec<&Machine> = machines.iter().collect();
    machines.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let mut taken: BTreeMap<&Target, f64> = BTreeMap::new();
    let mut paid = BTreeSet::new();
    for machine in machines {
        let mut cost = machine.price * DEEPEST;
        for kind in Kind::ALL {
            let Some(book) = ledger.books.get(&kind) else {
                continue;
            };
            let Ok(book) = book else {
                paid.insert(machine.name.clone());
                continue;
            };
            let mut covering = book.covering(&machine.instance_type, &machine.zones).peekable();
            if covering.peek().is_none() && book.unlisted.is_some() {
                paid.insert(machine.name.clone());
            }
            for (target, balance) in covering {
                let Ok(balance) = balance else {
                    paid.insert(machine.name.clone());
                    continue;
                };
                let taken = taken.entry(target).or_default();
                let left = balance.owned - *taken;
                let (takes, covers) = match kind {
                    Kind::ReservedInstance if left >= 1.0 => (1.0, cost),
                    Kind::ReservedInstance => (0.0, 0.0),
                    _ => (left.clamp(0.0, cost), left.clamp(0.0, cost)),
                };
                if takes > NOTHING {
                    *taken += takes;
                    cost -= covers;
                    paid.insert(machine.name.clone());
                    if cost <= NOTHING {
                        break;
                    }
                }
            }
            if cost <= NOTHING {
                break;
            }
        }
    }
    paid
}

/// The machines of a snapshot that commitments may be charged with.
#[must_use]
pub fn charged(snapshot: &Snapshot, market: &Market) -> Vec<Machine> {
    of_claims(snapshot, |it| market.on_demand_price(it), |_| true)
}

/// A key that sorts prices as numbers.
fn ordered(price: f64) -> u64 {
    // Prices are not negative, and the bits of such numbers have their order.
    price.max(0.0).to_bits()
}

fn target(overlay: &NodeOverlay) -> Option<Target> {
    match purpose(overlay.metadata.labels.as_ref()?) {
        Purpose::CostAware(_, target) => target,
        _ => None,
    }
}

fn real_price(option: &LaunchOption, kind: Option<Kind>, left: f64) -> f64 {
    let list = option.list_price;
    if list <= 0.0 {
        return option.price;
    }
    let left = match kind {
        // A reservation covers one instance, whatever that costs.
        Some(Kind::ReservedInstance) if left >= 1.0 => list,
        Some(Kind::ReservedInstance) => 0.0,
        _ => left,
    };
    let discount = 1.0 - option.price / list;
    price_launches(&[list], left, discount)
        .first()
        .copied()
        .unwrap_or(list)
}

/// What the commitments still cover beside these machines.
fn left(machines: &[Machine], ledger: &Ledger) -> BTreeMap<Target, f64> {
    let used = cover(ledger, machines);
    let books = ledger.books.values().flatten();
    let balances = books.flat_map(|book| &book.balances);
    balances
        .filter_map(|(target, balance)| {
            let balance = balance.as_ref().ok()?;
            let taken = used.get(target).map_or(0.0, |used| used.taken);
            Some((target.clone(), balance.left - taken))
        })
        .collect()
}

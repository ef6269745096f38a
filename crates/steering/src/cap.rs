//! The cap inside a run: of several launches, only as many are priced as covered as a commitment still covers.
//!
//! An overlay makes everything that a commitment covers cheap for as long as something is left of it. Launches of one
//! pass would all see that price, though the first of them may use up what is left. So they are charged one after the
//! other, and what is beyond the commitment counts with its list price when the offering is chosen.
//!
//! The other way round, what runs already and is paid for ([`paid_for`]) stays cheap when the overlay goes, because the
//! commitment is used up. Else consolidation would move nodes away again, the overlay would come back, and so on for ever.

use std::collections::{BTreeMap, BTreeSet};

use veneer_api::labels::{karpenter, kubernetes, veneer};
use veneer_api::{NodeClaim, NodeOverlay, Operator};
use veneer_engine::disruption::Decision;
use veneer_engine::labels::ON_DEMAND;
use veneer_engine::plan::{Action, Plan, Snapshot, is_deleting, label, name};
use veneer_engine::provision::{LaunchOption, Market};

use crate::commitments::{Kind, Ledger, Target};
use crate::decisions::{Machine, NOTHING, cover, price_launches};
use crate::overlays::{Purpose, purpose};

/// Puts the options of all launches of a plan into the order of what they would really cost.
pub fn apply(plan: &mut Plan, snapshot: &Snapshot, ledger: &Ledger, market: &Market) {
    let steered = steered(snapshot);
    if steered.is_empty() {
        return;
    }
    let mut left = left(plan, snapshot, ledger, market);
    for action in &mut plan.actions {
        let Action::Launch { options, .. } = action else {
            continue;
        };
        let target = |option: &LaunchOption| steered.get(option.overlay.as_deref()?);
        let price = |option: &LaunchOption| match target(option)
            .and_then(|target| Some((target, left.get(target)?)))
        {
            // Nothing is known about the commitment: doubt changes no price.
            None => option.price,
            Some((target, left)) => real_price(option, target.kind, *left),
        };
        options.sort_by_cached_key(|option| ordered(price(option)));
        let charged = options
            .first()
            .and_then(|first| Some((target(first)?.clone(), first.list_price)));
        if let Some((target, list_price)) = charged
            && let Some(left) = left.get_mut(&target)
        {
            *left -= match target.kind {
                Kind::ReservedInstance => 1.0,
                _ => list_price,
            };
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

/// Takes back replacements that are worth it only at the price of a commitment of which too little is left for them. Those
/// that were found first come first. Says whether nothing remains of what was started.
pub fn hold_back(decision: &mut Decision, snapshot: &Snapshot, ledger: &Ledger, market: &mut Market) -> bool {
    let steered = steered(snapshot);
    if steered.is_empty() || decision.started.is_empty() {
        return false;
    }
    let mut left = left(&decision.plan, snapshot, ledger, market);
    let (mut held, mut is_kept) = (BTreeSet::new(), Vec::new());
    decision.plan.actions.retain(|action| {
        let Action::CreateClaim(claim) = action else {
            return true;
        };
        let annotations = claim.metadata.annotations.as_ref();
        let replaces = annotations.and_then(|list| list.get(veneer::REPLACES));
        let saves = replaces.and_then(|text| text.strip_prefix("underutilized "));
        let fits = saves.is_none_or(|_| {
            let option = market.options(claim, 1).into_iter().next();
            let steers = |option: &LaunchOption| steered.get(option.overlay.as_deref()?).cloned();
            let target = option.as_ref().and_then(steers);
            // Nothing is known about the commitment: doubt changes no price.
            let Some((left, kind)) = target.and_then(|target| Some((left.get_mut(&target)?, target.kind)))
            else {
                return true;
            };
            let needs = match kind {
                Kind::ReservedInstance => 1.0,
                _ => option.map_or(0.0, |option| option.list_price),
            };
            *left -= needs;
            *left >= -NOTHING
        });
        if let Some(claims) = saves.filter(|_| !fits) {
            held.extend(claims.split(' ').map(str::to_owned));
        }
        is_kept.push(fits);
        fits
    });
    decision.plan.actions.retain(|action| match action {
        Action::Announce(one) => !held.contains(&one.subject.target.name),
        _ => true,
    });
    let mut is_kept = is_kept.into_iter();
    decision
        .started
        .retain(|command| is_kept.by_ref().take(command.replacements).all(|kept| kept));
    decision.started.is_empty()
}

/// What a machine takes of a plan at least, as a share of its list price: no discount of AWS is deeper than 72 %. What the
/// discount of a plan really is, the metrics do not say.
const DEEPEST: f64 = 0.28;

/// The claims whose machines cost nothing more, since a commitment is paid whether they run or not: oldest first, as many
/// as commitments may cover, wholly or partly. What cannot be known counts as paid for: doubt moves no node.
#[must_use]
pub fn paid_for(snapshot: &Snapshot, ledger: &Ledger, market: &Market) -> BTreeSet<String> {
    let claims = snapshot
        .node_claims
        .iter()
        .filter(|claim| !is_deleting(&claim.metadata));
    let mut machines: Vec<Machine> = claims.filter_map(|claim| machine(claim, market)).collect();
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
            let mut balances = book.balances.iter();
            let found = balances.find(|(target, _)| target.covers_type(&machine.instance_type));
            match found {
                None if book.unlisted.is_some() => {
                    paid.insert(machine.name.clone());
                }
                None => {}
                Some((_, Err(_))) => {
                    paid.insert(machine.name.clone());
                }
                Some((target, Ok(balance))) => {
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

fn real_price(option: &LaunchOption, kind: Kind, left: f64) -> f64 {
    let list = option.list_price;
    if list <= 0.0 {
        return option.price;
    }
    let left = match kind {
        // A reservation covers one instance, whatever that costs.
        Kind::ReservedInstance if left >= 1.0 => list,
        Kind::ReservedInstance => 0.0,
        _ => left,
    };
    let discount = 1.0 - option.price / list;
    price_launches(&[list], left, discount)
        .first()
        .copied()
        .unwrap_or(list)
}

/// What the commitments still cover beside everything that runs or is being launched already.
fn left(plan: &Plan, snapshot: &Snapshot, ledger: &Ledger, market: &Market) -> BTreeMap<Target, f64> {
    let starting: BTreeSet<&str> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Launch { claim, .. } => Some(name(&claim.metadata)),
            _ => None,
        })
        .collect();
    let claims = snapshot
        .node_claims
        .iter()
        .filter(|claim| !is_deleting(&claim.metadata) && !starting.contains(name(&claim.metadata)));
    let machines: Vec<Machine> = claims.filter_map(|claim| machine(claim, market)).collect();
    let used = cover(ledger, &machines);
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

/// A claim as a machine to pay for; one that is not launched yet, as the cheapest that it may become.
fn machine(claim: &NodeClaim, market: &Market) -> Option<Machine> {
    let required = |key: &str| {
        let mut all = claim.spec.requirements.iter();
        all.find(|one| one.key == key && one.operator == Operator::In)
            .map_or(&[][..], |one| &one.values)
    };
    let may_be = |capacity_type: &str| match label(&claim.metadata, karpenter::CAPACITY_TYPE) {
        Some(one) => one == capacity_type,
        None => required(karpenter::CAPACITY_TYPE)
            .iter()
            .any(|one| one == capacity_type),
    };
    if !may_be(ON_DEMAND) {
        return None;
    }
    let price = |instance_type: &str| market.on_demand_price(instance_type);
    let (instance_type, price) = match label(&claim.metadata, kubernetes::INSTANCE_TYPE) {
        Some(launched) => (launched, price(launched).unwrap_or_default()),
        None => required(kubernetes::INSTANCE_TYPE)
            .iter()
            .filter_map(|one| Some((one.as_str(), price(one)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?,
    };
    let created = claim.metadata.creation_timestamp.as_ref();
    Some(Machine {
        name: name(&claim.metadata).to_owned(),
        created: created.map(|at| at.0).unwrap_or_default(),
        instance_type: instance_type.to_owned(),
        price,
    })
}

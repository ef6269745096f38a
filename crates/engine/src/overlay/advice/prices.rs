//! Prices that lead to launches which nobody meant.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::matching::counted;
use super::{Advice, Place, Rule, View};
use crate::labels::{ON_DEMAND, SPOT};
use crate::overlay::{Overlay, PriceChange};
use crate::resources::CPU;

pub(super) fn advice(view: &View<'_>, reorders: bool, at: usize, overlay: &Overlay) -> Vec<Advice> {
    let won = view.won(at);
    let price_field = match &overlay.price {
        Some(change) if change.is_replacement() => "spec.price",
        _ => "spec.priceAdjustment",
    };
    let all = [
        on_demand_below_spot(view, at, won, price_field),
        same_price(view, overlay, won, price_field),
        (!won.is_empty() && !reorders).then(|| same_order(won, price_field)),
        shared_name(view, at, won),
    ];
    all.into_iter().flatten().collect()
}

/// The on-demand and the spot offering of a type in a zone.
#[derive(Default)]
struct Market<'a> {
    on_demand: Option<Place<'a>>,
    spot: Option<Place<'a>>,
}

/// Where an overlay put on-demand below spot, or spot above on-demand.
fn on_demand_below_spot(view: &View<'_>, at: usize, won: &[Place<'_>], field: &str) -> Option<Advice> {
    let concerned: HashSet<(usize, usize)> = won.iter().map(|place| (place.pool, place.entry)).collect();
    let mut markets: BTreeMap<(usize, usize, &str), Market<'_>> = BTreeMap::new();
    let places = view.launchable.iter();
    for place in places.filter(|place| concerned.contains(&(place.pool, place.entry))) {
        let market = markets
            .entry((place.pool, place.entry, view.zone(place)))
            .or_default();
        match view.capacity_type(place) {
            ON_DEMAND => market.on_demand = Some(*place),
            SPOT => market.spot = Some(*place),
            _ => {}
        }
    }
    let is_ours = |place: &Place<'_>| view.winner(place) == Some(at);
    let ours: Vec<(Place<'_>, Place<'_>)> = markets
        .into_values()
        .filter_map(|market| market.on_demand.zip(market.spot))
        .filter(|(on_demand, spot)| is_ours(on_demand) || is_ours(spot))
        .collect();
    // The overlay is to blame where on-demand would not be below spot without it.
    let without = |place: &Place<'_>| match is_ours(place) {
        true => view.runner_up_price(place, at),
        false => view.price(place),
    };
    let below: Vec<_> = ours
        .iter()
        .filter(|(on_demand, spot)| {
            view.price(on_demand) < view.price(spot) && without(on_demand) >= without(spot)
        })
        .collect();
    let (on_demand, spot) = below.first()?;
    let types: BTreeSet<&str> = below.iter().map(|(place, _)| &*place.it.name).collect();
    // The largest reduction that keeps every on-demand price above the spot price beside it.
    let safe = ours
        .iter()
        .map(|(on_demand, spot)| 1.0 - view.price(spot) / on_demand.of.price)
        .fold(f64::INFINITY, f64::min);
    let percent = (safe * 100.0).floor();
    let limit = if percent >= 1.0 && is_ours(on_demand) {
        format!("reduce on-demand by at most {percent:.0}%, which keeps it above spot everywhere; or ")
    } else {
        String::new()
    };
    Some(Advice {
        rule: Rule::OnDemandBelowSpot,
        field: field.to_owned(),
        message: format!(
            "on-demand becomes cheaper than spot for {}, e.g. {} in {} (NodePool {}): on-demand ${:.4}, spot ${:.4}; \
             a pool that allows both then stops asking for that spot capacity, and launches that need spot may fail \
             (aws/karpenter-provider-aws#8704)",
            counted(types.len(), "type"),
            on_demand.it.name,
            view.zone(on_demand),
            view.pool_name(on_demand.pool),
            view.price(on_demand),
            view.price(spot),
        ),
        fix: format!(
            "{limit}limit the overlay to NodePools that allow on-demand only (karpenter.sh/nodepool)"
        ),
    })
}

/// Where one price stands for types of different size.
fn same_price(view: &View<'_>, overlay: &Overlay, won: &[Place<'_>], field: &str) -> Option<Advice> {
    let cpu = |place: &Place<'_>| {
        place
            .it
            .capacity
            .get(CPU)
            .map_or(0, crate::quantity::Quantity::milli_value)
    };
    // A price in place of others, or one that ends at zero: an adjusted price may coincide with another by accident.
    let replaces = overlay.price.as_ref().is_some_and(PriceChange::is_replacement);
    let flat = won
        .iter()
        .filter(|place| replaces || (view.price(place) == 0.0 && place.of.price > 0.0));
    let mut by_pool: BTreeMap<usize, (Place<'_>, Place<'_>)> = BTreeMap::new();
    for place in flat {
        let (least, most) = by_pool.entry(place.pool).or_insert((*place, *place));
        if cpu(place) < cpu(least) {
            *least = *place;
        }
        if cpu(place) > cpu(most) {
            *most = *place;
        }
    }
    let (least, most) = by_pool
        .values()
        .filter(|(least, most)| cpu(least) < cpu(most))
        .max_by_key(|(least, most)| cpu(most) - cpu(least))?;
    Some(Advice {
        rule: Rule::SamePrice,
        field: field.to_owned(),
        message: format!(
            "{} ({} vCPU) and {} ({} vCPU) both cost ${:.4}, so a launch takes either and consolidation no longer \
             replaces the large one by the small one",
            least.it.name,
            cpu(least) / 1000,
            most.it.name,
            cpu(most) / 1000,
            view.price(least),
        ),
        fix: "use a percentage in spec.priceAdjustment, which keeps the order of prices, or select one size"
            .to_owned(),
    })
}

fn same_order(won: &[Place<'_>], field: &str) -> Advice {
    Advice {
        rule: Rule::SameOrder,
        field: field.to_owned(),
        message: format!(
            "changes {}, but every launch candidate keeps its place in the order of prices, so the same nodes are \
             launched as without it",
            counted(won.len(), "price")
        ),
        fix: "select fewer types (or one capacity type), if other nodes were meant to be preferred"
            .to_owned(),
    }
}

/// Where the overlay changes an entry of the catalogue that it does not match, because Karpenter stores by name.
fn shared_name(view: &View<'_>, at: usize, won: &[Place<'_>]) -> Option<Advice> {
    let matches = |place: &Place<'_>| {
        view.evaluation
            .matches(at, place.pool, place.entry, place.offering)
    };
    let unmatched: Vec<&Place<'_>> = won.iter().filter(|place| !matches(place)).collect();
    let first = unmatched.first()?;
    let names: BTreeSet<&str> = unmatched.iter().map(|place| &*place.it.name).collect();
    Some(Advice {
        rule: Rule::SharedName,
        field: "spec.requirements".to_owned(),
        message: format!(
            "also changes entries that it does not match, for {}, e.g. {}: the catalogue has several entries of that \
             name (one per operating system) and Karpenter stores prices by name",
            counted(names.len(), "type"),
            first.it.name
        ),
        fix: "leave out the requirement that tells the entries apart, since it has no effect".to_owned(),
    })
}

/// Which overlays change the order of launch candidates in some pool.
pub(super) fn reordering(view: &View<'_>) -> BTreeSet<usize> {
    let mut reordering = BTreeSet::new();
    for places in view.launchable.chunk_by(|a, b| a.pool == b.pool) {
        let price = |at: usize| places.get(at).map_or(0.0, |place| view.price(place));
        let name = |at: usize| places.get(at).map(|place| &*place.it.name);
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by(|a, b| {
            price(*a)
                .total_cmp(&price(*b))
                .then_with(|| name(*a).cmp(&name(*b)))
        });
        // What each offering would cost without its winner; the order must hold then too.
        let mut without: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
        for (at, place) in places.iter().enumerate() {
            if let Some(winner) = view.winner(place).filter(|winner| !reordering.contains(winner)) {
                let next = view.runner_up_price(place, winner);
                without.entry(winner).or_default().push((at, next));
            }
        }
        for (overlay, changes) in without {
            let mut prices: Vec<f64> = (0..places.len()).map(price).collect();
            for (at, next) in changes {
                prices.get_mut(at).into_iter().for_each(|price| *price = next);
            }
            let before = |at: usize| prices.get(at).copied().unwrap_or_default();
            let in_order = |a: usize, b: usize| {
                before(a)
                    .total_cmp(&before(b))
                    .then_with(|| name(a).cmp(&name(b)))
                    .is_le()
            };
            if !order.is_sorted_by(|a, b| in_order(*a, *b)) {
                reordering.insert(overlay);
            }
        }
    }
    reordering
}

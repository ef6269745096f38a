//! What stands in the way on nodes that exist and on claims that are being built.

use super::Known;
use super::edit::Edit;
use super::obstacles::{kind, lower};
use crate::packing::amounts::Amount;
use crate::packing::host_ports::{HostPort, conflict};
use crate::packing::ids::{ClaimId, Id, ShapeId, SizeId, StateId, TaintsId};
use crate::packing::model::Model;
use crate::packing::solver::Solver;
use crate::packing::states::{Merge, Side};
use crate::packing::topology::Kind;
use crate::requirements::Requirements;
use crate::taints::untolerated;
use crate::vocabulary::Symbol;

/// The changes that would each let the pod go to one of them.
pub(super) fn ways(solver: &mut Solver<'_, '_>, shape: ShapeId, size: SizeId) -> Vec<Vec<Edit>> {
    let mut found: Vec<Vec<Edit>> = Vec::new();
    for node in solver.model.nodes.ids().collect::<Vec<_>>() {
        let slot = &solver.model.nodes[node];
        let place = Place {
            state: slot.state,
            side: Side::Node,
            taints: slot.taints,
            host: slot.host,
            ports: slot.ports.clone(),
        };
        if slot.is_overdrawn || !slot.volumes.is_unlimited() {
            continue;
        }
        let left = slot.remaining.clone();
        let edits = of_place(solver, &place, shape);
        found.extend(edits.and_then(|edits| with_room(solver, edits, &left, size)));
    }
    for claim in solver.claims.ids().collect::<Vec<_>>() {
        let place = Place {
            state: solver.claims[claim].state,
            side: Side::Claim,
            taints: solver.model.pools[solver.claims[claim].pool].taints,
            host: solver.model.first_claim_host + claim.index(),
            ports: solver.claims[claim].ports.clone(),
        };
        if let Some(edits) = of_place(solver, &place, shape) {
            for left in rooms(solver, claim, size) {
                found.extend(with_room(solver, edits.clone(), &left, size));
            }
        }
    }
    found
}

/// A node, or a claim that is being built.
struct Place {
    state: StateId,
    side: Side,
    taints: TaintsId,
    host: usize,
    ports: Vec<HostPort>,
}

/// What the types of a claim leave, if they are large enough: as little too small as possible for each resource.
fn rooms(solver: &Solver<'_, '_>, claim: ClaimId, size: SizeId) -> Vec<Vec<Amount>> {
    let claim = &solver.claims[claim];
    let pool = &solver.model.pools[claim.pool];
    let needed = &solver.model.sizes[size].amounts;
    let mut best: Known<u128, (Amount, Vec<Amount>)> = Known::default();
    for entry in claim.types.iter() {
        let group = pool.daemons.iter().find(|group| group.types.contains(entry));
        let overhead = |at: usize| {
            group
                .and_then(|group| group.overhead.get(at))
                .copied()
                .unwrap_or(0)
        };
        let has = pool.sizes.of_type(entry).zip(&claim.requests).enumerate();
        let left: Vec<Amount> = has.map(|(at, (has, used))| has - used - overhead(at)).collect();
        let (mut mask, mut missing) = (0_u128, 0);
        for (at, (needed, left)) in needed.iter().zip(&left).enumerate() {
            if needed > left {
                mask |= 1_u128.checked_shl(at as u32).unwrap_or(0);
                missing += needed - left;
            }
        }
        let known = best.get(&mask);
        if known.is_none_or(|(known, _)| missing < *known) {
            best.insert(mask, (missing, left));
        }
    }
    let mut rooms: Vec<Vec<Amount>> = best.into_values().map(|(_, left)| left).collect();
    rooms.sort();
    rooms
}

/// `edits` and what makes the pod fit into `left`.
fn with_room(
    solver: &Solver<'_, '_>,
    mut edits: Vec<Edit>,
    left: &[Amount],
    size: SizeId,
) -> Option<Vec<Edit>> {
    let (dimensions, size) = (&solver.model.dimensions, &solver.model.sizes[size]);
    let requests = dimensions.list(&size.amounts, &size.named);
    for (at, (needed, left)) in size.amounts.iter().zip(left).enumerate() {
        if needed > left {
            let name = dimensions.names().get(at)?;
            edits.push(lower(name, requests.get(name)?, *left)?);
        }
    }
    Some(edits)
}

/// What stands in the way on a node or claim, apart from room.
fn of_place(solver: &mut Solver<'_, '_>, place: &Place, shape: ShapeId) -> Option<Vec<Edit>> {
    let Model {
        shapes,
        states,
        taints,
        topology,
        ..
    } = &mut solver.model;
    let shape = &shapes[shape];
    let mut edits = Vec::new();
    for taint in untolerated(taints.get(place.taints), shape.form.tolerations()) {
        edits.push(Edit::Tolerate { taint: taint.clone() });
    }
    if conflict(&shape.ports, &place.ports).is_some() {
        edits.push(Edit::DropHostPorts);
    }
    let mut kept = Requirements::new();
    for (key, wanted) in states.get(shape.requirements).iter() {
        let has = states.get(place.state).get(key);
        let may_be_absent =
            wanted.accepts_absence() || (place.side == Side::Claim && states.is_well_known(key));
        let agrees = has.map_or(may_be_absent, |has| {
            let both_absent = has.accepts_absence() && wanted.accepts_absence();
            both_absent || has.has_intersection(wanted, &states.vocabulary)
        });
        if agrees {
            kept.add(key, wanted.clone(), &states.vocabulary);
        } else {
            let key = states.vocabulary.text(key).to_owned();
            edits.push(Edit::DropLabel { key });
        }
    }
    let mut drop_rule = |rule: Kind, key: Symbol, of_other_pod: bool| {
        let edit = Edit::DropRule {
            rule: kind(rule),
            key: states.vocabulary.text(key).to_owned(),
        };
        if !edits.contains(&edit) {
            edits.push(edit);
        }
        !of_other_pod
    };
    for rule in topology.label_rules(&solver.checks) {
        let has = states.get(place.state).get(rule.key);
        let allowed = match has {
            Some(has) => rule
                .allowed
                .iter()
                .any(|value| has.has(*value, &states.vocabulary)),
            None => place.side == Side::Claim && states.is_well_known(rule.key),
        };
        if !allowed && !drop_rule(rule.kind, rule.key, rule.of_other_pod) {
            return None;
        }
    }
    for rule in topology.unsatisfied_hosts(&solver.checks, place.host) {
        if !drop_rule(rule.kind, rule.key, rule.of_other_pod) {
            return None;
        }
    }
    if !shape.volumes.is_empty() {
        let kept = states.intern(kept);
        let Merge::Into(base) = states.merge(place.state, kept, place.side) else {
            return None;
        };
        let fits = |volumes: &StateId| matches!(states.merge(base, *volumes, place.side), Merge::Into(_));
        if !shape.volumes.iter().any(fits) {
            return None;
        }
    }
    Some(edits)
}

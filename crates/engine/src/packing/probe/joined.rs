//! The steps of the node that the pod is on in the end, with the other pods on it.

use super::Who;
use super::chain::{Constraint, Row, Stage};
use super::new_node::{fit, own_steps};
use super::wording::{by_name, rule, stage_of};
use crate::bitset::BitSet;
use crate::packing::amounts::add;
use crate::packing::ids::{ClaimId, ShapeId, SizeId, StateId};
use crate::packing::model::Model;
use crate::packing::solver::Solver;
use crate::packing::states::{Merge, Side};

/// The steps that lead from the catalogue to the types of a claim that the pod has joined.
pub(super) fn steps(
    solver: &mut Solver<'_, '_>,
    who: &Who<'_>,
    claim: ClaimId,
    shape: ShapeId,
    size: SizeId,
) -> Vec<Row> {
    let (pool, given) = (solver.claims[claim].pool, solver.claims[claim].state);
    let (mut chain, merged) = own_steps(solver, who, pool, shape, size, Some(given));
    let merged = merged.unwrap_or(solver.model.pools[pool].template);
    let claim = &solver.claims[claim];
    let Model {
        pools,
        shapes,
        states,
        types,
        topology,
        dimensions,
        ..
    } = &mut solver.model;
    let pool = &pools[pool];

    let mut state: StateId = merged;
    for volumes in shapes[shape].volumes.iter() {
        // The alternative that was taken is part of what the node demands.
        let is_taken = states.merge(claim.state, *volumes, Side::Claim) == Merge::Into(claim.state);
        if let Merge::Into(with_volumes) = states.merge(merged, *volumes, Side::Claim)
            && is_taken
        {
            state = with_volumes;
            break;
        }
    }
    if state != merged {
        let left = types.left(state, states);
        chain.classes = left.classes.clone();
        chain.keep(Stage::Volumes, &left.types, || {
            let detail = states.get(state).describe(&states.vocabulary);
            Constraint::new(who.pod(), "spec.volumes", detail)
        });
    }
    // Where the pod has a rule on a label, the node's value of that label is what the rule chose from.
    for found in topology.rules_on_labels(&solver.checks) {
        let Some(chosen) = states.get(claim.state).get(found.key).cloned() else {
            continue;
        };
        let mut narrowed = states.get(state).clone();
        narrowed.add(found.key, chosen, &states.vocabulary);
        state = states.intern(narrowed);
        let left = types.left(state, states);
        chain.classes = left.classes.clone();
        chain.keep(stage_of(Some(&found)), &left.types, || {
            rule(who, Some(&found), states)
        });
    }

    let others = claim.pods.len().saturating_sub(1);
    let object = match others {
        1 => "1 other pod on the node".to_owned(),
        _ => format!("{others} other pods on the node"),
    };
    let left = types.left(claim.state, states);
    chain.classes = left.classes.clone();
    chain.keep(Stage::Requirements, &left.types, || {
        let differs = |key: &crate::vocabulary::Symbol| {
            *key != states.hostname && states.get(claim.state).get(*key) != states.get(state).get(*key)
        };
        let parts: Vec<String> = by_name(claim.state, states)
            .into_iter()
            .filter(differs)
            .filter_map(|key| {
                let requirement = states.get(claim.state).get(key)?;
                let text = requirement.describe(&states.vocabulary);
                Some(format!("{} {text}", states.vocabulary.text(key)))
            })
            .collect();
        Constraint::new(&object, "spec.nodeSelector, spec.affinity", parts.join(", "))
    });
    // What all pods ask for, with what DaemonSets take; types outside the NodePool are gone by now.
    fit(&mut chain, &pool.sizes, &claim.requests, dimensions, |at| {
        let name = dimensions.names().get(at).map_or("", |name| name);
        let list = dimensions.list(&claim.requests, &claim.named);
        let amount = list.get(name).map(ToString::to_string).unwrap_or_default();
        Constraint::new(
            &object,
            format!("spec.containers[*].resources.requests[{name}]"),
            format!("all pods of the node ask for {name} {amount}"),
        )
    });
    let mut fits = BitSet::empty(types.count());
    for group in &pool.daemons {
        let mut of_group = group.types.clone();
        let mut needed = claim.requests.clone();
        add(&mut needed, &group.overhead);
        pool.sizes.keep_fitting(&mut of_group, &needed);
        fits.union_with(&of_group);
    }
    chain.keep(Stage::Daemonsets, &fits, || {
        let detail = format!("take what the {} pods of the node would need", claim.pods.len());
        Constraint::new("DaemonSets", "spec.template.spec", detail)
    });
    // A DaemonSet's port that another pod of the node wants too.
    let mut free = BitSet::empty(types.count());
    for group in &pool.daemons {
        if crate::packing::host_ports::conflict(&claim.ports, &group.ports).is_none() {
            free.union_with(&group.types);
        }
    }
    chain.keep(Stage::HostPorts, &free, || {
        let detail = "a DaemonSet takes a port that one of them wants";
        Constraint::new(&object, "spec.containers[*].ports[*].hostPort", detail)
    });
    // Only the limits at the moment when the node was opened are left as a reason.
    chain.keep(Stage::Limits, &claim.types, || {
        let object = format!("NodePool {}", pool.name);
        Constraint::new(object, "spec.limits", "left less when the node was opened")
    });
    chain.rows
}

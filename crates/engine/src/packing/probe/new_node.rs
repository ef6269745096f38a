//! What a NodePool makes of a new node for the pod, step by step.

use std::sync::Arc;

use super::chain::{Chain, Constraint, Stage};
use super::wording::{by_name, offering_demands, pod_field, rule, stage_of, volumes};
use super::{PoolProbe, Who};
use crate::bitset::BitSet;
use crate::labels;
use crate::packing::amounts::{Amount, Dimensions, add};
use crate::packing::claim::Refusal;
use crate::packing::host_ports::conflict;
use crate::packing::ids::{PoolId, ShapeId, SizeId, StateId};
use crate::packing::model::Model;
use crate::packing::pools::{self, min_values_unmet};
use crate::packing::solver::{Candidate, Solver};
use crate::packing::states::{Merge, Side, States};
use crate::packing::topology::{HostVerdict, Unsatisfied};
use crate::packing::types::{Sizes, Types};
use crate::packing::{MinValuesPolicy, Problem};
use crate::taints::{describe, untolerated};

/// A pod that could have reserved capacity in one NodePool does not go to those that are tried after it.
pub(super) fn wait(probe: &mut PoolProbe, other: &str) {
    let detail = "the pod waits for reserved capacity there, all of which is taken for now";
    let constraint = Constraint::new(format!("NodePool {other}"), "reservations", detail);
    refuse(probe, Stage::Offerings, constraint);
}

/// The cheapest types, which are all that a claim may name, do not meet `minValues`.
pub(super) fn give_up(probe: &mut PoolProbe, limit: usize) {
    let detail = format!("the {limit} cheapest instance types do not meet minValues");
    let object = format!("NodePool {}", probe.name);
    let constraint = Constraint::new(object, "spec.template.spec.requirements[*].minValues", detail);
    refuse(probe, Stage::MinValues, constraint);
}

fn refuse(probe: &mut PoolProbe, stage: Stage, constraint: Constraint) {
    let Some(last) = probe.rows.last() else { return };
    let mut chain = Chain {
        left: last.after.clone(),
        classes: last.classes.clone(),
        rows: std::mem::take(&mut probe.rows),
    };
    chain.keep_none(stage, || constraint);
    probe.rows = chain.rows;
    probe.accepted = None;
}

/// The steps for a new node of `pool`, and whether the pod would wait for its reserved capacity.
pub(super) fn steps(
    solver: &mut Solver<'_, '_>,
    who: &Who<'_>,
    pool: PoolId,
    shape: ShapeId,
    size: SizeId,
) -> (PoolProbe, bool) {
    let (mut chain, merged) = own_steps(solver, who, pool, shape, size, None);
    let candidate = Candidate {
        claim: None,
        pool,
        size,
        shape,
        relax_min_values: solver.options.min_values == MinValuesPolicy::BestEffort,
    };
    let mut state = merged;
    if let Some(merged) = merged {
        let (with_volumes, narrowed) = place(solver, candidate, merged);
        let Model { states, types, .. } = &mut solver.model;
        match with_volumes {
            Some(with_volumes) => {
                let left = types.left(with_volumes, states);
                chain.classes = left.classes.clone();
                chain.keep(Stage::Volumes, &left.types, || {
                    volumes(who, Some(with_volumes), states)
                });
            }
            None => chain.keep_none(Stage::Volumes, || volumes(who, None, states)),
        }
        let host = solver.model.first_claim_host + solver.claims.len();
        let Model {
            states,
            types,
            topology,
            ..
        } = &mut solver.model;
        if topology.host_verdict(&solver.checks, host, states.placeholder, states) != HostVerdict::Allowed {
            let unsatisfied = topology.unsatisfied_host(&solver.checks, host);
            chain.keep_none(stage_of(unsatisfied.as_ref()), || {
                rule(who, unsatisfied.as_ref(), states)
            });
        }
        match narrowed {
            Ok(narrowed) => {
                let left = types.left(narrowed, states);
                chain.classes = left.classes.clone();
                let first = topology.first_rule(&solver.checks);
                chain.keep(stage_of(first.as_ref()), &left.types, || {
                    rule(who, first.as_ref(), states)
                });
                state = Some(narrowed);
            }
            Err(unsatisfied) => chain.keep_none(stage_of(unsatisfied.as_ref()), || {
                rule(who, unsatisfied.as_ref(), states)
            }),
        }
    }
    limits(solver, pool, &mut chain);
    if let Some(state) = state {
        beyond_types(solver, candidate, state, &mut chain);
    }
    let host = solver.model.first_claim_host + solver.claims.len();
    let pool_now = &solver.model.pools[pool];
    let (name, template) = (pool_now.name.clone(), pool_now.template);
    let may_be = !pool_now.limits.nodes_exhausted() && solver.check_place(pool, host, shape).is_ok();
    let verdict = may_be.then(|| solver.accept(candidate, template));
    let waits = verdict == Some(Err(Refusal::Reserved));
    let probe = PoolProbe {
        name,
        rows: chain.rows,
        accepted: verdict.and_then(Result::ok).map(|accepted| accepted.types),
        skipped: None,
    };
    (probe, waits)
}

/// The steps up to the offerings, and the demands of NodePool and pod together if they go together. `given` are the
/// demands of a node that has taken the pod; it may have labels that only other pods have brought about.
pub(super) fn own_steps(
    solver: &mut Solver<'_, '_>,
    who: &Who<'_>,
    pool: PoolId,
    shape: ShapeId,
    size: SizeId,
    given: Option<StateId>,
) -> (Chain, Option<StateId>) {
    let Model {
        pools,
        shapes,
        sizes,
        states,
        types,
        taints,
        dimensions,
        ..
    } = &mut solver.model;
    let (pool, shape, size) = (&pools[pool], &shapes[shape], &sizes[size]);
    let object = format!("NodePool {}", pool.name);
    let mut chain = Chain::new(types.count(), types.classes.len());
    template_keys(&mut chain, &object, pool.template, who, states, types);

    let merged = match states.merge(pool.template, shape.requirements, Side::Claim) {
        Merge::Into(merged) => Some(merged),
        _ => given,
    };
    match merged {
        Some(merged) => {
            for key in by_name(shape.requirements, states) {
                let Some(wanted) = states.get(merged).get(key).cloned() else {
                    continue;
                };
                let set = types.agreeing(key, &wanted, &states.vocabulary).clone();
                chain.keep(Stage::Requirements, &set, || {
                    let own = states.get(shape.requirements).get(key);
                    let detail = own.unwrap_or(&wanted).describe(&states.vocabulary);
                    Constraint::new(who.pod(), pod_field(shape, states.vocabulary.text(key)), detail)
                });
            }
        }
        None => chain.keep_none(Stage::Requirements, || {
            let conflict = states.conflict(pool.template, shape.requirements, Side::Claim);
            let key = conflict
                .as_ref()
                .map_or("", |conflict| states.vocabulary.text(conflict.key()));
            let detail = conflict
                .as_ref()
                .map(|conflict| conflict.describe(&states.vocabulary));
            Constraint::new(who.pod(), pod_field(shape, key), detail.unwrap_or_default())
        }),
    }
    chain.looked_at(Stage::Requirements);

    let missing = untolerated(taints.get(pool.taints), shape.form.tolerations());
    if !missing.is_empty() {
        let names: Vec<String> = missing.into_iter().map(describe).collect();
        chain.keep_none(Stage::Taints, || {
            let detail = format!("{} is not tolerated", names.join(", "));
            Constraint::new(&object, "spec.template.spec.taints", detail)
        });
    }

    fit(&mut chain, &pool.sizes, &size.amounts, dimensions, |at| {
        let list = dimensions.list(&size.amounts, &size.named);
        let name = dimensions.names().get(at).map_or("", |name| name);
        let amount = list.get(name).map(ToString::to_string).unwrap_or_default();
        Constraint::new(
            who.pod(),
            format!("spec.containers[*].resources.requests[{name}]"),
            format!("asks for {name} {amount}"),
        )
    });
    chain.looked_at(Stage::Resources);

    // Types that the NodePool does not have are in no group; that they are not offered is told later.
    let mut elsewhere = BitSet::full(types.count());
    elsewhere.subtract(&pool.types);
    let (mut fits, mut free) = (elsewhere.clone(), elsewhere);
    let mut most = None;
    let mut port = None;
    for group in &pool.daemons {
        match conflict(&shape.ports, &group.ports) {
            None => free.union_with(&group.types),
            Some(taken) => port = Some(taken.to_string()),
        }
        let mut of_group = group.types.clone();
        let mut needed = size.amounts.clone();
        add(&mut needed, &group.overhead);
        pool.sizes.keep_fitting(&mut of_group, &needed);
        if of_group != group.types {
            most = Some(&group.requests);
        }
        fits.union_with(&of_group);
    }
    chain.keep(Stage::Daemonsets, &fits, || {
        let amounts: Vec<String> = most
            .iter()
            .flat_map(|list| list.iter())
            .map(|(name, quantity)| format!("{name} {quantity}"))
            .collect();
        let detail = format!("take {} of a node", amounts.join(", "));
        Constraint::new("DaemonSets", "spec.template.spec", detail)
    });
    chain.keep(Stage::HostPorts, &free, || {
        let detail = format!("a DaemonSet takes {} on the node", port.unwrap_or_default());
        Constraint::new(who.pod(), "spec.containers[*].ports[*].hostPort", detail)
    });

    let left = types.left(pool.template, states);
    chain.classes = left.classes.clone();
    chain.keep(Stage::Offerings, &types.offered(&left.classes), || {
        let detail = offering_demands(pool.template, types, states);
        Constraint::new(&object, "spec.template.spec.requirements", detail)
    });
    if let Some(merged) = merged {
        let left = types.left(merged, states);
        chain.classes = left.classes.clone();
        chain.keep(Stage::Offerings, &types.offered(&left.classes), || {
            let detail = offering_demands(merged, types, states);
            Constraint::new(who.pod(), "spec.nodeSelector, spec.affinity.nodeAffinity", detail)
        });
    }
    chain.looked_at(Stage::Offerings);
    (chain, merged)
}

/// One step per label of the template.
fn template_keys(
    chain: &mut Chain,
    object: &str,
    template: StateId,
    who: &Who<'_>,
    states: &States,
    types: &mut Types,
) {
    for key in by_name(template, states) {
        let Some(wanted) = states.get(template).get(key) else {
            continue;
        };
        let set = types.agreeing(key, wanted, &states.vocabulary).clone();
        chain.keep(Stage::Requirements, &set, || {
            let text = states.vocabulary.text(key);
            let is_label = who.objects.node_pools.iter().any(|pool| {
                let metadata = &pool.spec.template.metadata;
                object.strip_prefix("NodePool ") == pool.metadata.name.as_deref()
                    && metadata
                        .labels
                        .keys()
                        .any(|label| labels::normalise(label) == text)
            });
            let field = if is_label {
                format!("spec.template.metadata.labels[{text}]")
            } else {
                format!("spec.template.spec.requirements[{text}]")
            };
            Constraint::new(object, field, wanted.describe(&states.vocabulary))
        });
    }
}

/// One step per resource.
pub(super) fn fit(
    chain: &mut Chain,
    sizes: &Sizes,
    amounts: &[Amount],
    dimensions: &Dimensions,
    constraint: impl Fn(usize) -> Constraint,
) {
    let mut usable = chain.left.clone();
    sizes.keep_fitting(&mut usable, &[]);
    chain.keep(Stage::Resources, &usable, || {
        Constraint::new(
            "catalogue",
            "overhead",
            "the system takes more than the machine has",
        )
    });
    for (at, needed) in amounts.iter().enumerate() {
        let mut only = vec![0; dimensions.names().len()];
        if let Some(cell) = only.get_mut(at) {
            *cell = *needed;
        }
        let mut set = chain.left.clone();
        sizes.keep_fitting(&mut set, &only);
        chain.keep(Stage::Resources, &set, || constraint(at));
    }
}

/// The state that volumes and then rules leave of `merged`, chosen as the solver chooses.
fn place(
    solver: &mut Solver<'_, '_>,
    candidate: Candidate,
    merged: StateId,
) -> (Option<StateId>, Result<StateId, Option<Unsatisfied>>) {
    let volumes = Arc::clone(&solver.model.shapes[candidate.shape].volumes);
    let alternatives: Vec<Option<StateId>> = match volumes.as_ref() {
        [] => vec![None],
        volumes => volumes.iter().copied().map(Some).collect(),
    };
    let mut last = (None, Err(None));
    for alternative in alternatives {
        let states = &mut solver.model.states;
        let base = match alternative.map(|volumes| states.merge(merged, volumes, Side::Claim)) {
            None => merged,
            Some(Merge::Into(with_volumes)) => with_volumes,
            Some(_) => continue,
        };
        let Model { states, topology, .. } = &mut solver.model;
        let first = match topology.narrow(&solver.checks, base, Side::Claim, 0, states) {
            Ok(first) => first,
            Err(unsatisfied) => {
                last = (Some(base), Err(Some(unsatisfied)));
                continue;
            }
        };
        // The first turn stands for all of them where none works.
        last = (Some(base), Ok(first.state));
        let turns = if alternative.is_some() { 1 } else { first.turns };
        for turn in 0..turns {
            let Model { states, topology, .. } = &mut solver.model;
            let Ok(narrowed) = topology.narrow(&solver.checks, base, Side::Claim, turn, states) else {
                continue;
            };
            match solver.accept_types(candidate, narrowed.state) {
                Ok(_) => return (Some(base), Ok(narrowed.state)),
                Err(Refusal::NotNow) => {}
                Err(_) => {
                    last = (Some(base), Ok(narrowed.state));
                    break;
                }
            }
        }
    }
    last
}

fn limits(solver: &Solver<'_, '_>, pool: PoolId, chain: &mut Chain) {
    let pool = &solver.model.pools[pool];
    let object = format!("NodePool {}", pool.name);
    if pool.limits.nodes_exhausted() {
        chain.keep_none(Stage::Limits, || {
            Constraint::new(&object, "spec.limits[nodes]", "the number of nodes is used up")
        });
    }
    for (name, left, within) in pool.limits.each(solver.model.types.count()) {
        chain.keep(Stage::Limits, &within, || {
            let detail = format!("leaves {left}");
            Constraint::new(&object, format!("spec.limits[{name}]"), detail)
        });
    }
}

/// `minValues` and reservations, which are about what is left as a whole.
fn beyond_types(solver: &mut Solver<'_, '_>, candidate: Candidate, state: StateId, chain: &mut Chain) {
    let object = format!("NodePool {}", solver.model.pools[candidate.pool].name);
    let Model { states, types, .. } = &mut solver.model;
    let unmet = min_values_unmet(&chain.left, states.get(state), types);
    if let Some((key, found)) = unmet.first()
        && !candidate.relax_min_values
    {
        let key = states.vocabulary.text(*key);
        chain.keep_none(Stage::MinValues, || {
            let detail = format!("only {found} different values are left");
            Constraint::new(
                object,
                format!("spec.template.spec.requirements[{key}].minValues"),
                detail,
            )
        });
    }
    if !chain.left.is_empty() && solver.accept_types(candidate, state) == Err(Refusal::Reserved) {
        chain.keep_none(Stage::Offerings, || {
            Constraint::new(
                "catalogue",
                "reservations",
                "all reserved capacity is taken for now",
            )
        });
    }
}

/// The steps of a NodePool that can launch nothing.
pub(super) fn without_types(
    solver: &mut Solver<'_, '_>,
    problem: &Problem<'_>,
    position: usize,
    name: String,
) -> PoolProbe {
    let Model {
        states,
        types,
        dimensions,
        ..
    } = &mut solver.model;
    let mut chain = Chain::new(types.count(), types.classes.len());
    let object = format!("NodePool {name}");
    if let (Some(node_pool), Some(pod)) = (
        problem.objects.node_pools.get(position),
        problem.objects.pods.first(),
    ) {
        let who = Who {
            pod,
            objects: problem.objects,
        };
        let template = pools::template(node_pool, states);
        template_keys(&mut chain, &object, template, &who, states, types);
        chain.looked_at(Stage::Requirements);
        let sizes = Sizes::new(problem, position, dimensions);
        fit(&mut chain, &sizes, &[], dimensions, |_| {
            Constraint::new(&object, "spec", String::new())
        });
        chain.looked_at(Stage::Resources);
        let left = types.left(template, states);
        chain.classes = left.classes.clone();
        chain.keep(Stage::Offerings, &types.offered(&left.classes), || {
            let detail = offering_demands(template, types, states);
            Constraint::new(&object, "spec.template.spec.requirements", detail)
        });
        chain.looked_at(Stage::Offerings);
        let unmet = min_values_unmet(&chain.left, states.get(template), types);
        if let Some((key, found)) = unmet.first() {
            let key = states.vocabulary.text(*key);
            chain.keep_none(Stage::MinValues, || {
                let field = format!("spec.template.spec.requirements[{key}].minValues");
                Constraint::new(&object, field, format!("only {found} different values are left"))
            });
        }
    }
    PoolProbe {
        name,
        rows: chain.rows,
        accepted: None,
        skipped: None,
    }
}

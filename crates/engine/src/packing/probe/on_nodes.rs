//! Why existing nodes do not take the pod.

use super::chain::Stage;
use crate::packing::host_ports::conflict;
use crate::packing::ids::{NodeId, ShapeId, StateId};
use crate::packing::model::Model;
use crate::packing::pods::PodEntry;
use crate::packing::solver::Solver;
use crate::packing::states::{Merge, Side};
use crate::packing::topology::HostVerdict;

use super::wording::stage_of;

/// For each node that refuses the pod, the first thing that stands in the way.
pub(super) fn refusals(solver: &mut Solver<'_, '_>, entry: &PodEntry, shape: ShapeId) -> Vec<Stage> {
    let ids: Vec<NodeId> = solver.model.nodes.ids().collect();
    ids.into_iter()
        .filter_map(|id| refusal(solver, id, entry, shape))
        .collect()
}

fn refusal(solver: &mut Solver<'_, '_>, id: NodeId, entry: &PodEntry, shape: ShapeId) -> Option<Stage> {
    let Model {
        nodes,
        shapes,
        sizes,
        taints,
        states,
        topology,
        ..
    } = &mut solver.model;
    let (node, shape) = (&nodes[id], &mut shapes[shape]);
    let tolerations = shape.form.tolerations();
    if !shape.tolerated.ask(taints, node.taints, tolerations) {
        return Some(Stage::Taints);
    }
    let amounts = sizes[entry.size].amounts.iter();
    let is_full = node.is_overdrawn || amounts.zip(&node.remaining).any(|(needed, left)| needed > left);
    if is_full {
        return Some(Stage::Resources);
    }
    if conflict(&shape.ports, &node.ports).is_some() {
        return Some(Stage::HostPorts);
    }
    if !node.volumes.is_unlimited() && !node.volumes.has_room_for(&entry.attached) {
        return Some(Stage::Volumes);
    }
    if topology.host_verdict(&solver.checks, node.host, node.host_name, states) != HostVerdict::Allowed {
        let unsatisfied = topology.unsatisfied_host(&solver.checks, node.host);
        return Some(stage_of(unsatisfied.as_ref()));
    }
    let Merge::Into(base) = states.merge(node.state, shape.requirements, Side::Node) else {
        return Some(Stage::Requirements);
    };
    let alternatives: Vec<Option<StateId>> = match shape.volumes.as_ref() {
        [] => vec![None],
        volumes => volumes.iter().copied().map(Some).collect(),
    };
    let mut last = Stage::Volumes;
    for volumes in alternatives {
        let with_volumes = match volumes.map(|volumes| states.merge(base, volumes, Side::Node)) {
            None => base,
            Some(Merge::Into(with_volumes)) => with_volumes,
            Some(_) => continue,
        };
        match topology.narrow(&solver.checks, with_volumes, Side::Node, 0, states) {
            Ok(_) => return None,
            Err(unsatisfied) => last = stage_of(Some(&unsatisfied)),
        }
    }
    Some(last)
}

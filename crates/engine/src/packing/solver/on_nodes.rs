//! Placing a pod on a node that exists.

use super::Solver;
use crate::packing::claim::Refusal;
use crate::packing::host_ports::conflict;
use crate::packing::ids::{Id, NodeId, ShapeId, StateId};
use crate::packing::model::Model;
use crate::packing::pods::PodEntry;
use crate::packing::states::{Merge, Side};
use crate::packing::topology::{HostVerdict, Placed};

impl Solver<'_, '_> {
    pub(super) fn add_to_node(&mut self, entry: &PodEntry, shape: ShapeId) -> Option<NodeId> {
        let count = self.model.nodes.len();
        let avoids = self.avoided.concerns(entry.position);
        let mut from = 0;
        loop {
            let (shapes, sizes) = (&self.model.shapes, &self.model.sizes);
            let next = shapes[shape]
                .dead_nodes
                .next_unmarked(&sizes[entry.size].full_nodes, from, count);
            let at = next?;
            from = at + 1;
            if avoids && self.avoided.nodes.contains(at) {
                continue;
            }
            self.steps += self.steps_per_place;
            match self.node_accepts(NodeId::new(at), entry, shape) {
                Ok(state) => {
                    self.place_on_node(NodeId::new(at), entry, shape, state);
                    return Some(NodeId::new(at));
                }
                Err(Refusal::Never) => self.model.shapes[shape].dead_nodes.insert(at),
                Err(Refusal::Full) => self.model.sizes[entry.size].full_nodes.insert(at),
                Err(Refusal::TooLarge | Refusal::NotNow | Refusal::Reserved) => {}
            }
        }
    }

    fn node_accepts(&mut self, id: NodeId, entry: &PodEntry, shape_id: ShapeId) -> Result<StateId, Refusal> {
        let Model {
            nodes,
            shapes,
            sizes,
            taints,
            states,
            topology,
            labels_may_appear,
            ..
        } = &mut self.model;
        let (node, shape) = (&nodes[id], &mut shapes[shape_id]);
        if !shape.tolerated.ask(taints, node.taints, shape.form.tolerations()) {
            return Err(Refusal::Never);
        }
        let size = &sizes[entry.size].amounts;
        if node.is_overdrawn
            || size
                .iter()
                .zip(&node.remaining)
                .any(|(needed, left)| needed > left)
        {
            return Err(Refusal::Full);
        }
        if !shape.ports.is_empty() {
            self.steps += 8 * (shape.ports.len() + node.ports.len()) as u64;
        }
        if conflict(&shape.ports, &node.ports).is_some() {
            return Err(Refusal::Never);
        }
        if !node.volumes.is_unlimited() && !node.volumes.has_room_for(&entry.attached) {
            return Err(Refusal::NotNow);
        }
        match topology.host_verdict(&self.checks, node.host, node.host_name, states) {
            HostVerdict::Allowed => {}
            HostVerdict::Never => return Err(Refusal::Never),
            HostVerdict::NotNow => return Err(Refusal::NotNow),
        }
        let labels_may_appear = *labels_may_appear;
        let refusal = |merge| match merge {
            Merge::Disjoint => Refusal::Never,
            Merge::Undefined(_) if !labels_may_appear => Refusal::Never,
            _ => Refusal::NotNow,
        };
        let base = match states.merge(node.state, shape.requirements, Side::Node) {
            Merge::Into(base) => base,
            other => return Err(refusal(other)),
        };
        let alternatives: &[StateId] = if shape.volumes.is_empty() {
            &[base]
        } else {
            &shape.volumes
        };
        for &volumes in alternatives {
            let with_volumes = match states.merge(base, volumes, Side::Node) {
                _ if shape.volumes.is_empty() => base,
                Merge::Into(with_volumes) => with_volumes,
                _ => continue,
            };
            if let Ok(narrowed) = topology.narrow(&self.checks, with_volumes, Side::Node, 0, states) {
                return Ok(narrowed.state);
            }
        }
        Err(Refusal::NotNow)
    }

    fn place_on_node(&mut self, id: NodeId, entry: &PodEntry, shape: ShapeId, state: StateId) {
        let Model {
            nodes,
            shapes,
            subjects,
            sizes,
            taints,
            states,
            topology,
            ..
        } = &mut self.model;
        if let Some(trial) = &mut self.trial {
            trial.save(id, &nodes[id]);
        }
        let (node, shape) = (&mut nodes[id], &shapes[shape]);
        for (left, needed) in node.remaining.iter_mut().zip(&sizes[entry.size].amounts) {
            *left -= needed;
        }
        node.state = state;
        node.ports.extend(shape.ports.iter().cloned());
        node.volumes.attach(&entry.attached);
        node.pods.push(entry.position);
        let placed = Placed {
            host: node.host,
            taints: node.taints,
            state,
        };
        let selected = &subjects[shape.subject].selected;
        self.steps += 2 * (selected.len() + shape.inverse_owned.len()) as u64;
        topology.record(selected, &shape.inverse_owned, placed, states, taints);
    }
}

//! What `explain pod` found, as data: the JSON contract, from which tables are written too.

use std::collections::BTreeMap;

use serde::Serialize;
use veneer_engine::explain::{Change, Constraint, Counts, Edit, Placement, PodExplanation, Step, Waterfall};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::Evaluation;
use veneer_engine::packing::{NewNodeClaim, Objects};

use crate::commands::simulate::report::{Cheapest, View};
use crate::output::Timing;
use crate::scheduling::StarvingReport;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// `namespace/name`.
    pub(super) pod: String,
    /// `placed` or `unschedulable`.
    pub(super) outcome: &'static str,
    pub(super) placement: Option<PlacementReport>,
    /// What kube-scheduler says, where it refuses a pod that an existing node takes by our rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheduler_refusal: Option<String>,
    /// Why it goes nowhere, one for each NodePool.
    pub(super) reasons: Vec<String>,
    pub(super) existing_nodes: ExistingNodes,
    pub(super) node_pools: Vec<PoolReport>,
    pub(super) why_not: Option<WhyNot>,
    pub(super) smallest_change: Option<ChangeReport>,
    /// Present where the pod has waited for long although nothing keeps it from a place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) starving: Option<StarvingReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timing: Option<Timing>,
}

/// Where the pod goes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlacementReport {
    /// The node that exists; none for a new one.
    pub(super) node: Option<String>,
    /// Whether it runs there already.
    pub(super) running: bool,
    /// The NodePool of a new node.
    pub(super) node_pool: Option<String>,
    /// The pods of a new node, this one included.
    pub(super) pods: usize,
    /// The types that are left for a new node.
    pub(super) instance_types: usize,
    pub(super) cheapest: Option<Cheapest>,
}

/// The nodes that there are.
#[derive(Debug, Serialize)]
pub(super) struct ExistingNodes {
    pub(super) asked: usize,
    /// How many refuse the pod, by the first thing in the way.
    pub(super) refused: BTreeMap<&'static str, usize>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolReport {
    pub(super) node_pool: String,
    pub(super) waterfall: Vec<StepReport>,
    /// How many types are left in the end.
    pub(super) remaining: usize,
    /// Why the NodePool takes no part at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepReport {
    pub(super) stage: &'static str,
    pub(super) constraint: Option<ConstraintReport>,
    pub(super) before: usize,
    pub(super) after: usize,
    /// What is left, counted.
    pub(super) by_architecture: BTreeMap<String, usize>,
    pub(super) by_family: BTreeMap<String, usize>,
    pub(super) by_capacity_type: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ConstraintReport {
    pub(super) object: String,
    pub(super) field: String,
    pub(super) detail: String,
}

impl From<&Constraint> for ConstraintReport {
    fn from(constraint: &Constraint) -> Self {
        Self {
            object: constraint.object.clone(),
            field: constraint.field.clone(),
            detail: constraint.detail.clone(),
        }
    }
}

impl std::fmt::Display for ConstraintReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.object, self.field, self.detail)
    }
}

/// Why the pod does not get a type.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhyNot {
    pub(super) instance_type: String,
    /// None where the type is not removed.
    pub(super) stage: Option<&'static str>,
    pub(super) reason: String,
    /// The answer of each NodePool.
    pub(super) node_pools: Vec<WhyNotPool>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhyNotPool {
    pub(super) node_pool: String,
    pub(super) stage: Option<&'static str>,
    pub(super) reason: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ChangeReport {
    pub(super) description: String,
    pub(super) change: Edits,
}

#[derive(Debug, Serialize)]
pub(super) struct Edits {
    pub(super) edits: Vec<EditReport>,
    pub(super) measure: MeasureReport,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MeasureReport {
    fields: usize,
    distance: f64,
    node_pool_fields: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct EditReport {
    pub(super) object: String,
    pub(super) field: String,
    /// What there is; none where the field is added to.
    pub(super) from: Option<String>,
    /// What there would be; none where it is dropped.
    pub(super) to: Option<String>,
}

/// What an explanation is about.
pub(super) struct Subject<'a> {
    pub(super) objects: &'a Objects,
    pub(super) catalogue: &'a Catalogue,
    pub(super) evaluation: &'a Evaluation,
    pub(super) explanation: &'a PodExplanation,
}

impl Subject<'_> {
    fn view(&self) -> View<'_, '_> {
        View {
            pods: &self.objects.pods,
            catalogue: self.catalogue,
            evaluation: self.evaluation,
        }
    }

    pub(super) fn names(&self, positions: &[usize]) -> Vec<String> {
        self.view().names(positions)
    }

    pub(super) fn report(&self, position: usize) -> Report {
        let explanation = self.explanation;
        let pod = self.view().names(&[position]).concat();
        let reasons = explanation.reasons.iter().map(|reason| match &reason.node_pool {
            Some(pool) => format!("NodePool {pool}: {}", reason.message),
            None => reason.message.clone(),
        });
        Report {
            outcome: if explanation.placement.is_some() {
                "placed"
            } else {
                "unschedulable"
            },
            placement: explanation
                .placement
                .as_ref()
                .map(|placement| self.placement(placement)),
            scheduler_refusal: None,
            reasons: reasons.collect(),
            existing_nodes: ExistingNodes {
                asked: explanation.nodes,
                refused: explanation
                    .refusing_nodes
                    .iter()
                    .map(|(stage, count)| (stage.as_str(), *count))
                    .collect(),
            },
            node_pools: explanation.waterfalls.iter().map(pool_report).collect(),
            why_not: None,
            smallest_change: explanation
                .smallest_change
                .as_ref()
                .map(|change| change_report(change, &pod)),
            starving: None,
            timing: None,
            pod,
        }
    }

    fn placement(&self, placement: &Placement) -> PlacementReport {
        let empty = PlacementReport {
            node: None,
            running: false,
            node_pool: None,
            pods: 0,
            instance_types: 0,
            cheapest: None,
        };
        match placement {
            Placement::Running { node } => PlacementReport {
                node: Some(node.clone()),
                running: true,
                ..empty
            },
            Placement::Existing { node } => PlacementReport {
                node: Some(node.clone()),
                ..empty
            },
            Placement::New(claim) => {
                let view = self.view();
                let vocabulary = &self.explanation.results.vocabulary;
                PlacementReport {
                    node_pool: Some(claim.node_pool.clone()),
                    pods: claim.pods.len(),
                    instance_types: claim.instance_types.len(),
                    cheapest: view.cheapest(claim, vocabulary, &view.begins()),
                    ..empty
                }
            }
        }
    }

    /// Why the pod does not get a type, which may be several entries of the catalogue.
    pub(super) fn why_not(&self, name: &str, entries: &[usize]) -> WhyNot {
        let pools: Vec<(usize, WhyNotPool)> = self
            .explanation
            .waterfalls
            .iter()
            .map(|waterfall| self.why_not_in(waterfall, name, entries))
            .collect();
        // The NodePool that it goes to answers; without one, the NodePool where the type gets furthest.
        let chosen = match &self.explanation.placement {
            Some(Placement::New(claim)) => pools.iter().find(|(_, pool)| pool.node_pool == claim.node_pool),
            _ => pools.iter().rev().max_by_key(|(step, _)| *step),
        };
        let (stage, reason) = match (chosen, &self.explanation.placement) {
            (Some((_, pool)), Some(Placement::Existing { node })) if pool.stage.is_none() => (
                None,
                format!("a new node could be one, but the pod goes to node {node}, which has room"),
            ),
            (Some((_, pool)), _) => (pool.stage, pool.reason.clone()),
            (None, _) => {
                let reason = self.explanation.reasons.first();
                let text = reason.map_or("no NodePool was asked", |reason| &reason.message);
                (None, text.to_owned())
            }
        };
        WhyNot {
            instance_type: name.to_owned(),
            stage,
            reason,
            node_pools: pools.into_iter().map(|(_, pool)| pool).collect(),
        }
    }

    /// The answer of one NodePool, and how far the type gets in it.
    fn why_not_in(&self, waterfall: &Waterfall, name: &str, entries: &[usize]) -> (usize, WhyNotPool) {
        let node_pool = waterfall.node_pool.clone();
        if let Some(skipped) = &waterfall.skipped {
            let reason = format!("the NodePool takes no part: {skipped}");
            let pool = WhyNotPool {
                node_pool,
                stage: None,
                reason,
            };
            return (0, pool);
        }
        let mut removed: Option<(usize, &Step)> = None;
        for entry in entries {
            match waterfall.removed_at(*entry) {
                Some(found) if removed.is_none_or(|(step, _)| found.0 > step) => removed = Some(found),
                Some(_) => {}
                None => {
                    let reason = self.candidate(name, entries, &waterfall.node_pool);
                    let pool = WhyNotPool {
                        node_pool,
                        stage: None,
                        reason,
                    };
                    return (usize::MAX, pool);
                }
            }
        }
        let reason = removed.and_then(|(_, step)| step.constraint.as_ref());
        let pool = WhyNotPool {
            node_pool,
            stage: removed.map(|(_, step)| step.stage.as_str()),
            reason: reason.map_or_else(String::new, |constraint| {
                ConstraintReport::from(constraint).to_string()
            }),
        };
        (removed.map_or(0, |(step, _)| step), pool)
    }

    /// What is known about a type that is not removed.
    fn candidate(&self, name: &str, entries: &[usize], node_pool: &str) -> String {
        let claim: Option<&NewNodeClaim> = match &self.explanation.placement {
            Some(Placement::New(claim)) if claim.node_pool == node_pool => Some(claim),
            _ => None,
        };
        let Some(claim) = claim else {
            return format!("{name} is left for a new node of this NodePool");
        };
        let rank = claim
            .instance_types
            .iter()
            .position(|entry| entries.contains(entry));
        let Some(rank) = rank else {
            let limit = claim.instance_types.len();
            return format!("{name} would do, but a node keeps the {limit} cheapest types only");
        };
        let view = self.view();
        let begins = view.begins();
        let vocabulary = &self.explanation.results.vocabulary;
        let entry = claim.instance_types.get(rank).copied().unwrap_or(0);
        let price = |offering: &Option<Cheapest>| offering.as_ref().map_or(0.0, |it| it.price);
        let own = view.cheapest_of(entry, claim, vocabulary, &begins);
        let cheapest = view.cheapest(claim, vocabulary, &begins);
        if rank == 0 {
            return format!(
                "{name} is the cheapest of the {} types that are left",
                claim.instance_types.len()
            );
        }
        format!(
            "{name} is one of the {} types that are left, number {} by price: ${:.4}/h, and {} costs ${:.4}/h",
            claim.instance_types.len(),
            rank + 1,
            price(&own),
            cheapest.as_ref().map_or("the cheapest", |it| &it.instance_type),
            price(&cheapest),
        )
    }
}

fn pool_report(waterfall: &Waterfall) -> PoolReport {
    PoolReport {
        node_pool: waterfall.node_pool.clone(),
        waterfall: waterfall.steps.iter().map(step_report).collect(),
        remaining: waterfall.remaining.len(),
        skipped: waterfall.skipped.clone(),
    }
}

fn step_report(step: &Step) -> StepReport {
    let Counts {
        total,
        by_architecture,
        by_family,
        by_capacity_type,
    } = step.after.clone();
    StepReport {
        stage: step.stage.as_str(),
        constraint: step.constraint.as_ref().map(ConstraintReport::from),
        before: step.before.total,
        after: total,
        by_architecture,
        by_family,
        by_capacity_type,
    }
}

fn change_report(change: &Change, pod: &str) -> ChangeReport {
    let texts: Vec<String> = change.edits.iter().map(Edit::describe).collect();
    ChangeReport {
        description: texts.join(", and "),
        change: Edits {
            edits: change.edits.iter().map(|edit| edit_report(edit, pod)).collect(),
            measure: MeasureReport {
                fields: change.measure.edits,
                distance: (change.measure.distance * 1e3).round() / 1e3,
                node_pool_fields: change.measure.node_pool_edits,
            },
        },
    }
}

fn edit_report(edit: &Edit, pod: &str) -> EditReport {
    let object = match edit.node_pool() {
        Some(pool) => format!("NodePool {pool}"),
        None => format!("Pod {pod}"),
    };
    let (from, to) = match edit {
        Edit::Tolerate { taint } => (None, Some(veneer_engine::taints::describe(taint))),
        Edit::LowerRequest { from, to, .. } | Edit::RaiseLimit { from, to, .. } => {
            (Some(from.to_string()), Some(to.to_string()))
        }
        Edit::Allow { value, .. } => (None, Some(value.clone())),
        Edit::LowerMinValues { from, to, .. } => (Some(from.to_string()), Some(to.to_string())),
        Edit::DropLabel { key } | Edit::DropRule { key, .. } => (Some(key.clone()), None),
        Edit::DropHostPorts => (Some("the host ports".to_owned()), None),
        Edit::DropGates => (Some("the gates".to_owned()), None),
    };
    EditReport {
        object,
        field: edit.field(),
        from,
        to,
    }
}

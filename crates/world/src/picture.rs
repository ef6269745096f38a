//! What people look at: one moment of a world, and the sum of a run.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use veneer_api::labels::kubernetes;
use veneer_engine::plan::{is_daemon_pod, is_spare, label, node_pool_of};
use veneer_steering::commitments::{Kind, Target};
use veneer_steering::decisions::State as Wish;
use veneer_steering::overlays::{Purpose, purpose};

use crate::billing::Bill;
use crate::cloud::State;
use crate::execute::kind_of;
use crate::objects::node_of;
use crate::scenario::Span;
use crate::statistics::Latency;
use crate::world::World;

/// One moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Picture {
    /// The time.
    pub now: Timestamp,
    /// Nodes that are there, by pool.
    pub pools: Vec<PoolRow>,
    /// Instances that are paid, by kind.
    pub machines: Vec<MachineRow>,
    /// Instances that have no node yet.
    pub booting: usize,
    /// Spare nodes that wait for pods.
    pub spares: usize,
    /// Instances that are stopped or hibernated.
    pub stopped: usize,
    /// Pods of workloads.
    pub pods: usize,
    /// Those without a node.
    pub pending: usize,
    /// The overlays that exist.
    pub overlays: Vec<OverlayRow>,
    /// What is paid for, and how much of it is used.
    pub commitments: Vec<CommitmentRow>,
    /// What an hour costs now.
    pub rate: Bill,
}

/// The nodes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRow {
    /// The pool.
    pub name: String,
    /// How many nodes.
    pub nodes: usize,
    /// How many by type, architecture and capacity type, most first.
    pub kinds: Vec<(String, usize)>,
}

/// Instances of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineRow {
    /// The type.
    pub instance_type: String,
    /// The architecture.
    pub arch: String,
    /// How they were bought.
    pub capacity_type: String,
    /// How many.
    pub count: usize,
    /// What they cost an hour at list prices.
    pub list: f64,
}

/// An overlay.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OverlayRow {
    /// Its name.
    pub name: String,
    /// What it does to prices.
    pub effect: String,
    /// Why it exists.
    pub why: String,
}

/// A commitment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitmentRow {
    /// What it covers.
    pub name: String,
    /// How much there is: instances, or dollars per hour.
    pub owned: f64,
    /// How much of it is used now.
    pub used: f64,
    /// `instances` or `$/h`.
    pub unit: &'static str,
    /// Whether an overlay steers to it, and why or why not.
    pub steering: String,
}

/// What a run came to.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The scenario.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// How long it ran.
    pub simulated: Span,
    /// Nodes at the end.
    pub nodes: usize,
    /// The largest number of nodes.
    pub peak_nodes: usize,
    /// Instances launched, by architecture and capacity type.
    pub launched: BTreeMap<String, u64>,
    /// Claims that went, by reason.
    pub removed: BTreeMap<String, u64>,
    /// Pods at the end.
    pub pods: usize,
    /// Those without a node.
    pub pending: usize,
    /// How long pods waited for a node, in seconds.
    pub latency: Latency,
    /// Spot instances that were taken back.
    pub interruptions: u64,
    /// Launches for which there was no capacity.
    pub insufficient_capacity: u64,
    /// Spare nodes that were given to pods.
    pub spares_used: u64,
    /// Pods that had to move.
    pub evictions: u64,
    /// Overlays that were created, updated and deleted.
    pub overlay_writes: BTreeMap<String, u64>,
    /// What it cost, in dollars.
    pub cost: Bill,
    /// The same history without steering, in dollars.
    pub without_steering: Option<f64>,
    /// What steering saved, in dollars.
    pub saved: Option<f64>,
}

impl World {
    /// How things are now.
    #[must_use]
    pub fn picture(&self) -> Picture {
        let mut pools: BTreeMap<&str, BTreeMap<String, usize>> = self
            .objects
            .pools
            .keys()
            .map(|pool| (pool.as_str(), BTreeMap::new()))
            .collect();
        for node in self.objects.nodes.values() {
            let pool = node_pool_of(&node.metadata);
            let instance_type = label(&node.metadata, kubernetes::INSTANCE_TYPE).unwrap_or("?");
            if pool.is_empty() {
                continue;
            }
            *pools
                .entry(pool)
                .or_default()
                .entry(instance_type.to_owned())
                .or_default() += 1;
        }
        let pools = pools.into_iter().map(|(pool, kinds)| {
            let nodes = kinds.values().sum();
            let mut kinds: Vec<(String, usize)> = kinds.into_iter().collect();
            kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            PoolRow {
                name: pool.to_owned(),
                nodes,
                kinds,
            }
        });
        let mut machines: BTreeMap<(String, String, String), (usize, f64)> = BTreeMap::new();
        let mut booting = 0;
        for machine in self
            .cloud
            .machines
            .values()
            .filter(|one| one.state == State::Running)
        {
            let (arch, capacity_type) = kind_of(&machine.described.labels);
            let entry = machines
                .entry((machine.instance_type.clone(), arch, capacity_type))
                .or_default();
            entry.0 += 1;
            entry.1 += machine.price;
            booting += usize::from(!self.objects.nodes.contains_key(&machine.claim));
        }
        let machines = machines.into_iter();
        let mut machines: Vec<MachineRow> = machines
            .map(
                |((instance_type, arch, capacity_type), (count, list))| MachineRow {
                    instance_type,
                    arch,
                    capacity_type,
                    count,
                    list,
                },
            )
            .collect();
        machines.sort_by(|a, b| b.list.total_cmp(&a.list));
        let pods = self.objects.pods.values().filter(|pod| !is_daemon_pod(pod));
        let (mut count, mut pending) = (0, 0);
        for pod in pods {
            count += 1;
            pending += usize::from(node_of(pod).is_none());
        }
        let applied = self.rates();
        Picture {
            now: self.now,
            pools: pools.collect(),
            machines,
            booting,
            spares: self
                .objects
                .nodes
                .values()
                .filter(|one| is_spare(&one.metadata))
                .count(),
            stopped: self
                .cloud
                .machines
                .values()
                .filter(|one| one.state == State::Stopped)
                .count(),
            pods: count,
            pending,
            overlays: self.overlay_rows(),
            commitments: self.commitment_rows(&applied),
            rate: applied.bill,
        }
    }

    fn overlay_rows(&self) -> Vec<OverlayRow> {
        let rows = self.objects.overlays.values().map(|overlay| {
            let spec = &overlay.spec;
            let price = spec
                .price_adjustment
                .clone()
                .or_else(|| spec.price.clone().map(|price| format!("${price}")));
            let name = overlay.metadata.name.clone().unwrap_or_default();
            let labels = overlay.metadata.labels.as_ref();
            let why = match labels.map_or(Purpose::Foreign, purpose) {
                Purpose::CostAware(_, target) => self.decision_about(target.as_ref()),
                Purpose::Preference => "preferred by its NodePool".to_owned(),
                Purpose::Foreign => "written by a user".to_owned(),
            };
            OverlayRow {
                name,
                effect: price.unwrap_or_else(|| "capacity".to_owned()),
                why,
            }
        });
        rows.collect()
    }

    fn decision_about(&self, target: Option<&Target>) -> String {
        let decisions = self
            .steering()
            .map(|steerer| steerer.decided.decisions.as_slice());
        let mut decisions = decisions.unwrap_or_default().iter();
        let found = decisions.find(|one| Some(&one.target) == target);
        found.map_or_else(String::new, |one| {
            let left = one.balance.map(|balance| balance.left - one.used.taken);
            match (one.target.kind, left) {
                (Kind::ReservedInstance, Some(left)) => format!("{left:.0} reserved instances unused"),
                (_, Some(left)) => format!("${left:.2}/h of the plan unused"),
                (_, None) => one.reason.in_words(),
            }
        })
    }

    fn commitment_rows(&self, applied: &crate::billing::Applied) -> Vec<CommitmentRow> {
        let decisions = self
            .steering()
            .map(|steerer| steerer.decided.decisions.as_slice());
        let decisions = decisions.unwrap_or_default();
        let region = self.scenario.region.as_str();
        let steering = |target: &Target| {
            let one = decisions.iter().find(|one| one.target == *target);
            one.map_or_else(
                || "not steered".to_owned(),
                |one| {
                    let state = if one.state == Wish::Removed { "off" } else { "on" };
                    format!("{state}: {}", one.reason.in_words())
                },
            )
        };
        let commitments = &self.scenario.commitments;
        let reserved = commitments.reserved_instances.iter().map(|one| {
            let used = applied.reserved.iter().filter(|((name, zone), _)| {
                *name == one.instance_type && one.zone.as_ref().is_none_or(|own| own == zone)
            });
            let used: f64 = used.map(|(_, count)| *count).sum();
            let zone = one.zone.as_deref().unwrap_or_default();
            CommitmentRow {
                name: format!("RI {} {zone}", one.instance_type).trim_end().to_owned(),
                owned: f64::from(one.count),
                used: used.min(f64::from(one.count)),
                unit: "instances",
                steering: steering(&Target::reserved_in(&one.instance_type, region, zone)),
            }
        });
        let plans = commitments
            .savings_plans
            .iter()
            .zip(&applied.plans)
            .map(|(plan, used)| {
                let (name, target) = match &plan.family {
                    Some(family) => (format!("plan {family}"), Target::family(family, region)),
                    None => ("plan Compute".to_owned(), Target::compute()),
                };
                CommitmentRow {
                    name,
                    owned: plan.commitment,
                    used: *used,
                    unit: "$/h",
                    steering: steering(&target),
                }
            });
        reserved.chain(plans).collect()
    }

    /// What the run came to so far, beside the same history without steering.
    #[must_use]
    pub fn summary(&self, without: Option<&Self>) -> Summary {
        let cost = self.bill();
        let without_steering = without.map(|other| other.bill().paid);
        let statistics = &self.statistics;
        let launched = statistics.launches.iter();
        Summary {
            scenario: self.scenario.name.clone(),
            seed: self.seed,
            simulated: Span(self.now.duration_since(self.scenario.start)),
            nodes: self.objects.nodes.len(),
            peak_nodes: statistics.peak_nodes,
            launched: launched
                .map(|((arch, capacity), count)| (format!("{arch} {capacity}"), *count))
                .collect(),
            removed: statistics.deleted.clone(),
            pods: self
                .objects
                .pods
                .values()
                .filter(|pod| !is_daemon_pod(pod))
                .count(),
            pending: self.pending(),
            latency: statistics.latency(),
            interruptions: statistics.interruptions,
            insufficient_capacity: statistics.insufficient,
            spares_used: statistics.spares_used,
            evictions: statistics.evictions,
            overlay_writes: statistics.overlay_writes.clone(),
            cost,
            without_steering,
            saved: without_steering.map(|other| other - cost.paid),
        }
    }
}

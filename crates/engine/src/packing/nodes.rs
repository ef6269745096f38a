//! Existing nodes and claims in flight, as places to put pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::storage::v1::CSINode;

use super::Objects;
use super::amounts::{Amount, Dimensions, add};
use super::cluster::ClusterNode;
use super::daemons::Daemon;
use super::grouping::SizeBook;
use super::host_ports::{HostPort, host_ports};
use super::ids::{SizeId, StateId, Table, TaintsId};
use super::volumes::{Attached, Storage};
use crate::resources::ResourceList;
use crate::vocabulary::Symbol;

/// A place that exists.
#[derive(Clone, Debug)]
pub(super) struct NodeSlot {
    pub(super) name: String,
    pub(super) is_initialized: bool,
    /// What its labels are, and what the pods placed here have added.
    pub(super) state: StateId,
    pub(super) taints: TaintsId,
    /// The host number and name, for rules about hosts.
    pub(super) host: usize,
    pub(super) host_name: Symbol,
    /// What is left of each resource.
    pub(super) remaining: Vec<Amount>,
    /// Whether some resource is overdrawn: nothing fits then.
    pub(super) is_overdrawn: bool,
    pub(super) ports: Vec<HostPort>,
    pub(super) volumes: VolumeUse,
    /// The pods placed here, by position.
    pub(super) pods: Vec<usize>,
}

/// The volumes on a node, by driver, for drivers with a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct VolumeUse {
    drivers: BTreeMap<String, (usize, BTreeSet<String>)>,
}

impl VolumeUse {
    /// Reads how many volumes a node can attach.
    pub(super) fn new(csi_node: Option<&CSINode>) -> Self {
        let drivers = csi_node.iter().flat_map(|csi_node| &csi_node.spec.drivers);
        let limited = drivers.filter_map(|driver| {
            let limit = driver.allocatable.as_ref()?.count.unwrap_or(0);
            Some((
                driver.name.clone(),
                (usize::try_from(limit).unwrap_or(0), BTreeSet::new()),
            ))
        });
        Self {
            drivers: limited.collect(),
        }
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.drivers.is_empty()
    }

    pub(super) fn attach(&mut self, volumes: &[Attached]) {
        for volume in volumes {
            if let Some((_, claims)) = self.drivers.get_mut(&volume.driver) {
                claims.insert(volume.claim.clone());
            }
        }
    }

    /// Whether `volumes` can be attached too. A node beyond its limit already takes no pod at all.
    pub(super) fn has_room_for(&self, volumes: &[Attached]) -> bool {
        self.drivers.iter().all(|(driver, (limit, claims))| {
            let more = volumes
                .iter()
                .filter(|volume| volume.driver == *driver && !claims.contains(&volume.claim));
            claims.len() + more.count() <= *limit
        })
    }
}

/// What a node has left before any pod is placed.
pub(super) fn remaining<'a>(
    node: &ClusterNode<'a>,
    allocatable: &ResourceList,
    objects: &'a Objects,
    running: &[&Daemon],
    dimensions: &Dimensions,
    sizes: &mut SizeBook<'a>,
    rows: &mut Rows,
) -> Vec<Amount> {
    let mut left = dimensions.row(allocatable);
    let listed = dimensions
        .names()
        .iter()
        .map(|name| allocatable.contains(name))
        .collect::<Vec<_>>();
    let mut used = vec![0; left.len()];
    let mut used_by_daemons = vec![0; left.len()];
    for pod in node.pods.iter().filter_map(|at| objects.pods.get(*at)) {
        let size = sizes.size(pod);
        let row = rows.row(size, &sizes.lists, dimensions);
        add(&mut used, row);
        if super::cluster::is_daemon(pod) {
            add(&mut used_by_daemons, row);
        }
    }
    let mut expected = vec![0; left.len()];
    for daemon in running {
        add(&mut expected, &dimensions.row(&daemon.requests));
    }
    let cells = left
        .iter_mut()
        .zip(listed)
        .zip(used.iter().zip(expected.iter().zip(&used_by_daemons)));
    for ((left, listed), (used, (expected, running))) in cells {
        // What a node does not list cannot be overdrawn.
        if listed {
            *left -= used + (expected - running).max(0);
        }
    }
    left
}

/// Sizes as rows, made when needed.
#[derive(Default)]
pub(super) struct Rows {
    rows: Vec<Option<Vec<Amount>>>,
}

impl Rows {
    fn row(
        &mut self,
        size: SizeId,
        lists: &Table<SizeId, ResourceList>,
        dimensions: &Dimensions,
    ) -> &[Amount] {
        let at = super::ids::Id::index(size);
        if self.rows.len() <= at {
            self.rows.resize(at + 1, None);
        }
        match self.rows.get_mut(at) {
            Some(slot) => slot.get_or_insert_with(|| dimensions.row(&lists[size])),
            None => &[],
        }
    }
}

/// The ports and volumes that the pods on a node have taken.
pub(super) fn taken(
    node: &ClusterNode<'_>,
    objects: &Objects,
    storage: &Storage<'_>,
    csi_node: Option<&CSINode>,
) -> (Vec<HostPort>, VolumeUse) {
    let mut volumes = VolumeUse::new(csi_node);
    let mut ports = Vec::new();
    for pod in node.pods.iter().filter_map(|at| objects.pods.get(*at)) {
        ports.extend(host_ports(pod));
        if !volumes.is_unlimited() {
            volumes.attach(&storage.attached(pod));
        }
    }
    (ports, volumes)
}

//! The spares that exist, and how far each of them is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::veneer;
use veneer_api::node_claim::{CONDITION_INITIALIZED, CONDITION_REGISTERED};
use veneer_api::{ConditionStatus, NodeClaim, find_condition};
use veneer_engine::cluster::Index;
use veneer_engine::cluster::purchase::purchase_option_of;
use veneer_engine::lifecycle::STOPPED;
use veneer_engine::plan::{
    InstanceState, Power, Snapshot, condition_true, is_daemon_pod, is_deleting, is_spare, is_spare_taint,
    is_terminal, is_to_be_stopped, is_used_spare, label, name, node_pool_of,
};

/// How soon a spare can take pods; the hottest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It runs and has joined the cluster.
    Ready,
    /// It is launching or starting.
    Warming,
    /// It is hibernated.
    Hibernated,
    /// It is stopped.
    Stopped,
    /// It is on its way to being stopped.
    Stopping,
}

/// A spare or a used one.
#[derive(Clone, Debug)]
pub struct Spare<'a> {
    /// Its claim.
    pub claim: &'a Arc<NodeClaim>,
    /// Its node, once it has one.
    pub node: Option<&'a Arc<Node>>,
    /// How far it is.
    pub stage: Stage,
    /// Whether pods are on its node, beside those of DaemonSets.
    pub has_pods: bool,
}

impl Spare<'_> {
    /// The claim's name.
    #[must_use]
    pub fn name(&self) -> &str {
        name(&self.claim.metadata)
    }

    /// When the claim was made.
    #[must_use]
    pub fn created(&self) -> Option<Timestamp> {
        self.claim.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    /// Since when it has had everything that pods need, if it has.
    #[must_use]
    pub fn initialised(&self) -> Option<Timestamp> {
        let conditions = &self.claim.status.as_ref()?.conditions;
        let found = find_condition(conditions, CONDITION_INITIALIZED)?;
        (found.status == ConditionStatus::True).then_some(found.last_transition_time.0)
    }

    /// How it was bought, as far as that is known.
    #[must_use]
    pub fn bought_as(&self) -> Option<&str> {
        purchase_option_of(&self.claim.metadata)
    }

    /// Whether its node still keeps pods away.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let taints = self.node.and_then(|node| node.spec.as_ref()?.taints.as_ref());
        taints.is_some_and(|taints| taints.iter().any(is_spare_taint))
    }
}

/// All spares of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Spares<'a> {
    /// Those that nobody uses, by Overprovisioner and pool, in the order of their names.
    pub empty: BTreeMap<(&'a str, &'a str), Vec<Spare<'a>>>,
    /// Those in use, likewise.
    pub used: BTreeMap<(&'a str, &'a str), Vec<Spare<'a>>>,
    /// How many nodes each pool has that are not spares.
    pub base: BTreeMap<&'a str, usize>,
}

impl<'a> Spares<'a> {
    /// Finds them. What is being deleted is not one any more.
    #[must_use]
    pub fn of(snapshot: &'a Snapshot) -> Self {
        Self::with_index(snapshot, &Index::new(snapshot))
    }

    /// The same where the snapshot is joined already.
    #[must_use]
    pub fn with_index(snapshot: &'a Snapshot, index: &Index<'a>) -> Self {
        let mut pods: HashMap<&str, usize> = HashMap::new();
        for pod in &snapshot.pods {
            let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            if let Some(on) = on.filter(|_| !is_terminal(pod) && !is_daemon_pod(pod)) {
                *pods.entry(on).or_default() += 1;
            }
        }
        let mut spares = Self::default();
        for (claim, machine) in index.claimed() {
            if is_deleting(&claim.metadata) {
                continue;
            }
            let pool = node_pool_of(&claim.metadata);
            if !is_spare(&claim.metadata) {
                *spares.base.entry(pool).or_default() += 1;
                if !is_used_spare(&claim.metadata) {
                    continue;
                }
            }
            let node = machine.node();
            let state = machine.instance().map(|instance| instance.state);
            let on_node = node.and_then(|node| pods.get(name(&node.metadata)));
            let spare = Spare {
                claim,
                node,
                stage: stage(claim, node.is_some(), state),
                has_pods: on_node.is_some(),
            };
            let owner = label(&claim.metadata, veneer::OVERPROVISIONER).unwrap_or_default();
            let list = if is_spare(&claim.metadata) {
                &mut spares.empty
            } else {
                &mut spares.used
            };
            list.entry((owner, pool)).or_default().push(spare);
        }
        spares
    }

    /// Takes the named claims out of the empty spares: pods get them.
    pub fn promote(&mut self, claims: &BTreeSet<String>) -> Vec<Spare<'a>> {
        let mut promoted = Vec::new();
        for ((owner, pool), list) in &mut self.empty {
            let (gone, left) = std::mem::take(list)
                .into_iter()
                .partition(|spare: &Spare<'a>| claims.contains(spare.name()));
            *list = left;
            *self.base.entry(pool).or_default() += gone.len();
            promoted.extend(gone.iter().cloned());
            self.used.entry((owner, pool)).or_default().extend(gone);
        }
        promoted
    }

    /// The empty spares of an Overprovisioner in a pool.
    #[must_use]
    pub fn empty_of(&self, owner: &str, pool: &str) -> &[Spare<'a>] {
        of(&self.empty, owner, pool)
    }

    /// The used spares of an Overprovisioner in a pool.
    #[must_use]
    pub fn used_of(&self, owner: &str, pool: &str) -> &[Spare<'a>] {
        of(&self.used, owner, pool)
    }

    /// How many nodes a pool has that are not spares.
    #[must_use]
    pub fn base_of(&self, pool: &str) -> usize {
        self.base.get(pool).copied().unwrap_or_default()
    }
}

fn of<'m, 'a>(
    lists: &'m BTreeMap<(&'a str, &'a str), Vec<Spare<'a>>>,
    owner: &str,
    pool: &str,
) -> &'m [Spare<'a>] {
    let found = lists.iter().find(|(key, _)| **key == (owner, pool));
    found.map_or(&[], |(_, list)| list.as_slice())
}

fn stage(claim: &NodeClaim, has_node: bool, state: Option<InstanceState>) -> Stage {
    if !is_to_be_stopped(claim) {
        return if condition_true(claim, CONDITION_INITIALIZED) && has_node {
            Stage::Ready
        } else {
            Stage::Warming
        };
    }
    // Only what has left the cluster for good can be started: its old node must not be taken for the new one.
    let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let has_left = find_condition(conditions, CONDITION_REGISTERED)
        .is_some_and(|one| one.status == ConditionStatus::False && one.reason == STOPPED);
    match Power::of(claim) {
        _ if has_node || !has_left || state != Some(InstanceState::Stopped) => Stage::Stopping,
        Power::Hibernate => Stage::Hibernated,
        _ => Stage::Stopped,
    }
}

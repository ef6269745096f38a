//! The only join by provider id: which nodes and which instance belong to which claim.
//!
//! Built once from a snapshot, and only read after that. The rule, for all decisions:
//!
//! - An id that is empty joins nothing: a claim without one is not launched yet, a node without one belongs to nobody.
//! - A claim and the nodes with its id are one machine, also while the claim, a node or both are being deleted.
//! - Several nodes with the id of one claim are all its nodes, which is a fault that its status tells. Its own is the one that the claim
//!   names; else the last one by name that stays; else the last one.
//! - Several claims with one id are a fault, too: nodes and instance belong to the last of them by name, and each of them has them as its
//!   own, so that none is taken for one whose instance is gone.
//! - An instance belongs to the claim with its id. One whose launch could not be written down is found by the name of its claim
//!   ([`Index::instance_for`]).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use veneer_api::{NodeClaim, NodePool};

use super::machine::Machine;
use crate::packing::hash::FastMap;
use crate::plan::{Instance, Snapshot, is_deleting, name, node_pool_of, provider_id};

/// The machines of a snapshot.
#[derive(Debug, Default)]
pub struct Index<'a> {
    /// Those with a claim, in the order of the claims; then nodes without one, in their order.
    machines: Vec<Machine<'a>>,
    claims: usize,
    by_claim: FastMap<&'a str, usize>,
    by_node: FastMap<&'a str, usize>,
    by_provider: FastMap<&'a str, usize>,
    instances: FastMap<&'a str, &'a Instance>,
}

/// The provider's name of a node's instance, once it has one.
fn node_provider_id(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    id.filter(|id| !id.is_empty())
}

impl<'a> Index<'a> {
    /// Joins the objects of a snapshot.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot) -> Self {
        Self::of(
            &snapshot.node_claims,
            &snapshot.nodes,
            &snapshot.node_pools,
            &snapshot.instances,
        )
    }

    /// Joins these.
    #[must_use]
    pub fn of(
        node_claims: &'a [Arc<NodeClaim>],
        nodes: &'a [Arc<Node>],
        node_pools: &'a [Arc<NodePool>],
        instances: &'a [Instance],
    ) -> Self {
        let pools = node_pools.iter();
        let pools: FastMap<&str, _> = pools.map(|pool| (name(&pool.metadata), pool)).collect();
        let mut index = Self {
            machines: Vec::with_capacity(node_claims.len()),
            claims: node_claims.len(),
            instances: instances
                .iter()
                .map(|instance| (instance.provider_id.as_str(), instance))
                .collect(),
            ..Self::default()
        };
        let mut doubled: Vec<(usize, &str)> = Vec::new();
        for (at, claim) in node_claims.iter().enumerate() {
            index.machines.push(Machine {
                claim: Some(claim),
                pool: pools.get(node_pool_of(&claim.metadata)).copied(),
                ..Machine::default()
            });
            index.by_claim.insert(name(&claim.metadata), at);
            if let Some(id) = provider_id(claim)
                && let Some(other) = index.by_provider.insert(id, at)
            {
                doubled.push((other, id));
            }
        }
        for node in nodes {
            let known = node_provider_id(node).and_then(|id| index.by_provider.get(id).copied());
            let at = known.unwrap_or(index.machines.len());
            match index.machines.get_mut(at) {
                Some(machine) => machine.add(node),
                None => index.machines.push(Machine {
                    nodes: vec![node],
                    pool: pools.get(node_pool_of(&node.metadata)).copied(),
                    ..Machine::default()
                }),
            }
            index.by_node.insert(name(&node.metadata), at);
        }
        for instance in instances {
            let at = index.by_provider.get(instance.provider_id.as_str());
            if let Some(machine) = at.and_then(|at| index.machines.get_mut(*at)) {
                machine.instance = Some(instance);
            }
        }
        for (other, id) in doubled {
            let owner = index.by_provider.get(id).and_then(|at| index.machines.get(*at));
            let owned = owner.map(|owner| (owner.nodes.clone(), owner.instance));
            if let (Some((nodes, instance)), Some(machine)) = (owned, index.machines.get_mut(other)) {
                machine.nodes = nodes;
                machine.instance = instance;
            }
        }
        index
    }

    /// Every machine: those with a claim in the order of the claims, then nodes without one.
    #[must_use]
    pub fn machines(&self) -> &[Machine<'a>] {
        &self.machines
    }

    /// Those with a claim, in the order of the claims.
    pub fn claimed(&self) -> impl Iterator<Item = (&'a Arc<NodeClaim>, &Machine<'a>)> {
        let machines = self.machines.iter().take(self.claims);
        machines.filter_map(|machine| Some((machine.claim?, machine)))
    }

    /// Nodes that no claim stands behind.
    pub fn unclaimed(&self) -> impl Iterator<Item = &'a Arc<Node>> {
        let machines = self.machines.iter().skip(self.claims);
        machines.filter_map(Machine::node)
    }

    /// The machine of a claim, by its name.
    #[must_use]
    pub fn of_claim(&self, claim: &str) -> Option<&Machine<'a>> {
        self.machines.get(*self.by_claim.get(claim)?)
    }

    /// The machine that a node belongs to, by its name.
    #[must_use]
    pub fn of_node(&self, node: &str) -> Option<&Machine<'a>> {
        self.machines.get(*self.by_node.get(node)?)
    }

    /// The claim that a node belongs to, by the node's name.
    #[must_use]
    pub fn claim_of(&self, node: &str) -> Option<&'a Arc<NodeClaim>> {
        self.of_node(node)?.claim
    }

    /// The instance behind a node, whether it has a claim or not.
    #[must_use]
    pub fn instance_of(&self, node: &Node) -> Option<&'a Instance> {
        self.instances.get(node_provider_id(node)?).copied()
    }

    /// Whether a claim has this instance.
    #[must_use]
    pub fn has_owner(&self, instance: &Instance) -> bool {
        self.by_provider.contains_key(instance.provider_id.as_str())
    }

    /// The instance of a claim: its own, or one that was launched for a claim of its name.
    #[must_use]
    pub fn instance_for(&self, claim: &NodeClaim, instances: &'a [Instance]) -> Option<&'a Instance> {
        let own = self.of_claim(name(&claim.metadata)).and_then(Machine::instance);
        own.or_else(|| instances.iter().find(|one| one.claim == name(&claim.metadata)))
    }
}

impl<'a> Machine<'a> {
    /// Adds a node; the one that comes first is the machine's own.
    fn add(&mut self, node: &'a Arc<Node>) {
        let named = self
            .claim
            .and_then(|claim| claim.status.as_ref()?.node_name.as_deref());
        let is_own = |node: &Node| (named == Some(name(&node.metadata)), !is_deleting(&node.metadata));
        let is_first = self
            .nodes
            .first()
            .is_none_or(|first| is_own(node) >= is_own(first));
        let at = if is_first { 0 } else { self.nodes.len() };
        self.nodes.insert(at, node);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Phase;
    use crate::plan::InstanceState;
    use crate::plan::world::{World, read};

    fn claim(name: &str, id: &str, more: serde_json::Value) -> Arc<NodeClaim> {
        let mut claim = json!({"metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": []},
            "status": {"providerID": id}});
        if let (Some(status), Some(more)) = (claim["status"].as_object_mut(), more.as_object()) {
            status.extend(more.clone());
        }
        read(claim)
    }

    fn node(name: &str, id: &str, deleting: bool) -> Arc<Node> {
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        read(json!({"metadata": {"name": name, "deletionTimestamp": deleted}, "spec": {"providerID": id}}))
    }

    fn snapshot(claims: Vec<Arc<NodeClaim>>, nodes: Vec<Arc<Node>>) -> Snapshot {
        let mut world = World::new();
        world.pool("default", |_| {});
        world.snapshot.node_claims = claims;
        world.snapshot.nodes = nodes;
        world.snapshot
    }

    fn names(machine: Option<&Machine<'_>>) -> Vec<String> {
        let nodes = machine.map_or(&[][..], Machine::nodes).iter();
        nodes.map(|node| name(&node.metadata).to_owned()).collect()
    }

    #[test]
    fn an_empty_id_joins_nothing() {
        let claims = vec![claim("a", "", json!({})), claim("b", "", json!({}))];
        let snapshot = snapshot(claims, vec![node("one", "", false), node("two", "", false)]);
        let index = Index::new(&snapshot);
        assert_eq!(names(index.of_claim("a")), [""; 0]);
        assert!(index.claim_of("one").is_none());
        let unclaimed: Vec<&str> = index.unclaimed().map(|node| name(&node.metadata)).collect();
        assert_eq!(unclaimed, ["one", "two"]);
        assert_eq!(index.machines().len(), 4);
        assert_eq!(index.of_claim("a").map(Machine::phase), Some(Phase::Claimed));
    }

    #[test]
    fn a_node_that_is_being_deleted_still_belongs_to_its_claim() {
        let snapshot = snapshot(vec![claim("a", "id", json!({}))], vec![node("one", "id", true)]);
        let index = Index::new(&snapshot);
        assert_eq!(names(index.of_claim("a")), ["one"]);
        assert_eq!(
            index.claim_of("one").map(|claim| name(&claim.metadata)),
            Some("a")
        );
        assert!(
            index
                .of_node("one")
                .is_some_and(|machine| !machine.accepts_pods())
        );
    }

    #[test]
    fn of_several_nodes_the_one_that_the_claim_names_is_its_own_then_the_last_that_stays() {
        let nodes = || {
            vec![
                node("one", "id", false),
                node("two", "id", false),
                node("zwei", "id", true),
            ]
        };
        for (named, own) in [("one", "one"), ("two", "two"), ("zwei", "zwei"), ("", "two")] {
            let snapshot = snapshot(vec![claim("a", "id", json!({"nodeName": named}))], nodes());
            let index = Index::new(&snapshot);
            let machine = index.of_claim("a");
            let found = machine.and_then(Machine::node).map(|node| name(&node.metadata));
            assert_eq!(found, Some(own), "{named:?}");
            assert_eq!(names(machine).len(), 3);
            for node in ["one", "two", "zwei"] {
                assert!(index.claim_of(node).is_some(), "{node}");
            }
        }
    }

    #[test]
    fn of_several_claims_with_one_id_each_has_the_instance_and_the_last_has_the_node() {
        let claims = vec![claim("a", "id", json!({})), claim("b", "id", json!({}))];
        let mut snapshot = snapshot(claims, vec![node("one", "id", false)]);
        snapshot.instances.push(Instance {
            provider_id: "id".to_owned(),
            claim: "a".to_owned(),
            launched: "2026-01-01T00:00:00Z".parse().unwrap(),
            state: InstanceState::Running,
        });
        let index = Index::new(&snapshot);
        assert_eq!(
            index.claim_of("one").map(|claim| name(&claim.metadata)),
            Some("b")
        );
        for claim in ["a", "b"] {
            assert_eq!(names(index.of_claim(claim)), ["one"], "{claim}");
            assert!(
                index.of_claim(claim).and_then(Machine::instance).is_some(),
                "{claim}"
            );
        }
        assert!(index.has_owner(&snapshot.instances[0]));
    }

    #[test]
    fn an_instance_whose_launch_was_not_written_down_is_found_by_the_name_of_its_claim() {
        let mut snapshot = snapshot(vec![claim("a", "", json!({}))], Vec::new());
        snapshot.instances.push(Instance {
            provider_id: "id".to_owned(),
            claim: "a".to_owned(),
            launched: "2026-01-01T00:00:00Z".parse().unwrap(),
            state: InstanceState::Running,
        });
        let index = Index::new(&snapshot);
        assert!(index.of_claim("a").and_then(Machine::instance).is_none());
        let found = index.instance_for(&snapshot.node_claims[0], &snapshot.instances);
        assert_eq!(found.map(|one| one.provider_id.as_str()), Some("id"));
        assert!(!index.has_owner(&snapshot.instances[0]));
    }
}

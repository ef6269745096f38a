//! What an action is known by.
//!
//! Two actions with the same identity are the same order, decided again: it is not started twice, it is left alone for a while after
//! it failed, and it is no news. What is written counts, and the version that it was decided for and the time of a transition do
//! not: they change with every attempt.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use veneer_api::{Condition, ResourceList};

use super::action::{Action, Target};
use super::objects::{name, node_pool_of};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the action of its name")]
pub enum Verb {
    CreateClaim,
    Launch,
    PatchClaim,
    ClaimStatus,
    DeleteClaim,
    PatchNode,
    DeleteNode,
    Nominate,
    Evict,
    DeletePod,
    Terminate,
    Stop,
    Start,
    ChangeType,
    PoolStatus,
    OverprovisionerStatus,
    AnnotatePool,
    Announce,
}

impl Verb {
    /// In words, with the kind of object.
    const fn words(self) -> &'static str {
        match self {
            Self::CreateClaim => "create NodeClaim of NodePool",
            Self::Launch => "launch NodeClaim",
            Self::PatchClaim => "patch NodeClaim",
            Self::ClaimStatus => "set status of NodeClaim",
            Self::DeleteClaim => "delete NodeClaim",
            Self::PatchNode => "patch Node",
            Self::DeleteNode => "delete Node",
            Self::Nominate => "nominate a node for Pod",
            Self::Evict => "evict Pod",
            Self::DeletePod => "delete Pod",
            Self::Terminate => "terminate instance",
            Self::Stop => "stop instance",
            Self::Start => "start instance",
            Self::ChangeType => "change type of instance",
            Self::PoolStatus => "set status of NodePool",
            Self::OverprovisionerStatus => "set status of Overprovisioner",
            Self::AnnotatePool => "annotate NodePool",
            Self::Announce => "write event of",
        }
    }
}

/// The identity of an action: what is done to which object, and what is written there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionId {
    verb: Verb,
    object: String,
    uid: String,
    content: u64,
}

impl ActionId {
    /// The launch of a claim.
    #[must_use]
    pub fn launch(claim: &str) -> Self {
        Self::of(Verb::Launch, claim)
    }

    /// Something that is done to an object by its name, whatever the content.
    #[must_use]
    pub fn of(verb: Verb, object: &str) -> Self {
        Self {
            verb,
            object: object.to_owned(),
            uid: String::new(),
            content: 0,
        }
    }

    fn on(verb: Verb, target: &Target) -> Self {
        let object = if target.namespace.is_empty() {
            target.name.clone()
        } else {
            format!("{}/{}", target.namespace, target.name)
        };
        Self {
            verb,
            object,
            uid: target.uid.clone(),
            content: 0,
        }
    }

    fn with(mut self, content: impl FnOnce(&mut DefaultHasher)) -> Self {
        let mut hasher = DefaultHasher::new();
        content(&mut hasher);
        self.content = hasher.finish();
        self
    }

    /// The claim whose launch it is, if it is one.
    #[must_use]
    pub fn launched_claim(&self) -> Option<&str> {
        (self.verb == Verb::Launch).then_some(self.object.as_str())
    }
}

impl fmt::Display for ActionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb.words(), self.object)
    }
}

fn hash_conditions(conditions: &[Condition], into: &mut DefaultHasher) {
    for one in conditions {
        (&one.type_, one.status.to_string(), &one.reason, &one.message).hash(into);
    }
}

fn hash_amounts(list: &ResourceList, into: &mut DefaultHasher) {
    for (resource, amount) in list {
        (resource, &amount.0).hash(into);
    }
}

impl Action {
    /// What it is known by.
    #[must_use]
    pub fn id(&self) -> ActionId {
        match self {
            // The next decision gives the claim another name.
            Self::CreateClaim(claim) => ActionId::of(Verb::CreateClaim, node_pool_of(&claim.metadata)),
            // The options may be others a moment later; the launch is the same.
            Self::Launch { claim, .. } => ActionId::launch(name(&claim.metadata)),
            Self::PatchClaim {
                target,
                labels,
                annotations,
                finalizers,
            } => ActionId::on(Verb::PatchClaim, target)
                .with(|into| (labels, annotations, finalizers).hash(into)),
            Self::ClaimStatus { target, status } => ActionId::on(Verb::ClaimStatus, target).with(|into| {
                hash_conditions(&status.conditions, into);
                hash_amounts(&status.capacity, into);
                hash_amounts(&status.allocatable, into);
                (&status.provider_id, &status.node_name, &status.image_id).hash(into);
                let event = status.last_pod_event_time.as_ref();
                event.map(|time| time.0.as_second()).hash(into);
            }),
            Self::DeleteClaim { target, reason } => {
                ActionId::on(Verb::DeleteClaim, target).with(|into| reason.hash(into))
            }
            Self::PatchNode { target, change } => ActionId::on(Verb::PatchNode, target).with(|into| {
                (&change.labels, &change.annotations, &change.finalizers).hash(into);
                for taint in change.taints.iter().flatten() {
                    (&taint.key, &taint.value, &taint.effect).hash(into);
                }
                for owner in change.owner_references.iter().flatten() {
                    owner.uid.hash(into);
                }
                (change.taints.is_some(), change.owner_references.is_some()).hash(into);
            }),
            Self::DeleteNode { target } => ActionId::on(Verb::DeleteNode, target),
            Self::Nominate { pod, node } => ActionId::on(Verb::Nominate, pod).with(|into| node.hash(into)),
            Self::Evict { pod } => ActionId::on(Verb::Evict, pod),
            Self::DeletePod { pod, grace_seconds } => {
                ActionId::on(Verb::DeletePod, pod).with(|into| grace_seconds.hash(into))
            }
            Self::Terminate { provider_id } => ActionId::of(Verb::Terminate, provider_id),
            Self::Stop {
                provider_id,
                hibernate,
            } => ActionId::of(Verb::Stop, provider_id).with(|into| hibernate.hash(into)),
            Self::Start { provider_id } => ActionId::of(Verb::Start, provider_id),
            Self::ChangeType {
                provider_id,
                instance_type,
            } => ActionId::of(Verb::ChangeType, provider_id).with(|into| instance_type.hash(into)),
            Self::PoolStatus { target, status } => ActionId::on(Verb::PoolStatus, target).with(|into| {
                hash_conditions(&status.conditions, into);
                hash_amounts(&status.resources, into);
                status.nodes.hash(into);
            }),
            Self::OverprovisionerStatus { target, status } => {
                ActionId::on(Verb::OverprovisionerStatus, target).with(|into| {
                    hash_conditions(&status.conditions, into);
                    // Counts and windows, which are small.
                    let rest = (&status.node_pools, &status.active_override, &status.next_override);
                    serde_json::to_string(&rest).ok().hash(into);
                    (status.desired, status.ready, status.in_use).hash(into);
                })
            }
            Self::AnnotatePool { target, annotations } => {
                ActionId::on(Verb::AnnotatePool, target).with(|into| annotations.hash(into))
            }
            Self::Announce(one) => ActionId::on(Verb::Announce, &one.subject.target)
                .with(|into| (one.subject.kind, one.reason, &one.message).hash(into)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::world::read;

    fn target(version: &str) -> Target {
        Target {
            name: "one".to_owned(),
            uid: "uid-one".to_owned(),
            resource_version: version.to_owned(),
            ..Target::default()
        }
    }

    fn patch(annotation: &str, version: &str) -> Action {
        Action::PatchClaim {
            target: target(version),
            labels: [].into(),
            annotations: [(annotation.to_owned(), "true".to_owned())].into(),
            finalizers: None,
        }
    }

    #[test]
    fn another_change_of_the_same_object_is_another_action() {
        assert_eq!(patch("a", "1").id(), patch("a", "2").id(), "decided again");
        assert_ne!(patch("a", "1").id(), patch("b", "1").id());
        assert_eq!(patch("a", "1").id().to_string(), "patch NodeClaim one");
    }

    #[test]
    fn a_status_is_the_same_whenever_it_is_written() {
        let status = |at: &str, message: &str| Action::ClaimStatus {
            target: target("1"),
            status: Box::new(
                serde_json::from_value(
                    json!({"conditions": [{"type": "Launched", "status": "Unknown", "reason": "LaunchFailed",
                    "message": message, "lastTransitionTime": at}]}),
                )
                .unwrap(),
            ),
        };
        let first = status("2026-01-01T00:00:00Z", "no subnet");
        assert_eq!(first.id(), status("2026-01-01T00:00:01Z", "no subnet").id());
        assert_ne!(first.id(), status("2026-01-01T00:00:00Z", "no capacity").id());
    }

    #[test]
    fn a_launch_is_the_same_with_other_options() {
        let launch = Action::Launch {
            claim: read(json!({"metadata": {"name": "one"},
                "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []}})),
            options: Vec::new(),
        };
        assert_eq!(launch.id(), ActionId::launch("one"));
        assert_eq!(launch.id().launched_claim(), Some("one"));
        assert_eq!(patch("a", "1").id().launched_claim(), None);
    }
}

//! The filters that look at one node alone: NodeUnschedulable, TaintToleration, NodeAffinity (these do not depend on what
//! runs there), NodePorts and NodeResourcesFit. NodeName cannot fail here: a pod that names its node does not wait.

use k8s_openapi::api::core::v1::{NodeSelector, Taint, Toleration};

use super::class::Class;
use super::cluster::NodeState;
use super::selector::{matches_node, matches_term};

/// The taint that stands for `spec.unschedulable`.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// What holds for the pods of a class and a node whatever else runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Static {
    /// The node takes new pods, or the pod does not mind.
    pub(super) is_open: bool,
    /// The pod tolerates the taints that keep pods away.
    pub(super) is_tolerated: bool,
    /// The pod's own node selector and required node affinity match.
    pub(super) is_selected: bool,
    /// The affinity that the scheduler adds to every pod matches.
    pub(super) is_added: bool,
    /// Taints that the pod would rather avoid.
    pub(super) avoided: i64,
    /// The weights of the preferred node affinity that match.
    pub(super) preferred: i64,
}

impl Static {
    pub(super) fn new(class: &Class, node: &NodeState, added: Option<&NodeSelector>) -> Self {
        let unschedulable = Taint {
            key: UNSCHEDULABLE.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        let tolerates = |taint: &Taint| class.tolerations.iter().any(|one| tolerates(one, taint));
        let keeps_away = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        let avoided = node.taints.iter().filter(|taint| {
            taint.effect == "PreferNoSchedule"
                && !class.tolerations.iter().any(|one| {
                    let effect = one.effect.as_deref().unwrap_or_default();
                    (effect.is_empty() || effect == "PreferNoSchedule") && self::tolerates(one, taint)
                })
        });
        let preferred = class.preferred.iter();
        let preferred = preferred.filter(|one| matches_term(&one.preference, &node.name, &node.labels));
        Self {
            is_open: !node.is_unschedulable || tolerates(&unschedulable),
            is_tolerated: node.taints.iter().filter(keeps_away).all(tolerates),
            is_selected: is_selected(class, node),
            is_added: added.is_none_or(|added| matches_node(added, &node.name, &node.labels)),
            avoided: i64::try_from(avoided.count()).unwrap_or(i64::MAX),
            preferred: preferred.map(|one| i64::from(one.weight)).sum(),
        }
    }

    /// Whether these filters let the pod in.
    pub(super) const fn passes(&self) -> bool {
        self.is_open && self.is_tolerated && self.is_selected && self.is_added
    }
}

/// Whether the node selector and the required node affinity of a pod match a node.
fn is_selected(class: &Class, node: &NodeState) -> bool {
    let mut wanted = class.node_selector.iter();
    wanted.all(|(key, value)| node.labels.get(key) == Some(value))
        && class
            .required
            .as_ref()
            .is_none_or(|required| matches_node(required, &node.name, &node.labels))
}

/// Whether a toleration is about a taint. An absent key, value or effect is an empty one; an empty key or effect is any.
pub(super) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    let is_about = (key.is_empty() || key == taint.key) && (effect.is_empty() || effect == taint.effect);
    let operator = toleration.operator.as_deref().unwrap_or_default();
    is_about
        && match operator {
            "Exists" => true,
            "" | "Equal" => text(&toleration.value) == text(&taint.value),
            _ => false,
        }
}

/// Whether what a node has left is enough for the pod.
pub(super) fn has_room(class: &Class, node: &NodeState) -> bool {
    let is_one_more = node.pods < node.max_pods;
    is_one_more && node.allocatable.lacks(&node.requested, &class.requests).is_none()
}

/// Whether no host port of the pod is taken.
pub(super) fn has_ports(class: &Class, node: &NodeState) -> bool {
    let mut wanted = class.ports.iter();
    wanted.all(|port| !node.ports.iter().any(|taken| taken.conflicts(port)))
}

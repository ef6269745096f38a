//! Garbage: claims whose instance is gone, and instances whose claim is gone.

use std::collections::BTreeSet;

use super::claim::is_registered;
use super::{Policy, View, is_ready};
use crate::plan::{Action, Plan, Target, is_deleting, name, provider_id};

pub(super) fn decide(view: &View<'_>, policy: &Policy, plan: &mut Plan) {
    for claim in &view.snapshot.node_claims {
        if provider_id(claim).is_none() {
            continue;
        }
        // Before that, the registration timeout decides: lists of young instances may be incomplete.
        if is_deleting(&claim.metadata) || !is_registered(claim) || view.instance_state(claim).is_some() {
            continue;
        }
        // A ready node has a running kubelet, whatever the provider says.
        if view.nodes_of(claim).iter().any(|node| is_ready(node)) {
            continue;
        }
        plan.push(Action::DeleteClaim {
            target: Target::from(&claim.metadata),
            reason: "garbage_collected",
        });
    }
    // A claim that has its instance has no use for another one of its name; one that has none yet may still find it.
    let claims = view.snapshot.node_claims.iter();
    let waiting = claims.filter(|claim| provider_id(claim).is_none());
    let waiting: BTreeSet<&str> = waiting.map(|claim| name(&claim.metadata)).collect();
    for instance in &view.snapshot.instances {
        if waiting.contains(instance.claim.as_str()) || view.index.has_owner(instance) {
            continue;
        }
        if view.since(instance.launched) >= policy.orphan_age {
            plan.push(Action::Terminate {
                provider_id: instance.provider_id.clone(),
            });
        } else if let Ok(at) = instance.launched.checked_add(policy.orphan_age) {
            plan.look_again(at);
        }
    }
}

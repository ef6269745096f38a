//! What pods have in common, kept once: a Deployment's thousand pods ask for the same, and most are just running.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
use veneer_api::Pod;
use veneer_engine::packing::scheduling_class;

/// With how many specs of the same class a spec is compared: pods of one StatefulSet differ in their volumes alone.
const CANDIDATES: usize = 4;
/// So many specs are added, beside as many as there are, until those that nobody has any more are looked for.
const ADDED_BEFORE_FORGETTING: usize = 256;

/// The specs and statuses that stored pods have.
#[derive(Debug, Default)]
pub(crate) struct Alike {
    specs: HashMap<u64, Vec<Weak<PodSpec>>>,
    /// Statuses that say nothing but the phase, by phase.
    statuses: HashMap<String, Weak<PodStatus>>,
    added: usize,
    /// How many classes were left when those that nobody has were last forgotten.
    kept: usize,
}

impl Alike {
    /// Lets a pod have what others have already.
    pub(super) fn share(&mut self, pod: &mut Pod) {
        let class = scheduling_class(pod);
        if let Some(spec) = &mut pod.spec {
            let known = self.specs.entry(class).or_default();
            known.retain(|known| known.strong_count() > 0);
            let mut alive = known.iter().filter_map(Weak::upgrade);
            if let Some(same) = alive.find(|known| known == spec.shared()) {
                spec.share(same);
            } else {
                if known.len() >= CANDIDATES {
                    known.remove(0);
                }
                known.push(Arc::downgrade(spec.shared()));
                self.added += 1;
            }
        }
        if let Some(status) = &mut pod.status {
            let phase = PodStatus {
                phase: status.phase.clone(),
                ..PodStatus::default()
            };
            if **status.shared() == phase {
                let key = phase.phase.unwrap_or_default();
                match self.statuses.get(&key).and_then(Weak::upgrade) {
                    Some(same) => status.share(same),
                    None => {
                        self.statuses.insert(key, Arc::downgrade(status.shared()));
                    }
                }
            }
        }
        if self.added >= self.kept + ADDED_BEFORE_FORGETTING {
            self.forget_gone();
        }
    }

    /// What nobody has any more still takes room as long as it is listed here.
    fn forget_gone(&mut self) {
        self.added = 0;
        self.specs.retain(|_, known| {
            known.retain(|known| known.strong_count() > 0);
            !known.is_empty()
        });
        self.statuses.retain(|_, known| known.strong_count() > 0);
        self.kept = self.specs.len();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(cpu: &str, volume: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"namespace": "a"},
            "spec": {"nodeName": volume, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": volume}}]},
            "status": {"phase": phase}}))
        .unwrap()
    }

    fn share(alike: &mut Alike, mut pod: Pod) -> Pod {
        alike.share(&mut pod);
        pod
    }

    fn have_same(a: &Pod, b: &Pod) -> (bool, bool) {
        let (a_spec, b_spec) = (a.spec.as_ref().unwrap(), b.spec.as_ref().unwrap());
        let (a_status, b_status) = (a.status.as_ref().unwrap(), b.status.as_ref().unwrap());
        (
            Arc::ptr_eq(a_spec.shared(), b_spec.shared()),
            Arc::ptr_eq(a_status.shared(), b_status.shared()),
        )
    }

    #[test]
    fn pods_that_ask_for_the_same_share_it_and_others_do_not() {
        let mut alike = Alike::default();
        let first = share(&mut alike, pod("1", "x", "Running"));
        let same = share(&mut alike, pod("1", "x", "Running"));
        assert_eq!(have_same(&first, &same), (true, true));
        let larger = share(&mut alike, pod("2", "x", "Running"));
        assert_eq!(have_same(&first, &larger), (false, true));
        let elsewhere = share(&mut alike, pod("1", "y", "Pending"));
        assert_eq!(have_same(&first, &elsewhere), (false, false));
        assert_eq!(elsewhere, pod("1", "y", "Pending"));
    }

    #[test]
    fn what_nobody_has_is_forgotten() {
        let mut alike = Alike::default();
        for number in 0..10 * ADDED_BEFORE_FORGETTING {
            share(&mut alike, pod(&number.to_string(), "x", "Running"));
        }
        assert!(
            alike.specs.len() <= ADDED_BEFORE_FORGETTING + 1,
            "{}",
            alike.specs.len()
        );
    }
}

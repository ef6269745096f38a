//! What users, other controllers and fate do in a history, and what users put right in the end.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;
use veneer_world::rng::Rng;

use super::actors::path_of;
use super::api_server::{Path, is_deleting, merge, text};
use super::faults::Unseen;
use super::history::{pool, unreadable_pool};
use super::replica::{LEASE, LEASE_NAMESPACE};
use super::{Inner, Sim};

/// A pool beside the one that every cluster has.
const ODD: &str = "odd";

fn pick(rng: &mut Rng, count: usize) -> usize {
    usize::try_from(rng.below(count as u64)).unwrap_or(0)
}

fn any<T: Clone>(rng: &mut Rng, all: &[T]) -> Option<T> {
    all.get(pick(rng, all.len())).cloned()
}

pub(super) fn is_unreadable(object: &Value) -> bool {
    object.pointer("/metadata/labels/unreadable").is_some()
}

impl Sim {
    /// Something that users, other controllers or fate do.
    pub(super) fn event(&self, rng: &mut Rng, kills: &[Arc<Notify>]) {
        let (now, at) = (self.now(), self.elapsed());
        let line = self.with(|inner| match rng.below(24) {
            0..=4 => inner.scale(rng),
            5 => inner.delete_any("nodeclaims", rng, now),
            6 => inner.delete_any("nodes", rng, now),
            7 => inner.lose_any(rng, now),
            8 | 9 => {
                inner.api.compact();
                Some("the API server forgets its log".to_owned())
            }
            10 => {
                inner.api.forget_pages();
                Some("the API server forgets its pages".to_owned())
            }
            11 | 12 => {
                let replica = pick(rng, kills.len());
                kills.get(replica).into_iter().for_each(|kill| kill.notify_one());
                Some(format!("replica {replica} is killed"))
            }
            13 => inner.restore(at),
            14 => {
                drop(inner.api.remove(&Path::of("leases", LEASE_NAMESPACE, LEASE)));
                inner.tampered = Some(at);
                Some("a user deletes the Lease".to_owned())
            }
            15 | 16 => Some(inner.change_odd_pool(rng, now)),
            17 => inner.protect_any(rng),
            18 => inner.shorten(rng),
            19 | 20 => Some(inner.restart(rng, at)),
            21 | 22 => inner.spoil_pod(rng),
            _ => Some(inner.touch("nodeclaims", at)),
        });
        self.happened(line);
    }

    fn happened(&self, line: Option<String>) {
        self.wake();
        if let Some(line) = line {
            self.log(|| line);
        }
    }

    /// Pods leave a node, as everybody sees; then pods come to it, as the watch of pods does not tell.
    pub(super) async fn move_unseen(&self, scene: Unseen) {
        self.with(|inner| inner.workloads.values_mut().for_each(|one| one.replicas = 2));
        self.happened(Some("everything is scaled down, as everybody sees".to_owned()));
        self.pass(scene.silent_from.saturating_sub(self.elapsed()) + Duration::from_secs(1))
            .await;
        self.with(|inner| {
            let workloads = inner.workloads.values_mut();
            workloads.for_each(|one| one.replicas = scene.replicas);
        });
        self.happened(Some(
            "everything is scaled up, as the watch of pods does not tell".to_owned(),
        ));
    }

    /// The cluster is thrown back over changes that nobody makes again.
    pub(super) async fn throw_back(&self) {
        let at = self.elapsed();
        let line = self.with(|inner| {
            inner.backup = Some(inner.api.backup());
            inner.touch("nodepools", at)
        });
        self.happened(Some(line));
        self.pass(Duration::from_secs(5)).await;
        let at = self.elapsed();
        let line = self.with(|inner| inner.restore(at));
        self.happened(line);
    }

    /// Users put right what they made wrong.
    pub(super) fn put_right(&self) {
        let now = self.now();
        let lines: Vec<String> = self.with(|inner| {
            let mut lines = Vec::new();
            for plural in ["pods", "nodepools"] {
                let mut wrong = inner.api.all(plural);
                wrong.retain(|object| is_unreadable(object));
                for object in wrong {
                    lines.push(format!("{plural} {} is deleted", text(&object, "/metadata/name")));
                    drop(inner.api.delete(&path_of(plural, &object), &Value::Null, now));
                }
            }
            lines
        });
        for line in lines {
            self.happened(Some(line));
        }
    }

    /// The API server restarts, and pods go meanwhile.
    pub(super) fn restart(&self, rng: &mut Rng) {
        let at = self.elapsed();
        let line = self.with(|inner| inner.restart(rng, at));
        self.happened(Some(line));
    }
}

impl Inner {
    fn scale(&mut self, rng: &mut Rng) -> Option<String> {
        let app = if rng.chance(0.5) { "web" } else { "jobs" };
        let least = usize::from(app == "web") * 2;
        let replicas = least + pick(rng, 9);
        self.workloads.get_mut(app)?.replicas = replicas;
        Some(format!("{app} is scaled to {replicas}"))
    }

    fn delete_any(&mut self, plural: &str, rng: &mut Rng, now: Timestamp) -> Option<String> {
        let object = any(rng, &self.api.all(plural))?;
        drop(self.api.delete(&path_of(plural, &object), &Value::Null, now));
        Some(format!(
            "a user deletes {plural} {}",
            text(&object, "/metadata/name")
        ))
    }

    fn any_instance(&self, rng: &mut Rng) -> Option<String> {
        let up = self.cloud.instances.values().filter(|one| one.is_up());
        let up: Vec<String> = up.map(|one| one.id.clone()).collect();
        any(rng, &up)
    }

    fn lose_any(&mut self, rng: &mut Rng, now: Timestamp) -> Option<String> {
        let id = self.any_instance(rng)?;
        self.cloud.lose(&id, now, &mut self.rng);
        Some(format!("the cloud takes {id} back"))
    }

    fn protect_any(&mut self, rng: &mut Rng) -> Option<String> {
        let id = self.any_instance(rng)?;
        self.cloud.instances.get_mut(&id)?.is_protected = true;
        Some(format!("{id} is protected from termination"))
    }

    fn shorten(&mut self, rng: &mut Rng) -> Option<String> {
        let name = any(rng, &["m5.large", "c5.xlarge", "m5.xlarge"])?;
        if !self.cloud.short.remove(name) {
            self.cloud.short.insert(name.to_owned());
        }
        Some(format!("there may be no more {name}"))
    }

    fn change_odd_pool(&mut self, rng: &mut Rng, now: Timestamp) -> String {
        let path = Path::of("nodepools", "", ODD);
        match self.api.get(&path).ok() {
            None if rng.chance(0.5) => {
                drop(self.api.create("nodepools", "", unreadable_pool(ODD), now));
                "a NodePool that fits no type is made".to_owned()
            }
            None => {
                drop(self.api.create("nodepools", "", pool(ODD, &["on-demand"]), now));
                "another NodePool is made".to_owned()
            }
            Some(odd) if !is_unreadable(&odd) && rng.chance(0.6) => {
                let odd = unreadable_pool(ODD);
                self.api.edit(&path, |pool| merge(pool, &odd));
                "the other NodePool fits no type any more".to_owned()
            }
            Some(_) => {
                drop(self.api.delete(&path, &Value::Null, now));
                "the other NodePool is deleted".to_owned()
            }
        }
    }

    fn restore(&mut self, at: Duration) -> Option<String> {
        self.api.restore(self.backup.take()?);
        self.tampered = Some(at);
        Some("the cluster is thrown back to its backup".to_owned())
    }

    fn touch(&mut self, plural: &str, at: Duration) -> String {
        let stamp = json!({"metadata": {"annotations": {"example.com/stamp": at.as_millis().to_string()}}});
        let mut objects = self.api.all(plural);
        objects.retain(|object| !is_deleting(object));
        for object in objects {
            self.api
                .edit(&path_of(plural, &object), |object| merge(object, &stamp));
        }
        format!("another controller writes to all {plural}")
    }

    /// A pod on a node gets a field that fits no type.
    fn spoil_pod(&mut self, rng: &mut Rng) -> Option<String> {
        let mut pods = self.api.all("pods");
        pods.retain(|pod| !is_deleting(pod) && !text(pod, "/spec/nodeName").is_empty());
        let pod = any(rng, &pods)?;
        let odd =
            json!({"metadata": {"labels": {"unreadable": "true"}}, "spec": {"priority": {"of": "gold"}}});
        self.api.edit(&path_of("pods", &pod), |pod| merge(pod, &odd));
        Some(format!(
            "pod {} fits no type any more",
            text(&pod, "/metadata/name")
        ))
    }

    /// For some seconds nobody answers; who watched can go on from where they were. Meanwhile pods are deleted by force.
    fn restart(&mut self, rng: &mut Rng, at: Duration) -> String {
        self.faults.down_until = at + Duration::from_millis(500 + rng.below(3000));
        let mut gone = Vec::new();
        let apps: Vec<String> = self.workloads.keys().cloned().collect();
        for app in apps {
            let mut pods = self.api.all("pods");
            pods.retain(|pod| text(pod, "/metadata/labels/app") == app);
            if let Some(pod) = any(rng, &pods) {
                gone.push(text(&pod, "/metadata/name").to_owned());
                self.api.remove(&path_of("pods", &pod));
            }
        }
        format!("the API server restarts; meanwhile {gone:?} are deleted by force")
    }
}

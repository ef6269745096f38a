//! When to decide: pods that come together are packed together.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long to wait for more pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Since the last new one.
    pub idle: SignedDuration,
    /// Since the first one.
    pub max: SignedDuration,
    /// How long until pods that nothing could be done for are tried again.
    pub retry: SignedDuration,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            idle: SignedDuration::from_secs(1),
            max: SignedDuration::from_secs(10),
            retry: SignedDuration::from_secs(10),
        }
    }
}

/// How long pods have to come to a place, once it and all others of the same decision take pods. Until then the scheduler
/// may not have looked, since it lets a pod that it has refused wait for some seconds; after that it has given the room to
/// others, most likely, and to decide again launches nothing where there is room left. With a shorter time, pods that are
/// left over are decided about few by few while the others still move, which buys more nodes than are needed.
const SETTLED: SignedDuration = SignedDuration::from_secs(5);

/// What a place is that a pod was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is there no more.
    Gone,
    /// It will take pods.
    Coming,
    /// It takes pods.
    Open,
}

/// A pod that was given a place.
#[derive(Clone, Debug)]
struct Placed {
    place: String,
    /// When that was decided; pods with the same time were packed together.
    decided: Timestamp,
    /// Until then it is believed.
    until: Timestamp,
    /// What kube-scheduler had said about it when all places of its decision had begun to take pods.
    said_when_open: Option<u64>,
}

/// The pods that are waited for, and those that were decided about.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// When the first and the newest pod of the open batch came.
    open: Option<(Timestamp, Timestamp)>,
    waiting: BTreeSet<String>,
    placed: BTreeMap<String, Placed>,
    /// Pods that nothing could be done for, with the time of the next attempt.
    refused: BTreeMap<String, Timestamp>,
    /// What decisions depend on beside pods, when it was last decided.
    world: u64,
    /// What kube-scheduler says about the pods that wait, by uid.
    said: BTreeMap<String, u64>,
}

impl Batch {
    /// Takes in what kube-scheduler says about the pods that wait: by uid, a number that changes when it says something else.
    /// While it is busy with them it has not looked at the newest yet, and a batch would be closed in the middle of them. So every
    /// change lets the idle time of an open batch begin again: other words about a pod, a pod that begins to wait, and one that waits no
    /// longer (bound, gone, or given room by preemption). How long a batch may be open in all stays the same.
    pub fn hear(&mut self, said: BTreeMap<String, u64>, now: Timestamp) {
        if self.said != said {
            self.said = said;
            self.open = self.open.map(|(first, _)| (first, now));
        }
    }

    /// Takes in what is wanted now. `place` says what became of a place that a pod was given; `world` changes when
    /// something else does that may let refused pods in. Says whether it is time to decide; if not, when.
    pub fn take(
        &mut self,
        demand: &BTreeSet<String>,
        place: impl Fn(&str) -> Place,
        world: u64,
        window: Window,
        now: Timestamp,
    ) -> Result<(), Option<Timestamp>> {
        self.placed
            .retain(|pod, placed| demand.contains(pod) && place(&placed.place) != Place::Gone);
        let coming = self
            .placed
            .values()
            .filter(|placed| place(&placed.place) == Place::Coming);
        let unsettled: BTreeSet<Timestamp> = coming.map(|placed| placed.decided).collect();
        for (pod, placed) in &mut self.placed {
            if unsettled.contains(&placed.decided) {
                continue;
            }
            let said = self.said.get(pod).copied().unwrap_or_default();
            // What is said anew was said with all of its places in view.
            let is_refused = *placed.said_when_open.get_or_insert(said) != said;
            let settled = if is_refused {
                now
            } else {
                now.checked_add(SETTLED).unwrap_or(now)
            };
            placed.until = placed.until.min(settled);
        }
        if world != self.world {
            self.refused.clear();
            self.world = world;
        }
        self.refused
            .retain(|pod, again| demand.contains(pod) && now < *again);
        let open: BTreeSet<String> = demand
            .iter()
            .filter(|pod| {
                let is_believed = self.placed.get(*pod).is_some_and(|placed| now < placed.until);
                !is_believed && !self.refused.contains_key(*pod)
            })
            .cloned()
            .collect();
        if open.is_empty() {
            self.open = None;
            self.waiting.clear();
            let until = self.placed.values().map(|placed| placed.until);
            return Err(until.chain(self.refused.values().copied()).min());
        }
        let is_news = open.iter().any(|pod| !self.waiting.contains(pod));
        let (first, newest) = match self.open {
            Some((first, newest)) => (first, if is_news { now } else { newest }),
            None => (now, now),
        };
        self.open = Some((first, newest));
        self.waiting = open;
        let ends = |from: Timestamp, by| from.checked_add(by).unwrap_or(from);
        let due = ends(newest, window.idle).min(ends(first, window.max));
        if now < due {
            return Err(Some(due));
        }
        self.open = None;
        self.waiting.clear();
        Ok(())
    }

    /// Nodes and claims that pods without a place are expected on, with the time until which that is believed. A place
    /// counts until all of its pods have come, are gone, or were decided about again.
    #[must_use]
    pub fn expected(&self, demand: &BTreeSet<String>, now: Timestamp) -> BTreeMap<String, Timestamp> {
        let mut expected: BTreeMap<String, Timestamp> = BTreeMap::new();
        for (pod, Placed { place, until, .. }) in &self.placed {
            if demand.contains(pod) {
                let until = (*until).max(now.checked_add(SETTLED).unwrap_or(now));
                let known = expected.entry(place.clone()).or_insert(until);
                *known = (*known).max(until);
            }
        }
        expected
    }

    /// The places of pods that are still believed to come, by uid.
    pub fn believed(&self, now: Timestamp) -> impl Iterator<Item = (&str, &str)> {
        let placed = self.placed.iter().filter(move |(_, placed)| now < placed.until);
        placed.map(|(pod, placed)| (pod.as_str(), placed.place.as_str()))
    }

    /// The places that pods were given, by uid.
    #[must_use]
    pub fn places(&self) -> BTreeMap<&str, &str> {
        let placed = self.placed.iter();
        placed
            .map(|(pod, placed)| (pod.as_str(), placed.place.as_str()))
            .collect()
    }

    /// Remembers what was decided: pods with their places, and everything else in `demand` as refused.
    pub fn decided(
        &mut self,
        demand: &BTreeSet<String>,
        expected: &BTreeMap<String, String>,
        believed: SignedDuration,
        window: Window,
        now: Timestamp,
    ) {
        let until = now.checked_add(believed).unwrap_or(now);
        let again = now.checked_add(window.retry).unwrap_or(now);
        for pod in demand {
            match expected.get(pod) {
                Some(place) => {
                    let placed = Placed {
                        place: place.clone(),
                        decided: now,
                        until,
                        said_when_open: None,
                    };
                    self.placed.insert(pod.clone(), placed);
                }
                None => {
                    self.placed.remove(pod);
                    self.refused.insert(pod.clone(), again);
                }
            }
        }
    }
}

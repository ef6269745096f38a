//! Volumes: where they can be, and how many a node attaches.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::facts::{HOSTNAME, ZONE};
use super::labels::{self, Label};
use super::place::Place;
use super::{Checker, full_name, list, namespace, text};

impl<'a> Checker<'a> {
    fn object(&self, kind: &'static str, within: &str, name: &str) -> Option<&'a Value> {
        self.scenario.kind(kind).find(|object| {
            text(object, "/metadata/name") == name && text(object, "/metadata/namespace") == within
        })
    }

    /// The claims that a pod mounts.
    fn mounts(&self, pod: &Value) -> Vec<&'a Value> {
        list(pod, "/spec/volumes")
            .iter()
            .filter_map(|volume| {
                let own = format!("{}-{}", text(pod, "/metadata/name"), text(volume, "/name"));
                let name = match text(volume, "/persistentVolumeClaim/claimName") {
                    "" if volume.pointer("/ephemeral").is_some() => own.as_str(),
                    "" => return None,
                    name => name,
                };
                self.object("PersistentVolumeClaim", namespace(pod), name)
            })
            .collect()
    }

    /// The zones that a claim's volume is or can be in, as alternatives; none if anywhere.
    fn alternatives(&self, claim: &Value) -> Vec<BTreeSet<String>> {
        let bound = text(claim, "/spec/volumeName");
        if bound.is_empty() {
            let class = self.object("StorageClass", "", text(claim, "/spec/storageClassName"));
            return class.map_or_else(Vec::new, |class| {
                zones(list(class, "/allowedTopologies"), "/matchLabelExpressions")
            });
        }
        let Some(volume) = self.object("PersistentVolume", "", bound) else {
            return Vec::new();
        };
        let terms = list(volume, "/spec/nodeAffinity/required/nodeSelectorTerms");
        // A local volume's host is gone with its node; the volume is made anew.
        let local = volume.pointer("/spec/local").is_some();
        let pinned = |term: &Value| {
            list(term, "/matchExpressions")
                .iter()
                .any(|one| text(one, "/key") == HOSTNAME)
        };
        if local && terms.iter().any(pinned) {
            Vec::new()
        } else {
            zones(terms, "/matchExpressions")
        }
    }

    pub(super) fn volumes(&mut self, place: &Place<'_>) {
        for pod in &place.new_pods {
            for claim in self.mounts(pod) {
                let alternatives = self.alternatives(claim);
                let reached = place.options.iter().all(|option| match option.label(ZONE) {
                    Label::Values(values) => alternatives.iter().any(|zones| values.is_subset(zones)),
                    _ => false,
                });
                if !alternatives.is_empty() && !reached {
                    let detail = format!("{} on {} mounts {}", full_name(pod), place.name, full_name(claim));
                    self.violated("volume zones", detail);
                }
            }
        }
        self.attachments(place);
    }

    fn attachments(&mut self, place: &Place<'_>) {
        let node = place.options.first().map_or("", |option| option.name.as_str());
        let Some(limits) = (!place.new).then(|| self.object("CSINode", "", node)).flatten() else {
            return;
        };
        for limit in list(limits, "/spec/drivers") {
            let driver = text(limit, "/name");
            let Some(most) = limit.pointer("/allocatable/count").and_then(Value::as_u64) else {
                continue;
            };
            let of = |pods: &mut dyn Iterator<Item = &Value>| -> BTreeSet<String> {
                pods.flat_map(|pod| self.mounts(pod))
                    .filter(|claim| self.driver(claim) == driver)
                    .map(full_name)
                    .collect()
            };
            let new = of(&mut place.new_pods.iter().copied());
            let all = of(&mut place.pods());
            if !new.is_empty() && all.len() as u64 > most {
                self.violated(
                    "attach limits",
                    format!("{node} attaches {} of {most} {driver}", all.len()),
                );
            }
        }
    }

    fn driver(&self, claim: &Value) -> &'a str {
        let bound = text(claim, "/spec/volumeName");
        if bound.is_empty() {
            let class = self.object("StorageClass", "", text(claim, "/spec/storageClassName"));
            return class.map_or("", |class| text(class, "/provisioner"));
        }
        self.object("PersistentVolume", "", bound)
            .map_or("", |volume| text(volume, "/spec/csi/driver"))
    }
}

/// The zones that each term allows.
fn zones(terms: &[Value], expressions: &str) -> Vec<BTreeSet<String>> {
    let all = super::super::facts::ZONES.map(str::to_owned);
    terms
        .iter()
        .map(|term| {
            let allows = |zone: &String| {
                list(term, expressions)
                    .iter()
                    .filter(|one| text(one, "/key") == ZONE)
                    .all(|one| {
                        let mut one = one.clone();
                        if one.get("operator").is_none() {
                            one["operator"] = "In".into();
                        }
                        labels::satisfies(&one, &Label::Values(BTreeSet::from([zone.clone()])))
                    })
            };
            all.iter().filter(|zone| allows(zone)).cloned().collect()
        })
        .collect()
}

//! The objects that commands work on, each with where it came from.

use std::collections::BTreeMap;
use std::sync::Arc;

use veneer_api::labels::veneer::PREFERENCE_PREFIX;
use veneer_api::{EC2NodeClass, KWOKNodeClass, NodeOverlay, NodePool, Overprovisioner};
use veneer_steering::overlays::{self, PoolRef};
use veneer_steering::preferences::Preferences;

use super::cluster::Cluster;
use super::tree::Tree;
use crate::finding::{Finding, Rule};

/// Where an object stands.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The file as the user named it, or the cluster.
    pub(crate) file: String,
    /// The object with its lines; a live one has none.
    pub(crate) tree: Option<Arc<Tree>>,
    /// The field of that object which this one is made of, as a NodeOverlay of a preference: all its fields stand there.
    pub(crate) made_of: Option<MadeOf>,
}

/// What an object is made of that nobody wrote.
#[derive(Clone, Debug)]
pub(crate) struct MadeOf {
    /// The object, such as `NodePool default`.
    pub(crate) object: String,
    /// The annotation.
    pub(crate) annotation: String,
}

impl Origin {
    /// The line of a field, or 0 for a live object.
    pub(crate) fn line_of(&self, field: &str) -> usize {
        let Some(tree) = &self.tree else { return 0 };
        match &self.made_of {
            Some(made_of) => tree.line_of(&format!("metadata.annotations.{}", made_of.annotation)),
            None => tree.line_of(field),
        }
    }

    /// A finding about a field of the object.
    pub(crate) fn finding(
        &self,
        rule: Rule,
        object: &str,
        field: &str,
        message: String,
        fix: &str,
    ) -> Finding {
        Finding {
            rule,
            file: self.file.clone(),
            line: self.line_of(field),
            object: object.to_owned(),
            field: field.to_owned(),
            message,
            fix: fix.to_owned(),
        }
    }
}

/// An object and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Sourced<T> {
    pub(crate) object: T,
    pub(crate) origin: Origin,
}

/// An object as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) kind: String,
    pub(crate) version: String,
    pub(crate) value: serde_json::Value,
    pub(crate) origin: Origin,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    /// Every object as it was written; none for a command that has no use for them.
    pub(crate) raw: Option<Vec<Raw>>,
    pub(crate) node_pools: Vec<Sourced<NodePool>>,
    pub(crate) node_overlays: Vec<Sourced<NodeOverlay>>,
    pub(crate) overprovisioners: Vec<Sourced<Overprovisioner>>,
    pub(crate) ec2_node_classes: Vec<Sourced<EC2NodeClass>>,
    pub(crate) kwok_node_classes: Vec<Sourced<KWOKNodeClass>>,
    /// Pods, nodes and what else scheduling needs; none for a command that has no use for them.
    pub(crate) cluster: Option<Box<Cluster>>,
    /// How many objects of each other kind there were.
    pub(crate) ignored: BTreeMap<String, usize>,
    /// What is wrong with the rest.
    pub(crate) findings: Vec<Finding>,
}

/// An object with a name.
pub(crate) trait Named {
    const KIND: &'static str;
    fn name(&self) -> &str;
}

macro_rules! named {
    ($($kind:ident),+) => {
        $(impl Named for $kind {
            const KIND: &'static str = stringify!($kind);
            fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }
        })+
    };
}
named!(
    NodePool,
    NodeOverlay,
    Overprovisioner,
    EC2NodeClass,
    KWOKNodeClass
);

impl<T: Named> Sourced<T> {
    pub(crate) fn name(&self) -> &str {
        self.object.name()
    }

    /// A finding about a field of the object.
    pub(crate) fn finding(&self, rule: Rule, field: &str, message: String, fix: &str) -> Finding {
        let object = format!("{} {}", T::KIND, self.name());
        self.origin.finding(rule, &object, field, message, fix)
    }
}

impl Objects {
    /// Puts `proposed` over these objects: what has the same kind and name is replaced.
    pub(crate) fn layer(&mut self, proposed: Self) {
        replace(&mut self.node_pools, proposed.node_pools);
        replace(&mut self.node_overlays, proposed.node_overlays);
        replace(&mut self.overprovisioners, proposed.overprovisioners);
        replace(&mut self.ec2_node_classes, proposed.ec2_node_classes);
        replace(&mut self.kwok_node_classes, proposed.kwok_node_classes);
        if let (Some(cluster), Some(proposed)) = (&mut self.cluster, proposed.cluster) {
            cluster.layer(*proposed);
        }
        for (kind, count) in proposed.ignored {
            *self.ignored.entry(kind).or_default() += count;
        }
        self.findings.extend(proposed.findings);
    }

    /// Sorts by name, and refuses all but the last of several objects with the same name.
    pub(crate) fn settle(&mut self) {
        let findings = &mut self.findings;
        settle(&mut self.node_pools, findings);
        settle(&mut self.node_overlays, findings);
        settle(&mut self.overprovisioners, findings);
        settle(&mut self.ec2_node_classes, findings);
        settle(&mut self.kwok_node_classes, findings);
        if let Some(cluster) = &mut self.cluster {
            cluster.settle(findings);
        }
    }

    /// Adds the NodeOverlays that the preferences of NodePools come to, as `veneer run` would write them. One that is there
    /// already is replaced: what the annotation says now is what counts. Preferences that cannot be read become findings.
    pub(crate) fn add_preferences(&mut self) {
        let mut overlays = Vec::new();
        for pool in &self.node_pools {
            let annotations = pool.object.metadata.annotations.clone().unwrap_or_default();
            let owner = PoolRef {
                name: pool.name(),
                uid: pool.object.metadata.uid.as_deref().unwrap_or_default(),
            };
            let Preferences { good, faults } = Preferences::read(&annotations);
            for fault in faults {
                let field = format!("metadata.annotations.{}", fault.annotation);
                let message = format!("{:?} {}", fault.part, fault.problem);
                let fix = format!("write {}", fault.expected);
                let finding = pool.finding(Rule::InvalidPreference, &field, message, &fix);
                self.findings.push(finding);
            }
            for preference in good {
                let made_of = MadeOf {
                    object: format!("NodePool {}", pool.name()),
                    annotation: format!("{PREFERENCE_PREFIX}{}", preference.number),
                };
                overlays.push(Sourced {
                    object: overlays::preference(owner, &preference, false),
                    origin: Origin {
                        made_of: Some(made_of),
                        ..pool.origin.clone()
                    },
                });
            }
        }
        replace(&mut self.node_overlays, overlays);
        self.node_overlays.sort_by(|a, b| a.name().cmp(b.name()));
    }

    /// Whether nothing that commands work on was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.node_pools.is_empty()
            && self.node_overlays.is_empty()
            && self.overprovisioners.is_empty()
            && self.cluster.as_ref().is_none_or(|cluster| cluster.is_empty())
    }
}

fn replace<T: Named>(objects: &mut Vec<Sourced<T>>, proposed: Vec<Sourced<T>>) {
    objects.retain(|object| !proposed.iter().any(|new| new.name() == object.name()));
    objects.extend(proposed);
}

fn settle<T: Named>(objects: &mut Vec<Sourced<T>>, findings: &mut Vec<Finding>) {
    objects.sort_by(|a, b| a.name().cmp(b.name()));
    let mut kept: Vec<Sourced<T>> = Vec::with_capacity(objects.len());
    for object in objects.drain(..) {
        if let Some(earlier) = kept.last_mut().filter(|earlier| earlier.name() == object.name()) {
            let first = earlier
                .finding(Rule::DuplicateObject, "metadata.name", String::new(), "")
                .place();
            let message = format!("is defined before at {first}; the later one counts");
            findings.push(object.finding(
                Rule::DuplicateObject,
                "metadata.name",
                message,
                "keep one of them",
            ));
            *earlier = object;
        } else {
            kept.push(object);
        }
    }
    *objects = kept;
}

//! The steps by which the types become fewer.

use crate::bitset::BitSet;

/// What kind of constraint a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Labels that the NodePool and the pod demand.
    Requirements,
    /// Taints that the pod does not tolerate.
    Taints,
    /// What the pod asks for.
    Resources,
    /// What DaemonSets take of a node.
    Daemonsets,
    /// Zones, capacity types and reservations that can be had.
    Offerings,
    /// Where the pod's volumes are, or can be attached.
    Volumes,
    /// Topology spread constraints.
    Topology,
    /// Pod affinity and anti-affinity.
    Affinity,
    /// Ports of the node.
    HostPorts,
    /// What the NodePool may still launch.
    Limits,
    /// How many different values must be left to choose from.
    MinValues,
}

impl Stage {
    /// Every stage, in the order in which they are looked at.
    pub const ALL: [Self; 11] = [
        Self::Requirements,
        Self::Taints,
        Self::Resources,
        Self::Daemonsets,
        Self::HostPorts,
        Self::Offerings,
        Self::Volumes,
        Self::Topology,
        Self::Affinity,
        Self::Limits,
        Self::MinValues,
    ];

    /// The name in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requirements => "requirements",
            Self::Taints => "taints",
            Self::Resources => "resources",
            Self::Daemonsets => "daemonsets",
            Self::Offerings => "offerings",
            Self::Volumes => "volumes",
            Self::Topology => "topology",
            Self::Affinity => "affinity",
            Self::HostPorts => "hostPorts",
            Self::Limits => "limits",
            Self::MinValues => "minValues",
        }
    }
}

/// What removes types: a field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// `NodePool general`, `Pod shop/web-0`.
    pub object: String,
    /// The field, as a path.
    pub field: String,
    /// What it demands, in words.
    pub detail: String,
}

impl Constraint {
    pub(super) fn new(
        object: impl Into<String>,
        field: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            object: object.into(),
            field: field.into(),
            detail: detail.into(),
        }
    }
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) stage: Stage,
    /// None where the stage removes nothing.
    pub(crate) constraint: Option<Constraint>,
    pub(crate) before: BitSet,
    pub(crate) after: BitSet,
    /// The classes of offerings that count after the step.
    pub(crate) classes: BitSet,
}

/// The steps so far and what they leave.
pub(super) struct Chain {
    pub(super) rows: Vec<Row>,
    pub(super) left: BitSet,
    pub(super) classes: BitSet,
}

impl Chain {
    pub(super) fn new(types: usize, classes: usize) -> Self {
        Self {
            rows: Vec::new(),
            left: BitSet::full(types),
            classes: BitSet::full(classes),
        }
    }

    /// Keeps the types of `set`; a step only if that removes any.
    pub(super) fn keep(&mut self, stage: Stage, set: &BitSet, constraint: impl FnOnce() -> Constraint) {
        let mut after = self.left.clone();
        after.intersect_with(set);
        if after != self.left {
            let before = std::mem::replace(&mut self.left, after);
            self.push(stage, Some(constraint()), before);
        }
    }

    /// Removes every type that is left.
    pub(super) fn keep_none(&mut self, stage: Stage, constraint: impl FnOnce() -> Constraint) {
        self.keep(stage, &BitSet::default(), constraint);
    }

    /// Notes that a stage was looked at, if it removed nothing.
    pub(super) fn looked_at(&mut self, stage: Stage) {
        if !self.rows.iter().any(|row| row.stage == stage) {
            self.push(stage, None, self.left.clone());
        }
    }

    fn push(&mut self, stage: Stage, constraint: Option<Constraint>, before: BitSet) {
        self.rows.push(Row {
            stage,
            constraint,
            before,
            after: self.left.clone(),
            classes: self.classes.clone(),
        });
    }
}

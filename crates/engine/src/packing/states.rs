//! Sets of requirements, each stored once and known by number.
//!
//! Claims, pods, volumes and node filters all come down to few distinct sets, so "does this pod go with this claim,
//! and what is the claim then" is worked out once per pair of sets and looked up ever after.

use std::sync::Arc;

use super::hash::FastMap;
use super::ids::{StateId, Table};
use crate::labels::{self, LabelSet};
use crate::requirements::{Incompatible, Requirement, Requirements};
use crate::vocabulary::{Symbol, Vocabulary};

/// What storing one demand counts for: it takes memory until the run is over.
const STEPS_TO_STORE: u64 = 64;

/// What may be left undefined by the side that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// A claim: well-known labels are decided later.
    Claim,
    /// A node that exists: what it does not say it does not have.
    Node,
}

/// What became of adding one set to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// They go together and give this set.
    Into(StateId),
    /// The label is demanded and nothing defines it. Another pod may still define it by excluding a value.
    Undefined(Symbol),
    /// They exclude each other on some label, and always will.
    Disjoint,
}

/// Every set of requirements in play.
#[derive(Debug)]
pub(super) struct States {
    pub(super) vocabulary: Vocabulary,
    /// What stands for the name of a node that does not exist yet.
    pub(super) placeholder: Symbol,
    /// The label `kubernetes.io/hostname`.
    pub(super) hostname: Symbol,
    well_known: LabelSet,
    nothing: LabelSet,
    sets: Table<StateId, Arc<Requirements>>,
    index: FastMap<Arc<Requirements>, StateId>,
    /// The size of the sets that were stored since somebody last asked, in steps.
    stored: u64,
    merges: FastMap<(StateId, StateId, Side), Merge>,
    narrowed: FastMap<(StateId, Symbol, Symbol), StateId>,
}

impl States {
    pub(super) fn new<'a>(mut vocabulary: Vocabulary, well_known: impl IntoIterator<Item = &'a str>) -> Self {
        let placeholder = vocabulary.intern("hostname-placeholder");
        let hostname = vocabulary.intern(labels::HOSTNAME);
        let well_known = LabelSet::of(well_known, &mut vocabulary);
        Self {
            vocabulary,
            placeholder,
            hostname,
            well_known,
            nothing: LabelSet::none(),
            sets: Table::default(),
            index: FastMap::default(),
            stored: 0,
            merges: FastMap::default(),
            narrowed: FastMap::default(),
        }
    }

    pub(super) fn intern(&mut self, requirements: Requirements) -> StateId {
        if let Some(known) = self.index.get(&requirements) {
            return *known;
        }
        self.stored += STEPS_TO_STORE * requirements.len() as u64;
        let requirements = Arc::new(requirements);
        let id = self.sets.push(Arc::clone(&requirements));
        self.index.insert(requirements, id);
        id
    }

    /// What was stored since the last call, in steps.
    pub(super) fn take_stored(&mut self) -> u64 {
        std::mem::take(&mut self.stored)
    }

    pub(super) fn get(&self, state: StateId) -> &Requirements {
        &self.sets[state]
    }

    pub(super) fn well_known(&self) -> &LabelSet {
        &self.well_known
    }

    pub(super) fn is_well_known(&self, key: Symbol) -> bool {
        self.well_known.contains(key)
    }

    fn allowed_undefined(&self, side: Side) -> &LabelSet {
        match side {
            Side::Claim => &self.well_known,
            Side::Node => &self.nothing,
        }
    }

    /// Adds what `incoming` demands to `base`, if they go together.
    pub(super) fn merge(&mut self, base: StateId, incoming: StateId, side: Side) -> Merge {
        if let Some(known) = self.merges.get(&(base, incoming, side)) {
            return *known;
        }
        let merge = match self.conflict(base, incoming, side) {
            None => {
                let mut merged = Requirements::clone(&self.sets[base]);
                merged.extend(&self.sets[incoming], &self.vocabulary);
                Merge::Into(self.intern(merged))
            }
            Some(Incompatible::Undefined { key }) => Merge::Undefined(key),
            Some(Incompatible::NoOverlap { .. }) => Merge::Disjoint,
        };
        // Every node is in a state of its own, and one that refuses is seldom asked again.
        if side == Side::Claim || matches!(merge, Merge::Into(_)) {
            self.merges.insert((base, incoming, side), merge);
        }
        merge
    }

    /// Why `incoming` cannot be demanded of `base`, if so.
    pub(super) fn conflict(&self, base: StateId, incoming: StateId, side: Side) -> Option<Incompatible> {
        let allowed = self.allowed_undefined(side);
        self.sets[base]
            .compatible(&self.sets[incoming], allowed, &self.vocabulary)
            .err()
    }

    /// `state` with `key` narrowed to `values`; all of them are allowed by it already.
    pub(super) fn narrow(&mut self, state: StateId, key: Symbol, values: &[Symbol]) -> StateId {
        if let [value] = values
            && let Some(known) = self.narrowed.get(&(state, key, *value))
        {
            return *known;
        }
        let wanted = Requirement::one_of(values.iter().copied());
        if self.sets[state].get(key) == Some(&wanted) {
            return state;
        }
        let mut requirements = Requirements::clone(&self.sets[state]);
        requirements.add(key, wanted, &self.vocabulary);
        let narrowed = self.intern(requirements);
        if let [value] = values {
            self.narrowed.insert((state, key, *value), narrowed);
        }
        narrowed
    }
}

//! Why an overlay is left out: with whom it conflicts, on what and where.

use std::collections::HashMap;

use super::merge::Clash;
use super::prepared::get;
use super::{Evaluation, Verdict};

/// The field that two overlays both set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictField {
    /// The price of an offering.
    Price,
    /// A resource of a type.
    Capacity,
}

/// Why an overlay is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The overlays that came first, by name.
    pub with: Vec<String>,
    /// Which field both set.
    pub field: ConflictField,
    /// A pool where they meet.
    pub node_pool: String,
    /// A type where they meet.
    pub instance_type: String,
    /// The labels of an offering where they meet, in words; empty for a capacity conflict.
    pub offering: String,
}

impl Evaluation {
    pub(super) fn describe_clash(&self, overlay: usize, pool: usize, clash: Clash) -> Conflict {
        let (name, class) = match clash {
            Clash::Price { name, class } => (name, Some(class)),
            Clash::Capacity { name } => (name, None),
        };
        let of_name = |entry: &usize| self.index.name_of(*entry) == name as usize;
        let matches = |entry: &usize| match (get(&self.prepared, overlay), class) {
            (Some(prepared), Some(class)) => prepared.matches(pool, *entry, class),
            (Some(prepared), None) => prepared.set_in(pool).is_some_and(|(set, _)| set.contains(*entry)),
            (None, _) => false,
        };
        let entry = (0..self.catalogue.types.len())
            .filter(of_name)
            .find(matches)
            .unwrap_or_default();
        let it = self.catalogue.types.get(entry);
        let offering = class.and_then(|class| {
            let at = self.index.class_of(entry).iter().position(|of| *of == class)?;
            Some(
                it?.offerings
                    .get(at)?
                    .requirements
                    .describe(&self.catalogue.vocabulary),
            )
        });
        Conflict {
            with: Vec::new(),
            field: if class.is_some() {
                ConflictField::Price
            } else {
                ConflictField::Capacity
            },
            node_pool: self
                .pools
                .get(pool)
                .map(|pool| pool.name.clone())
                .unwrap_or_default(),
            instance_type: it.map(|it| it.name.to_string()).unwrap_or_default(),
            offering: offering.unwrap_or_default(),
        }
    }

    /// Fills in, for every overlay that is left out, all the accepted ones that it meets.
    pub(super) fn name_conflicting_overlays(&mut self) {
        let left_out = |at: &usize| matches!(self.verdicts.get(*at), Some(Verdict::Conflict(_)));
        let found: Vec<(usize, Vec<String>)> = (0..self.names.len())
            .filter(left_out)
            .map(|at| {
                let mut with: Vec<String> = (0..self.names.len())
                    .filter(|other| matches!(self.verdicts.get(*other), Some(Verdict::Ready)))
                    .filter(|other| self.meet(at, *other))
                    .map(|other| self.overlay_name(other).to_owned())
                    .collect();
                with.sort_unstable();
                (at, with)
            })
            .collect();
        for (at, names) in found {
            if let Some(Verdict::Conflict(conflict)) = self.verdicts.get_mut(at) {
                conflict.with = names;
            }
        }
    }

    /// Whether two overlays have the same weight and set the same field somewhere.
    fn meet(&self, a: usize, b: usize) -> bool {
        let (Some(a), Some(b)) = (get(&self.prepared, a), get(&self.prepared, b)) else {
            return false;
        };
        if a.overlay.weight != b.overlay.weight {
            return false;
        }
        let price = a.overlay.price.is_some() && b.overlay.price.is_some();
        let capacity = match (&a.overlay.capacity, &b.overlay.capacity) {
            (Some(ours), Some(theirs)) => ours.iter().any(|(resource, _)| theirs.contains(resource)),
            _ => false,
        };
        let overhead = a
            .overlay
            .overhead
            .keys()
            .any(|resource| b.overlay.overhead.contains_key(resource));
        (0..self.pools.len()).any(|pool| {
            let (Some(a), Some(b)) = (a.matched_in(pool), b.matched_in(pool)) else {
                return false;
            };
            let words = self.index.class_count().div_ceil(64);
            let theirs: HashMap<u32, usize> =
                b.names.iter().enumerate().map(|(at, name)| (*name, at)).collect();
            a.names.iter().enumerate().any(|(at, name)| {
                let Some(other) = theirs.get(name) else {
                    return false;
                };
                let ours = a.classes.iter().skip(at * words).take(words);
                let same_offering = ours
                    .zip(b.classes.iter().skip(other * words))
                    .any(|(x, y)| x & y != 0);
                capacity || overhead || (price && same_offering)
            })
        })
    }
}

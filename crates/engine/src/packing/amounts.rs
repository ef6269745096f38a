//! Resources as rows of integers.
//!
//! Every resource that a pod or daemonset asks for is one position; amounts are exact, in billionths. What does not
//! fit 128 bits counts as the largest amount there is, far beyond any machine.

use std::collections::HashMap;
use std::sync::Arc;

use crate::bitset::BitSet;
use crate::quantity::{Format, Quantity};
use crate::resources::ResourceList;

/// An amount of one resource, in billionths.
pub(super) type Amount = i128;

/// So large that sums of two of them do not overflow.
const LARGEST: Amount = Amount::MAX / 4;

/// The amount of a quantity.
pub(super) fn amount(quantity: &Quantity) -> Amount {
    let out_of_range = if quantity.is_negative() { -LARGEST } else { LARGEST };
    quantity
        .nanos()
        .filter(|nanos| nanos.abs() <= LARGEST)
        .unwrap_or(out_of_range)
}

/// The resources that count, each with its position.
#[derive(Clone, Debug, Default)]
pub(super) struct Dimensions {
    names: Vec<Arc<str>>,
    formats: Vec<Format>,
    index: HashMap<Arc<str>, usize>,
}

impl Dimensions {
    /// Makes room for every resource of `list`.
    pub(super) fn include(&mut self, list: &ResourceList) {
        for (name, quantity) in list.iter() {
            if !self.index.contains_key(name) {
                let name: Arc<str> = Arc::from(name);
                self.index.insert(Arc::clone(&name), self.names.len());
                self.names.push(name);
                self.formats.push(quantity.format());
            }
        }
    }

    pub(super) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// `list` as a row; resources without a position are left out.
    pub(super) fn row(&self, list: &ResourceList) -> Vec<Amount> {
        let mut row = vec![0; self.names.len()];
        for (name, quantity) in list.iter() {
            if let Some(cell) = self.index.get(name).and_then(|at| row.get_mut(*at)) {
                *cell = amount(quantity);
            }
        }
        row
    }

    /// The positions of the resources that `list` names, of whatever amount.
    pub(super) fn named(&self, list: &ResourceList) -> BitSet {
        let mut named = BitSet::empty(self.names.len());
        for (name, _) in list.iter() {
            if let Some(at) = self.index.get(name) {
                named.insert(*at);
            }
        }
        named
    }

    /// The resources of a row that are named, as a list.
    pub(super) fn list(&self, row: &[Amount], named: &BitSet) -> ResourceList {
        let cells = self.names.iter().zip(&self.formats).zip(row).enumerate();
        cells
            .filter(|(at, _)| named.contains(*at))
            .map(|(_, ((name, format), amount))| {
                (
                    Arc::clone(name),
                    Quantity::from_nanos(*amount).with_format(*format),
                )
            })
            .collect()
    }
}

/// Adds `more` to `row`.
pub(super) fn add(row: &mut [Amount], more: &[Amount]) {
    for (cell, more) in row.iter_mut().zip(more) {
        *cell = cell.saturating_add(*more);
    }
}

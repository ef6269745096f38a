//! Namespaces that demand more than their share, told by what their pods demand before any of it is compiled.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bounds::LeftOut;
use super::forms::Form;
use super::ids::{ShapeId, Table};
use super::pods::PodEntry;
use super::shapes::{Source, Subjects};
use super::work::{above_share, share};

/// The first pod of each kind of which some demands were left out.
pub(super) fn told(queue: &[PodEntry], sources: &Table<ShapeId, Source>) -> Vec<(usize, ShapeId)> {
    let mut told: Vec<(usize, ShapeId)> = Vec::new();
    let mut seen: BTreeSet<ShapeId> = BTreeSet::new();
    for entry in queue {
        let left_out = sources[entry.shape].form.base().left_out;
        if left_out != LeftOut::default() && seen.insert(entry.shape) {
            told.push((entry.position, entry.shape));
        }
    }
    told
}

/// Takes the preferences away from the pods of namespaces that are held, and of those that demand more than their
/// share; gives both.
pub(super) fn hold_back(
    sources: &mut Table<ShapeId, Source>,
    subjects: &Subjects,
    namespaces: &[Arc<str>],
    held: &BTreeSet<Arc<str>>,
) -> BTreeSet<Arc<str>> {
    let mut held = held.clone();
    let mut demands = vec![0_u64; namespaces.len()];
    for source in sources.iter().filter(|source| source.form.has_preferences()) {
        let number = subjects[source.subject].namespace_number;
        if let Some(demands) = demands.get_mut(number) {
            *demands = demands.saturating_add(source.form.all_demands());
        }
    }
    held.extend(
        above_share(&demands)
            .into_iter()
            .filter_map(|at| namespaces.get(at).cloned()),
    );
    if held.is_empty() {
        return held;
    }
    for shape in sources.ids() {
        let source = &mut sources[shape];
        if held.contains(&subjects[source.subject].namespace) && source.form.has_preferences() {
            source.form = source.form.without_preferences();
        }
    }
    held
}

/// Puts off the pods of namespaces whose demands that cannot be dropped are more than their share, as far as they are
/// beyond it; gives these namespaces.
pub(super) fn put_off(
    sources: &mut Table<ShapeId, Source>,
    subjects: &Subjects,
    namespaces: &[Arc<str>],
) -> BTreeSet<Arc<str>> {
    let mut demands = vec![0_u64; namespaces.len()];
    for source in sources.iter() {
        let number = subjects[source.subject].namespace_number;
        if let Some(demands) = demands.get_mut(number) {
            *demands = demands.saturating_add(source.form.hard_demands());
        }
    }
    let above = above_share(&demands);
    if above.is_empty() {
        return BTreeSet::new();
    }
    let share = share(&demands);
    let mut taken = vec![0_u64; namespaces.len()];
    for shape in sources.ids() {
        let source = &mut sources[shape];
        let number = subjects[source.subject].namespace_number;
        let Some(taken) = taken.get_mut(number).filter(|_| above.contains(&number)) else {
            continue;
        };
        *taken = taken.saturating_add(source.form.hard_demands());
        if *taken > share {
            source.form = Form::new(Arc::default());
            source.is_deferred = true;
        }
    }
    above
        .into_iter()
        .filter_map(|at| namespaces.get(at).cloned())
        .collect()
}

//! Which rules select a pod, without asking every rule.

use super::Subject;
use super::group::Group;
use crate::packing::hash::FastMap;
use crate::packing::ids::{GroupId, Id, Table};

/// Rules by a label value that they demand.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    /// For each label and value, the rules that demand it; ascending.
    by_value: FastMap<String, FastMap<String, Vec<GroupId>>>,
    /// The rules that demand no particular value.
    others: Vec<GroupId>,
}

impl Directory {
    /// Adds a rule to its table and to this directory.
    pub(super) fn push(&mut self, groups: &mut Table<GroupId, Group>, group: Group) -> GroupId {
        let id = GroupId::new(groups.len());
        match group.selector().demanded_values() {
            None => self.others.push(id),
            Some((key, values)) => {
                let of_key = self.by_value.entry(key.to_owned()).or_default();
                for value in values {
                    of_key.entry(value.clone()).or_default().push(id);
                }
            }
        }
        groups.push(group)
    }

    /// The rules from the position `from` on that select a pod, ascending.
    pub(super) fn selecting(
        &self,
        groups: &Table<GroupId, Group>,
        subject: Subject<'_>,
        from: usize,
    ) -> Vec<GroupId> {
        let by_label = subject
            .labels
            .iter()
            .filter_map(|(key, value)| self.by_value.get(key)?.get(value));
        let mut found: Vec<GroupId> = Vec::new();
        for list in by_label.chain(std::iter::once(&self.others)) {
            let start = list.partition_point(|id| id.index() < from);
            let new = list.iter().skip(start).copied();
            found.extend(new.filter(|id| groups[*id].selects(subject)));
        }
        found.sort_unstable();
        found
    }
}

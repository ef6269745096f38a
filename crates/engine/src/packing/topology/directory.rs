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
    /// The rules that demand no particular value, by each namespace that they are about; ascending.
    others: FastMap<String, Vec<GroupId>>,
}

impl Directory {
    /// Adds a rule to its table and to this directory.
    pub(super) fn push(&mut self, groups: &mut Table<GroupId, Group>, group: Group) -> GroupId {
        let id = GroupId::new(groups.len());
        match group.selector().demanded_values() {
            None => {
                for namespace in group.namespaces() {
                    match self.others.get_mut(namespace) {
                        Some(known) => known.push(id),
                        None => _ = self.others.insert(namespace.clone(), vec![id]),
                    }
                }
            }
            Some((key, values)) => {
                let of_key = self.by_value.entry(key.to_owned()).or_default();
                for value in values {
                    of_key.entry(value.clone()).or_default().push(id);
                }
            }
        }
        groups.push(group)
    }

    /// The rules from the position `from` on that select a pod, ascending, and how many were asked.
    pub(super) fn selecting(
        &self,
        groups: &Table<GroupId, Group>,
        subject: Subject<'_>,
        from: usize,
    ) -> (Vec<GroupId>, usize) {
        let by_label = subject
            .labels
            .iter()
            .filter_map(|(key, value)| self.by_value.get(key)?.get(value));
        let mut found: Vec<GroupId> = Vec::new();
        let mut asked = 0;
        for list in by_label.chain(self.others.get(subject.namespace)) {
            let start = list.partition_point(|id| id.index() < from);
            asked += list.len() - start;
            let new = list.iter().skip(start).copied();
            found.extend(new.filter(|id| groups[*id].selects(subject)));
        }
        found.sort_unstable();
        (found, asked)
    }
}

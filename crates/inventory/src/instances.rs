//! Running instances, folded: what many have in common is held once.

use std::collections::BTreeMap;

use veneer_billing::Machine;

/// How an instance is bought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifecycle {
    /// On demand.
    #[default]
    OnDemand,
    /// Spot.
    Spot,
    /// In a Capacity Block.
    CapacityBlock,
}

impl Lifecycle {
    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::CapacityBlock => "capacity-block",
        }
    }
}

/// What many instances have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKind {
    /// Region, type, platform and tenancy.
    pub machine: Machine,
    /// The name of the zone, as the account has it.
    pub zone: String,
    /// The id of the zone, which is the same in all accounts; empty if unknown.
    pub zone_id: String,
    /// How it is bought.
    pub lifecycle: Lifecycle,
    /// The capacity reservation that it runs in.
    pub capacity_reservation: Option<String>,
    /// The Kubernetes cluster that it belongs to ([`cluster_of`]); empty if none.
    pub cluster: String,
}

/// One running instance, as it is collected.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceRow {
    /// The instance id.
    pub id: String,
    /// What it has in common with others.
    pub kind: InstanceKind,
    /// When it was launched, or started again.
    pub launched: i64,
    /// Its private DNS name; empty if it has none.
    pub private_dns_name: String,
    /// What the tag says that names the node (`metrics.nodeNameSource.tagKey`, by default `Name`); empty without one.
    pub node_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    id: Box<str>,
    kind: u32,
    launched: i64,
    private_dns_name: Box<str>,
    node_name: Box<str>,
}

/// Running instances of one account and region.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    kinds: Vec<InstanceKind>,
    numbers: BTreeMap<InstanceKind, u32>,
    members: Vec<Member>,
}

/// One of [`Instances`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceView<'a> {
    /// The instance id.
    pub id: &'a str,
    /// What it has in common with others.
    pub kind: &'a InstanceKind,
    /// When it was launched, or started again.
    pub launched: i64,
    /// Its private DNS name; empty if it has none.
    pub private_dns_name: &'a str,
    /// What the tag says that names the node; empty without one.
    pub node_name: &'a str,
}

impl Instances {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn push(&mut self, row: InstanceRow) {
        let next = u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
        let kind = match self.numbers.get(&row.kind) {
            Some(number) => *number,
            None => {
                self.kinds.push(row.kind.clone());
                self.numbers.insert(row.kind, next);
                next
            }
        };
        self.members.push(Member {
            id: row.id.into(),
            kind,
            launched: row.launched,
            private_dns_name: row.private_dns_name.into(),
            node_name: row.node_name.into(),
        });
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// How many different kinds there are.
    #[must_use]
    pub fn kinds(&self) -> &[InstanceKind] {
        &self.kinds
    }

    /// All of them, as they were added.
    pub fn iter(&self) -> impl Iterator<Item = InstanceView<'_>> {
        self.members.iter().filter_map(|member| {
            Some(InstanceView {
                id: &member.id,
                kind: self.kinds.get(usize::try_from(member.kind).ok()?)?,
                launched: member.launched,
                private_dns_name: &member.private_dns_name,
                node_name: &member.node_name,
            })
        })
    }
}

impl PartialEq for Instances {
    fn eq(&self, other: &Self) -> bool {
        self.kinds == other.kinds && self.members == other.members
    }
}

impl Eq for Instances {}

impl FromIterator<InstanceRow> for Instances {
    fn from_iter<I: IntoIterator<Item = InstanceRow>>(rows: I) -> Self {
        let mut instances = Self::new();
        for row in rows {
            instances.push(row);
        }
        instances
    }
}

/// The cluster that an instance belongs to, by the keys of its tags (`kubernetes.io/cluster/<name>`): the first in alphabetical order, if
/// it has several; empty if it has none.
#[must_use]
pub fn cluster_of<'a>(tag_keys: impl IntoIterator<Item = &'a str>) -> &'a str {
    let names = tag_keys.into_iter();
    let names = names.filter_map(|key| key.strip_prefix("kubernetes.io/cluster/"));
    names.filter(|name| !name.is_empty()).min().unwrap_or_default()
}

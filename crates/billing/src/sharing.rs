//! Which accounts a commitment reaches, and in which order (rules 7 and 11).

use std::collections::{BTreeMap, BTreeSet};

/// How far commitments are shared (the preference `RI_SHARING`, for Reserved Instances and Savings Plans alike).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharingMode {
    /// Every account has its own commitments only.
    Off,
    /// With the whole organization.
    #[default]
    Organization,
    /// First with the accounts of the owner's group, then with the rest.
    PrioritizedGroup,
    /// With the accounts of the owner's group, and with nobody else.
    RestrictedGroup,
}

/// How commitments are shared between accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// How far.
    pub mode: SharingMode,
    /// The group of each account that is in one.
    pub groups: BTreeMap<String, String>,
    /// Accounts for which sharing is switched off: they neither give nor get.
    pub excluded: BTreeSet<String>,
}

/// How near an account is to the owner of a commitment, in the order in which it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// The account that owns it.
    Owner,
    /// An account of the owner's group.
    Group,
    /// Another account of the organization.
    Organization,
}

impl Reach {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Owner, Self::Group, Self::Organization];
}

impl Sharing {
    /// How near `user` is to `owner`; nothing if the owner's commitments never reach it.
    #[must_use]
    pub fn reach(&self, owner: &str, user: &str) -> Option<Reach> {
        if owner == user {
            return Some(Reach::Owner);
        }
        if self.excluded.contains(owner) || self.excluded.contains(user) {
            return None;
        }
        let is_same_group = self
            .groups
            .get(owner)
            .is_some_and(|group| self.groups.get(user) == Some(group));
        match self.mode {
            SharingMode::Off => None,
            SharingMode::Organization => Some(Reach::Organization),
            SharingMode::PrioritizedGroup if is_same_group => Some(Reach::Group),
            SharingMode::PrioritizedGroup => Some(Reach::Organization),
            SharingMode::RestrictedGroup => is_same_group.then_some(Reach::Group),
        }
    }
}

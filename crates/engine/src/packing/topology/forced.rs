//! What a pod's rules force on every placement of all pods like it, whatever else is decided.

use super::{Kind, Owned, Topology};
use crate::packing::ids::{GroupId, StateId};
use crate::packing::states::States;
use crate::vocabulary::Symbol;

/// A spread that starts with no pod anywhere.
#[derive(Clone, Debug)]
pub(crate) struct ForcedSpread {
    pub(crate) group: GroupId,
    pub(crate) key: Symbol,
    /// The domains that the pods could go to.
    pub(crate) domains: Vec<Symbol>,
    max_skew: i32,
}

impl ForcedSpread {
    /// How many of `pods` pods end up in each domain at least.
    ///
    /// A domain last got a pod when it had at most `max_skew` more than the emptiest one, which has only gained since.
    /// So at the end no domain has more than `max_skew` more than the emptiest, and of so many pods the emptiest
    /// has at least its share of what is left when every other one is that much ahead.
    pub(crate) fn in_each(&self, pods: usize) -> usize {
        let count = self.domains.len();
        let ahead = usize::try_from(self.max_skew).unwrap_or(usize::MAX);
        let ahead = count.saturating_sub(1).saturating_mul(ahead);
        pods.saturating_sub(ahead).div_ceil(count.max(1))
    }
}

impl Topology<'_> {
    /// The most pods with these rules that one host can have.
    pub(crate) fn most_on_host(&self, owned: &[Owned]) -> Option<usize> {
        let of_host = owned.iter().filter(|rule| rule.selects_self);
        let of_host = of_host.map(|rule| &self.groups[rule.group]);
        let of_host = of_host.filter(|group| self.keys[group.key].is_hostname());
        let most = of_host.filter_map(|group| match group.kind {
            Kind::Spread => usize::try_from(group.max_skew).ok(),
            Kind::AntiAffinity => Some(1),
            Kind::Affinity => None,
        });
        most.min()
    }

    /// The first spread over something else than hosts, if nothing is counted in it yet.
    pub(crate) fn forced_spread(
        &mut self,
        owned: &[Owned],
        strict: StateId,
        states: &States,
    ) -> Option<ForcedSpread> {
        for rule in owned.iter().filter(|rule| rule.selects_self) {
            let key = self.groups[rule.group].key;
            if self.keys[key].is_hostname() {
                continue;
            }
            let allowed = self.mask(strict, key, states).clone();
            let group = &self.groups[rule.group];
            if group.kind != Kind::Spread || group.min_domains.is_some() || !group.is_unoccupied() {
                continue;
            }
            let domains = group.domains().filter(|(domain, _)| allowed.contains(*domain));
            let domains = domains.filter_map(|(domain, _)| self.keys[key].value(domain));
            return Some(ForcedSpread {
                group: rule.group,
                key: self.keys[key].symbol(),
                domains: domains.collect(),
                max_skew: group.max_skew,
            });
        }
        None
    }

    /// Whether a rule counts a pod.
    pub(crate) fn counts(&self, group: GroupId, subject: super::Subject<'_>) -> bool {
        self.groups[group].selects(subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::ids::Id;

    #[test]
    fn a_spread_puts_a_share_of_its_pods_into_every_domain() {
        let symbol = crate::vocabulary::Vocabulary::default().intern("zone");
        let spread = |domains: usize, max_skew: i32| ForcedSpread {
            group: GroupId::new(0),
            key: symbol,
            domains: vec![symbol; domains],
            max_skew,
        };
        let cases = [
            // domains, skew, pods, in each
            (3, 1, 9, 3),
            (3, 1, 8, 2),
            (3, 1, 2, 0),
            (3, 2, 9, 2),
            (3, 5, 9, 0),
            (1, 1, 4, 4),
            (6, 1, 5, 0),
            (6, 1, 6, 1),
        ];
        for (domains, skew, pods, expected) in cases {
            let found = spread(domains, skew).in_each(pods);
            assert_eq!(found, expected, "{pods} pods, {domains} domains, skew {skew}");
        }
    }
}

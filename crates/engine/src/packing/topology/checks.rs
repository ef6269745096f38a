//! What the rules that bind a pod allow right now.

use super::group::{Group, Kind};
use super::{Owned, Topology};
use crate::bitset::BitSet;
use crate::packing::ids::{GroupId, KeyId, StateId};
use crate::packing::states::{Side, States};
use crate::requirements::Requirement;
use crate::vocabulary::Symbol;

/// Which table a rule is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// The pod's own rule.
    Own,
    /// The anti-affinity of other pods.
    Inverse,
}

/// A rule about hosts.
#[derive(Clone, Debug)]
struct HostCheck {
    group: GroupId,
    direction: Direction,
    rule: HostRule,
}

#[derive(Clone, Debug)]
enum HostRule {
    /// At most this many selected pods may be there already.
    AtMost(i32),
    /// A selected pod must be there, unless there is none anywhere and this one may be the first.
    Occupied {
        may_be_first: bool,
        hosts: Option<Requirement>,
    },
}

/// A rule about the domains of another label.
#[derive(Clone, Debug)]
struct DomainCheck {
    group: GroupId,
    direction: Direction,
    kind: Kind,
    key: KeyId,
    /// The domains that the rule allows.
    allowed: BitSet,
    /// The domains among which the first pod of an affinity may choose, if this one may be the first.
    first: Option<BitSet>,
}

impl DomainCheck {
    /// The domains that the rule chooses from.
    fn domains(&self) -> &BitSet {
        self.first.as_ref().unwrap_or(&self.allowed)
    }
}

/// What rules make of a set of requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Narrowed {
    pub(crate) state: StateId,
    /// How many turns give different choices.
    pub(crate) turns: usize,
}

/// Everything that binds one pod, worked out for the counts of this moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    hosts: Vec<HostCheck>,
    domains: Vec<DomainCheck>,
}

/// Whether a host is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostVerdict {
    /// It is.
    Allowed,
    /// It is not, but that may change.
    NotNow,
    /// It is not, and pods only ever come.
    Never,
}

/// The rule that stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsatisfied {
    pub(crate) kind: Kind,
    pub(crate) key: Symbol,
    /// Whether it is the anti-affinity of another pod.
    pub(crate) of_other_pod: bool,
}

/// A rule about the values of a label.
#[derive(Clone, Debug)]
pub(crate) struct LabelRule {
    pub(crate) kind: Kind,
    pub(crate) key: Symbol,
    /// Whether it is the anti-affinity of another pod.
    pub(crate) of_other_pod: bool,
    /// The values that it allows.
    pub(crate) allowed: Vec<Symbol>,
}

impl Checks {
    /// What asking them about one place costs, in steps.
    pub(crate) fn cost(&self) -> u64 {
        (self.hosts.len() + 16 * self.domains.len()) as u64
    }

    /// Whether rules about labels other than the host bind the pod: what they allow changes with every pod.
    pub(crate) fn has_domains(&self) -> bool {
        !self.domains.is_empty()
    }
}

impl Topology<'_> {
    fn group(&self, group: GroupId, direction: Direction) -> &Group {
        match direction {
            Direction::Own => &self.groups[group],
            Direction::Inverse => &self.inverse[group],
        }
    }

    /// The first of a pod's own rules that leaves no place at all, if there is one. `guess` is looked at first.
    pub(crate) fn impossible(
        &mut self,
        owned: &[Owned],
        guess: usize,
        strict: StateId,
        states: &States,
        into: &mut Checks,
    ) -> Option<usize> {
        let guessed = owned.get(guess).map(|rule| (guess, rule));
        for (at, rule) in guessed.into_iter().chain(owned.iter().enumerate()) {
            into.hosts.clear();
            into.domains.clear();
            self.add_check(
                rule.group,
                Direction::Own,
                rule.selects_self,
                strict,
                states,
                into,
            );
            let nowhere = into.domains.iter().any(|check| check.domains().is_empty());
            let nobody = |check: &HostCheck| {
                matches!(
                    check.rule,
                    HostRule::Occupied {
                        may_be_first: false,
                        ..
                    }
                ) && self.group(check.group, check.direction).is_unoccupied()
            };
            if nowhere || into.hosts.iter().any(nobody) {
                return Some(at);
            }
        }
        None
    }

    /// Works out what binds a pod with `owned` rules that the inverse rules `inverse_selected` select. `strict` are
    /// its demands on labels without preferences.
    pub(crate) fn checks(
        &mut self,
        owned: &[Owned],
        inverse_selected: &[GroupId],
        strict: StateId,
        states: &States,
        into: &mut Checks,
    ) {
        into.hosts.clear();
        into.domains.clear();
        for rule in owned {
            self.add_check(
                rule.group,
                Direction::Own,
                rule.selects_self,
                strict,
                states,
                into,
            );
        }
        for group in inverse_selected {
            self.add_check(*group, Direction::Inverse, false, strict, states, into);
        }
    }

    fn add_check(
        &mut self,
        id: GroupId,
        direction: Direction,
        selects_self: bool,
        strict: StateId,
        states: &States,
        into: &mut Checks,
    ) {
        let key = self.group(id, direction).key;
        if self.keys[key].is_hostname() {
            let rule = self.host_rule(id, direction, selects_self, strict, states);
            into.hosts.push(HostCheck {
                group: id,
                direction,
                rule,
            });
            return;
        }
        let pod = self.mask(strict, key, states).clone();
        let group = self.group(id, direction);
        let mut allowed = BitSet::empty(self.keys[key].len());
        let mut first = None;
        match group.kind {
            Kind::Spread => {
                let within = group.domains().filter(|(domain, _)| pod.contains(*domain));
                let (least, supported) = within.fold((i32::MAX, 0), |(least, supported), (_, count)| {
                    (least.min(count), supported + 1)
                });
                let too_few = group.min_domains.is_some_and(|minimum| supported < minimum);
                let least = i64::from(if too_few { 0 } else { least });
                for (domain, count) in group.domains() {
                    let after = i64::from(count) + i64::from(selects_self);
                    if after - least <= i64::from(group.max_skew) {
                        allowed.insert(domain);
                    }
                }
            }
            Kind::Affinity => {
                for (domain, count) in group.domains() {
                    if count > 0 && pod.contains(domain) {
                        allowed.insert(domain);
                    }
                }
                if selects_self && allowed.is_empty() {
                    let mut choice = pod;
                    let mut known = BitSet::empty(self.keys[key].len());
                    group.domains().for_each(|(domain, _)| known.insert(domain));
                    choice.intersect_with(&known);
                    first = Some(choice);
                }
            }
            Kind::AntiAffinity => {
                for (domain, count) in group.domains() {
                    if count == 0 && pod.contains(domain) {
                        allowed.insert(domain);
                    }
                }
            }
        }
        into.domains.push(DomainCheck {
            group: id,
            direction,
            kind: group.kind,
            key,
            allowed,
            first,
        });
    }

    fn host_rule(
        &self,
        id: GroupId,
        direction: Direction,
        selects_self: bool,
        strict: StateId,
        states: &States,
    ) -> HostRule {
        let group = self.group(id, direction);
        match group.kind {
            // A new host can always be made, so the smallest count of all hosts is always zero.
            Kind::Spread => HostRule::AtMost(group.max_skew.saturating_sub(i32::from(selects_self))),
            Kind::AntiAffinity => HostRule::AtMost(0),
            Kind::Affinity => {
                let hosts = states.get(strict).get(states.hostname).cloned();
                let reachable = |(domain, count): (usize, i32)| {
                    count > 0
                        && hosts.as_ref().is_none_or(|hosts| {
                            let name = self.keys[group.key].value(domain).unwrap_or(states.placeholder);
                            hosts.has(name, &states.vocabulary)
                        })
                };
                let nobody = group.is_unoccupied() || (hosts.is_some() && !group.domains().any(reachable));
                HostRule::Occupied {
                    may_be_first: selects_self && nobody,
                    hosts,
                }
            }
        }
    }

    /// Whether the rules about hosts allow `host`, which is called `name`.
    pub(crate) fn host_verdict(
        &self,
        checks: &Checks,
        host: usize,
        name: Symbol,
        states: &States,
    ) -> HostVerdict {
        let mut verdict = HostVerdict::Allowed;
        for check in &checks.hosts {
            let count = self.group(check.group, check.direction).count(host);
            match &check.rule {
                HostRule::AtMost(limit) if count > *limit => return HostVerdict::Never,
                HostRule::AtMost(_) => {}
                HostRule::Occupied { may_be_first, hosts } => {
                    if hosts
                        .as_ref()
                        .is_some_and(|hosts| !hosts.has(name, &states.vocabulary))
                    {
                        return HostVerdict::Never;
                    }
                    if count == 0 && !may_be_first {
                        verdict = HostVerdict::NotNow;
                    }
                }
            }
        }
        verdict
    }

    /// `state` narrowed to what the rules about other labels allow, or the rule that stands in the way.
    ///
    /// A rule that has to choose one of several equal domains takes one that the other rules allow too, the
    /// alphabetically first on the first `turn`, the next one on the next. Karpenter chooses at random.
    pub(crate) fn narrow(
        &mut self,
        checks: &Checks,
        base: StateId,
        side: Side,
        turn: usize,
        states: &mut States,
    ) -> Result<Narrowed, Unsatisfied> {
        let mut narrowed = Narrowed {
            state: base,
            turns: 1,
        };
        for check in &checks.domains {
            let symbol = self.keys[check.key].symbol();
            let unsatisfied = Unsatisfied {
                kind: check.kind,
                key: symbol,
                of_other_pod: check.direction == Direction::Inverse,
            };
            let is_defined =
                states.get(base).contains(symbol) || (side == Side::Claim && states.is_well_known(symbol));
            if !is_defined {
                return Err(unsatisfied);
            }
            // Every rule chooses from what the node allows, not from what the rules before it have left.
            let mut choice = self.mask(base, check.key, states).clone();
            choice.intersect_with(check.domains());
            if check.kind == Kind::Spread || check.first.is_some() {
                self.keep_one(check, checks, turn, &mut choice, &mut narrowed.turns);
            }
            if narrowed.state != base {
                choice.intersect_with(&self.mask(narrowed.state, check.key, states).clone());
            }
            if choice.is_empty() {
                return Err(unsatisfied);
            }
            let values: Vec<Symbol> = choice
                .iter()
                .filter_map(|domain| self.keys[check.key].value(domain))
                .collect();
            narrowed.state = states.narrow(narrowed.state, symbol, &values);
        }
        Ok(narrowed)
    }

    /// Reduces `choice` to one of its domains with the fewest pods.
    fn keep_one(
        &self,
        check: &DomainCheck,
        checks: &Checks,
        turn: usize,
        choice: &mut BitSet,
        turns: &mut usize,
    ) {
        let group = self.group(check.group, check.direction);
        let count = |domain: &usize| match check.kind {
            Kind::Spread => group.count(*domain),
            Kind::Affinity | Kind::AntiAffinity => 0,
        };
        let fewest = choice.iter().map(|domain| count(&domain)).min();
        let mut equals = BitSet::empty(self.keys[check.key].len());
        choice
            .iter()
            .filter(|domain| Some(count(domain)) == fewest)
            .for_each(|domain| equals.insert(domain));
        if checks.domains.len() > 1 {
            let mut shared = equals.clone();
            for other in checks.domains.iter().filter(|other| other.key == check.key) {
                shared.intersect_with(other.domains());
            }
            if !shared.is_empty() {
                equals = shared;
            }
        }
        let available = equals.len().max(1);
        *turns = available.max(*turns);
        *choice = BitSet::empty(self.keys[check.key].len());
        if let Some(domain) = equals.iter().nth(turn % available) {
            choice.insert(domain);
        }
    }

    /// Names the rule about hosts that does not allow `host`.
    pub(crate) fn unsatisfied_host(&self, checks: &Checks, host: usize) -> Option<Unsatisfied> {
        self.unsatisfied_hosts(checks, host).into_iter().next()
    }

    /// Names the rules about hosts that do not allow `host`.
    pub(crate) fn unsatisfied_hosts(&self, checks: &Checks, host: usize) -> Vec<Unsatisfied> {
        let in_the_way = checks.hosts.iter().filter(|check| {
            let count = self.group(check.group, check.direction).count(host);
            match &check.rule {
                HostRule::AtMost(limit) => count > *limit,
                HostRule::Occupied { may_be_first, .. } => count == 0 && !may_be_first,
            }
        });
        in_the_way
            .map(|check| {
                let group = self.group(check.group, check.direction);
                Unsatisfied {
                    kind: group.kind,
                    key: self.keys[group.key].symbol(),
                    of_other_pod: check.direction == Direction::Inverse,
                }
            })
            .collect()
    }

    /// The rules about labels other than the host, with the values that each allows.
    pub(crate) fn label_rules(&self, checks: &Checks) -> Vec<LabelRule> {
        let domains = checks.domains.iter();
        domains
            .map(|check| LabelRule {
                kind: check.kind,
                key: self.keys[check.key].symbol(),
                of_other_pod: check.direction == Direction::Inverse,
                allowed: check
                    .domains()
                    .iter()
                    .filter_map(|domain| self.keys[check.key].value(domain))
                    .collect(),
            })
            .collect()
    }

    /// The same without the values.
    pub(crate) fn rules_on_labels(&self, checks: &Checks) -> Vec<Unsatisfied> {
        let rules = self.label_rules(checks).into_iter();
        rules
            .map(|rule| Unsatisfied {
                kind: rule.kind,
                key: rule.key,
                of_other_pod: rule.of_other_pod,
            })
            .collect()
    }

    /// The first of them.
    pub(crate) fn first_rule(&self, checks: &Checks) -> Option<Unsatisfied> {
        self.rules_on_labels(checks).into_iter().next()
    }
}

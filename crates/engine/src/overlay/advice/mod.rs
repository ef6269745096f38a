//! What an overlay does over all pools, and what its author probably did not mean.
//!
//! Everything here is derived from an [`Evaluation`]; nothing changes it. Counts speak of every offering; advice
//! about prices speaks of the offerings that pools can launch, because no other price matters.

pub(super) mod capacity;
pub(super) mod matching;
mod prices;

use std::collections::HashMap;
use std::fmt;

use super::{Evaluation, Overlay, Verdict};
use crate::bitset::BitSet;
use crate::instance_type::{InstanceType, Offering};
use crate::requirements::Operator;

/// How bad a piece of advice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Good to know.
    Info,
    /// Probably not what was meant.
    Warning,
    /// Does not work.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The requirements match no offering.
    MatchesNothing,
    /// What it matches, no pool can launch.
    NotLaunchable,
    /// Heavier overlays set everything that it sets.
    Shadowed,
    /// On-demand becomes cheaper than spot.
    OnDemandBelowSpot,
    /// Types of different size get one price.
    SamePrice,
    /// Prices change, their order does not.
    SameOrder,
    /// Karpenter accepts two overlays of the same weight that set the same resource.
    UncheckedCapacity,
    /// Capacity is selected by offering, but holds for all offerings of the type.
    CapacityForAllOfferings,
    /// Another entry of the catalogue with the same name changes too.
    SharedName,
    /// Huge pages leave hardly any memory.
    NoMemoryLeft,
    /// An operator that older releases of Karpenter lack.
    NewOperator,
    /// Fields that Karpenter's CRD lacks.
    Overhead,
    /// It sets nothing.
    SetsNothing,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 13] = [
        Self::MatchesNothing,
        Self::NotLaunchable,
        Self::Shadowed,
        Self::OnDemandBelowSpot,
        Self::SamePrice,
        Self::SameOrder,
        Self::UncheckedCapacity,
        Self::CapacityForAllOfferings,
        Self::SharedName,
        Self::NoMemoryLeft,
        Self::NewOperator,
        Self::Overhead,
        Self::SetsNothing,
    ];

    /// The stable name, how bad it is, and what it says in one line.
    fn entry(self) -> (&'static str, Level, &'static str) {
        use Level::{Info, Warning};
        match self {
            Self::MatchesNothing => ("matches-nothing", Warning, "the requirements match no offering"),
            Self::NotLaunchable => (
                "not-launchable",
                Warning,
                "no pool can launch what the overlay matches",
            ),
            Self::Shadowed => (
                "shadowed",
                Warning,
                "heavier overlays set everything that the overlay sets",
            ),
            Self::OnDemandBelowSpot => (
                "on-demand-below-spot",
                Warning,
                "on-demand becomes cheaper than spot, so spot launches may fail",
            ),
            Self::SamePrice => (
                "same-price",
                Warning,
                "instance types of different size get the same price",
            ),
            Self::SameOrder => (
                "same-order",
                Info,
                "prices change, but the order of launch candidates does not",
            ),
            Self::UncheckedCapacity => (
                "unchecked-capacity-conflict",
                Warning,
                "overlays of the same weight set the same resource, and Karpenter does not notice",
            ),
            Self::CapacityForAllOfferings => (
                "capacity-for-all-offerings",
                Warning,
                "capacity selected by capacity type or zone holds for every offering of the type",
            ),
            Self::SharedName => (
                "shared-name",
                Warning,
                "another entry of the catalogue with the same name changes too",
            ),
            Self::NoMemoryLeft => (
                "no-memory-left",
                Warning,
                "huge pages leave hardly any memory for pods",
            ),
            Self::NewOperator => (
                "new-operator",
                Info,
                "older releases of Karpenter lack the operator",
            ),
            Self::Overhead => (
                "overhead",
                Warning,
                "Karpenter's CRD has no overhead and no overheadPercent",
            ),
            Self::SetsNothing => (
                "sets-nothing",
                Warning,
                "the overlay sets neither a price nor capacity",
            ),
        }
    }

    /// The stable name.
    #[must_use]
    pub fn id(self) -> &'static str {
        self.entry().0
    }

    /// How bad it is.
    #[must_use]
    pub fn level(self) -> Level {
        self.entry().1
    }

    /// What it says, in one line.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.entry().2
    }
}

/// One piece of advice about an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What was checked.
    pub rule: Rule,
    /// The field at fault, e.g. `spec.requirements[0]`.
    pub field: String,
    /// What was found.
    pub message: String,
    /// The way out.
    pub fix: String,
}

/// What an overlay does, over all pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Offerings whose price it sets, or whose type it gives a resource.
    pub changed: usize,
    /// Offerings that it matches and where heavier overlays set all that it would set.
    pub lost: usize,
    /// What its author should know, worst first.
    pub advice: Vec<Advice>,
}

/// What every overlay of `evaluation` does. `launchable` has, for each pool, the offerings that it can launch.
#[must_use]
pub fn survey(evaluation: &Evaluation, launchable: &[BitSet]) -> Vec<Effect> {
    let view = View::new(evaluation, launchable);
    let mut effects = view.count();
    let reordering = prices::reordering(&view);
    for (at, effect) in effects.iter_mut().enumerate() {
        let Some(overlay) = evaluation.overlay(at) else {
            continue;
        };
        effect.advice.extend(new_operators(overlay));
        if !overlay.overhead.is_empty() {
            effect.advice.push(overhead());
        }
        if sets_nothing(overlay) {
            effect.advice.push(nothing_set());
        }
        if !matches!(evaluation.verdicts().get(at), Some(Verdict::Ready)) {
            continue;
        }
        match matching::advice(&view, at, overlay, effect) {
            Some(advice) => effect.advice.push(advice),
            None => {
                let reorders = reordering.contains(&at);
                effect.advice.extend(prices::advice(&view, reorders, at, overlay));
                effect.advice.extend(capacity::advice(&view, at, overlay));
            }
        }
        effect
            .advice
            .sort_by(|a, b| b.rule.level().cmp(&a.rule.level()).then(a.rule.cmp(&b.rule)));
    }
    effects
}

/// Why an overlay matches no offering of any pool, if it matches none.
#[must_use]
pub fn matches_nothing(evaluation: &Evaluation, at: usize) -> Option<Advice> {
    let (_, matched) = evaluation.match_counts(at);
    let overlay = evaluation.overlay(at).filter(|_| matched == 0)?;
    Some(matching::matches_nothing(evaluation, overlay))
}

/// An offering of a type in a pool, by position.
#[derive(Clone, Copy)]
struct Place<'a> {
    pool: usize,
    entry: usize,
    offering: usize,
    /// The position among all offerings of the catalogue.
    number: usize,
    it: &'a InstanceType,
    of: &'a Offering,
}

/// The evaluation, arranged so that every overlay finds its own places without looking at all of them.
struct View<'a> {
    evaluation: &'a Evaluation,
    /// Every offering that its pool can launch, by pool and then as in the catalogue.
    launchable: Vec<Place<'a>>,
    /// For each overlay, those whose price it sets.
    won: Vec<Vec<Place<'a>>>,
    /// For each overlay, one offering of every type and pool that it gives resources.
    given: Vec<Vec<Place<'a>>>,
    /// The overlays that take part and set prices, heaviest first. Of two with the same weight no offering has both.
    pricing: Vec<usize>,
}

impl<'a> View<'a> {
    fn new(evaluation: &'a Evaluation, launchable: &[BitSet]) -> Self {
        let ready = |at: &usize| evaluation.verdicts().get(*at) == Some(&Verdict::Ready);
        let weight = |at: &usize| {
            evaluation
                .overlay(*at)
                .filter(|o| o.price.is_some())
                .map(|o| o.weight)
        };
        let pricing = (0..evaluation.verdicts().len())
            .filter(ready)
            .filter(|at| weight(at).is_some());
        let mut pricing: Vec<usize> = pricing.collect();
        pricing.sort_by_key(|at| std::cmp::Reverse(weight(at)));
        let mut view = Self {
            evaluation,
            pricing,
            launchable: Vec::new(),
            won: vec![Vec::new(); evaluation.verdicts().len()],
            given: vec![Vec::new(); evaluation.verdicts().len()],
        };
        for (pool, allowed) in launchable.iter().enumerate() {
            let places = view.places(pool).filter(|place| allowed.contains(place.number));
            view.launchable.extend(places);
        }
        let mut last = None;
        for place in &view.launchable {
            if let Some(won) = view.winner(place).and_then(|winner| view.won.get_mut(winner)) {
                won.push(*place);
            }
            if last.replace((place.pool, place.entry)) != Some((place.pool, place.entry)) {
                for overlay in evaluation.capacity_overlays(place.pool, place.entry) {
                    view.given
                        .get_mut(overlay)
                        .into_iter()
                        .for_each(|given| given.push(*place));
                }
            }
        }
        view
    }

    /// Every offering of every type in a pool.
    fn places(&self, pool: usize) -> impl Iterator<Item = Place<'a>> + use<'a> {
        let types = self.evaluation.catalogue().types.iter().enumerate();
        types
            .flat_map(|(entry, it)| {
                let offerings = it.offerings.iter().enumerate();
                offerings.map(move |(offering, of)| (entry, it, offering, of))
            })
            .enumerate()
            .map(move |(number, (entry, it, offering, of))| Place {
                pool,
                entry,
                offering,
                number,
                it,
                of,
            })
    }

    fn won(&self, overlay: usize) -> &[Place<'a>] {
        self.won.get(overlay).map_or(&[], Vec::as_slice)
    }

    fn given(&self, overlay: usize) -> &[Place<'a>] {
        self.given.get(overlay).map_or(&[], Vec::as_slice)
    }

    fn price(&self, place: &Place<'_>) -> f64 {
        let prices = self.evaluation.prices(place.pool);
        prices.get(place.number).copied().unwrap_or(place.of.price)
    }

    fn winner(&self, place: &Place<'_>) -> Option<usize> {
        self.evaluation.winner(place.pool, place.entry, place.offering)
    }

    /// The price that an offering would have without the overlay that sets it.
    fn runner_up_price(&self, place: &Place<'_>, winner: usize) -> f64 {
        let lighter = self.pricing.iter().skip_while(|at| **at != winner).skip(1);
        let next = lighter.copied().find(|at| {
            self.evaluation
                .matches(*at, place.pool, place.entry, place.offering)
        });
        let change = next.and_then(|at| self.evaluation.overlay(at)?.price.as_ref());
        change.map_or(place.of.price, |change| change.apply(place.of.price))
    }

    fn pool_name(&self, pool: usize) -> &'a str {
        self.evaluation.pools().get(pool).map_or("", |pool| &pool.name)
    }

    fn zone(&self, place: &Place<'a>) -> &'a str {
        place
            .of
            .zone(&self.evaluation.catalogue().vocabulary)
            .unwrap_or("")
    }

    fn capacity_type(&self, place: &Place<'a>) -> &'a str {
        let vocabulary = &self.evaluation.catalogue().vocabulary;
        place.of.capacity_type(vocabulary).unwrap_or("")
    }

    /// Counts over every offering of every pool: where an overlay sets a price or gives a resource, and where it matches
    /// in vain.
    fn count(&self) -> Vec<Effect> {
        let evaluation = self.evaluation;
        let mut effects = vec![Effect::default(); evaluation.verdicts().len()];
        let mut matched_and_changed = vec![0; effects.len()];
        for pool in 0..evaluation.pools().len() {
            let mut of_type: HashMap<usize, Vec<usize>> = HashMap::new();
            for place in self.places(pool) {
                let giving = of_type.entry(place.entry).or_insert_with(|| {
                    capacity::effective(evaluation, &evaluation.capacity_overlays(pool, place.entry))
                });
                let winner = self.winner(&place).filter(|winner| !giving.contains(winner));
                for at in giving.iter().copied().chain(winner) {
                    let matches = evaluation.matches(at, pool, place.entry, place.offering);
                    if let (Some(effect), Some(count)) =
                        (effects.get_mut(at), matched_and_changed.get_mut(at))
                    {
                        effect.changed += 1;
                        *count += usize::from(matches);
                    }
                }
            }
        }
        for (at, (effect, count)) in effects.iter_mut().zip(matched_and_changed).enumerate() {
            let takes_part = evaluation.verdicts().get(at) == Some(&Verdict::Ready)
                && evaluation
                    .overlay(at)
                    .is_some_and(|overlay| !sets_nothing(overlay));
            if takes_part {
                effect.lost = evaluation.match_counts(at).1 - count;
            }
        }
        effects
    }
}

fn sets_nothing(overlay: &Overlay) -> bool {
    let capacity = overlay.capacity.as_ref().is_some_and(|list| !list.is_empty());
    overlay.price.is_none() && !capacity && overlay.overhead.is_empty()
}

fn nothing_set() -> Advice {
    Advice {
        rule: Rule::SetsNothing,
        field: "spec".to_owned(),
        message: "sets neither a price nor capacity, so it changes nothing".to_owned(),
        fix: "set spec.price, spec.priceAdjustment or spec.capacity, or remove the overlay".to_owned(),
    }
}

fn overhead() -> Advice {
    Advice {
        rule: Rule::Overhead,
        field: "spec.overhead".to_owned(),
        message: "overhead and overheadPercent come from an earlier draft: Veneer honours them in standalone mode and \
                  in the offline tools, Karpenter's CRD does not have them"
            .to_owned(),
        fix: "beside Karpenter, remove the field; set the kubelet's reservations in the node class instead".to_owned(),
    }
}

fn new_operators(overlay: &Overlay) -> impl Iterator<Item = Advice> {
    overlay
        .requirements
        .iter()
        .enumerate()
        .filter_map(|(at, selector)| {
            let bound: i64 = selector.values.first()?.parse().ok()?;
            let instead = match selector.operator {
                Operator::Gte if bound > 0 => format!("write Gt [\"{}\"], which means the same", bound - 1),
                Operator::Gte => "write Exists, which means the same for a label that is a number".to_owned(),
                Operator::Lte => format!("write Lt [\"{}\"], which means the same", bound.checked_add(1)?),
                _ => return None,
            };
            Some(Advice {
                rule: Rule::NewOperator,
                field: format!("spec.requirements[{at}].operator"),
                message: format!(
                    "{} {bound} on {:?}: a release of Karpenter without Gte and Lte refuses the overlay",
                    selector.operator, selector.key
                ),
                fix: format!("if an older Karpenter has to read it, {instead}"),
            })
        })
}

#[cfg(test)]
mod tests;

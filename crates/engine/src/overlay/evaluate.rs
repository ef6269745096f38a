//! The evaluation: prepares overlays against the catalogue, merges them per group of pools, and answers questions.
//!
//! What an overlay matches depends on it, the pools and the catalogue alone, and is remembered: when one overlay
//! changes, only that one is matched again and the merge repeated. Pools that all overlays match alike share one
//! result. Nothing of the catalogue is copied.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use veneer_api::NodePool;

use super::index::{TypeIndex, number};
use super::merge::{Clash, Matched, NOBODY, Table};
use super::{OverheadAmount, Overlay, Problem, TieBreak};
use crate::bitset::BitSet;
use crate::instance_type::{self, Catalogue, InstanceType, Overhead};
use crate::labels::{self, LabelSet};
use crate::requirements::Requirements;
use crate::resources::ResourceList;
use crate::vocabulary::{Symbol, Vocabulary};

/// A NodePool, as far as overlays see it: its name and its template's labels. Its requirements and node class
/// play no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The object's name.
    pub name: String,
    /// `spec.template.metadata.labels`.
    pub labels: Vec<(String, String)>,
}

impl From<&NodePool> for Pool {
    fn from(manifest: &NodePool) -> Self {
        let labels = &manifest.spec.template.metadata.labels;
        Self {
            name: manifest.metadata.name.clone().unwrap_or_default(),
            labels: labels
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        }
    }
}

/// What became of an overlay.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is applied wherever it matches and is the heaviest.
    Ready,
    /// Another overlay of the same weight sets the same field; it is left out everywhere.
    Conflict(Conflict),
    /// It cannot be read; it is left out everywhere.
    Invalid(Vec<Problem>),
}

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

/// Where an overlay stands at one offering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The overlay, by its position in what was evaluated.
    pub overlay: usize,
    /// What became of it there.
    pub fate: Fate,
}

/// What became of an overlay at one offering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It sets the price.
    Won,
    /// A heavier one sets the price.
    LostTo(usize),
    /// It is left out everywhere, so it sets nothing here either.
    LeftOut,
}

/// What one overlay matches.
#[derive(Debug)]
struct Prepared {
    overlay: Overlay,
    classes: BitSet,
    /// The distinct sets of types over the pools.
    sets: Vec<(BitSet, Matched)>,
    /// Which of `sets` belongs to each pool.
    set_of_pool: Vec<u32>,
}

/// Evaluates overlays against one catalogue, and remembers what did not change.
#[derive(Debug)]
pub struct Evaluator {
    catalogue: Arc<Catalogue>,
    index: Arc<TypeIndex>,
    vocabulary: Vocabulary,
    well_known: LabelSet,
    tie_break: TieBreak,
    pools: Vec<Pool>,
    pool_requirements: Vec<Requirements>,
    prepared: HashMap<String, Arc<Prepared>>,
}

impl Evaluator {
    /// An evaluator for the types of `catalogue`.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>, tie_break: TieBreak) -> Self {
        let mut vocabulary = catalogue.vocabulary.clone();
        let well_known = LabelSet::of(catalogue.rules.well_known(), &mut vocabulary);
        let index = Arc::new(TypeIndex::new(&catalogue));
        Self {
            catalogue,
            index,
            vocabulary,
            well_known,
            tie_break,
            pools: Vec::new(),
            pool_requirements: Vec::new(),
            prepared: HashMap::new(),
        }
    }

    /// Evaluates `overlays` for `pools`. An overlay that could not be read takes part with its problems, so that
    /// every object gets its verdict.
    pub fn evaluate(
        &mut self,
        pools: &[Pool],
        overlays: &[Result<Overlay, (String, Vec<Problem>)>],
    ) -> Evaluation {
        self.set_pools(pools);
        let prepared: Vec<Option<Arc<Prepared>>> = overlays
            .iter()
            .map(|overlay| overlay.as_ref().ok().map(|overlay| self.prepare(overlay)))
            .collect();
        let names = overlays.iter().map(|overlay| match overlay {
            Ok(overlay) => overlay.name.clone(),
            Err((name, _)) => name.clone(),
        });
        let names: Vec<String> = names.collect();
        if self.prepared.len() > names.len() {
            let kept: BTreeSet<&str> = names.iter().map(String::as_str).collect();
            self.prepared.retain(|name, _| kept.contains(name.as_str()));
        }
        let mut evaluation = self.merge(&names, prepared);
        for (verdict, overlay) in evaluation.verdicts.iter_mut().zip(overlays) {
            if let Err((_, problems)) = overlay {
                *verdict = Verdict::Invalid(problems.clone());
            }
        }
        evaluation
    }

    fn set_pools(&mut self, pools: &[Pool]) {
        if self.pools == pools {
            return;
        }
        self.prepared.clear();
        self.pools = pools.to_vec();
        self.pool_requirements = pools
            .iter()
            .map(|pool| {
                let name = [(labels::NODE_POOL, pool.name.as_str())];
                let labels = pool
                    .labels
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str()));
                Requirements::from_labels(name.into_iter().chain(labels), &mut self.vocabulary)
            })
            .collect();
    }

    /// What `overlay` matches, from memory if it has not changed.
    fn prepare(&mut self, overlay: &Overlay) -> Arc<Prepared> {
        if let Some(known) = self.prepared.get(&overlay.name)
            && known.overlay == *overlay
        {
            return Arc::clone(known);
        }
        let mut wanted = Requirements::new();
        for selector in &overlay.requirements {
            wanted.add_selector(
                &selector.key,
                selector.operator,
                &selector.values,
                None,
                &mut self.vocabulary,
            );
        }
        let classes = self
            .index
            .matching_classes(&wanted, &self.well_known, &self.vocabulary);
        let by_pool = |key: Symbol| self.pool_requirements.iter().any(|pool| pool.contains(key));
        let narrow = |set: &mut BitSet, key, requirement, pool| {
            set.intersect_with(
                &self
                    .index
                    .matching_entries(key, requirement, pool, &self.vocabulary),
            );
        };
        let mut everywhere = BitSet::full(self.index.entries());
        for (key, requirement) in wanted.iter().filter(|(key, _)| !by_pool(*key)) {
            narrow(&mut everywhere, key, requirement, None);
        }
        let mut sets: Vec<(BitSet, Matched)> = Vec::new();
        let mut set_of_pool = Vec::with_capacity(self.pools.len());
        for pool in &self.pool_requirements {
            let mut set = everywhere.clone();
            for (key, requirement) in wanted.iter().filter(|(key, _)| by_pool(*key)) {
                narrow(&mut set, key, requirement, pool.get(key));
            }
            let at = sets
                .iter()
                .position(|(known, _)| *known == set)
                .unwrap_or_else(|| {
                    let matched = matched(&self.index, &set, &classes);
                    sets.push((set, matched));
                    sets.len() - 1
                });
            set_of_pool.push(number(at));
        }
        let prepared = Arc::new(Prepared {
            overlay: overlay.clone(),
            classes,
            sets,
            set_of_pool,
        });
        self.prepared.insert(overlay.name.clone(), Arc::clone(&prepared));
        prepared
    }

    fn merge(&self, names: &[String], prepared: Vec<Option<Arc<Prepared>>>) -> Evaluation {
        let mut order: Vec<usize> = (0..prepared.len())
            .filter(|at| get(&prepared, *at).is_some())
            .collect();
        order.sort_by(|a, b| match (get(&prepared, *a), get(&prepared, *b)) {
            (Some(a), Some(b)) => self.tie_break.compare(&a.overlay, &b.overlay),
            _ => std::cmp::Ordering::Equal,
        });

        // Pools that every overlay matches alike are merged once.
        let mut group_numbers: HashMap<Vec<u32>, usize> = HashMap::new();
        let mut representatives: Vec<usize> = Vec::new();
        let mut group_of_pool = Vec::with_capacity(self.pools.len());
        for pool in 0..self.pools.len() {
            let signature: Vec<u32> = prepared
                .iter()
                .flatten()
                .map(|overlay| overlay.set_of_pool.get(pool).copied().unwrap_or(0))
                .collect();
            group_of_pool.push(*group_numbers.entry(signature).or_insert_with(|| {
                representatives.push(pool);
                representatives.len() - 1
            }));
        }

        let mut tables: Vec<Table> = representatives
            .iter()
            .map(|_| Table::new(self.index.names(), self.index.class_count()))
            .collect();
        let overlays: Vec<&Overlay> = order
            .iter()
            .filter_map(|at| get(&prepared, *at))
            .map(|p| &p.overlay)
            .collect();
        let mut clashes: HashMap<usize, (usize, Clash)> = HashMap::new();
        let mut rank_to_overlay = Vec::with_capacity(order.len());
        for (rank, &at) in order.iter().enumerate() {
            rank_to_overlay.push(at);
            let Some(one) = get(&prepared, at) else { continue };
            let in_pool = |pool: usize| one.matched_in(pool);
            let clash = representatives
                .iter()
                .zip(&mut tables)
                .find_map(|(&pool, table)| {
                    let clash = table.clash(&one.overlay, in_pool(pool)?, &overlays)?;
                    Some((pool, clash))
                });
            if let Some(clash) = clash {
                clashes.insert(at, clash);
                continue;
            }
            for (&pool, table) in representatives.iter().zip(&mut tables) {
                if let Some(matched) = in_pool(pool) {
                    table.take(number(rank), &one.overlay, matched);
                }
            }
        }

        let mut evaluation = Evaluation {
            catalogue: Arc::clone(&self.catalogue),
            index: Arc::clone(&self.index),
            pools: self.pools.clone(),
            names: names.to_vec(),
            verdicts: vec![Verdict::Ready; names.len()],
            prices: Vec::new(),
            tables: Vec::new(),
            group_of_pool,
            prepared,
            order: rank_to_overlay,
        };
        evaluation.prices = tables
            .iter()
            .map(|table| evaluation.adjusted_prices(table))
            .collect();
        evaluation.tables = tables;
        for (at, (pool, clash)) in clashes {
            let conflict = evaluation.describe_clash(at, pool, clash);
            if let Some(verdict) = evaluation.verdicts.get_mut(at) {
                *verdict = Verdict::Conflict(conflict);
            }
        }
        evaluation.name_conflicting_overlays();
        evaluation
    }
}

fn get(prepared: &[Option<Arc<Prepared>>], at: usize) -> Option<&Prepared> {
    prepared.get(at).and_then(Option::as_deref)
}

impl Prepared {
    fn set_in(&self, pool: usize) -> Option<&(BitSet, Matched)> {
        self.set_of_pool
            .get(pool)
            .and_then(|set| self.sets.get(*set as usize))
    }

    fn matched_in(&self, pool: usize) -> Option<&Matched> {
        self.set_in(pool).map(|(_, matched)| matched)
    }

    /// Whether it matches the offering class of the type in the pool.
    fn matches(&self, pool: usize, entry: usize, class: u32) -> bool {
        self.classes.contains(class as usize) && self.set_in(pool).is_some_and(|(set, _)| set.contains(entry))
    }
}

/// Folds the matched types into their names, leaving out types without a matching offering.
fn matched(index: &TypeIndex, entries: &BitSet, classes: &BitSet) -> Matched {
    let mut by_name: HashMap<u32, usize> = HashMap::new();
    let mut matched = Matched::default();
    let words = classes.words().len();
    for entry in entries.iter() {
        let offered: Vec<u64> = index
            .classes_of_entry(entry)
            .iter()
            .zip(classes.words())
            .map(|(a, b)| a & b)
            .collect();
        if offered.iter().all(|word| *word == 0) {
            continue;
        }
        let offerings = index.class_of(entry).iter();
        matched.offerings += offerings.filter(|class| classes.contains(**class as usize)).count();
        let name = number(index.name_of(entry));
        let at = *by_name.entry(name).or_insert_with(|| {
            matched.names.push(name);
            matched.classes.extend(std::iter::repeat_n(0, words));
            matched.names.len() - 1
        });
        for (word, more) in matched.classes.iter_mut().skip(at * words).zip(offered) {
            *word |= more;
        }
    }
    matched
}

/// Adjusted prices and capacity for every pool, with verdicts and provenance.
#[derive(Debug)]
pub struct Evaluation {
    catalogue: Arc<Catalogue>,
    index: Arc<TypeIndex>,
    pools: Vec<Pool>,
    names: Vec<String>,
    verdicts: Vec<Verdict>,
    tables: Vec<Table>,
    /// For each group, the price of each offering of each type, in the order of the catalogue.
    prices: Vec<Vec<f64>>,
    group_of_pool: Vec<usize>,
    prepared: Vec<Option<Arc<Prepared>>>,
    /// The overlay at each rank of the merge.
    order: Vec<usize>,
}

impl Evaluation {
    /// The pools, as they were given.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// The catalogue that was evaluated.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// What became of each overlay, in the order given.
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// The name of an overlay.
    #[must_use]
    pub fn overlay_name(&self, overlay: usize) -> &str {
        self.names.get(overlay).map_or("", String::as_str)
    }

    /// The overlay itself, if it could be read.
    #[must_use]
    pub fn overlay(&self, overlay: usize) -> Option<&Overlay> {
        get(&self.prepared, overlay).map(|prepared| &prepared.overlay)
    }

    fn table(&self, pool: usize) -> Option<&Table> {
        self.group_of_pool
            .get(pool)
            .and_then(|group| self.tables.get(*group))
    }

    /// The prices of a pool: one for each offering of each type, in the order of the catalogue.
    #[must_use]
    pub fn prices(&self, pool: usize) -> &[f64] {
        self.group_of_pool
            .get(pool)
            .and_then(|group| self.prices.get(*group))
            .map_or(&[], Vec::as_slice)
    }

    fn adjusted_prices(&self, table: &Table) -> Vec<f64> {
        let offerings = self.catalogue.types.iter().enumerate().flat_map(|(entry, it)| {
            it.offerings
                .iter()
                .zip(self.index.class_of(entry))
                .map(move |(offering, class)| (entry, offering, *class))
        });
        offerings
            .map(|(entry, offering, class)| {
                let winner = self.price_winner(table, entry, class);
                let change = winner
                    .and_then(|at| get(&self.prepared, at))
                    .and_then(|p| p.overlay.price.as_ref());
                change.map_or(offering.price, |change| change.apply(offering.price))
            })
            .collect()
    }

    fn price_winner(&self, table: &Table, entry: usize, class: u32) -> Option<usize> {
        let cell = self.index.name_of(entry) * self.index.class_count() + class as usize;
        let rank = *table.price_winner.get(cell)?;
        if rank == NOBODY {
            None
        } else {
            self.order.get(rank as usize).copied()
        }
    }

    fn class(&self, entry: usize, offering: usize) -> Option<u32> {
        self.index.class_of(entry).get(offering).copied()
    }

    /// The overlay that sets the price of an offering, if one does.
    #[must_use]
    pub fn winner(&self, pool: usize, entry: usize, offering: usize) -> Option<usize> {
        self.price_winner(self.table(pool)?, entry, self.class(entry, offering)?)
    }

    /// Every overlay that would set the price of an offering, heaviest first, and what became of it there.
    #[must_use]
    pub fn standings(&self, pool: usize, entry: usize, offering: usize) -> Vec<Standing> {
        let Some(class) = self.class(entry, offering) else {
            return Vec::new();
        };
        let winner = self.winner(pool, entry, offering);
        let contenders = self.order.iter().copied().filter(|at| {
            get(&self.prepared, *at)
                .is_some_and(|p| p.overlay.price.is_some() && p.matches(pool, entry, class))
        });
        contenders
            .map(|overlay| {
                let left_out = !matches!(self.verdicts.get(overlay), Some(Verdict::Ready));
                let fate = match winner {
                    _ if left_out => Fate::LeftOut,
                    Some(winner) if winner != overlay => Fate::LostTo(winner),
                    _ => Fate::Won,
                };
                Standing { overlay, fate }
            })
            .collect()
    }

    /// Whether an overlay matches an offering in a pool, whatever its verdict.
    #[must_use]
    pub fn matches(&self, overlay: usize, pool: usize, entry: usize, offering: usize) -> bool {
        match (get(&self.prepared, overlay), self.class(entry, offering)) {
            (Some(prepared), Some(class)) => prepared.matches(pool, entry, class),
            _ => false,
        }
    }

    /// The overlays that change the capacity of a type in a pool, heaviest first.
    #[must_use]
    pub fn capacity_overlays(&self, pool: usize, entry: usize) -> Vec<usize> {
        let Some(table) = self.table(pool) else {
            return Vec::new();
        };
        let list = table
            .capacity_list
            .get(self.index.name_of(entry))
            .copied()
            .unwrap_or(0);
        let mut overlays: Vec<usize> = table
            .lists
            .lightest_first(list)
            .filter_map(|rank| self.order.get(rank as usize).copied())
            .collect();
        overlays.reverse();
        overlays
    }

    /// The capacity of a type in a pool.
    #[must_use]
    pub fn capacity<'a>(&self, pool: usize, entry: usize, it: &'a InstanceType) -> Cow<'a, ResourceList> {
        let overlays = self.capacity_overlays(pool, entry);
        let mut capacity = Cow::Borrowed(&it.capacity);
        // From the lightest up, so that the heaviest has the last word.
        for overlay in overlays.into_iter().rev().filter_map(|at| self.overlay(at)) {
            if let Some(more) = overlay.capacity.as_ref().filter(|more| !more.is_empty()) {
                capacity = Cow::Owned(capacity.overridden_by(more));
            }
        }
        capacity
    }

    /// What pods can use of a type in a pool.
    #[must_use]
    pub fn allocatable(&self, pool: usize, entry: usize, it: &InstanceType) -> ResourceList {
        let capacity = self.capacity(pool, entry, it);
        let mut kept: HashMap<&str, &OverheadAmount> = HashMap::new();
        let overlays = self.capacity_overlays(pool, entry);
        for overlay in overlays.into_iter().rev().filter_map(|at| self.overlay(at)) {
            kept.extend(
                overlay
                    .overhead
                    .iter()
                    .map(|(resource, amount)| (resource.as_str(), amount)),
            );
        }
        let more: ResourceList = kept
            .into_iter()
            .filter_map(|(resource, amount)| Some((resource, amount.of(capacity.get(resource)?))))
            .collect();
        if more.is_empty() {
            return instance_type::allocatable(&capacity, &it.overhead);
        }
        let mut system_reserved = it.overhead.system_reserved.clone();
        system_reserved.add(&more);
        instance_type::allocatable(
            &capacity,
            &Overhead {
                system_reserved,
                ..it.overhead.clone()
            },
        )
    }

    fn describe_clash(&self, overlay: usize, pool: usize, clash: Clash) -> Conflict {
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
    fn name_conflicting_overlays(&mut self) {
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

    /// How many offerings an overlay matches in a pool.
    #[must_use]
    pub fn matched_offerings(&self, overlay: usize, pool: usize) -> usize {
        let matched = get(&self.prepared, overlay).and_then(|prepared| prepared.matched_in(pool));
        matched.map_or(0, |matched| matched.offerings)
    }

    /// How many distinct type names and how many offerings (over all pools) an overlay matches.
    #[must_use]
    pub fn match_counts(&self, overlay: usize) -> (usize, usize) {
        let Some(prepared) = get(&self.prepared, overlay) else {
            return (0, 0);
        };
        let pools = (0..self.pools.len()).filter_map(|pool| prepared.matched_in(pool));
        let mut names: BTreeSet<u32> = BTreeSet::new();
        let mut offerings = 0;
        for matched in pools {
            names.extend(&matched.names);
            offerings += matched.offerings;
        }
        (names.len(), offerings)
    }
}

//! The evaluator: prepares overlays against the catalogue and merges them per group of pools.
//!
//! What an overlay matches is remembered: when one overlay changes, only that one is matched again and the merge
//! repeated. Pools that all overlays match alike share one result. Nothing of the catalogue is copied.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use veneer_api::NodePool;

use super::index::{TypeIndex, number};
use super::merge::{Clash, Matched, Table};
use super::prepared::{Prepared, get, matched};
use super::{Evaluation, Overlay, Problem, TieBreak, Verdict};
use crate::bitset::BitSet;
use crate::instance_type::Catalogue;
use crate::labels::{self, LabelSet};
use crate::requirements::Requirements;
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
        let kept: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        self.prepared.retain(|name, _| kept.contains(name.as_str()));
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
        for (rank, &at) in order.iter().enumerate() {
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
            order,
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

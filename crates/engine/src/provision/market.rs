//! What can be bought: the catalogue with the prices and the capacity that overlays give, less what the provider has
//! run out of.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use veneer_api::labels::kubernetes;
use veneer_api::{NodeClaim, NodePool, ResourceList};

use super::pools::Usage;
use crate::cluster::limits::share;
use crate::instance_type::Catalogue;
use crate::labels::{LabelSet, ON_DEMAND, RESERVED, SPOT};
use crate::overlay::{Evaluation, Evaluator, Overlay, Pool, Problem, TieBreak, launchable};
use crate::packing::Readings;
use crate::plan::{Shortage, Snapshot, api_list, name, node_pool_of};
use crate::quantity::Quantity;
use crate::requirements::{Operator, Requirements};
use crate::vocabulary::{Symbol, Vocabulary};

/// One way to launch a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchOption {
    /// The instance type.
    pub instance_type: String,
    /// How it is bought.
    pub capacity_type: String,
    /// Where.
    pub zone: String,
    /// The price after overlays, in dollars per hour.
    pub price: f64,
    /// The list price.
    pub list_price: f64,
    /// The overlay that sets the price, if one does.
    pub overlay: Option<Arc<str>>,
    /// The labels that such a node has. Options are many and alike, so they share these.
    pub labels: Arc<BTreeMap<String, String>>,
    /// What it has.
    pub capacity: Arc<ResourceList>,
    /// What pods can use of it.
    pub allocatable: Arc<ResourceList>,
}

/// What launch options have in common, made when it is first asked for.
#[derive(Debug, Default)]
struct Common {
    /// Labels by type and offering.
    labels: HashMap<(usize, usize), Arc<BTreeMap<String, String>>>,
    /// Capacity and allocatable by pool and type.
    sizes: HashMap<(Option<usize>, usize), Size>,
}

/// More is not kept of what options have in common.
const MAX_COMMON: usize = 2_000;

/// Capacity, and what of it pods can use.
type Size = (Arc<ResourceList>, Arc<ResourceList>);

/// The catalogue as it is at the moment.
#[derive(Debug)]
pub struct Market {
    /// Every type, as the catalogue has it.
    all: Arc<Catalogue>,
    /// The same with what is short marked as not available.
    available: Arc<Catalogue>,
    shortages: Vec<Shortage>,
    evaluator: Evaluator,
    pools: Vec<Pool>,
    overlays: Vec<Result<Overlay, (String, Vec<Problem>)>>,
    /// The names of the overlays, in their order.
    names: Vec<Arc<str>>,
    evaluation: Arc<Evaluation>,
    vocabulary: Vocabulary,
    well_known: LabelSet,
    /// Where the offerings of each type begin in a pool's list of prices.
    begins: Vec<usize>,
    by_name: HashMap<Arc<str>, Vec<usize>>,
    /// Whether a pool's requirements leave anything, by name and generation.
    launchable: HashMap<String, (Option<i64>, bool)>,
    common: Common,
    /// Pods as the last run read them.
    pub(crate) readings: Readings,
    /// What pools have, by name, as it was counted last.
    pub(super) usages: BTreeMap<String, Usage>,
}

impl Market {
    /// The market of a catalogue without overlays.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>) -> Self {
        let mut evaluator = Evaluator::new(Arc::clone(&catalogue), TieBreak::default());
        let evaluation = Arc::new(evaluator.evaluate(&[], &[]));
        let mut vocabulary = catalogue.vocabulary.clone();
        let well_known = LabelSet::of(catalogue.rules.well_known(), &mut vocabulary);
        let mut begins = Vec::with_capacity(catalogue.types.len());
        let mut by_name: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
        let mut total = 0;
        for (entry, it) in catalogue.types.iter().enumerate() {
            begins.push(total);
            total += it.offerings.len();
            by_name.entry(Arc::clone(&it.name)).or_default().push(entry);
        }
        Self {
            available: Arc::clone(&catalogue),
            all: catalogue,
            shortages: Vec::new(),
            evaluator,
            pools: Vec::new(),
            overlays: Vec::new(),
            names: Vec::new(),
            evaluation,
            vocabulary,
            well_known,
            begins,
            by_name,
            launchable: HashMap::new(),
            common: Common::default(),
            readings: Readings::default(),
            usages: BTreeMap::new(),
        }
    }

    /// Takes over pools, overlays and shortages; costs little when none of them has changed.
    pub fn update(&mut self, snapshot: &Snapshot) {
        let pools: Vec<Pool> = snapshot.node_pools.iter().map(|pool| as_pool(pool)).collect();
        let read = |overlay: &Arc<veneer_api::NodeOverlay>| Overlay::read(overlay, &self.all.rules);
        let overlays: Vec<_> = snapshot.overlays.iter().map(read).collect();
        if pools != self.pools || overlays != self.overlays {
            self.evaluation = Arc::new(self.evaluator.evaluate(&pools, &overlays));
            self.pools = pools;
            self.overlays = overlays;
            self.names = snapshot
                .overlays
                .iter()
                .map(|overlay| name(&overlay.metadata).into())
                .collect();
            self.common.sizes.clear();
        }
        if snapshot.shortages != self.shortages {
            self.shortages.clone_from(&snapshot.shortages);
            self.available = without(&self.all, &self.shortages);
        }
        self.launchable
            .retain(|known, _| self.pools.iter().any(|pool| pool.name == *known));
    }

    /// The types and which of their offerings can be launched.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.available
    }

    /// Prices and capacity for the pools of the last update, in their order.
    #[must_use]
    pub fn evaluation(&self) -> &Arc<Evaluation> {
        &self.evaluation
    }

    /// The names of the overlays, in the order in which an evaluation counts them.
    pub(crate) fn overlay_names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// What a node of a pool costs after overlays, in dollars per hour. What cannot be launched at the moment still
    /// has its price.
    #[must_use]
    pub fn price(&self, pool: &str, instance_type: &str, capacity_type: &str, zone: &str) -> Option<f64> {
        let own = &self.all.vocabulary;
        let pool = self.evaluation.pools().iter().position(|one| one.name == pool);
        self.by_name.get(instance_type)?.iter().find_map(|entry| {
            let offerings = &self.all.types.get(*entry)?.offerings;
            let at = offerings.iter().position(|one| {
                one.capacity_type(own) == Some(capacity_type) && one.zone(own) == Some(zone)
            })?;
            let begin = self.begins.get(*entry).copied().unwrap_or_default();
            let adjusted = pool.and_then(|pool| self.evaluation.prices(pool).get(begin + at));
            adjusted.copied().or(offerings.get(at).map(|one| one.price))
        })
    }

    /// The list price of a type on demand, where that is lowest.
    #[must_use]
    pub fn on_demand_price(&self, instance_type: &str) -> Option<f64> {
        let entries = self.by_name.get(instance_type)?;
        let offerings = entries.iter().filter_map(|entry| self.all.types.get(*entry));
        let prices = offerings
            .flat_map(|it| &it.offerings)
            .filter(|offering| offering.capacity_type(&self.all.vocabulary) == Some(ON_DEMAND))
            .map(|offering| offering.price);
        prices.min_by(f64::total_cmp)
    }

    /// Whether a pool's requirements leave any offering of the catalogue.
    pub(super) fn has_types(&mut self, pool: &NodePool) -> bool {
        let key = name(&pool.metadata);
        let generation = pool.metadata.generation;
        match self.launchable.get(key) {
            Some((seen, found)) if *seen == generation && generation.is_some() => *found,
            _ => {
                let found = !launchable(&self.all, pool).is_empty();
                self.launchable.insert(key.to_owned(), (generation, found));
                found
            }
        }
    }

    /// The ways to launch a claim, cheapest after overlays first, at most `limit`. Of several at the same price the
    /// first type by name comes first, and then reserved capacity before spot before on-demand. None is larger than what
    /// the claim takes of the limits of its pool.
    pub fn options(&mut self, claim: &NodeClaim, limit: usize) -> Vec<LaunchOption> {
        let wanted = claim_requirements(claim, &mut self.vocabulary);
        let requests = quantities(&claim.spec.resources.requests);
        let share = share(claim).map(|share| quantities(&share));
        let pool = node_pool_of(&claim.metadata);
        let pool = self.evaluation.pools().iter().position(|one| one.name == pool);
        let vocabulary = &self.vocabulary;
        let type_key = vocabulary.get(kubernetes::INSTANCE_TYPE);
        let named = type_key
            .and_then(|key| wanted.get(key))
            .filter(|one| one.operator() == Operator::In);
        let entries: Vec<usize> = match named {
            Some(one) => one
                .values()
                .iter()
                .filter_map(|value| self.by_name.get(vocabulary.text(*value)))
                .flatten()
                .copied()
                .collect(),
            None => (0..self.available.types.len()).collect(),
        };
        let mut found: Vec<(f64, usize, usize)> = Vec::new();
        for entry in entries {
            let Some(it) = self.available.types.get(entry) else {
                continue;
            };
            if it.requirements.intersects(&wanted, vocabulary).is_err() {
                continue;
            }
            let allocatable = match pool {
                Some(pool) => self.evaluation.allocatable(pool, entry, it),
                None => it.allocatable(),
            };
            if !requests.fits_into(&allocatable)
                || !share.iter().all(|share| self.has_at_most(pool, entry, share))
            {
                continue;
            }
            let begin = self.begins.get(entry).copied().unwrap_or_default();
            for (at, offering) in it.offerings.iter().enumerate() {
                let fits = offering.available
                    && wanted
                        .compatible(&offering.requirements, &self.well_known, vocabulary)
                        .is_ok();
                if fits {
                    let adjusted = pool.and_then(|pool| self.evaluation.prices(pool).get(begin + at));
                    found.push((adjusted.copied().unwrap_or(offering.price), entry, at));
                }
            }
        }
        let own = &self.all.vocabulary;
        let key = |entry: usize, at: usize| {
            let it = self.all.types.get(entry)?;
            let offering = it.offerings.get(at)?;
            let capacity_type = offering.capacity_type(own).unwrap_or_default();
            let zone = offering.zone(own).unwrap_or_default();
            Some((&it.name, rank(capacity_type), capacity_type, zone))
        };
        found.sort_by(|a, b| {
            a.0.total_cmp(&b.0)
                .then_with(|| key(a.1, a.2).cmp(&key(b.1, b.2)))
        });
        found.truncate(limit);
        found
            .into_iter()
            .filter_map(|(price, entry, at)| self.option(pool, entry, at, price, &wanted))
            .collect()
    }

    /// Whether a type has no more of each resource than `most`.
    fn has_at_most(&self, pool: Option<usize>, entry: usize, most: &crate::resources::ResourceList) -> bool {
        let Some(it) = self.all.types.get(entry) else {
            return false;
        };
        let within = |capacity: &crate::resources::ResourceList| {
            most.iter()
                .all(|(resource, most)| capacity.get(resource).is_none_or(|amount| amount <= most))
        };
        match pool {
            Some(pool) => within(&self.evaluation.capacity(pool, entry, it)),
            None => within(&it.capacity),
        }
    }

    fn option(
        &mut self,
        pool: Option<usize>,
        entry: usize,
        at: usize,
        price: f64,
        wanted: &Requirements,
    ) -> Option<LaunchOption> {
        let labels = self.labels(entry, at, wanted)?;
        let (capacity, allocatable) = self.size(pool, entry)?;
        let it = self.all.types.get(entry)?;
        let offering = it.offerings.get(at)?;
        let own = &self.all.vocabulary;
        Some(LaunchOption {
            instance_type: it.name.to_string(),
            capacity_type: offering.capacity_type(own).unwrap_or_default().to_owned(),
            zone: offering.zone(own).unwrap_or_default().to_owned(),
            price,
            list_price: offering.price,
            overlay: pool.and_then(|pool| self.names.get(self.evaluation.winner(pool, entry, at)?).cloned()),
            labels,
            capacity,
            allocatable,
        })
    }

    /// The labels of a node of this offering.
    fn labels(
        &mut self,
        entry: usize,
        at: usize,
        wanted: &Requirements,
    ) -> Option<Arc<BTreeMap<String, String>>> {
        let it = self.all.types.get(entry)?;
        let vocabulary = &self.vocabulary;
        let text = |symbol| vocabulary.text(symbol).to_owned();
        let fixed = match self.common.labels.get(&(entry, at)) {
            Some(known) => Arc::clone(known),
            None => {
                let mut labels = BTreeMap::new();
                let stated = it
                    .requirements
                    .iter()
                    .chain(it.offerings.get(at)?.requirements.iter());
                for (key, requirement) in stated {
                    if let Some(value) = single(requirement) {
                        labels.insert(text(key), text(value));
                    }
                }
                labels.insert(kubernetes::INSTANCE_TYPE.to_owned(), it.name.to_string());
                let labels = Arc::new(labels);
                if self.common.labels.len() >= MAX_COMMON {
                    self.common.labels.clear();
                }
                self.common.labels.insert((entry, at), Arc::clone(&labels));
                labels
            }
        };
        // What the claim leaves open and the type does not decide (an operating system of several) is decided here.
        let decided = it.requirements.iter().filter_map(|(key, requirement)| {
            if single(requirement).is_some() || fixed.contains_key(vocabulary.text(key)) {
                return None;
            }
            let value = single(&requirement.intersection(wanted.get(key)?, vocabulary))?;
            Some((text(key), text(value)))
        });
        let decided: Vec<(String, String)> = decided.collect();
        if decided.is_empty() {
            return Some(fixed);
        }
        let mut labels = BTreeMap::clone(&fixed);
        labels.extend(decided);
        Some(Arc::new(labels))
    }

    /// Capacity and allocatable of a type in a pool.
    fn size(&mut self, pool: Option<usize>, entry: usize) -> Option<(Arc<ResourceList>, Arc<ResourceList>)> {
        if let Some((capacity, allocatable)) = self.common.sizes.get(&(pool, entry)) {
            return Some((Arc::clone(capacity), Arc::clone(allocatable)));
        }
        let it = self.all.types.get(entry)?;
        let (capacity, allocatable) = match pool {
            Some(pool) => (
                api_list(&self.evaluation.capacity(pool, entry, it)),
                api_list(&self.evaluation.allocatable(pool, entry, it)),
            ),
            None => (api_list(&it.capacity), api_list(&it.allocatable())),
        };
        let size = (Arc::new(capacity), Arc::new(allocatable));
        if self.common.sizes.len() >= MAX_COMMON {
            self.common.sizes.clear();
        }
        self.common
            .sizes
            .insert((pool, entry), (Arc::clone(&size.0), Arc::clone(&size.1)));
        Some(size)
    }
}

/// The one value that a requirement leaves.
fn single(requirement: &crate::requirements::Requirement) -> Option<Symbol> {
    match (requirement.operator(), requirement.values()) {
        (Operator::In, [value]) => Some(*value),
        _ => None,
    }
}

/// Which of several offerings of the same price comes first: as the AWS provider takes them.
fn rank(capacity_type: &str) -> usize {
    let order = [RESERVED, SPOT, ON_DEMAND];
    let known = order.iter().position(|known| *known == capacity_type);
    known.unwrap_or(order.len())
}

/// What a claim demands of its labels.
pub fn claim_requirements(claim: &NodeClaim, vocabulary: &mut Vocabulary) -> Requirements {
    let mut requirements = Requirements::new();
    for one in &claim.spec.requirements {
        if let Ok(operator) = one.operator.as_str().parse::<Operator>() {
            requirements.add_selector(&one.key, operator, &one.values, one.min_values, vocabulary);
        }
    }
    requirements
}

/// Amounts as numbers; one that cannot be read demands nothing.
#[must_use]
pub fn quantities(list: &ResourceList) -> crate::resources::ResourceList {
    list.iter()
        .filter_map(|(name, text)| Some((name.as_str(), text.0.parse::<Quantity>().ok()?)))
        .collect()
}

fn as_pool(pool: &NodePool) -> Pool {
    let labels = &pool.spec.template.metadata.labels;
    Pool {
        name: name(&pool.metadata).to_owned(),
        labels: labels
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    }
}

/// A catalogue in which what is short cannot be launched.
fn without(all: &Arc<Catalogue>, shortages: &[Shortage]) -> Arc<Catalogue> {
    if shortages.is_empty() {
        return Arc::clone(all);
    }
    let mut catalogue = Catalogue::clone(all);
    for it in &mut catalogue.types {
        let short: Vec<&Shortage> = shortages
            .iter()
            .filter(|one| *one.instance_type == *it.name)
            .collect();
        for offering in &mut it.offerings {
            let capacity_type = offering.capacity_type(&catalogue.vocabulary);
            let zone = offering.zone(&catalogue.vocabulary);
            let is_short = short.iter().any(|one| {
                Some(one.capacity_type.as_str()) == capacity_type && Some(one.zone.as_str()) == zone
            });
            offering.available &= !is_short;
        }
    }
    Arc::new(catalogue)
}

//! What `diagnose` found, as data: the JSON contract, from which tables and CSV are written too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use veneer_engine::instance_type::{InstanceType, Offering};
use veneer_engine::labels::{self, LabelSet};
use veneer_engine::overlay::{Fate, OverheadAmount, Verdict};
use veneer_engine::requirements::Requirements;
use veneer_engine::resources::ResourceList;

use super::{Sort, Subject};
use crate::output::Timing;
use crate::preview::Preview;

/// Everything that was asked for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) overlays: Vec<OverlayReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offerings: Option<Vec<OfferingReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_pools: Option<Vec<PoolReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timing: Option<Timing>,
    /// How many offerings were left out because their pool cannot launch them.
    #[serde(skip)]
    pub(super) hidden: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OverlayReport {
    pub(super) name: String,
    pub(super) weight: i32,
    pub(super) ready: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// What it is made of, if nobody wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) made_of: Option<String>,
    pub(super) conflicts_with: Vec<String>,
    pub(super) matched_instance_types: usize,
    pub(super) matched_offerings: usize,
    pub(super) changed_offerings: usize,
    pub(super) lost_offerings: usize,
    pub(super) warnings: Vec<Warning>,
}

impl OverlayReport {
    /// The rules of its warnings, each once.
    pub(super) fn rules(&self) -> Vec<&'static str> {
        let mut rules = Vec::new();
        for warning in &self.warnings {
            if !rules.contains(&warning.rule) {
                rules.push(warning.rule);
            }
        }
        rules
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Warning {
    pub(super) rule: &'static str,
    pub(super) level: String,
    pub(super) field: String,
    pub(super) message: String,
    pub(super) fix: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfferingReport {
    pub(super) node_pool: String,
    pub(super) instance_type: String,
    /// Tells entries of the same name apart; absent where the name is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) os: Option<String>,
    pub(super) capacity_type: String,
    pub(super) zone: String,
    pub(super) list_price: f64,
    pub(super) price: f64,
    /// Who sets the price, then who adds resources, heaviest first.
    pub(super) overlays: Vec<String>,
    pub(super) losers: Vec<Loser>,
    /// What overlays add or replace.
    pub(super) capacity: BTreeMap<String, String>,
    /// What overlays take away from pods (the earlier draft).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) overhead: BTreeMap<String, String>,
    /// Whether the pool's own requirements allow it.
    pub(super) launchable: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Loser {
    pub(super) overlay: String,
    /// The heavier overlay; null for one that is left out everywhere.
    pub(super) lost_to: Option<String>,
    pub(super) reason: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolReport {
    pub(super) node_pool: String,
    pub(super) offerings: usize,
    pub(super) launchable: usize,
    pub(super) changed: usize,
    pub(super) overlays: Vec<String>,
    /// The cheapest launchable offering at list prices, and with overlays.
    pub(super) cheapest_at_list: Option<Cheapest>,
    pub(super) cheapest: Option<Cheapest>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cheapest {
    pub(super) instance_type: String,
    pub(super) capacity_type: String,
    pub(super) zone: String,
    pub(super) price: f64,
}

/// Which offerings are wanted.
pub(super) struct Filter<'a> {
    pub(super) overlays: &'a [String],
    pub(super) pools: &'a [String],
    pub(super) selected: &'a Requirements,
    pub(super) changed_only: bool,
    pub(super) launchable_only: bool,
}

impl Filter<'_> {
    fn wants_pool(&self, name: &str) -> bool {
        self.pools.is_empty() || self.pools.iter().any(|pool| pool == name)
    }

    fn wants_overlay(&self, name: &str) -> bool {
        self.overlays.is_empty() || self.overlays.iter().any(|overlay| overlay == name)
    }
}

impl OfferingReport {
    pub(super) fn is_changed(&self) -> bool {
        self.price != self.list_price || !self.capacity.is_empty() || !self.overhead.is_empty()
    }
}

impl Report {
    pub(super) fn new(preview: &Preview<'_>, subject: Subject, sort: Sort, filter: &Filter<'_>) -> Self {
        let overlays = (0..preview.overlays.len())
            .filter_map(|at| overlay(preview, at))
            .filter(|overlay| filter.wants_overlay(&overlay.name))
            .collect();
        let mut report = Self {
            overlays,
            offerings: None,
            node_pools: None,
            timing: None,
            hidden: 0,
        };
        match subject {
            Subject::Overlay => {}
            Subject::InstanceType => {
                let mut rows = Rows::new(preview, filter).all();
                if filter.launchable_only {
                    let all = rows.len();
                    rows.retain(|row| row.launchable);
                    report.hidden = all - rows.len();
                }
                order(&mut rows, sort);
                report.offerings = Some(rows);
            }
            Subject::Nodepool => {
                let rows = Rows::new(preview, filter).all();
                let pools = preview.pools.iter().filter(|pool| filter.wants_pool(pool.name()));
                report.node_pools = Some(pools.map(|it| pool(it.name(), &rows)).collect());
            }
        }
        report
    }
}

fn order(rows: &mut [OfferingReport], sort: Sort) {
    rows.sort_by(|a, b| {
        let by = match sort {
            Sort::Name => std::cmp::Ordering::Equal,
            Sort::Price => a.price.total_cmp(&b.price),
            Sort::Saving => (b.list_price - b.price).total_cmp(&(a.list_price - a.price)),
        };
        let key = |row: &OfferingReport| {
            (
                row.instance_type.clone(),
                row.os.clone(),
                row.capacity_type.clone(),
                row.zone.clone(),
            )
        };
        a.node_pool
            .cmp(&b.node_pool)
            .then(by)
            .then_with(|| key(a).cmp(&key(b)))
    });
}

fn overlay(preview: &Preview<'_>, at: usize) -> Option<OverlayReport> {
    let verdict = preview.evaluation.verdicts().get(at)?;
    let manifest = preview.overlays.get(at)?;
    let effect = preview.effects.get(at)?;
    let (reason, message) = preview.condition(at);
    let (types, offerings) = preview.evaluation.match_counts(at);
    let advice = effect.advice.iter().map(|advice| Warning {
        rule: advice.rule.id(),
        level: advice.rule.level().to_string(),
        field: advice.field.clone(),
        message: advice.message.clone(),
        fix: advice.fix.clone(),
    });
    let object = format!("NodeOverlay {}", manifest.name());
    let read = preview
        .read
        .iter()
        .filter(|finding| finding.object == object)
        .map(|finding| Warning {
            rule: finding.rule.id(),
            level: finding.level().to_string(),
            field: finding.field.clone(),
            message: finding.message.clone(),
            fix: finding.fix.clone(),
        });
    let warnings = advice.chain(read).collect();
    Some(OverlayReport {
        name: manifest.name().to_owned(),
        weight: manifest.object.spec.weight.unwrap_or(0),
        ready: *verdict == Verdict::Ready,
        reason,
        message,
        made_of: preview.made_of(at),
        conflicts_with: match verdict {
            Verdict::Conflict(conflict) => conflict.with.clone(),
            Verdict::Ready | Verdict::Invalid(_) => Vec::new(),
        },
        matched_instance_types: types,
        matched_offerings: offerings,
        changed_offerings: effect.changed,
        lost_offerings: effect.lost,
        warnings,
    })
}

fn pool(name: &str, rows: &[OfferingReport]) -> PoolReport {
    let own: Vec<&OfferingReport> = rows.iter().filter(|row| row.node_pool == name).collect();
    let launchable: Vec<&&OfferingReport> = own.iter().filter(|row| row.launchable).collect();
    let overlays: BTreeSet<&String> = launchable.iter().flat_map(|row| &row.overlays).collect();
    let cheapest = |price: fn(&OfferingReport) -> f64| {
        let by = |row: &&&&OfferingReport| (price(row), row.instance_type.clone());
        let row = launchable
            .iter()
            .min_by(|a, b| by(a).0.total_cmp(&by(b).0).then_with(|| by(a).1.cmp(&by(b).1)))?;
        Some(Cheapest {
            instance_type: row.instance_type.clone(),
            capacity_type: row.capacity_type.clone(),
            zone: row.zone.clone(),
            price: price(row),
        })
    };
    PoolReport {
        node_pool: name.to_owned(),
        offerings: own.len(),
        launchable: launchable.len(),
        changed: launchable.iter().filter(|row| row.is_changed()).count(),
        overlays: overlays.into_iter().cloned().collect(),
        cheapest_at_list: cheapest(|row| row.list_price),
        cheapest: cheapest(|row| row.price),
    }
}

/// The offerings of every wanted pool.
struct Rows<'a> {
    preview: &'a Preview<'a>,
    filter: &'a Filter<'a>,
    /// The names that several entries have.
    shared: BTreeSet<&'a str>,
    /// The overlays that are wanted by name.
    named: Vec<usize>,
}

/// What overlays do to a type in a pool, the same for all its offerings.
struct OfType {
    overlays: Vec<usize>,
    capacity: BTreeMap<String, String>,
    overhead: BTreeMap<String, String>,
    selected: bool,
    os: Option<String>,
}

impl<'a> Rows<'a> {
    fn new(preview: &'a Preview<'a>, filter: &'a Filter<'a>) -> Self {
        let mut entries: HashMap<&str, usize> = HashMap::new();
        for it in &preview.evaluation.catalogue().types {
            *entries.entry(&it.name).or_default() += 1;
        }
        let overlays = preview.overlays.iter().enumerate();
        let named = overlays.filter(|(_, overlay)| filter.overlays.iter().any(|name| name == overlay.name()));
        Self {
            preview,
            filter,
            shared: entries
                .into_iter()
                .filter(|(_, count)| *count > 1)
                .map(|(name, _)| name)
                .collect(),
            named: named.map(|(at, _)| at).collect(),
        }
    }

    fn all(&self) -> Vec<OfferingReport> {
        let evaluation = &self.preview.evaluation;
        let mut rows = Vec::new();
        for (pool, manifest) in self.preview.pools.iter().enumerate() {
            if !self.filter.wants_pool(manifest.name()) {
                continue;
            }
            let mut number = 0;
            for (entry, it) in evaluation.catalogue().types.iter().enumerate() {
                let of_type = self.of_type(pool, entry, it);
                for (offering, of) in it.offerings.iter().enumerate() {
                    if of_type.selected && self.is_selected(of) {
                        rows.extend(self.row(pool, (entry, it), (offering, of), number, &of_type));
                    }
                    number += 1;
                }
            }
        }
        rows
    }

    fn of_type(&self, pool: usize, entry: usize, it: &InstanceType) -> OfType {
        let evaluation = &self.preview.evaluation;
        let overlays = evaluation.capacity_overlays(pool, entry);
        let total = evaluation.capacity(pool, entry, it);
        let mut capacity = BTreeMap::new();
        let mut overhead: BTreeMap<String, String> = BTreeMap::new();
        for overlay in overlays.iter().filter_map(|at| evaluation.overlay(*at)) {
            for (resource, _) in overlay.capacity.iter().flat_map(ResourceList::iter) {
                if let Some(amount) = total.get(resource) {
                    capacity.insert(resource.to_owned(), amount.to_string());
                }
            }
            for (resource, amount) in &overlay.overhead {
                let kept =
                    |amount: &OverheadAmount| total.get(resource).map(|total| amount.of(total).to_string());
                if let Some(kept) = kept(amount) {
                    overhead.entry(resource.clone()).or_insert(kept);
                }
            }
        }
        let vocabulary = &evaluation.catalogue().vocabulary;
        let systems = || {
            let key = vocabulary.get(labels::OS)?;
            Some(
                vocabulary
                    .sorted_texts(it.requirements.get(key)?.values())
                    .join(","),
            )
        };
        // Labels that only offerings have are asked of the offerings alone.
        let mut asked = Requirements::new();
        for (key, requirement) in self.filter.selected.iter() {
            let of_offerings = it
                .offerings
                .iter()
                .any(|offering| offering.requirements.contains(key));
            if it.requirements.contains(key) || !of_offerings {
                asked.add(key, requirement.clone(), vocabulary);
            }
        }
        OfType {
            overlays,
            capacity,
            overhead,
            selected: it
                .requirements
                .compatible(&asked, &LabelSet::none(), vocabulary)
                .is_ok(),
            os: self.shared.contains(&*it.name).then(systems).flatten(),
        }
    }

    fn is_selected(&self, offering: &Offering) -> bool {
        let vocabulary = &self.preview.evaluation.catalogue().vocabulary;
        offering
            .requirements
            .intersects(self.filter.selected, vocabulary)
            .is_ok()
    }

    fn row(
        &self,
        pool: usize,
        (entry, it): (usize, &InstanceType),
        (offering, of): (usize, &Offering),
        number: usize,
        of_type: &OfType,
    ) -> Option<OfferingReport> {
        let evaluation = &self.preview.evaluation;
        let winner = evaluation.winner(pool, entry, offering);
        let acting: Vec<usize> = winner
            .into_iter()
            .chain(of_type.overlays.iter().copied().filter(|at| Some(*at) != winner))
            .collect();
        let concerns = |at: &usize| acting.contains(at) || evaluation.matches(*at, pool, entry, offering);
        if !self.filter.overlays.is_empty() && !self.named.iter().any(concerns) {
            return None;
        }
        let name = |at: usize| evaluation.overlay_name(at).to_owned();
        let losers = evaluation.standings(pool, entry, offering).into_iter();
        let losers = losers.filter_map(|standing| {
            let (lost_to, reason) = match standing.fate {
                Fate::Won => return None,
                Fate::LostTo(heavier) => (Some(name(heavier)), "Weight"),
                Fate::LeftOut => (None, "Conflict"),
            };
            Some(Loser {
                overlay: name(standing.overlay),
                lost_to,
                reason,
            })
        });
        let vocabulary = &evaluation.catalogue().vocabulary;
        let row = OfferingReport {
            node_pool: self.preview.pools.get(pool)?.name().to_owned(),
            instance_type: it.name.to_string(),
            os: of_type.os.clone(),
            capacity_type: of.capacity_type(vocabulary).unwrap_or_default().to_owned(),
            zone: of.zone(vocabulary).unwrap_or_default().to_owned(),
            list_price: of.price,
            price: evaluation.prices(pool).get(number).copied().unwrap_or(of.price),
            losers: losers.collect(),
            overlays: acting.into_iter().map(name).collect(),
            capacity: of_type.capacity.clone(),
            overhead: of_type.overhead.clone(),
            launchable: self
                .preview
                .launchable
                .get(pool)
                .is_some_and(|set| set.contains(number)),
        };
        (!self.filter.changed_only || row.is_changed()).then_some(row)
    }
}

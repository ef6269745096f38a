//! The EC2 catalogue that is embedded in the program.
//!
//! Shapes, zones and on-demand prices come from public packages (see `catalog/`), whose dates [`sources`] states.
//! On-demand prices that no source has are estimated and flagged; spot prices are always an estimate: the on-demand
//! price less what spot saved for that type and region, or for its category, when the sources were published.

mod data;
mod shape;

use std::sync::Arc;

use super::CatalogueError;
use crate::instance_type::{Catalogue, InstanceType, Offering};
use crate::labels::{self, LabelRules};
use crate::requirements::{Requirement, Requirements};
use crate::vocabulary::{Symbol, Vocabulary};
pub use data::Source;
use data::{File, RegionColumns, Shape};
use shape::Shapes;

/// The instance types of one region, with what Karpenter's labels do not say about them.
#[derive(Clone, Debug)]
pub struct AwsCatalogue {
    /// The types, sorted by name, as Karpenter's AWS provider constructs them.
    pub catalogue: Catalogue,
    /// One entry for every type of `catalogue`, in the same order.
    pub facts: Vec<Facts>,
    /// The region.
    pub region: Region,
}

/// A region of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name, e.g. `eu-west-1`.
    pub name: String,
    /// The currency of its prices: `USD`, or `CNY` in China.
    pub currency: String,
    /// The date of its on-demand prices.
    pub price_date: String,
    /// Its zones.
    pub zones: Vec<Zone>,
    /// Whether no source says which zone offers which type, so that all are taken to offer all.
    pub zones_assumed: bool,
}

/// An availability zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its name, e.g. `us-east-1a`, which means another place in every AWS account.
    pub name: String,
    /// The place itself, e.g. `use1-az2`.
    pub id: String,
}

/// What Karpenter's labels do not say about an instance type.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Whether an instance can be put to sleep with its memory kept.
    pub hibernation: bool,
    /// Whether it is a whole machine without a hypervisor.
    pub bare_metal: bool,
    /// Whether its processor time is earned in credits.
    pub burstable: bool,
    /// Whether AWS lists it among the current generation.
    pub current_generation: bool,
    /// The on-demand price per hour, if there is one.
    pub on_demand: Option<f64>,
    /// Whether the on-demand price is an estimate from the prices of other regions.
    pub on_demand_estimated: bool,
    /// The estimated spot price per hour, if the type can be had as spot.
    pub spot_estimate: Option<f64>,
}

/// The regions of the embedded catalogue, sorted.
pub fn regions() -> Result<Vec<String>, CatalogueError> {
    with_file(|file| Ok(file.regions.keys().map(|name| (*name).to_owned()).collect()))
}

/// The packages that the embedded catalogue was built from.
pub fn sources() -> Result<Vec<Source>, CatalogueError> {
    with_file(|file| Ok(file.sources.clone()))
}

/// The instance types that a region offers.
pub fn region(name: &str) -> Result<AwsCatalogue, CatalogueError> {
    with_file(|file| {
        let raw = file
            .regions
            .get(name)
            .ok_or_else(|| CatalogueError::UnknownRegion {
                found: name.to_owned(),
                known: file.regions.keys().map(|known| (*known).to_owned()).collect(),
            })?;
        let columns: RegionColumns<'_> =
            serde_json::from_str(raw.get()).map_err(|error| CatalogueError::Damaged(error.to_string()))?;
        build(name, file, &columns)
            .ok_or_else(|| CatalogueError::Damaged(format!("the columns of {name} differ in length")))
    })
}

fn with_file<T>(read: impl FnOnce(&File<'_>) -> Result<T, CatalogueError>) -> Result<T, CatalogueError> {
    let text = data::unpack().map_err(CatalogueError::Damaged)?;
    read(&File::parse(&text).map_err(CatalogueError::Damaged)?)
}

fn build(name: &str, file: &File<'_>, columns: &RegionColumns<'_>) -> Option<AwsCatalogue> {
    let mut vocabulary = Vocabulary::new();
    let shapes = Shapes::new(name, &mut vocabulary);
    let market = Market::new(columns, &mut vocabulary);
    let mut types = Vec::with_capacity(columns.r#type.len());
    let mut facts = Vec::with_capacity(columns.r#type.len());
    for (row, index) in columns.r#type.iter().enumerate() {
        let shape = file.types.shape(*index)?;
        let on_demand = *columns.price.get(row)?;
        let spot = on_demand.map(|price| spot_estimate(price, *columns.spot_saving.get(row).unwrap_or(&0)));
        let zones = *columns.zones.get(row)?;
        let fact = Facts {
            hibernation: shape.hibernation,
            bare_metal: shape.bare_metal,
            burstable: shape.burstable,
            current_generation: shape.current_generation,
            on_demand: on_demand.filter(|_| shape.on_demand),
            on_demand_estimated: columns.estimated.binary_search(&row).is_ok(),
            spot_estimate: spot.filter(|_| shape.spot),
        };
        let mut requirements = shapes.requirements(&shape, &mut vocabulary);
        market.require_zones(zones, &mut requirements, &vocabulary);
        types.push(InstanceType {
            name: shape.name.into(),
            requirements,
            offerings: market.offerings(zones, &shape, &fact),
            capacity: shapes.capacity(&shape),
            overhead: shapes.overhead(&shape),
        });
        facts.push(fact);
    }
    let zones = columns.zone_names.iter().zip(&columns.zone_ids);
    let can_hibernate = types.iter().zip(&facts).filter(|(_, fact)| fact.hibernation);
    let hibernation = can_hibernate.map(|(it, _)| Arc::clone(&it.name)).collect();
    Some(AwsCatalogue {
        catalogue: Catalogue {
            vocabulary,
            rules: LabelRules::aws(),
            types,
            hibernation: Some(hibernation),
        },
        facts,
        region: Region {
            name: name.to_owned(),
            currency: columns.currency.to_owned(),
            price_date: columns.price_date.to_owned(),
            zones: zones
                .map(|(name, id)| Zone {
                    name: (*name).to_owned(),
                    id: (*id).to_owned(),
                })
                .collect(),
            zones_assumed: columns.zones_assumed,
        },
    })
}

/// In millionths of a dollar, the precision of AWS's own price lists.
fn spot_estimate(on_demand: f64, saving_percent: u8) -> f64 {
    let left = f64::from(100u8.saturating_sub(saving_percent));
    (on_demand * left / 100.0 * 1e6).round() / 1e6
}

/// The ways to buy in a region: every type's offerings are drawn from the same few.
struct Market {
    zone_key: Symbol,
    zone_id_key: Symbol,
    zones: Vec<ZoneMarket>,
}

struct ZoneMarket {
    name: Symbol,
    id: Symbol,
    on_demand: Requirements,
    spot: Requirements,
}

impl Market {
    fn new(columns: &RegionColumns<'_>, vocabulary: &mut Vocabulary) -> Self {
        let offering = |capacity_type: &str, zone: &str, id: &str, vocabulary: &mut Vocabulary| {
            let mut requirements = Requirements::new();
            for (key, value) in [
                (labels::CAPACITY_TYPE, capacity_type),
                (labels::ZONE, zone),
                (shape::ZONE_ID, id),
            ] {
                let (key, value) = (vocabulary.intern(key), vocabulary.intern(value));
                requirements.add(key, Requirement::one_of([value]), vocabulary);
            }
            for key in shape::RESERVATION_LABELS {
                let key = vocabulary.intern(key);
                requirements.add(key, Requirement::does_not_exist(), vocabulary);
            }
            requirements
        };
        let zones = columns.zone_names.iter().zip(&columns.zone_ids);
        Self {
            zones: zones
                .map(|(name, id)| ZoneMarket {
                    name: vocabulary.intern(name),
                    id: vocabulary.intern(id),
                    on_demand: offering(labels::ON_DEMAND, name, id, vocabulary),
                    spot: offering(labels::SPOT, name, id, vocabulary),
                })
                .collect(),
            zone_key: vocabulary.intern(labels::ZONE),
            zone_id_key: vocabulary.intern(shape::ZONE_ID),
        }
    }

    fn offering_in(&self, mask: u32) -> impl Iterator<Item = &ZoneMarket> {
        self.zones
            .iter()
            .enumerate()
            .filter(move |(bit, _)| mask >> bit & 1 == 1)
            .map(|(_, zone)| zone)
    }

    fn require_zones(&self, mask: u32, requirements: &mut Requirements, vocabulary: &Vocabulary) {
        let names = self.offering_in(mask).map(|zone| zone.name);
        requirements.add(self.zone_key, Requirement::one_of(names), vocabulary);
        let ids = self.offering_in(mask).map(|zone| zone.id);
        requirements.add(self.zone_id_key, Requirement::one_of(ids), vocabulary);
    }

    /// A type without a price has no offering: it cannot be compared with any other.
    fn offerings(&self, mask: u32, shape: &Shape<'_>, facts: &Facts) -> Vec<Offering> {
        // AL2023 does not boot on the first Graviton, so the provider never launches it with the default node class.
        let available = !shape.name.starts_with("a1.");
        let offer = |price: Option<f64>, requirements: &Requirements| {
            price.map(|price| Offering {
                requirements: requirements.clone(),
                price,
                available,
                reservation_capacity: 0,
            })
        };
        self.offering_in(mask)
            .flat_map(|zone| {
                [
                    offer(facts.on_demand, &zone.on_demand),
                    offer(facts.spot_estimate, &zone.spot),
                ]
            })
            .flatten()
            .collect()
    }
}

#[cfg(test)]
mod tests;

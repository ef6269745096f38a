//! The catalogue for programs. The format is documented in `docs/src/catalog.md`; fields are only ever added.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use veneer_engine::catalogue::aws;
use veneer_engine::labels;
use veneer_engine::quantity::Quantity;
use veneer_engine::requirements::Requirements;
use veneer_engine::resources::ResourceList;
use veneer_engine::vocabulary::Vocabulary;

use super::{Row, Source};
use crate::output;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(flatten)]
    region: Option<RegionView<'a>>,
    instance_types: Vec<TypeView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RegionView<'a> {
    region: &'a str,
    currency: &'a str,
    price_date: &'a str,
    zones: Vec<ZoneView<'a>>,
    zones_assumed: bool,
}

#[derive(Serialize)]
struct ZoneView<'a> {
    name: &'a str,
    id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TypeView<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, Vec<&'a str>>,
    capacity: BTreeMap<&'a str, String>,
    allocatable: BTreeMap<String, String>,
    offerings: Vec<OfferingView<'a>>,
    #[serde(flatten)]
    facts: Option<FactsView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfferingView<'a> {
    capacity_type: Option<&'a str>,
    zone: Option<&'a str>,
    price: f64,
    price_estimated: bool,
    available: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FactsView {
    hibernation: bool,
    bare_metal: bool,
    burstable: bool,
    current_generation: bool,
}

pub(super) fn write(out: &mut impl Write, source: &Source, rows: &[Row<'_>]) -> Result<()> {
    let vocabulary = &source.catalogue.vocabulary;
    let document = Document {
        region: source.aws.as_ref().map(|(region, _)| region_view(region)),
        instance_types: rows.iter().map(|row| type_view(row, vocabulary)).collect(),
    };
    output::json(out, &document)
}

fn region_view(region: &aws::Region) -> RegionView<'_> {
    RegionView {
        region: &region.name,
        currency: &region.currency,
        price_date: &region.price_date,
        zones: region
            .zones
            .iter()
            .map(|zone| ZoneView {
                name: &zone.name,
                id: &zone.id,
            })
            .collect(),
        zones_assumed: region.zones_assumed,
    }
}

fn type_view<'a>(row: &Row<'a>, vocabulary: &'a Vocabulary) -> TypeView<'a> {
    let instance_type = row.instance_type;
    let offerings = row.offerings.iter().map(|offering| {
        let capacity_type = offering.capacity_type(vocabulary);
        // Of the embedded catalogue, every spot price is an estimate and some on-demand prices are.
        let estimated = |facts: &aws::Facts| capacity_type == Some(labels::SPOT) || facts.on_demand_estimated;
        OfferingView {
            capacity_type,
            zone: offering.zone(vocabulary),
            price: offering.price,
            price_estimated: row.facts.is_some_and(estimated),
            available: offering.available,
        }
    });
    TypeView {
        name: &instance_type.name,
        labels: label_view(&instance_type.requirements, vocabulary),
        capacity: amounts(&instance_type.capacity).collect(),
        allocatable: amounts(&instance_type.allocatable())
            .map(|(name, text)| (name.to_owned(), text))
            .collect(),
        offerings: offerings.collect(),
        facts: row.facts.map(|facts| FactsView {
            hibernation: facts.hibernation,
            bare_metal: facts.bare_metal,
            burstable: facts.burstable,
            current_generation: facts.current_generation,
        }),
    }
}

/// The labels that a node of the type has, each with the values it may take.
fn label_view<'a>(
    requirements: &Requirements,
    vocabulary: &'a Vocabulary,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let present = requirements
        .iter()
        .filter(|(_, requirement)| !requirement.values().is_empty());
    present
        .map(|(key, requirement)| {
            (
                vocabulary.text(key),
                vocabulary.sorted_texts(requirement.values()),
            )
        })
        .collect()
}

fn amounts(list: &ResourceList) -> impl Iterator<Item = (&str, String)> {
    list.iter()
        .map(|(name, quantity)| (name, Quantity::to_string(quantity)))
}

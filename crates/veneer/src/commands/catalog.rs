//! `veneer catalog`: which instance types there are, with shape, labels and prices.

mod json;
mod table;

use std::cmp::Ordering;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use veneer_engine::catalogue::aws::{self, Facts, Region};
use veneer_engine::catalogue::kwok;
use veneer_engine::catalogue::selector::Selector;
use veneer_engine::instance_type::{Catalogue, InstanceType, Offering};
use veneer_engine::labels::{self, LabelSet};
use veneer_engine::quantity::Quantity;
use veneer_engine::requirements::Requirements;
use veneer_engine::resources::{CPU, MEMORY};

use crate::output;

/// Lists, filters and sorts instance types
///
/// The embedded AWS catalogue has the EC2 types of every region, with on-demand prices and an estimate of spot prices;
/// `--catalog` reads a file in the format of Karpenter's KWOK provider instead.
#[derive(Debug, Args)]
pub(crate) struct CatalogArgs {
    /// Region of the embedded AWS catalogue
    #[arg(long, default_value = "us-east-1", value_name = "REGION")]
    region: String,

    /// Reads instance types from FILE (the JSON of Karpenter's KWOK provider)
    #[arg(long, value_name = "FILE", conflicts_with = "region")]
    catalog: Option<PathBuf>,

    /// Shows what the label selector matches: = != in notin > <, and short names such as cpu, arch or zone
    #[arg(
        short = 'l',
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    selector: String,

    /// Order of the list; price is the on-demand price, or the spot price where only spot is selected
    #[arg(long, value_enum, default_value = "name")]
    sort: Sort,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    Name,
    Price,
    Cpu,
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Wide,
    Json,
}

/// What is listed: a catalogue and, for the embedded one, what is known beyond Karpenter's labels.
struct Source {
    catalogue: Catalogue,
    aws: Option<(Region, Vec<Facts>)>,
}

/// One instance type that the selector matches, with the offerings that it matches.
struct Row<'a> {
    instance_type: &'a InstanceType,
    facts: Option<&'a Facts>,
    offerings: Vec<&'a Offering>,
    on_demand: Option<f64>,
    spot: Option<f64>,
}

pub(crate) fn run(args: &CatalogArgs) -> Result<ExitCode> {
    let selector = Selector::parse(&args.selector)?;
    let mut source = load(args)?;
    let wanted = selector.requirements(&mut source.catalogue)?;
    let mut rows = select(&source, &wanted);
    sort(&mut rows, args.sort);

    let mut out = output::stdout();
    match args.output {
        Format::Json => json::write(&mut out, &source, &rows)?,
        Format::Table | Format::Wide => table::write(&mut out, &source, &rows, args.output == Format::Wide)?,
    }
    out.flush()?;
    if args.output != Format::Json {
        table::write_notes(&mut std::io::stderr().lock(), &source, &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn load(args: &CatalogArgs) -> Result<Source> {
    if let Some(path) = &args.catalog {
        let origin = path.display().to_string();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read the catalogue {origin}"))?;
        return Ok(Source {
            catalogue: kwok::parse(&text, &origin)?,
            aws: None,
        });
    }
    let loaded = aws::region(&args.region).context("--region")?;
    Ok(Source {
        catalogue: loaded.catalogue,
        aws: Some((loaded.region, loaded.facts)),
    })
}

fn select<'a>(source: &'a Source, wanted: &Requirements) -> Vec<Row<'a>> {
    let vocabulary = &source.catalogue.vocabulary;
    let none = LabelSet::none();
    let cheapest = |offerings: &[&Offering], capacity_type| {
        let matching = offerings
            .iter()
            .filter(|o| o.capacity_type(vocabulary) == Some(capacity_type));
        matching.map(|offering| offering.price).min_by(f64::total_cmp)
    };
    let matches = |instance_type: &InstanceType| {
        // Labels that only offerings have (a reservation's, say) are asked of the offerings alone.
        let of_offerings = |key| {
            instance_type
                .offerings
                .iter()
                .any(|o| o.requirements.contains(key))
        };
        let mut asked = Requirements::new();
        for (key, requirement) in wanted.iter() {
            if instance_type.requirements.contains(key) || !of_offerings(key) {
                asked.add(key, requirement.clone(), vocabulary);
            }
        }
        instance_type
            .requirements
            .compatible(&asked, &none, vocabulary)
            .is_ok()
    };
    let types = source
        .catalogue
        .types
        .iter()
        .enumerate()
        .filter(|(_, instance_type)| matches(instance_type));
    types
        .map(|(index, instance_type)| {
            let offerings: Vec<&Offering> = instance_type
                .offerings
                .iter()
                .filter(|offering| offering.requirements.intersects(wanted, vocabulary).is_ok())
                .collect();
            Row {
                instance_type,
                facts: source.aws.as_ref().and_then(|(_, facts)| facts.get(index)),
                on_demand: cheapest(&offerings, labels::ON_DEMAND),
                spot: cheapest(&offerings, labels::SPOT),
                offerings,
            }
        })
        .collect()
}

fn sort(rows: &mut [Row<'_>], by: Sort) {
    let amount = |row: &Row<'_>, name| {
        row.instance_type
            .capacity
            .get(name)
            .cloned()
            .unwrap_or(Quantity::ZERO)
    };
    let price = |row: &Row<'_>| row.on_demand.or(row.spot).unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| {
        let order = match by {
            Sort::Name => Ordering::Equal,
            Sort::Price => price(a).total_cmp(&price(b)),
            Sort::Cpu => amount(a, CPU).cmp(&amount(b, CPU)),
            Sort::Memory => amount(a, MEMORY).cmp(&amount(b, MEMORY)),
        };
        order.then_with(|| a.instance_type.name.cmp(&b.instance_type.name))
    });
}

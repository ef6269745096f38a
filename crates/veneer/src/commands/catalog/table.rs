//! The catalogue for people.

use std::io::{self, Write};

use veneer_engine::instance_type::InstanceType;
use veneer_engine::labels;
use veneer_engine::quantity::Quantity;
use veneer_engine::resources::{CPU, MEMORY, PODS, ResourceList};
use veneer_engine::vocabulary::Vocabulary;

use super::{Row, Source};
use crate::output::{Align, Columns};

const AWS: &str = "karpenter.k8s.aws/instance-";

/// Resources that count as accelerators, for types without labels that say more.
const ACCELERATORS: [(&str, &str); 4] = [
    ("nvidia.com/gpu", "nvidia"),
    ("amd.com/gpu", "amd"),
    ("habana.ai/gaudi", "gaudi"),
    ("aws.amazon.com/neuron", "neuron"),
];

type Column = (&'static str, Align, fn(&Row<'_>, &Vocabulary) -> String);

const SHAPE: [Column; 6] = [
    ("NAME", Align::Left, |row, _| row.instance_type.name.to_string()),
    ("ARCH", Align::Left, |row, v| {
        values(row.instance_type, labels::ARCH, v)
    }),
    ("VCPU", Align::Right, |row, _| {
        amount(&row.instance_type.capacity, CPU)
    }),
    ("MEMORY", Align::Right, |row, v| memory(row.instance_type, v)),
    ("GPU", Align::Left, |row, v| accelerator(row.instance_type, v)),
    ("PODS", Align::Right, |row, _| {
        amount(&row.instance_type.capacity, PODS)
    }),
];

/// A file may list one type for several operating systems; the embedded catalogue is all Linux.
const SYSTEM: Column = ("OS", Align::Left, |row, v| {
    values(row.instance_type, labels::OS, v)
});

const MARKET: [Column; 3] = [
    ("ON-DEMAND/H", Align::Right, |row, _| on_demand(row)),
    ("SPOT/H", Align::Right, |row, _| price(row.spot)),
    ("ZONES", Align::Left, zones),
];

const WIDE: [Column; 6] = [
    ("ALLOC-CPU", Align::Right, |row, _| {
        amount(&row.instance_type.allocatable(), CPU)
    }),
    ("ALLOC-MEMORY", Align::Right, |row, _| {
        gib(row.instance_type.allocatable().get(MEMORY))
    }),
    ("NETWORK-MBPS", Align::Right, |row, v| {
        aws_label(row.instance_type, "network-bandwidth", v)
    }),
    ("EBS-MBPS", Align::Right, |row, v| {
        aws_label(row.instance_type, "ebs-bandwidth", v)
    }),
    ("NVME-GB", Align::Right, |row, v| {
        aws_label(row.instance_type, "local-nvme", v)
    }),
    ("HIBERNATES", Align::Left, |row, _| {
        row.facts
            .map_or("-", |facts| if facts.hibernation { "yes" } else { "no" })
            .to_owned()
    }),
];

pub(super) fn write(out: &mut impl Write, source: &Source, rows: &[Row<'_>], wide: bool) -> io::Result<()> {
    let columns: Vec<Column> = SHAPE
        .into_iter()
        .chain(source.aws.is_none().then_some(SYSTEM))
        .chain(MARKET)
        .chain(WIDE.into_iter().filter(|_| wide))
        .collect();
    let mut table = columns.iter().fold(Columns::new(), |table, (title, align, _)| {
        table.column(title, *align)
    });
    for row in rows {
        table.row(
            columns
                .iter()
                .map(|(_, _, cell)| cell(row, &source.catalogue.vocabulary))
                .collect(),
        );
    }
    table.write(out)
}

/// What the numbers mean, apart from the list so that other programs can read that.
pub(super) fn write_notes(out: &mut impl Write, source: &Source, rows: &[Row<'_>]) -> io::Result<()> {
    let total = source.catalogue.types.len();
    writeln!(out, "{} of {total} instance types", rows.len())?;
    let Some((region, _)) = &source.aws else {
        return Ok(());
    };
    let (name, currency, date) = (&region.name, &region.currency, &region.price_date);
    writeln!(
        out,
        "{name}: on-demand prices in {currency} of {date}; spot prices are estimates"
    )?;
    if rows.iter().any(estimated) {
        writeln!(out, "~ marks an on-demand price estimated from other regions")?;
    }
    if region.zones_assumed {
        writeln!(
            out,
            "no source says which zone of {name} offers which type; all are listed for all"
        )?;
    }
    Ok(())
}

fn values(instance_type: &InstanceType, key: &str, vocabulary: &Vocabulary) -> String {
    let found = vocabulary
        .get(key)
        .and_then(|key| instance_type.requirements.get(key));
    match found.map(|requirement| vocabulary.sorted_texts(requirement.values())) {
        Some(texts) if !texts.is_empty() => texts.join(","),
        _ => "-".to_owned(),
    }
}

fn aws_label(instance_type: &InstanceType, name: &str, vocabulary: &Vocabulary) -> String {
    values(instance_type, &format!("{AWS}{name}"), vocabulary)
}

fn amount(list: &ResourceList, name: &str) -> String {
    list.get(name).map_or_else(|| "-".to_owned(), Quantity::to_string)
}

fn gib(quantity: Option<&Quantity>) -> String {
    let Some(quantity) = quantity else {
        return "-".to_owned();
    };
    let gib = quantity.value() as f64 / f64::from(1 << 30);
    // Two digits tell 0.5 from 0.48 and do not clutter 1152.
    let text = format!("{gib:.2}");
    format!("{} GiB", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The memory of the machine; what Kubernetes sees of it on EC2 is less.
fn memory(instance_type: &InstanceType, vocabulary: &Vocabulary) -> String {
    match aws_label(instance_type, "memory", vocabulary).parse::<i64>() {
        Ok(mib) => gib(Some(&Quantity::binary(mib << 20))),
        Err(_) => gib(instance_type.capacity.get(MEMORY)),
    }
}

fn accelerator(instance_type: &InstanceType, vocabulary: &Vocabulary) -> String {
    let labelled = ["gpu", "accelerator"].into_iter().find_map(|kind| {
        let name = aws_label(instance_type, &format!("{kind}-name"), vocabulary);
        let count = aws_label(instance_type, &format!("{kind}-count"), vocabulary);
        // A fraction of a GPU counts as none.
        (name != "-").then(|| format!("{} {name}", if count == "0" { "part of" } else { &count }))
    });
    let listed = || {
        ACCELERATORS.iter().find_map(|(resource, name)| {
            let count = instance_type
                .capacity
                .get(resource)
                .filter(|count| !count.is_zero())?;
            Some(format!("{count} {name}"))
        })
    };
    labelled.or_else(listed).unwrap_or_else(|| "-".to_owned())
}

fn price(price: Option<f64>) -> String {
    price.map_or_else(|| "-".to_owned(), |price| format!("{price:.4}"))
}

fn on_demand(row: &Row<'_>) -> String {
    format!(
        "{}{}",
        if estimated(row) { "~" } else { "" },
        price(row.on_demand)
    )
}

/// Whether the on-demand price that is shown is an estimate.
fn estimated(row: &Row<'_>) -> bool {
    row.on_demand.is_some() && row.facts.is_some_and(|facts| facts.on_demand_estimated)
}

/// The zones of the listed offerings: by letter if they are of one region, else by name.
fn zones(row: &Row<'_>, vocabulary: &Vocabulary) -> String {
    let mut zones: Vec<&str> = row
        .offerings
        .iter()
        .filter_map(|offering| offering.zone(vocabulary))
        .collect();
    zones.sort_unstable();
    zones.dedup();
    let Some(first) = zones.first() else {
        return "-".to_owned();
    };
    let region = first.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let letters: Option<Vec<&str>> = zones
        .iter()
        .map(|zone| zone.strip_prefix(region).filter(|letter| letter.len() == 1))
        .collect();
    match letters {
        Some(letters) if region.ends_with(|c: char| c.is_ascii_digit()) => {
            format!("{region}[{}]", letters.concat())
        }
        _ => zones.join(","),
    }
}

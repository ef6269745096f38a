//! The catalogue for people.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use veneer_engine::instance_type::InstanceType;
use veneer_engine::labels;
use veneer_engine::quantity::Quantity;
use veneer_engine::resources::{CPU, MEMORY, PODS, ResourceList};
use veneer_engine::vocabulary::Vocabulary;

use super::{Row, Source};

/// Resources that count as accelerators, with how each is called in the GPU column if no label names it.
const ACCELERATORS: [(&str, &str); 4] = [
    ("nvidia.com/gpu", "nvidia"),
    ("amd.com/gpu", "amd"),
    ("habana.ai/gaudi", "gaudi"),
    ("aws.amazon.com/neuron", "neuron"),
];

type Column = (&'static str, CellAlignment, fn(&Row<'_>, &Vocabulary) -> String);

const COLUMNS: [Column; 9] = [
    ("NAME", CellAlignment::Left, |row, _| {
        row.instance_type.name.to_string()
    }),
    ("ARCH", CellAlignment::Left, |row, v| {
        values(row.instance_type, labels::ARCH, v)
    }),
    ("VCPU", CellAlignment::Right, |row, _| {
        amount(&row.instance_type.capacity, CPU)
    }),
    ("MEMORY", CellAlignment::Right, |row, v| {
        memory(row.instance_type, v)
    }),
    ("GPU", CellAlignment::Left, |row, v| {
        accelerator(row.instance_type, v)
    }),
    ("PODS", CellAlignment::Right, |row, _| {
        amount(&row.instance_type.capacity, PODS)
    }),
    ("ON-DEMAND/H", CellAlignment::Right, on_demand),
    ("SPOT/H", CellAlignment::Right, spot),
    ("ZONES", CellAlignment::Left, |row, v| zones(row, v)),
];

const WIDE: [Column; 7] = [
    ("OS", CellAlignment::Left, |row, v| {
        values(row.instance_type, labels::OS, v)
    }),
    ("ALLOC-CPU", CellAlignment::Right, |row, _| {
        amount(&row.instance_type.allocatable(), CPU)
    }),
    ("ALLOC-MEMORY", CellAlignment::Right, |row, _| {
        gib(row.instance_type.allocatable().get(MEMORY))
    }),
    ("NETWORK-MBPS", CellAlignment::Right, |row, v| {
        values(
            row.instance_type,
            "karpenter.k8s.aws/instance-network-bandwidth",
            v,
        )
    }),
    ("EBS-MBPS", CellAlignment::Right, |row, v| {
        values(row.instance_type, "karpenter.k8s.aws/instance-ebs-bandwidth", v)
    }),
    ("NVME-GB", CellAlignment::Right, |row, v| {
        values(row.instance_type, "karpenter.k8s.aws/instance-local-nvme", v)
    }),
    ("HIBERNATES", CellAlignment::Left, |row, _| {
        row.facts
            .map_or("-", |facts| if facts.hibernation { "yes" } else { "no" })
            .to_owned()
    }),
];

pub(super) fn write(out: &mut impl Write, source: &Source, rows: &[Row<'_>], wide: bool) -> io::Result<()> {
    let columns: Vec<Column> = COLUMNS
        .into_iter()
        .chain(WIDE.into_iter().filter(|_| wide))
        .collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|(title, _, _)| *title));
    for (column, (_, alignment, _)) in table.column_iter_mut().zip(&columns) {
        column.set_cell_alignment(*alignment);
        column.set_padding((0, 2));
    }
    for row in rows {
        table.add_row(
            columns
                .iter()
                .map(|(_, _, cell)| cell(row, &source.catalogue.vocabulary)),
        );
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
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
    if rows
        .iter()
        .any(|row| row.facts.is_some_and(|facts| facts.on_demand_estimated))
    {
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
    match values(instance_type, "karpenter.k8s.aws/instance-memory", vocabulary).parse::<i64>() {
        Ok(mib) => gib(Some(&Quantity::binary(mib << 20))),
        Err(_) => gib(instance_type.capacity.get(MEMORY)),
    }
}

fn accelerator(instance_type: &InstanceType, vocabulary: &Vocabulary) -> String {
    let name_of = |key: &str, fallback: &str| match values(instance_type, key, vocabulary) {
        name if name == "-" => fallback.to_owned(),
        name => name,
    };
    let found = ACCELERATORS.iter().find_map(|(resource, fallback)| {
        let count = instance_type
            .capacity
            .get(resource)
            .filter(|count| !count.is_zero())?;
        let gpu = name_of("karpenter.k8s.aws/instance-gpu-name", fallback);
        let name = if resource.ends_with("neuron") {
            name_of("karpenter.k8s.aws/instance-accelerator-name", &gpu)
        } else {
            gpu
        };
        Some(format!("{count} {name}"))
    });
    found.unwrap_or_else(|| "-".to_owned())
}

fn price(price: Option<f64>) -> String {
    price.map_or_else(|| "-".to_owned(), |price| format!("{price:.4}"))
}

fn on_demand(row: &Row<'_>, _: &Vocabulary) -> String {
    let estimated = row.on_demand.is_some() && row.facts.is_some_and(|facts| facts.on_demand_estimated);
    format!("{}{}", if estimated { "~" } else { "" }, price(row.on_demand))
}

fn spot(row: &Row<'_>, _: &Vocabulary) -> String {
    price(row.spot)
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
    let split: Option<Vec<(&str, &str)>> = zones
        .iter()
        .map(|zone| zone.split_at_checked(zone.len() - 1))
        .collect();
    match split.as_deref() {
        None | Some([]) => "-".to_owned(),
        Some([(region, _), rest @ ..])
            if region.ends_with(|c: char| c.is_ascii_digit())
                && rest.iter().all(|(other, _)| other == region) =>
        {
            let letters: Vec<&str> = zones.iter().filter_map(|zone| zone.get(region.len()..)).collect();
            format!("{region}[{}]", letters.concat())
        }
        Some(_) => zones.join(","),
    }
}

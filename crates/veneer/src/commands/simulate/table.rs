//! The report for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use veneer_engine::resources::{CPU, MEMORY, ResourceList};

use super::change::Change;
use super::report::{ClaimReport, NodeReport, Report, UnschedulableReport, Why};
use crate::money::{is_visible, month, monthly, price, signed};
use crate::output::{Align, Columns, counted, paragraph, width};
use crate::scheduling::age;

/// Below this width, what a node is launched as stands in one column.
const ROOMY: usize = 110;
/// A table shows this many existing nodes; wide shows all.
const EXISTING: usize = 20;
/// How many pods are named where many share a fate.
const NAMED: usize = 3;

pub(super) fn write(out: &mut impl Write, report: &Report<'_>, wide: bool) -> io::Result<()> {
    if report.pods() == 0 && report.change.is_none() {
        return writeln!(out, "Nothing to schedule.");
    }
    paragraph(out, &summary(report))?;
    if let Some(saving) = &report.packing {
        let text = format!(
            "First-fit decreasing would cost ${}/h; no packing costs less than ${}/h (at most {:.1} % less than this).",
            price(saving.ffd_hourly),
            price(saving.lower_bound),
            saving.gap * 100.0
        );
        paragraph(out, &text)?;
    }
    if let Some(change) = &report.change {
        write_change(out, change, wide)?;
    }
    if !report.new_node_claims.is_empty() {
        writeln!(out)?;
        if wide {
            write_every_node(out, &report.new_node_claims)?;
        } else {
            write_nodes(out, &report.new_node_claims)?;
        }
    }
    if !report.existing_nodes.is_empty() {
        writeln!(out)?;
        write_existing(out, &report.existing_nodes, wide)?;
    }
    if !report.unschedulable.is_empty() {
        writeln!(out)?;
        write_unschedulable(out, &report.unschedulable, wide)?;
    }
    if !report.notices.is_empty() {
        writeln!(out)?;
        let mut columns = Columns::new()
            .column("NOTICE FOR", Align::Left)
            .column("WHAT", Align::Left);
        for notice in report
            .notices
            .iter()
            .take(if wide { usize::MAX } else { EXISTING })
        {
            columns.row(vec![notice.about.clone(), notice.message.clone()]);
        }
        columns.write(out)?;
    }
    let starving = report.starving.as_deref().unwrap_or_default();
    if !starving.is_empty() {
        writeln!(out)?;
        let mut columns = Columns::new()
            .column("STARVING", Align::Left)
            .column("AGE", Align::Right)
            .column("WHY", Align::Left);
        for pod in starving.iter().take(if wide { usize::MAX } else { EXISTING }) {
            columns.row(vec![pod.pod.clone(), age(pod.age_seconds), pod.sentence()]);
        }
        columns.write(out)?;
    }
    Ok(())
}

fn write_change(out: &mut impl Write, change: &Change, wide: bool) -> io::Result<()> {
    paragraph(out, &change.verdict)?;
    paragraph(out, &difference(change))?;
    writeln!(out)?;
    let mut columns = Columns::new()
        .column("", Align::Left)
        .column("BEFORE", Align::Right)
        .column("AFTER", Align::Right);
    let (before, after) = (&change.before, &change.after);
    let mut row =
        |name: &str, before: String, after: String| columns.row(vec![name.to_owned(), before, after]);
    row("nodes", before.nodes.to_string(), after.nodes.to_string());
    for (name, before, after) in costs(change) {
        row(name, before, after);
    }
    row(
        "unschedulable pods",
        before.unschedulable.to_string(),
        after.unschedulable.to_string(),
    );
    for kind in &change.instance_types {
        let name = format!("{} {}", kind.instance_type, kind.capacity_type);
        row(&name, kind.before.to_string(), kind.after.to_string());
    }
    columns.write(out)?;
    for (title, pods) in [
        ("No place any more", &change.pods_lost),
        ("A place at last", &change.pods_gained),
        ("Run now and would move", &change.pods_evicted),
        ("Wait now and would go elsewhere", &change.pods_moved),
    ] {
        if !pods.is_empty() {
            let names = some(pods.iter().map(String::as_str), pods.len(), wide);
            paragraph(out, &format!("{title} ({}): {names}", pods.len()))?;
        }
    }
    if before.unpriced + after.unpriced > 0 {
        let text = format!(
            "{} of a type that the catalogue does not have; what they cost is left out.",
            counted(before.unpriced.max(after.unpriced), "node")
        );
        paragraph(out, &text)?;
    }
    Ok(())
}

pub(super) fn summary(report: &Report<'_>) -> String {
    let on_new = report.pods() - report.pods_on_existing() - report.unschedulable.len();
    let mut parts = vec![format!(
        "{on_new} on {}",
        counted(report.new_node_claims.len(), "new node")
    )];
    if !report.existing_nodes.is_empty() {
        let nodes = counted(report.existing_nodes.len(), "existing node");
        parts.push(format!("{} on {nodes}", report.pods_on_existing()));
    }
    parts.push(format!("{} unschedulable", report.unschedulable.len()));
    let cost = &report.cost;
    let adjusted = if is_visible(cost.hourly - cost.list_hourly) {
        format!("; ${}/h as overlays price them", price(cost.hourly))
    } else {
        String::new()
    };
    format!(
        "{}: {}. New nodes cost ${}/h at list prices ({}{adjusted}).",
        counted(report.pods(), "pod"),
        parts.join(", "),
        price(cost.list_hourly),
        monthly(cost.list_hourly)
    )
}

/// What the cluster costs before and after, row by row: at list prices first, since that is what is billed without commitments. What
/// overlays make of it decides which nodes are launched, and is shown where it differs.
pub(super) fn costs(change: &Change) -> Vec<(&'static str, String, String)> {
    let (before, after) = (&change.before.cost, &change.after.cost);
    let mut rows = vec![
        (
            "$/h at list prices",
            price(before.list_hourly),
            price(after.list_hourly),
        ),
        (
            "$ a month at list prices",
            month(before.list_hourly),
            month(after.list_hourly),
        ),
    ];
    let is_adjusted = [before, after]
        .iter()
        .any(|cost| is_visible(cost.hourly - cost.list_hourly));
    if is_adjusted {
        rows.push((
            "$/h as overlays price it",
            price(before.hourly),
            price(after.hourly),
        ));
    }
    rows
}

pub(super) fn difference(change: &Change) -> String {
    let counts = [
        (change.pods, "pod", "pods"),
        (change.new_node_claims, "new node", "new nodes"),
        (change.unschedulable, "unschedulable", "unschedulable"),
    ];
    let changed = counts.iter().filter(|(number, ..)| *number != 0);
    let mut parts: Vec<String> = changed
        .map(|(number, one, many)| format!("{number:+} {}", if number.abs() == 1 { one } else { many }))
        .collect();
    if is_visible(change.hourly) || is_visible(change.list_hourly) {
        let adjusted = if is_visible(change.hourly - change.list_hourly) {
            format!(" ({} as overlays price it)", signed(change.hourly))
        } else {
            String::new()
        };
        parts.push(format!(
            "{}/h at list prices{adjusted}",
            signed(change.list_hourly)
        ));
    }
    if parts.is_empty() {
        return "The proposal changes neither nodes nor costs.".to_owned();
    }
    format!("The proposal changes: {}.", parts.join(", "))
}

/// A number with at most three decimals.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn cpu(requests: &ResourceList) -> String {
    let milli = requests
        .get(CPU)
        .map_or(0, veneer_engine::quantity::Quantity::milli_value);
    short(milli as f64 / 1000.0)
}

fn memory(requests: &ResourceList) -> String {
    let bytes = requests
        .get(MEMORY)
        .map_or(0, veneer_engine::quantity::Quantity::value);
    let text = format!("{:.1}", bytes as f64 / f64::from(1 << 30));
    format!("{}Gi", text.trim_end_matches(".0"))
}

/// Type, capacity type, zone, price and list price.
fn cheapest(claim: &ClaimReport<'_>) -> [String; 5] {
    match &claim.cheapest {
        Some(it) => [
            it.instance_type.clone(),
            it.capacity_type.clone(),
            it.zone.clone(),
            price(it.price),
            price(it.list_price),
        ],
        None => std::array::from_fn(|_| "-".to_owned()),
    }
}

/// Nodes that look alike share a row.
fn write_nodes(out: &mut impl Write, claims: &[ClaimReport<'_>]) -> io::Result<()> {
    let is_roomy = width().is_none_or(|width| width >= ROOMY);
    let mut columns = Columns::new()
        .column("NODES", Align::Right)
        .column("NODEPOOL", Align::Left)
        .column("PODS", Align::Right)
        .column("CPU", Align::Right)
        .column("MEMORY", Align::Right);
    columns = if is_roomy {
        columns
            .fixed("CHEAPEST TYPE")
            .fixed("CAPACITY TYPE")
            .fixed("ZONE")
    } else {
        columns.column("CHEAPEST OFFERING", Align::Left)
    };
    columns = columns
        .column("$/H", Align::Right)
        .column("LIST $/H", Align::Right)
        .column("CANDIDATES", Align::Right);
    let mut groups: Vec<(usize, Vec<String>)> = Vec::new();
    let mut known: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for claim in claims {
        let mut cells = vec![
            claim.node_pool.clone(),
            claim.pods.len().to_string(),
            cpu(&claim.requests),
            memory(&claim.requests),
        ];
        let [instance_type, capacity_type, zone, price, list_price] = cheapest(claim);
        if is_roomy {
            cells.extend([instance_type, capacity_type, zone]);
        } else {
            cells.push(format!("{instance_type} {capacity_type} {zone}"));
        }
        cells.extend([price, list_price, claim.instance_types.len().to_string()]);
        let at = *known.entry(cells.clone()).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((count, _)) => *count += 1,
            None => groups.push((1, cells)),
        }
    }
    for (count, mut cells) in groups {
        cells.insert(0, count.to_string());
        columns.row(cells);
    }
    columns.write(out)
}

fn write_every_node(out: &mut impl Write, claims: &[ClaimReport<'_>]) -> io::Result<()> {
    let mut columns = Columns::new()
        .column("NODEPOOL", Align::Left)
        .column("PODS", Align::Right)
        .column("CPU", Align::Right)
        .column("MEMORY", Align::Right)
        .fixed("CHEAPEST TYPE")
        .fixed("CAPACITY TYPE")
        .fixed("ZONE")
        .column("$/H", Align::Right)
        .column("LIST $/H", Align::Right)
        .column("OVERLAYS", Align::Left)
        .column("CANDIDATES", Align::Right)
        .column("NAMES", Align::Left);
    for claim in claims {
        let mut cells = vec![
            claim.node_pool.clone(),
            claim.pods.len().to_string(),
            cpu(&claim.requests),
            memory(&claim.requests),
        ];
        cells.extend(cheapest(claim));
        let overlays = claim.cheapest.as_ref().map_or(&[][..], |it| &it.overlays);
        cells.push(if overlays.is_empty() {
            "-".to_owned()
        } else {
            overlays.join(", ")
        });
        cells.push(claim.instance_types.len().to_string());
        cells.push(claim.pods.join(", "));
        columns.row(cells);
    }
    columns.write(out)
}

fn write_existing(out: &mut impl Write, nodes: &[NodeReport], wide: bool) -> io::Result<()> {
    let mut columns = Columns::new()
        .column("EXISTING NODE", Align::Left)
        .column("PODS", Align::Right)
        .column("NAMES", Align::Left);
    let shown = if wide { nodes.len() } else { EXISTING };
    for node in nodes.iter().take(shown) {
        let names = node.pods.iter().map(String::as_str);
        columns.row(vec![
            node.node.clone(),
            node.pods.len().to_string(),
            some(names, node.pods.len(), wide),
        ]);
    }
    columns.write(out)?;
    match nodes.len().saturating_sub(shown) {
        0 => Ok(()),
        more => writeln!(out, "and {}; -o wide shows all", counted(more, "more node")),
    }
}

/// The first few names, or all of them.
fn some<'a>(names: impl Iterator<Item = &'a str>, count: usize, all: bool) -> String {
    let shown = if all { count } else { NAMED };
    let mut text = names.take(shown).collect::<Vec<_>>().join(", ");
    if count > shown {
        text.push_str(&format!(" and {} more", count - shown));
    }
    text
}

/// Pods with the same reasons share rows, one for each NodePool.
fn write_unschedulable(out: &mut impl Write, pods: &[UnschedulableReport], wide: bool) -> io::Result<()> {
    let mut groups: Vec<(&[Why], Vec<&str>)> = Vec::new();
    let mut known: BTreeMap<&[Why], usize> = BTreeMap::new();
    for pod in pods {
        let at = *known.entry(&pod.reasons).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((_, names)) => names.push(&pod.pod),
            None => groups.push((&pod.reasons, vec![&pod.pod])),
        }
    }
    let mut columns = Columns::new()
        .column("UNSCHEDULABLE", Align::Right)
        .column("NAMES", Align::Left)
        .column("NODEPOOL", Align::Left)
        .column("WHY", Align::Left);
    for (reasons, names) in groups {
        let mut first = [
            names.len().to_string(),
            some(names.iter().copied(), names.len(), wide),
        ];
        for why in reasons {
            let [count, names] = std::mem::take(&mut first);
            let pool = why.node_pool.as_deref().unwrap_or("-").to_owned();
            columns.row(vec![count, names, pool, why.message.clone()]);
        }
    }
    columns.write(out)
}

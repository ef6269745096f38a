//! The explanation for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::report::{PlacementReport, PoolReport, Report};
use crate::money::price;
use crate::output::{Align, Columns, counted, paragraph};
use crate::scheduling::age;

/// How many families a row names.
const FAMILIES: usize = 8;

pub(super) fn write(out: &mut impl Write, report: &Report, wide: bool) -> io::Result<()> {
    match &report.placement {
        Some(placement) => paragraph(out, &format!("Pod {} {}.", report.pod, place(placement)))?,
        None => {
            paragraph(out, &format!("Pod {} goes nowhere.", report.pod))?;
            for reason in &report.reasons {
                paragraph(out, &format!("- {reason}"))?;
            }
        }
    }
    if let Some(refusal) = &report.scheduler_refusal {
        let text = format!(
            "kube-scheduler refuses it, though: \"{refusal}\". If that does not change, standalone mode launches an extra node for it after 15 s."
        );
        paragraph(out, &text)?;
    }
    if let Some(starving) = &report.starving {
        let text = format!(
            "It has waited for {}: {}.",
            age(starving.age_seconds),
            starving.sentence()
        );
        paragraph(out, &text)?;
    }
    if let Some(why_not) = &report.why_not {
        let stage = why_not
            .stage
            .map(|stage| format!(" ({stage})"))
            .unwrap_or_default();
        paragraph(
            out,
            &format!("Why not {}{stage}: {}.", why_not.instance_type, why_not.reason),
        )?;
    }
    if let Some(change) = &report.smallest_change {
        let text = format!("Smallest change that schedules it: {}.", change.description);
        paragraph(out, &text)?;
    } else if report.placement.is_none() {
        paragraph(out, "No small change that schedules it was found.")?;
    }
    let refused: usize = report.existing_nodes.refused.values().sum();
    if refused > 0 {
        let verb = if refused == 1 { "does" } else { "do" };
        let text = format!(
            "{} {verb} not take it: {}.",
            counted(refused, "existing node"),
            listed(&report.existing_nodes.refused, usize::MAX)
        );
        paragraph(out, &text)?;
    }
    if !report.node_pools.is_empty() {
        writeln!(out)?;
        write_waterfalls(out, &report.node_pools, wide)?;
    }
    Ok(())
}

fn place(placement: &PlacementReport) -> String {
    match (&placement.node, &placement.node_pool) {
        (Some(node), _) if placement.running => {
            format!("runs on node {node}; below, what a new node for it could be")
        }
        (Some(node), _) => format!("goes to node {node}, which has room"),
        (None, pool) => {
            let others = match placement.pods.saturating_sub(1) {
                0 => "alone".to_owned(),
                others => format!("with {}", counted(others, "other pod")),
            };
            let cheapest = placement.cheapest.as_ref().map(|it| {
                format!(
                    ": {} {} {} at ${}/h, the cheapest of {}",
                    it.instance_type,
                    it.capacity_type,
                    it.zone,
                    price(it.price),
                    counted(placement.instance_types, "type")
                )
            });
            format!(
                "goes to a new node of NodePool {}, {others}{}",
                pool.as_deref().unwrap_or_default(),
                cheapest.unwrap_or_default()
            )
        }
    }
}

/// The largest counts first.
fn listed<K: AsRef<str> + Ord>(counts: &BTreeMap<K, usize>, most: usize) -> String {
    let mut sorted: Vec<(&str, usize)> = counts
        .iter()
        .map(|(name, count)| (name.as_ref(), *count))
        .collect();
    sorted.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let shown = sorted.iter().take(most);
    let mut text: Vec<String> = shown.map(|(name, count)| format!("{name} {count}")).collect();
    if sorted.len() > most {
        text.push(format!("{} more", sorted.len() - most));
    }
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.join(", ")
    }
}

fn write_waterfalls(out: &mut impl Write, pools: &[PoolReport], wide: bool) -> io::Result<()> {
    let mut columns = Columns::new()
        .column("NODEPOOL", Align::Left)
        .fixed("STAGE")
        .column("BEFORE", Align::Right)
        .column("AFTER", Align::Right)
        .column("ARCHITECTURES", Align::Left)
        .column("CAPACITY TYPES", Align::Left);
    if wide {
        columns = columns.column("FAMILIES", Align::Left);
    }
    columns = columns.column("REMOVED BY", Align::Left);
    for pool in pools {
        let mut name = pool.node_pool.clone();
        if let Some(skipped) = &pool.skipped {
            let mut cells = vec![name.clone()];
            cells.extend(std::iter::repeat_n("-".to_owned(), if wide { 6 } else { 5 }));
            cells.push(skipped.clone());
            columns.row(cells);
            continue;
        }
        for step in pool.waterfall.iter().filter(|step| step.before > 0) {
            let mut cells = vec![
                std::mem::take(&mut name),
                step.stage.to_owned(),
                step.before.to_string(),
                step.after.to_string(),
                listed(&step.by_architecture, usize::MAX),
                listed(&step.by_capacity_type, usize::MAX),
            ];
            if wide {
                cells.push(listed(&step.by_family, FAMILIES));
            }
            let constraint = step.constraint.as_ref();
            cells.push(constraint.map_or_else(|| "-".to_owned(), ToString::to_string));
            columns.row(cells);
        }
    }
    columns.write(out)
}

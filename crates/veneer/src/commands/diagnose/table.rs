//! The report for people.

use std::io::{self, Write};

use super::report::{Cheapest, OfferingReport, OverlayReport, PoolReport, Report};
use crate::money::price;
use crate::output::{Align, Columns};

pub(super) fn write(out: &mut impl Write, report: &Report, wide: bool) -> io::Result<()> {
    match (&report.offerings, &report.node_pools) {
        (Some(offerings), _) => write_offerings(out, offerings, wide),
        (None, Some(pools)) => write_pools(out, pools, wide),
        (None, None) => write_overlays(out, &report.overlays, wide),
    }
}

/// Rows that differ in their zone alone.
struct Group<'a> {
    row: &'a OfferingReport,
    zones: Vec<&'a str>,
}

fn write_offerings(out: &mut impl Write, offerings: &[OfferingReport], wide: bool) -> io::Result<()> {
    if offerings.is_empty() {
        return writeln!(out, "No offering matches.");
    }
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in offerings {
        match groups
            .last_mut()
            .filter(|group| !wide && differ_in_zone_alone(group.row, row))
        {
            Some(group) => group.zones.push(&row.zone),
            None => groups.push(Group {
                row,
                zones: vec![&row.zone],
            }),
        }
    }
    let with_os = offerings.iter().any(|row| row.os.is_some());
    let mut columns = Columns::new()
        .column("NODEPOOL", Align::Left)
        .column("OVERLAY", Align::Left)
        .fixed("INSTANCE_TYPE")
        .fixed("CAPACITY TYPE")
        .column("ZONE", Align::Left)
        .column("LIST PRICE", Align::Right)
        .column("PRICE", Align::Right);
    if wide {
        columns = columns.column("CHANGE", Align::Right);
    }
    columns = columns.column("CAPACITY", Align::Left);
    if wide {
        columns = columns.column("LOST", Align::Left);
        if with_os {
            columns = columns.column("OS", Align::Left);
        }
    }
    for Group { row, zones } in &groups {
        let mut cells = vec![
            row.node_pool.clone(),
            overlays(row, wide),
            row.instance_type.clone(),
            row.capacity_type.clone(),
            shortened(zones),
            price(row.list_price),
            price(row.price),
        ];
        if wide {
            cells.push(change(row));
        }
        cells.push(capacity(row));
        if wide {
            cells.push(losers(row));
            if with_os {
                cells.push(row.os.clone().unwrap_or_default());
            }
        }
        columns.row(cells);
    }
    columns.write(out)
}

fn differ_in_zone_alone(a: &OfferingReport, b: &OfferingReport) -> bool {
    (&a.node_pool, &a.instance_type, &a.os, &a.capacity_type)
        == (&b.node_pool, &b.instance_type, &b.os, &b.capacity_type)
        && (a.list_price, a.price) == (b.list_price, b.price)
        && (&a.overlays, &a.losers, &a.capacity, &a.overhead)
            == (&b.overlays, &b.losers, &b.capacity, &b.overhead)
}

fn overlays(row: &OfferingReport, wide: bool) -> String {
    if !row.overlays.is_empty() {
        return row.overlays.join(", ");
    }
    // In the narrow table, an overlay that matched in vain would otherwise leave no trace.
    match row.losers.first() {
        Some(loser) if !wide => format!("({} left out)", loser.overlay),
        _ => "-".to_owned(),
    }
}

fn change(row: &OfferingReport) -> String {
    if row.price == row.list_price {
        return "-".to_owned();
    }
    if row.list_price == 0.0 {
        return "new".to_owned();
    }
    format!("{:+.1}%", (row.price / row.list_price - 1.0) * 100.0)
}

fn capacity(row: &OfferingReport) -> String {
    let added = row
        .capacity
        .iter()
        .map(|(resource, amount)| format!("{resource}: {amount}"));
    let kept = row
        .overhead
        .iter()
        .map(|(resource, amount)| format!("{resource}: -{amount} overhead"));
    let parts: Vec<String> = added.chain(kept).collect();
    parts.join(", ")
}

fn losers(row: &OfferingReport) -> String {
    let parts: Vec<String> = row
        .losers
        .iter()
        .map(|loser| match &loser.lost_to {
            Some(heavier) => format!("{} to {heavier}", loser.overlay),
            None => format!("{} (conflict)", loser.overlay),
        })
        .collect();
    parts.join(", ")
}

/// Zones with what they begin with in common said once: `us-east-1a-d,f`.
fn shortened(zones: &[&str]) -> String {
    let [first, .., _] = zones else {
        return zones.concat();
    };
    let stem = first.get(..first.len().saturating_sub(1)).unwrap_or_default();
    let letters: Option<Vec<char>> = zones
        .iter()
        .map(|zone| {
            let mut rest = zone.strip_prefix(stem)?.chars();
            rest.next()
                .filter(|letter| letter.is_ascii_alphanumeric() && rest.next().is_none())
        })
        .collect();
    let Some(letters) = letters.filter(|_| !stem.is_empty()) else {
        return zones.join(",");
    };
    let mut runs: Vec<(char, char)> = Vec::new();
    for letter in letters {
        match runs
            .last_mut()
            .filter(|(_, last)| u32::from(*last) + 1 == u32::from(letter))
        {
            Some((_, last)) => *last = letter,
            None => runs.push((letter, letter)),
        }
    }
    let runs: Vec<String> = runs
        .into_iter()
        .map(|(from, to)| match u32::from(to) - u32::from(from) {
            0 => from.to_string(),
            1 => format!("{from},{to}"),
            _ => format!("{from}-{to}"),
        })
        .collect();
    format!("{stem}{}", runs.join(","))
}

fn write_overlays(out: &mut impl Write, overlays: &[OverlayReport], wide: bool) -> io::Result<()> {
    if overlays.is_empty() {
        return writeln!(out, "There is no NodeOverlay.");
    }
    let mut columns = Columns::new()
        .column("OVERLAY", Align::Left)
        .column("WEIGHT", Align::Right)
        .fixed("READY")
        .fixed("REASON")
        .column("TYPES", Align::Right)
        .column("OFFERINGS", Align::Right)
        .column("CHANGED", Align::Right)
        .column("LOST", Align::Right)
        .column("WARNINGS", Align::Left);
    if wide {
        columns = columns.column("MESSAGE", Align::Left);
    }
    for overlay in overlays {
        let warnings = overlay.rules();
        let mut cells = vec![
            overlay.name.clone(),
            overlay.weight.to_string(),
            if overlay.ready { "True" } else { "False" }.to_owned(),
            overlay.reason.to_owned(),
            overlay.matched_instance_types.to_string(),
            overlay.matched_offerings.to_string(),
            overlay.changed_offerings.to_string(),
            overlay.lost_offerings.to_string(),
            if warnings.is_empty() {
                "-".to_owned()
            } else {
                warnings.join(", ")
            },
        ];
        if wide {
            cells.push(overlay.message.clone());
        }
        columns.row(cells);
    }
    columns.write(out)?;
    for overlay in overlays {
        if let Some(made_of) = &overlay.made_of {
            writeln!(out, "{} is {made_of}; `veneer run` writes it.", overlay.name)?;
        }
    }
    Ok(())
}

fn write_pools(out: &mut impl Write, pools: &[PoolReport], wide: bool) -> io::Result<()> {
    let mut columns = Columns::new()
        .column("NODEPOOL", Align::Left)
        .column("LAUNCHABLE", Align::Right)
        .column("CHANGED", Align::Right)
        .column("CHEAPEST AT LIST PRICE", Align::Left)
        .column("CHEAPEST NOW", Align::Left)
        .column("OVERLAYS", Align::Left);
    if wide {
        columns = columns.column("OFFERINGS", Align::Right);
    }
    let cheapest = |cheapest: &Option<Cheapest>| match cheapest {
        Some(it) => format!("{} {} {}", it.instance_type, it.capacity_type, price(it.price)),
        None => "-".to_owned(),
    };
    for pool in pools {
        let mut cells = vec![
            pool.node_pool.clone(),
            pool.launchable.to_string(),
            pool.changed.to_string(),
            cheapest(&pool.cheapest_at_list),
            cheapest(&pool.cheapest),
            if pool.overlays.is_empty() {
                "-".to_owned()
            } else {
                pool.overlays.join(", ")
            },
        ];
        if wide {
            cells.push(pool.offerings.to_string());
        }
        columns.row(cells);
    }
    columns.write(out)
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn zones_are_told_with_their_common_part_once() {
        for (zones, expected) in [
            (&["us-east-1a"][..], "us-east-1a"),
            (&["us-east-1a", "us-east-1b"], "us-east-1a,b"),
            (
                &["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1f"],
                "us-east-1a-c,f",
            ),
            (&["test-zone-a", "test-zone-b", "test-zone-c"], "test-zone-a-c"),
            (&["us-east-1a", "us-east-1-bos-1a"], "us-east-1a,us-east-1-bos-1a"),
            (&["a", "b"], "a,b"),
            (&[], ""),
        ] {
            assert_eq!(shortened(zones), expected);
        }
    }
}

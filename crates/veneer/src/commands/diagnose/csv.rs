//! The report as comma-separated values (RFC 4180), for spreadsheets.

use std::io::{self, Write};

use super::report::{Cheapest, Report};
use crate::output::csv_line as line;

pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    if let Some(offerings) = &report.offerings {
        let header = "nodePool,instanceType,os,capacityType,zone,listPrice,price,overlays,losers,capacity,overhead,launchable";
        writeln!(out, "{header}")?;
        for row in offerings {
            let losers: Vec<&str> = row.losers.iter().map(|loser| loser.overlay.as_str()).collect();
            line(
                out,
                &[
                    &row.node_pool,
                    &row.instance_type,
                    row.os.as_deref().unwrap_or_default(),
                    &row.capacity_type,
                    &row.zone,
                    &row.list_price.to_string(),
                    &row.price.to_string(),
                    &row.overlays.join(";"),
                    &losers.join(";"),
                    &amounts(&row.capacity),
                    &amounts(&row.overhead),
                    if row.launchable { "true" } else { "false" },
                ],
            )?;
        }
    } else if let Some(pools) = &report.node_pools {
        writeln!(
            out,
            "nodePool,offerings,launchable,changed,overlays,cheapestAtList,listPrice,cheapest,price"
        )?;
        let name = |cheapest: &Option<Cheapest>| {
            cheapest
                .as_ref()
                .map(|c| c.instance_type.clone())
                .unwrap_or_default()
        };
        let price =
            |cheapest: &Option<Cheapest>| cheapest.as_ref().map(|c| c.price.to_string()).unwrap_or_default();
        for pool in pools {
            line(
                out,
                &[
                    &pool.node_pool,
                    &pool.offerings.to_string(),
                    &pool.launchable.to_string(),
                    &pool.changed.to_string(),
                    &pool.overlays.join(";"),
                    &name(&pool.cheapest_at_list),
                    &price(&pool.cheapest_at_list),
                    &name(&pool.cheapest),
                    &price(&pool.cheapest),
                ],
            )?;
        }
    } else {
        writeln!(
            out,
            "name,weight,ready,reason,message,conflictsWith,matchedInstanceTypes,matchedOfferings,changedOfferings,lostOfferings,warnings"
        )?;
        for overlay in &report.overlays {
            let warnings = overlay.rules();
            line(
                out,
                &[
                    &overlay.name,
                    &overlay.weight.to_string(),
                    if overlay.ready { "true" } else { "false" },
                    overlay.reason,
                    &overlay.message,
                    &overlay.conflicts_with.join(";"),
                    &overlay.matched_instance_types.to_string(),
                    &overlay.matched_offerings.to_string(),
                    &overlay.changed_offerings.to_string(),
                    &overlay.lost_offerings.to_string(),
                    &warnings.join(";"),
                ],
            )?;
        }
    }
    Ok(())
}

fn amounts(list: &std::collections::BTreeMap<String, String>) -> String {
    let parts: Vec<String> = list
        .iter()
        .map(|(resource, amount)| format!("{resource}={amount}"))
        .collect();
    parts.join(";")
}

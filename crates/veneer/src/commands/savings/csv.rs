//! The report for spreadsheets: one row for the total and for each commitment, family, account and day. A field that a row
//! has nothing for is empty.

use std::io::{self, Write};

use super::{Savings, Spend};
use crate::output::csv_line;

pub(super) fn write(out: &mut impl Write, savings: &Savings) -> io::Result<()> {
    let titles = [
        "kind",
        "name",
        "what",
        "account",
        "cost",
        "used",
        "unused",
        "saved",
        "onDemand",
        "covered",
        "spot",
        "effective",
        "coveragePercent",
        "ends",
    ];
    csv_line(out, &titles)?;
    let amount = |amount: f64| format!("{amount:.6}");
    let percent = |percent: f64| format!("{percent:.2}");
    csv_line(
        out,
        &[
            "total",
            "",
            "",
            "",
            &amount(savings.commitments),
            &amount(savings.commitments - savings.unused),
            &amount(savings.unused),
            &amount(savings.saved),
            &amount(savings.on_demand),
            "",
            "",
            "",
            &percent(savings.coverage_percent),
            "",
        ],
    )?;
    for one in &savings.by_commitment {
        csv_line(
            out,
            &[
                "commitment",
                &one.id,
                &one.what,
                &one.account,
                &amount(one.cost),
                &amount(one.used),
                &amount(one.unused),
                "",
                "",
                "",
                "",
                "",
                "",
                one.end.as_deref().unwrap_or_default(),
            ],
        )?;
    }
    for one in &savings.uncovered {
        let on_demand = amount(one.on_demand);
        let coverage = percent(one.coverage_percent);
        csv_line(
            out,
            &[
                "family",
                &one.family,
                "",
                "",
                "",
                "",
                "",
                "",
                &on_demand,
                "",
                "",
                "",
                &coverage,
                "",
            ],
        )?;
    }
    let spends: [(&str, &[Spend]); 2] = [("account", &savings.by_account), ("day", &savings.by_day)];
    for (kind, all) in spends {
        for one in all {
            csv_line(
                out,
                &[
                    kind,
                    &one.name,
                    "",
                    "",
                    "",
                    "",
                    "",
                    "",
                    &amount(one.on_demand),
                    &amount(one.covered),
                    &amount(one.spot),
                    &amount(one.effective),
                    &percent(one.coverage_percent),
                    "",
                ],
            )?;
        }
    }
    Ok(())
}

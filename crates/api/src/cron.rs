//! The form of a cron schedule, as a CEL rule.
//!
//! Five fields; each a list of `*`, values and ranges, with an optional step. Months and days of the week may be
//! written as names in any case. The rule checks the form and the bounds of every value; a range that runs backwards,
//! such as `fri-mon`, or a day that never comes, such as 31 February, is left to whoever computes the schedule.

/// The CEL rule for a string that must be a schedule.
pub(crate) fn rule() -> String {
    const MONTHS: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let fields = [
        field("[0-5]?[0-9]"),
        field("[01]?[0-9]|2[0-3]"),
        field("0?[1-9]|[12][0-9]|3[01]"),
        field(&format!("0?[1-9]|1[0-2]|{}", MONTHS.join("|"))),
        field(&format!("[0-7]|{}", DAYS.join("|"))),
    ];
    format!(r"self.lowerAscii().matches('^{}$')", fields.join(" +"))
}

/// A list of `*`, values or ranges, each with an optional step.
fn field(value: &str) -> String {
    let item = format!("(\\\\*|({value})(-({value}))?)(/[1-9][0-9]?)?");
    format!("{item}(,{item})*")
}

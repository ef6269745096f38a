//! What a reconciliation found, as it is shown.

use serde::Serialize;

/// Dollars, as billed and by the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pair {
    /// As billed.
    pub billed: f64,
    /// By the rules.
    pub replayed: f64,
}

/// What some usage comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageTotals {
    /// The account, the day or the family.
    pub name: String,
    /// What nothing covers.
    pub on_demand: Pair,
    /// The share of commitments.
    pub covered: Pair,
    /// What commitments cover, at list prices.
    pub covered_list: Pair,
    /// Spot, which commitments do not cover.
    pub spot: f64,
    /// All of it.
    pub effective: Pair,
    /// The share of usage at list prices that commitments cover, in percent.
    pub coverage_percent: Pair,
}

/// What became of a commitment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitmentTotals {
    /// Its ARN.
    pub id: String,
    /// What it is, in words.
    pub what: String,
    /// Whose it is.
    pub account: String,
    /// When its term ends; nothing if the report does not say.
    pub end: Option<String>,
    /// What it costs in the time of the report.
    pub cost: f64,
    /// What of it was used.
    pub used: Pair,
    /// What of it was wasted.
    pub unused: Pair,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Example {
    /// The file and line, if it is about one.
    pub place: Option<String>,
    /// When.
    pub time: String,
    /// Whose usage, or whose commitment.
    pub account: String,
    /// The resource.
    pub resource: String,
    /// What it is.
    pub what: String,
    /// The commitment.
    pub commitment: String,
    /// Dollars as billed.
    pub billed: f64,
    /// Dollars by the rules.
    pub expected: f64,
    /// More about it.
    pub note: String,
}

/// Mistakes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MistakeTotals {
    /// The kind.
    pub kind: String,
    /// What is wrong.
    pub meaning: String,
    /// The rules that say so.
    pub rules: Vec<u8>,
    /// How often.
    pub count: u64,
    /// Billed minus expected, in dollars.
    pub dollars: f64,
    /// Some of them.
    pub examples: Vec<Example>,
}

/// How many pairs of usage and who pays for it, hour by hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LineHours {
    /// All that were compared.
    pub compared: u64,
    /// The same within a millionth of a dollar.
    pub agreed: u64,
    /// Equal usage or equal commitments in another order (rule 15).
    pub order_among_equals: u64,
    /// Mistakes and what follows from them in the same hour.
    pub mistaken: u64,
    /// Neither: the replay differs and nothing says why.
    pub unexplained: u64,
}

/// What a reconciliation found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// From when.
    pub from: Option<String>,
    /// To when.
    pub to: Option<String>,
    /// The currency.
    pub currency: String,
    /// Lines that were read.
    pub lines: u64,
    /// Clock hours that were replayed.
    pub hours: u64,
    /// Lines that are longer than an hour: checked one by one, but not replayed.
    pub long_periods: u64,
    /// How they compare.
    pub line_hours: LineHours,
    /// The sum of all usage.
    pub total: UsageTotals,
    /// What commitments cost for which nothing was used.
    pub unused: Pair,
    /// What no commitment can cover: storage, traffic, taxes, credits.
    pub other: f64,
    /// By account.
    pub accounts: Vec<UsageTotals>,
    /// By day (UTC).
    pub days: Vec<UsageTotals>,
    /// By instance family, or type of other usage.
    pub families: Vec<UsageTotals>,
    /// By commitment.
    pub commitments: Vec<CommitmentTotals>,
    /// Mistakes by kind.
    pub mistakes: Vec<MistakeTotals>,
    /// Some of the differences that nothing explains.
    pub unexplained: Vec<Example>,
    /// What could not be checked, and why.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether the bill is as the rules say, but for what they leave open.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.mistakes.is_empty() && self.line_hours.unexplained == 0
    }
}

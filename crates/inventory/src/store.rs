//! The inventory itself: parts that are replaced one by one.

use std::collections::BTreeMap;

use crate::organization::Discounts;
use crate::part::{DataKind, Part, Rows};
use crate::validation::Validation;

/// An account that is collected.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The 12 digits.
    pub id: String,
    /// What people call it.
    pub name: String,
}

/// What is known of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The rows of the last time that it could be collected.
    pub rows: Option<Rows>,
    /// When that was, in seconds since 1970.
    pub at: Option<i64>,
    /// Why it could not be collected the last time; none if it could.
    pub error: Option<String>,
    /// When it was last tried.
    pub tried: Option<i64>,
}

/// What was collected of several accounts and regions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    accounts: Vec<Account>,
    parts: BTreeMap<Part, Collected>,
    validations: BTreeMap<String, Validation>,
    /// What plans pay where their own rates are unknown; nothing is covered then, unless this is set.
    pub discounts: Discounts,
}

impl Inventory {
    /// An empty inventory of these accounts.
    #[must_use]
    pub fn new(mut accounts: Vec<Account>) -> Self {
        accounts.sort();
        accounts.dedup_by(|a, b| a.id == b.id);
        Self {
            accounts,
            ..Self::default()
        }
    }

    /// The accounts, by id.
    #[must_use]
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// The name of an account; empty if it has none.
    #[must_use]
    pub fn account_name(&self, id: &str) -> &str {
        let account = self.accounts.iter().find(|account| account.id == id);
        account.map(|account| account.name.as_str()).unwrap_or_default()
    }

    /// Says that a part belongs to the inventory, before anything is known of it. Without this, a part that was never tried would look
    /// like one that does not exist.
    pub fn expect(&mut self, part: Part) {
        self.parts.entry(part).or_default();
    }

    /// Puts what was collected in place of what was there. The kind of the part is that of the rows.
    pub fn replace(&mut self, part: &Part, rows: Rows, at: i64) {
        let part = Part {
            kind: rows.kind(),
            ..part.clone()
        };
        let collected = Collected {
            rows: Some(rows),
            at: Some(at),
            error: None,
            tried: Some(at),
        };
        self.parts.insert(part, collected);
    }

    /// Notes that a part could not be collected. Its old rows stay, and stay as old as they are.
    pub fn failed(&mut self, part: &Part, error: impl Into<String>, at: i64) {
        let collected = self.parts.entry(part.clone()).or_default();
        collected.error = Some(error.into());
        collected.tried = Some(at);
    }

    /// Notes whether an account could be reached, and how many seconds it took to find out.
    pub fn validated(&mut self, account: &str, result: Result<(), String>, at: i64, seconds: f64) {
        let validation = self.validations.entry(account.to_owned()).or_default();
        validation.observe(result, at, seconds);
    }

    /// Which accounts could be reached, by id.
    pub fn validations(&self) -> impl Iterator<Item = (&str, &Validation)> {
        self.validations.iter().map(|(id, one)| (id.as_str(), one))
    }

    /// All parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = (&Part, &Collected)> {
        self.parts.iter()
    }

    /// The parts of one kind.
    pub fn of_kind(&self, kind: DataKind) -> impl Iterator<Item = (&Part, &Collected)> {
        self.parts.iter().filter(move |(part, _)| part.kind == kind)
    }

    /// What was collected of one kind, part by part.
    pub fn rows(&self, kind: DataKind) -> impl Iterator<Item = (&Part, &Rows)> {
        let parts = self.of_kind(kind);
        parts.filter_map(|(part, collected)| Some((part, collected.rows.as_ref()?)))
    }

    /// What is known of a part.
    #[must_use]
    pub fn part(&self, part: &Part) -> Option<&Collected> {
        self.parts.get(part)
    }

    /// How many seconds ago a part was last collected; nothing if it never was.
    #[must_use]
    pub fn age(&self, part: &Part, now: i64) -> Option<i64> {
        self.part(part)?.at.map(|at| now.saturating_sub(at).max(0))
    }

    /// How many seconds ago the oldest part of a kind was collected; nothing if there is none or one of them never was.
    #[must_use]
    pub fn oldest(&self, kind: DataKind, now: i64) -> Option<i64> {
        let ages: Option<Vec<i64>> = self.of_kind(kind).map(|(part, _)| self.age(part, now)).collect();
        ages?.into_iter().max()
    }
}

//! One line of a report, whichever kind of report it comes from, and how it waits for its hour outside of memory.

use veneer_billing::Exact;

use crate::meter::Meter;

/// What a line is, in the words of Cost and Usage Reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LineKind {
    /// Usage at its list price.
    Usage,
    /// Usage that Reserved Instances pay.
    DiscountedUsage,
    /// Usage that a Savings Plan pays.
    CoveredUsage,
    /// What takes the list price of covered usage off the bill again.
    Negation,
    /// The hourly fee of a Savings Plan, used or not.
    PlanFee,
    /// The fee of Reserved Instances for a month.
    ReservedFee,
    /// What a commitment had left in an hour (FOCUS).
    Unused,
    /// Upfront fees: spread over the term elsewhere.
    Upfront,
    /// Taxes, credits, refunds, and usage that no commitment covers.
    Other,
}

impl LineKind {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Usage, "U"),
        (Self::DiscountedUsage, "D"),
        (Self::CoveredUsage, "C"),
        (Self::Negation, "N"),
        (Self::PlanFee, "P"),
        (Self::ReservedFee, "R"),
        (Self::Unused, "W"),
        (Self::Upfront, "F"),
        (Self::Other, "O"),
    ];

    /// The kind with the name that a report gives it.
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "Usage" => Self::Usage,
            "DiscountedUsage" => Self::DiscountedUsage,
            "SavingsPlanCoveredUsage" => Self::CoveredUsage,
            "SavingsPlanNegation" => Self::Negation,
            "SavingsPlanRecurringFee" => Self::PlanFee,
            "RIFee" => Self::ReservedFee,
            "SavingsPlanUpfrontFee" | "Fee" => Self::Upfront,
            _ => Self::Other,
        }
    }
}

/// The numbers of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Number {
    /// Hours or units.
    Amount,
    /// The normalization factor.
    Factor,
    /// Dollars as billed, before amortization.
    Cost,
    /// Dollars at the list price.
    ListCost,
    /// The list price.
    ListRate,
    /// Dollars with the share of the commitment.
    Effective,
    /// What the plan pays for a unit.
    Rate,
    /// The part of the hourly fee of Reserved Instances.
    Recurring,
    /// The part of the upfront fee.
    Upfront,
    /// Dollars of the plan in this time.
    Committed,
    /// Dollars of the plan that were used.
    Used,
}

pub(crate) const NUMBERS: usize = 11;

/// Where a line stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) file: u32,
    pub(crate) row: u64,
}

/// A line whose numbers are still text. Words that repeat are numbers of [`crate::facts::Words`].
#[derive(Clone, Debug)]
pub(crate) struct RawLine<'a> {
    pub(crate) place: Place,
    pub(crate) kind: LineKind,
    pub(crate) meter: Meter,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) account: u32,
    pub(crate) zone: u32,
    pub(crate) what: u32,
    pub(crate) payer: u32,
    pub(crate) fingerprint: u64,
    pub(crate) resource: &'a str,
    pub(crate) numbers: [&'a str; NUMBERS],
}

impl RawLine<'_> {
    pub(crate) fn number(&self, which: Number) -> &str {
        self.numbers.get(which as usize).copied().unwrap_or_default()
    }

    /// Appends the line as one record.
    pub(crate) fn encode(&self, out: &mut String) {
        use std::fmt::Write;
        let kind = LineKind::ALL.iter().find(|(kind, _)| *kind == self.kind);
        let kind = kind.map_or("O", |(_, letter)| letter);
        let _ = write!(
            out,
            "{kind}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            self.meter.letter(),
            self.place.file,
            self.place.row,
            self.start,
            self.end,
            self.account,
            self.zone,
            self.what,
            self.payer,
            self.fingerprint,
        );
        for number in &self.numbers {
            out.push('\t');
            out.push_str(number);
        }
        out.push('\t');
        out.extend(self.resource.chars().filter(|letter| !letter.is_control()));
        out.push('\n');
    }
}

/// A line, read again when its hour is replayed.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) place: Place,
    pub(crate) kind: LineKind,
    pub(crate) meter: Meter,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) account: u32,
    pub(crate) zone: u32,
    pub(crate) what: u32,
    pub(crate) payer: u32,
    pub(crate) fingerprint: u64,
    pub(crate) resource: String,
    numbers: [Option<Exact>; NUMBERS],
}

impl Line {
    /// Reads a record that [`RawLine::encode`] wrote.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let mut fields = text.split('\t');
        let letter = fields.next()?;
        let (kind, _) = LineKind::ALL.iter().find(|(_, other)| *other == letter)?;
        let meter = Meter::from_letter(fields.next()?);
        let place = Place {
            file: fields.next()?.parse().ok()?,
            row: fields.next()?.parse().ok()?,
        };
        let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let mut word = || fields.next()?.parse().ok();
        let (account, zone, what, payer) = (word()?, word()?, word()?, word()?);
        let fingerprint = fields.next()?.parse().ok()?;
        let mut numbers = [const { None }; NUMBERS];
        for number in &mut numbers {
            *number = Exact::parse(fields.next()?);
        }
        Some(Self {
            place,
            kind: *kind,
            meter,
            start,
            end,
            account,
            zone,
            what,
            payer,
            fingerprint,
            resource: fields.next()?.to_owned(),
            numbers,
        })
    }

    /// A number, if the report has it.
    pub(crate) fn number(&self, which: Number) -> Option<&Exact> {
        self.numbers.get(which as usize)?.as_ref()
    }

    /// A number, or nothing.
    pub(crate) fn or_zero(&self, which: Number) -> Exact {
        self.number(which).cloned().unwrap_or_default()
    }

    /// Whether it is usage that is replayed.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self.kind,
            LineKind::Usage | LineKind::DiscountedUsage | LineKind::CoveredUsage
        ) && !matches!(self.meter, Meter::None | Meter::Reservation)
    }

    /// Dollars with the share of commitments (rule 14).
    pub(crate) fn effective(&self) -> Exact {
        match self.kind {
            LineKind::DiscountedUsage => match self.number(Number::Effective) {
                Some(cost) => cost.clone(),
                None => self
                    .or_zero(Number::Recurring)
                    .plus(&self.or_zero(Number::Upfront)),
            },
            LineKind::CoveredUsage => match self.number(Number::Effective) {
                Some(cost) => cost.clone(),
                None => self.or_zero(Number::Rate).times(&self.or_zero(Number::Amount)),
            },
            LineKind::PlanFee => self.or_zero(Number::Committed).minus(&self.or_zero(Number::Used)),
            LineKind::Negation | LineKind::Upfront => Exact::ZERO,
            LineKind::ReservedFee => self.or_zero(Number::Effective),
            LineKind::Unused => self.or_zero(Number::Effective),
            LineKind::Usage | LineKind::Other => self.or_zero(Number::Cost),
        }
    }
}

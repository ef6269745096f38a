//! Lines of a FOCUS 1.x report with the columns that AWS adds (`x_UsageType`, `x_Operation`, `x_ServiceCode`).
//!
//! FOCUS has no column for the normalization factor, for the terms of commitments, and for what a plan comes to by the hour: terms are taken as
//! unbounded, and what is used and unused of a commitment in an hour is added up.

use std::io::Read;

use crate::error::ReadError;
use crate::intake::{Intake, Terms};
use crate::line::{LineKind, NUMBERS, Number, Place, RawLine};
use crate::meter::{Meter, is_compute_service, region_of_zone, usage_type};
use crate::rows::{Columns, Rows, Thing, ThingNumbers};
use crate::store::HourStore;

#[derive(Clone, Copy)]
#[repr(usize)]
enum Column {
    Category,
    Start,
    Account,
    BilledCost,
    EffectiveCost,
    UsageType,
    End,
    Operation,
    Service,
    Zone,
    Region,
    Resource,
    Consumed,
    Pricing,
    ListCost,
    ListPrice,
    Discount,
    DiscountType,
    DiscountStatus,
    Currency,
}

const NAMES: [&str; 20] = [
    "ChargeCategory",
    "ChargePeriodStart",
    "SubAccountId",
    "BilledCost",
    "EffectiveCost",
    "x_UsageType",
    "ChargePeriodEnd",
    "x_Operation",
    "x_ServiceCode",
    "AvailabilityZone",
    "RegionId",
    "ResourceId",
    "ConsumedQuantity",
    "PricingQuantity",
    "ListCost",
    "ListUnitPrice",
    "CommitmentDiscountId",
    "CommitmentDiscountType",
    "CommitmentDiscountStatus",
    "BillingCurrency",
];
const REQUIRED: usize = 6;

/// Whether a header is that of a FOCUS report.
pub(crate) fn is_focus(header: &[String]) -> bool {
    ["ChargePeriodStart", "BilledCost"]
        .iter()
        .all(|name| header.iter().any(|other| other == name))
}

/// Reads a whole report.
pub(crate) fn read(
    mut rows: Rows<impl Read>,
    intake: &mut Intake,
    store: &mut impl HourStore,
) -> Result<(), ReadError> {
    let columns = Columns::new(&rows, rows.header(), &NAMES, REQUIRED)?;
    let mut known = ThingNumbers::default();
    while rows.next()? {
        let get = |column: Column| columns.get(&rows, column as usize);
        let start = columns.moment(&rows, Column::Start as usize)?;
        let end = match get(Column::End) {
            "" => start + veneer_billing::HOUR,
            _ => columns.moment(&rows, Column::End as usize)?,
        };
        for column in [
            Column::BilledCost,
            Column::EffectiveCost,
            Column::Consumed,
            Column::Pricing,
            Column::ListCost,
            Column::ListPrice,
        ] {
            columns.check_number(&rows, column as usize)?;
        }
        columns.check_currency(&rows, Column::Currency as usize, &mut intake.facts.currency)?;
        let discount = get(Column::Discount);
        let is_plan = get(Column::DiscountType).starts_with("Savings");
        let usage = usage_type(get(Column::UsageType));
        let is_heavy = get(Column::UsageType).contains("HeavyUsage");
        // Reservations of databases and caches have other rules.
        let is_other_service = !is_plan && !matches!(get(Column::Service), "" | "AmazonEC2");
        let kind = match (get(Column::Category), get(Column::DiscountStatus)) {
            ("Usage", _) if discount.is_empty() => LineKind::Usage,
            ("Usage" | "Purchase", _) if is_other_service => LineKind::Other,
            ("Usage", "Unused") => LineKind::Unused,
            ("Usage", _) if is_plan => LineKind::CoveredUsage,
            ("Usage", _) => LineKind::DiscountedUsage,
            ("Purchase", _) if discount.is_empty() => LineKind::Other,
            ("Purchase", _) if is_heavy => LineKind::ReservedFee,
            ("Purchase", _) => LineKind::Upfront,
            _ => LineKind::Other,
        };
        let zone = get(Column::Zone);
        let region = match get(Column::Region) {
            "" => region_of_zone(zone),
            region => region,
        };
        let is_compute = is_compute_service(get(Column::Service)) || kind == LineKind::CoveredUsage;
        let meter = match usage.meter {
            Meter::None if is_compute => Meter::Other,
            meter => meter,
        };
        let is_machine = !matches!(meter, Meter::None | Meter::Other) || kind == LineKind::ReservedFee;
        let what = known.number(
            &mut intake.facts.things,
            &Thing {
                region,
                usage_type: get(Column::UsageType),
                instance_type: if is_machine { usage.detail } else { "" },
                operation: get(Column::Operation),
                tenancy: usage.tenancy,
                tier: match meter {
                    Meter::Other => get(Column::ListPrice),
                    _ => "",
                },
            },
        );
        let mut numbers = [""; NUMBERS];
        let mut put = |which: Number, text| {
            if let Some(place) = numbers.get_mut(which as usize) {
                *place = text;
            }
        };
        let amount = match get(Column::Consumed) {
            "" => get(Column::Pricing),
            amount => amount,
        };
        put(Number::Amount, amount);
        put(Number::ListCost, get(Column::ListCost));
        put(Number::ListRate, get(Column::ListPrice));
        put(Number::Cost, get(Column::BilledCost));
        put(Number::Effective, get(Column::EffectiveCost));
        let terms = Terms {
            zone: if kind == LineKind::ReservedFee { zone } else { "" },
            is_plan,
            is_ec2_plan: usage.is_ec2_plan,
            family: usage.detail.split('.').next().unwrap_or_default(),
            region,
            is_focus: true,
            ..Terms::default()
        };
        let words = &mut intake.facts.words;
        let line = RawLine {
            place: Place {
                file: rows.file(),
                row: rows.line(),
            },
            kind,
            meter,
            start,
            end,
            account: words.number(get(Column::Account)),
            zone: words.number(zone),
            what,
            payer: words.number(discount),
            fingerprint: rows.fingerprint(),
            resource: get(Column::Resource),
            numbers,
        };
        intake.take(&line, &terms, store)?;
    }
    Ok(())
}

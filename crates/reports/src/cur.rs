//! Lines of a Cost and Usage Report: 2.0, and the older one, whose columns have the same names in another spelling.

use std::io::Read;

use crate::error::ReadError;
use crate::intake::{Intake, Terms};
use crate::line::{LineKind, NUMBERS, Number, Place, RawLine};
use crate::meter::{Meter, is_compute_service, region_of_zone, usage_type};
use crate::rows::{Columns, Rows, Thing, ThingNumbers};
use crate::store::HourStore;

/// Columns by place in [`NAMES`].
#[derive(Clone, Copy)]
#[repr(usize)]
enum Column {
    Kind,
    Start,
    Account,
    UsageType,
    Amount,
    Cost,
    End,
    Product,
    Operation,
    Zone,
    Resource,
    Factor,
    UnblendedRate,
    Currency,
    Region,
    InstanceType,
    ListRate,
    ListCost,
    ReservedArn,
    ReservedEffective,
    ReservedUpfront,
    ReservedRecurring,
    Unused,
    UnusedRecurring,
    UnusedUpfront,
    UpfrontPeriod,
    UpfrontValue,
    Count,
    ReservedStart,
    ReservedEnd,
    ReservedZone,
    PlanArn,
    PlanRate,
    PlanEffective,
    PlanCommitted,
    PlanUsed,
    PlanStart,
    PlanEnd,
    PlanType,
    PlanFamily,
    PlanRegion,
    PlanTerm,
    PlanOption,
}

/// The names of the columns; the first ones must be there.
pub(crate) const NAMES: [&str; 43] = [
    "line_item_line_item_type",
    "line_item_usage_start_date",
    "line_item_usage_account_id",
    "line_item_usage_type",
    "line_item_usage_amount",
    "line_item_unblended_cost",
    "line_item_usage_end_date",
    "line_item_product_code",
    "line_item_operation",
    "line_item_availability_zone",
    "line_item_resource_id",
    "line_item_normalization_factor",
    "line_item_unblended_rate",
    "line_item_currency_code",
    "product_region_code",
    "product_instance_type",
    "pricing_public_on_demand_rate",
    "pricing_public_on_demand_cost",
    "reservation_reservation_a_r_n",
    "reservation_effective_cost",
    "reservation_amortized_upfront_cost_for_usage",
    "reservation_recurring_fee_for_usage",
    "reservation_unused_quantity",
    "reservation_unused_recurring_fee",
    "reservation_unused_amortized_upfront_fee_for_billing_period",
    "reservation_amortized_upfront_fee_for_billing_period",
    "reservation_upfront_value",
    "reservation_number_of_reservations",
    "reservation_start_time",
    "reservation_end_time",
    "reservation_availability_zone",
    "savings_plan_savings_plan_a_r_n",
    "savings_plan_savings_plan_rate",
    "savings_plan_savings_plan_effective_cost",
    "savings_plan_total_commitment_to_date",
    "savings_plan_used_commitment",
    "savings_plan_start_time",
    "savings_plan_end_time",
    "savings_plan_offering_type",
    "savings_plan_instance_type_family",
    "savings_plan_region",
    "savings_plan_purchase_term",
    "savings_plan_payment_option",
];
const REQUIRED: usize = 6;

const NUMERIC: [Column; 14] = [
    Column::Factor,
    Column::ListRate,
    Column::ListCost,
    Column::ReservedEffective,
    Column::ReservedUpfront,
    Column::ReservedRecurring,
    Column::Unused,
    Column::UnusedRecurring,
    Column::UnusedUpfront,
    Column::UpfrontPeriod,
    Column::PlanRate,
    Column::PlanEffective,
    Column::PlanCommitted,
    Column::PlanUsed,
];

/// The name of a column of the older report (`lineItem/UsageAmount`) in the spelling of 2.0.
pub(crate) fn snake(name: &str) -> String {
    if !name.contains('/') {
        return name.to_owned();
    }
    let mut snake = String::with_capacity(name.len() + 8);
    for letter in name.chars() {
        match letter {
            '/' => snake.push('_'),
            letter if letter.is_ascii_uppercase() => {
                if !snake.ends_with('_') {
                    snake.push('_');
                }
                snake.push(letter.to_ascii_lowercase());
            }
            letter => snake.push(letter),
        }
    }
    snake
}

/// Reads a whole report.
pub(crate) fn read(
    mut rows: Rows<impl Read>,
    intake: &mut Intake,
    store: &mut impl HourStore,
) -> Result<(), ReadError> {
    let header: Vec<String> = rows.header().iter().map(|name| snake(name)).collect();
    let columns = Columns::new(&rows, &header, &NAMES, REQUIRED)?;
    let mut known = ThingNumbers::default();
    while rows.next()? {
        let get = |column: Column| columns.get(&rows, column as usize);
        let (start, end) = (
            columns.moment(&rows, Column::Start as usize)?,
            match get(Column::End) {
                "" => None,
                _ => Some(columns.moment(&rows, Column::End as usize)?),
            },
        );
        for column in [Column::Amount, Column::Cost].into_iter().chain(NUMERIC) {
            columns.check_number(&rows, column as usize)?;
        }
        columns.check_currency(&rows, Column::Currency as usize, &mut intake.facts.currency)?;
        let (reserved, plan) = (get(Column::ReservedArn), get(Column::PlanArn));
        let kind = match get(Column::Kind) {
            "Fee" if reserved.is_empty() => LineKind::Other,
            // Reservations of databases and caches have other rules.
            "RIFee" | "DiscountedUsage" if !matches!(get(Column::Product), "" | "AmazonEC2") => {
                LineKind::Other
            }
            name => LineKind::from_name(name),
        };
        let usage = usage_type(get(Column::UsageType));
        let instance_type = match get(Column::InstanceType) {
            "" => usage.detail,
            instance_type => instance_type,
        };
        let zone = get(Column::Zone);
        let region = match get(Column::Region) {
            "" => region_of_zone(zone),
            region => region,
        };
        let is_compute = is_compute_service(get(Column::Product)) || kind == LineKind::CoveredUsage;
        let meter = match usage.meter {
            Meter::None if is_compute && kind != LineKind::PlanFee => Meter::Other,
            meter => meter,
        };
        let is_machine = !matches!(meter, Meter::None | Meter::Other) || kind == LineKind::ReservedFee;
        let what = known.number(
            &mut intake.facts.things,
            &Thing {
                region,
                usage_type: get(Column::UsageType),
                instance_type: if is_machine { instance_type } else { "" },
                operation: get(Column::Operation),
                tenancy: usage.tenancy,
                tier: match meter {
                    Meter::Other => get(Column::ListRate),
                    _ => "",
                },
            },
        );
        let mut numbers = [""; NUMBERS];
        let mut put = |which: Number, column: Column| {
            if let Some(place) = numbers.get_mut(which as usize) {
                *place = get(column);
            }
        };
        put(Number::Amount, Column::Amount);
        put(Number::Factor, Column::Factor);
        put(Number::Cost, Column::Cost);
        put(Number::ListCost, Column::ListCost);
        put(Number::ListRate, Column::ListRate);
        let payer = match kind {
            LineKind::DiscountedUsage | LineKind::ReservedFee => {
                put(Number::Effective, Column::ReservedEffective);
                put(Number::Recurring, Column::ReservedRecurring);
                put(Number::Upfront, Column::ReservedUpfront);
                reserved
            }
            LineKind::CoveredUsage | LineKind::PlanFee | LineKind::Negation => {
                put(Number::Effective, Column::PlanEffective);
                put(Number::Rate, Column::PlanRate);
                put(Number::Committed, Column::PlanCommitted);
                put(Number::Used, Column::PlanUsed);
                plan
            }
            _ => "",
        };
        let terms = match kind {
            LineKind::ReservedFee => Terms {
                start: get(Column::ReservedStart),
                end: get(Column::ReservedEnd),
                count: get(Column::Count),
                zone: match get(Column::ReservedZone) {
                    "" => zone,
                    zone => zone,
                },
                hourly: get(Column::UnblendedRate),
                upfront_period: get(Column::UpfrontPeriod),
                upfront_value: get(Column::UpfrontValue),
                unused: get(Column::Unused),
                unused_recurring: get(Column::UnusedRecurring),
                unused_upfront: get(Column::UnusedUpfront),
                ..Terms::default()
            },
            LineKind::CoveredUsage | LineKind::PlanFee => Terms {
                start: get(Column::PlanStart),
                end: get(Column::PlanEnd),
                is_ec2_plan: get(Column::PlanType).starts_with("EC2Instance") || usage.is_ec2_plan,
                family: match get(Column::PlanFamily) {
                    "" => usage.detail.split('.').next().unwrap_or_default(),
                    family => family,
                },
                region: match get(Column::PlanRegion) {
                    "" => region,
                    region => region,
                },
                term: get(Column::PlanTerm),
                option: get(Column::PlanOption),
                ..Terms::default()
            },
            _ => Terms::default(),
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
            end: end.unwrap_or(start + veneer_billing::HOUR),
            account: words.number(get(Column::Account)),
            zone: words.number(zone),
            what,
            payer: words.number(payer),
            fingerprint: rows.fingerprint(),
            resource: get(Column::Resource),
            numbers,
        };
        intake.take(&line, &terms, store)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_the_older_report_have_the_same_names() {
        for (old, new) in [
            ("lineItem/UsageAmount", "line_item_usage_amount"),
            ("reservation/ReservationARN", "reservation_reservation_a_r_n"),
            ("savingsPlan/SavingsPlanARN", "savings_plan_savings_plan_a_r_n"),
            ("pricing/publicOnDemandCost", "pricing_public_on_demand_cost"),
            ("product/instanceType", "product_instance_type"),
            ("line_item_usage_amount", "line_item_usage_amount"),
        ] {
            assert_eq!(snake(old), new);
        }
    }
}

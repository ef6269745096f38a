//! When a schedule comes round, in UTC.
//!
//! Five fields (minute, hour, day of the month, month, day of the week), each a list of `*`, values and ranges with an
//! optional step; months and days of the week may be names. `@daily` and its kind are short for such fields. A day
//! matches when both day fields do, or, where both are restricted, when either does. What is accepted is what
//! Karpenter's cron package accepts: no time zone, no seventh weekday, `*/2` is a restriction.

use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp, ToSpan};

/// Days to look ahead: a 29 February is at most eight years away.
const HORIZON_DAYS: u32 = 8 * 366;

/// A schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    any_day: bool,
    any_weekday: bool,
}

impl Schedule {
    /// Reads a schedule; none if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return None;
        };
        let days = mask(days, 1, 31, &[])?;
        let weekdays = mask(weekdays, 0, 6, &WEEKDAYS)?;
        Some(Self {
            minutes: mask(minutes, 0, 59, &[])?.values,
            hours: mask(hours, 0, 23, &[])?.values,
            days: days.values,
            months: mask(months, 1, 12, &MONTHS)?.values,
            weekdays: weekdays.values,
            any_day: days.is_any,
            any_weekday: weekdays.is_any,
        })
    }

    fn matches_day(&self, date: Date) -> bool {
        let has = |mask: u64, value: i8| value >= 0 && mask >> value & 1 == 1;
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let is_day = if self.any_day || self.any_weekday {
            day && weekday
        } else {
            day || weekday
        };
        has(self.months, date.month()) && is_day
    }

    /// The first moment after `after`.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        // The next whole minute.
        let next = after.as_second().div_euclid(60).checked_add(1)?.checked_mul(60)?;
        let start = Timestamp::from_second(next)
            .ok()?
            .to_zoned(TimeZone::UTC)
            .datetime();
        let mut date = start.date();
        for day in 0..HORIZON_DAYS {
            if self.matches_day(date) {
                let from = if day == 0 {
                    u32::from(start.hour().unsigned_abs()) * 60 + u32::from(start.minute().unsigned_abs())
                } else {
                    0
                };
                let mut minutes = from..24 * 60;
                let found =
                    minutes.find(|at| self.hours >> (at / 60) & 1 == 1 && self.minutes >> (at % 60) & 1 == 1);
                if let Some(found) = found {
                    let midnight = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
                    return midnight
                        .checked_add(SignedDuration::from_mins(i64::from(found)))
                        .ok();
                }
            }
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A field.
struct Field {
    /// Its values as bits.
    values: u64,
    /// Whether it is unrestricted: a `*` without a step.
    is_any: bool,
}

/// Reads a field. Names count from `least`.
fn mask(field: &str, least: u32, most: u32, names: &[&str]) -> Option<Field> {
    let value = |text: &str| {
        let text = text.to_ascii_lowercase();
        let named = names.iter().position(|name| **name == *text);
        let named = named.and_then(|at| u32::try_from(at).ok()).map(|at| at + least);
        let value = named.or_else(|| text.parse().ok())?;
        (least..=most).contains(&value).then_some(value)
    };
    let mut read = Field {
        values: 0,
        is_any: false,
    };
    for item in field.split(',').filter(|item| !item.is_empty()) {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, step.parse().ok().filter(|step| *step > 0)?),
            None => (item, 1),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (first, Some(last)),
            None => (range, None),
        };
        let is_star = matches!(first, "*" | "?");
        let (from, to) = match last {
            _ if is_star => (least, most),
            Some(last) => (value(first)?, value(last)?),
            // A step without an end goes on to the end.
            None if item.contains('/') => (value(first)?, most),
            None => (value(first)?, value(first)?),
        };
        if from > to {
            return None;
        }
        read.is_any |= is_star && step == 1;
        for at in (from..=to).step_by(step) {
            read.values |= 1 << at;
        }
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_moment_is_found() {
        let cases = [
            ("0 9 * * mon-fri", "2026-01-02T08:59:59Z", "2026-01-02T09:00:00Z"),
            // A Friday evening: Monday is next.
            ("0 9 * * mon-fri", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
            ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("*/15 * * * *", "2026-01-01T10:16:03Z", "2026-01-01T10:30:00Z"),
            ("30 22 29 feb *", "2026-01-01T00:00:00Z", "2028-02-29T22:30:00Z"),
            // Both restricted: either.
            ("0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 * * 0", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            // A step is a restriction, so either day will do: Friday the 2nd, not only odd Fridays.
            ("0 0 */2 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("5,10-12 3 * * *", "2026-01-01T03:05:00Z", "2026-01-01T03:10:00Z"),
        ];
        for (schedule, after, expected) in cases {
            let found = Schedule::parse(schedule).and_then(|schedule| schedule.next(after.parse().unwrap()));
            assert_eq!(found, Some(expected.parse().unwrap()), "{schedule} after {after}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "* * 0 * *",
            "fri-mon * * * *",
            "* * * * fri-mon",
            "*/0 * * * *",
            "0 0 * * 7",
            "TZ=Europe/Berlin 0 9 * * *",
            "CRON_TZ=UTC 0 9 * * *",
            "@every 1h",
            "@daily at nine",
        ] {
            assert_eq!(Schedule::parse(text), None, "{text:?}");
        }
        let never = Schedule::parse("0 0 31 feb *").unwrap();
        assert_eq!(never.next("2026-01-01T00:00:00Z".parse().unwrap()), None);
    }
}

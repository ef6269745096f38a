//! What an Overprovisioner says about itself.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use veneer_api::overprovisioner::{
    CONDITION_SIZING_VALID, CONDITION_TARGETS_FOUND, OverrideWindow, PoolSpares,
};
use veneer_api::{
    CONDITION_READY, Condition, ConditionStatus, Extra, Overprovisioner, OverprovisionerStatus,
    find_condition,
};
use veneer_engine::plan::{Action, Announcement, Conditions, Plan, Subject, Target};

use super::schedule::Window;
use super::sizing::Current;

const TYPES: [&str; 3] = [CONDITION_SIZING_VALID, CONDITION_TARGETS_FOUND, CONDITION_READY];

/// What stands in the way of an Overprovisioner.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    sizing: Vec<(&'static str, String)>,
    targets: Vec<String>,
    waiting: Vec<(&'static str, String)>,
}

impl Faults {
    /// Whether nothing does.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sizing.is_empty() && self.targets.is_empty() && self.waiting.is_empty()
    }

    /// The object itself is wrong.
    pub fn sizing(&mut self, message: String) {
        self.sizing.push(("Invalid", message));
    }

    /// A pool is missing.
    pub fn targets(&mut self, message: String) {
        self.targets.push(message);
    }

    /// No type will do.
    pub fn shape(&mut self, message: String) {
        self.sizing.push(("NoInstanceType", message));
    }

    /// What the object says about the shape of spares cannot be met.
    pub fn node_shape(&mut self, message: String) {
        self.sizing.push(("NodeShapeInvalid", message));
    }

    /// Spares are there that none of the pool's pods fits on.
    pub fn no_pod_fits(&mut self, pool: &str, useless: usize, all: usize, types: &BTreeSet<&str>) {
        let types: Vec<&str> = types.iter().copied().collect();
        self.waiting.push((
            "NoPodFits",
            format!(
                "NodePool {pool}: none of its pods fits on {useless} of {all} spares ({}); they are replaced one at a time",
                types.join(", ")
            ),
        ));
    }

    /// The limits of a pool leave room for fewer.
    pub fn limits(&mut self, pool: &str, room: usize, wanted: usize) {
        self.sizing.push((
            "LimitReached",
            format!(
                "NodePool {pool}: its spec.limits leave room for {room} of {wanted} spares; raise them, or ask for fewer"
            ),
        ));
    }

    /// The spending limit leaves room for fewer.
    pub fn spend(&mut self, pool: &str, wanted: usize) {
        self.sizing.push((
            "SpendLimitReached",
            format!(
                "NodePool {pool}: {wanted} spares would cost more than spec.maxHourlySpend; raise it, or ask for fewer"
            ),
        ));
    }

    /// A pool can launch nothing at the moment.
    pub fn pool_not_ready(&mut self, pool: &str, why: &str) {
        self.waiting
            .push(("NodePoolNotReady", format!("NodePool {pool} is not ready: {why}")));
    }
}

/// The spares of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCount {
    /// Its name.
    pub pool: String,
    /// How many empty ones are wanted; unknown while the object is wrong.
    pub desired: Option<usize>,
    /// How many run and have joined.
    pub ready: usize,
    /// How many are on their way.
    pub warming: usize,
    /// How many are stopped or hibernated.
    pub stopped: usize,
    /// How many former ones are in use.
    pub in_use: usize,
}

/// Everything that goes into a status.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pools, in the order of the object.
    pub counts: Vec<PoolCount>,
    /// What stands in the way.
    pub faults: Faults,
    /// The sizing that counts.
    pub current: Option<Current>,
}

/// An event about an Overprovisioner.
#[must_use]
pub fn announce(one: &Overprovisioner, is_warning: bool, reason: &'static str, message: String) -> Action {
    Action::Announce(Announcement {
        subject: Subject {
            api_version: "karpenter.sh/v1beta1",
            kind: "Overprovisioner",
            target: Target::from(&one.metadata),
        },
        is_warning,
        reason,
        message,
    })
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Writes the status if it has changed, and tells people about what is wrong and about overrides.
#[must_use]
pub fn report(
    one: &Overprovisioner,
    report: Report,
    overlap: impl FnOnce(Timestamp) -> Option<(usize, usize, Timestamp)>,
    now: Timestamp,
) -> Plan {
    let known = one.status.clone().unwrap_or_default();
    let conditions = conditions(one, &known, &report, overlap, now);
    let mut plan = Plan::default();
    for type_ in TYPES {
        let is = find_condition(&conditions, type_);
        let was = find_condition(&known.conditions, type_).map(|was| &was.message);
        let fault = is.filter(|is| is.status == ConditionStatus::False && is.reason != "Warming");
        if let Some(fault) = fault.filter(|fault| was != Some(&fault.message) && type_ != CONDITION_READY) {
            plan.push(announce(one, true, reason_of(fault), fault.message.clone()));
        }
    }
    let window = |(at, window): (usize, Window)| OverrideWindow {
        index: number(at),
        schedule: one
            .spec
            .scheduled_overrides
            .get(at)
            .map(|one| one.schedule.clone())
            .unwrap_or_default(),
        start: Time(window.start),
        end: Time(window.end),
        extra: Extra::new(),
    };
    let active = report.current.and_then(|current| current.active).map(window);
    let next = report.current.and_then(|current| current.next).map(window);
    let same = |a: &Option<OverrideWindow>, b: &Option<OverrideWindow>| {
        a.as_ref().map(|one| one.index) == b.as_ref().map(|one| one.index)
    };
    if !same(&active, &known.active_override) && report.current.is_some() {
        plan.push(match &active {
            Some(window) => announce(
                one,
                false,
                "OverrideStarted",
                format!(
                    "spec.scheduledOverrides[{}] ({}) counts until {}",
                    window.index, window.schedule, window.end.0
                ),
            ),
            None => announce(one, false, "OverrideEnded", "spec.sizing counts again".to_owned()),
        });
    }
    let total = |of: fn(&PoolCount) -> usize| number(report.counts.iter().map(of).sum());
    let status = OverprovisionerStatus {
        conditions,
        desired: total(|count| count.desired.unwrap_or_default()),
        ready: total(|count| count.ready + count.stopped),
        in_use: total(|count| count.in_use),
        node_pools: report.counts.iter().map(pool_spares).collect(),
        active_override: active,
        next_override: next,
        extra: known.extra.clone(),
    };
    if status != known {
        plan.push(Action::OverprovisionerStatus {
            target: Target::from(&one.metadata),
            status: Box::new(status),
        });
    }
    plan
}

fn pool_spares(count: &PoolCount) -> PoolSpares {
    PoolSpares {
        name: count.pool.clone(),
        desired: number(count.desired.unwrap_or_default()),
        ready: number(count.ready),
        warming: number(count.warming),
        stopped: number(count.stopped),
        in_use: number(count.in_use),
        extra: Extra::new(),
    }
}

/// Events have fixed reasons, conditions have texts.
fn reason_of(condition: &Condition) -> &'static str {
    match condition.type_.as_str() {
        CONDITION_TARGETS_FOUND => "NodePoolNotFound",
        _ => "SizingInvalid",
    }
}

fn conditions(
    one: &Overprovisioner,
    known: &OverprovisionerStatus,
    report: &Report,
    overlap: impl FnOnce(Timestamp) -> Option<(usize, usize, Timestamp)>,
    now: Timestamp,
) -> Vec<Condition> {
    let generation = one.metadata.generation;
    let mut conditions = Conditions::new(&known.conditions, generation, now);
    let joined = |messages: &mut dyn Iterator<Item = &String>| {
        let messages: Vec<&str> = messages.map(String::as_str).collect();
        messages.join("; ")
    };
    let faults = &report.faults;
    match faults.sizing.first() {
        Some((reason, _)) => {
            let message = joined(&mut faults.sizing.iter().map(|(_, message)| message));
            conditions.set(CONDITION_SIZING_VALID, ConditionStatus::False, reason, &message);
        }
        None => {
            // Looking for overlaps takes long, and the answer changes with the object only.
            let seen = find_condition(&known.conditions, CONDITION_SIZING_VALID)
                .filter(|one| one.observed_generation == generation && generation.is_some())
                .filter(|one| one.status == ConditionStatus::True);
            let message = match seen {
                Some(seen) => seen.message.clone(),
                None => overlap(now).map_or_else(String::new, |(first, second, at)| {
                    format!(
                        "spec.scheduledOverrides[{second}] and [{first}] are both in force at {at}; [{first}] counts, since it comes first; change their times or their order if that is not wanted"
                    )
                }),
            };
            let reason = if message.is_empty() {
                CONDITION_SIZING_VALID
            } else {
                "OverridesOverlap"
            };
            conditions.set(CONDITION_SIZING_VALID, ConditionStatus::True, reason, &message);
        }
    }
    if faults.targets.is_empty() {
        conditions.set_true(CONDITION_TARGETS_FOUND);
    } else {
        let message = joined(&mut faults.targets.iter());
        conditions.set(
            CONDITION_TARGETS_FOUND,
            ConditionStatus::False,
            "NodePoolNotFound",
            &message,
        );
    }
    let wanted: usize = report.counts.iter().filter_map(|count| count.desired).sum();
    let there: usize = report
        .counts
        .iter()
        .map(|count| count.ready + count.stopped)
        .sum();
    let is_settled = report
        .counts
        .iter()
        .all(|count| count.desired == Some(count.ready + count.stopped) && count.warming == 0);
    let all = faults.sizing.iter().chain(&faults.waiting);
    let messages: Vec<&str> = all
        .map(|(_, message)| message.as_str())
        .chain(faults.targets.iter().map(String::as_str))
        .collect();
    if !messages.is_empty() {
        let reason = match (faults.sizing.first(), faults.waiting.first()) {
            (Some((reason, _)), _) | (None, Some((reason, _))) => reason,
            (None, None) => "NodePoolNotFound",
        };
        conditions.set(
            CONDITION_READY,
            ConditionStatus::False,
            reason,
            &messages.join("; "),
        );
    } else if is_settled {
        conditions.set_true(CONDITION_READY);
    } else {
        let message = format!("{there} of {wanted} spares are ready");
        conditions.set(CONDITION_READY, ConditionStatus::False, "Warming", &message);
    }
    conditions.into_list()
}

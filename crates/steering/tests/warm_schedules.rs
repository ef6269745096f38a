//! When overrides of an Overprovisioner are in force, and how many spares that comes to.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use veneer_api::Overprovisioner;
use veneer_api::overprovisioner::SpareStrategy;
use veneer_steering::warm::schedule::{Schedule, Window};
use veneer_steering::warm::sizing::{Plan, Size, wanted};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn schedule(text: &str, zone: &str) -> Schedule {
    Schedule::read(text, zone).unwrap()
}

fn window(text: &str, zone: &str, hours: i64, now: &str) -> Option<(String, String)> {
    let found = schedule(text, zone).window(SignedDuration::from_hours(hours), at(now));
    found.map(|Window { start, end }| (start.to_string(), end.to_string()))
}

fn next(text: &str, zone: &str, now: &str) -> String {
    let found = schedule(text, zone).next(at(now));
    found.map_or_else(|| "never".to_owned(), |start| start.to_string())
}

#[test]
fn the_next_start_is_found_as_cron_finds_it() {
    let cases = [
        // 2026-01-05 is a Monday.
        ("0 9 * * mon-fri", "2026-01-05T08:59:59Z", "2026-01-05T09:00:00Z"),
        ("0 9 * * mon-fri", "2026-01-05T09:00:00Z", "2026-01-06T09:00:00Z"),
        ("0 9 * * MON-FRI", "2026-01-09T09:00:00Z", "2026-01-12T09:00:00Z"),
        ("0 9 * * 1-5", "2026-01-10T12:00:00Z", "2026-01-12T09:00:00Z"),
        ("0 0 * * 7", "2026-01-05T00:00:00Z", "2026-01-11T00:00:00Z"),
        ("0 0 * * 0", "2026-01-05T00:00:00Z", "2026-01-11T00:00:00Z"),
        ("0 0 * * sun", "2026-01-05T00:00:00Z", "2026-01-11T00:00:00Z"),
        ("*/15 * * * *", "2026-01-05T00:00:01Z", "2026-01-05T00:15:00Z"),
        ("5/20 3 * * *", "2026-01-05T03:05:00Z", "2026-01-05T03:25:00Z"),
        ("5/20 3 * * *", "2026-01-05T03:45:00Z", "2026-01-06T03:05:00Z"),
        ("10-12 3 * * *", "2026-01-05T03:12:00Z", "2026-01-06T03:10:00Z"),
        ("30 8,20 * * *", "2026-01-05T08:30:00Z", "2026-01-05T20:30:00Z"),
        ("0 8-10/2 * * *", "2026-01-05T08:00:00Z", "2026-01-05T10:00:00Z"),
        ("0 0 1 feb *", "2026-01-05T00:00:00Z", "2026-02-01T00:00:00Z"),
        ("0 0 1 2 *", "2026-02-01T00:00:00Z", "2027-02-01T00:00:00Z"),
        ("0 0 1 dec *", "2026-01-05T00:00:00Z", "2026-12-01T00:00:00Z"),
        ("0 0 29 2 *", "2026-01-05T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 31 * *", "2026-02-05T00:00:00Z", "2026-03-31T00:00:00Z"),
        // Either day is enough when both are restricted, and both are needed when one is `*`.
        ("0 0 13 * fri", "2026-01-05T00:00:00Z", "2026-01-09T00:00:00Z"),
        ("0 0 7 * fri", "2026-01-05T00:00:00Z", "2026-01-07T00:00:00Z"),
        ("0 0 */2 * fri", "2026-01-05T00:00:00Z", "2026-01-09T00:00:00Z"),
        ("0 0 31 2 mon", "2026-01-05T00:00:00Z", "2026-02-02T00:00:00Z"),
        ("59 23 31 12 *", "2026-01-05T00:00:00Z", "2026-12-31T23:59:00Z"),
    ];
    for (text, now, expected) in cases {
        assert_eq!(next(text, "UTC", now), expected, "{text} after {now}");
    }
}

#[test]
fn a_window_holds_from_its_start_until_its_duration_has_passed() {
    let some = |start: &str, end: &str| Some((start.to_owned(), end.to_owned()));
    let office = some("2026-01-05T09:00:00Z", "2026-01-05T17:00:00Z");
    let cases = [
        ("0 9 * * mon-fri", 8, "2026-01-05T08:59:59Z", None),
        ("0 9 * * mon-fri", 8, "2026-01-05T09:00:00Z", office.clone()),
        ("0 9 * * mon-fri", 8, "2026-01-05T16:59:59Z", office),
        ("0 9 * * mon-fri", 8, "2026-01-05T17:00:00Z", None),
        ("0 9 * * mon-fri", 8, "2026-01-10T12:00:00Z", None),
        // Across midnight, across a month, and across a year.
        (
            "0 22 * * *",
            8,
            "2026-01-06T05:00:00Z",
            some("2026-01-05T22:00:00Z", "2026-01-06T06:00:00Z"),
        ),
        (
            "0 22 31 12 *",
            48,
            "2026-01-02T21:00:00Z",
            some("2025-12-31T22:00:00Z", "2026-01-02T22:00:00Z"),
        ),
        ("0 22 31 12 *", 48, "2026-01-02T22:00:00Z", None),
        // The newest start counts when windows of one schedule overlap.
        (
            "0 * * * *",
            3,
            "2026-01-05T10:30:00Z",
            some("2026-01-05T10:00:00Z", "2026-01-05T13:00:00Z"),
        ),
        (
            "0 0 1 1 *",
            8784,
            "2026-12-31T23:00:00Z",
            some("2026-01-01T00:00:00Z", "2027-01-02T00:00:00Z"),
        ),
    ];
    for (text, hours, now, expected) in cases {
        assert_eq!(
            window(text, "UTC", hours, now),
            expected,
            "{text} {hours}h at {now}"
        );
    }
}

#[test]
fn windows_keep_the_local_time_when_the_clock_changes() {
    // Berlin is one hour ahead of UTC in winter, two in summer: 29 March and 25 October 2026.
    let cases = [
        (
            "0 9 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            "2026-03-28T08:00:00Z",
        ),
        (
            "0 9 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            "2026-03-29T07:00:00Z",
        ),
        (
            "0 9 * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00Z",
            "2026-10-25T08:00:00Z",
        ),
        // 02:30 does not exist on 29 March: one hour later, once.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            "2026-03-29T01:30:00Z",
        ),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-29T01:30:00Z",
            "2026-03-30T00:30:00Z",
        ),
        // It exists twice on 25 October: the first one, once.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-25T00:30:00Z",
        ),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-25T00:30:00Z",
            "2026-10-26T01:30:00Z",
        ),
        // Every hour means every hour that passes.
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:30:00Z",
        ),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:30:00Z",
        ),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:30:00Z",
            "2026-03-29T01:30:00Z",
        ),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-03-29T01:30:00Z",
            "2026-03-29T02:30:00Z",
        ),
        (
            "0 9 * * *",
            "America/New_York",
            "2026-07-01T00:00:00Z",
            "2026-07-01T13:00:00Z",
        ),
        (
            "0 0 * * *",
            "Asia/Kolkata",
            "2026-07-01T00:00:00Z",
            "2026-07-01T18:30:00Z",
        ),
        ("0 9 * * *", "utc", "2026-07-01T00:00:00Z", "2026-07-01T09:00:00Z"),
        (
            "0 9 * * *",
            "Etc/GMT+3",
            "2026-07-01T00:00:00Z",
            "2026-07-01T12:00:00Z",
        ),
    ];
    for (text, zone, now, expected) in cases {
        assert_eq!(next(text, zone, now), expected, "{text} {zone} after {now}");
    }
    // Eight hours are eight hours, also in the night when the clock changes.
    let night = |now| window("0 22 * * *", "Europe/Berlin", 8, now);
    assert_eq!(
        night("2026-10-25T03:59:59Z"),
        Some((
            "2026-10-24T20:00:00Z".to_owned(),
            "2026-10-25T04:00:00Z".to_owned()
        ))
    );
    assert_eq!(night("2026-10-25T04:00:00Z"), None);
    // No hole in "every hour for one hour" while the clock is set back.
    for minute in 0..180 {
        let now = at("2026-10-24T23:30:00Z") + SignedDuration::from_mins(minute);
        let found = schedule("0 * * * *", "Europe/Berlin").window(SignedDuration::from_hours(1), now);
        assert!(found.is_some(), "{now}");
    }
}

#[test]
fn what_is_wrong_with_a_schedule_is_said_with_the_fix() {
    let cases = [
        ("0 9 * *", "UTC", "has 4 fields; expected five"),
        ("", "UTC", "has 0 fields"),
        (
            "60 9 * * *",
            "UTC",
            "minute \"60\": \"60\" is not a value from 0 to 59",
        ),
        (
            "0 24 * * *",
            "UTC",
            "hour \"24\": \"24\" is not a value from 0 to 23",
        ),
        (
            "0 9 0 * *",
            "UTC",
            "day of month \"0\": \"0\" is not a value from 1 to 31",
        ),
        ("0 9 32 * *", "UTC", "is not a value from 1 to 31"),
        (
            "0 9 * 13 *",
            "UTC",
            "month \"13\": \"13\" is not a value from 1 to 12",
        ),
        (
            "0 9 * * 8",
            "UTC",
            "day of week \"8\": \"8\" is not a value from 0 to 7",
        ),
        ("0 9 * * monday", "UTC", "\"monday\" is not a value from 0 to 7"),
        (
            "0 9 * * fri-mon",
            "UTC",
            "the range \"fri-mon\" runs backwards; write it as two",
        ),
        ("0 9-8 * * *", "UTC", "runs backwards"),
        ("*/0 9 * * *", "UTC", "the step in \"*/0\" is not a number from 1"),
        ("*/x 9 * * *", "UTC", "the step in \"*/x\" is not a number from 1"),
        (
            "0 9 31 feb *",
            "UTC",
            "never comes: none of its months has such a day",
        ),
        ("0 9 30,31 2 *", "UTC", "never comes"),
        ("0 9 31 4,6,9,11 *", "UTC", "never comes"),
        (
            "0 9 * * *",
            "Berlin",
            "timeZone \"Berlin\" is unknown; expected an IANA name",
        ),
        ("0 9 * * *", "", "timeZone \"\" is unknown"),
    ];
    for (text, zone, expected) in cases {
        let found = Schedule::read(text, zone).unwrap_err();
        assert!(found.contains(expected), "{text} {zone}: {found}");
    }
    // The same days beside a day of the week do come.
    assert!(Schedule::read("0 9 31 2 mon", "UTC").is_ok());
    assert!(Schedule::read("0 9 30 4 *", "UTC").is_ok());
}

#[test]
fn sizes_are_counts_or_shares_rounded_up() {
    let cases = [
        (Size::Count(5), 0, 5),
        (Size::Count(5), 1000, 5),
        (Size::Count(0), 7, 0),
        (Size::Percent(10), 0, 0),
        (Size::Percent(10), 1, 1),
        (Size::Percent(10), 10, 1),
        (Size::Percent(10), 11, 2),
        (Size::Percent(1), 500, 5),
        (Size::Percent(1), 501, 6),
        (Size::Percent(20), 34, 7),
        (Size::Percent(100), 9, 9),
        (Size::Percent(0), 9, 0),
    ];
    for (size, base, expected) in cases {
        assert_eq!(size.of(base), expected, "{size:?} of {base}");
    }
    // The seed's own numbers: five, of which two are consumed.
    assert_eq!(wanted(&SpareStrategy::KeepEmpty, Size::Count(5), 2, 2), 5);
    assert_eq!(wanted(&SpareStrategy::KeepMinimum, Size::Count(5), 2, 2), 3);
    assert_eq!(wanted(&SpareStrategy::KeepMinimum, Size::Count(5), 9, 9), 0);
    assert_eq!(wanted(&SpareStrategy::KeepMinimum, Size::Percent(50), 10, 2), 3);
    assert_eq!(wanted(&SpareStrategy::KeepEmpty, Size::Percent(50), 10, 2), 5);
}

fn plan(spec: Value) -> Result<Plan, Vec<String>> {
    let object: Overprovisioner = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1beta1", "kind": "Overprovisioner", "metadata": {"name": "test"}, "spec": spec,
    }))
    .unwrap();
    Plan::read(&object)
}

fn overrides(list: Value) -> Result<Plan, Vec<String>> {
    plan(json!({"targetNodePools": ["a"], "sizing": {"count": 1}, "scheduledOverrides": list}))
}

#[test]
fn the_first_override_in_force_counts() {
    let plan = overrides(json!([
        {"schedule": "0 12 * * *", "duration": "1h", "sizing": {"count": 9}},
        {"schedule": "0 9 * * *", "duration": "8h", "sizing": {"percentage": 20}},
    ]))
    .unwrap();
    let cases = [
        (
            "2026-01-05T08:00:00Z",
            Size::Count(1),
            None,
            1,
            "2026-01-05T09:00:00Z",
        ),
        (
            "2026-01-05T09:00:00Z",
            Size::Percent(20),
            Some(1),
            0,
            "2026-01-05T12:00:00Z",
        ),
        (
            "2026-01-05T12:30:00Z",
            Size::Count(9),
            Some(0),
            1,
            "2026-01-05T13:00:00Z",
        ),
        (
            "2026-01-05T13:00:00Z",
            Size::Percent(20),
            Some(1),
            1,
            "2026-01-05T17:00:00Z",
        ),
        (
            "2026-01-05T17:00:00Z",
            Size::Count(1),
            None,
            1,
            "2026-01-06T09:00:00Z",
        ),
    ];
    for (now, size, active, next, until) in cases {
        let current = plan.current(at(now));
        assert_eq!(current.size, size, "{now}");
        assert_eq!(current.active.map(|(index, _)| index), active, "{now}");
        assert_eq!(current.next.map(|(index, _)| index), Some(next), "{now}");
        assert_eq!(current.until, Some(at(until)), "{now}");
    }
    let current = plan.current(at("2026-01-05T12:30:00Z"));
    let (_, window) = current.active.unwrap();
    assert_eq!(
        (window.start, window.end),
        (at("2026-01-05T12:00:00Z"), at("2026-01-05T13:00:00Z"))
    );
    let (_, window) = current.next.unwrap();
    assert_eq!(
        (window.start, window.end),
        (at("2026-01-06T09:00:00Z"), at("2026-01-06T17:00:00Z"))
    );
    assert_eq!(
        plan.overlap(at("2026-01-05T00:00:00Z")),
        Some((0, 1, at("2026-01-05T12:00:00Z")))
    );
    let plain = overrides(json!([])).unwrap().current(at("2026-01-05T00:00:00Z"));
    assert_eq!((plain.size, plain.until), (Size::Count(1), None));
}

#[test]
fn overlaps_are_found_whichever_starts_first() {
    let pair = |first: &str, second: &str| {
        let plan = overrides(json!([
            {"schedule": first, "duration": "2h", "sizing": {"count": 2}},
            {"schedule": second, "duration": "2h", "sizing": {"count": 3}},
        ]));
        plan.unwrap().overlap(at("2026-01-05T00:00:00Z"))
    };
    assert_eq!(pair("0 9 * * *", "0 11 * * *"), None);
    assert_eq!(pair("0 9 * * mon", "0 9 * * tue"), None);
    assert_eq!(
        pair("0 9 * * *", "0 10 * * *"),
        Some((0, 1, at("2026-01-05T10:00:00Z")))
    );
    assert_eq!(
        pair("0 10 * * *", "0 9 * * *"),
        Some((0, 1, at("2026-01-05T10:00:00Z")))
    );
    assert_eq!(
        pair("0 9 * * *", "0 9 * * *"),
        Some((0, 1, at("2026-01-05T09:00:00Z")))
    );
}

#[test]
fn every_fault_of_an_object_is_named_with_its_field() {
    let faults = overrides(json!([
        {"schedule": "0 9 * *", "duration": "0s", "sizing": {}},
        {"schedule": "0 9 * * *", "duration": "8785h", "sizing": {"count": 1, "percentage": 2}},
        {"schedule": "0 9 * * *", "duration": "8h", "timeZone": "Mars", "sizing": {"count": -1}},
        {"schedule": "0 9 * * *", "duration": "x", "sizing": {"percentage": 101}},
        {"schedule": "0 9 * * *", "duration": "8784h", "sizing": {"percentage": 100}},
    ]))
    .unwrap_err();
    let expected = [
        "spec.scheduledOverrides[0].schedule \"0 9 * *\" has 4 fields",
        "spec.scheduledOverrides[0].duration: expected more than 0",
        "spec.scheduledOverrides[0].sizing: neither count nor percentage is set; set one of them",
        "spec.scheduledOverrides[1].duration: expected more than 0 and at most 8784h",
        "spec.scheduledOverrides[1].sizing: both count and percentage are set; remove one of them",
        "spec.scheduledOverrides[2].timeZone \"Mars\" is unknown",
        "spec.scheduledOverrides[2].sizing.count: -1 is negative",
        "spec.scheduledOverrides[3].duration: expected more than 0",
        "spec.scheduledOverrides[3].sizing.percentage: expected 0 to 100, found 101",
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (fault, expected) in faults.iter().zip(expected) {
        assert!(fault.starts_with(expected), "{fault}\nexpected {expected}");
    }
    let faults = plan(json!({"targetNodePools": ["a"], "sizing": {"percentage": -1}})).unwrap_err();
    assert_eq!(faults, ["spec.sizing.percentage: expected 0 to 100, found -1"]);
}

//! What mixes of spares cost and how long pods wait with them, on arrivals that can be counted by hand.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a test fails by panicking; the numbers are exact"
)]

use std::sync::Arc;

use serde_json::{Value, json};
use veneer_engine::plan::Snapshot;
use veneer_steering::warm::frontier::measure::{self, Sample};
use veneer_steering::warm::frontier::pattern::{Pattern, generate};
use veneer_steering::warm::frontier::{Arrival, Latencies, MONTH, Mix, Setting, frontier, play};

/// Nodes of $1 per hour that take one pod; an hour is looked at.
fn setting() -> Setting {
    Setting {
        latencies: Latencies {
            running: 1.0,
            stopped: 30.0,
            cold: 90.0,
        },
        pods_per_node: 1,
        hourly: 1.0,
        stopped_hourly: 0.01,
        idle: 0.0,
        span: 3600.0,
    }
}

fn mix(running: usize, stopped: usize) -> Mix {
    Mix { running, stopped }
}

fn pods(at: &[f64]) -> Vec<Arrival> {
    at.iter().map(|at| Arrival { at: *at, life: 600.0 }).collect()
}

#[test]
fn pods_get_running_spares_then_those_on_their_way_then_stopped_ones_then_a_launch() {
    let setting = setting();
    let one = |mix| play(&pods(&[0.0]), mix, &setting);
    assert_eq!(one(mix(0, 0)).p99, 90.0);
    assert_eq!(one(mix(0, 1)).p99, 30.0);
    assert_eq!(one(mix(1, 1)).p99, 1.0);
    assert_eq!((one(mix(0, 0)).cold, one(mix(0, 1)).cold), (1, 0));
    // The second pod gets the spare that is starting as the next running one: 30 s, and the second to open.
    let two = play(&pods(&[0.0, 0.0]), mix(1, 1), &setting);
    assert_eq!((two.p50, two.p99), (1.0, 31.0));
    // Ten seconds later it waits ten seconds less.
    assert_eq!(play(&pods(&[0.0, 10.0]), mix(1, 1), &setting).p99, 21.0);
    // Without stopped ones the next running one is launched.
    assert_eq!(play(&pods(&[0.0, 0.0]), mix(1, 0), &setting).p99, 91.0);
    // Both stopped ones are used, and the third pod needs a launch.
    let three = play(&pods(&[0.0, 0.0, 0.0]), mix(0, 2), &setting);
    assert_eq!((three.p50, three.p99, three.cold), (30.0, 90.0, 1));
    // After 90 s another one has been stopped.
    assert_eq!(play(&pods(&[0.0, 89.9]), mix(0, 1), &setting).p99, 90.0);
    assert_eq!(play(&pods(&[0.0, 90.0]), mix(0, 1), &setting).p99, 30.0);
}

#[test]
fn pods_share_nodes_that_have_room_and_nodes_go_when_they_are_empty() {
    let mut setting = setting();
    setting.pods_per_node = 2;
    // The second one goes where the first one waits; the third has no room there.
    let shared = play(&pods(&[0.0, 60.0, 60.0]), mix(0, 0), &setting);
    assert_eq!((shared.p50, shared.p99, shared.cold), (90.0, 90.0, 2));
    assert_eq!(play(&pods(&[0.0, 60.0]), mix(0, 0), &setting).p50, 30.0);
    // A node stays for `idle` seconds after its last pod, which ends 690 s after it came.
    setting.idle = 60.0;
    assert_eq!(play(&pods(&[0.0, 749.0]), mix(0, 0), &setting).p50, 0.0);
    assert_eq!(play(&pods(&[0.0, 751.0]), mix(0, 0), &setting).p50, 90.0);
    setting.idle = f64::INFINITY;
    assert_eq!(play(&pods(&[0.0, 3000.0]), mix(0, 0), &setting).cold, 1);
}

#[test]
fn money_is_counted_for_all_nodes_that_run_and_the_disks_of_the_others() {
    let setting = setting();
    let close =
        |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    close(play(&[], mix(0, 0), &setting).monthly, 0.0);
    close(play(&[], mix(2, 0), &setting).monthly, 2.0 * MONTH);
    close(play(&[], mix(0, 3), &setting).monthly, 0.03 * MONTH);
    // A launch is paid from its beginning until its pod has gone: 690 s.
    close(
        play(&pods(&[0.0]), mix(0, 0), &setting).monthly,
        690.0 / 3600.0 * MONTH,
    );
    // A started one for 630 s, the one that is launched to be stopped for 90 s; one stopped for the rest.
    let expected = (630.0 + 90.0 + 0.01 * (3600.0 - 90.0)) / 3600.0 * MONTH;
    close(play(&pods(&[0.0]), mix(0, 1), &setting).monthly, expected);
    // What comes after the time that is looked at does not count.
    close(play(&pods(&[3601.0]), mix(0, 0), &setting).monthly, 0.0);
    // Per month, however long the time and whatever the price.
    let dear = Setting {
        hourly: 3.0,
        span: 7200.0,
        ..setting
    };
    close(
        play(&pods(&[0.0]), mix(1, 0), &dear).monthly,
        3.0 * (1.0 + 601.0 / 7200.0) * MONTH,
    );
    let nothing = Setting { span: 0.0, ..setting };
    close(play(&[], mix(1, 1), &nothing).monthly, 0.0);
}

#[test]
fn a_node_that_pods_came_back_to_stays_for_its_whole_idle_time() {
    let mut setting = setting();
    setting.idle = 100.0;
    // The first pod leaves at 690 s, the second one is there from 700 s to 1300 s: the node stays until 1400 s.
    let cold = |last: f64| play(&pods(&[0.0, 700.0, last]), mix(0, 0), &setting).cold;
    assert_eq!((cold(1399.0), cold(1401.0)), (1, 2));
}

#[test]
fn the_frontier_has_no_mix_that_another_one_beats_and_is_as_large_as_the_pool() {
    let setting = setting();
    let arrivals = pods(&[0.0, 100.0, 100.0, 1800.0, 1800.0, 1800.0]);
    let all = frontier(&arrivals, &setting);
    // At most three nodes are needed at once: 0 to 3 of each kind.
    assert_eq!(all.len(), 16);
    let best: Vec<_> = all.iter().filter(|one| one.best).collect();
    assert!(best.len() >= 3 && best.len() < all.len(), "{best:?}");
    assert!(best.windows(2).all(|pair| pair[0].monthly <= pair[1].monthly));
    for one in &best {
        let beaten = all.iter().any(|other| {
            other.monthly < one.monthly
                && other.p50 <= one.p50
                && other.p95 <= one.p95
                && other.p99 <= one.p99
        });
        assert!(!beaten, "{one:?}");
    }
    assert_eq!(best[0].mix, mix(0, 0), "nothing is cheaper than nothing");
    assert_eq!(best.last().unwrap().p99, 1.0, "enough running ones for everybody");
}

#[test]
fn generated_pods_are_the_same_for_the_same_seed_and_as_many_as_asked_for() {
    let pattern = Pattern {
        hourly: 60.0,
        burst: 10,
        every: 3600.0,
        life: 300.0,
    };
    let day = generate(&pattern, 86_400.0, 7);
    assert_eq!(day, generate(&pattern, 86_400.0, 7));
    assert_ne!(day, generate(&pattern, 86_400.0, 9));
    let expected = 24 * 70;
    assert!(day.len().abs_diff(expected) < expected / 10, "{}", day.len());
    assert!(day.windows(2).all(|pair| pair[0].at <= pair[1].at));
    assert!(
        day.iter()
            .all(|one| one.at >= 0.0 && one.at <= 86_400.0 + 10.0 && one.life > 0.0)
    );
    let life: f64 = day.iter().map(|one| one.life).sum();
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let mean = life / day.len() as f64;
    assert!((270.0..330.0).contains(&mean), "{mean}");
    let bursts = generate(
        &Pattern {
            hourly: 0.0,
            ..pattern
        },
        7200.0,
        1,
    );
    assert_eq!((bursts.len(), bursts[0].at), (20, 1800.0));
    assert!(
        generate(
            &Pattern {
                hourly: 0.0,
                burst: 0,
                ..pattern
            },
            7200.0,
            1
        )
        .is_empty()
    );
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn claim(node: &str, labels: Value, annotations: Value, ready: &str) -> Value {
    let mut all = json!({"karpenter.sh/nodepool": "default"});
    all.as_object_mut()
        .unwrap()
        .extend(labels.as_object().unwrap().clone());
    json!({"metadata": {"name": node, "labels": all, "annotations": annotations},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
        "status": {"nodeName": node, "conditions": [
            {"type": "Initialized", "status": "True", "reason": "Initialized", "message": "", "lastTransitionTime": ready}]}})
}

fn pod(name: &str, node: &str, came: &str, scheduled: &str) -> Value {
    json!({"metadata": {"name": name, "creationTimestamp": came}, "spec": {"nodeName": node, "containers": []},
        "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled}]}})
}

#[test]
fn latencies_and_arrivals_are_read_from_the_times_in_objects() {
    let at = |minute: u32, second: u32| format!("2026-01-01T00:{minute:02}:{second:02}Z");
    let used = json!({"veneer.io/overprovisioned": "used"});
    let snapshot = Snapshot {
        node_claims: vec![
            read(claim("cold", json!({}), json!({}), &at(2, 0))),
            read(claim("hot", used.clone(), json!({}), &at(0, 0))),
            read(claim(
                "started",
                used,
                json!({"veneer.io/power": "run"}),
                &at(5, 30),
            )),
        ],
        nodes: ["cold", "hot", "started"]
            .map(|node| {
                read(json!({"metadata": {"name": node, "labels": {"karpenter.sh/nodepool": "default"}}}))
            })
            .to_vec(),
        pods: vec![
            read(pod("a", "cold", &at(1, 0), &at(2, 5))),
            // Came when the node was ready: it waited for nothing.
            read(pod("b", "cold", &at(3, 0), &at(3, 1))),
            read(pod("c", "hot", &at(4, 0), &at(4, 2))),
            read(pod("d", "hot", &at(4, 30), &at(4, 50))),
            read(pod("e", "started", &at(5, 0), &at(5, 31))),
            // On nobody's node.
            read(pod("f", "other", &at(5, 0), &at(5, 31))),
        ],
        ..Snapshot::default()
    };
    let measured = measure::latencies(&snapshot, "default");
    assert_eq!(
        measured.cold,
        Sample {
            pods: 1,
            median: 65.0
        }
    );
    assert_eq!(measured.running, Sample { pods: 1, median: 2.0 });
    assert_eq!(
        measured.stopped,
        Sample {
            pods: 1,
            median: 31.0
        }
    );
    assert_eq!(measure::latencies(&snapshot, "other").cold.pods, 0);
    let assumed = Latencies::default();
    assert_eq!(measure::latencies(&snapshot, "other").or(assumed), assumed);
    assert_eq!(measured.or(assumed).cold, 65.0);
    let now = at(10, 0).parse().unwrap();
    let seen = measure::arrivals(&snapshot, "default", now, 60.0);
    assert_eq!(seen.len(), 5);
    assert_eq!((seen[0].at, seen[0].life), (0.0, 540.0));
    assert_eq!((seen[4].at, seen[4].life), (240.0, 300.0));
}

#[test]
fn pods_that_tell_nothing_about_waiting_are_not_measured() {
    let at = |minute: u32, second: u32| format!("2026-01-01T00:{minute:02}:{second:02}Z");
    let owned = |kind: &str| {
        let mut daemon = pod("daemon", "cold", &at(1, 0), &at(1, 30));
        daemon["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "d", "uid": "d", "controller": true}]);
        daemon
    };
    let mut untold = pod("untold", "cold", &at(1, 0), &at(1, 30));
    untold["status"]["conditions"][0]["status"] = json!("False");
    let mut other = pod("other", "cold", &at(1, 0), &at(1, 30));
    other["status"]["conditions"][0]["type"] = json!("Ready");
    let mut ended = pod("ended", "cold", &at(1, 0), &at(2, 10));
    let end = |at: &str| {
        json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "finishedAt": at}}})
    };
    ended["status"]["containerStatuses"] = json!([end(&at(4, 0)), end(&at(3, 0))]);
    let snapshot = Snapshot {
        node_claims: vec![
            read(claim("cold", json!({}), json!({}), &at(2, 0))),
            read(claim(
                "hot",
                json!({"veneer.io/overprovisioned": "used"}),
                json!({}),
                &at(2, 0),
            )),
        ],
        nodes: vec![read(
            json!({"metadata": {"name": "cold", "labels": {"karpenter.sh/nodepool": "default"}}}),
        )],
        pods: vec![
            read(owned("DaemonSet")),
            read(untold),
            read(other),
            read(ended),
            // A clock was wrong.
            read(pod("skewed", "cold", &at(1, 0), &at(0, 59))),
            // Came in the moment in which the node was ready.
            read(pod("late", "cold", &at(2, 0), &at(2, 50))),
            // A spare that was not there yet and was never stopped is neither.
            read(pod("early", "hot", &at(1, 0), &at(2, 1))),
        ],
        ..Snapshot::default()
    };
    let measured = measure::latencies(&snapshot, "default");
    let one = |median| Sample { pods: 1, median };
    assert_eq!(measured.cold, one(70.0));
    assert_eq!((measured.running.pods, measured.stopped.pods), (0, 0));
    let now = at(10, 0).parse().unwrap();
    let lives: Vec<f64> = measure::arrivals(&snapshot, "default", now, 60.0)
        .iter()
        .map(|one| one.life)
        .collect();
    assert_eq!(lives[0], 180.0, "until its last container ended");
    assert_eq!(
        lives.len(),
        5,
        "all but the daemon and the one on another pool's node"
    );
}

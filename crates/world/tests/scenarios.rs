//! Scenarios with the outcomes that they are there to show, and that the same seed gives the same bytes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "helpers of tests fail as tests do"
)]

use std::path::Path;
use std::sync::Arc;

use veneer_world::picture::Summary;
use veneer_world::{Scenario, World, catalogue};

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios")
}

fn read(name: &str) -> Scenario {
    let path = examples().join(format!("{name}.yaml"));
    Scenario::parse(&std::fs::read_to_string(&path).unwrap(), name).unwrap()
}

fn world(scenario: Scenario) -> World {
    let catalogue = catalogue(&scenario).unwrap();
    let seed = scenario.seed;
    let mut world = World::new(Arc::new(scenario), catalogue, seed).unwrap();
    world.history = Some(String::new());
    world
}

/// The world after its whole duration, or a part of it, beside the same without steering.
fn played(scenario: Scenario, hours: Option<i64>) -> (World, World, Summary) {
    let end = match hours {
        Some(hours) => scenario.start + k8s_openapi::jiff::SignedDuration::from_hours(hours),
        None => scenario.start + scenario.duration.0,
    };
    let mut steered = world(scenario);
    let mut plain = steered.unsteered().unwrap();
    steered.advance(end);
    plain.advance(end);
    let summary = steered.summary(Some(&plain));
    (steered, plain, summary)
}

#[test]
fn every_example_runs_and_places_its_pods() {
    let mut names: Vec<String> = std::fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert!(names.contains(&"day".to_owned()));
    for name in names {
        let mut scenario = read(&name);
        // The tests of their own play them to the end.
        scenario.duration = scenario.duration.min("2h".parse().unwrap());
        let (world, _, summary) = played(scenario, None);
        assert!(summary.latency.pods > 0, "{name}: nothing was placed");
        assert_eq!(
            world.statistics.unsettled, 0,
            "{name}: the controllers never settle"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let play = |seed: u64| {
        let mut scenario = read("day");
        scenario.seed = seed;
        let (world, _, summary) = played(scenario, Some(2));
        format!(
            "{}{}",
            world.history.unwrap(),
            serde_json::to_string(&summary).unwrap()
        )
    };
    let first = play(7);
    let other = std::thread::spawn(move || play(7)).join().unwrap();
    assert!(first == other, "two runs of one seed differ");
    assert!(first != play(8), "another seed changes nothing");
}

#[test]
fn a_plan_that_fills_up_at_noon_is_steered_to_before_and_after() {
    let (world, _, summary) = played(read("plan-fills-up"), None);
    let history = world.history.as_ref().unwrap();
    let plan = "overlay cost-aware-ec2-sp-m5-us-west-2";
    assert!(history.contains(&format!("{plan}: create")), "{history}");
    assert!(history.contains(&format!("{plan}: delete")), "{history}");
    let used = world
        .statistics
        .hours
        .iter()
        .filter(|(name, _)| name.starts_with("m5."));
    assert!(
        used.map(|(_, hours)| hours).sum::<f64>() > 1.0,
        "m5 was hardly used"
    );
    assert!(summary.saved.unwrap() > 0.0, "{summary:?}");
}

#[test]
fn the_size_gap_leaves_an_arm64_preference_without_effect() {
    let launched = |name: &str| played(read(name), None).2.launched;
    let open = launched("size-gap");
    assert!(open.keys().all(|kind| kind.starts_with("amd64")), "{open:?}");
    let closed = launched("size-gap-closed");
    assert!(closed.keys().all(|kind| kind.starts_with("arm64")), "{closed:?}");
}

#[test]
fn huge_pages_wait_for_the_overlay_that_has_them() {
    let mut world = world(read("hugepages"));
    let start = world.scenario.start;
    let after = |minutes| start + k8s_openapi::jiff::SignedDuration::from_mins(minutes);
    world.advance(after(29));
    assert_eq!(world.pending(), 3, "the database has no place yet");
    assert!(
        world.history.as_ref().unwrap().contains("hugepages-2Mi"),
        "the reason names the resource"
    );
    world.advance(after(40));
    assert_eq!(world.pending(), 0, "the overlay lets the database in");
    let types = world
        .cloud
        .machines
        .values()
        .map(|machine| machine.instance_type.as_str());
    assert!(types.into_iter().any(|name| name.starts_with("m5.")));
}

#[test]
fn steering_a_working_day_saves_money() {
    let (world, plain, summary) = played(read("day"), Some(12));
    assert!(summary.saved.unwrap() > 0.0, "{summary:?}");
    assert!(
        summary.cost.unused < plain.bill().unused,
        "less of the commitments is left unused"
    );
    assert!(world.steering().unwrap().decided.doubts.is_empty());
    let launched = &summary.launched;
    assert!(
        launched.contains_key("arm64 on-demand") && launched.contains_key("amd64 on-demand"),
        "{launched:?}"
    );
    assert_eq!(summary.pending, 0);
}

#[test]
fn spares_shorten_the_wait_of_a_live_event() {
    let play = |name: &str| {
        let mut world = world(read(name));
        let seconds = k8s_openapi::jiff::SignedDuration::from_secs;
        let event = world.scenario.start + seconds(7200);
        world.advance(event - seconds(1));
        assert_eq!(
            world.pending(),
            0,
            "{name}: everything has its place before the event"
        );
        world.advance(event);
        // How long until the last pod of the event has a node.
        let waited = (1..600).find(|second| {
            world.advance(event + seconds(*second));
            world.pending() == 0
        });
        world.advance(event + seconds(3600));
        (waited.unwrap(), world.summary(None))
    };
    let ((warm, with), (cold, without)) = (play("live-event"), play("live-event-cold"));
    assert!(warm < cold, "with spares {warm} s, without {cold} s");
    assert!(with.spares_used > 0 && without.spares_used == 0);
    assert!(with.cost.paid > without.cost.paid, "readiness has its price");
}

/// What a plan does not cover of the machines that run because of it, minute by minute; and how often nodes came or went in
/// the last hours.
struct Overshoot {
    /// The most at any minute, in dollars per hour.
    most: f64,
    /// All of it, in dollars.
    total: f64,
    late_movements: u64,
    /// The share of the plan that is used at the end.
    used: f64,
}

fn overshoot(capped: bool) -> Overshoot {
    let mut scenario = read("plan-loop");
    scenario.steering.capped = capped;
    let plan = scenario.commitments.savings_plans[0].clone();
    let covers = plan.commitment / (1.0 - plan.discount);
    let mut world = world(scenario);
    let start = world.scenario.start;
    let movements = |world: &World| world.statistics.claims + world.statistics.deleted.values().sum::<u64>();
    let (mut most, mut total, mut early) = (0.0_f64, 0.0, 0);
    for minute in 1..=210 {
        world.advance(start + k8s_openapi::jiff::SignedDuration::from_mins(minute));
        let running = world.cloud.machines.values();
        let steered = running.filter(|one| one.ended.is_none() && one.instance_type.starts_with("m5."));
        let beyond = (steered.map(|one| one.price).sum::<f64>() - covers).max(0.0);
        most = most.max(beyond);
        total += beyond / 60.0;
        if minute == 120 {
            early = movements(&world);
        }
    }
    assert_eq!(world.pending(), 0);
    Overshoot {
        most,
        total,
        late_movements: movements(&world) - early,
        used: world.rates().plans[0] / plan.commitment,
    }
}

#[test]
fn capped_steering_fills_a_plan_and_leaves_it_at_that() {
    let (capped, plain) = (overshoot(true), overshoot(false));
    println!(
        "capped: ${:.2}/h at most, ${:.2} in all, {} movements after 2 h; on and off: ${:.2}/h, ${:.2}, {}",
        capped.most, capped.total, capped.late_movements, plain.most, plain.total, plain.late_movements
    );
    // One machine more than the plan covers is what its last dollars are worth.
    assert!(capped.most <= 0.20, "${:.2}/h beyond the plan", capped.most);
    assert_eq!(capped.late_movements, 0, "nodes flap under a steady load");
    assert!(
        capped.used > 0.8,
        "only {:.0} % of the plan is used",
        100.0 * capped.used
    );
    assert!(plain.most > 3.0, "${:.2}/h beyond the plan", plain.most);
    assert!(plain.total > 10.0 * capped.total.max(0.1), "${:.2}", plain.total);
    assert!(plain.late_movements > 50, "{} movements", plain.late_movements);
}

/// A discount moves a pool of fifty nodes over one by one; then nothing moves for half an hour. Without it, the same back.
#[test]
fn a_discount_moves_a_pool_and_then_it_is_calm() {
    let scenario = r#"
        name: calm
        families: [m6i, r6i]
        steering: {enabled: false}
        objects:
          - apiVersion: karpenter.sh/v1
            kind: NodePool
            metadata: {name: default}
            spec:
              template:
                spec:
                  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
                  expireAfter: Never
                  requirements:
                    - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
                    - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["4"]}
              disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s, budgets: [{nodes: "1"}]}
          - apiVersion: policy/v1
            kind: PodDisruptionBudget
            metadata: {name: web}
            spec: {maxUnavailable: 1, selector: {matchLabels: {app.kubernetes.io/name: web}}}
        workloads:
          - {name: web, requests: {cpu: "3", memory: 4Gi}, replicas: {min: 50}}
    "#;
    let mut world = world(Scenario::parse(scenario, "calm").unwrap());
    let start = world.scenario.start;
    let minutes = k8s_openapi::jiff::SignedDuration::from_mins;
    let movements = |world: &World| world.statistics.claims + world.statistics.deleted.values().sum::<u64>();
    let of_family = |world: &World, family: &str| {
        let running = world.cloud.machines.values().filter(|one| one.ended.is_none());
        running
            .filter(|one| one.instance_type.starts_with(family))
            .count()
    };
    let overlay = serde_json::json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
        "metadata": {"name": "r6i"}, "spec": {"priceAdjustment": "-50%", "requirements": [
            {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["r6i"]}]}});
    let mut now = start + minutes(30);
    world.advance(now);
    assert_eq!((of_family(&world, "m6i"), world.pending()), (50, 0));
    for (family, moved) in [("r6i", true), ("m6i", false)] {
        if moved {
            world.apply(&overlay).unwrap();
        } else {
            world.delete("nodeoverlay/r6i").unwrap();
        }
        let took = (1..600).find(|minute| {
            world.advance(now + minutes(*minute));
            of_family(&world, family) == 50 && world.running() == 50
        });
        let took = took.unwrap_or_else(|| panic!("{} of 50 are {family}", of_family(&world, family)));
        now += minutes(took);
        let settled = movements(&world);
        world.advance(now + minutes(30));
        now += minutes(30);
        assert_eq!(
            movements(&world),
            settled,
            "nodes come and go under a steady load after the move to {family}"
        );
        assert_eq!(world.pending(), 0);
        println!("all 50 are {family} after {took} simulated minutes, then nothing moves for 30");
    }
    assert_eq!(
        world.statistics.forced, 0,
        "no pod was deleted against its budget"
    );
    assert_eq!(world.statistics.claims, 150, "each node moved once each way");
}

#[test]
fn how_many_threads_there_are_changes_nothing() {
    let play = |seed: u64| {
        veneer_world::chaos::run(&veneer_world::chaos::History::new(seed))
            .unwrap()
            .log
    };
    let seeds: Vec<u64> = (900..906).collect();
    let alone: Vec<String> = seeds.iter().map(|seed| play(*seed)).collect();
    for threads in [2, 6] {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let together = std::sync::Mutex::new(vec![String::new(); seeds.len()]);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(seed) = seeds.get(at) else { return };
                        let log = play(*seed);
                        together.lock().unwrap()[at] = log;
                    }
                });
            }
        });
        assert!(together.into_inner().unwrap() == alone, "{threads} threads");
    }
}

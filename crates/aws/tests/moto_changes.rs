//! What changes behind the provider's back: lists that lag, classes that find other things, markets that move.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail so"
)]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use support::{Bed, claim};
use veneer_api::{EC2NodeClass, Ec2NodeClassStatus};
use veneer_aws::{Changes, Ec2, Market};
use veneer_engine::instance_type::Catalogue;

#[test]
fn an_instance_that_lists_hide_is_waited_for_when_the_request_has_changed() {
    let bed = Bed::start();
    let class = bed.class(json!({}));
    bed.aws.control(&json!({"hidden": 1e9})).unwrap();
    let wanted = claim("late", &["m5.large", "m5a.large"], &["on-demand"]);
    let first = bed.launch(&bed.ec2, &wanted, &class).unwrap();
    // Another process, to which the market looks different.
    let ec2 = bed.reborn();
    let fewer = claim("late", &["m5.large"], &["on-demand"]);
    let again = std::thread::scope(|scope| {
        let asks = scope.spawn(|| bed.launch(&ec2, &fewer, &class).unwrap());
        let began = Instant::now();
        while bed.asked("CreateFleet").len() < 2 {
            assert!(began.elapsed() < Duration::from_secs(120), "it asks again");
            std::thread::sleep(Duration::from_millis(20));
        }
        bed.aws.control(&json!({"hidden": 0.0})).unwrap();
        asks.join().unwrap()
    });
    assert_eq!(again, first);
    assert_eq!(bed.running(), 1);
}

#[test]
fn instances_drift_with_what_their_class_finds_and_remember_what_they_were_made_from() {
    let bed = Bed::start();
    let class = bed.class(json!({}));
    let wanted = claim("one", &["m5.large"], &["on-demand"]);
    let launch = |ec2: &Ec2, class: &EC2NodeClass| {
        let options = bed.options(&wanted);
        bed.runtime
            .block_on(ec2.launch(&wanted, class, &options))
            .unwrap()
    };
    let launched = launch(&bed.ec2, &class);
    let hash = &launched.annotations["karpenter.k8s.aws/ec2nodeclass-hash"];
    assert_eq!(*hash, bed.ec2.class_hash(&class));
    // Another process finds the instance after the class has changed: it is still of the old one.
    let changed = bed.class(json!({"tags": {"team": "b"}}));
    assert_ne!(bed.ec2.class_hash(&changed), *hash);
    let ec2 = bed.reborn();
    bed.runtime.block_on(ec2.refresh()).unwrap();
    assert_eq!(launch(&ec2, &changed).annotations, launched.annotations);
    let drift = |change: &dyn Fn(&mut Ec2NodeClassStatus)| {
        let mut class = class.clone();
        change(class.status.as_mut().unwrap());
        ec2.drifted([&class].into_iter()).get("one").copied()
    };
    assert_eq!(drift(&|_| {}), None);
    assert_eq!(
        drift(&|status| status
            .amis
            .iter_mut()
            .for_each(|ami| ami.id = "ami-new".to_owned())),
        Some("AMIDrift")
    );
    assert_eq!(
        drift(&|status| status.amis.retain(|ami| ami.id == bed.prepared.arm_image)),
        Some("AMIDrift")
    );
    assert_eq!(
        drift(&|status| status.security_groups[0].id = "sg-other".to_owned()),
        Some("SecurityGroupDrift")
    );
    assert_eq!(
        drift(&|status| status
            .subnets
            .iter_mut()
            .for_each(|one| one.id = "subnet-other".to_owned())),
        Some("SubnetDrift")
    );
    // Doubt is no drift.
    assert_eq!(drift(&|status| status.amis.clear()), None);
    assert_eq!(drift(&|status| status.security_groups.clear()), None);
    assert_eq!(drift(&|status| status.subnets.clear()), None);
}

#[test]
fn offerings_and_spot_prices_come_from_ec2_page_by_page() {
    let bed = Bed::start();
    let spot =
        json!({"m5.large:us-west-2a": 0.0123, "m5.large:us-west-2b": 0.0456, "x0.large:us-west-2a": 1.0});
    bed.aws.control(&json!({"spot": spot, "page": 700})).unwrap();
    let market = bed.runtime.block_on(bed.ec2.market(Timestamp::now())).unwrap();
    let pages = bed.asked("DescribeInstanceTypeOfferings").len();
    assert!(
        pages > 1 && pages == market.offered.len().div_ceil(700),
        "{pages}"
    );
    assert_eq!(market.spot.len(), 3);
    let (catalogue, changes) = market.over(&bed.catalogue);
    // The newest price counts; x0.large is nothing that the catalogue knows.
    assert_eq!(changes.priced, 2);
    let prices = |catalogue: &Catalogue, name: &str, capacity: &str| {
        let vocabulary = &catalogue.vocabulary;
        let it = catalogue.types.iter().find(|it| *it.name == *name).unwrap();
        let of = it
            .offerings
            .iter()
            .filter(|one| one.capacity_type(vocabulary) == Some(capacity));
        of.map(|one| {
            (
                one.zone(vocabulary).unwrap().to_owned(),
                (one.price, one.available),
            )
        })
        .collect::<BTreeMap<_, _>>()
    };
    let (before, after) = (
        prices(&bed.catalogue, "m5.large", "spot"),
        prices(&catalogue, "m5.large", "spot"),
    );
    assert_eq!(after["us-west-2a"], (0.0123, true));
    assert_eq!(after["us-west-2b"], (0.0456, true));
    assert_eq!(
        after["us-west-2c"], before["us-west-2c"],
        "without a price, the estimate stays"
    );
    let on_demand = |catalogue| prices(catalogue, "m5.large", "on-demand");
    assert_eq!(on_demand(&catalogue), on_demand(&bed.catalogue));
    // What the region does not offer is not available, in any way to buy it.
    assert!(changes.withdrawn > 0, "{changes:?}");
    let missing = bed
        .catalogue
        .types
        .iter()
        .find(|it| !market.offered.iter().any(|(name, _)| *name == *it.name) && !it.offerings.is_empty());
    let missing = prices(&catalogue, &missing.unwrap().name, "on-demand");
    assert!(missing.values().all(|(_, available)| !available), "{missing:?}");
    // An answer that says nothing takes nothing away.
    let (same, changes) = Market::default().over(&bed.catalogue);
    assert_eq!(changes, Changes::default());
    assert_eq!(on_demand(&same), on_demand(&bed.catalogue));
}

#[test]
fn an_instance_that_cannot_be_ended_keeps_no_other_one_from_ending() {
    let bed = Bed::start();
    let class = bed.class(json!({}));
    let launch = |name: &str| {
        let wanted = claim(name, &["m5.large"], &["on-demand"]);
        bed.launch(&bed.ec2, &wanted, &class).unwrap()
    };
    let [first, stuck, third] = ["first", "stuck", "third"].map(launch);
    bed.protect(&stuck, true);
    let began = Instant::now();
    let (a, b, c) = bed.runtime.block_on(async {
        tokio::join!(
            bed.ec2.terminate(&first),
            bed.ec2.terminate(&stuck),
            bed.ec2.terminate(&third)
        )
    });
    let took = began.elapsed();
    a.unwrap();
    c.unwrap();
    println!("the other two ended within {took:?}");
    assert_eq!(bed.running(), 1);
    let error = b.unwrap_err();
    let text = error.to_string();
    assert!(
        error.code() == "OperationNotPermitted" && text.contains(veneer_aws::instance_id(&stuck)),
        "{text}"
    );
    assert!(error.remedy().unwrap().contains("DisableApiTermination"));
    // From now on it is asked for alone, and a batch beside it is one request.
    let more = ["fourth", "fifth"].map(launch);
    let asked = bed.asked("TerminateInstances").len();
    let (b, d, e) = bed.runtime.block_on(async {
        tokio::join!(
            bed.ec2.terminate(&stuck),
            bed.ec2.terminate(&more[0]),
            bed.ec2.terminate(&more[1])
        )
    });
    assert!(b.is_err() && d.is_ok() && e.is_ok());
    assert_eq!(bed.asked("TerminateInstances").len() - asked, 2);
    bed.protect(&stuck, false);
    bed.runtime.block_on(bed.ec2.terminate(&stuck)).unwrap();
    assert_eq!(bed.running(), 0);
}

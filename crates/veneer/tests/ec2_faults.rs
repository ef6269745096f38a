//! A process that is killed while AWS fails: nothing is lost, and nothing is launched twice.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail so"
)]

mod ec2_bed;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ec2_bed::{Bed, CLAIM_TAG, expect};
use kube::api::{Api, DeleteParams};
use serde_json::json;
use veneer_api::NodeClaim;

/// Waits until AWS has been asked this often, or so many launches were made; at most ten seconds.
fn until_asked(bed: &Bed, requests: usize, launches: usize) {
    let began = Instant::now();
    let (asked, launched) = bed.aws.count().unwrap();
    while began.elapsed() < Duration::from_secs(10) {
        let now = bed.aws.count().unwrap();
        if now.0 >= asked + requests || now.1 >= launched + launches {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// No claim ever had two instances.
fn none_doubled(bed: &Bed) -> (usize, usize) {
    let ever = bed.aws.instances(CLAIM_TAG).unwrap();
    let mut by_claim: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, _, claim) in &ever {
        *by_claim.entry(claim).or_default() += 1;
    }
    let doubled: Vec<_> = by_claim.iter().filter(|(_, count)| **count > 1).collect();
    assert!(
        doubled.is_empty(),
        "more than one instance was launched for {doubled:?}"
    );
    (ever.len(), by_claim.len())
}

#[test]
fn nothing_is_lost_or_doubled_by_kills_while_aws_fails() {
    let kills: usize = std::env::var("VENEER_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    let bed = Bed::start();
    bed.pool(&["on-demand"]);
    bed.deployment(1);
    bed.aws
        .control(&json!({"fail": 0.1, "lose": 0.15, "hidden": 2.0, "throttle": {"CreateFleet": 3}}))
        .unwrap();
    // A sequence that is the same in every run.
    let mut random: u64 = 0x2545_F491_4F6C_DD1D;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut pods, how) = (1, DeleteParams::default());
    for _ in 0..kills {
        // Always another number, so that there is something to do.
        pods = (pods + 1 + usize::try_from(next(4)).unwrap()) % 5;
        bed.scale(pods);
        // Nodes that stay would take all pods, and nothing would be launched any more: one of them has to go.
        let claims: Vec<NodeClaim> = bed.list();
        if let Some(claim) = claims
            .iter()
            .find(|one| one.metadata.deletion_timestamp.is_none())
        {
            let api: Api<NodeClaim> = Api::all(bed.client.clone());
            let gone = api.delete(claim.metadata.name.as_deref().unwrap(), &how);
            drop(bed.runtime.block_on(gone).unwrap());
        }
        let veneer = bed.veneer();
        // By what was asked of AWS, not by the clock: a slow machine is killed at the same points. Every other kill comes
        // right behind a launch, where an instance is there and nobody has written it down.
        let requests = 1 + usize::try_from(next(40)).unwrap();
        let launches = if next(2) == 0 { 1 } else { 99 };
        until_asked(&bed, requests, launches);
        std::thread::sleep(Duration::from_millis(next(60)));
        drop(veneer);
    }
    bed.aws
        .control(&json!({"fail": 0.0, "lose": 0.0, "hidden": 0.0, "throttle": {}}))
        .unwrap();
    bed.scale(3);
    let _veneer = bed.veneer();
    bed.all_run(3);
    let took = bed.consistent(Some(3));
    let (instances, claims) = none_doubled(&bed);
    println!("{kills} kills: {instances} instances for {claims} claims, settled after {took:?}");
    assert!(
        instances * 5 >= kills,
        "{instances} launches in {kills} kills prove little"
    );
}

#[test]
fn instances_that_lists_do_not_show_are_neither_lost_nor_doubled() {
    let bed = Bed::start();
    bed.pool(&["on-demand"]);
    bed.deployment(1);
    // For as long as we like; EC2 promises seconds.
    bed.aws.control(&json!({"hidden": 1e9})).unwrap();
    let veneer = bed.veneer();
    bed.all_run(1);
    let names = || -> Vec<String> {
        let claims: Vec<NodeClaim> = bed.list();
        claims
            .into_iter()
            .filter_map(|claim| claim.metadata.name)
            .collect()
    };
    let first = names();
    drop(veneer);
    // Whoever comes after knows only what lists say, and they say that there is nothing.
    let _veneer = bed.veneer();
    bed.scale(2);
    bed.all_run(2);
    let asked = bed.aws.count().unwrap().0;
    bed.eventually("AWS has been asked a few times more", || {
        match bed.aws.count().unwrap().0 {
            now if now >= asked + 4 => Ok(()),
            now => Err(format!("{now} requests")),
        }
    });
    assert!(
        first.iter().all(|one| names().contains(one)),
        "{first:?}, {:?}",
        names()
    );
    assert_eq!(bed.instances().len(), 2);
    bed.aws.control(&json!({"hidden": 0.0})).unwrap();
    bed.consistent(Some(2));
    bed.scale(0);
    bed.consistent(Some(0));
    none_doubled(&bed);
}

#[test]
fn a_failing_aws_delays_launches_and_doubles_none() {
    let bed = Bed::start();
    bed.pool(&["on-demand", "spot"]);
    bed.deployment(1);
    let _veneer = bed.veneer();
    bed.all_run(1);
    let refused = || {
        let all = bed.aws.requests().unwrap();
        all.iter().filter(|one| one["refused"] == true).count()
    };
    let faults = [
        json!({"expired": ["testing"]}),
        json!({"skew": 4000}),
        json!({"throttle": {"CreateFleet": 4, "DescribeInstances": 2, "CreateLaunchTemplate": 1}}),
        json!({"fail": 0.3, "lose": 0.3}),
        // A fleet that says both what it has and what it has not.
        json!({"short": ["m5a.large", "m5.large:spot"]}),
    ];
    for (at, fault) in faults.iter().enumerate() {
        let before = refused();
        bed.aws.control(fault).unwrap();
        bed.scale(at + 2);
        if fault.get("short").is_none() {
            bed.eventually("AWS refuses", || match refused() > before {
                true => Ok(()),
                false => Err(format!("{before} refusals")),
            });
        }
        if fault.get("expired").is_some() {
            let pods_wait = bed.aws.count().unwrap().1;
            until_asked(&bed, 3, 1);
            expect(bed.aws.count().unwrap().1, pods_wait).unwrap();
            bed.aws.control(&json!({"expired": []})).unwrap();
        }
        bed.all_run(at + 2);
        bed.consistent(Some(at + 2));
        bed.aws.control(&json!({"fail": 0.0, "lose": 0.0})).unwrap();
    }
    let (instances, claims) = none_doubled(&bed);
    assert_eq!((instances, claims), (6, 6));
}

#[test]
fn an_instance_with_termination_protection_is_named_and_keeps_no_other_one_from_ending() {
    let bed = Bed::start();
    bed.pool(&["on-demand"]);
    bed.deployment(3);
    let _veneer = bed.veneer();
    bed.all_run(3);
    bed.consistent(Some(3));
    let (claim, ids) = bed.instances().into_iter().next_back().unwrap();
    let protect = |value: &str| {
        let parameters = [
            ("InstanceId", ids[0].as_str()),
            ("DisableApiTermination.Value", value),
        ];
        bed.aws
            .call("ec2", "ModifyInstanceAttribute", &parameters)
            .unwrap();
    };
    protect("true");
    bed.scale(0);
    let ends_asked = || {
        let all = bed.aws.requests().unwrap();
        all.iter()
            .filter(|one| one["action"] == "TerminateInstances")
            .count()
    };
    bed.eventually("an end is asked for", || match ends_asked() {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    });
    let took = bed.eventually("only the protected instance is left", || {
        expect(
            bed.instances().into_keys().collect::<Vec<_>>(),
            vec![claim.clone()],
        )
    });
    println!("the other two ended within {took:?}");
    bed.eventually("an event names the instance and the remedy", || {
        let events: Vec<k8s_openapi::api::events::v1::Event> = bed.list();
        let notes: Vec<String> = events
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("TerminationRefused"))
            .filter_map(|event| event.note)
            .collect();
        let told = |note: &String| note.contains(&ids[0]) && note.contains("DisableApiTermination");
        match notes.iter().any(told) {
            true => Ok(()),
            false => Err(format!("{notes:?}")),
        }
    });
    protect("false");
    bed.consistent(Some(0));
}

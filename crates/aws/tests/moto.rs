//! EC2 over HTTP, as moto plays it: what is asked is what the engine planned, and what AWS does to us is survived.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use support::{Bed, claim, ready, site};
use veneer_aws::{Call, Failure, Reach, node_class, policy};

#[test]
fn a_node_class_finds_what_it_selects_and_says_what_it_does_not() {
    let bed = Bed::start();
    let class = bed.class(json!({}));
    let status = class.status.clone().unwrap();
    assert_eq!(ready(&class).0, "True", "{:?}", status.conditions);
    assert_eq!(status.subnets.len(), bed.prepared.subnets.len());
    assert_eq!(status.security_groups[0].id, bed.prepared.group);
    let images: BTreeSet<&str> = status.amis.iter().map(|ami| ami.id.as_str()).collect();
    assert_eq!(
        images,
        BTreeSet::from([bed.prepared.image.as_str(), bed.prepared.arm_image.as_str()])
    );
    assert!(status.instance_profile.unwrap().starts_with("test_"));
    // By id, by name and by tag.
    let by_id = bed.class(
        json!({"amiFamily": "AL2023", "amiSelectorTerms": [{"id": bed.prepared.image}],
        "instanceProfile": "own", "role": null}),
    );
    assert_eq!(by_id.status.as_ref().unwrap().amis.len(), 1);
    assert_eq!(
        by_id.status.as_ref().unwrap().instance_profile.as_deref(),
        Some("own")
    );
    let by_name =
        bed.class(json!({"amiFamily": "AL2023", "amiSelectorTerms": [{"name": "node-*", "owner": "self"}]}));
    assert_eq!(by_name.status.as_ref().unwrap().amis.len(), 2);
    // What is missing is named.
    let nothing = bed.class(json!({"subnetSelectorTerms": [{"tags": {"no": "such"}}]}));
    assert_eq!(
        ready(&nothing),
        ("False".to_owned(), "SubnetsReady=False".to_owned())
    );
    let alias = bed.class(json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}));
    assert_eq!(ready(&alias).0, "Unknown");
    let conditions = &alias.status.as_ref().unwrap().conditions;
    let images = veneer_api::find_condition(conditions, "AMIsReady").unwrap();
    assert!(
        images.message.contains("alias bottlerocket@latest"),
        "{}",
        images.message
    );
}

#[test]
fn a_launch_asks_for_what_the_engine_planned_and_goes_on_to_the_next_candidate() {
    let bed = Bed::start();
    let class = bed.class(json!({}));
    let spot_first = claim("first", &["m5.large", "c5.large"], &["spot", "on-demand"]);
    // Every spot offering is short, and the cheaper type on demand, too.
    bed.aws
        .control(&json!({"short": ["*:spot:*", "c5.large:on-demand:*"]}))
        .unwrap();
    let began = Instant::now();
    let id = bed.launch(&bed.ec2, &spot_first, &class).unwrap();
    println!("launched after two shortages in {:?}", began.elapsed());
    let fleets = bed.asked("CreateFleet");
    assert_eq!(fleets.len(), 2, "spot, then on demand in the same call");
    let of = |fleet: &Value, key: &str| fleet[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        of(
            &fleets[0],
            "TargetCapacitySpecification.DefaultTargetCapacityType"
        ),
        "spot"
    );
    assert_eq!(
        of(&fleets[0], "SpotOptions.AllocationStrategy"),
        "price-capacity-optimized"
    );
    assert_eq!(
        of(
            &fleets[1],
            "TargetCapacitySpecification.DefaultTargetCapacityType"
        ),
        "on-demand"
    );
    assert_eq!(
        of(&fleets[1], "OnDemandOptions.AllocationStrategy"),
        "lowest-price"
    );
    assert_eq!(of(&fleets[0], "ClientToken"), "uid-first-0");
    assert_eq!(of(&fleets[1], "ClientToken"), "uid-first-1");
    // Overrides are the engine's: every type in every zone, with the price as priority.
    let overrides: Vec<(String, String, String)> = (1..)
        .map(|at| format!("LaunchTemplateConfigs.1.Overrides.{at}"))
        .take_while(|path| fleets[1].get(format!("{path}.InstanceType")).is_some())
        .map(|path| {
            let part = |name: &str| of(&fleets[1], &format!("{path}.{name}"));
            (part("InstanceType"), part("AvailabilityZone"), part("Priority"))
        })
        .collect();
    let on_demand = bed.options(&spot_first);
    let mut expected: Vec<(String, String, String)> = on_demand
        .iter()
        .filter(|option| option.capacity_type == "on-demand")
        .map(|option| {
            (
                option.instance_type.clone(),
                option.zone.clone(),
                option.price.to_string(),
            )
        })
        .collect();
    let mut found = overrides.clone();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    // The instance is what was left, with its tags, its groups and its disks.
    let described = bed
        .aws
        .call(
            "ec2",
            "DescribeInstances",
            &[("InstanceId.1", veneer_aws::instance_id(&id))],
        )
        .unwrap();
    for fact in [
        "m5.large",
        "<key>karpenter.sh/nodeclaim</key><value>first</value>",
        &bed.prepared.group,
        "kubernetes.io/cluster/test",
    ] {
        assert!(
            described
                .replace(['\n', ' '], "")
                .contains(&fact.replace(' ', "")),
            "{fact} in {described}"
        );
    }
    let templates = bed.asked("CreateLaunchTemplate");
    let template = &templates[0];
    assert_eq!(
        of(template, "LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize"),
        "20"
    );
    assert_eq!(
        of(template, "LaunchTemplateData.MetadataOptions.HttpTokens"),
        "required"
    );
    assert_eq!(
        of(
            template,
            "LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1"
        ),
        bed.prepared.group
    );
    assert!(of(template, "LaunchTemplateData.IamInstanceProfile.Name").starts_with("test_"));
    // The shortages are told, and another claim of the same class makes no other template.
    assert_eq!(bed.ec2.take_shortages().len(), 2);
    let other = claim("other", &["m5.large"], &["on-demand"]);
    bed.launch(&bed.ec2, &other, &class).unwrap();
    assert_eq!(bed.asked("CreateLaunchTemplate").len(), templates.len());
    // Nothing is left: that is said, with everything that was tried.
    bed.aws.control(&json!({"short": ["*"]})).unwrap();
    let none = bed.launch(
        &bed.ec2,
        &claim("none", &["m5.large", "c5.large"], &["on-demand"]),
        &class,
    );
    let Err(Failure::InsufficientCapacity(short)) = none else {
        panic!("{none:?}")
    };
    assert_eq!(short.len(), 4, "{short:?}");
}

#[test]
fn an_overlay_lets_ec2_go_by_priority() {
    let bed = Bed::start();
    let class = bed.class(json!({}));
    let mut overlaid = claim("overlaid", &["m5.large", "m5.4xlarge"], &["on-demand"]);
    let annotations = [("karpenter.sh/price-overlay-applied".to_owned(), "true".to_owned())];
    overlaid.metadata.annotations = Some(annotations.into());
    let mut options = bed.options(&overlaid);
    for option in &mut options {
        if option.instance_type == "m5.4xlarge" {
            option.price = 0.001;
        }
    }
    let launched = bed
        .runtime
        .block_on(bed.ec2.launch(&overlaid, &class, &options))
        .unwrap();
    assert_eq!(launched.labels["node.kubernetes.io/instance-type"], "m5.4xlarge");
    assert_eq!(
        bed.asked("CreateFleet")[0]["OnDemandOptions.AllocationStrategy"],
        "prioritized"
    );
}

#[test]
fn whoever_asks_again_gets_the_same_instance() {
    let bed = Bed::start();
    let class = bed.class(json!({}));
    let one = claim("one", &["m5.large"], &["on-demand"]);
    // Lists show nothing for a while, as after a real launch, and every second answer is lost.
    bed.aws.control(&json!({"hidden": 3600.0, "lose": 0.5})).unwrap();
    let mut ids = BTreeSet::new();
    for _ in 0..6 {
        // A process that remembers nothing.
        let ec2 = bed.reborn();
        bed.runtime.block_on(ec2.refresh()).unwrap();
        ids.insert(bed.launch(&ec2, &one, &class).unwrap());
    }
    assert_eq!(ids.len(), 1);
    bed.aws.control(&json!({"hidden": 0.0, "lose": 0.0})).unwrap();
    assert_eq!(bed.running(), 1);
    // Asked with other words, the instance of before is found as soon as lists show it.
    let other_words = claim("one", &["m5.large", "c5.large"], &["on-demand"]);
    bed.aws.control(&json!({"hidden": 0.0})).unwrap();
    let ec2 = bed.reborn();
    assert_eq!(
        bed.launch(&ec2, &other_words, &class).unwrap(),
        *ids.first().unwrap()
    );
    assert_eq!(bed.running(), 1);
}

/// Gives keys that have expired the first time.
#[derive(Debug, Default)]
struct Expiring(AtomicUsize);

impl ProvideCredentials for Expiring {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let key = if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
            "old"
        } else {
            "testing"
        };
        future::ProvideCredentials::ready(Ok(Credentials::new(key, "testing", None, None, "test")))
    }
}

#[test]
fn throttling_expired_credentials_and_a_wrong_clock_are_survived() {
    let bed = Bed::start();
    bed.aws
        .control(&json!({"throttle": {"DescribeInstances": 4}}))
        .unwrap();
    let began = Instant::now();
    assert_eq!(bed.runtime.block_on(bed.ec2.refresh()).unwrap(), 0);
    let waited = began.elapsed();
    assert!(
        waited > Duration::from_millis(500),
        "four refusals mean growing pauses: {waited:?}"
    );
    bed.aws.control(&json!({"expired": ["old"]})).unwrap();
    let keys = SharedCredentialsProvider::new(Expiring::default());
    let ec2 = Bed::another(&bed.runtime, &bed.cluster, &bed.catalogue, keys);
    assert_eq!(bed.runtime.block_on(ec2.refresh()).unwrap(), 0);
    for skew in [3600, -7200] {
        bed.aws.control(&json!({"skew": skew})).unwrap();
        let ec2 = bed.reborn();
        assert_eq!(bed.runtime.block_on(ec2.refresh()).unwrap(), 0, "{skew} s");
    }
    // Signatures are looked at.
    bed.aws
        .control(&json!({"skew": 0, "secrets": {"testing": "another"}}))
        .unwrap();
    let refused = bed.runtime.block_on(bed.reborn().refresh()).unwrap_err();
    assert_eq!(refused.code(), "SignatureDoesNotMatch");
}

#[test]
fn every_call_is_in_the_policy_and_every_action_of_the_policy_is_used() {
    let bed = Bed::start();
    let class = bed.class(json!({}));
    let at = |future: std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + '_>>| {
        bed.runtime.block_on(future)
    };
    bed.aws
        .control(&json!({"boot": 0.3, "stop": 0.3, "end": 0.3}))
        .unwrap();
    let state = |id: &str| {
        let all = bed.aws.instances("karpenter.sh/nodeclaim").unwrap();
        all.into_iter()
            .find(|(one, _, _)| one == veneer_aws::instance_id(id))
            .unwrap()
            .1
    };
    let until = |id: &str, wanted: &str| {
        let began = Instant::now();
        while state(id) != wanted {
            assert!(
                began.elapsed() < Duration::from_secs(120),
                "{id} is {}, not {wanted}",
                state(id)
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // Stop, start and change of type, with what must be so before.
    let plain = bed
        .launch(&bed.ec2, &claim("plain", &["m5.large"], &["on-demand"]), &class)
        .unwrap();
    let refusal = |result: Result<(), String>| result.unwrap_err();
    assert!(refusal(at(Box::pin(bed.ec2.stop(&plain, false)))).contains("pending"));
    until(&plain, "running");
    assert!(refusal(at(Box::pin(bed.ec2.stop(&plain, true)))).contains("not launched for hibernation"));
    assert!(refusal(at(Box::pin(bed.ec2.change_type(&plain, "m5.xlarge")))).contains("only a stopped one"));
    at(Box::pin(bed.ec2.stop(&plain, false))).unwrap();
    at(Box::pin(bed.ec2.stop(&plain, false))).unwrap();
    assert!(
        bed.runtime.block_on(bed.ec2.start(&plain)).is_err(),
        "it is still stopping"
    );
    until(&plain, "stopped");
    assert!(refusal(at(Box::pin(bed.ec2.change_type(&plain, "m6g.large")))).contains("does not boot"));
    assert!(refusal(at(Box::pin(bed.ec2.change_type(&plain, "x0.large")))).contains("no instance type"));
    at(Box::pin(bed.ec2.change_type(&plain, "m5.xlarge"))).unwrap();
    bed.aws.control(&json!({"short": ["m5.xlarge"]})).unwrap();
    let short = bed.runtime.block_on(bed.ec2.start(&plain));
    assert!(
        matches!(short, Err(Failure::InsufficientCapacity(ref list)) if list[0].instance_type == "m5.xlarge"),
        "{short:?}"
    );
    bed.aws.control(&json!({"short": []})).unwrap();
    bed.runtime.block_on(bed.ec2.start(&plain)).unwrap();
    until(&plain, "running");
    let mut sleeper = claim("sleeper", &["m5.large"], &["on-demand"]);
    sleeper.metadata.annotations = Some([("veneer.io/hibernation".to_owned(), "true".to_owned())].into());
    let sleeper = bed.launch(&bed.ec2, &sleeper, &class).unwrap();
    until(&sleeper, "running");
    at(Box::pin(bed.ec2.stop(&sleeper, true))).unwrap();
    until(&sleeper, "stopped");
    assert!(refusal(at(Box::pin(bed.ec2.change_type(&sleeper, "m5.xlarge")))).contains("hibernated"));
    let spot = bed
        .launch(&bed.ec2, &claim("spot", &["m5.large"], &["spot"]), &class)
        .unwrap();
    until(&spot, "running");
    assert!(refusal(at(Box::pin(bed.ec2.stop(&spot, false)))).contains("spot instance"));
    // Ends share a request; the unknown and the ended are fine.
    let before = bed.asked("TerminateInstances").len();
    bed.runtime.block_on(async {
        let unknown = "aws:///us-west-2a/i-0123456789abcdef0";
        let (a, b, c, d) = tokio::join!(
            bed.ec2.terminate(&plain),
            bed.ec2.terminate(&sleeper),
            bed.ec2.terminate(&spot),
            bed.ec2.terminate(unknown)
        );
        for ended in [a, b, c, d] {
            ended.unwrap();
        }
        bed.ec2.terminate(&plain).await.unwrap();
    });
    assert!(bed.asked("TerminateInstances").len() - before <= 2);
    until(&plain, "terminated");
    // Messages.
    let body = json!({"MessageBody": "not JSON", "QueueUrl": bed.prepared.queue_url});
    bed.aws.sqs("SendMessage", &body).unwrap();
    bed.runtime.block_on(async {
        let url = bed.ec2.client.queue_url("interruptions").await.unwrap();
        let messages = bed.ec2.client.receive(&url, 1).await.unwrap();
        assert_eq!(messages[0].body, "not JSON");
        bed.ec2.client.delete_messages(&url, &messages).await.unwrap();
        node_class::clean(&bed.ec2.client, &class, &site()).await.unwrap();
        bed.ec2.market(Timestamp::now()).await.unwrap();
        assert_eq!(bed.ec2.tidy().await.unwrap(), 0);
    });
    // The policy against everything that was called.
    let called: BTreeSet<String> = bed
        .aws
        .requests()
        .unwrap()
        .iter()
        .map(|one| {
            format!(
                "{}:{}",
                one["service"].as_str().unwrap(),
                one["action"].as_str().unwrap().trim_end_matches("Batch")
            )
        })
        .collect();
    let ours = Call::ALL
        .iter()
        .filter(|call| !matches!(call.reach(), Reach::Collect | Reach::Roles));
    let listed: BTreeSet<String> = ours.map(|call| policy::action(*call)).collect();
    assert_eq!(called, listed, "what was called is what the table lists");
    let scope = policy::Scope {
        queue: Some("interruptions".to_owned()),
        cluster: "test".to_owned(),
        ..policy::Scope::default()
    };
    let mut allowed = policy::allowed(&policy::document(&scope));
    // AWS checks these beside the calls: a fleet runs instances, tags them and passes the node's role.
    for implied in policy::implied() {
        assert!(allowed.remove(&implied), "{implied}");
    }
    assert_eq!(allowed, listed);
}

#[test]
fn a_thousand_instances_cost_one_request_for_each_thousand() {
    let bed = Bed::start();
    let class = bed.class(json!({}));
    bed.launch(&bed.ec2, &claim("model", &["m5.large"], &["on-demand"]), &class)
        .unwrap();
    let subnet = bed.prepared.subnets[0].0.clone();
    let tags = [
        ("eks:eks-cluster-name", "test"),
        ("karpenter.sh/nodeclaim", "many"),
        ("karpenter.sh/nodepool", "pool"),
    ];
    let names: Vec<(String, String)> = (1..=tags.len())
        .map(|at| {
            (
                format!("TagSpecification.1.Tag.{at}.Key"),
                format!("TagSpecification.1.Tag.{at}.Value"),
            )
        })
        .collect();
    let mut parameters = vec![
        ("ImageId", bed.prepared.image.as_str()),
        ("InstanceType", "m5.large"),
        ("MinCount", "999"),
        ("MaxCount", "999"),
        ("SubnetId", &subnet),
        ("TagSpecification.1.ResourceType", "instance"),
    ];
    for ((key, value), (key_name, value_name)) in tags.iter().zip(&names) {
        parameters.push((key_name, key));
        parameters.push((value_name, value));
    }
    bed.aws.call("ec2", "RunInstances", &parameters).unwrap();
    let before = bed.ec2.client.traffic();
    let began = Instant::now();
    assert_eq!(bed.runtime.block_on(bed.ec2.refresh()).unwrap(), 1000);
    let took = began.elapsed();
    let after = bed.ec2.client.traffic();
    let (requests, bytes) = (after.requests - before.requests, after.bytes - before.bytes);
    // The same list for somebody who does nothing with it: what moto itself takes.
    let began = Instant::now();
    let same = [
        ("MaxResults", "1000"),
        ("Filter.1.Name", "tag:eks:eks-cluster-name"),
        ("Filter.1.Value.1", "test"),
        ("Filter.2.Name", "tag-key"),
        ("Filter.2.Value.1", "karpenter.sh/nodeclaim"),
        ("Filter.3.Name", "instance-state-name"),
        ("Filter.3.Value.1", "pending"),
        ("Filter.3.Value.2", "running"),
    ];
    bed.aws.call("ec2", "DescribeInstances", &same).unwrap();
    println!(
        "1000 instances: {requests} requests, {bytes} bytes, {} ms, of which moto takes about {} ms",
        took.as_millis(),
        began.elapsed().as_millis()
    );
    assert_eq!(requests, 1);
}

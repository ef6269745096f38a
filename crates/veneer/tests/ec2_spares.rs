//! Stopped and hibernated spares on EC2, which moto plays over HTTP: the calls that are made, in their order, and what
//! becomes of an instance whose controller is killed between a call and what it is for.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail so")]

mod ec2_bed;

use ec2_bed::{Bed, CLAIM_TAG, expect};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use veneer_api::{NodeClaim, Overprovisioner};
use veneer_engine::plan::{is_spare, is_used_spare};

/// The calls that change instances, with what they say about them.
fn calls(bed: &Bed) -> Vec<String> {
    let requests = bed.aws.requests().unwrap();
    let told = requests.iter().filter_map(|one| {
        let said = |key: &str| one["request"][key].as_str().map(str::to_owned);
        let action = one["action"].as_str()?;
        Some(match action {
            "CreateFleet" | "StartInstances" | "TerminateInstances" => action.to_owned(),
            "StopInstances" => match said("Hibernate") {
                Some(hibernate) => format!("{action} Hibernate={hibernate}"),
                None => action.to_owned(),
            },
            "ModifyInstanceAttribute" => {
                format!("{action} {}", said("InstanceType.Value").unwrap_or_default())
            }
            _ => return None,
        })
    });
    told.collect()
}

fn called(bed: &Bed, expected: &[&str]) -> Result<(), String> {
    let expected: Vec<String> = expected.iter().map(|one| (*one).to_owned()).collect();
    expect(calls(bed), expected)
}

fn overprovisioner(bed: &Bed, name: &str, state: &str) {
    bed.create(
        "overprovisioners",
        json!({"apiVersion": "karpenter.sh/v1beta1", "kind": "Overprovisioner", "metadata": {"name": name},
            "spec": {"targetNodePools": ["pool"], "state": state, "strategy": "KeepMinimum", "sizing": {"count": 1}}}),
    );
}

/// Waits until the status says that one spare waits with a stopped instance.
fn one_is_stopped(bed: &Bed) {
    bed.eventually("the spare is stopped", || {
        let objects: Vec<Overprovisioner> = bed.list();
        let status = objects[0].status.clone().unwrap_or_default();
        let stopped: i32 = status.node_pools.iter().map(|pool| pool.stopped).sum();
        expect((stopped, bed.list::<Node>().len()), (1, 0))
    });
}

fn claim(bed: &Bed) -> NodeClaim {
    bed.list::<NodeClaim>().remove(0)
}

/// The state of the only instance that has not ended.
fn state(bed: &Bed) -> String {
    let instances = bed.aws.instances(CLAIM_TAG).unwrap();
    let living = instances.into_iter().find(|(_, state, _)| state != "terminated");
    living.map(|(_, state, _)| state).unwrap_or_default()
}

#[test]
fn stopped_and_hibernated_instances_start_for_pods_by_exactly_these_calls_also_across_kills() {
    let bed = Bed::start();
    bed.aws
        .control(&json!({"boot": 0.3, "stop": 1.5, "end": 0.3}))
        .unwrap();
    bed.pool(&["on-demand"]);
    overprovisioner(&bed, "cold", "Stopped");
    bed.deployment(0);
    // Killed between the stop and its record: the next process asks for no second one.
    let veneer = bed.veneer();
    bed.eventually("the instance is asked to stop", || {
        called(&bed, &["CreateFleet", "StopInstances"])
    });
    drop(veneer);
    let spare = claim(&bed);
    assert!(is_spare(&spare.metadata));
    let veneer = bed.veneer();
    one_is_stopped(&bed);
    called(&bed, &["CreateFleet", "StopInstances"]).unwrap();
    assert_eq!(state(&bed), "stopped");

    // Its type is not to be had: it becomes one of the other type, and starts. Killed before it joins.
    let first = spare.labels()["node.kubernetes.io/instance-type"].clone();
    let other = if first == "m5.large" {
        "m5a.large"
    } else {
        "m5.large"
    };
    bed.aws
        .control(&json!({"short": [format!("{first}:on-demand:*")], "boot": 4.0}))
        .unwrap();
    bed.scale(1);
    let change = format!("ModifyInstanceAttribute {other}");
    let mut expected = vec![
        "CreateFleet",
        "StopInstances",
        "StartInstances",
        &change,
        "StartInstances",
    ];
    bed.eventually("the instance starts as another type", || called(&bed, &expected));
    drop(veneer);
    assert_eq!(bed.list::<Node>().len(), 0, "killed before the join");
    let veneer = bed.veneer();
    bed.all_run(1);
    called(&bed, &expected).unwrap();
    let used = claim(&bed);
    assert_eq!(used.name_any(), spare.name_any());
    assert!(is_used_spare(&used.metadata));
    assert_eq!(used.labels()["node.kubernetes.io/instance-type"], other);
    assert_eq!(used.labels()["karpenter.sh/capacity-type"], "on-demand");
    let node = bed.list::<Node>().remove(0);
    assert_eq!(node.labels()["karpenter.sh/capacity-type"], "on-demand");
    assert_eq!(node.labels()["node.kubernetes.io/instance-type"], other);
    assert_eq!(node.spec.unwrap().taints, None);

    // Everything goes, and hibernated ones come.
    let objects: Api<Overprovisioner> = Api::all(bed.client.clone());
    let params = DeleteParams::default();
    bed.runtime.block_on(objects.delete("cold", &params)).unwrap();
    bed.aws.control(&json!({"short": [], "boot": 0.3})).unwrap();
    bed.scale(0);
    bed.consistent(Some(0));
    expected.push("TerminateInstances");
    called(&bed, &expected).unwrap();
    overprovisioner(&bed, "frozen", "Hibernated");
    one_is_stopped(&bed);
    expected.extend(["CreateFleet", "StopInstances Hibernate=true"]);
    called(&bed, &expected).unwrap();
    let requests = bed.aws.requests().unwrap();
    let mut templates = requests
        .iter()
        .filter(|one| one["action"] == "CreateLaunchTemplate");
    let template = &templates.next_back().unwrap()["request"];
    let said = |key: &str| template[key].as_str().unwrap_or_default();
    assert_eq!(said("LaunchTemplateData.HibernationOptions.Configured"), "true");
    let disk = "LaunchTemplateData.BlockDeviceMapping.1.Ebs";
    assert_eq!(said(&format!("{disk}.Encrypted")), "true");
    let size: u64 = said(&format!("{disk}.VolumeSize")).parse().unwrap();
    assert!(size >= 8 + 20, "{size} GiB take 8 GiB of memory and the system");
    let spare = claim(&bed);
    bed.scale(1);
    bed.all_run(1);
    expected.push("StartInstances");
    called(&bed, &expected).unwrap();
    assert_eq!(claim(&bed).name_any(), spare.name_any());
    drop(veneer);
    drop(bed.kubelet);
}

//! Instances of EC2 from launch to end, and nodes whose class changes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail so"
)]

mod ec2_bed;

use ec2_bed::{Bed, CLAIM_TAG, expect};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use veneer_api::{EC2NodeClass, NodeClaim, find_condition};

#[test]
fn an_instance_is_launched_joined_interrupted_drained_and_ended() {
    let bed = Bed::start();
    bed.pool(&["spot"]);
    bed.deployment(2);
    // The cheaper type cannot be had; the claim gets the other one without being made anew.
    bed.aws.control(&json!({"short": ["m5a.large"]})).unwrap();
    let veneer = bed.veneer();
    let took = bed.all_run(2);
    println!("two pods on two new instances after {took:?}");
    bed.consistent(Some(2));
    let classes: Vec<EC2NodeClass> = bed.list();
    let status = classes[0].status.clone().unwrap();
    assert_eq!(
        find_condition(&status.conditions, "Ready")
            .unwrap()
            .status
            .as_str(),
        "True"
    );
    bed.eventually("the claims are ready", || {
        let claims: Vec<NodeClaim> = bed.list();
        let ready = claims.iter().filter(|claim| {
            let conditions = claim.status.as_ref().map(|status| &status.conditions);
            let ready = conditions.and_then(|list| find_condition(list, "Ready"));
            ready.is_some_and(|one| one.status.as_str() == "True")
        });
        expect(ready.count(), 2)
    });
    let claims: Vec<NodeClaim> = bed.list();
    for claim in &claims {
        assert_eq!(claim.labels()["node.kubernetes.io/instance-type"], "m5.large");
        assert_eq!(claim.labels()["karpenter.sh/capacity-type"], "spot");
        let status = claim.status.as_ref().unwrap();
        assert_eq!(status.image_id.as_deref(), Some(bed.prepared.image.as_str()));
    }
    let events: Vec<Event> = bed.list();
    let told = |reason: &str| events.iter().any(|one| one.reason.as_deref() == Some(reason));
    assert!(
        !told("InsufficientCapacityError"),
        "the shortage was dealt with in the same launch"
    );
    // Nonsense, a warning, and the same warning again.
    let first = claims[0].status.as_ref().unwrap().provider_id.clone().unwrap();
    let id = first.rsplit('/').next().unwrap();
    let warning =
        json!({"version": "0", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning",
        "detail": {"instance-id": id, "instance-action": "terminate"}})
        .to_string();
    bed.aws.control(&json!({"short": []})).unwrap();
    for body in ["no JSON", "{\"source\": 5}", &warning, &warning] {
        bed.interrupt(body);
    }
    bed.eventually("the interrupted claim is gone", || {
        let claims: Vec<NodeClaim> = bed.list();
        let ids = claims
            .iter()
            .filter_map(|claim| claim.status.as_ref()?.provider_id.clone());
        expect(ids.filter(|id| *id == first).count(), 0)
    });
    bed.all_run(2);
    bed.consistent(Some(2));
    let ended = bed.aws.instances(CLAIM_TAG).unwrap();
    assert_eq!(
        ended.iter().find(|(one, _, _)| one == id).unwrap().1,
        "terminated"
    );
    let events: Vec<Event> = bed.list();
    assert!(
        events
            .iter()
            .any(|one| one.reason.as_deref() == Some("SpotInterrupted"))
    );
    bed.eventually("the queue is empty", || {
        let about = json!({"QueueUrl": bed.prepared.queue_url, "AttributeNames": ["All"]});
        let found = bed.aws.sqs("GetQueueAttributes", &about).unwrap();
        let left = |key: &str| found["Attributes"][key].as_str().unwrap_or_default().to_owned();
        expect(
            (
                left("ApproximateNumberOfMessages"),
                left("ApproximateNumberOfMessagesNotVisible"),
            ),
            ("0".to_owned(), "0".to_owned()),
        )
    });
    // The other kinds: a recommendation is only told; a scheduled change and a change of state drain, once.
    let ids: Vec<String> = bed.instances().into_values().flatten().collect();
    let event = |kind: &str, detail: Value| {
        let source = if kind.starts_with("AWS") {
            "aws.health"
        } else {
            "aws.ec2"
        };
        json!({"version": "0", "source": source, "detail-type": kind, "detail": detail}).to_string()
    };
    bed.interrupt(&event(
        "EC2 Instance Rebalance Recommendation",
        json!({"instance-id": ids[0]}),
    ));
    bed.eventually("the recommendation is told", || {
        let events: Vec<Event> = bed.list();
        let told = |one: &Event| one.reason.as_deref() == Some("SpotRebalanceRecommendation");
        expect(events.iter().any(told), true)
    });
    bed.consistent(Some(2));
    assert_eq!(bed.instances().into_values().flatten().collect::<Vec<_>>(), ids);
    let health = json!({"service": "EC2", "eventTypeCategory": "scheduledChange",
        "affectedEntities": [{"entityValue": ids[0]}]});
    let ends = json!({"instance-id": ids[1], "state": "shutting-down"});
    for _ in 0..2 {
        bed.interrupt(&event("AWS Health Event", health.clone()));
        bed.interrupt(&event("EC2 Instance State-change Notification", ends.clone()));
    }
    bed.eventually("both instances are replaced", || {
        let now: Vec<String> = bed.instances().into_values().flatten().collect();
        expect(now.iter().filter(|id| ids.contains(id)).count(), 0)
    });
    bed.all_run(2);
    bed.consistent(Some(2));
    // Everything goes when nothing needs it, the class last.
    bed.scale(0);
    bed.consistent(Some(0));
    let classes: Api<EC2NodeClass> = Api::all(bed.client.clone());
    bed.runtime
        .block_on(classes.delete("default", &Default::default()))
        .unwrap();
    bed.eventually("the class is gone", || {
        expect(bed.list::<EC2NodeClass>().len(), 0)
    });
    let templates = bed.aws.call("ec2", "DescribeLaunchTemplates", &[]).unwrap();
    assert!(!templates.contains("<launchTemplateName>"), "{templates}");
    drop(veneer);
    drop(bed.kubelet);
}

/// The claim that is there alone, with its instance and why it has drifted, once it is ready.
fn only_claim(bed: &Bed) -> (String, String) {
    let mut found = (String::new(), String::new());
    bed.eventually("one claim, ready", || {
        let claims: Vec<NodeClaim> = bed.list();
        expect(claims.len(), 1)?;
        let status = claims[0].status.clone().unwrap_or_default();
        let ready = find_condition(&status.conditions, "Ready").map(|one| one.status.as_str() == "True");
        expect(ready, Some(true))?;
        found = (claims[0].name_any(), status.provider_id.unwrap_or_default());
        Ok(())
    });
    found
}

#[test]
fn nodes_follow_their_class_when_it_changes() {
    let bed = Bed::start();
    bed.pool(&["on-demand"]);
    bed.deployment(1);
    let _veneer = bed.veneer();
    bed.all_run(1);
    let (mut name, _) = only_claim(&bed);
    let claims: Vec<NodeClaim> = bed.list();
    let hash = claims[0].annotations()["karpenter.k8s.aws/ec2nodeclass-hash"].clone();
    let classes: Api<EC2NodeClass> = Api::all(bed.client.clone());
    let change = |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        let (name, how) = ("default", PatchParams::default());
        bed.runtime.block_on(classes.patch(name, &how, &patch)).unwrap();
    };
    let group = {
        let made = [("GroupName", "other"), ("GroupDescription", "other")];
        let made = bed.aws.call("ec2", "CreateSecurityGroup", &made).unwrap();
        let (_, after) = made.split_once("<groupId>").unwrap();
        after.split_once("</groupId>").unwrap().0.to_owned()
    };
    // The class itself, what its selectors find, and which image that is: each replaces the node, once.
    let image = [
        ("Name", "newer"),
        ("Architecture", "x86_64"),
        ("RootDeviceName", "/dev/xvda"),
    ];
    let image = bed.aws.call("ec2", "RegisterImage", &image).unwrap();
    let (_, image) = image.split_once("<imageId>").unwrap();
    let image = image.split_once("</imageId>").unwrap().0;
    let changes = [
        ("NodeClassDrifted", json!({"tags": {"team": "b"}})),
        (
            "SecurityGroupDrift",
            json!({"securityGroupSelectorTerms": [{"id": group}]}),
        ),
        (
            "AMIDrift",
            json!({"amiFamily": "AL2023", "amiSelectorTerms": [{"id": image}]}),
        ),
    ];
    for (reason, spec) in changes {
        change(spec);
        bed.eventually(&format!("the node is replaced because of {reason}"), || {
            let claims: Vec<NodeClaim> = bed.list();
            expect(claims.iter().filter(|claim| claim.name_any() == name).count(), 0)
        });
        bed.all_run(1);
        bed.consistent(Some(1));
        let (now, _) = only_claim(&bed);
        assert_ne!(now, name);
        name = now;
    }
    let claims: Vec<NodeClaim> = bed.list();
    assert_ne!(
        claims[0].annotations()["karpenter.k8s.aws/ec2nodeclass-hash"],
        hash
    );
    assert_eq!(
        claims[0].status.as_ref().unwrap().image_id.as_deref(),
        Some(image)
    );
    let ever = bed.aws.instances(CLAIM_TAG).unwrap();
    assert_eq!(
        ever.len(),
        4,
        "one instance for each change and the first: {ever:?}"
    );
}

//! The least that the controller's role must be allowed.

use serde_json::{Value, json};

use crate::call::{Call, Reach};

/// What the policy is for.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The partition: `aws`, `aws-cn` or `aws-us-gov`.
    pub partition: String,
    /// The region.
    pub region: String,
    /// The account.
    pub account: String,
    /// The name of the cluster.
    pub cluster: String,
    /// The queue with interruptions, if there is one.
    pub queue: Option<String>,
    /// The role of the nodes.
    pub node_role: String,
}

fn actions(reach: Reach) -> Vec<String> {
    let calls = Call::ALL.iter().filter(|call| call.reach() == reach);
    let mut actions: Vec<String> = calls.map(|call| action(*call)).collect();
    actions.sort();
    actions
}

/// What AWS checks beside the calls themselves, in the words of policies.
#[must_use]
pub fn implied() -> std::collections::BTreeSet<String> {
    let implied = Call::ALL.iter().flat_map(|call| call.implied());
    implied.map(|action| (*action).to_owned()).collect()
}

/// The name of a call in policies.
#[must_use]
pub fn action(call: Call) -> String {
    // Batches are allowed by the single action.
    let name = call.action().trim_end_matches("Batch");
    format!("{}:{name}", call.service().name())
}

/// The policy as IAM reads it.
#[must_use]
pub fn document(scope: &Scope) -> Value {
    let Scope {
        partition,
        region,
        account,
        cluster,
        queue,
        node_role,
    } = scope;
    let owned = format!("kubernetes.io/cluster/{cluster}");
    let ec2 = |kind: &str| format!("arn:{partition}:ec2:{region}:*:{kind}/*");
    let made = [
        "fleet",
        "instance",
        "volume",
        "network-interface",
        "launch-template",
        "spot-instances-request",
    ];
    let used = [
        "security-group",
        "subnet",
        "launch-template",
        "capacity-reservation",
        "placement-group",
    ];
    let mut uses: Vec<String> = used.iter().map(|kind| ec2(kind)).collect();
    uses.extend(["image", "snapshot"].map(|kind| format!("arn:{partition}:ec2:{region}::{kind}/*")));
    let mut creates = actions(Reach::Create);
    creates.push("ec2:RunInstances".to_owned());
    let mut profiles = actions(Reach::Profiles);
    // They get the cluster's tags when they are made.
    profiles.push("iam:TagInstanceProfile".to_owned());
    let changed = ["instance", "launch-template"].map(ec2);
    let in_region = json!({"StringEquals": {"aws:RequestedRegion": region}});
    let mut statements = vec![
        json!({"Sid": "Read", "Effect": "Allow", "Action": actions(Reach::Read), "Resource": "*", "Condition": in_region}),
        json!({
            "Sid": "LaunchWithTags", "Effect": "Allow", "Action": creates,
            "Resource": made.map(ec2),
            "Condition": {"StringEquals": {(format!("aws:RequestTag/{owned}")): "owned"}},
        }),
        json!({
            "Sid": "LaunchFrom", "Effect": "Allow", "Action": ["ec2:CreateFleet", "ec2:RunInstances"], "Resource": uses,
        }),
        json!({
            "Sid": "TagWhatIsMade", "Effect": "Allow", "Action": "ec2:CreateTags", "Resource": made.map(ec2),
            "Condition": {
                "StringEquals": {
                    (format!("aws:RequestTag/{owned}")): "owned",
                    "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                },
            },
        }),
        json!({
            "Sid": "ChangeOwn", "Effect": "Allow", "Action": actions(Reach::Owned),
            "Resource": changed,
            "Condition": {"StringEquals": {(format!("aws:ResourceTag/{owned}")): "owned"}},
        }),
        json!({
            "Sid": "PublishedImages", "Effect": "Allow", "Action": actions(Reach::Parameters),
            "Resource": format!("arn:{partition}:ssm:{region}::parameter/aws/service/*"),
        }),
        json!({
            "Sid": "ReadInstanceProfiles", "Effect": "Allow", "Action": actions(Reach::AnyProfile),
            "Resource": format!("arn:{partition}:iam::{account}:instance-profile/*"),
        }),
        json!({
            "Sid": "InstanceProfiles", "Effect": "Allow", "Action": profiles,
            "Resource": format!("arn:{partition}:iam::{account}:instance-profile/veneer/*"),
        }),
        json!({
            "Sid": "PassNodeRole", "Effect": "Allow", "Action": "iam:PassRole",
            "Resource": format!("arn:{partition}:iam::{account}:role/{node_role}"),
            "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        }),
    ];
    if let Some(queue) = queue {
        statements.push(json!({
            "Sid": "Interruptions", "Effect": "Allow", "Action": actions(Reach::Queue),
            "Resource": format!("arn:{partition}:sqs:{region}:{account}:{queue}"),
        }));
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

/// The policy for collecting commitments, usage and prices ([`crate::collect`]): whoever assumes roles needs it with these, and every
/// role without any.
#[must_use]
pub fn collection(roles: &[String]) -> Value {
    let reads = Call::ALL
        .iter()
        .filter(|call| call.collects() && call.reach() != Reach::Roles);
    let mut reads: Vec<String> = reads.map(|call| action(*call)).collect();
    reads.sort();
    let mut statements = vec![json!({"Sid": "Collect", "Effect": "Allow", "Action": reads, "Resource": "*"})];
    if !roles.is_empty() {
        let assumes = actions(Reach::Roles);
        statements.push(json!({"Sid": "Accounts", "Effect": "Allow", "Action": assumes, "Resource": roles}));
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

/// Every action that a policy allows.
#[must_use]
pub fn allowed(document: &Value) -> std::collections::BTreeSet<String> {
    let statements = document.get("Statement").and_then(Value::as_array);
    let statements = statements.into_iter().flatten();
    let mut all = std::collections::BTreeSet::new();
    for action in statements.filter_map(|one| one.get("Action")) {
        match action {
            Value::String(one) => drop(all.insert(one.clone())),
            Value::Array(list) => all.extend(list.iter().filter_map(Value::as_str).map(str::to_owned)),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resources for which a policy allows an action.
    fn resources(document: &Value, action: &str) -> Vec<String> {
        let list = |value: &Value| match value {
            Value::Array(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            one => vec![one.as_str().unwrap_or_default().to_owned()],
        };
        let statements = document["Statement"].as_array().unwrap().iter();
        let allows = statements.filter(|one| list(&one["Action"]).contains(&action.to_owned()));
        allows.flat_map(|one| list(&one["Resource"])).collect()
    }

    #[test]
    fn what_a_call_needs_beside_itself_is_allowed_for_what_it_makes() {
        let scope = Scope {
            partition: "aws".to_owned(),
            region: "us-west-2".to_owned(),
            account: "1".to_owned(),
            cluster: "c".to_owned(),
            queue: None,
            node_role: "node".to_owned(),
        };
        let policy = document(&scope);
        for call in Call::ALL {
            for action in call.implied() {
                assert!(
                    !resources(&policy, action).is_empty(),
                    "{} needs {action}",
                    call.action()
                );
            }
        }
        // A profile is tagged when it is made, and under the path under which it is made.
        assert_eq!(
            resources(&policy, "iam:TagInstanceProfile"),
            resources(&policy, "iam:CreateInstanceProfile")
        );
        // One that does not exist has no path yet.
        assert_eq!(
            resources(&policy, "iam:GetInstanceProfile"),
            ["arn:aws:iam::1:instance-profile/*"]
        );
    }
}

//! Messages that announce the end of instances, as EventBridge puts them into a queue.
//!
//! A message that cannot be read, or that is about something else, is no event; it is deleted like the others, since
//! reading it again would not help. The same message may come twice.

use serde_json::Value;

/// What is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// EC2 takes a spot instance back in two minutes.
    SpotInterruption,
    /// A spot instance is at elevated risk.
    Rebalance,
    /// AWS will work on the hardware.
    ScheduledChange,
    /// Somebody is stopping the instance, or has.
    Stopping,
    /// Somebody is ending the instance, or has.
    Terminating,
}

impl Kind {
    /// Whether the node should be drained ahead of it.
    #[must_use]
    pub fn drains(self) -> bool {
        self != Self::Rebalance
    }

    /// One CamelCase word for events.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::SpotInterruption => "SpotInterrupted",
            Self::Rebalance => "SpotRebalanceRecommendation",
            Self::ScheduledChange => "InstanceUnhealthy",
            Self::Stopping => "InstanceStopping",
            Self::Terminating => "InstanceTerminating",
        }
    }

    /// One word for metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::SpotInterruption => "spot_interrupted",
            Self::Rebalance => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::Stopping => "instance_stopped",
            Self::Terminating => "instance_terminated",
        }
    }

    /// A sentence for people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::SpotInterruption => "EC2 takes the spot instance back within two minutes",
            Self::Rebalance => "EC2 says that the spot instance is at elevated risk of interruption",
            Self::ScheduledChange => "AWS has scheduled a change that ends or restarts the instance",
            Self::Stopping => "the instance is being stopped",
            Self::Terminating => "the instance is being terminated",
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What is going to happen.
    pub kind: Kind,
    /// To which instances.
    pub instances: Vec<String>,
}

/// Reads a message; none if it is not about the end of instances.
#[must_use]
pub fn read(body: &str) -> Option<Event> {
    let message: Value = serde_json::from_str(body).ok()?;
    // A queue behind SNS wraps its messages.
    let inner = message.get("Message").and_then(Value::as_str);
    let message = match inner.and_then(|text| serde_json::from_str(text).ok()) {
        Some(inner) => inner,
        None => message,
    };
    let text = |path: &str| message.pointer(path).and_then(Value::as_str);
    let instance = || text("/detail/instance-id").map(|id| vec![id.to_owned()]);
    let (kind, instances) = match (text("/source")?, text("/detail-type")?) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => (Kind::SpotInterruption, instance()?),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => (Kind::Rebalance, instance()?),
        ("aws.ec2", "EC2 Instance State-change Notification") => {
            let kind = match text("/detail/state")?.to_ascii_lowercase().as_str() {
                "stopping" | "stopped" => Kind::Stopping,
                "shutting-down" | "terminated" => Kind::Terminating,
                _ => return None,
            };
            (kind, instance()?)
        }
        ("aws.health", "AWS Health Event") => {
            let about_ec2 = text("/detail/service") == Some("EC2");
            let is_change = text("/detail/eventTypeCategory") == Some("scheduledChange");
            let entities = message
                .pointer("/detail/affectedEntities")
                .and_then(Value::as_array)?;
            let ids = entities.iter().filter_map(|one| one.get("entityValue")?.as_str());
            let ids: Vec<String> = ids.map(str::to_owned).collect();
            if !about_ec2 || !is_change {
                return None;
            }
            (Kind::ScheduledChange, ids)
        }
        _ => return None,
    };
    (!instances.is_empty()).then_some(Event { kind, instances })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ec2(detail_type: &str, detail: &str) -> String {
        format!(r#"{{"version":"0","source":"aws.ec2","detail-type":"{detail_type}","detail":{detail}}}"#)
    }

    #[test]
    fn every_kind_of_message_is_read() {
        let health = r#"{"source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"EC2",
            "eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-1"},{"entityValue":"i-2"}]}}"#;
        let cases = [
            (
                ec2(
                    "EC2 Spot Instance Interruption Warning",
                    r#"{"instance-id":"i-1"}"#,
                ),
                Some((Kind::SpotInterruption, 1)),
            ),
            (
                ec2(
                    "EC2 Instance Rebalance Recommendation",
                    r#"{"instance-id":"i-1"}"#,
                ),
                Some((Kind::Rebalance, 1)),
            ),
            (
                ec2(
                    "EC2 Instance State-change Notification",
                    r#"{"instance-id":"i-1","state":"Stopping"}"#,
                ),
                Some((Kind::Stopping, 1)),
            ),
            (
                ec2(
                    "EC2 Instance State-change Notification",
                    r#"{"instance-id":"i-1","state":"terminated"}"#,
                ),
                Some((Kind::Terminating, 1)),
            ),
            (
                ec2(
                    "EC2 Instance State-change Notification",
                    r#"{"instance-id":"i-1","state":"running"}"#,
                ),
                None,
            ),
            (ec2("EC2 Spot Instance Interruption Warning", "{}"), None),
            (ec2("Something new", r#"{"instance-id":"i-1"}"#), None),
            (health.to_owned(), Some((Kind::ScheduledChange, 2))),
            (health.replace("scheduledChange", "issue"), None),
            ("{}".to_owned(), None),
            ("null".to_owned(), None),
            ("[1".to_owned(), None),
            (String::new(), None),
        ];
        for (body, expected) in cases {
            let found = read(&body).map(|event| (event.kind, event.instances.len()));
            assert_eq!(found, expected, "{body}");
        }
        let inner = ec2(
            "EC2 Spot Instance Interruption Warning",
            r#"{"instance-id":"i-1"}"#,
        );
        let wrapped = serde_json::json!({"Type": "Notification", "Message": inner}).to_string();
        assert_eq!(
            read(&wrapped).map(|event| event.kind),
            Some(Kind::SpotInterruption)
        );
    }
}

//! Requests, daemons and host ports.

use std::collections::BTreeMap;

use serde_json::Value;
use veneer_engine::quantity::Quantity;

use super::super::Entry;
use super::labels::{self, Label};
use super::place::{Choice, Place};
use super::{Checker, full_name, list, quantity, text};

type Amounts = BTreeMap<String, Quantity>;

/// What the KWOK provider lets pods use of an entry.
pub(super) fn allocatable(entry: &Entry) -> Amounts {
    let mut left = entry.resources.clone();
    for (name, reserved) in [
        ("cpu", Quantity::from_milli(100)),
        ("memory", Quantity::binary(10 << 20)),
    ] {
        if let Some(own) = left.get_mut(name) {
            *own -= &reserved;
        }
    }
    left
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *total.entry(name.clone()).or_default() += amount;
    }
}

fn larger(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let own = total.entry(name.clone()).or_default();
        if amount > own {
            *own = amount.clone();
        }
    }
}

/// What a container requests; limits count where no request is stated.
fn container(container: &Value) -> Amounts {
    let mut amounts = Amounts::new();
    for field in ["/resources/limits", "/resources/requests"] {
        let stated = container.pointer(field).and_then(Value::as_object);
        for (name, amount) in stated.into_iter().flatten() {
            amounts.insert(name.clone(), quantity(amount));
        }
    }
    amounts
}

/// What a pod requests: its containers and sidecars together or, if more, what starting it takes, plus its overhead.
pub(super) fn requests(spec: &Value) -> Amounts {
    let mut running = Amounts::new();
    for one in list(spec, "/containers") {
        add(&mut running, &container(one));
    }
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for one in list(spec, "/initContainers") {
        let own = container(one);
        if text(one, "/restartPolicy") == "Always" {
            add(&mut running, &own);
            add(&mut sidecars, &own);
            larger(&mut starting, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            larger(&mut starting, &together);
        }
    }
    larger(&mut running, &starting);
    // What is stated for the whole pod replaces what its containers add up to.
    let whole = spec.pointer("/resources/requests").and_then(Value::as_object);
    for (name, amount) in whole.into_iter().flatten() {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            running.insert(name.clone(), quantity(amount));
        }
    }
    let overhead = spec.pointer("/overhead").and_then(Value::as_object);
    for (name, amount) in overhead.into_iter().flatten() {
        *running.entry(name.clone()).or_default() += &quantity(amount);
    }
    running.insert("pods".to_owned(), Quantity::from(1));
    running
}

impl Checker<'_> {
    /// The daemons that would run there; they put up with a preference against them.
    fn daemons(&self, place: &Place<'_>, option: &Choice) -> Vec<&Value> {
        let template = |set: &'_ Value| -> bool {
            let spec = set.pointer("/spec/template/spec").unwrap_or(&Value::Null);
            // A label that only the pool's requirements or nothing defines is settled when the node is made.
            let label = |key: &str| match option.label(key) {
                Label::Values(values) if values.len() > 1 => Label::Values(
                    values
                        .into_iter()
                        .filter(|value| could_select(spec, key, value))
                        .collect(),
                ),
                label => label,
            };
            place
                .taints
                .iter()
                .all(|taint| labels::tolerates_spec(spec, taint))
                && labels::selects_spec(spec, label)
        };
        self.scenario
            .kind("DaemonSet")
            .filter(|set| template(set))
            .filter_map(|set| {
                self.newest_pod(set)
                    .unwrap_or(set.pointer("/spec/template")?)
                    .pointer("/spec")
            })
            .collect()
    }

    /// The youngest pod of a DaemonSet. Karpenter takes what it requests for what the next one will: admission may
    /// have changed the template's amounts.
    fn newest_pod(&self, set: &Value) -> Option<&Value> {
        let owned = |pod: &&Value| {
            list(pod, "/metadata/ownerReferences")
                .iter()
                .any(|owner| text(owner, "/uid") == text(set, "/metadata/uid"))
        };
        // RFC 3339 in UTC sorts as text; of several pods of one age the first counts.
        self.scenario.kind("Pod").filter(owned).reduce(|newest, pod| {
            if text(pod, "/metadata/creationTimestamp") > text(newest, "/metadata/creationTimestamp") {
                pod
            } else {
                newest
            }
        })
    }

    pub(super) fn resources(&mut self, place: &Place<'_>) {
        if place.new_pods.is_empty() {
            return;
        }
        let (mut of_pods, mut of_daemons) = (Amounts::new(), Amounts::new());
        for pod in place.pods() {
            let owners = list(pod, "/metadata/ownerReferences");
            let of_daemon_set = owners.iter().any(|owner| text(owner, "/kind") == "DaemonSet");
            let total = if of_daemon_set {
                &mut of_daemons
            } else {
                &mut of_pods
            };
            add(total, &requests(pod.pointer("/spec").unwrap_or(&Value::Null)));
        }
        for option in &place.options {
            // Of the daemons that belong there, some may be there.
            let mut total = Amounts::new();
            for spec in self.daemons(place, option) {
                add(&mut total, &requests(spec));
            }
            larger(&mut total, &of_daemons);
            add(&mut total, &of_pods);
            for (name, amount) in &total {
                // What overlays add is the business of the overlay agreement; here it is enough that one could.
                let extended = !option.capacity.contains_key(name) && place.new;
                let available = if extended {
                    self.overlaid(name)
                } else {
                    option.allocatable.get(name).cloned()
                };
                if *amount > available.clone().unwrap_or_default() {
                    let detail = format!(
                        "{} as {}: {amount} {name} of {available:?}",
                        place.name, option.name
                    );
                    self.violated("resources", detail);
                    return;
                }
            }
        }
    }

    /// The most of a resource that any overlay adds.
    fn overlaid(&self, resource: &str) -> Option<Quantity> {
        let given = self.scenario.kind("NodeOverlay");
        given
            .filter_map(|overlay| overlay.pointer("/spec/capacity")?.get(resource))
            .map(quantity)
            .max()
    }

    pub(super) fn host_ports(&mut self, place: &Place<'_>) {
        let all: Vec<(String, Vec<Port>)> = place
            .pods()
            .map(|pod| {
                (
                    full_name(pod),
                    ports(pod.pointer("/spec").unwrap_or(&Value::Null)),
                )
            })
            .collect();
        for pod in &place.new_pods {
            let (name, own) = (
                full_name(pod),
                ports(pod.pointer("/spec").unwrap_or(&Value::Null)),
            );
            let meets = |others: &[Port]| {
                own.iter()
                    .any(|port| others.iter().any(|other| port.conflicts(other)))
            };
            if let Some((other, _)) = all.iter().find(|(other, ports)| *other != name && meets(ports)) {
                self.violated("host ports", format!("{name} and {other} on {}", place.name));
            }
            if !place.new {
                continue;
            }
            for option in &place.options {
                if self.daemons(place, option).iter().any(|spec| meets(&ports(spec))) {
                    self.violated(
                        "host ports",
                        format!("{name} and a daemon on {} as {}", place.name, option.name),
                    );
                    break;
                }
            }
        }
    }
}

/// Whether a value of a label is among those that a spec selects.
fn could_select(spec: &Value, key: &str, value: &str) -> bool {
    let one = Label::Values([value.to_owned()].into());
    let selector = spec
        .pointer("/nodeSelector")
        .and_then(|selector| selector.get(key));
    let terms = list(
        spec,
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    selector.is_none_or(|wanted| wanted == value)
        && (terms.is_empty()
            || terms.iter().any(|term| {
                let on_key = list(term, "/matchExpressions")
                    .iter()
                    .filter(|expression| text(expression, "/key") == key);
                on_key
                    .clone()
                    .all(|expression| labels::satisfies(expression, &one))
            }))
}

struct Port {
    number: i64,
    protocol: String,
    address: String,
}

impl Port {
    fn conflicts(&self, other: &Self) -> bool {
        let any = |port: &Self| matches!(port.address.as_str(), "" | "0.0.0.0" | "::");
        self.number == other.number
            && self.protocol == other.protocol
            && (self.address == other.address || any(self) || any(other))
    }
}

fn ports(spec: &Value) -> Vec<Port> {
    list(spec, "/containers")
        .iter()
        .flat_map(|container| list(container, "/ports"))
        .filter_map(|port| {
            Some(Port {
                number: port.pointer("/hostPort")?.as_i64()?,
                protocol: match text(port, "/protocol") {
                    "" => "TCP".to_owned(),
                    protocol => protocol.to_owned(),
                },
                address: text(port, "/hostIP").to_owned(),
            })
        })
        .collect()
}

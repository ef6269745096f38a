//! What pods ask for and what nodes have, counted as kube-scheduler counts: processors in thousandths, everything else in
//! whole units, both rounded up.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use veneer_engine::quantity::Quantity;

/// What a container without a request for processors counts for when nodes are compared, in thousandths.
const DEFAULT_CPU: &str = "100m";
/// What a container without a request for memory counts for when nodes are compared.
const DEFAULT_MEMORY: &str = "200Mi";

type Amounts = BTreeMap<String, Quantity>;

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resources {
    /// Thousandths of a processor.
    pub(super) cpu: i64,
    /// Bytes.
    pub(super) memory: i64,
    /// Everything else by name.
    pub(super) other: BTreeMap<String, i64>,
}

impl Resources {
    /// The amounts of a list of the API.
    pub(super) fn of_list(list: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        Self::of(&read(list))
    }

    fn of(amounts: &Amounts) -> Self {
        let mut resources = Self::default();
        for (name, amount) in amounts {
            match name.as_str() {
                "cpu" => resources.cpu = amount.milli_value(),
                "memory" => resources.memory = amount.value(),
                _ => {
                    resources.other.insert(name.clone(), amount.value());
                }
            }
        }
        resources
    }

    /// Adds other amounts.
    pub(super) fn add(&mut self, more: &Self) {
        self.cpu += more.cpu;
        self.memory += more.memory;
        for (name, amount) in &more.other {
            if let Some(known) = self.other.get_mut(name) {
                *known += amount;
            } else {
                self.other.insert(name.clone(), *amount);
            }
        }
    }

    /// The first resource of which there is less left than is asked for.
    pub(super) fn lacks<'a>(&self, used: &Self, asked: &'a Self) -> Option<&'a str> {
        if asked.cpu > 0 && asked.cpu > self.cpu - used.cpu {
            return Some("cpu");
        }
        if asked.memory > 0 && asked.memory > self.memory - used.memory {
            return Some("memory");
        }
        let amount = |list: &BTreeMap<String, i64>, name: &str| list.get(name).copied().unwrap_or_default();
        let mut others = asked.other.iter();
        others
            .find(|(name, asked)| {
                **asked > 0 && **asked > amount(&self.other, name) - amount(&used.other, name)
            })
            .map(|(name, _)| name.as_str())
    }
}

/// What a pod takes of a node, and the processors and memory that it counts for when nodes are compared.
pub(super) fn requests(spec: &PodSpec) -> (Resources, (i64, i64)) {
    let plain = Resources::of(&total(spec, &Amounts::new()));
    let mut defaults = Amounts::new();
    let asked_for_pod = read(spec.resources.as_ref().and_then(|one| one.requests.as_ref()));
    for (name, amount) in [("cpu", DEFAULT_CPU), ("memory", DEFAULT_MEMORY)] {
        if !asked_for_pod.contains_key(name)
            && let Ok(amount) = amount.parse()
        {
            defaults.insert(name.to_owned(), amount);
        }
    }
    let compared = Resources::of(&total(spec, &defaults));
    (plain, (compared.cpu, compared.memory))
}

/// Containers run together, init containers one after another, and sidecars beside all that start after them. What is asked
/// for the pod as a whole stands instead, and overhead is added.
fn total(spec: &PodSpec, defaults: &Amounts) -> Amounts {
    let of = |container: &Container| {
        let requests = container.resources.as_ref().and_then(|one| one.requests.as_ref());
        let mut requests = read(requests);
        for (name, amount) in defaults {
            requests.entry(name.clone()).or_insert_with(|| amount.clone());
        }
        requests
    };
    let mut running = Amounts::new();
    for container in &spec.containers {
        add(&mut running, &of(container));
    }
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let requests = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &requests);
            add(&mut sidecars, &requests);
            most(&mut starting, &sidecars);
        } else {
            let mut together = sidecars.clone();
            add(&mut together, &requests);
            most(&mut starting, &together);
        }
    }
    most(&mut running, &starting);
    for (name, amount) in read(spec.resources.as_ref().and_then(|one| one.requests.as_ref())) {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            running.insert(name, amount);
        }
    }
    add(&mut running, &read(spec.overhead.as_ref()));
    running
}

fn read(list: Option<&BTreeMap<String, ApiQuantity>>) -> Amounts {
    let list = list.into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?)))
        .collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

fn most(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let known = sum.entry(name.clone()).or_default();
        if *amount > *known {
            *known = amount.clone();
        }
    }
}

//! Labels, capacity and overhead of an EC2 type, as Karpenter's AWS provider computes them for an EC2NodeClass that
//! says nothing special: AL2023, the kubelet's defaults, a root volume of 20 GiB, pods limited by network interfaces.

use std::fmt::Write as _;
use std::sync::Arc;

use super::data::Shape;
use crate::instance_type::Overhead;
use crate::labels;
use crate::quantity::Quantity;
use crate::requirements::{Requirement, Requirements};
use crate::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, ResourceList};
use crate::vocabulary::{Symbol, Vocabulary};

/// Memory that the hypervisor and the kernel take before Kubernetes sees it: the provider's default
/// `--vm-memory-overhead-percent`.
const VM_MEMORY_OVERHEAD: f64 = 0.075;
/// Memory that Graviton machines reserve for contiguous allocation.
const ARM_RESERVED_MIB: i64 = 64;
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const ROOT_VOLUME: i64 = 20 * GIB;

pub(super) const ZONE_ID: &str = "topology.k8s.aws/zone-id";
pub(super) const RESERVATION_LABELS: [&str; 3] = [
    labels::RESERVATION_ID,
    labels::RESERVATION_TYPE,
    labels::RESERVATION_INTERRUPTIBLE,
];

/// What all types of a region share, interned once.
pub(super) struct Shapes {
    /// Requirements that are the same for every type.
    common: Requirements,
    keys: Vec<Symbol>,
    resources: Resources,
}

struct Resources {
    cpu: Arc<str>,
    memory: Arc<str>,
    storage: Arc<str>,
    pods: Arc<str>,
    extended: [Arc<str>; 7],
}

/// The labels that differ between types, in the order in which [`Shapes::requirements`] states them.
const VARYING: [&str; 25] = [
    labels::INSTANCE_TYPE,
    labels::ARCH,
    labels::CAPACITY_TYPE,
    "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-cpu-manufacturer",
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz",
    "karpenter.k8s.aws/instance-memory",
    "karpenter.k8s.aws/instance-ebs-bandwidth",
    "karpenter.k8s.aws/instance-network-bandwidth",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-generation",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-size",
    "karpenter.k8s.aws/instance-capability-flex",
    "karpenter.k8s.aws/instance-local-nvme",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.k8s.aws/instance-gpu-memory",
    "karpenter.k8s.aws/instance-accelerator-name",
    "karpenter.k8s.aws/instance-accelerator-manufacturer",
    "karpenter.k8s.aws/instance-accelerator-count",
    "karpenter.k8s.aws/instance-hypervisor",
    "karpenter.k8s.aws/instance-encryption-in-transit-supported",
    "karpenter.k8s.aws/instance-tenancy",
];

impl Shapes {
    pub(super) fn new(region: &str, vocabulary: &mut Vocabulary) -> Self {
        let mut common = Requirements::new();
        for (key, values) in [
            (labels::OS, vec!["linux"]),
            (labels::REGION, vec![region]),
            (labels::WINDOWS_BUILD, vec![]),
        ]
        .into_iter()
        .chain(RESERVATION_LABELS.map(|key| (key, vec![])))
        {
            let values: Vec<Symbol> = values.into_iter().map(|value| vocabulary.intern(value)).collect();
            let key = vocabulary.intern(key);
            common.add(key, Requirement::one_of(values), vocabulary);
        }
        Self {
            common,
            keys: VARYING.map(|key| vocabulary.intern(key)).to_vec(),
            resources: Resources {
                cpu: Arc::from(CPU),
                memory: Arc::from(MEMORY),
                storage: Arc::from(EPHEMERAL_STORAGE),
                pods: Arc::from(PODS),
                extended: [
                    Arc::from("amd.com/gpu"),
                    Arc::from("aws.amazon.com/neuron"),
                    Arc::from("aws.amazon.com/neuroncore"),
                    Arc::from("habana.ai/gaudi"),
                    Arc::from("nvidia.com/gpu"),
                    Arc::from("vpc.amazonaws.com/efa"),
                    Arc::from("vpc.amazonaws.com/pod-eni"),
                ],
            },
        }
    }

    /// The labels of a node of this type, zone aside.
    pub(super) fn requirements(&self, shape: &Shape<'_>, vocabulary: &mut Vocabulary) -> Requirements {
        let gpu = shape.gpu.as_ref();
        let accelerator = shape.neuron.as_ref().or(shape.accelerator.as_ref());
        let (category, generation) = category_and_generation(shape.name).unzip();
        let (family, size) = shape
            .name
            .split_once('.')
            .filter(|(_, size)| !size.contains('.'))
            .unzip();
        let flex = family.unwrap_or(shape.name).contains("-flex");
        // The sources have no zeros where a label exists, except for counts.
        let positive = |value: i64| (value > 0).then_some(value);

        let mut labels = LabelWriter {
            requirements: self.common.clone(),
            keys: self.keys.iter(),
            vocabulary,
            digits: String::new(),
        };
        labels.text(Some(shape.name));
        labels.text(Some(shape.architecture));
        labels.texts(match (shape.on_demand, shape.spot) {
            (true, true) => &[labels::ON_DEMAND, labels::SPOT],
            (true, false) => &[labels::ON_DEMAND],
            (false, true) => &[labels::SPOT],
            (false, false) => &[],
        });
        labels.number(Some(shape.cpu));
        labels.text(Some(shape.cpu_manufacturer));
        labels.number(Some(shape.clock_mhz));
        labels.number(Some(shape.memory_mib));
        labels.number(positive(shape.ebs_mbps));
        labels.number(positive(shape.network_mbps));
        labels.text(category);
        labels.text(generation);
        labels.text(family);
        labels.text(size);
        labels.text(Some(if flex { "true" } else { "false" }));
        labels.number(positive(shape.nvme_gb));
        labels.text(gpu.map(|gpu| gpu.name));
        labels.text(gpu.map(|gpu| gpu.manufacturer));
        labels.number(gpu.map(|gpu| gpu.count));
        labels.number(gpu.map(|gpu| gpu.size));
        labels.text(accelerator.map(|device| device.name));
        labels.text(accelerator.map(|device| device.manufacturer));
        labels.number(accelerator.map(|device| device.count));
        labels.text(Some(shape.hypervisor));
        labels.text(Some(if shape.encryption_in_transit {
            "true"
        } else {
            "false"
        }));
        labels.texts(&["default", "dedicated"]);
        labels.requirements
    }

    /// What the machine has. Resources of which it has none are listed with 0, as the provider lists them.
    pub(super) fn capacity(&self, shape: &Shape<'_>) -> ResourceList {
        let gpus = |maker| {
            shape
                .gpu
                .as_ref()
                .filter(|gpu| gpu.manufacturer == maker)
                .map_or(0, |gpu| gpu.count)
        };
        let neurons = shape.neuron.as_ref();
        let extended = [
            gpus("amd"),
            neurons.map_or(0, |device| device.count),
            neurons.map_or(0, |device| device.count * device.size),
            gpus("habana"),
            gpus("nvidia"),
            shape.efa_interfaces,
            shape.branch_interfaces,
        ];
        let names = &self.resources;
        let mut capacity = ResourceList::new();
        capacity.insert(Arc::clone(&names.cpu), Quantity::from(shape.cpu));
        capacity.insert(
            Arc::clone(&names.memory),
            Quantity::binary(memory_mib(shape) * MIB),
        );
        capacity.insert(Arc::clone(&names.storage), Quantity::binary(ROOT_VOLUME));
        capacity.insert(Arc::clone(&names.pods), Quantity::from(pods(shape)));
        for (name, count) in names.extended.iter().zip(extended) {
            capacity.insert(Arc::clone(name), Quantity::from(count));
        }
        capacity
    }

    /// What the kubelet keeps.
    pub(super) fn overhead(&self, shape: &Shape<'_>) -> Overhead {
        let names = &self.resources;
        let list = |entries: &[(&Arc<str>, Quantity)]| {
            entries
                .iter()
                .map(|(name, quantity)| (Arc::clone(name), quantity.clone()))
                .collect()
        };
        Overhead {
            kube_reserved: list(&[
                (
                    &names.cpu,
                    Quantity::from_milli(reserved_cpu_milli(shape.cpu * 1000)),
                ),
                (&names.memory, Quantity::binary((11 * pods(shape) + 255) * MIB)),
                (&names.storage, Quantity::binary(GIB)),
            ]),
            system_reserved: ResourceList::new(),
            eviction_threshold: list(&[
                (&names.memory, Quantity::binary(100 * MIB)),
                (&names.storage, Quantity::binary(ROOT_VOLUME / 10)),
            ]),
        }
    }
}

/// States one label after the other, in the order of [`VARYING`].
struct LabelWriter<'a> {
    requirements: Requirements,
    keys: std::slice::Iter<'a, Symbol>,
    vocabulary: &'a mut Vocabulary,
    digits: String,
}

impl LabelWriter<'_> {
    fn texts(&mut self, values: &[&str]) {
        let Some(key) = self.keys.next() else { return };
        let requirement = Requirement::one_of(values.iter().map(|value| self.vocabulary.intern(value)));
        self.requirements.add(*key, requirement, self.vocabulary);
    }

    /// A label that is absent if there is no value.
    fn text(&mut self, value: Option<&str>) {
        self.texts(value.as_slice());
    }

    fn number(&mut self, value: Option<i64>) {
        let mut digits = std::mem::take(&mut self.digits);
        digits.clear();
        // Writing to a string cannot fail.
        let value = value.map(|value| _ = write!(digits, "{value}"));
        self.text(value.map(|()| digits.as_str()));
        self.digits = digits;
    }
}

/// The memory that Kubernetes will see. The estimate is made in floating point, like the provider's.
fn memory_mib(shape: &Shape<'_>) -> i64 {
    let size = shape.memory_mib
        - if shape.architecture == "arm64" {
            ARM_RESERVED_MIB
        } else {
            0
        };
    let bytes = (size * MIB) as f64;
    size - (bytes * VM_MEMORY_OVERHEAD / 1024.0 / 1024.0).ceil() as i64
}

/// How many pods get an address: one address of every interface is its own, and two pods use the host's network.
fn pods(shape: &Shape<'_>) -> i64 {
    if shape.network_interfaces == 0 {
        0
    } else {
        shape.network_interfaces * (shape.addresses_per_interface - 1) + 2
    }
}

/// 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest, each rounded down.
fn reserved_cpu_milli(cpu_milli: i64) -> i64 {
    [
        (0, 1000, 0.06),
        (1000, 2000, 0.01),
        (2000, 4000, 0.005),
        (4000, i64::from(i32::MAX) + 1, 0.0025),
    ]
    .into_iter()
    .filter(|(start, _, _)| cpu_milli >= *start)
    .map(|(start, end, share)| ((cpu_milli.min(end) - start) as f64 * share) as i64)
    .sum()
}

/// `("m", "7")` of `m7g.large`, `("u", "1")` of `u-6tb1.56xlarge`.
fn category_and_generation(name: &str) -> Option<(&str, &str)> {
    let (family, _) = name.rsplit_once('.')?;
    let letters = family.find(|c: char| !c.is_ascii_lowercase())?;
    let (category, rest) = family
        .split_at_checked(letters)
        .filter(|(category, _)| !category.is_empty())?;
    // The high-memory families name their terabytes between category and generation.
    let rest = match rest.strip_prefix('-').and_then(|sized| sized.split_once("tb")) {
        Some((terabytes, rest)) if terabytes.bytes().all(|b| b.is_ascii_digit()) && !terabytes.is_empty() => {
            rest
        }
        _ => rest,
    };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..digits)
        .filter(|generation| !generation.is_empty())
        .map(|generation| (category, generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn category_and_generation_come_from_the_name() {
        for (name, expected) in [
            ("m5.large", Some(("m", "5"))),
            ("c7i-flex.2xlarge", Some(("c", "7"))),
            ("hpc7g.16xlarge", Some(("hpc", "7"))),
            ("u-6tb1.56xlarge", Some(("u", "1"))),
            ("u7in-16tb.224xlarge", Some(("u", "7"))),
            ("trn1n.32xlarge", Some(("trn", "1"))),
            ("large", None),
            ("5m.large", None),
            ("m.large", None),
        ] {
            assert_eq!(category_and_generation(name), expected, "{name}");
        }
    }

    #[test]
    fn reserved_cpu_shrinks_with_every_core() {
        for (cores, milli) in [(1, 60), (2, 70), (4, 80), (8, 90), (96, 310)] {
            assert_eq!(reserved_cpu_milli(cores * 1000), milli, "{cores} cores");
        }
    }
}

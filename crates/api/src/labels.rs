//! Names of labels, annotations, taints, finalizers and resources, and the values that have a meaning.
//!
//! The keys of `karpenter.sh`, `karpenter.k8s.aws` and `karpenter.kwok.sh` are those of Karpenter v1.14 and its AWS
//! and KWOK providers; the keys of `veneer.io` are ours.

/// Kubernetes' own labels.
pub mod kubernetes {
    /// The architecture of a node: `amd64`, `arm64`.
    pub const ARCH: &str = "kubernetes.io/arch";
    /// The operating system of a node: `linux`, `windows`.
    pub const OS: &str = "kubernetes.io/os";
    /// The name of a node as its kubelet reports it; no requirement may use it.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
    /// The instance type of a node.
    pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
    /// The build of Windows that a node runs.
    pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
    /// The zone of a node.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// The region of a node.
    pub const REGION: &str = "topology.kubernetes.io/region";
    /// Who manages an object; see [`super::veneer::MANAGED_BY`] for our value.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

    /// Older spellings of labels, each with the label it means today.
    pub const ALIASES: [(&str, &str); 5] = [
        ("beta.kubernetes.io/arch", ARCH),
        ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
        ("beta.kubernetes.io/os", OS),
        ("failure-domain.beta.kubernetes.io/region", REGION),
        ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ];
}

/// Keys of the group `karpenter.sh`.
pub mod karpenter {
    /// The API group, and the label domain that only Karpenter and Veneer may use.
    pub const GROUP: &str = "karpenter.sh";

    /// The NodePool that a node or a claim belongs to.
    pub const NODEPOOL: &str = "karpenter.sh/nodepool";
    /// How a node is bought: one of the `CAPACITY_TYPE_*` values.
    pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
    /// Set to `true` once a node has everything its claim promised.
    pub const INITIALIZED: &str = "karpenter.sh/initialized";
    /// Set to `true` once a node has joined the cluster.
    pub const REGISTERED: &str = "karpenter.sh/registered";
    /// Tells Karpenter to leave the taints of a node alone.
    pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";

    /// A capacity type: spare capacity that the cloud can take back.
    pub const CAPACITY_TYPE_SPOT: &str = "spot";
    /// A capacity type: paid by use at list price, or covered by a commitment.
    pub const CAPACITY_TYPE_ON_DEMAND: &str = "on-demand";
    /// A capacity type: from a capacity reservation.
    pub const CAPACITY_TYPE_RESERVED: &str = "reserved";
    /// A capacity type of Veneer: a spare node of an Overprovisioner.
    pub const CAPACITY_TYPE_OVERPROVISIONED: &str = "overprovisioned";

    /// Annotation that keeps a node or a pod from being disrupted.
    pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// Annotation with the hash of a NodePool's static fields, which shows drift.
    pub const NODEPOOL_HASH: &str = "karpenter.sh/nodepool-hash";
    /// Annotation with the version of the way the hash is computed.
    pub const NODEPOOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
    /// Annotation with the time at which a claim is terminated by force.
    pub const NODECLAIM_TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
    /// Annotation of a claim for which `minValues` was relaxed.
    pub const NODECLAIM_MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
    /// Annotation with the device drivers whose devices a claim's pods use.
    pub const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
    /// Annotation of a claim whose launch used a price that an overlay changed.
    pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
    /// Annotation of a claim whose launch used a capacity that an overlay changed.
    pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";

    /// Finalizer of nodes and claims.
    pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";

    /// Taint of a node that is being disrupted.
    pub const DISRUPTED_TAINT: &str = "karpenter.sh/disrupted";
    /// Taint of a node that has not joined the cluster yet.
    pub const UNREGISTERED_TAINT: &str = "karpenter.sh/unregistered";
    /// Taint of a spare node that no pod uses yet, with the value `true`.
    pub const OVERPROVISIONED_TAINT: &str = "karpenter.sh/overprovisioned";
}

/// Keys of the domain `veneer.io`.
pub mod veneer {
    /// The label domain of Veneer.
    pub const DOMAIN: &str = "veneer.io";
    /// Our value of `app.kubernetes.io/managed-by`, and our field manager.
    pub const MANAGED_BY: &str = "veneer";

    /// Annotation prefix on a NodePool; a positive number follows: `veneer.io/preference.3`.
    pub const PREFERENCE_PREFIX: &str = "veneer.io/preference.";
    /// What an overlay of ours is for: one of the `TYPE_*` values.
    pub const TYPE: &str = "veneer.io/type";
    /// A value of [`TYPE`]: the overlay comes from a preference annotation.
    pub const TYPE_PREFERENCE: &str = "preference";
    /// A value of [`TYPE`]: the overlay comes from a commitment.
    pub const TYPE_COST_AWARE: &str = "cost-aware";
    /// The NodePool whose annotation an overlay comes from.
    pub const SOURCE_NODEPOOL: &str = "veneer.io/source-nodepool";
    /// The number in the annotation that an overlay comes from.
    pub const PREFERENCE_NUMBER: &str = "veneer.io/preference-number";
    /// The kind of commitment behind an overlay: one of the `COMMITMENT_*` values.
    pub const CAPACITY_TYPE: &str = "veneer.io/capacity-type";
    /// A value of [`CAPACITY_TYPE`].
    pub const COMMITMENT_RESERVED_INSTANCE: &str = "reserved-instance";
    /// A value of [`CAPACITY_TYPE`].
    pub const COMMITMENT_EC2_INSTANCE_SAVINGS_PLAN: &str = "ec2-instance-savings-plan";
    /// A value of [`CAPACITY_TYPE`].
    pub const COMMITMENT_COMPUTE_SAVINGS_PLAN: &str = "compute-savings-plan";
    /// The instance family that a commitment covers.
    pub const INSTANCE_FAMILY: &str = "veneer.io/instance-family";
    /// The instance type that a commitment covers.
    pub const INSTANCE_TYPE: &str = "veneer.io/instance-type";
    /// The region of a commitment.
    pub const REGION: &str = "veneer.io/region";
    /// The zone of zonal Reserved Instances; regional ones have none.
    pub const ZONE: &str = "veneer.io/zone";
    /// Why an overlay exists, in a form that a label may hold.
    pub const OPTIMIZATION_REASON: &str = "veneer.io/optimization-reason";
    /// The key that no node has; a requirement on it switches an overlay off.
    pub const DISABLED: &str = "veneer.io/disabled";
    /// On a NodeClaim that takes the place of others: their names, and why they go.
    pub const REPLACES: &str = "veneer.io/replaces";
    /// On a NodeClaim of a pool with limits: what it takes of them until it has an instance, as JSON.
    pub const SHARE: &str = "veneer.io/share";
    /// On a pod in a snapshot, never on one in a cluster: the node that the scheduler was told to expect it on. A driver
    /// puts it in the place of `status.nominatedNodeName` where that is our own, since a pod that others nominated needs
    /// nothing from us.
    pub const NOMINATED: &str = "veneer.io/nominated-node";
    /// On a pod in a snapshot, never on one in a cluster: how many of its preferences and OR-ed terms a driver did not keep, since they
    /// are beyond what counts.
    pub const LEFT_OUT: &str = "veneer.io/demands-left-out";
    /// On a NodeClaim that was launched because kube-scheduler refuses pods on the nodes that they were expected on: which
    /// pods, as a number.
    pub const REFUSED_CLASS: &str = "veneer.io/refused-class";
    /// How a spare node was really bought, while its capacity type says `overprovisioned`.
    pub const PURCHASE_OPTION: &str = "veneer.io/purchase-option";
    /// Marks a spare node and its claim: one of the `OVERPROVISIONED_*` values.
    pub const OVERPROVISIONED: &str = "veneer.io/overprovisioned";
    /// A value of [`OVERPROVISIONED`]: nobody uses it yet.
    pub const OVERPROVISIONED_SPARE: &str = "true";
    /// A value of [`OVERPROVISIONED`]: it was a spare, and now it holds pods.
    pub const OVERPROVISIONED_USED: &str = "used";
    /// The Overprovisioner that a spare node was made for.
    pub const OVERPROVISIONER: &str = "veneer.io/overprovisioner";
    /// Annotation of a claim whose instance has to be able to hibernate, which is settled at its launch.
    pub const HIBERNATION: &str = "veneer.io/hibernation";
    /// Annotation of a claim whose stopped instance shall become one of another type, before it is started.
    pub const CHANGE_TYPE: &str = "veneer.io/change-type";
    /// Annotation of a claim that says what its instance shall do: `run`, `stop` or `hibernate`.
    pub const POWER: &str = "veneer.io/power";
}

/// Keys of the AWS provider.
pub mod aws {
    /// The API group, and the label domain that only the provider may extend.
    pub const GROUP: &str = "karpenter.k8s.aws";

    /// The EC2NodeClass of a node.
    pub const NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
    /// The id of the capacity reservation that an offering or a node uses.
    pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
    /// The type of that reservation: `default` or `capacity-block`.
    pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
    /// Whether EC2 may take that reservation back.
    pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str =
        "karpenter.k8s.aws/capacity-reservation-interruptible";
    /// The hypervisor; empty for bare metal.
    pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
    /// Whether traffic between instances is encrypted.
    pub const INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: &str =
        "karpenter.k8s.aws/instance-encryption-in-transit-supported";
    /// The first letters of a type: `m` of `m5.large`.
    pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
    /// Whether a type is of the flex kind.
    pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
    /// The part before the dot: `m5` of `m5.large`.
    pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
    /// The number in the family: `5` of `m5.large`.
    pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
    /// The part after the dot: `large` of `m5.large`.
    pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
    /// Gigabytes of local NVMe disks.
    pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
    /// Virtual processors.
    pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
    /// Who made the processor: `aws`, `intel`, `amd`.
    pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
    /// The sustained clock of the processor in megahertz.
    pub const INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: &str =
        "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
    /// Mebibytes of memory.
    pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
    /// Megabits per second to EBS.
    pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
    /// Megabits per second to the network.
    pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
    /// The name of the GPU.
    pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
    /// Who made the GPU.
    pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
    /// The number of GPUs.
    pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
    /// Mebibytes of memory of each GPU.
    pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
    /// The name of the accelerator.
    pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
    /// Who made the accelerator.
    pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str = "karpenter.k8s.aws/instance-accelerator-manufacturer";
    /// The number of accelerators.
    pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
    /// The tenancy: `default` or `dedicated`.
    pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
    /// The placement group of a node.
    pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
    /// The partition inside the placement group.
    pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";
    /// The zone by its id, which is the same in every account.
    pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";

    /// Annotation with the hash of an EC2NodeClass.
    pub const NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
    /// Annotation with the version of the way the hash is computed.
    pub const NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
    /// Annotation of a claim whose instance carries its tags.
    pub const INSTANCE_TAGGED: &str = "karpenter.k8s.aws/tagged";
    /// Annotation with the instance profile of a claim.
    pub const INSTANCE_PROFILE: &str = "karpenter.k8s.aws/instance-profile-name";

    /// The keys of the domain that a NodeOverlay's requirements may use under the AWS provider's own CRD.
    pub const OVERLAY_KEYS: [&str; 22] = [
        NODE_CLASS,
        INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
        INSTANCE_CATEGORY,
        INSTANCE_HYPERVISOR,
        INSTANCE_FAMILY,
        INSTANCE_GENERATION,
        INSTANCE_LOCAL_NVME,
        INSTANCE_SIZE,
        INSTANCE_CPU,
        INSTANCE_CPU_MANUFACTURER,
        INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
        INSTANCE_MEMORY,
        INSTANCE_EBS_BANDWIDTH,
        INSTANCE_NETWORK_BANDWIDTH,
        INSTANCE_GPU_NAME,
        INSTANCE_GPU_MANUFACTURER,
        INSTANCE_GPU_COUNT,
        INSTANCE_GPU_MEMORY,
        INSTANCE_ACCELERATOR_NAME,
        INSTANCE_ACCELERATOR_MANUFACTURER,
        INSTANCE_ACCELERATOR_COUNT,
        INSTANCE_CAPABILITY_FLEX,
    ];

    /// The keys beside [`OVERLAY_KEYS`] that NodePools and NodeClaims may use.
    pub const PLACEMENT_KEYS: [&str; 6] = [
        INSTANCE_TENANCY,
        CAPACITY_RESERVATION_TYPE,
        CAPACITY_RESERVATION_ID,
        CAPACITY_RESERVATION_INTERRUPTIBLE,
        PLACEMENT_GROUP_ID,
        PLACEMENT_GROUP_PARTITION,
    ];
}

/// Keys of the KWOK provider.
pub mod kwok {
    /// The API group, and the label domain that only the provider may extend.
    pub const GROUP: &str = "karpenter.kwok.sh";

    /// The KWOKNodeClass of a node.
    pub const NODE_CLASS: &str = "karpenter.kwok.sh/kwoknodeclass";
    /// The size of a type.
    pub const INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";
    /// The family of a type.
    pub const INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
    /// The memory of a type.
    pub const INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";
    /// The virtual processors of a type.
    pub const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";

    /// The keys of the domain that requirements may use.
    pub const KEYS: [&str; 5] = [
        NODE_CLASS,
        INSTANCE_CPU,
        INSTANCE_MEMORY,
        INSTANCE_FAMILY,
        INSTANCE_SIZE,
    ];
}

/// Names of resources beside `cpu` and `memory`.
pub mod resource {
    /// Processors.
    pub const CPU: &str = "cpu";
    /// Memory.
    pub const MEMORY: &str = "memory";
    /// Local disk space.
    pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
    /// The number of pods.
    pub const PODS: &str = "pods";
    /// The prefix of the huge page resources: `hugepages-2Mi`.
    pub const HUGEPAGES_PREFIX: &str = "hugepages-";
    /// NVIDIA GPUs.
    pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
    /// AMD GPUs.
    pub const AMD_GPU: &str = "amd.com/gpu";
    /// AWS Inferentia and Trainium devices.
    pub const AWS_NEURON: &str = "aws.amazon.com/neuron";
    /// The cores of those devices.
    pub const AWS_NEURON_CORE: &str = "aws.amazon.com/neuroncore";
    /// Habana Gaudi devices.
    pub const HABANA_GAUDI: &str = "habana.ai/gaudi";
    /// Branch network interfaces for pods.
    pub const AWS_POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
    /// Addresses for Windows pods.
    pub const AWS_PRIVATE_IPV4_ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";
    /// Elastic Fabric Adapters.
    pub const AWS_EFA: &str = "vpc.amazonaws.com/efa";
}

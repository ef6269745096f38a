//! EC2NodeClass: settings of the AWS provider.

mod devices;
mod kubelet;
mod selectors;
mod status;

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use devices::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions, MetadataOptions, NetworkInterface,
    Toggle,
};
pub use kubelet::KubeletConfiguration;
pub use selectors::{
    AmiSelectorTerm, CapacityReservationSelectorTerm, PlacementGroupSelector, SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
};
pub use status::{Ami, CapacityReservation, Ec2NodeClassStatus, SecurityGroup, Subnet};

use crate::{Extra, root::optional_spec_root, schema::rules, text_enum::text_enum};

/// The subnets were found.
pub const CONDITION_SUBNETS_READY: &str = "SubnetsReady";
/// The security groups were found.
pub const CONDITION_SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
/// The machine images were found.
pub const CONDITION_AMIS_READY: &str = "AMIsReady";
/// The instance profile exists.
pub const CONDITION_INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
/// The capacity reservations were found.
pub const CONDITION_CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
/// The placement group was found.
pub const CONDITION_PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
/// A trial request to EC2 passed.
pub const CONDITION_VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";

text_enum! {
    /// The family of machine images, which decides how the user data is merged.
    AmiFamily {
        /// Amazon Linux 2.
        Al2 = "AL2",
        /// Amazon Linux 2023.
        Al2023 = "AL2023",
        /// Bottlerocket.
        Bottlerocket = "Bottlerocket",
        /// User data is passed on as it is.
        Custom = "Custom",
        /// Windows Server 2019.
        Windows2019 = "Windows2019",
        /// Windows Server 2022.
        Windows2022 = "Windows2022",
        /// Windows Server 2025.
        Windows2025 = "Windows2025",
    }
}

/// How the instances of this class are launched.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.k8s.aws",
    version = "v1",
    kind = "EC2NodeClass",
    root = "Ec2NodeClassDefinition",
    plural = "ec2nodeclasses",
    shortname = "ec2nc",
    shortname = "ec2ncs",
    category = "karpenter",
    status = "Ec2NodeClassStatus",
    doc = "Settings of the AWS provider.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[
    ("has(self.role) != has(self.instanceProfile)", "role, instanceProfile: set exactly one of them"),
    (
        "!has(self.amiFamily) || self.amiFamily == 'Custom' || self.amiSelectorTerms.all(term, !has(term.alias) || term.alias.split('@')[0] == self.amiFamily.lowerAscii())",
        "amiFamily: beside an alias in amiSelectorTerms it must be Custom or the family of that alias; leave it out to follow the alias",
    ),
    (
        "has(self.amiFamily) || self.amiSelectorTerms.exists(term, has(term.alias))",
        "amiFamily: required unless a term of amiSelectorTerms has an alias",
    ),
])))]
pub struct Ec2NodeClassSpec {
    /// The family of machine images; follows the alias when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// Which machine images are used; terms are alternatives.
    #[schemars(
        length(min = 1, max = 30),
        extend("x-kubernetes-validations" = rules(&[
            (
                "self.all(term, has(term.tags) || has(term.id) || has(term.name) || has(term.alias) || has(term.ssmParameter))",
                "amiSelectorTerms: each term needs at least one of alias, id, name, ssmParameter and tags",
            ),
            (
                "self.all(term, !has(term.id) || !(has(term.alias) || has(term.tags) || has(term.name) || has(term.owner)))",
                "amiSelectorTerms: a term with id must not have alias, name, owner or tags",
            ),
            (
                "self.all(term, !has(term.alias) || !(has(term.id) || has(term.tags) || has(term.name) || has(term.owner)))",
                "amiSelectorTerms: a term with alias must not have id, name, owner or tags",
            ),
            (
                "size(self) == 1 || !self.exists(term, has(term.alias))",
                "amiSelectorTerms: a term with alias must be the only term",
            ),
        ]))
    )]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// Whether instances get a public address; the subnet decides when absent.
    #[serde(
        default,
        rename = "associatePublicIPAddress",
        skip_serializing_if = "Option::is_none"
    )]
    pub associate_public_ip_address: Option<bool>,
    /// The disks of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 50),
        extend("x-kubernetes-validations" = rules(&[(
            "self.filter(mapping, has(mapping.rootVolume) && mapping.rootVolume).size() <= 1",
            "blockDeviceMappings: at most one mapping may have rootVolume: true",
        )]))
    )]
    pub block_device_mappings: Option<Vec<BlockDeviceMapping>>,
    /// Which capacity reservations may be used; terms are alternatives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 30),
        extend("x-kubernetes-validations" = rules(&[
            (
                "self.all(term, has(term.tags) || has(term.id) || has(term.instanceMatchCriteria))",
                "capacityReservationSelectorTerms: each term needs at least one of id, instanceMatchCriteria and tags",
            ),
            (
                "self.exists(term, !has(term.id) || !(has(term.tags) || has(term.ownerID) || has(term.instanceMatchCriteria)))",
                "capacityReservationSelectorTerms: must not be empty, and id stands alone: no instanceMatchCriteria, ownerID or tags beside it",
            ),
        ]))
    )]
    pub capacity_reservation_selector_terms: Option<Vec<CapacityReservationSelectorTerm>>,
    /// How long EC2 remembers idle connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// A reserved field of the EC2 API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Options of the processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    /// Whether metrics come every minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// The instance profile; excludes `role`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = rules(&[("self != ''", "instanceProfile: must not be empty; expected the name of an instance profile")])))]
    pub instance_profile: Option<String>,
    /// What happens to instance store disks; they are left alone when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// How many address prefixes each network interface gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ip_prefix_count: Option<i32>,
    /// Settings of the kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletConfiguration>,
    /// How instances reach the metadata service.
    #[serde(default)]
    pub metadata_options: MetadataOptions,
    /// The network interfaces of the instances, where the defaults do not do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 150),
        extend("x-kubernetes-validations" = rules(&[
            (
                "size(self) == 0 || self.exists(i, i.networkCardIndex == 0 && i.deviceIndex == 0 && i.interfaceType == 'interface')",
                "networkInterfaces: one entry must be the primary interface: networkCardIndex 0, deviceIndex 0, interfaceType interface",
            ),
            (
                "self.all(a, self.exists_one(b, a.networkCardIndex == b.networkCardIndex && a.deviceIndex == b.deviceIndex))",
                "networkInterfaces: each pair of networkCardIndex and deviceIndex may occur once",
            ),
            (
                "self.all(a, a.interfaceType != 'efa-only' || self.exists_one(b, a.networkCardIndex == b.networkCardIndex && b.interfaceType == 'efa-only'))",
                "networkInterfaces: a network card can have one efa-only interface",
            ),
        ]))
    )]
    pub network_interfaces: Option<Vec<NetworkInterface>>,
    /// The placement group of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// The IAM role, for which an instance profile is made; excludes `instanceProfile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = rules(&[("self != ''", "role: must not be empty; expected the name of an IAM role")])))]
    pub role: Option<String>,
    /// Which security groups the instances have; terms are alternatives.
    #[schemars(
        length(max = 30),
        extend("x-kubernetes-validations" = rules(&[
            ("size(self) > 0", "securityGroupSelectorTerms: needs at least one term"),
            (
                "self.all(term, has(term.tags) || has(term.id) || has(term.name))",
                "securityGroupSelectorTerms: each term needs at least one of id, name and tags",
            ),
            (
                "self.exists(term, !has(term.id) || !(has(term.tags) || has(term.name)))",
                "securityGroupSelectorTerms: id stands alone: no name or tags beside it",
            ),
            (
                "self.exists(term, !has(term.name) || !(has(term.tags) || has(term.id)))",
                "securityGroupSelectorTerms: name stands alone: no id or tags beside it",
            ),
        ]))
    )]
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Which subnets the instances are in; terms are alternatives.
    #[schemars(
        length(max = 30),
        extend("x-kubernetes-validations" = rules(&[
            ("size(self) > 0", "subnetSelectorTerms: needs at least one term"),
            (
                "self.all(term, has(term.tags) || has(term.id))",
                "subnetSelectorTerms: each term needs at least one of id and tags",
            ),
            (
                "self.exists(term, !has(term.id) || !has(term.tags))",
                "subnetSelectorTerms: id stands alone: no tags beside it",
            ),
        ]))
    )]
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Tags of the instances and of what belongs to them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = rules(&[
        ("!('' in self)", "tags: a key must not be empty"),
        ("!('eks:eks-cluster-name' in self)", "tags: eks:eks-cluster-name is set by the controller"),
        (
            "!self.exists(key, key.startsWith('kubernetes.io/cluster'))",
            "tags: keys that begin with kubernetes.io/cluster are set by the controller",
        ),
        ("!('karpenter.sh/nodepool' in self)", "tags: karpenter.sh/nodepool is set by the controller"),
        ("!('karpenter.sh/nodeclaim' in self)", "tags: karpenter.sh/nodeclaim is set by the controller"),
        (
            "!('karpenter.k8s.aws/ec2nodeclass' in self)",
            "tags: karpenter.k8s.aws/ec2nodeclass is set by the controller",
        ),
    ])))]
    pub tags: BTreeMap<String, String>,
    /// What runs at the first start, merged with what the family of images needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

text_enum! {
    /// What happens to instance store disks.
    InstanceStorePolicy {
        /// They become one striped disk for pods.
        Raid0 = "RAID0",
    }
}

optional_spec_root! {
    /// Settings of the AWS provider.
    EC2NodeClass(Ec2NodeClassDefinition) { spec: Ec2NodeClassSpec, status: Ec2NodeClassStatus }
}

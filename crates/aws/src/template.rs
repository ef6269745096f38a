//! Launch templates: what every instance of a node class has, in the words of EC2's `CreateLaunchTemplate`.
//!
//! The name comes from the content, so the same content is made once, by whoever comes first, and a changed class gets
//! another template. Nothing about a single claim is in it: that is in the tags of the fleet request.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde_json::{Value, json};
use veneer_api::ec2_node_class::{AmiFamily, BlockDevice, BlockDeviceMapping, Toggle};
use veneer_api::labels::{karpenter, kubernetes, veneer};
use veneer_api::{EC2NodeClass, NodeClaim};
use veneer_engine::launch::{LaunchTemplate, TargetCapacity};
use veneer_engine::quantity::Quantity;

use crate::names;
use crate::node_class::family;
use crate::user_data::{Bootstrap, Error, Taint, go_duration};

const GIB: f64 = 1_073_741_824.0;
/// How large a root volume is whose class does not say it, in GiB.
const ROOT: u64 = 20;
/// Regions whose metadata service does not know IPv6.
const NO_METADATA_IPV6: [&str; 6] = [
    "us-iso-east-1",
    "us-iso-west-1",
    "us-isob-east-1",
    "us-isob-west-1",
    "us-isof-south-1",
    "us-isof-east-1",
];

/// What is the same for every launch in a cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The name.
    pub name: String,
    /// The version of Kubernetes, as `1.33`.
    pub version: String,
    /// The address of the API server, as nodes reach it.
    pub endpoint: String,
    /// Its certificates, in base64.
    pub ca_bundle: Option<String>,
    /// The addresses of Services.
    pub service_cidr: Option<String>,
    /// The cluster's name server.
    pub dns: Option<String>,
}

impl Cluster {
    fn is_ipv6(&self) -> bool {
        self.dns.as_deref().is_some_and(|dns| dns.contains(':'))
    }
}

/// One launch template to be.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) region: &'a str,
    pub(crate) class: &'a EC2NodeClass,
    pub(crate) claim: &'a NodeClaim,
    pub(crate) part: &'a LaunchTemplate,
    pub(crate) capacity_type: &'a str,
    pub(crate) target: TargetCapacity,
}

/// Tags as EC2 has them.
pub(crate) fn tag_list(tags: &BTreeMap<String, String>) -> Vec<Value> {
    let tags = tags.iter();
    tags.map(|(key, value)| json!({"Key": key, "Value": value}))
        .collect()
}

impl Draft<'_> {
    /// The name and the request that makes it.
    pub(crate) fn request(&self) -> Result<(String, Value), Error> {
        let spec = self.class.spec.clone().unwrap_or_default();
        let status = self.class.status.clone().unwrap_or_default();
        let family = family(&spec);
        let tags = names::launch_tags(&self.cluster.name, self.class, self.claim);
        let mut specifications = vec![json!({"ResourceType": "network-interface", "Tag": tag_list(&tags)})];
        if self.capacity_type == karpenter::CAPACITY_TYPE_SPOT {
            specifications.push(json!({"ResourceType": "spot-instances-request", "Tag": tag_list(&tags)}));
        }
        let mappings = spec.block_device_mappings.clone().filter(|list| !list.is_empty());
        let mut mappings = mappings.unwrap_or_else(|| default_disks(&family));
        let metadata = &spec.metadata_options;
        let ipv6 = (!NO_METADATA_IPV6.contains(&self.region)).then(|| metadata.http_protocol_ipv6.as_str());
        let is_reserved = self.part.reservation_id.is_some();
        let reservation = json!({
            "CapacityReservationPreference": if is_reserved { "capacity-reservations-only" } else { "none" },
            "CapacityReservationTarget": {"CapacityReservationId": self.part.reservation_id},
        });
        let market = match self.target {
            TargetCapacity::CapacityBlock => Some("capacity-block"),
            TargetCapacity::ReservedCapacity => Some("interruptible-capacity-reservation"),
            TargetCapacity::OnDemand | TargetCapacity::Spot => None,
        };
        let annotations = self.claim.metadata.annotations.as_ref();
        let hibernation = annotations.and_then(|all| all.get(veneer::HIBERNATION));
        let hibernates = hibernation.is_some();
        if let Some(memory) = hibernation {
            take_memory(&mut mappings, gibibytes(memory).unwrap_or_default());
        }
        let enclaves = self.claim.spec.resources.requests.keys();
        let enclaves = enclaves.clone().any(|key| key == "eks.amazonaws.com/nip-slots");
        let nested = spec
            .cpu_options
            .as_ref()
            .and_then(|one| one.nested_virtualization.as_ref());
        let data = json!({
            "BlockDeviceMapping": mappings.iter().map(disk).collect::<Vec<_>>(),
            "CpuOptions": {"NestedVirtualization": nested.map(Toggle::as_str)},
            "IamInstanceProfile": {"Name": status.instance_profile},
            "Monitoring": {"Enabled": spec.detailed_monitoring.unwrap_or_default()},
            "UserData": self.user_data(&family)?,
            "ImageId": self.part.image_id,
            "MetadataOptions": {
                "HttpEndpoint": metadata.http_endpoint.as_str(),
                "HttpProtocolIpv6": ipv6,
                "HttpPutResponseHopLimit": metadata.http_put_response_hop_limit,
                "HttpTokens": metadata.http_tokens.as_str(),
                // An account's default must not let tags in: ours have characters that the service refuses.
                "InstanceMetadataTags": "disabled",
            },
            "NetworkInterface": self.interfaces(),
            "TagSpecification": specifications,
            "Placement": {
                "Tenancy": self.part.tenancy,
                "GroupId": spec.placement_group_selector.as_ref().and_then(|one| one.id.clone()),
                "GroupName": spec.placement_group_selector.as_ref().and_then(|one| one.name.clone()),
            },
            "EnclaveOptions": {"Enabled": enclaves},
            "HibernationOptions": {"Configured": hibernates.then_some(true)},
            "CapacityReservationSpecification": reservation,
            "InstanceMarketOptions": {"MarketType": market},
        });
        let name = names::template(&self.cluster.name, &data.to_string());
        let request = json!({
            "LaunchTemplateName": name,
            "LaunchTemplateData": data,
            "TagSpecification": [{"ResourceType": "launch-template", "Tag": tag_list(&tags)}],
        });
        Ok((name, request))
    }

    fn user_data(&self, family: &AmiFamily) -> Result<String, Error> {
        let spec = self.class.spec.clone().unwrap_or_default();
        let mut kubelet = spec.kubelet.clone().unwrap_or_default();
        kubelet
            .max_pods
            .get_or_insert(i32::try_from(self.part.max_pods).unwrap_or(i32::MAX));
        if kubelet.cluster_dns.is_empty() {
            kubelet.cluster_dns.extend(self.cluster.dns.clone());
        }
        for length in kubelet.eviction_soft_grace_period.values_mut() {
            *length = go_duration(length);
        }
        let claimed = self
            .claim
            .spec
            .taints
            .iter()
            .chain(&self.claim.spec.startup_taints);
        let mut taints: Vec<Taint> = claimed
            .map(|one| Taint {
                key: one.key.clone(),
                value: one.value.clone().unwrap_or_default(),
                effect: one.effect.to_string(),
            })
            .collect();
        if !taints.iter().any(|one| one.key == karpenter::UNREGISTERED_TAINT) {
            taints.push(Taint {
                key: karpenter::UNREGISTERED_TAINT.to_owned(),
                value: String::new(),
                effect: "NoExecute".to_owned(),
            });
        }
        let mut labels = self.claim.metadata.labels.clone().unwrap_or_default();
        labels.insert(karpenter::CAPACITY_TYPE.to_owned(), self.capacity_type.to_owned());
        // The kubelet registers with all taints itself, so a taint that somebody takes off stays off.
        labels.insert(karpenter::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
        labels.retain(|key, _| !is_refused(key));
        let bootstrap = Bootstrap {
            cluster_name: self.cluster.name.clone(),
            endpoint: self.cluster.endpoint.clone(),
            ca_bundle: self.cluster.ca_bundle.clone(),
            service_cidr: self.cluster.service_cidr.clone(),
            kubelet,
            taints,
            labels,
            custom: spec.user_data.clone(),
            raid0: spec.instance_store_policy.is_some(),
            binds_by_default: binds_by_default(self.class),
        };
        bootstrap.render(family)
    }

    fn interfaces(&self) -> Vec<Value> {
        let spec = self.class.spec.clone().unwrap_or_default();
        let status = self.class.status.clone().unwrap_or_default();
        let groups: Vec<String> = status.security_groups.into_iter().map(|one| one.id).collect();
        let ipv6 = self.cluster.is_ipv6();
        let tracking = spec.connection_tracking.as_ref();
        let base = json!({
            "AssociatePublicIpAddress": spec.associate_public_ip_address,
            "Ipv4PrefixCount": spec.ip_prefix_count.filter(|_| !ipv6),
            "Ipv6PrefixCount": spec.ip_prefix_count.filter(|_| ipv6),
            "PrimaryIpv6": ipv6.then_some(true),
            "Ipv6AddressCount": ipv6.then_some(1),
            "ConnectionTrackingSpecification": {
                "TcpEstablishedTimeout": tracking.and_then(|one| one.tcp_established_timeout),
                "UdpStreamTimeout": tracking.and_then(|one| one.udp_stream_timeout),
                "UdpTimeout": tracking.and_then(|one| one.udp_timeout),
            },
        });
        let with = |more: Value| {
            let mut one = more;
            if let Some(fields) = one.as_object_mut() {
                fields.insert("SecurityGroupId".to_owned(), groups.clone().into());
            }
            one
        };
        let plus = |mut one: Value| {
            if let (Some(fields), Some(base)) = (one.as_object_mut(), base.as_object()) {
                fields.extend(base.clone());
            }
            one
        };
        if let Some(own) = spec.network_interfaces.filter(|list| !list.is_empty()) {
            let interface = |one: &veneer_api::ec2_node_class::NetworkInterface| {
                let place = with(json!({
                    "NetworkCardIndex": one.network_card_index,
                    "DeviceIndex": one.device_index,
                    "InterfaceType": one.interface_type.as_str(),
                }));
                // An interface for EFA alone has no addresses to speak of.
                if one.interface_type.as_str() == "efa-only" {
                    place
                } else {
                    plus(place)
                }
            };
            return own.iter().map(interface).collect();
        }
        if self.part.efa_count > 0 {
            let interface = |at: i64| {
                let place =
                    json!({"NetworkCardIndex": at, "DeviceIndex": i64::from(at > 0), "InterfaceType": "efa"});
                plus(with(place))
            };
            return (0..self.part.efa_count).map(interface).collect();
        }
        vec![plus(with(json!({"DeviceIndex": 0})))]
    }
}

/// Labels that the kubelet may not set on its own node.
fn is_refused(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["node-restriction.kubernetes.io", "kubernetes.io", "k8s.io"]
        .iter()
        .any(|refused| domain == *refused || domain.ends_with(&format!(".{refused}")))
        || key == kubernetes::HOSTNAME
}

/// Whether the Bottlerocket images of a class know by themselves what belongs on instance store disks: since 1.46. The
/// version is that of the alias, else what the names of the images say.
fn binds_by_default(class: &EC2NodeClass) -> bool {
    let terms = class
        .spec
        .as_ref()
        .map_or(&[][..], |spec| &spec.ami_selector_terms);
    let amis = class.status.as_ref().map_or(&[][..], |status| &status.amis);
    let of_name = |name: &str| {
        let mut parts = name.split('-');
        parts
            .find(|part| part.starts_with('v') && part.contains('.'))
            .map(str::to_owned)
    };
    let names = amis.iter().filter(|ami| {
        let name = ami.name.as_deref();
        name.is_some_and(|name| name.contains("bottlerocket"))
    });
    let of_amis = |id: Option<&str>| {
        let mut chosen = names.clone().filter(|ami| id.is_none_or(|id| ami.id == id));
        chosen.find_map(|ami| of_name(ami.name.as_deref().unwrap_or_default()))
    };
    let alias = terms
        .iter()
        .filter_map(|term| term.alias.as_deref()?.split_once('@'));
    let version = alias
        .map(|(_, version)| version.to_owned())
        .next()
        .or_else(|| terms.iter().find_map(|term| of_name(term.name.as_deref()?)))
        .or_else(|| terms.iter().find_map(|term| of_amis(Some(term.id.as_deref()?))))
        .or_else(|| of_amis(None));
    let version = version.unwrap_or_default();
    let mut parts = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor)), Some(_)) => (major, minor) >= (1, 46),
        _ => version == "latest",
    }
}

fn default_disks(family: &AmiFamily) -> Vec<BlockDeviceMapping> {
    let disk = |device: &str, size: &str| BlockDeviceMapping {
        device_name: Some(device.to_owned()),
        ebs: Some(BlockDevice {
            encrypted: Some(true),
            volume_type: Some("gp3".into()),
            volume_size: Some(ApiQuantity(size.to_owned())),
            ..BlockDevice::default()
        }),
        ..BlockDeviceMapping::default()
    };
    match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => vec![disk("/dev/xvda", "20Gi")],
        AmiFamily::Bottlerocket => vec![disk("/dev/xvda", "4Gi"), disk("/dev/xvdb", "20Gi")],
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            vec![disk("/dev/sda1", "50Gi")]
        }
        _ => Vec::new(),
    }
}

fn disk(mapping: &BlockDeviceMapping) -> Value {
    let ebs = mapping.ebs.clone().unwrap_or_default();
    json!({
        "DeviceName": mapping.device_name,
        "Ebs": {
            "DeleteOnTermination": ebs.delete_on_termination,
            "Encrypted": ebs.encrypted,
            "VolumeType": ebs.volume_type.as_ref().map(ToString::to_string),
            "Iops": ebs.iops,
            "Throughput": ebs.throughput,
            "KmsKeyId": ebs.kms_key_id,
            "SnapshotId": ebs.snapshot_id,
            "VolumeInitializationRate": ebs.volume_initialization_rate,
            "VolumeSize": ebs.volume_size.as_ref().and_then(|size| gibibytes(&size.0)),
        },
    })
}

/// Hibernation writes the memory to the root volume, which has to be encrypted and large enough.
fn take_memory(mappings: &mut [BlockDeviceMapping], memory: u64) {
    if let Some(root) = mappings.first_mut() {
        let ebs = root.ebs.get_or_insert_default();
        let size = ebs.volume_size.as_ref().and_then(|size| gibibytes(&size.0));
        ebs.encrypted = Some(true);
        ebs.volume_size = Some(ApiQuantity(format!("{}Gi", size.unwrap_or(ROOT) + memory)));
    }
}

/// Whole GiB, rounded up.
fn gibibytes(text: &str) -> Option<u64> {
    let bytes = text.parse::<Quantity>().ok()?.value();
    let size = (bytes as f64 / GIB).ceil();
    (size > 0.0).then_some(size as u64)
}

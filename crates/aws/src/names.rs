//! Names and tags of what is made in AWS: by them it is found again, by whoever comes after a crash.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use veneer_api::labels::{aws, karpenter};
use veneer_api::{EC2NodeClass, NodeClaim};
use veneer_engine::plan::{name, node_pool_of};

/// The tag that says which NodeClaim an instance belongs to.
pub const CLAIM_TAG: &str = "karpenter.sh/nodeclaim";
/// The tag that says which cluster something belongs to.
pub const CLUSTER_TAG: &str = "eks:eks-cluster-name";

/// Twenty hexadecimal digits of a hash.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize()
        .iter()
        .take(10)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The name of a launch template with this content.
pub(crate) fn template(cluster: &str, content: &str) -> String {
    format!("karpenter.k8s.aws/{}", digest(&[cluster, content]))
}

/// The name of the instance profile that is made for a class and a role.
pub(crate) fn profile(cluster: &str, region: &str, class: &EC2NodeClass, role: &str) -> String {
    let uid = class.metadata.uid.as_deref().unwrap_or_default();
    let cluster_part: String = cluster.chars().take(80).collect();
    format!("{cluster_part}_{}", digest(&[region, cluster, uid, role]))
}

/// Tags of everything that is made for a class.
pub(crate) fn class_tags(cluster: &str, class: &EC2NodeClass) -> BTreeMap<String, String> {
    BTreeMap::from([
        (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
        (CLUSTER_TAG.to_owned(), cluster.to_owned()),
        (aws::NODE_CLASS.to_owned(), name(&class.metadata).to_owned()),
    ])
}

/// Tags of a launch: those of the class, and to whom it belongs.
pub(crate) fn launch_tags(
    cluster: &str,
    class: &EC2NodeClass,
    claim: &NodeClaim,
) -> BTreeMap<String, String> {
    let mut tags = class
        .spec
        .as_ref()
        .map(|spec| spec.tags.clone())
        .unwrap_or_default();
    tags.extend(class_tags(cluster, class));
    tags.insert(
        karpenter::NODEPOOL.to_owned(),
        node_pool_of(&claim.metadata).to_owned(),
    );
    tags
}

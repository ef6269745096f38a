//! Label keys: which are well known, which are aliases of others, which are restricted, and what a valid key and
//! value look like.

use std::collections::BTreeSet;

use crate::vocabulary::{Symbol, Vocabulary};

/// The NodePool a node belongs to.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
/// How capacity is bought: `spot`, `on-demand` or `reserved`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// Availability zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Region.
pub const REGION: &str = "topology.kubernetes.io/region";
/// Instance type name.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Processor architecture.
pub const ARCH: &str = "kubernetes.io/arch";
/// Operating system.
pub const OS: &str = "kubernetes.io/os";
/// Node name as a label.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Windows build number.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";

/// The id of the capacity reservation that an EC2 offering belongs to.
pub const RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
/// Whether that reservation is open-ended (`default`) or a `capacity-block`.
pub const RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
/// Whether AWS may take back what was launched into that reservation.
pub const RESERVATION_INTERRUPTIBLE: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
/// The size of an EC2 type, e.g. `24xlarge`.
pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
/// Whether an EC2 instance has hardware of its own: `default` or `dedicated`.
pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";

/// Capacity bought at the spot price, which AWS may take back.
pub const SPOT: &str = "spot";
/// Capacity bought at the on-demand price.
pub const ON_DEMAND: &str = "on-demand";
/// Capacity that a reservation holds.
pub const RESERVED: &str = "reserved";

/// The capacity types that exist.
pub const CAPACITY_TYPES: [&str; 3] = [ON_DEMAND, RESERVED, SPOT];

/// Keys that every provider defines.
const WELL_KNOWN: [&str; 8] = [
    NODE_POOL,
    ZONE,
    REGION,
    INSTANCE_TYPE,
    ARCH,
    OS,
    CAPACITY_TYPE,
    WINDOWS_BUILD,
];

/// Keys that Karpenter's KWOK provider adds.
const WELL_KNOWN_KWOK: [&str; 4] = [
    "karpenter.kwok.sh/instance-cpu",
    "karpenter.kwok.sh/instance-family",
    "karpenter.kwok.sh/instance-memory",
    "karpenter.kwok.sh/instance-size",
];

/// Keys that Karpenter's AWS provider adds.
const WELL_KNOWN_AWS: [&str; 28] = [
    "karpenter.k8s.aws/capacity-reservation-id",
    "karpenter.k8s.aws/capacity-reservation-interruptible",
    "karpenter.k8s.aws/capacity-reservation-type",
    "karpenter.k8s.aws/instance-accelerator-count",
    "karpenter.k8s.aws/instance-accelerator-manufacturer",
    "karpenter.k8s.aws/instance-accelerator-name",
    "karpenter.k8s.aws/instance-capability-flex",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-cpu-manufacturer",
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz",
    "karpenter.k8s.aws/instance-ebs-bandwidth",
    "karpenter.k8s.aws/instance-encryption-in-transit-supported",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-generation",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.k8s.aws/instance-gpu-memory",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-hypervisor",
    "karpenter.k8s.aws/instance-local-nvme",
    "karpenter.k8s.aws/instance-memory",
    "karpenter.k8s.aws/instance-network-bandwidth",
    "karpenter.k8s.aws/instance-size",
    "karpenter.k8s.aws/instance-tenancy",
    "karpenter.k8s.aws/placement-group-id",
    "karpenter.k8s.aws/placement-group-partition",
    "topology.k8s.aws/zone-id",
];

/// Which labels a provider knows, and which domains it keeps to itself. They differ between providers, and what
/// an overlay or a pod may select differs with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRules {
    well_known: BTreeSet<String>,
    restricted_domains: Vec<&'static str>,
}

impl LabelRules {
    fn with(keys: &[&str], domain: Option<&'static str>) -> Self {
        Self {
            well_known: WELL_KNOWN
                .iter()
                .chain(keys)
                .map(|key| (*key).to_owned())
                .collect(),
            restricted_domains: std::iter::once("karpenter.sh").chain(domain).collect(),
        }
    }

    /// The rules that hold for every provider.
    #[must_use]
    pub fn core() -> Self {
        Self::with(&[], None)
    }

    /// The rules of Karpenter's KWOK provider.
    #[must_use]
    pub fn kwok() -> Self {
        Self::with(&WELL_KNOWN_KWOK, Some("karpenter.kwok.sh"))
    }

    /// The rules of Karpenter's AWS provider.
    #[must_use]
    pub fn aws() -> Self {
        Self::with(&WELL_KNOWN_AWS, Some("karpenter.k8s.aws"))
    }

    /// Makes `key` well known; the KWOK provider does so with every label of its offerings.
    pub fn add_well_known(&mut self, key: &str) {
        if !self.well_known.contains(key) {
            self.well_known.insert(key.to_owned());
        }
    }

    /// The well-known keys, sorted.
    pub fn well_known(&self) -> impl Iterator<Item = &str> {
        self.well_known.iter().map(String::as_str)
    }

    /// The domains whose labels only the provisioner sets.
    #[must_use]
    pub fn restricted_domains(&self) -> &[&'static str] {
        &self.restricted_domains
    }

    /// Whether a selector may not use `key`, because the provisioner sets it by itself.
    #[must_use]
    pub fn is_restricted(&self, key: &str) -> bool {
        if self.well_known.contains(key) {
            return false;
        }
        let domain = domain(key);
        key == HOSTNAME
            || self.restricted_domains.iter().any(|restricted| {
                domain
                    .strip_suffix(restricted)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            })
    }
}

/// What an older or aliased key is called today.
#[must_use]
pub fn normalise(key: &str) -> &str {
    match key {
        "failure-domain.beta.kubernetes.io/zone" => ZONE,
        "failure-domain.beta.kubernetes.io/region" => REGION,
        "beta.kubernetes.io/arch" => ARCH,
        "beta.kubernetes.io/os" => OS,
        "beta.kubernetes.io/instance-type" => INSTANCE_TYPE,
        _ => key,
    }
}

/// The domain of a key, e.g. `karpenter.sh` of `karpenter.sh/nodepool`; empty without one.
#[must_use]
pub fn domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

/// A set of label keys, interned.
#[derive(Clone, Debug, Default)]
pub struct LabelSet {
    keys: BTreeSet<Symbol>,
}

impl LabelSet {
    /// The empty set: every label must be defined.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The set of `keys`.
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a str>, vocabulary: &mut Vocabulary) -> Self {
        Self {
            keys: keys.into_iter().map(|key| vocabulary.intern(key)).collect(),
        }
    }

    /// The set of those `keys` that something in the vocabulary can be about.
    pub fn known<'a>(keys: impl IntoIterator<Item = &'a str>, vocabulary: &Vocabulary) -> Self {
        Self {
            keys: keys.into_iter().filter_map(|key| vocabulary.get(key)).collect(),
        }
    }

    /// Whether `key` is in the set.
    #[must_use]
    pub fn contains(&self, key: Symbol) -> bool {
        self.keys.contains(&key)
    }
}

/// Why a string is no label key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// There is no name.
    #[error("is empty; expected a name such as `team` or `example.com/team`")]
    Empty,
    /// The name part is longer than Kubernetes allows.
    #[error("has a name of more than 63 characters")]
    TooLong,
    /// The name part has a character that is not allowed there.
    #[error("may have letters, digits, `-`, `_` and `.`, and must begin and end with a letter or digit")]
    BadName,
    /// The part before the slash is no DNS name.
    #[error("has a prefix that is no lower-case DNS name of at most 253 characters")]
    BadPrefix,
    /// There is more than one slash.
    #[error("may have one `/` at most")]
    TooManySlashes,
}

/// Checks a label key, as Kubernetes checks a qualified name.
pub fn check_key(key: &str) -> Result<(), LabelError> {
    let mut parts = key.split('/');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    if parts.next().is_some() {
        return Err(LabelError::TooManySlashes);
    }
    match second {
        None => check_name(first),
        Some(name) => {
            if !is_dns_subdomain(first) {
                return Err(LabelError::BadPrefix);
            }
            check_name(name)
        }
    }
}

/// Checks a label value, as Kubernetes does: empty, or like a name.
pub fn check_value(value: &str) -> Result<(), LabelError> {
    if value.is_empty() {
        Ok(())
    } else {
        check_name(value)
    }
}

fn check_name(name: &str) -> Result<(), LabelError> {
    if name.is_empty() {
        return Err(LabelError::Empty);
    }
    if name.len() > 63 {
        return Err(LabelError::TooLong);
    }
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = name.as_bytes();
    let edges = bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric);
    if edges && bytes.iter().all(|&byte| inside(byte)) {
        Ok(())
    } else {
        Err(LabelError::BadName)
    }
}

fn is_dns_subdomain(text: &str) -> bool {
    let lower = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|label| {
            let bytes = label.as_bytes();
            bytes.first().is_some_and(lower)
                && bytes.last().is_some_and(lower)
                && bytes.iter().all(|byte| lower(byte) || *byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restricted_keys_are_those_the_provisioner_sets() {
        for (key, restricted) in [
            ("karpenter.sh/nodepool", false),
            ("karpenter.sh/capacity-type", false),
            ("karpenter.sh/initialized", true),
            ("sub.karpenter.sh/anything", true),
            ("notkarpenter.sh/anything", false),
            ("kubernetes.io/hostname", true),
            ("team", false),
        ] {
            assert_eq!(LabelRules::core().is_restricted(key), restricted, "{key}");
        }
        assert!(LabelRules::kwok().is_restricted("karpenter.kwok.sh/other"));
        assert!(!LabelRules::kwok().is_restricted("karpenter.kwok.sh/instance-cpu"));
        assert!(
            LabelRules::core().is_restricted("karpenter.sh/x")
                && !LabelRules::core().is_restricted("a.aws/x")
        );
    }

    #[test]
    fn keys_and_values_are_checked_as_kubernetes_checks_them() {
        for good in ["Test", "test.com/Test", "a_b.c-d", "1", &"x".repeat(63)] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", LabelError::Empty),
            ("test/", LabelError::Empty),
            ("/test", LabelError::BadPrefix),
            ("Test.com/test", LabelError::BadPrefix),
            ("a..b/test", LabelError::BadPrefix),
            ("test/test/test", LabelError::TooManySlashes),
            ("test.com.com}", LabelError::BadName),
            ("-x", LabelError::BadName),
            (&"x".repeat(64), LabelError::TooLong),
        ] {
            assert_eq!(check_key(bad), Err(why), "{bad}");
        }
        assert_eq!(check_value(""), Ok(()));
        assert_eq!(check_value("a b"), Err(LabelError::BadName));
    }
}

//! What a scenario exercises.

use std::str::FromStr;

use anyhow::{Result, bail};

macro_rules! constraints {
    ($($name:ident = $text:literal, $about:literal;)*) => {
        /// One thing that scheduling has to respect. Scenarios exercise each alone and several together.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Constraint {
            $(#[doc = $about] $name,)*
        }

        impl Constraint {
            /// Every constraint.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name on the command line and in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

constraints! {
    Generic = "generic", "Sizes only.";
    NodeSelector = "node-selector", "Node selectors, restricted labels among them.";
    NodeAffinity = "node-affinity", "Required node affinity with several terms.";
    PreferredNodeAffinity = "preferred-node-affinity", "Preferred node affinity.";
    Taints = "taints", "Taints of pools and tolerations.";
    PoolRequirements = "pool-requirements", "Requirements and labels of NodePools.";
    Weights = "weights", "Several weighted NodePools.";
    Limits = "limits", "Limits of NodePools.";
    MinValues = "min-values", "`minValues`, strict or best effort.";
    DaemonSets = "daemonsets", "DaemonSets.";
    ExistingNodes = "existing-nodes", "Initialised nodes with bound pods.";
    UnreadyNodes = "unready-nodes", "Nodes that are not initialised or carry startup taints.";
    InFlight = "in-flight", "NodeClaims without a node.";
    Deleting = "deleting-nodes", "Nodes that are going away, whose pods move.";
    ZoneSpread = "zone-spread", "Topology spread over zones.";
    HostnameSpread = "hostname-spread", "Topology spread over nodes.";
    CapacityTypeSpread = "capacity-type-spread", "Topology spread over capacity types.";
    SpreadOptions = "spread-options", "minDomains, matchLabelKeys, node inclusion policies, ScheduleAnyway.";
    PodAffinity = "pod-affinity", "Required pod affinity.";
    PodAntiAffinity = "pod-anti-affinity", "Required pod anti-affinity.";
    PreferredPodAffinity = "preferred-pod-affinity", "Preferred pod affinity and anti-affinity.";
    Namespaces = "namespaces", "Affinity across namespaces.";
    HostPorts = "host-ports", "Host ports.";
    Volumes = "volumes", "Zonal volumes and storage classes with allowed topologies.";
    AttachLimits = "attach-limits", "Limits of attached volumes on existing nodes.";
    ExtendedResources = "extended-resources", "Extended resources and huge pages from overlays.";
    PriceOverlays = "price-overlays", "Overlays that change prices.";
    Containers = "containers", "Init containers, sidecars and pod overhead.";
    IgnorePreferences = "ignore-preferences", "The policy that ignores preferences.";
    Reserved = "reserved", "Reserved offerings.";
    FullCatalogue = "full-catalogue", "The whole catalogue instead of a part.";
}

impl FromStr for Constraint {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(found) = Self::ALL.iter().find(|constraint| constraint.name() == text) {
            return Ok(*found);
        }
        let known: Vec<_> = Self::ALL.iter().map(|constraint| constraint.name()).collect();
        bail!("unknown constraint {text:?}; known: {}", known.join(", "))
    }
}

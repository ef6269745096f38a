//! What can be in a case.

use std::fmt;

/// One thing that a cluster or a workload can have.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Feature {
    /// Hard topology spread over zones.
    ZoneSpread,
    /// Hard topology spread over hosts.
    HostSpread,
    /// Hard topology spread over spot and on-demand.
    CapacitySpread,
    /// Topology spread where possible, over any of these.
    SoftSpread,
    /// `minDomains` of a hard spread over zones.
    MinDomains,
    /// `matchLabelKeys: [pod-template-hash]`, with a rollout.
    MatchLabelKeys,
    /// All pods of a workload in one zone.
    ZoneAffinity,
    /// All pods of a workload on one host.
    HostAffinity,
    /// No two pods of a workload in one zone.
    ZoneAntiAffinity,
    /// No two pods of a workload on one host.
    HostAntiAffinity,
    /// Not with the pods of another workload on a host.
    OtherAntiAffinity,
    /// Pod affinity or anti-affinity where possible.
    PreferredPodAffinity,
    /// A node selector.
    NodeSelector,
    /// A required node affinity, with one term or several.
    NodeAffinity,
    /// A preferred node affinity.
    PreferredNodeAffinity,
    /// Volumes in zones.
    Volumes,
    /// Ports of the host.
    HostPorts,
    /// A tainted NodePool, and pods that tolerate it.
    Taints,
    /// Pods of high priority that come later.
    Priorities,
    /// DaemonSets with requests.
    DaemonSets,
    /// Jobs that finish.
    Jobs,
    /// StatefulSets.
    StatefulSets,
    /// Pods without an owner.
    BarePods,
    /// A template that changes while its pods run or wait.
    Rollouts,
    /// More replicas after a while.
    ScaleUp,
    /// Fewer replicas after a while.
    ScaleDown,
    /// PodDisruptionBudgets.
    Budgets,
    /// NodePools with weights.
    Weights,
    /// A NodePool with a limit of CPUs.
    Limits,
    /// Nodes that take seconds to register.
    SlowRegistration,
    /// A node that is not ready for a while.
    NotReady,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 31] = [
        Feature::ZoneSpread,
        Feature::HostSpread,
        Feature::CapacitySpread,
        Feature::SoftSpread,
        Feature::MinDomains,
        Feature::MatchLabelKeys,
        Feature::ZoneAffinity,
        Feature::HostAffinity,
        Feature::ZoneAntiAffinity,
        Feature::HostAntiAffinity,
        Feature::OtherAntiAffinity,
        Feature::PreferredPodAffinity,
        Feature::NodeSelector,
        Feature::NodeAffinity,
        Feature::PreferredNodeAffinity,
        Feature::Volumes,
        Feature::HostPorts,
        Feature::Taints,
        Feature::Priorities,
        Feature::DaemonSets,
        Feature::Jobs,
        Feature::StatefulSets,
        Feature::BarePods,
        Feature::Rollouts,
        Feature::ScaleUp,
        Feature::ScaleDown,
        Feature::Budgets,
        Feature::Weights,
        Feature::Limits,
        Feature::SlowRegistration,
        Feature::NotReady,
    ];

    /// Whether it is a property of the whole cluster; the others belong to one workload each.
    #[must_use]
    pub fn is_of_the_cluster(self) -> bool {
        matches!(
            self,
            Feature::DaemonSets
                | Feature::Weights
                | Feature::Limits
                | Feature::SlowRegistration
                | Feature::NotReady
        )
    }

    /// Whether two features cannot be had by the same workload: together no pod could run, or both decide its kind.
    #[must_use]
    pub fn excludes(self, other: Feature) -> bool {
        let both_in = |group: &[Feature]| self != other && group.contains(&self) && group.contains(&other);
        both_in(&[
            Feature::ZoneSpread,
            Feature::MinDomains,
            Feature::ZoneAffinity,
            Feature::ZoneAntiAffinity,
            Feature::HostAffinity,
            Feature::Volumes,
        ]) || both_in(&[
            Feature::HostSpread,
            Feature::HostAffinity,
            Feature::HostAntiAffinity,
            Feature::HostPorts,
        ]) || both_in(&[
            Feature::CapacitySpread,
            Feature::HostAffinity,
            Feature::NodeSelector,
        ]) || both_in(&[
            Feature::CapacitySpread,
            Feature::HostAffinity,
            Feature::NodeAffinity,
        ]) || both_in(&[
            Feature::Jobs,
            Feature::StatefulSets,
            Feature::BarePods,
            Feature::Rollouts,
        ]) || both_in(&[
            Feature::Jobs,
            Feature::BarePods,
            Feature::ScaleUp,
            Feature::ScaleDown,
        ]) || both_in(&[
            Feature::Jobs,
            Feature::BarePods,
            Feature::StatefulSets,
            Feature::MatchLabelKeys,
        ]) || both_in(&[Feature::Jobs, Feature::BarePods, Feature::Volumes])
            || both_in(&[Feature::MatchLabelKeys, Feature::Volumes])
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

//! Why a node stays, with numbers, and what would free it.

use std::fmt;

use k8s_openapi::jiff::Timestamp;

/// One thing that keeps a node. All blockers of a node have to go before it does.
#[derive(Clone, Debug, PartialEq)]
pub enum Blocker {
    /// No NodeClaim stands behind it.
    Unmanaged,
    /// The NodePool that made it is gone.
    NoPool {
        /// The name that it had.
        pool: String,
    },
    /// It has not joined completely.
    NotInitialised,
    /// The node, or its claim, says so.
    NodeAnnotation,
    /// It is kept as spare capacity.
    Spare,
    /// Its NodePool has a fixed number of nodes.
    StaticPool {
        /// The pool.
        pool: String,
    },
    /// Pods are expected on it.
    Nominated {
        /// Until then.
        until: Timestamp,
    },
    /// Pods that wait for a place have room on it.
    Coming {
        /// The pods.
        pods: Vec<String>,
    },
    /// It has just taken the place of others that are not gone yet.
    Replaces {
        /// Their claims.
        claims: Vec<String>,
    },
    /// Its pool does not consolidate.
    ConsolidationOff {
        /// The pool.
        pool: String,
    },
    /// Its pool consolidates empty nodes only.
    OnlyEmpty {
        /// The pool.
        pool: String,
        /// How many pods would have to leave.
        pods: usize,
    },
    /// When pods of this workload were last moved, a node had to be launched for them.
    Undone {
        /// One of them.
        pod: String,
        /// Until then they are not moved again.
        until: Timestamp,
    },
    /// The pool weighs what is saved against what is disturbed.
    Balanced {
        /// The pool.
        pool: String,
        /// What would be saved, as a share of what the pool costs.
        saved: f64,
        /// What would be disturbed, as a share of what disturbing the whole pool would be.
        disturbed: f64,
    },
    /// The nodes that have room for its pods may not take them yet.
    Destinations {
        /// The pods.
        pods: Vec<String>,
        /// The nodes.
        nodes: Vec<String>,
        /// When all of them may.
        until: Timestamp,
    },
    /// Pods have come or gone lately.
    Quiet {
        /// When it has been quiet for long enough.
        until: Timestamp,
        /// How long the pool wants it to be.
        consolidate_after: String,
    },
    /// A pod says so.
    PodAnnotation {
        /// The pod.
        pod: String,
        /// Until then, if the pod names a duration.
        until: Option<Timestamp>,
    },
    /// A PodDisruptionBudget does not let a pod go.
    Pdb {
        /// The pod.
        pod: String,
        /// The budget.
        pdb: String,
        /// How many of its pods are healthy.
        healthy: i32,
        /// How many have to be.
        desired: i32,
    },
    /// Kubernetes refuses to evict a pod that several budgets select.
    SeveralPdbs {
        /// The pod.
        pod: String,
        /// The budgets.
        pdbs: Vec<String>,
    },
    /// What it costs is not known.
    NoPrice {
        /// The type, capacity type and zone that are not in the catalogue.
        offering: String,
    },
    /// Pods would find no place at all.
    NoPlace {
        /// The pods.
        pods: Vec<String>,
    },
    /// A replacement comes before its node goes, and the limits have no room for both.
    Limits {
        /// The pool.
        pool: String,
        /// The pods that would need the replacement.
        pods: Vec<String>,
    },
    /// Pods would need more than one new node.
    SeveralNodes {
        /// The pods without room on other nodes.
        pods: Vec<String>,
        /// How many new nodes.
        nodes: usize,
    },
    /// Pods would need a node that is still starting.
    Starting {
        /// That node.
        node: String,
    },
    /// The cheapest node for the pods that have no room elsewhere is not cheaper.
    Price {
        /// Those pods.
        pods: Vec<String>,
        /// What the node costs, in dollars per hour.
        price: f64,
        /// What the cheapest replacement costs, with its type.
        cheapest: Option<(String, f64)>,
        /// What a replacement may cost at most.
        limit: f64,
    },
    /// A spot node would have to be replaced by a spot node.
    SpotToSpot {
        /// The pods without room on other nodes.
        pods: Vec<String>,
        /// How many cheaper types there are.
        cheaper: usize,
        /// How many there have to be; none if such replacements are switched off.
        needed: Option<usize>,
    },
    /// A replacement would be cheaper only at the price of a commitment of which too little is left.
    Commitment {
        /// The pods without room on other nodes.
        pods: Vec<String>,
        /// The type of the replacement.
        instance_type: String,
        /// The overlay that stands for the commitment.
        overlay: String,
    },
    /// The cheaper types do not meet `minValues`.
    MinValues {
        /// The pods without room on other nodes.
        pods: Vec<String>,
        /// What is missing.
        why: String,
    },
    /// As many nodes of its pool go as may.
    Budget {
        /// The pool.
        pool: String,
        /// For which reason it would go.
        reason: &'static str,
        /// How many may.
        allowed: usize,
        /// How many do.
        disrupted: usize,
        /// When a schedule changes that.
        until: Option<Timestamp>,
    },
    /// It could go, but others go first and take the room or the budget.
    Waits {
        /// Their claims.
        claims: Vec<String>,
    },
}

/// At most this many pods are named.
const NAMED: usize = 3;

/// How many there are, if the names do not say it.
fn number(list: &[String]) -> String {
    match list.len() {
        many if many > NAMED => format!(" ({many} pods)"),
        _ => String::new(),
    }
}

fn named(list: &[String]) -> String {
    let shown: Vec<&str> = list.iter().take(NAMED).map(String::as_str).collect();
    match list.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}

impl Blocker {
    /// One CamelCase word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Unmanaged => "Unmanaged",
            Self::NoPool { .. } => "NoNodePool",
            Self::NotInitialised => "NotInitialized",
            Self::NodeAnnotation => "NodeDoNotDisrupt",
            Self::Spare => "Spare",
            Self::StaticPool { .. } => "StaticNodePool",
            Self::Nominated { .. } | Self::Coming { .. } => "PodsExpected",
            Self::Replaces { .. } => "Replacement",
            Self::ConsolidationOff { .. } => "ConsolidationOff",
            Self::OnlyEmpty { .. } => "WhenEmpty",
            Self::Undone { .. } => "MoveUndone",
            Self::Balanced { .. } => "Balanced",
            Self::Destinations { .. } => "DestinationConsolidateAfter",
            Self::Quiet { .. } => "ConsolidateAfter",
            Self::PodAnnotation { .. } => "PodDoNotDisrupt",
            Self::Pdb { .. } => "PodDisruptionBudget",
            Self::SeveralPdbs { .. } => "SeveralPodDisruptionBudgets",
            Self::NoPrice { .. } => "PriceUnknown",
            Self::NoPlace { .. } => "NoPlace",
            Self::Limits { .. } => "Limits",
            Self::SeveralNodes { .. } => "SeveralNewNodes",
            Self::Starting { .. } => "NodeStarting",
            Self::Price { .. } => "NotCheaper",
            Self::SpotToSpot { .. } => "SpotToSpot",
            Self::Commitment { .. } => "CommitmentUsedUp",
            Self::MinValues { .. } => "MinValues",
            Self::Budget { .. } => "Budget",
            Self::Waits { .. } => "OthersFirst",
        }
    }

    /// What would free the node of this, as a sentence for people.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Unmanaged => "nothing: Veneer removes only nodes that it launched".to_owned(),
            Self::NoPool { pool } => {
                format!("recreate NodePool {pool}, or delete the NodeClaim by hand")
            }
            Self::NotInitialised => "waiting; the NodeClaim's condition Initialized says for what".to_owned(),
            Self::NodeAnnotation => {
                "remove the annotation karpenter.sh/do-not-disrupt from the node and its NodeClaim".to_owned()
            }
            Self::Spare => "its first pod, or a smaller Overprovisioner".to_owned(),
            Self::StaticPool { pool } => format!("a smaller spec.replicas of NodePool {pool}"),
            Self::Nominated { until } => format!("waiting until {until}"),
            Self::Coming { pods } => format!("a place for {}", named(pods)),
            Self::Replaces { claims } => format!("the end of {}", named(claims)),
            Self::ConsolidationOff { pool } => {
                format!("a duration in spec.disruption.consolidateAfter of NodePool {pool}")
            }
            Self::OnlyEmpty { pool, .. } => {
                format!("spec.disruption.consolidationPolicy: WhenEmptyOrUnderutilized in NodePool {pool}")
            }
            Self::Balanced { pool, .. } => format!(
                "a larger saving, fewer pods on it, or spec.disruption.consolidationPolicy: WhenEmptyOrUnderutilized in \
                 NodePool {pool}"
            ),
            Self::Destinations { pods, until, .. } => format!(
                "waiting until {until}, or room on other nodes for {}",
                named(pods)
            ),
            Self::Undone { until, .. } => format!("waiting until {until}"),
            Self::Quiet { until, .. } => format!("no pod coming or going until {until}"),
            Self::PodAnnotation { pod, until: None } => {
                format!("the end of Pod {pod}, or no annotation karpenter.sh/do-not-disrupt on it")
            }
            Self::PodAnnotation {
                pod,
                until: Some(until),
            } => {
                format!("waiting until {until}, or the end of Pod {pod}")
            }
            Self::Pdb {
                pdb,
                desired,
                healthy,
                ..
            } => format!(
                "healthy pods of PodDisruptionBudget {pdb}: {} more, or a looser budget",
                (desired + 1 - healthy).max(1)
            ),
            Self::SeveralPdbs { pod, pdbs } => {
                format!(
                    "only one PodDisruptionBudget for Pod {pod}; remove one of {}",
                    named(pdbs)
                )
            }
            Self::NoPrice { offering } => format!("{offering} in the catalogue"),
            Self::NoPlace { pods } | Self::SeveralNodes { pods, .. } => {
                format!("room on other nodes for {}", named(pods))
            }
            Self::Limits { pool, pods } => format!(
                "higher spec.limits of NodePool {pool}, or room on other nodes for {}",
                named(pods)
            ),
            Self::Starting { node } => format!("node {node} becoming ready"),
            Self::Price { pods, limit, .. } => format!(
                "room on other nodes for {}, or a replacement below ${limit:.4}/h",
                named(pods)
            ),
            Self::SpotToSpot {
                pods, needed: None, ..
            } => format!(
                "room on other nodes for {}, or the feature gate SpotToSpotConsolidation",
                named(pods)
            ),
            Self::SpotToSpot {
                pods,
                cheaper,
                needed: Some(needed),
            } => format!(
                "room on other nodes for {}, or {} more cheaper spot types",
                named(pods),
                needed.saturating_sub(*cheaper)
            ),
            Self::Commitment { pods, overlay, .. } => format!(
                "room on other nodes for {}, or more left of the commitment of overlay {overlay}",
                named(pods)
            ),
            Self::MinValues { pods, .. } => {
                format!("room on other nodes for {}, or lower minValues", named(pods))
            }
            Self::Budget {
                until: Some(until), ..
            } => {
                format!("nodes that have gone, a larger spec.disruption.budgets, or waiting until {until}")
            }
            Self::Budget { .. } => "nodes that have gone, or a larger spec.disruption.budgets".to_owned(),
            Self::Waits { claims } => format!("the end of {}", named(claims)),
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmanaged => write!(f, "no NodeClaim stands behind this node"),
            Self::NoPool { pool } => write!(f, "its NodePool {pool:?} does not exist"),
            Self::NotInitialised => write!(f, "the node is not initialised yet"),
            Self::NodeAnnotation => {
                write!(
                    f,
                    "the node or its NodeClaim has the annotation karpenter.sh/do-not-disrupt"
                )
            }
            Self::Spare => write!(f, "it is kept as spare capacity by an Overprovisioner"),
            Self::StaticPool { pool } => {
                write!(f, "NodePool {pool} has a fixed number of nodes (spec.replicas)")
            }
            Self::Nominated { until } => write!(f, "pods are expected on it until {until}"),
            Self::Coming { pods } => {
                write!(f, "{} wait for a place and have room on it", named(pods))
            }
            Self::Replaces { claims } => {
                write!(
                    f,
                    "it takes the place of {}, which is not gone yet",
                    named(claims)
                )
            }
            Self::ConsolidationOff { pool } => {
                write!(f, "NodePool {pool} has spec.disruption.consolidateAfter: Never")
            }
            Self::OnlyEmpty { pool, pods } => write!(
                f,
                "NodePool {pool} consolidates empty nodes only (WhenEmpty); pods on it: {pods}"
            ),
            Self::Undone { pod, until } => write!(
                f,
                "a node had to be launched again after pods like {pod} were moved; they stay until {until}"
            ),
            Self::Balanced {
                pool,
                saved,
                disturbed,
            } => write!(
                f,
                "NodePool {pool} has consolidationPolicy Balanced: this would save {:.1} % of what the pool costs and disturb \
                 {:.1} % of it, and has to save at least half the share that it disturbs",
                saved * 100.0,
                disturbed * 100.0
            ),
            Self::Destinations { pods, nodes, until } => write!(
                f,
                "only {} has room for {}{}, and pods came or went there less than its consolidateAfter ago; quiet at {until}",
                named(nodes),
                named(pods),
                number(pods)
            ),
            Self::Quiet {
                until,
                consolidate_after,
            } => write!(
                f,
                "pods came or went less than consolidateAfter ({consolidate_after}) ago; quiet at {until}"
            ),
            Self::PodAnnotation { pod, .. } => {
                write!(f, "Pod {pod} has the annotation karpenter.sh/do-not-disrupt")
            }
            Self::Pdb {
                pod,
                pdb,
                healthy,
                desired,
            } => write!(
                f,
                "PodDisruptionBudget {pdb} does not let Pod {pod} go: {healthy} healthy, {desired} needed"
            ),
            Self::SeveralPdbs { pod, pdbs } => write!(
                f,
                "Pod {pod} is selected by {} PodDisruptionBudgets ({}), and Kubernetes evicts no such pod",
                pdbs.len(),
                named(pdbs)
            ),
            Self::NoPrice { offering } => write!(f, "the catalogue has no price for {offering}"),
            Self::NoPlace { pods } => write!(
                f,
                "no other node has room for {}, and no NodePool can launch one for it",
                named(pods)
            ),
            Self::Limits { pool, pods } => write!(
                f,
                "no other node has room for {}{}, a replacement has to come before this node goes, and the limits of \
                 NodePool {pool} have no room for both",
                named(pods),
                number(pods)
            ),
            Self::SeveralNodes { pods, nodes } => write!(
                f,
                "no other node has room for {}{}, and they would need {nodes} new nodes",
                named(pods),
                number(pods)
            ),
            Self::Starting { node } => write!(f, "its pods would need {node}, which is still starting"),
            Self::Price {
                pods,
                price,
                cheapest: Some((it, cheapest)),
                limit,
            } => write!(
                f,
                "no other node has room for {}{}; the cheapest new node for that is {it} at ${cheapest:.4}/h, \
                 this one costs ${price:.4}/h, and a replacement has to cost less than ${limit:.4}/h",
                named(pods),
                number(pods)
            ),
            Self::Price {
                pods,
                price,
                cheapest: None,
                ..
            } => write!(
                f,
                "no other node has room for {}{}, and no type for that can be bought now; this node costs ${price:.4}/h",
                named(pods),
                number(pods)
            ),
            Self::SpotToSpot {
                pods, needed: None, ..
            } => write!(
                f,
                "no other node has room for {}, and spot nodes are not replaced by spot nodes",
                named(pods)
            ),
            Self::SpotToSpot {
                pods,
                cheaper,
                needed: Some(needed),
            } => write!(
                f,
                "no other node has room for {}, and of the {needed} cheaper spot types that a replacement needs there are {cheaper}",
                named(pods)
            ),
            Self::Commitment {
                pods, instance_type, ..
            } => write!(
                f,
                "no other node has room for {}, and {instance_type} is cheaper only at the price of a commitment of which too little is left",
                named(pods)
            ),
            Self::MinValues { pods, why } => {
                write!(f, "no other node has room for {}, and {why}", named(pods))
            }
            Self::Budget {
                pool,
                reason,
                allowed,
                disrupted,
                ..
            } => write!(
                f,
                "the budget of NodePool {pool} allows {allowed} disrupted nodes ({reason}) at once, and there are {disrupted}"
            ),
            Self::Waits { claims } => {
                write!(f, "{} go first", named(claims))
            }
        }
    }
}

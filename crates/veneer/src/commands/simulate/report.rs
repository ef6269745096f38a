//! What `simulate` found, as data: the JSON contract, from which tables are written too.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use veneer_engine::instance_type::{Catalogue, InstanceType, Offering};
use veneer_engine::labels::{ON_DEMAND, RESERVED, SPOT};
use veneer_engine::overlay::Evaluation;
use veneer_engine::packing::{NewNodeClaim, PodRecord, Results};
use veneer_engine::requirements::Requirements;
use veneer_engine::resources::ResourceList;
use veneer_engine::vocabulary::Vocabulary;

use super::change::Change;
use crate::output::Timing;
use crate::scheduling::StarvingReport;

/// Where every pod goes and what that costs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report<'a> {
    /// By their first pod.
    pub(super) new_node_claims: Vec<ClaimReport<'a>>,
    /// By name.
    pub(super) existing_nodes: Vec<NodeReport>,
    /// By pod.
    pub(super) unschedulable: Vec<UnschedulableReport>,
    /// What pods and namespaces are told although they may have places: demands that were left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notices: Vec<NoticeReport>,
    pub(super) cost: Cost,
    /// The pods that wait although nothing keeps them from a place; absent if there is none or the time is
    /// not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) starving: Option<Vec<StarvingReport>>,
    /// How good the packing is; absent for first-fit decreasing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packing: Option<Saving>,
    /// What a proposal changes; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) change: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timing: Option<Timing>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimReport<'a> {
    pub(super) node_pool: String,
    pub(super) pods: Vec<String>,
    #[serde(serialize_with = "amounts")]
    pub(super) requests: ResourceList,
    pub(super) instance_types: TypeNames<'a>,
    pub(super) cheapest: Option<Cheapest>,
    /// Present where `minValues` was lowered to make the node possible.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) min_values_relaxed: bool,
}

/// The names of types by their position in the catalogue. Claims that are alike share the list.
#[derive(Debug)]
pub(super) struct TypeNames<'a> {
    catalogue: &'a Catalogue,
    types: Arc<[usize]>,
}

impl TypeNames<'_> {
    pub(super) fn len(&self) -> usize {
        self.types.len()
    }
}

impl Serialize for TypeNames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let types = self.types.iter().filter_map(|at| self.catalogue.types.get(*at));
        serializer.collect_seq(types.map(|it| it.name.as_ref()))
    }
}

fn amounts<S: Serializer>(list: &ResourceList, serializer: S) -> Result<S::Ok, S::Error> {
    let amounts: BTreeMap<&str, String> = list
        .iter()
        .map(|(name, quantity)| (name, quantity.to_string()))
        .collect();
    amounts.serialize(serializer)
}

/// The cheapest way to launch a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cheapest {
    pub(crate) instance_type: String,
    pub(crate) capacity_type: String,
    pub(crate) zone: String,
    pub(crate) price: f64,
    pub(crate) list_price: f64,
    /// Who sets the price, then who adds resources, heaviest first.
    pub(crate) overlays: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeReport {
    pub(super) node: String,
    pub(super) pods: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct NoticeReport {
    /// A pod as `namespace/name`, or a namespace.
    pub(super) about: String,
    pub(super) message: String,
}

#[derive(Debug, Serialize)]
pub(super) struct UnschedulableReport {
    pub(super) pod: String,
    #[serde(serialize_with = "sentences")]
    pub(super) reasons: Vec<Why>,
}

/// Why a NodePool launches nothing for a pod; without one, what is wrong with the pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Why {
    pub(super) node_pool: Option<String>,
    pub(super) message: String,
}

fn sentences<S: Serializer>(reasons: &[Why], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(reasons.iter().map(Why::sentence))
}

impl Why {
    pub(super) fn sentence(&self) -> String {
        match &self.node_pool {
            Some(pool) => format!("NodePool {pool}: {}", self.message),
            None => self.message.clone(),
        }
    }
}

/// What the new nodes cost in dollars per hour, each at its cheapest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cost {
    pub(super) hourly: f64,
    pub(super) list_hourly: f64,
}

/// What packing for the lowest price achieved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Saving {
    /// What first-fit decreasing would cost.
    pub(super) ffd_hourly: f64,
    /// No packing of these pods costs less.
    pub(super) lower_bound: f64,
    /// The share of the cost that a better packing could save at most.
    pub(super) gap: f64,
}

impl Saving {
    pub(super) fn new(ffd_hourly: f64, lower_bound: f64, gap: f64) -> Self {
        Self {
            ffd_hourly: dollars(ffd_hourly),
            lower_bound: dollars(lower_bound),
            gap: dollars(gap),
        }
    }
}

impl Report<'_> {
    /// How many pods had to be scheduled.
    pub(super) fn pods(&self) -> usize {
        let on_new: usize = self.new_node_claims.iter().map(|claim| claim.pods.len()).sum();
        on_new + self.pods_on_existing() + self.unschedulable.len()
    }

    pub(super) fn pods_on_existing(&self) -> usize {
        self.existing_nodes.iter().map(|node| node.pods.len()).sum()
    }
}

/// Without the crumbs that adding in binary leaves.
pub(crate) fn dollars(amount: f64) -> f64 {
    (amount * 1e9).round() / 1e9
}

/// What the positions in results refer to.
pub(crate) struct View<'a, 'v> {
    pub(crate) pods: &'v [PodRecord],
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) evaluation: &'v Evaluation,
}

impl<'a> View<'a, '_> {
    pub(super) fn report(&self, results: &Results) -> Report<'a> {
        let begins = self.begins();
        let claims = results.new_node_claims.iter();
        let mut new_node_claims: Vec<ClaimReport<'a>> = claims
            .map(|claim| self.claim(claim, &results.vocabulary, &begins))
            .collect();
        new_node_claims.sort_by(|a, b| a.pods.cmp(&b.pods));
        let mut existing_nodes: Vec<NodeReport> = results
            .existing_nodes
            .iter()
            .map(|node| NodeReport {
                node: node.name.clone(),
                pods: self.names(&node.pods),
            })
            .collect();
        existing_nodes.sort_by(|a, b| a.node.cmp(&b.node));
        let mut unschedulable: Vec<UnschedulableReport> = results
            .unschedulable
            .iter()
            .map(|pod| UnschedulableReport {
                pod: self.names(&[pod.pod]).concat(),
                reasons: pod
                    .reasons
                    .iter()
                    .map(|reason| Why {
                        node_pool: reason.node_pool.clone(),
                        message: reason.message.clone(),
                    })
                    .collect(),
            })
            .collect();
        unschedulable.sort_by(|a, b| a.pod.cmp(&b.pod));
        let of_pods = results.notices.iter().map(|notice| NoticeReport {
            about: self.names(&[notice.pod]).concat(),
            message: notice.message.clone(),
        });
        let of_namespaces = results.held.iter().map(|held| NoticeReport {
            about: held.namespace.clone(),
            message: format!(
                "the pods of this namespace take too long to decide about: others went first, its preferences are ignored, and {} pods \
                 were not decided about",
                held.undecided
            ),
        });
        let notices = of_pods.chain(of_namespaces).collect();
        let cheapest = || new_node_claims.iter().filter_map(|claim| claim.cheapest.as_ref());
        let cost = Cost {
            hourly: dollars(cheapest().map(|it| it.price).sum()),
            list_hourly: dollars(cheapest().map(|it| it.list_price).sum()),
        };
        Report {
            new_node_claims,
            existing_nodes,
            unschedulable,
            notices,
            cost,
            starving: None,
            packing: None,
            change: None,
            timing: None,
        }
    }

    /// Where the offerings of each type begin in a pool's list of prices.
    pub(crate) fn begins(&self) -> Vec<usize> {
        let types = self.catalogue.types.iter();
        types
            .scan(0, |total, it| {
                let begin = *total;
                *total += it.offerings.len();
                Some(begin)
            })
            .collect()
    }

    pub(crate) fn names(&self, positions: &[usize]) -> Vec<String> {
        let pods = positions.iter().filter_map(|at| self.pods.get(*at));
        let mut names: Vec<String> = pods
            .map(|pod| {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
                format!("{namespace}/{}", pod.metadata.name.as_deref().unwrap_or_default())
            })
            .collect();
        names.sort();
        names
    }

    fn claim(&self, claim: &NewNodeClaim, vocabulary: &Vocabulary, begins: &[usize]) -> ClaimReport<'a> {
        ClaimReport {
            node_pool: claim.node_pool.clone(),
            pods: self.names(&claim.pods),
            requests: claim.requests.clone(),
            instance_types: TypeNames {
                catalogue: self.catalogue,
                types: Arc::clone(&claim.instance_types),
            },
            cheapest: self.cheapest(claim, vocabulary, begins),
            min_values_relaxed: claim.min_values_relaxed,
        }
    }

    /// The cheapest offering of the first type, which is the cheapest one.
    pub(crate) fn cheapest(
        &self,
        claim: &NewNodeClaim,
        vocabulary: &Vocabulary,
        begins: &[usize],
    ) -> Option<Cheapest> {
        self.cheapest_of(*claim.instance_types.first()?, claim, vocabulary, begins)
    }

    /// The cheapest offering of one of a claim's types.
    pub(crate) fn cheapest_of(
        &self,
        entry: usize,
        claim: &NewNodeClaim,
        vocabulary: &Vocabulary,
        begins: &[usize],
    ) -> Option<Cheapest> {
        let pools = self.evaluation.pools();
        let pool = pools.iter().position(|pool| pool.name == claim.node_pool)?;
        let it: &InstanceType = self.catalogue.types.get(entry)?;
        let prices = self.evaluation.prices(pool).iter().skip(*begins.get(entry)?);
        let own = &self.catalogue.vocabulary;
        let label = |offering: &Offering| {
            let capacity_type = offering.capacity_type(own).unwrap_or_default().to_owned();
            (capacity_type, offering.zone(own).unwrap_or_default().to_owned())
        };
        let allowed = it
            .offerings
            .iter()
            .zip(prices)
            .enumerate()
            .filter(|(_, (offering, _))| {
                offering.available && allows(&claim.requirements, &offering.requirements, vocabulary)
            });
        let (at, (offering, price)) = allowed.min_by(|(_, (a, price_a)), (_, (b, price_b))| {
            let key = |offering: &Offering| {
                let (capacity_type, zone) = label(offering);
                (rank(&capacity_type), capacity_type, zone)
            };
            price_a.total_cmp(price_b).then_with(|| key(a).cmp(&key(b)))
        })?;
        let (capacity_type, zone) = label(offering);
        let mut overlays: Vec<usize> = self.evaluation.winner(pool, entry, at).into_iter().collect();
        for overlay in self.evaluation.capacity_overlays(pool, entry) {
            if !overlays.contains(&overlay) {
                overlays.push(overlay);
            }
        }
        Some(Cheapest {
            instance_type: it.name.to_string(),
            capacity_type,
            zone,
            price: *price,
            list_price: offering.price,
            overlays: overlays
                .into_iter()
                .map(|overlay| self.evaluation.overlay_name(overlay).to_owned())
                .collect(),
        })
    }
}

/// Which of several offerings of the same price comes first: as the AWS provider takes them.
fn rank(capacity_type: &str) -> usize {
    let order = [RESERVED, SPOT, ON_DEMAND];
    order
        .iter()
        .position(|known| *known == capacity_type)
        .unwrap_or(order.len())
}

/// Whether a claim may be launched as an offering. The claim's vocabulary continues the catalogue's, so symbols mean
/// the same in both.
fn allows(claim: &Requirements, offering: &Requirements, vocabulary: &Vocabulary) -> bool {
    offering.iter().all(|(label, offered)| {
        claim
            .get(label)
            .is_none_or(|wanted| wanted.has_intersection(offered, vocabulary))
    })
}

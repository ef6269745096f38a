//! What the nodes of a cluster cost.

use std::sync::Arc;

use anyhow::{Context, Result};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use veneer_api::{NodeClaim, NodeOverlay, NodePool};
use veneer_engine::plan::Snapshot;
use veneer_engine::provision::Market;

/// Claims that are made within so many seconds of the first belong to the same decision.
const FIRST_DECISION_SECONDS: i64 = 2;

/// What nodes cost in an hour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prices {
    /// By the list, those of the first decision: what comes later is for pods that kube-scheduler, which fills nodes in
    /// its own order while they come, found no room for.
    pub first: f64,
    /// By the list, all of them.
    pub list: f64,
    /// After overlays.
    pub adjusted: f64,
}

/// What the nodes that there are cost. NodeClaims without an instance cost nothing.
pub async fn prices(client: &Client) -> Result<Prices> {
    fn all<T>(list: kube::core::ObjectList<T>) -> Vec<Arc<T>>
    where
        T: Clone,
    {
        list.items.into_iter().map(Arc::new).collect()
    }
    let path = veneer_testbed::karpenter_instance_types()?;
    let text = std::fs::read_to_string(&path)?;
    let catalog = veneer_engine::catalogue::kwok::parse(&text, &path.display().to_string())?;
    let mut market = Market::new(Arc::new(catalog));
    let params = ListParams::default();
    let snapshot = Snapshot {
        node_pools: all(Api::<NodePool>::all(client.clone()).list(&params).await?),
        overlays: all(Api::<NodeOverlay>::all(client.clone()).list(&params).await?),
        ..Snapshot::default()
    };
    market.update(&snapshot);
    let mut prices = Prices::default();
    let mut claims = Api::<NodeClaim>::all(client.clone()).list(&params).await?.items;
    claims.retain(|claim| {
        let status = claim.status.as_ref();
        status.is_some_and(|status| status.provider_id.as_deref().is_some_and(|id| !id.is_empty()))
    });
    let created = |claim: &NodeClaim| claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let began = claims.iter().filter_map(created).min();
    for claim in claims {
        let label = |key: &str| claim.labels().get(key).map(String::as_str).unwrap_or_default();
        let options = market.options(&claim, usize::MAX);
        let bought = options.iter().find(|option| {
            option.instance_type == label("node.kubernetes.io/instance-type")
                && option.capacity_type == label("karpenter.sh/capacity-type")
                && option.zone == label("topology.kubernetes.io/zone")
        });
        let bought = bought.with_context(|| format!("{} is nothing that it may be", claim.name_any()))?;
        prices.list += bought.list_price;
        prices.adjusted += bought.price;
        let age = created(&claim)
            .zip(began)
            .map(|(at, began)| at.duration_since(began));
        if age.is_some_and(|age| age.as_secs() <= FIRST_DECISION_SECONDS) {
            prices.first += bought.list_price;
        }
    }
    Ok(prices)
}

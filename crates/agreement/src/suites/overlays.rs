//! What NodeOverlays come to, asked whenever Karpenter's controller of NodeOverlays has decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use veneer_engine::overlay::{Evaluator, Overlay, Pool, TieBreak, Verdict};

use super::{Type, catalogue};
use crate::overlays::texts;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Question {
    objects: Vec<Value>,
    types: Vec<Type>,
    well_known: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    verdicts: BTreeMap<String, &'static str>,
    node_pools: BTreeMap<String, Vec<Priced>>,
}

/// A type of a NodePool.
#[derive(Serialize)]
struct Priced {
    prices: Vec<f64>,
    capacity: BTreeMap<String, String>,
}

pub(super) fn answer(question: Question) -> Result<Answer> {
    let catalogue = Arc::new(catalogue(&question.types, &question.well_known)?);
    let (mut pools, mut overlays, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for object in question.objects {
        if object.get("kind").and_then(Value::as_str) == Some("NodePool") {
            pools.push(Pool::from(&serde_json::from_value(object)?));
        } else {
            let overlay: veneer_api::NodeOverlay = serde_json::from_value(object)?;
            names.push(overlay.metadata.name.clone().unwrap_or_default());
            overlays.push(Overlay::read(&overlay, &catalogue.rules));
        }
    }
    let evaluation = Evaluator::new(Arc::clone(&catalogue), TieBreak::default()).evaluate(&pools, &overlays);
    let verdicts = names.into_iter().zip(evaluation.verdicts());
    let verdicts = verdicts.map(|(name, verdict)| {
        let verdict = match verdict {
            Verdict::Ready => "Ready",
            Verdict::Conflict(_) => "Conflict",
            Verdict::Invalid(_) => "Invalid",
        };
        (name, verdict)
    });
    let node_pools = pools.iter().enumerate().map(|(at, pool)| {
        let mut prices = evaluation.prices(at).iter().copied();
        let types = catalogue.types.iter().enumerate().map(|(entry, it)| Priced {
            prices: prices.by_ref().take(it.offerings.len()).collect(),
            capacity: texts(&evaluation.capacity(at, entry, it)),
        });
        (pool.name.clone(), types.collect())
    });
    Ok(Answer {
        verdicts: verdicts.collect(),
        node_pools: node_pools.collect(),
    })
}

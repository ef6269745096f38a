//! Why pods wait: what `/debug/pending` shows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use veneer_engine::packing::Reason;

/// The reasons of every pod that nothing can be launched for, shared with the server.
#[derive(Clone, Debug, Default)]
pub struct Pending(Arc<Mutex<BTreeMap<String, Vec<Reason>>>>);

impl Pending {
    pub(crate) fn set(&self, pending: &BTreeMap<String, Vec<Reason>>) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Both are empty nearly always.
        if shown.len() != pending.len() || *shown != *pending {
            shown.clone_from(pending);
        }
    }

    /// One entry per pod, with what each NodePool lacks for it.
    pub(crate) fn json(&self) -> String {
        let pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pods: Vec<Value> = pending
            .iter()
            .map(|(pod, reasons)| {
                let (namespace, name) = pod.split_once('/').unwrap_or(("", pod));
                let reasons: Vec<Value> = reasons
                    .iter()
                    .map(|reason| json!({"nodePool": reason.node_pool, "message": reason.message}))
                    .collect();
                json!({"namespace": namespace, "name": name, "reasons": reasons})
            })
            .collect();
        json!({"pods": pods}).to_string()
    }
}

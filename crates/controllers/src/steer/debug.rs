//! `/debug/decisions`: the newest decisions, with what they were made from.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use veneer_steering::overlays::Action;
use veneer_steering::steer::Decided;

/// What `/debug/decisions` shows; shared with the server.
#[derive(Clone, Debug, Default)]
pub struct Decisions(Arc<Mutex<Value>>);

impl Decisions {
    pub(crate) fn set(&self, decided: &Decided, observed_at: Option<Timestamp>) {
        let preferences: Vec<Value> = decided
            .pools
            .iter()
            .map(|pool| {
                let faults: Vec<String> = pool.read.faults.iter().map(ToString::to_string).collect();
                let numbers: Vec<i32> = pool.read.good.iter().map(|one| one.number).collect();
                json!({"nodePool": pool.name, "preferences": numbers, "faults": faults})
            })
            .collect();
        let pending: Vec<String> = decided
            .actions
            .iter()
            .map(|action: &Action| format!("{} {}", action.operation(), action.name()))
            .collect();
        let value = json!({
            "observedAt": observed_at.map(|at| at.to_string()),
            "doubts": decided.doubts,
            "decisions": decided.decisions,
            "machines": decided.machines,
            "preferences": preferences,
            "pending": pending,
            "namesTaken": decided.taken,
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// The JSON text; an empty object before the first decision.
    pub(crate) fn json(&self) -> String {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if value.is_null() {
            "{}\n".to_owned()
        } else {
            format!("{value:#}\n")
        }
    }
}

//! Conditions that change their time only with their status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use veneer_api::{CONDITION_READY, Condition, ConditionStatus, find_condition};

/// The conditions of one object, being set.
#[derive(Clone, Debug)]
pub struct Conditions {
    list: Vec<Condition>,
    generation: Option<i64>,
    now: Time,
}

impl Conditions {
    /// Starts from what the object has.
    #[must_use]
    pub fn new(list: &[Condition], generation: Option<i64>, now: Timestamp) -> Self {
        Self {
            list: list.to_vec(),
            generation,
            // Kubernetes keeps whole seconds.
            now: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        }
    }

    /// The condition of a type.
    #[must_use]
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        find_condition(&self.list, type_)
    }

    /// Whether the condition of a type is true.
    #[must_use]
    pub fn is_true(&self, type_: &str) -> bool {
        self.get(type_)
            .is_some_and(|one| one.status == ConditionStatus::True)
    }

    /// Sets one.
    pub fn set(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str) {
        let known = self.list.iter_mut().find(|one| one.type_ == type_);
        let since = known.as_ref().filter(|one| one.status == status);
        let condition = Condition {
            type_: type_.to_owned(),
            last_transition_time: since
                .map_or_else(|| self.now.clone(), |one| one.last_transition_time.clone()),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: self.generation,
            extra: known.as_ref().map(|one| one.extra.clone()).unwrap_or_default(),
        };
        match known {
            Some(known) => *known = condition,
            None => self.list.push(condition),
        }
    }

    /// Sets one to true; the reason is its own name, as Karpenter has it.
    pub fn set_true(&mut self, type_: &str) {
        self.set(type_, ConditionStatus::True, type_, "");
    }

    /// Sets `Ready` to what the conditions of `types` amount to.
    pub fn sum_up(&mut self, types: &[&str]) {
        let unmet: Vec<String> = types
            .iter()
            .filter(|type_| !self.is_true(type_))
            .map(|type_| {
                let status = self.get(type_).map_or("Unknown", |one| one.status.as_str());
                format!("{type_}={status}")
            })
            .collect();
        if unmet.is_empty() {
            self.set_true(CONDITION_READY);
            return;
        }
        let is_false = types.iter().any(|type_| {
            self.get(type_)
                .is_some_and(|one| one.status == ConditionStatus::False)
        });
        let (status, reason) = if is_false {
            (ConditionStatus::False, "UnhealthyDependents")
        } else {
            (ConditionStatus::Unknown, "ReconcilingDependents")
        };
        self.set(CONDITION_READY, status, reason, &unmet.join(", "));
    }

    /// All of them.
    #[must_use]
    pub fn into_list(self) -> Vec<Condition> {
        self.list
    }
}

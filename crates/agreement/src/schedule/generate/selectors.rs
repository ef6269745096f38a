//! Expressions on node labels.

use serde_json::{Value, json};

use super::super::facts::{
    ARCH, CAPACITY_TYPE, FAMILY, HOSTNAME, INSTANCE_CPU, INSTANCE_MEMORY, INSTANCE_TYPE, NODE_POOL, OS, SIZE,
    ZONE, ZONES,
};
use super::Draft;

/// A label that some pools define.
pub(super) const TEAM: &str = "example.com/team";
/// A label that nothing defines.
const NOWHERE: &str = "example.com/nowhere";

impl Draft<'_> {
    /// A label with values that some node may have.
    fn label(&mut self) -> (&'static str, Vec<String>) {
        let texts = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        match self.rng.below(20) {
            0..=3 => (ZONE, texts(&ZONES)),
            4..=5 => (CAPACITY_TYPE, texts(&["spot", "on-demand"])),
            6..=7 => (ARCH, texts(&["x86_64", "arm64"])),
            8 => (OS, texts(&["linux", "windows"])),
            9..=10 => {
                let values = (0..4).map(|_| self.entry().family().to_owned()).collect();
                (FAMILY, values)
            }
            11 => (SIZE, texts(&["large", "xlarge", "2xlarge", "4xlarge"])),
            12 => {
                let values = (0..4).map(|_| self.entry().name).collect();
                (INSTANCE_TYPE, values)
            }
            13..=15 => (INSTANCE_CPU, texts(&["2", "4", "8", "16", "32", "64"])),
            16 => (INSTANCE_MEMORY, texts(&["8Gi", "16Gi", "32Gi", "64Gi"])),
            17 => (NODE_POOL, self.pools.clone()),
            _ => (TEAM, texts(&["a", "b", "c"])),
        }
    }

    fn some(&mut self, values: &[String], most: i64) -> Vec<String> {
        let wanted = self.rng.between(1, most);
        let mut chosen: Vec<String> = (0..wanted).map(|_| self.rng.pick(values).clone()).collect();
        chosen.sort();
        chosen.dedup();
        chosen
    }

    /// An expression as in node affinity.
    pub(super) fn expression(&mut self) -> Value {
        let (mut key, values) = self.label();
        if values.is_empty() || self.rng.chance(3) {
            key = NOWHERE;
        }
        if key == INSTANCE_CPU && self.rng.chance(60) {
            let operator = *self.rng.pick(&["Gt", "Lt"]);
            return json!({"key": key, "operator": operator, "values": [self.rng.pick(&["1", "3", "4", "8", "15", "40"])]});
        }
        if key == NOWHERE {
            let operator = *self.rng.pick(&["Exists", "DoesNotExist", "NotIn", "In"]);
            return match operator {
                "In" | "NotIn" => json!({"key": key, "operator": operator, "values": ["x"]}),
                _ => json!({"key": key, "operator": operator}),
            };
        }
        match self.rng.below(10) {
            0..=5 => json!({"key": key, "operator": "In", "values": self.some(&values, 3)}),
            6..=7 => json!({"key": key, "operator": "NotIn", "values": self.some(&values, 2)}),
            8 => json!({"key": key, "operator": "Exists"}),
            _ if key == TEAM => json!({"key": key, "operator": "DoesNotExist"}),
            _ => json!({"key": key, "operator": "In", "values": self.some(&values, 4)}),
        }
    }

    /// A term: one or two expressions.
    pub(super) fn term(&mut self) -> Value {
        let expressions: Vec<Value> = (0..self.rng.between(1, 2)).map(|_| self.expression()).collect();
        json!({"matchExpressions": expressions})
    }

    /// A node selector.
    pub(super) fn node_selector(&mut self) -> Value {
        let mut selector = serde_json::Map::new();
        for _ in 0..self.rng.between(1, 2) {
            let (key, values) = self.label();
            let value = self.some(&values, 1).pop().unwrap_or_default();
            let (key, value) = match self.rng.below(40) {
                // A restricted label: the pod is refused before scheduling.
                0 => (HOSTNAME, "node-1".to_owned()),
                1 => (NOWHERE, "x".to_owned()),
                2 if key == ZONE => ("failure-domain.beta.kubernetes.io/zone", value),
                3..=6 if key == ARCH => ("beta.kubernetes.io/arch", value),
                _ => (key, value),
            };
            selector.insert(key.to_owned(), value.into());
        }
        Value::Object(selector)
    }
}

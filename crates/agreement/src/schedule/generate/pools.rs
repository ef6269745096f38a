//! NodePools.

use serde_json::{Value, json};

use super::super::Constraint;
use super::super::facts::{ARCH, CAPACITY_TYPE, FAMILY, INSTANCE_CPU, INSTANCE_TYPE, OS, SIZE, ZONE, ZONES};
use super::Draft;
use super::selectors::TEAM;

/// Taints that pools carry and pods may tolerate.
pub(super) const TAINTS: [(&str, &str, &str); 4] = [
    ("dedicated", "batch", "NoSchedule"),
    ("example.com/quarantine", "true", "NoExecute"),
    ("dedicated", "web", "NoSchedule"),
    ("example.com/soft", "yes", "PreferNoSchedule"),
];

impl Draft<'_> {
    pub(super) fn node_pools(&mut self) {
        let several = [
            Constraint::Weights,
            Constraint::PoolRequirements,
            Constraint::Taints,
            Constraint::Limits,
        ];
        let count = if several.iter().any(|constraint| self.has(*constraint)) {
            self.rng.between(1, 4)
        } else {
            1
        };
        self.pools = ["default", "batch", "zeta", "web"]
            .into_iter()
            .take(count as usize)
            .map(str::to_owned)
            .collect();
        for name in self.pools.clone() {
            let pool = self.node_pool(&name);
            self.objects.push(pool);
        }
    }

    fn node_pool(&mut self, name: &str) -> Value {
        let mut labels = serde_json::Map::new();
        let mut requirements = Vec::new();
        if self.rng.chance(92) {
            requirements.push(json!({"key": OS, "operator": "In", "values": ["linux"]}));
        }
        if self.has(Constraint::PoolRequirements) {
            for _ in 0..self.rng.between(0, 3) {
                requirements.push(self.pool_requirement());
            }
            if self.rng.chance(60) {
                let team = *self.rng.pick(&["a", "b", "c"]);
                labels.insert(TEAM.to_owned(), team.into());
                self.pool_labels.push((TEAM.to_owned(), team.to_owned()));
            }
        }
        if self.has(Constraint::MinValues) {
            requirements.push(self.min_values());
        }
        let mut template = json!({
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": requirements,
        });
        if self.has(Constraint::Taints) && self.rng.chance(65) {
            let taints: Vec<Value> = (0..self.rng.between(1, 2)).map(|_| self.taint()).collect();
            template["taints"] = dedup(taints);
        }
        if self.has(Constraint::UnreadyNodes) && self.rng.chance(50) {
            template["startupTaints"] = json!([{"key": "example.com/starting", "effect": "NoSchedule"}]);
        }
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": name, "uid": self.uid()},
            "spec": {"template": {"metadata": {"labels": labels}, "spec": template}},
        });
        if self.has(Constraint::Weights) && self.rng.chance(75) {
            pool["spec"]["weight"] = json!(*self.rng.pick(&[1, 10, 10, 50, 100]));
        }
        if self.has(Constraint::Limits) {
            pool["spec"]["limits"] = self.limits();
        }
        if self.has(Constraint::PoolRequirements) {
            match self.rng.below(30) {
                0 => pool["spec"]["replicas"] = json!(1),
                1 => {
                    pool["status"]["conditions"] = json!([{
                        "type": "Ready", "status": "False", "reason": "NotReady", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }]);
                }
                _ => {}
            }
        }
        pool
    }

    fn pool_requirement(&mut self) -> Value {
        match self.rng.below(8) {
            0 => {
                let count = self.rng.between(1, 3) as usize;
                let from = self.rng.below(ZONES.len());
                let zones: Vec<_> = ZONES.iter().cycle().skip(from).take(count).collect();
                json!({"key": ZONE, "operator": "In", "values": zones})
            }
            1 => {
                json!({"key": CAPACITY_TYPE, "operator": "In", "values": [self.rng.pick(&["spot", "on-demand"])]})
            }
            2 => json!({"key": ARCH, "operator": self.rng.pick(&["In", "NotIn"]), "values": ["arm64"]}),
            3 => {
                json!({"key": INSTANCE_CPU, "operator": self.rng.pick(&["Gt", "Lt"]), "values": [self.rng.pick(&["1", "3", "9", "33"])]})
            }
            4 => json!({"key": FAMILY, "operator": "NotIn", "values": [self.entry().family()]}),
            5 => {
                json!({"key": TEAM, "operator": "In", "values": self.rng.pick(&[&["a", "b"][..], &["c"], &["a", "b", "c"]])})
            }
            6 => json!({"key": TEAM, "operator": "Exists"}),
            _ => json!({"key": SIZE, "operator": "In", "values": ["large", "xlarge", "2xlarge"]}),
        }
    }

    fn min_values(&mut self) -> Value {
        // The whole catalogue has more types than a claim keeps.
        if self.has(Constraint::FullCatalogue) && self.rng.chance(30) {
            let (key, least) = *self.rng.pick(&[
                (INSTANCE_TYPE, 590),
                (INSTANCE_TYPE, 650),
                (FAMILY, 110),
                (FAMILY, 80),
            ]);
            return json!({"key": key, "operator": "Exists", "minValues": least});
        }
        let least = self.rng.between(1, 6);
        match self.rng.below(4) {
            0 => json!({"key": FAMILY, "operator": "Exists", "minValues": least}),
            1 => json!({"key": INSTANCE_TYPE, "operator": "Exists", "minValues": least * 2}),
            2 => json!({"key": INSTANCE_CPU, "operator": "Gt", "values": ["1"], "minValues": least}),
            _ => {
                let mut families: Vec<_> = (0..6).map(|_| self.entry().family().to_owned()).collect();
                families.sort();
                families.dedup();
                let least = least.min(families.len() as i64);
                json!({"key": FAMILY, "operator": "In", "values": families, "minValues": least})
            }
        }
    }

    fn limits(&mut self) -> Value {
        let mut limits = serde_json::Map::new();
        if self.rng.chance(70) {
            limits.insert(
                "cpu".to_owned(),
                (*self.rng.pick(&["2", "8", "20", "64", "200", "1000"])).into(),
            );
        }
        if self.rng.chance(40) {
            limits.insert(
                "memory".to_owned(),
                (*self.rng.pick(&["8Gi", "40Gi", "200Gi", "2Ti"])).into(),
            );
        }
        if self.rng.chance(25) {
            limits.insert("nodes".to_owned(), (*self.rng.pick(&["0", "1", "3"])).into());
        }
        Value::Object(limits)
    }

    pub(super) fn taint(&mut self) -> Value {
        let (key, value, effect) = *self.rng.pick(&TAINTS);
        json!({"key": key, "value": value, "effect": effect})
    }

    pub(super) fn toleration(&mut self) -> Value {
        let (key, value, effect) = *self.rng.pick(&TAINTS);
        match self.rng.below(8) {
            0 => json!({"operator": "Exists"}),
            1..=2 => json!({"key": key, "operator": "Exists"}),
            3 => json!({"key": key, "operator": "Exists", "effect": effect}),
            4 => json!({"key": key, "value": "something-else", "effect": effect}),
            5 => json!({"key": key, "operator": "Equal", "value": value}),
            _ => json!({"key": key, "operator": "Equal", "value": value, "effect": effect}),
        }
    }
}

fn dedup(mut values: Vec<Value>) -> Value {
    values.dedup();
    Value::Array(values)
}

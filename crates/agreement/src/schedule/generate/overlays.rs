//! NodeOverlays with prices and capacity.

use serde_json::{Value, json};

use super::super::Constraint;
use super::super::facts::{CAPACITY_TYPE, FAMILY, INSTANCE_CPU, NODE_POOL, ZONE, ZONES};
use super::Draft;

impl Draft<'_> {
    pub(super) fn overlays(&mut self) {
        if self.has(Constraint::PriceOverlays) {
            for number in 0..self.rng.between(1, 4) {
                let mut spec =
                    json!({"requirements": self.overlay_requirements(), "weight": self.rng.between(1, 4)});
                if self.rng.chance(30) {
                    spec["price"] = json!(self.rng.pick(&["0.00", "0.01", "0.5", "3"]));
                } else {
                    spec["priceAdjustment"] =
                        json!(self.rng.pick(&["-50%", "+10%", "-0.05", "+1.5", "-100%", "-95%"]));
                }
                self.overlay(&format!("price-{number}"), &spec);
            }
        }
        if self.has(Constraint::ExtendedResources) {
            for number in 0..self.rng.between(1, 3) {
                let capacity = match self.rng.below(3) {
                    0 => json!({"hugepages-2Mi": "512Mi"}),
                    1 => json!({"example.com/gpu": *self.rng.pick(&["1", "2", "4"])}),
                    _ => json!({"example.com/gpu": "3", "example.com/other": "7"}),
                };
                let spec = json!({
                    "requirements": self.overlay_requirements(), "weight": self.rng.between(1, 4), "capacity": capacity,
                });
                self.overlay(&format!("capacity-{number}"), &spec);
            }
        }
    }

    fn overlay(&mut self, name: &str, spec: &Value) {
        self.objects.push(json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}, "spec": spec,
        }));
    }

    fn overlay_requirements(&mut self) -> Value {
        match self.rng.below(8) {
            0 => json!([]),
            1 => {
                json!([{"key": CAPACITY_TYPE, "operator": "In", "values": [self.rng.pick(&["spot", "on-demand"])]}])
            }
            2 => json!([{"key": ZONE, "operator": "In", "values": [self.rng.pick(&ZONES)]}]),
            3 => json!([{"key": INSTANCE_CPU, "operator": self.rng.pick(&["Gt", "Lt"]), "values": ["7"]}]),
            4 => json!([{"key": NODE_POOL, "operator": "In", "values": [self.rng.pick(&self.pools)]}]),
            _ => {
                let families: Vec<_> = (0..2).map(|_| self.entry().family().to_owned()).collect();
                json!([{"key": FAMILY, "operator": "In", "values": families}])
            }
        }
    }
}

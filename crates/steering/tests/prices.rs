//! What the overlays do to prices: the engine evaluates them as Karpenter would, on the embedded catalogue.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use support::{REGION, ordered, rendering};
use veneer_engine::catalogue::aws;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::{Evaluator, Overlay, Pool, TieBreak, Verdict};
use veneer_steering::commitments::Target;
use veneer_steering::overlays::{Pricing, Rendering, cost_aware};

/// Type, whether it is on demand, list price and adjusted price of every offering in one zone.
fn prices(targets: &[Target], pricing: Pricing, disabled: bool) -> Vec<(String, bool, f64, f64)> {
    let catalogue: std::sync::Arc<Catalogue> = std::sync::Arc::new(aws::region(REGION).unwrap().catalogue);
    let rendering = Rendering {
        disabled,
        ..rendering(pricing)
    };
    let overlays: Vec<_> = targets
        .iter()
        .map(|target| Overlay::read(&cost_aware(target, &rendering), &catalogue.rules))
        .collect();
    let pool = Pool {
        name: "default".to_owned(),
        labels: Vec::new(),
    };
    let mut evaluator = Evaluator::new(std::sync::Arc::clone(&catalogue), TieBreak::default());
    let evaluation = evaluator.evaluate(&[pool], &overlays);
    assert!(
        evaluation
            .verdicts()
            .iter()
            .all(|verdict| *verdict == Verdict::Ready)
    );
    let mut adjusted = evaluation.prices(0).iter();
    let mut found = Vec::new();
    for instance_type in &catalogue.types {
        for offering in &instance_type.offerings {
            let on_demand = offering.capacity_type(&catalogue.vocabulary) == Some("on-demand");
            let price = *adjusted.next().unwrap();
            found.push((instance_type.name.to_string(), on_demand, offering.price, price));
        }
    }
    found
}

#[test]
fn ordered_pricing_puts_what_is_covered_first_and_keeps_its_order() {
    let mut covered = Vec::new();
    let mut cheapest_other = f64::INFINITY;
    for (name, on_demand, list, price) in prices(&[Target::family("m5", REGION)], ordered(), false) {
        if on_demand && name.starts_with("m5.") {
            assert!((price - list * 0.05).abs() < 1e-6, "{name}: {list} {price}");
            covered.push((name, list, price));
        } else {
            assert_eq!(list, price, "{name}");
            if name.starts_with("m6i.large") {
                cheapest_other = cheapest_other.min(price);
            }
        }
    }
    assert!(covered.len() > 20);
    covered.sort_by(|a, b| a.2.total_cmp(&b.2));
    assert!(
        covered.is_sorted_by(|a, b| a.1 <= b.1),
        "the order of list prices stays"
    );
    let large = covered.iter().find(|(name, ..)| name == "m5.large").unwrap();
    assert!(large.2 < cheapest_other, "{large:?} {cheapest_other}");
}

#[test]
fn zero_pricing_makes_all_of_it_equal_and_disabled_mode_changes_nothing() {
    let targets = [
        Target::compute(),
        Target::family("m5", REGION),
        Target::reserved("m5.large", REGION),
    ];
    for (name, on_demand, list, price) in prices(&targets, Pricing::Zero, false) {
        assert_eq!(price, if on_demand { 0.0 } else { list }, "{name}");
    }
    for (name, _, list, price) in prices(&targets, Pricing::Zero, true) {
        assert_eq!(price, list, "{name}");
    }
}

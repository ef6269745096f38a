//! From an overlay that steers to a commitment to what EC2 is asked for: the covered types come first, cheapest first.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use std::sync::{Arc, LazyLock};

use serde_json::json;
use support::{REGION, rendering};
use veneer_api::NodeOverlay;
use veneer_engine::catalogue::aws;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::launch::{AllocationStrategy, Fleet, Launcher, choice, claim_of, offering_starts};
use veneer_engine::packing::{Objects, Options, Problem, solve};
use veneer_steering::commitments::Target;
use veneer_steering::overlays::{Pricing, Rendering, cost_aware};

static CATALOGUE: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(aws::region(REGION).unwrap().catalogue));

/// What EC2 is asked for one Pod of 3 vCPU in an on-demand pool of recent general types.
fn fleet(pricing: Pricing, disabled: bool) -> Fleet {
    let rendering = Rendering {
        disabled,
        ..rendering(pricing)
    };
    let overlay: NodeOverlay = cost_aware(&Target::family("m5", REGION), &rendering);
    let objects = Objects {
        pods: serde_json::from_value::<Vec<_>>(
            json!([{ "metadata": { "name": "web" }, "spec": { "containers": [
            { "name": "main", "resources": { "requests": { "cpu": "3", "memory": "4Gi" } } }] } }]),
        )
        .unwrap()
        .into_iter()
        .collect(),
        node_pools: serde_json::from_value(
            json!([{ "metadata": { "name": "default" }, "spec": { "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
            "requirements": [
                { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                { "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"] },
                { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] },
            ],
        } } } }]),
        )
        .unwrap(),
        overlays: vec![overlay],
        ..Objects::default()
    };
    let problem = Problem::from_objects(&objects, &CATALOGUE);
    let results = solve(&problem, &Options::default());
    assert_eq!(results.new_node_claims.len(), 1);
    let mut launcher = Launcher::new(results.vocabulary, &CATALOGUE.rules);
    let class = launcher.assumed_node_class(&CATALOGUE);
    let starts = offering_starts(&CATALOGUE);
    let evaluation = problem.evaluation().unwrap();
    let claim = claim_of(
        &mut launcher,
        &results.new_node_claims[0],
        &CATALOGUE,
        evaluation,
        0,
        &starts,
    );
    launcher.fleet(&claim, &class).unwrap()
}

/// The types of the request by priority, each once.
fn types(fleet: &Fleet) -> Vec<String> {
    let mut overrides: Vec<_> = fleet.request.overrides().map(|(_, one)| one).collect();
    overrides.sort_by(|a, b| {
        a.priority
            .total_cmp(&b.priority)
            .then_with(|| a.instance_type.cmp(&b.instance_type))
    });
    let mut types: Vec<String> = overrides
        .iter()
        .map(|one| one.instance_type.to_string())
        .collect();
    types.dedup();
    types
}

#[test]
fn what_is_covered_comes_first_in_the_order_of_its_list_prices() {
    let ordered = Pricing::Ordered {
        adjustment: "-95%".to_owned(),
    };
    let covered = fleet(ordered, false);
    assert_eq!(covered.request.strategy, Some(AllocationStrategy::Prioritized));
    assert_eq!(types(&covered)[..3], ["m5.xlarge", "m5.2xlarge", "m5.4xlarge"]);
    let chosen = choice(&covered.request).unwrap().chosen;
    assert_eq!(&*chosen.instance_type, "m5.xlarge");

    // At zero, the largest covered type looks as cheap as the smallest.
    let zero = fleet(Pricing::Zero, false);
    let free: Vec<f64> = zero
        .request
        .overrides()
        .filter(|(_, one)| one.instance_type.starts_with("m5."))
        .map(|(_, one)| one.priority)
        .collect();
    assert!(
        free.len() > 3 && free.iter().all(|price| *price == 0.0),
        "{free:?}"
    );
}

#[test]
fn disabled_overlays_leave_the_request_as_it_is_without_them() {
    let disabled = fleet(Pricing::Zero, true);
    assert_eq!(disabled.request.strategy, Some(AllocationStrategy::LowestPrice));
    let chosen = choice(&disabled.request).unwrap().chosen;
    assert!(
        !chosen.instance_type.starts_with("m5."),
        "{}",
        chosen.instance_type
    );
    assert!(
        disabled
            .request
            .overrides()
            .all(|(_, one)| one.priority == one.list_price)
    );
}

//! The metrics that follow from an inventory, in the text format of Prometheus.
//!
//! Those that Lumina has carry its names and labels, so that dashboards and alerts go on working; what they say comes from the allocator
//! (`veneer_billing`). Those that begin with `veneer_` say what Lumina's cannot. The order is that of names and ids: the same inventory
//! gives the same text.

mod commitments;
mod exposition;
mod instances;
mod state;

use std::collections::BTreeSet;

use veneer_billing::Allocator;

use crate::store::Inventory;
use exposition::{Exposition, Type};

/// The media type of [`bill`] and [`state`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The names of labels that can be chosen (`metrics.labels`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelNames {
    /// The Kubernetes cluster.
    pub cluster_name: String,
    /// What people call the account.
    pub account_name: String,
    /// The account id.
    pub account_id: String,
    /// The region.
    pub region: String,
    /// The node.
    pub node_name: String,
    /// The private DNS name.
    pub host_name: String,
}

impl Default for LabelNames {
    fn default() -> Self {
        Self {
            cluster_name: "cluster_name".to_owned(),
            account_name: "account_name".to_owned(),
            account_id: "account_id".to_owned(),
            region: "region".to_owned(),
            node_name: "node_name".to_owned(),
            host_name: "host_name".to_owned(),
        }
    }
}

impl LabelNames {
    /// The chosen names, with the keys that choose them.
    #[must_use]
    pub fn chosen(&self) -> [(&'static str, &str); 6] {
        [
            ("clusterName", &self.cluster_name),
            ("accountName", &self.account_name),
            ("accountId", &self.account_id),
            ("region", &self.region),
            ("nodeName", &self.node_name),
            ("hostName", &self.host_name),
        ]
    }
}

/// The labels whose names cannot be chosen.
pub const FIXED_LABELS: [&str; 17] = [
    "availability_zone",
    "commitment",
    "cost_type",
    "data_type",
    "instance_family",
    "instance_id",
    "instance_type",
    "le",
    "lifecycle",
    "part",
    "platform",
    "pricing_accuracy",
    "problem",
    "savings_plan_arn",
    "tenancy",
    "type",
    "unit",
];

/// What is written, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The names of labels.
    pub labels: LabelNames,
    /// Leaves out `ec2_instance`, `ec2_instance_count` and `ec2_instance_hourly_cost`.
    pub without_instances: bool,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
}

/// Every metric of [`bill`] and [`state`], in the order in which they are written.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "savings_plan_hourly_commitment",
        help: "Dollars per hour that a Savings Plan commits to.",
    },
    Metric {
        name: "savings_plan_remaining_hours",
        help: "Hours until a Savings Plan ends.",
    },
    Metric {
        name: "savings_plan_current_utilization_rate",
        help: "Dollars per hour of a Savings Plan that running instances use.",
    },
    Metric {
        name: "savings_plan_remaining_capacity",
        help: "Dollars per hour of a Savings Plan that no running instance uses; Fargate and Lambda may use some of a Compute plan.",
    },
    Metric {
        name: "savings_plan_utilization_percent",
        help: "The share of a Savings Plan that running instances use, in percent.",
    },
    Metric {
        name: "ec2_reserved_instance",
        help: "1 where there are Reserved Instances, however many; regional ones have no zone.",
    },
    Metric {
        name: "ec2_reserved_instance_count",
        help: "The number of Reserved Instances of a family.",
    },
    Metric {
        name: "veneer_reserved_instances",
        help: "The number of Reserved Instances; regional ones have no zone.",
    },
    Metric {
        name: "veneer_reserved_instances_unused",
        help: "How many of the Reserved Instances nothing uses, in instances of their own size.",
    },
    Metric {
        name: "veneer_commitment_dollars",
        help: "What a commitment costs per hour, with its upfront fee spread over its term.",
    },
    Metric {
        name: "veneer_commitment_unused_dollars",
        help: "The part of a commitment's cost per hour for which nothing is used.",
    },
    Metric {
        name: "ec2_instance",
        help: "1 for every running instance.",
    },
    Metric {
        name: "ec2_instance_count",
        help: "The number of running instances of a family.",
    },
    Metric {
        name: "ec2_instance_hourly_cost",
        help: "What a running instance costs per hour with its share of the commitments that pay for it; cost_type is what pays the largest part of the hour.",
    },
    Metric {
        name: "veneer_bill_dollars",
        help: "What all accounts pay per hour if everything runs on: at list prices, and by part.",
    },
    Metric {
        name: "veneer_bill_problems",
        help: "What could not be billed as it stands, such as instance types without a price; /debug/bill lists them.",
    },
    Metric {
        name: "lumina_controller_running",
        help: "1 while data is collected.",
    },
    Metric {
        name: "lumina_account_validation_status",
        help: "Whether an account could be reached the last time (1) or not (0).",
    },
    Metric {
        name: "lumina_account_validation_last_success_timestamp",
        help: "When an account was last reached, in seconds since 1970.",
    },
    Metric {
        name: "lumina_account_validation_duration_seconds",
        help: "How long it took to reach an account.",
    },
    Metric {
        name: "lumina_data_freshness_seconds",
        help: "How long ago data was last collected.",
    },
    Metric {
        name: "lumina_data_last_success",
        help: "Whether data could be collected the last time (1) or not (0).",
    },
    Metric {
        name: "veneer_data_age_seconds",
        help: "How long ago data of any kind was last collected.",
    },
    Metric {
        name: "veneer_data_rows",
        help: "How many rows the last collection had.",
    },
];

impl Exposition {
    /// Begins a family of [`METRICS`].
    fn metric(&mut self, name: &'static str, kind: Type) {
        let known = METRICS.iter().find(|metric| metric.name == name);
        self.family(name, known.map(|metric| metric.help).unwrap_or_default(), kind);
    }
}

/// What is paid for and by whom, as it is now. It changes with the inventory, and with time only where a commitment begins or ends (and in
/// the hours that are left of plans): it may be kept for a minute.
#[must_use]
pub fn bill(inventory: &Inventory, options: &Options, now: i64) -> String {
    let estimate = inventory.estimate(now);
    let allocator = Allocator::new(&estimate.organization);
    let bill = allocator.now(now);
    let mut text = Exposition::default();
    commitments::write(&mut text, inventory, options, &bill, now);
    instances::write(&mut text, inventory, options, &bill, &estimate);
    text.metric("veneer_bill_dollars", Type::Gauge);
    let totals = bill.totals();
    for (part, dollars) in [
        ("list", &totals.list),
        ("on_demand", &totals.on_demand),
        ("own_price", &totals.own_price),
        ("commitments", &totals.commitments),
        ("unused_commitments", &totals.unused),
        ("total", &totals.total()),
    ] {
        text.sample(
            "veneer_bill_dollars",
            &[
                ("part", part),
                ("unit", currency(&estimate.organization.prices.currency)),
            ],
            dollars.to_f64(),
        );
    }
    text.metric("veneer_bill_problems", Type::Gauge);
    let problems: BTreeSet<_> = allocator.problems().iter().collect();
    for (name, is_it) in PROBLEMS {
        let count = problems.iter().filter(|problem| is_it(problem)).count();
        text.sample("veneer_bill_problems", &[("problem", name)], count as f64);
    }
    text.into_text()
}

/// The currency of the price list; AWS's own where none was collected.
fn currency(named: &str) -> &str {
    match named {
        "" => "USD",
        named => named,
    }
}

type IsIt = fn(&veneer_billing::Problem) -> bool;

/// The names of problems in labels.
const PROBLEMS: [(&str, IsIt); 6] = {
    use veneer_billing::Problem as P;
    [
        ("no_price", |one| matches!(one, P::NoPrice { .. })),
        ("no_rate", |one| matches!(one, P::NoRate { .. })),
        ("no_rates", |one| matches!(one, P::NoRates { .. })),
        ("negative", |one| matches!(one, P::Negative { .. })),
        ("contradiction", |one| matches!(one, P::Contradiction { .. })),
        ("no_such_reserved_instance", |one| {
            matches!(one, P::NoSuchReservedInstance { .. })
        }),
    ]
};

/// Which data there is, and how old it is; changes every second.
#[must_use]
pub fn state(inventory: &Inventory, options: &Options, now: i64) -> String {
    let mut text = Exposition::default();
    state::write(&mut text, inventory, options, now);
    text.into_text()
}

/// [`bill`] and [`state`] of one moment.
#[must_use]
pub fn all(inventory: &Inventory, options: &Options, now: i64) -> String {
    bill(inventory, options, now) + &state(inventory, options, now)
}

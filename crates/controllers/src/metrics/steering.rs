//! The metrics of steering, under the names that existing dashboards use.
//!
//! Gauges about commitments and overlays are replaced as a whole, so that what is gone has no series.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use veneer_steering::commitments::{Kind, Ledger};
use veneer_steering::decisions::Decision;

type Labels = Vec<(&'static str, String)>;

/// From a millisecond to what a slow Prometheus takes.
const SECONDS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// What the gauges show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) disabled: bool,
    pub(crate) threshold: f64,
    /// Whether commitments are looked at; without, their gauges are left out.
    pub(crate) cost_aware: bool,
    pub(crate) freshness: Option<f64>,
    pub(crate) plans_available: bool,
    pub(crate) reserved_available: bool,
    commitments: Vec<(&'static str, Labels, f64)>,
    pub(crate) overlays: BTreeMap<&'static str, usize>,
}

impl Data {
    /// Takes over what the newest observation says.
    pub(crate) fn learn(&mut self, ledger: &Ledger) {
        let believed = |kind: Kind| matches!(ledger.books.get(&kind), Some(Ok(_)));
        self.freshness = ledger.age.map(|age| age.as_secs_f64());
        self.plans_available = believed(Kind::Ec2InstanceSavingsPlan) && believed(Kind::ComputeSavingsPlan);
        self.reserved_available = believed(Kind::ReservedInstance);
        self.commitments.clear();
        let mut reserved: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for book in ledger.books.values().flatten() {
            for (target, balance) in &book.balances {
                let Ok(balance) = balance else { continue };
                if target.kind == Kind::ReservedInstance {
                    // Zonal and regional ones together: dashboards know no zone.
                    *reserved.entry((&target.covers, &target.region)).or_default() += balance.owned;
                    continue;
                }
                let kind = match target.kind {
                    Kind::ComputeSavingsPlan => "compute",
                    _ => "ec2_instance",
                };
                let labels = vec![
                    ("type", kind.to_owned()),
                    ("instance_family", target.covers.clone()),
                    ("region", target.region.clone()),
                ];
                self.commitments.push((
                    "veneer_savings_plan_utilization_percent",
                    labels.clone(),
                    balance.utilization.unwrap_or_default(),
                ));
                self.commitments.push((
                    "veneer_savings_plan_remaining_capacity_dollars",
                    labels,
                    balance.left,
                ));
            }
        }
        let reserved = reserved.into_iter().map(|((instance_type, region), owned)| {
            let labels = vec![
                ("instance_type", instance_type.to_owned()),
                ("region", region.to_owned()),
            ];
            ("veneer_reserved_instance_count", labels, owned)
        });
        self.commitments.extend(reserved);
    }
}

/// Counters, histograms and gauges of steering.
#[derive(Clone, Debug)]
pub(crate) struct SteeringMetrics {
    reconciliation_seconds: Histogram,
    reconciliations: Family<Labels, Counter>,
    decision_seconds: Histogram,
    decisions: Family<Labels, Counter>,
    operations: Family<Labels, Counter>,
    operation_errors: Family<Labels, Counter>,
    query_seconds: Family<Labels, Histogram, fn() -> Histogram>,
    query_errors: Family<Labels, Counter>,
    query_results: Family<Labels, Gauge>,
    data: Arc<Mutex<Data>>,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl SteeringMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let new = Self {
            reconciliation_seconds: histogram(),
            reconciliations: Family::default(),
            decision_seconds: histogram(),
            decisions: Family::default(),
            operations: Family::default(),
            operation_errors: Family::default(),
            query_seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
            query_errors: Family::default(),
            query_results: Family::default(),
            data: Arc::default(),
        };
        registry.register(
            "veneer_reconciliation_duration_seconds",
            "How long it took to ask, to decide and to write",
            new.reconciliation_seconds.clone(),
        );
        registry.register(
            "veneer_reconciliation",
            "Reconciliations of commitments; result is success, stale or error",
            new.reconciliations.clone(),
        );
        registry.register(
            "veneer_decision_duration_seconds",
            "How long it took to decide",
            new.decision_seconds.clone(),
        );
        registry.register(
            "veneer_decision",
            "Decisions about commitments, once per reconciliation and when they change",
            new.decisions.clone(),
        );
        registry.register(
            "veneer_overlay_operations",
            "NodeOverlays that were created, updated or deleted",
            new.operations.clone(),
        );
        registry.register(
            "veneer_overlay_operation_errors",
            "NodeOverlays that could not be created, updated or deleted",
            new.operation_errors.clone(),
        );
        registry.register(
            "veneer_prometheus_query_duration_seconds",
            "How long a query took, with its retries",
            new.query_seconds.clone(),
        );
        registry.register(
            "veneer_prometheus_query_errors",
            "Queries without a usable answer",
            new.query_errors.clone(),
        );
        registry.register(
            "veneer_prometheus_query_result_count",
            "Samples in the newest answer",
            new.query_results.clone(),
        );
        registry.register_collector(Box::new(Gauges(Arc::clone(&new.data))));
        new
    }

    pub(crate) fn queried(&self, query: &'static str, took: Duration, results: Option<usize>) {
        let labels: Labels = vec![("query_type", query.to_owned())];
        self.query_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
        match results {
            Some(count) => {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.query_results.get_or_create(&labels).set(count);
            }
            None => {
                self.query_errors.get_or_create(&labels).inc();
            }
        }
    }

    pub(crate) fn reconciled(&self, result: &'static str, took: Duration) {
        self.reconciliation_seconds.observe(took.as_secs_f64());
        self.reconciliations
            .get_or_create(&vec![("result", result.to_owned())])
            .inc();
    }

    pub(crate) fn decided(&self, took: Duration) {
        self.decision_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn decision(&self, decision: &Decision) {
        let labels = vec![
            ("capacity_type", decision.target.kind.label().to_owned()),
            ("should_exist", decision.should_exist().to_string()),
            ("reason", decision.reason.as_str().to_owned()),
        ];
        self.decisions.get_or_create(&labels).inc();
    }

    pub(crate) fn operation(&self, operation: &'static str, capacity_type: &'static str) {
        let labels = vec![
            ("operation", operation.to_owned()),
            ("capacity_type", capacity_type.to_owned()),
        ];
        self.operations.get_or_create(&labels).inc();
    }

    pub(crate) fn operation_error(&self, operation: &'static str, error_type: &'static str) {
        let labels = vec![
            ("operation", operation.to_owned()),
            ("error_type", error_type.to_owned()),
        ];
        self.operation_errors.get_or_create(&labels).inc();
    }

    /// Changes what the gauges show.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Data)) {
        change(&mut self.data.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[derive(Debug)]
struct Gauges(Arc<Mutex<Data>>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let data = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut family = |name: &str, help: &str, series: &[(Labels, f64)]| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in series.iter().filter(|(labels, _)| !labels.is_empty()) {
                ConstGauge::new(*value).encode(family.encode_family(labels)?)?;
            }
            match series {
                [(labels, value)] if labels.is_empty() => ConstGauge::new(*value).encode(family),
                _ => Ok(()),
            }
        };
        let one = |value: f64| vec![(Labels::new(), value)];
        let flag = |is_true: bool| one(f64::from(u8::from(is_true)));
        let info = vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("disabled_mode", data.disabled.to_string()),
        ];
        family(
            "veneer_info",
            "Always 1; the labels say what runs",
            &[(info, 1.0)],
        )?;
        family(
            "veneer_config_overlays_disabled",
            "1 if overlays are written so that they match nothing",
            &flag(data.disabled),
        )?;
        family(
            "veneer_config_utilization_threshold_percent",
            "Plans used more than this get no overlay",
            &one(data.threshold),
        )?;
        let counts: Vec<(Labels, f64)> = data
            .overlays
            .iter()
            .map(|(kind, count)| (vec![("capacity_type", (*kind).to_owned())], *count as f64))
            .collect();
        family("veneer_overlay_count", "NodeOverlays that Veneer owns", &counts)?;
        if !data.cost_aware {
            return Ok(());
        }
        family(
            "veneer_lumina_data_freshness_seconds",
            "The age of the oldest data about commitments",
            &data.freshness.map(one).unwrap_or_default(),
        )?;
        family(
            "veneer_lumina_data_available",
            "1 if the data about Savings Plans can be believed",
            &flag(data.plans_available),
        )?;
        family(
            "veneer_reserved_instance_data_available",
            "1 if the data about Reserved Instances can be believed",
            &flag(data.reserved_available),
        )?;
        for (name, help) in [
            (
                "veneer_reserved_instance_count",
                "Reserved Instances that are owned",
            ),
            (
                "veneer_savings_plan_utilization_percent",
                "The share of Savings Plans in use",
            ),
            (
                "veneer_savings_plan_remaining_capacity_dollars",
                "Dollars per hour of Savings Plans that nothing uses",
            ),
        ] {
            let series: Vec<(Labels, f64)> = data
                .commitments
                .iter()
                .filter(|(of, ..)| *of == name)
                .map(|(_, labels, value)| (labels.clone(), *value))
                .collect();
            family(name, help, &series)?;
        }
        Ok(())
    }
}

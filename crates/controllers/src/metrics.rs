//! The metrics, in the text format of Prometheus.
//!
//! Gauges about overlays are replaced as a whole after every pass, so a scrape never sees half of one pass, and
//! an overlay that is gone has no series.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use veneer_engine::overlay::Verdict;
use veneer_engine::overlay::status::Plan;

use crate::pass::Evaluated;
use crate::serve::Health;
use crate::standalone::Meters;
use crate::watch_ages::WatchAges;

mod steering;

pub(crate) use steering::SteeringMetrics;

/// From a tenth of a millisecond, where one changed overlay of a few is, to seconds.
const DURATIONS: [f64; 13] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
];

/// Everything that `/metrics` shows.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    overlays: Arc<Overlays>,
    evaluation_seconds: Histogram,
    /// What provisioning counts.
    pub provisioning: Meters,
    pub(crate) steering: SteeringMetrics,
    pub(crate) watches: WatchAges,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// The metrics of a process that has not done anything yet.
    #[must_use]
    pub fn new() -> Self {
        let overlays = Arc::new(Overlays::default());
        let evaluation_seconds = Histogram::new(DURATIONS);
        let mut registry = Registry::default();
        registry.register(
            "veneer_overlay_evaluation_duration_seconds",
            "How long the evaluation of all NodeOverlays took, when any of them or a NodePool had changed",
            evaluation_seconds.clone(),
        );
        registry.register_collector(Box::new(Arc::clone(&overlays)));
        let provisioning = Meters::default();
        provisioning.register(&mut registry);
        let steering = SteeringMetrics::new(&mut registry);
        let watches = WatchAges::default();
        registry.register_collector(Box::new(watches.clone()));
        Self {
            registry: Arc::new(registry),
            overlays,
            evaluation_seconds,
            provisioning,
            steering,
            watches,
        }
    }

    /// The readiness of the process whose watches these metrics show.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::new(&self.watches)
    }

    /// What `/metrics` answers.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut body = String::new();
        text::encode(&mut body, &self.registry)?;
        Ok(body)
    }

    pub(crate) fn evaluated(&self, took: Duration) {
        self.evaluation_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn set(&self, evaluated: &Evaluated, plan: &Plan, compares: bool) {
        let Evaluated { evaluation, effects } = evaluated;
        let mut gauges = Gauges::default();
        for (at, (verdict, effect)) in evaluation.verdicts().iter().zip(&effects.overlays).enumerate() {
            let overlay = evaluation.overlay_name(at);
            gauges
                .ready
                .push((overlay.to_owned(), i64::from(*verdict == Verdict::Ready)));
            for (pool, matched) in evaluation.pools().iter().zip(&effect.matched) {
                gauges
                    .matched
                    .push((overlay.to_owned(), pool.name.clone(), *matched));
            }
            if compares {
                let differs = plan.differing.iter().any(|name| name == overlay);
                gauges.differs.push((overlay.to_owned(), i64::from(differs)));
            }
        }
        *self.overlays.0.lock().unwrap_or_else(PoisonError::into_inner) = gauges;
    }
}

#[derive(Debug, Default)]
struct Gauges {
    ready: Vec<(String, i64)>,
    matched: Vec<(String, String, usize)>,
    differs: Vec<(String, i64)>,
}

#[derive(Debug, Default)]
struct Overlays(Mutex<Gauges>);

impl Collector for Overlays {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let by_overlay = [
            (
                "veneer_overlay_ready",
                "1 if the NodeOverlay is in force, 0 if it is left out",
                &gauges.ready,
            ),
            (
                "veneer_overlay_verdict_differs",
                "1 if Karpenter's conditions say something else than Veneer about the NodeOverlay",
                &gauges.differs,
            ),
        ];
        for (name, help, values) in by_overlay.into_iter().filter(|(.., values)| !values.is_empty()) {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (overlay, value) in values {
                let labels = [("overlay", overlay.as_str())];
                ConstGauge::new(*value).encode(family.encode_family(&labels)?)?;
            }
        }
        if !gauges.matched.is_empty() {
            let mut family = encoder.encode_descriptor(
                "veneer_overlay_matched_offerings",
                "How many offerings of the NodePool match the NodeOverlay's requirements",
                None,
                MetricType::Gauge,
            )?;
            for (overlay, pool, matched) in &gauges.matched {
                let labels = [("overlay", overlay.as_str()), ("nodepool", pool.as_str())];
                ConstGauge::new(*matched).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

//! How long each watch has not worked: for the probe, the metrics, and those who must not act on what is old.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

/// A watch that has failed for so long is dead.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(15);

/// Who watches, and what.
type Key = (&'static str, String);

#[derive(Debug)]
struct Watch {
    heard: Instant,
    failing: Option<(Instant, String)>,
    /// Whether the work goes on without it.
    is_optional: bool,
}

impl Watch {
    const fn begun(now: Instant) -> Self {
        Self {
            heard: now,
            failing: None,
            is_optional: false,
        }
    }
}

/// The watches of one process.
#[derive(Clone, Debug)]
pub(crate) struct WatchAges(Arc<Mutex<Watches>>);

#[derive(Debug)]
struct Watches {
    watches: BTreeMap<Key, Watch>,
    /// A watch that has failed for so long is dead.
    dead_after: Duration,
}

impl Default for WatchAges {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Watches {
            watches: BTreeMap::new(),
            dead_after: DEAD_AFTER,
        })))
    }
}

/// A watch that does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadWatch {
    pub(crate) kind: String,
    pub(crate) age: Duration,
    pub(crate) error: String,
}

impl fmt::Display for DeadWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the watch of {} has failed for {} s: {}",
            self.kind,
            self.age.as_secs(),
            self.error
        )
    }
}

impl WatchAges {
    fn lock(&self) -> MutexGuard<'_, Watches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a watch may fail until it is dead.
    pub(crate) fn set_dead_after(&self, limit: Duration) {
        self.lock().dead_after = limit;
    }

    /// Work goes on without this watch: metrics show it, and it is never among the dead ones.
    pub(crate) fn set_optional(&self, who: &'static str, kind: &str) {
        let watches = &mut self.lock().watches;
        let watch = watches.entry((who, kind.to_owned()));
        watch.or_insert_with(|| Watch::begun(Instant::now())).is_optional = true;
    }

    /// Whether a watch, optional or not, has failed for so long that it is dead.
    pub(crate) fn is_dead(&self, who: &'static str, kind: &str) -> bool {
        let known = self.lock();
        let watch = known.watches.get(&(who, kind.to_owned()));
        let failing = watch.and_then(|watch| watch.failing.as_ref());
        failing.is_some_and(|(since, _)| since.elapsed() >= known.dead_after)
    }

    /// The watch works. Says whether it did not before.
    pub(crate) fn works(&self, who: &'static str, kind: &str) -> bool {
        let now = Instant::now();
        let watches = &mut self.lock().watches;
        match watches.get_mut(&(who, kind.to_owned())) {
            Some(watch) => {
                watch.heard = now;
                watch.failing.take().is_some()
            }
            None => {
                watches.insert((who, kind.to_owned()), Watch::begun(now));
                false
            }
        }
    }

    /// An attempt failed. Says whether that is news: the first one, or another reason.
    pub(crate) fn fails(&self, who: &'static str, kind: &str, error: &str) -> bool {
        let now = Instant::now();
        let watches = &mut self.lock().watches;
        let watch = watches.entry((who, kind.to_owned()));
        let watch = watch.or_insert_with(|| Watch::begun(now));
        match &mut watch.failing {
            Some((_, known)) if known == error => false,
            Some((_, known)) => {
                error.clone_into(known);
                true
            }
            failing @ None => {
                *failing = Some((now, error.to_owned()));
                true
            }
        }
    }

    /// Nobody watches any more.
    pub(crate) fn forget(&self, who: &'static str) {
        self.lock().watches.retain(|(known, _), _| *known != who);
    }

    /// The watches that are dead and cannot be done without, the oldest first.
    pub(crate) fn dead(&self, who: Option<&'static str>) -> Vec<DeadWatch> {
        let now = Instant::now();
        let known = self.lock();
        let limit = known.dead_after;
        let mut dead: Vec<DeadWatch> = known
            .watches
            .iter()
            .filter(|((known, _), watch)| !watch.is_optional && who.is_none_or(|who| who == *known))
            .filter_map(|((_, kind), watch)| {
                let (since, error) = watch.failing.as_ref()?;
                let age = now.duration_since(*since);
                (age >= limit).then(|| DeadWatch {
                    kind: kind.clone(),
                    age,
                    error: error.clone(),
                })
            })
            .collect();
        dead.sort_by_key(|watch| std::cmp::Reverse(watch.age));
        dead
    }
}

impl Collector for WatchAges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let watches = &self.lock().watches;
        if watches.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let mut ages = encoder.encode_descriptor(
            "veneer_watch_age_seconds",
            "Seconds since the watch last heard of the API server: up to about a minute while it works",
            None,
            MetricType::Gauge,
        )?;
        for ((who, kind), watch) in watches {
            let labels = [("controller", *who), ("kind", kind.as_str())];
            let age = now.duration_since(watch.heard).as_secs_f64();
            ConstGauge::new(age).encode(ages.encode_family(&labels)?)?;
        }
        let mut failing = encoder.encode_descriptor(
            "veneer_watch_failing_seconds",
            "Seconds for which every attempt to watch has failed; 0 while the watch works",
            None,
            MetricType::Gauge,
        )?;
        for ((who, kind), watch) in watches {
            let labels = [("controller", *who), ("kind", kind.as_str())];
            let since = watch
                .failing
                .as_ref()
                .map(|(since, _)| now.duration_since(*since));
            ConstGauge::new(since.unwrap_or_default().as_secs_f64())
                .encode(failing.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_watch_is_not_a_dead_one() {
        let ages = WatchAges::default();
        ages.set_dead_after(Duration::ZERO);
        let dead = |who| {
            let dead = ages.dead(who);
            dead.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(!ages.works("provisioning", "Pod"));
        assert!(dead(None).is_empty());
        assert!(ages.fails("provisioning", "Pod", "forbidden"));
        assert!(!ages.fails("provisioning", "Pod", "forbidden"));
        assert_eq!(
            dead(Some("provisioning")),
            ["the watch of Pod has failed for 0 s: forbidden"]
        );
        assert!(dead(Some("overlays")).is_empty());
        ages.set_dead_after(Duration::from_secs(3600));
        assert!(dead(None).is_empty());
        assert!(ages.fails("provisioning", "Pod", "connection refused"));
        assert!(ages.works("provisioning", "Pod"));
        assert!(dead(None).is_empty());
        ages.fails("provisioning", "Pod", "forbidden");
        ages.forget("provisioning");
        assert!(dead(None).is_empty());
    }

    #[test]
    fn a_watch_that_can_be_done_without_is_never_among_the_dead() {
        let ages = WatchAges::default();
        ages.set_dead_after(Duration::ZERO);
        ages.set_optional("provisioning", "Job");
        assert!(!ages.is_dead("provisioning", "Job"));
        assert!(ages.fails("provisioning", "Job", "forbidden"));
        assert!(!ages.fails("provisioning", "Job", "forbidden"));
        assert!(ages.is_dead("provisioning", "Job"));
        assert!(ages.dead(None).is_empty());
        assert!(ages.works("provisioning", "Job"));
        assert!(!ages.is_dead("provisioning", "Job"));
    }
}

//! Watches Kubernetes, lets the pure rooms decide, and writes what they decided.
//!
//! Two controllers: [`verdicts`] says what became of NodeOverlays, [`steer`] writes those that preferences and
//! commitments ask for. One pass is: observe (what the watches and Prometheus have brought) → decide
//! (`veneer_engine::overlay::status`, `veneer_steering`: pure) → act (conditions, overlays, events, gauges). Changes that arrive together make one pass, and a pass over an unchanged cluster
//! writes nothing and logs nothing. Nothing is written before every watch has listed its objects once.
//!
//! This is the one room with a Kubernetes client. It makes no decision of its own: if a line here asks *what* to
//! write, it belongs in the engine or in steering.

/// Whether a bug was put in on purpose, for the simulation to notice; the program has none of them.
#[cfg(test)]
macro_rules! seeded {
    ($bug:ident) => {
        $crate::simulation::has($crate::simulation::Bug::$bug)
    };
}
#[cfg(not(test))]
macro_rules! seeded {
    ($bug:ident) => {
        false
    };
}

mod act;
pub mod embedded;
pub mod export;
mod feed;
mod lease;
mod metrics;
mod observe;
mod pass;
mod prices;
pub mod provider;
mod run;
mod serve;
#[cfg(test)]
mod simulation;
pub mod standalone;
mod steer;
mod supervise;
mod verdicts;
mod vitals;
mod watch_ages;

pub use lease::{Election, Fence};
pub use metrics::Metrics;
pub use prices::LivePrices;
pub use run::{Error, Mode, Output, Provider, Settings, run};
pub use serve::{ApplyRequest, Health, ServeError, Server};
pub use steer::{Decisions, Known, PrometheusError, PrometheusSettings, Series, SteeringSettings, history};

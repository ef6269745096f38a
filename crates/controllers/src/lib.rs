//! Watches Kubernetes, lets the pure rooms decide, and writes what they decided.
//!
//! One pass is: observe (what the watches have brought) → decide (`veneer_engine::overlay::status`, pure) → act
//! (conditions, events, gauges). Changes that arrive together make one pass, and a pass over an unchanged cluster
//! writes nothing and logs nothing. Nothing is written before every watch has listed its objects once.
//!
//! This is the one room with a Kubernetes client. It makes no decision of its own: if a line here asks *what* to
//! write, it belongs in the engine.

mod act;
mod metrics;
mod observe;
mod pass;
pub mod provider;
mod run;
mod serve;
pub mod standalone;

pub use metrics::Metrics;
pub use run::{Error, Mode, Output, Provider, Settings, run};
pub use serve::{Health, ServeError, Server};

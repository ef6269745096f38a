//! The embedded world: a cluster, a cloud and a clock in memory, in which the real decisions run.
//!
//! A [`World`] is made from a [`Scenario`] and a seed. Time jumps from one event to the next; after each, the controllers
//! look until nothing is left to do: the scheduler binds pods ([`scheduler`]), steering writes overlays
//! (`veneer_steering::steer`), and one pass of standalone mode (`veneer_steering::cycle`) gives the same plans as in a real
//! cluster, which are carried out here on objects ([`objects`]) and instances ([`cloud`]) in memory.
//!
//! Invariants: no clock, file, environment variable, network or thread; the same scenario and seed give the same history to
//! the byte; no decision of the product is made here.

pub mod adversary;
pub mod billing;
pub mod chaos;
pub mod cloud;
pub mod conformance;
mod execute;
mod life;
pub mod manifests;
pub mod objects;
pub mod picture;
pub mod report;
mod rival;
pub mod rng;
pub mod scenario;
pub mod scheduler;
pub mod statistics;
mod steerer;
mod workloads;
mod world;

pub use scenario::{Scenario, ScenarioError, Span};
pub use steerer::Steerer;
pub use world::{World, catalogue};

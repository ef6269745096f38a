//! What would be scheduled, launched and consolidated, at what price, and why.
//!
//! This room is pure: it reads no clock, file, environment variable or network (`clippy.toml` beside
//! `Cargo.toml` says so), it knows no Kubernetes client, and the same input gives the same output to the byte.
//! Iteration order is defined everywhere: a hash map is never iterated to produce output.

pub mod backoff;
pub mod bitset;
pub mod catalogue;
pub mod cluster;
pub mod cron;
pub mod disruption;
pub mod explain;
pub mod instance_type;
pub mod labels;
pub mod launch;
pub mod lifecycle;
pub mod overlay;
pub mod packing;
pub mod plan;
pub mod provision;
pub mod quantity;
pub mod requirements;
pub mod resources;
pub mod taints;
pub mod vocabulary;

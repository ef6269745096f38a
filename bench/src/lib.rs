//! What the benchmarks and the tests on random workloads share: both provisioners in clusters of their own, and what
//! can be measured of them.

#![allow(
    clippy::indexing_slicing,
    reason = "a benchmark may fail loudly on input that it made itself"
)]

pub mod measure;
pub mod objects;
pub mod prices;
pub mod sides;
pub mod workloads;

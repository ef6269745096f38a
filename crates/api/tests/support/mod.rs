//! What the tests of the CRDs share: the tables of cases, Karpenter's CRDs, and a server to send objects to.
//! Each test file compiles its own copy and uses a part of it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

pub(crate) mod cases;
pub(crate) mod examples;
pub(crate) mod generate;
pub(crate) mod karpenter;
pub(crate) mod random;
pub(crate) mod server;
pub(crate) mod types;

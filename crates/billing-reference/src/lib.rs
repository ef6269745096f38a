//! Organizations made by chance (`generated`), and their bills from a second, slow implementation of the rules (`reference`). Tests only.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

pub mod generated;
pub mod periods;
pub mod reference;

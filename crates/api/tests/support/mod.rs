//! What the tests on a real API server share: the tables of cases, and a server to send them to.

pub mod cases;
pub mod examples;
pub mod karpenter;
pub mod server;

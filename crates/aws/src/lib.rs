//! EC2: node classes, launch templates, fleets, instances and interruptions.
//!
//! The only room that talks to AWS. Credentials, regions and endpoints are the SDK's; the calls themselves are made by
//! [`Client`] on the HTTP stack that the Kubernetes client has, because the SDK's EC2 crate is larger than all of
//! Veneer and would stand between a request and the engine's answer that it must equal.
//!
//! Invariants:
//! - Every call is a row of [`Call`]; `veneer iam-policy` is made from that table.
//! - What is decided (which types, which prices, which strategy) comes from `veneer_engine::launch`; nothing here chooses.
//! - For one NodeClaim there is one instance: the claim's uid is the client token of its launch.

mod call;
mod class_hash;
mod client;
pub mod collect;
mod drift;
mod ec2;
mod endpoint;
mod error;
pub mod interruption;
mod launch;
mod market;
mod names;
pub mod node_class;
mod outside;
pub mod policy;
mod provider;
mod requests;
mod services;
mod template;
mod terminate;
mod user_data;
mod wire;

pub use call::{Call, Reach, Service};
pub use class_hash::{VERSION as CLASS_HASH_VERSION, class_hash};
pub use client::{Client, Patience, Traffic, chain};
pub use ec2::Machine;
pub use error::Error;
pub use launch::Failure;
pub use market::{Changes, Market};
pub use names::{CLAIM_TAG, CLUSTER_TAG};
pub use outside::Outside;
pub use provider::{Ec2, instance_id, provider_id};
pub use requests::Requests;
pub use services::Message;
pub use template::Cluster;

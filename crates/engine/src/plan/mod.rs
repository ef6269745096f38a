//! What a cluster looks like at one moment, and what shall be done about it.
//!
//! A [`Snapshot`] holds the objects as they were watched and the instances as the provider lists them. A [`Plan`]
//! holds actions that are each safe to repeat: whoever carries them out may be killed at any point, and the next
//! snapshot leads to what is still missing. Neither says where the objects live, so the same plans run against an API
//! server and against a world in memory.

mod action;
mod condition;
mod duration;
mod identity;
mod objects;
mod snapshot;
mod spare;
#[cfg(test)]
pub(crate) mod world;

pub use action::{Action, Announcement, NodeChange, Plan, Subject, Target};
pub use condition::Conditions;
pub use duration::{Lifetime, parse as parse_duration};
pub use identity::{ActionId, Verb};
pub use objects::{
    api_list, condition_true, controller_of, is_daemon_pod, is_deleting, is_terminal, label,
    merged_pool_status, name, node_pool_of, provider_id, same_taint,
};
pub use snapshot::{Instance, InstanceState, NodeClass, NodeClassHash, Shortage, Snapshot};
pub use spare::{Power, is_spare, is_spare_taint, is_to_be_stopped, is_used_spare, spare_taint};

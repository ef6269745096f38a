//! What was collected of several AWS accounts and regions, and how old each part of it is.
//!
//! An [`Inventory`] is filled part by part: one account, one region, one kind of data. A part that cannot be collected keeps its old rows
//! and says so; the others go on. [`Inventory::organization`] is what the allocator bills. Nothing here reads a clock, a file, the
//! environment or the network.

mod instances;
mod organization;
mod part;
pub mod series;
mod store;
mod validation;

pub use instances::{InstanceKind, InstanceRow, InstanceView, Instances, Lifecycle, cluster_of};
pub use organization::{Discounts, Estimate};
pub use part::{DataKind, Part, Rows, SpotPrice, Zones};
pub use store::{Account, Collected, Inventory};
pub use validation::{VALIDATION_BUCKETS, Validation};

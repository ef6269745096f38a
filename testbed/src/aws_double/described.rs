//! The organization that a double plays: what AWS would know, in AWS's own words.

use std::collections::BTreeMap;

/// Everything that the double knows.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// The accounts. The first one manages the organization.
    pub accounts: Vec<DescribedAccount>,
    /// On-demand prices.
    pub prices: Vec<DescribedPrice>,
    /// Spot prices.
    pub spot: Vec<DescribedSpot>,
    /// How many entries a page has at most, whatever is asked for; none for as many as asked for.
    pub page: Option<usize>,
}

/// An account.
#[derive(Clone, Debug, Default)]
pub struct DescribedAccount {
    /// The 12 digits.
    pub id: String,
    /// The role that others may assume.
    pub role_arn: Option<String>,
    /// What the role wants to be told.
    pub external_id: Option<String>,
    /// Whether commitments are shared with it.
    pub shares: bool,
    /// What it has in each region.
    pub regions: BTreeMap<String, DescribedRegion>,
    /// Its Savings Plans.
    pub plans: Vec<DescribedPlan>,
}

/// What an account has in a region.
#[derive(Clone, Debug, Default)]
pub struct DescribedRegion {
    /// Names and ids of zones.
    pub zones: Vec<(String, String)>,
    /// Instances.
    pub instances: Vec<DescribedInstance>,
    /// Reserved Instances.
    pub reserved: Vec<DescribedReserved>,
    /// Capacity reservations.
    pub capacity: Vec<DescribedCapacity>,
}

/// An instance.
#[derive(Clone, Debug, Default)]
pub struct DescribedInstance {
    /// The id.
    pub id: String,
    /// The type.
    pub instance_type: String,
    /// The name of the zone.
    pub zone: String,
    /// `running` and so on.
    pub state: String,
    /// Such as `RunInstances:0002`.
    pub usage_operation: String,
    /// `default`, `dedicated` or `host`.
    pub tenancy: String,
    /// `spot` or `capacity-block`, or empty.
    pub lifecycle: String,
    /// When it was launched.
    pub launched: String,
    /// The capacity reservation that it runs in, or empty.
    pub capacity_reservation: String,
    /// Its tags.
    pub tags: Vec<(String, String)>,
}

/// Reserved Instances.
#[derive(Clone, Debug, Default)]
pub struct DescribedReserved {
    /// The id.
    pub id: String,
    /// The type.
    pub instance_type: String,
    /// The name of the zone of zonal ones.
    pub zone: Option<String>,
    /// Such as `Linux/UNIX`.
    pub product: String,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// How many.
    pub count: u32,
    /// From when.
    pub start: String,
    /// To when.
    pub end: String,
    /// `active` and so on.
    pub state: String,
    /// What each cost at once.
    pub fixed_price: String,
    /// What each costs every hour.
    pub hourly: String,
}

/// A capacity reservation.
#[derive(Clone, Debug, Default)]
pub struct DescribedCapacity {
    /// The id.
    pub id: String,
    /// Whose it is; empty for the account that lists it.
    pub owner: String,
    /// The type.
    pub instance_type: String,
    /// The name of the zone.
    pub zone: String,
    /// Such as `Linux/UNIX`.
    pub platform: String,
    /// `active` and so on.
    pub state: String,
    /// For how many.
    pub count: u32,
    /// From when.
    pub start: String,
}

/// A Savings Plan.
#[derive(Clone, Debug, Default)]
pub struct DescribedPlan {
    /// The id.
    pub id: String,
    /// `Compute`, `EC2Instance`, `SageMaker` or `Database`.
    pub kind: String,
    /// The family of an EC2 Instance plan.
    pub family: String,
    /// The region of an EC2 Instance plan.
    pub region: String,
    /// Dollars per hour.
    pub commitment: String,
    /// `active` and so on.
    pub state: String,
    /// From when.
    pub start: String,
    /// To when.
    pub end: String,
    /// What it pays.
    pub rates: Vec<DescribedRate>,
}

impl DescribedPlan {
    /// Its ARN.
    #[must_use]
    pub fn arn(&self, account: &str) -> String {
        format!("arn:aws:savingsplans::{account}:savingsplan/{}", self.id)
    }
}

/// What a plan pays for an hour of an instance.
#[derive(Clone, Debug, Default)]
pub struct DescribedRate {
    /// The region.
    pub region: String,
    /// The type.
    pub instance_type: String,
    /// Such as `Linux/UNIX`.
    pub product: String,
    /// Such as `RunInstances`.
    pub operation: String,
    /// Such as `USW2-BoxUsage:m5.large`.
    pub usage_type: String,
    /// `shared` or `dedicated`.
    pub tenancy: String,
    /// Dollars.
    pub rate: String,
}

/// What an instance costs on demand.
#[derive(Clone, Debug, Default)]
pub struct DescribedPrice {
    /// The region.
    pub region: String,
    /// The type.
    pub instance_type: String,
    /// Such as `Linux`.
    pub operating_system: String,
    /// Such as `RunInstances`.
    pub operation: String,
    /// `Shared` or `Dedicated`.
    pub tenancy: String,
    /// Dollars per hour.
    pub price: String,
}

/// What an instance costs as spot.
#[derive(Clone, Debug, Default)]
pub struct DescribedSpot {
    /// The region.
    pub region: String,
    /// The id of the zone.
    pub zone_id: String,
    /// The type.
    pub instance_type: String,
    /// Such as `Linux/UNIX`.
    pub product: String,
    /// Dollars per hour.
    pub price: String,
    /// Since when.
    pub since: String,
}

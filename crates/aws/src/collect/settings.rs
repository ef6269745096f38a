//! What is collected, how often, and how patiently.

use std::time::Duration;

use veneer_billing::Platform;
use veneer_inventory::DataKind;

use crate::client::Patience;

/// An account that is collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The 12 digits.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// The role of it that is assumed; without one, the credentials that we have anyway are those of this account.
    pub role_arn: Option<String>,
    /// What the role wants to be told, if anything.
    pub external_id: Option<String>,
    /// The regions that are looked at.
    pub regions: Vec<String>,
}

/// How often each kind of data is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Reserved Instances, Savings Plans, capacity reservations and how they are shared.
    pub commitments: Duration,
    /// Instances.
    pub instances: Duration,
    /// On-demand prices and rates of plans.
    pub prices: Duration,
    /// Spot prices.
    pub spot_prices: Duration,
    /// Whether accounts can be reached.
    pub validation: Duration,
    /// How soon what failed is tried again, if it is not due earlier.
    pub retry: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            commitments: Duration::from_secs(3600),
            instances: Duration::from_secs(300),
            prices: Duration::from_secs(24 * 3600),
            spot_prices: Duration::from_secs(300),
            validation: Duration::from_secs(600),
            retry: Duration::from_secs(60),
        }
    }
}

impl Intervals {
    pub(super) fn of(&self, kind: DataKind) -> Duration {
        match kind {
            DataKind::Instances => self.instances,
            DataKind::SpotPrices => self.spot_prices,
            DataKind::Prices | DataKind::PlanRates | DataKind::Zones => self.prices,
            DataKind::ReservedInstances
            | DataKind::CapacityReservations
            | DataKind::SavingsPlans
            | DataKind::Sharing => self.commitments,
        }
    }
}

/// What is collected, how often, and how patiently.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The accounts.
    pub accounts: Vec<Target>,
    /// The account that is asked for what is the same for all (prices), and how commitments are shared; by default the first.
    pub default_account: Option<String>,
    /// How often.
    pub intervals: Intervals,
    /// The platforms of which prices are wanted even while nothing of them runs.
    pub platforms: Vec<Platform>,
    /// The tag that names the node of an instance.
    pub node_name_tag: String,
    /// Whether it is asked how commitments are shared; otherwise the organization shares them all.
    pub sharing: bool,
    /// How many requests are under way at once.
    pub concurrency: usize,
    /// How long one call is tried.
    pub patience: Patience,
    /// How long one part may take, all its pages together.
    pub part_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            accounts: Vec::new(),
            default_account: None,
            intervals: Intervals::default(),
            platforms: vec![Platform::Linux],
            node_name_tag: "Name".to_owned(),
            sharing: true,
            concurrency: 8,
            patience: Patience {
                timeout: Duration::from_secs(30),
                ..Patience::default()
            },
            part_timeout: Duration::from_secs(300),
        }
    }
}

//! What is paid for already: Reserved Instances, EC2 Instance Savings Plans and Compute Savings Plans, and how much
//! of each is left.
//!
//! [`Ledger::read`] turns the answers of a metrics server into one [`Book`] per kind, [`Ledger::of_inventory`] what was collected of the
//! accounts themselves. Whatever cannot be believed (a
//! query that failed, data that is old, a series that is missing, a value that is no number) becomes a [`Doubt`],
//! and a doubt is never mistaken for "none left": that is said only by an answer that is empty and fresh.

mod counted;
mod freshness;
mod inventory;
mod plans;
mod plausible;
mod reserved;
mod samples;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use veneer_api::labels::veneer::{
    COMMITMENT_COMPUTE_SAVINGS_PLAN, COMMITMENT_EC2_INSTANCE_SAVINGS_PLAN, COMMITMENT_RESERVED_INSTANCE,
};

pub use plausible::{MOST_DOLLARS_PER_HOUR, MOST_INSTANCES, ec2_types};
pub use samples::{Answer, Observation, Sample};
pub use veneer_billing::{exchange, family_of, is_size_flexible, size_factor, size_quarters};

/// The kinds of commitment, in the order in which AWS applies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A number of instances of one type in one region.
    ReservedInstance,
    /// Dollars per hour for one family in one region.
    #[serde(rename = "ec2-instance-savings-plan")]
    Ec2InstanceSavingsPlan,
    /// Dollars per hour for anything.
    ComputeSavingsPlan,
}

impl Kind {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [
        Self::ReservedInstance,
        Self::Ec2InstanceSavingsPlan,
        Self::ComputeSavingsPlan,
    ];

    /// The value of the label `veneer.io/capacity-type`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::ReservedInstance => COMMITMENT_RESERVED_INSTANCE,
            Self::Ec2InstanceSavingsPlan => COMMITMENT_EC2_INSTANCE_SAVINGS_PLAN,
            Self::ComputeSavingsPlan => COMMITMENT_COMPUTE_SAVINGS_PLAN,
        }
    }

    /// The kind with this label value.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// What one overlay can steer to: commitments of one kind that cover the same things, added up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The kind of commitment.
    pub kind: Kind,
    /// The instance type of Reserved Instances, the family of EC2 Instance plans, nothing for Compute plans.
    pub covers: String,
    /// The region, or nothing for Compute plans.
    pub region: String,
    /// The zone of zonal Reserved Instances, nothing for everything else.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
}

impl Target {
    /// Regional Reserved Instances of one type.
    #[must_use]
    pub fn reserved(instance_type: &str, region: &str) -> Self {
        Self::reserved_in(instance_type, region, "")
    }

    /// Reserved Instances of one type in one zone, as the account of the cluster names it; without a zone, regional ones.
    #[must_use]
    pub fn reserved_in(instance_type: &str, region: &str, zone: &str) -> Self {
        Self {
            kind: Kind::ReservedInstance,
            covers: instance_type.to_owned(),
            region: region.to_owned(),
            zone: zone.to_owned(),
        }
    }

    /// EC2 Instance Savings Plans of one family.
    #[must_use]
    pub fn family(family: &str, region: &str) -> Self {
        Self {
            kind: Kind::Ec2InstanceSavingsPlan,
            covers: family.to_owned(),
            region: region.to_owned(),
            zone: String::new(),
        }
    }

    /// All Compute Savings Plans.
    #[must_use]
    pub fn compute() -> Self {
        Self {
            kind: Kind::ComputeSavingsPlan,
            covers: String::new(),
            region: String::new(),
            zone: String::new(),
        }
    }

    /// Whether this may cover an instance of the type in one of these zones; without any, it may be in every zone.
    #[must_use]
    pub fn may_cover(&self, instance_type: &str, zones: &[String]) -> bool {
        match self.kind {
            Kind::ReservedInstance => {
                let is_here = self.zone.is_empty() || zones.is_empty() || zones.contains(&self.zone);
                is_here && self.covers == instance_type
            }
            Kind::Ec2InstanceSavingsPlan => family_of(instance_type) == self.covers,
            Kind::ComputeSavingsPlan => true,
        }
    }
}

/// How well what is left is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Certainty {
    /// The data says so.
    #[default]
    Exact,
    /// There may be less: instances of other sizes that AWS covers by size flexibility, Fargate and Lambda are not in the data.
    AtMost,
    /// The data does not say how many of this type are owned; while any is, one counts as available.
    Assumed,
}

/// How much of a target there is and how much of that is left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Balance {
    /// Instances, or dollars per hour, that are paid for.
    pub owned: f64,
    /// Instances, or dollars per hour, that nothing uses.
    pub left: f64,
    /// The share in use, in percent; Reserved Instances are judged by what is left.
    pub utilization: Option<f64>,
    /// How well `left` is known.
    pub certainty: Certainty,
}

/// Why nothing may be concluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A query got no usable answer.
    QueryFailed(String),
    /// The data is older than the limit.
    Stale {
        /// Its age.
        age: SignedDuration,
        /// The limit.
        limit: SignedDuration,
    },
    /// Nothing says how old the data is.
    NoFreshness(String),
    /// A series that belongs to the others is missing, or its value is no number.
    Incomplete(String),
    /// A value that cannot be.
    Implausible(String),
}

impl Doubt {
    /// The bounded name of the reason, for labels of metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::QueryFailed(_) => "query-failed",
            Self::Stale { .. } => "stale-data",
            Self::NoFreshness(_) => "no-freshness",
            Self::Incomplete(_) => "incomplete-data",
            Self::Implausible(_) => "implausible-data",
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueryFailed(why) => write!(f, "query failed: {why}"),
            Self::Stale { age, limit } => {
                write!(
                    f,
                    "the data is {} s old, the limit is {} s",
                    age.as_secs(),
                    limit.as_secs()
                )
            }
            Self::NoFreshness(why) | Self::Incomplete(why) | Self::Implausible(why) => f.write_str(why),
        }
    }
}

/// What is in scope, and how old it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The account whose Reserved Instances and EC2 Instance plans count.
    pub account: String,
    /// The region of the cluster.
    pub region: String,
    /// Whether Compute plans of other accounts of the organisation count.
    pub shared_plans: bool,
    /// Data is believed up to this age.
    pub freshness_limit: SignedDuration,
}

/// What is left of each target, or why that is not known.
pub type Balances = BTreeMap<Target, Result<Balance, Doubt>>;

/// What is known about one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Book {
    /// When the data was true.
    pub data_at: Timestamp,
    /// The targets that somebody pays for.
    pub balances: Balances,
    /// Why a target that is not listed may exist nevertheless.
    pub unlisted: Option<Doubt>,
}

impl Book {
    /// The targets that may cover an instance of the type in one of these zones, in the order in which AWS applies them: zonal
    /// Reserved Instances before regional ones.
    pub fn covering<'a>(
        &'a self,
        instance_type: &'a str,
        zones: &'a [String],
    ) -> impl Iterator<Item = (&'a Target, &'a Result<Balance, Doubt>)> {
        // A target without a zone sorts before those with one.
        let balances = self.balances.iter().rev();
        balances.filter(move |(target, _)| target.may_cover(instance_type, zones))
    }
}

/// Everything that was learned from one observation.
#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    /// What is known, or why nothing is, by kind.
    pub books: BTreeMap<Kind, Result<Book, Doubt>>,
    /// The age of the oldest data in scope, for the gauge.
    pub age: Option<SignedDuration>,
}

impl Ledger {
    /// Reads the answers.
    #[must_use]
    pub fn read(observation: &Observation, scope: &Scope) -> Self {
        let books = BTreeMap::from([
            (Kind::ReservedInstance, reserved::book(observation, scope)),
            (
                Kind::Ec2InstanceSavingsPlan,
                plans::book(observation, scope, Kind::Ec2InstanceSavingsPlan),
            ),
            (
                Kind::ComputeSavingsPlan,
                plans::book(observation, scope, Kind::ComputeSavingsPlan),
            ),
        ]);
        Self {
            books,
            age: freshness::oldest(observation, scope),
        }
    }

    /// The doubts about whole kinds.
    pub fn doubts(&self) -> impl Iterator<Item = (Kind, &Doubt)> {
        self.books
            .iter()
            .filter_map(|(kind, book)| book.as_ref().err().map(|doubt| (*kind, doubt)))
    }
}

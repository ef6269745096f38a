//! The AWS catalogue of Karpenter's KWOK provider, as plain facts: what the generator draws from and what the checker
//! holds placements against. It is read apart from the engine, so that a fault there shows.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use veneer_engine::quantity::Quantity;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(super) const ARCH: &str = "kubernetes.io/arch";
pub(super) const OS: &str = "kubernetes.io/os";
pub(super) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub(super) const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
pub(super) const NODE_POOL: &str = "karpenter.sh/nodepool";
pub(super) const FAMILY: &str = "karpenter.kwok.sh/instance-family";
pub(super) const SIZE: &str = "karpenter.kwok.sh/instance-size";
pub(super) const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
pub(super) const INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";
pub(super) const RESERVATION: &str = "karpenter.k8s.aws/capacity-reservation-id";
pub(super) const ZONES: [&str; 4] = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"];

/// An entry of the catalogue.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The name, which two entries may share.
    pub name: String,
    /// Architecture in KWOK's spelling.
    pub architecture: String,
    /// Operating systems.
    pub operating_systems: Vec<String>,
    /// Capacity.
    pub resources: BTreeMap<String, Quantity>,
    /// Ways to buy it.
    pub offerings: Vec<Offer>,
}

/// A way to buy an entry.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Offer {
    /// Dollars per hour.
    pub price: f64,
    /// Instances left of a reservation.
    #[serde(default)]
    pub reservation_capacity: i64,
    pub(super) requirements: Vec<OfferLabel>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct OfferLabel {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) values: Vec<String>,
}

impl Offer {
    /// The value of a label, empty if there is none.
    #[must_use]
    pub fn label(&self, key: &str) -> &str {
        let found = self.requirements.iter().find(|label| label.key == key);
        found
            .and_then(|label| label.values.first())
            .map_or("", String::as_str)
    }

    /// The labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.requirements
            .iter()
            .filter_map(|label| Some((label.key.as_str(), label.values.first()?.as_str())))
    }
}

impl Entry {
    /// The family in the name, e.g. `m5`.
    #[must_use]
    pub fn family(&self) -> &str {
        self.name.split(['.', '-']).next().unwrap_or_default()
    }

    /// Whole processors.
    #[must_use]
    pub fn cpu(&self) -> i64 {
        self.resources
            .get("cpu")
            .and_then(|cpu| cpu.to_string().parse().ok())
            .unwrap_or(0)
    }

    /// The labels that follow from the entry alone, as the KWOK provider derives them; the size is left out for names
    /// that do not end in an EC2 size.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let text = |name: &str| {
            self.resources
                .get(name)
                .map_or_else(String::new, ToString::to_string)
        };
        [
            (INSTANCE_TYPE, self.name.clone()),
            (ARCH, self.architecture.clone()),
            (OS, self.operating_systems.first().cloned().unwrap_or_default()),
            (FAMILY, self.family().to_owned()),
            (SIZE, self.size(text("cpu"))),
            (INSTANCE_CPU, text("cpu")),
            (INSTANCE_MEMORY, text("memory")),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    fn size(&self, cpu: String) -> String {
        let word =
            |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !text.is_empty();
        match self.name.split_once('.') {
            Some((family, size)) if word(family) && is_size(size) => size.to_owned(),
            _ => cpu,
        }
    }
}

fn is_size(text: &str) -> bool {
    matches!(text, "nano" | "micro" | "small" | "medium" | "large" | "metal")
        || text
            .strip_suffix("xlarge")
            .is_some_and(|count| count.chars().all(|c| c.is_ascii_digit()))
}

/// The catalogue and where it is.
#[derive(Debug)]
pub struct Facts {
    /// The file, for the oracle and the engine.
    pub path: PathBuf,
    /// The entries, in the order of the file.
    pub entries: Vec<Entry>,
}

impl Facts {
    /// Finds the catalogue among the sources of the oracle's dependencies.
    pub fn load() -> Result<Self> {
        let module = crate::karpenter_module()?;
        let path = module.join("kwok/examples/aws_instance_types.json");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let entries = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self { path, entries })
    }

    /// Reads a catalogue that a scenario carries.
    pub fn read(catalog: &Value) -> Result<Vec<Entry>> {
        Ok(serde_json::from_value(catalog.clone())?)
    }
}

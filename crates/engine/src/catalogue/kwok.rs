//! Instance types in the JSON format of Karpenter's KWOK provider (`INSTANCE_TYPES_FILE_PATH`).
//!
//! The file is read as that provider reads it: field names in any of Go's spellings, unknown fields ignored, every
//! offering available, 110 pods unless stated. Where Go would silently take a zero value (no name, no price, an
//! unknown operator), this reader refuses and says where.

mod document;
mod fault;

use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::{CatalogueError, Malformed};
use crate::instance_type::{Catalogue, InstanceType, Offering, Overhead};
use crate::labels::{self, LabelRules};
use crate::quantity::Quantity;
use crate::requirements::{Operator, Requirement, Requirements};
use crate::resources::{CPU, MEMORY, PODS, ResourceList};
use crate::vocabulary::{Symbol, Vocabulary};
use document::Entry;

/// How many pods a node takes unless the file says otherwise.
const DEFAULT_PODS: i64 = 110;
/// What the provider keeps for the Kubernetes daemons.
const RESERVED_CPU_MILLI: i64 = 100;
const RESERVED_MEMORY: i64 = 10 << 20;

/// Reads instance types; `origin` names the text in errors.
pub fn parse(text: &str, origin: &str) -> Result<Catalogue, CatalogueError> {
    let mut builder = Builder::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    let types = Types(&mut builder)
        .deserialize(&mut reader)
        .and_then(|types| reader.end().map(|()| types))
        .map_err(|error| CatalogueError::Malformed(Box::new(fault::locate(text, origin, &error))))?;
    Ok(Catalogue {
        vocabulary: builder.vocabulary,
        rules: builder.rules,
        types,
        hibernation: None,
    })
}

/// The list of entries, each made into a type as soon as it is read: all of them at once would take more memory than
/// the types.
struct Types<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for Types<'_> {
    type Value = Vec<InstanceType>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Types<'_> {
    type Value = Vec<InstanceType>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut types = Vec::new();
        while let Some(entry) = entries.next_element::<Entry<'de>>()? {
            types.push(self.0.instance_type(entry));
        }
        types.shrink_to_fit();
        Ok(types)
    }
}

struct Builder {
    vocabulary: Vocabulary,
    rules: LabelRules,
    overhead: Overhead,
}

impl Builder {
    fn new() -> Self {
        let kube_reserved = [
            (CPU, Quantity::from_milli(RESERVED_CPU_MILLI)),
            (MEMORY, Quantity::binary(RESERVED_MEMORY)),
        ];
        Self {
            vocabulary: Vocabulary::new(),
            rules: LabelRules::kwok(),
            overhead: Overhead {
                kube_reserved: kube_reserved.into_iter().collect(),
                ..Overhead::default()
            },
        }
    }

    fn instance_type(&mut self, entry: Entry<'_>) -> InstanceType {
        // Only the first requirement on a label counts here, although an offering narrows by all of them.
        let mut zones: Vec<Symbol> = Vec::new();
        let mut capacity_types: Vec<Symbol> = Vec::new();
        for (key, found) in [
            (labels::ZONE, &mut zones),
            (labels::CAPACITY_TYPE, &mut capacity_types),
        ] {
            for offering in &entry.offerings {
                let first = offering
                    .requirements
                    .iter()
                    .find(|requirement| requirement.key == key);
                found.extend(
                    first
                        .into_iter()
                        .flat_map(|r| &r.values)
                        .map(|v| self.vocabulary.intern(v)),
                );
            }
        }
        let text_of = |name| {
            entry
                .resources
                .get(name)
                .map(Quantity::to_string)
                .unwrap_or_default()
        };
        let (cpu, memory) = (text_of(CPU), text_of(MEMORY));
        let systems: Vec<Symbol> = entry
            .operating_systems
            .iter()
            .map(|system| self.vocabulary.intern(system))
            .collect();

        let mut requirements = Requirements::new();
        for (key, value) in [
            (labels::INSTANCE_TYPE, &*entry.name),
            (labels::ARCH, &*entry.architecture),
            (
                "karpenter.kwok.sh/instance-size",
                size(&entry.name).unwrap_or(&cpu),
            ),
            ("karpenter.kwok.sh/instance-family", family(&entry.name)),
            ("karpenter.kwok.sh/instance-cpu", &cpu),
            ("karpenter.kwok.sh/instance-memory", &memory),
        ] {
            let value = self.vocabulary.intern(value);
            self.require(&mut requirements, key, [value]);
        }
        self.require(&mut requirements, labels::OS, systems);
        self.require(&mut requirements, labels::ZONE, zones);
        self.require(&mut requirements, labels::CAPACITY_TYPE, capacity_types);

        let mut capacity: ResourceList = [(PODS, Quantity::from(DEFAULT_PODS))].into_iter().collect();
        for (name, quantity) in entry.resources {
            capacity.insert(name, quantity);
        }
        InstanceType {
            name: Arc::from(&*entry.name),
            requirements,
            offerings: entry
                .offerings
                .iter()
                .map(|offering| self.offering(offering))
                .collect(),
            capacity,
            overhead: self.overhead.clone(),
        }
    }

    fn require(&mut self, to: &mut Requirements, key: &str, values: impl IntoIterator<Item = Symbol>) {
        let key = self.vocabulary.intern(key);
        to.add(key, Requirement::one_of(values), &self.vocabulary);
    }

    fn offering(&mut self, offering: &document::Offering<'_>) -> Offering {
        let mut requirements = Requirements::new();
        for requirement in &offering.requirements {
            // The provider makes every label of an offering well known, so that pods may ask for it.
            self.rules.add_well_known(&requirement.key);
            requirements.add_selector(
                &requirement.key,
                requirement.operator,
                &requirement.values,
                None,
                &mut self.vocabulary,
            );
        }
        Offering {
            requirements,
            price: offering.price,
            available: true,
            reservation_capacity: offering.reservation_capacity,
        }
    }
}

/// The size of a name such as `m5.large`: the part behind the dot, if it is one of AWS's plain sizes.
fn size(name: &str) -> Option<&str> {
    let (family, size) = name.split_once('.')?;
    let word = !family.is_empty()
        && family
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let multiple = |prefix: &str| prefix.bytes().all(|byte| byte.is_ascii_digit());
    let plain = matches!(size, "nano" | "micro" | "small" | "medium" | "large" | "metal")
        || size.strip_suffix("xlarge").is_some_and(multiple);
    (word && plain).then_some(size)
}

/// The family of a name: what stands before the first dot or dash, or else the first letter.
fn family(name: &str) -> &str {
    match name.find(['.', '-']) {
        Some(at) => name.get(..at).unwrap_or_default(),
        None => name
            .chars()
            .next()
            .and_then(|first| name.get(..first.len_utf8()))
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;

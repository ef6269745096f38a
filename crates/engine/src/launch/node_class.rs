//! Node classes: as their status says, or as they may be assumed to be.

use std::collections::BTreeSet;

use veneer_api::EC2NodeClass;

use super::{Ami, Launcher, NodeClass, Subnet};
use crate::instance_type::{Catalogue, InstanceType};
use crate::labels::{self, LabelSet};
use crate::requirements::{Operator, Requirement, Requirements};
use crate::vocabulary::Symbol;

impl Launcher {
    /// What a node class has found. Its status does not tell free addresses, so the first subnet of a zone counts.
    pub fn node_class(&mut self, class: &EC2NodeClass) -> NodeClass {
        let status = class.status.clone().unwrap_or_default();
        let mut amis = Vec::with_capacity(status.amis.len());
        for ami in &status.amis {
            let mut requirements = Requirements::new();
            for one in &ami.requirements {
                // What Karpenter itself wrote has no unknown operator; one that does suits no type.
                let operator = one.operator.parse().unwrap_or(Operator::In);
                let values = one.values.clone().unwrap_or_default();
                requirements.add_selector(&one.key, operator, &values, None, &mut self.vocabulary);
            }
            amis.push(Ami {
                id: ami.id.clone(),
                requirements,
            });
        }
        NodeClass {
            subnets: status
                .subnets
                .iter()
                .map(|subnet| Subnet {
                    id: subnet.id.clone(),
                    zone: subnet.zone.clone(),
                    available_addresses: 0,
                })
                .collect(),
            amis,
            context: class.spec.as_ref().and_then(|spec| spec.context.clone()),
        }
    }

    /// The image that a type would boot, with its position.
    #[must_use]
    pub fn image<'c>(&self, it: &InstanceType, class: &'c NodeClass) -> Option<(usize, &'c Ami)> {
        let none = LabelSet::none();
        class.amis.iter().enumerate().find(|(_, ami)| {
            let suits = it
                .requirements
                .compatible(&ami.requirements, &none, &self.vocabulary);
            suits.is_ok()
        })
    }

    /// A node class with a subnet in every zone and an image for every architecture, for when the real one is not
    /// known.
    pub fn assumed_node_class(&mut self, catalogue: &Catalogue) -> NodeClass {
        let values = |requirements: &Requirements, key: Symbol| -> Vec<Symbol> {
            let found = requirements.get(key).map(Requirement::values);
            found.unwrap_or_default().to_vec()
        };
        let mut architectures: BTreeSet<Symbol> = BTreeSet::new();
        let mut zones: BTreeSet<Symbol> = BTreeSet::new();
        for it in &catalogue.types {
            architectures.extend(values(&it.requirements, self.keys.arch));
            for offering in &it.offerings {
                zones.extend(values(&offering.requirements, self.keys.zone));
            }
        }
        let texts = |symbols: BTreeSet<Symbol>, launcher: &Self| -> Vec<String> {
            let symbols: Vec<Symbol> = symbols.into_iter().collect();
            let texts = launcher.vocabulary.sorted_texts(&symbols);
            texts.into_iter().map(str::to_owned).collect()
        };
        let zones = texts(zones, self);
        let architectures = texts(architectures, self);
        NodeClass {
            subnets: zones
                .into_iter()
                .map(|zone| Subnet {
                    id: format!("subnet-{zone}"),
                    zone,
                    available_addresses: 0,
                })
                .collect(),
            amis: architectures
                .iter()
                .map(|arch| {
                    self.ami(
                        &format!("ami-{arch}"),
                        &[(labels::ARCH, Operator::In, vec![arch])],
                    )
                })
                .collect(),
            context: None,
        }
    }
}

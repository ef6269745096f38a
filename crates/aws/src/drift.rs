//! Which instances are no longer what their node class would launch: by image, security groups or subnet, as the class's
//! selectors find them now. Changes of the class itself are told by its fingerprint.
//!
//! Doubt is no drift: of a class that has found nothing, and of an instance whose place is not known yet, nothing is said.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use veneer_api::EC2NodeClass;
use veneer_api::labels::aws;
use veneer_engine::plan::name;

use crate::class_hash::class_hash;
use crate::ec2::Machine;
use crate::names;
use crate::provider::Ec2;

impl Ec2 {
    /// The fingerprint of a class in this cluster.
    #[must_use]
    pub fn class_hash(&self, class: &EC2NodeClass) -> String {
        class_hash(class, self.cluster.ca_bundle.as_deref())
    }

    /// The claims of instances that have drifted, and the reason in one word.
    #[must_use]
    pub fn drifted<'a>(
        &self,
        classes: impl Iterator<Item = &'a EC2NodeClass>,
    ) -> BTreeMap<String, &'static str> {
        let classes: HashMap<&str, &EC2NodeClass> =
            classes.map(|class| (name(&class.metadata), class)).collect();
        // Which image a class has for a type is looked up once, not for every instance.
        let mut images: HashMap<(&str, String), Option<Vec<String>>> = HashMap::new();
        let mut drifted = BTreeMap::new();
        for machine in self.machines() {
            let claim = machine.tags.get(names::CLAIM_TAG);
            let class = machine.tags.get(aws::NODE_CLASS);
            let class = class.and_then(|class| classes.get_key_value(class.as_str()));
            let (Some(claim), Some((class_name, class))) = (claim, class) else {
                continue;
            };
            let wanted = images
                .entry((*class_name, machine.instance_type.clone()))
                .or_insert_with(|| self.images(class, &machine.instance_type));
            if let Some(reason) = reason(&machine, class, wanted.as_deref()) {
                drifted.insert(claim.clone(), reason);
            }
        }
        drifted
    }

    /// The images that a class has for a type, none if the catalogue does not know it; more than one where the catalogue
    /// has variants of the type.
    fn images(&self, class: &EC2NodeClass, instance_type: &str) -> Option<Vec<String>> {
        let entries = self.by_name.get(instance_type)?;
        let mut launcher = self.launcher();
        let known = launcher.node_class(class);
        let types = entries
            .iter()
            .filter_map(|entry| self.catalogue.types.get(*entry));
        let images = types.filter_map(|it| launcher.image(it, &known));
        Some(images.map(|(_, ami)| ami.id.clone()).collect())
    }
}

fn reason(machine: &Machine, class: &EC2NodeClass, images: Option<&[String]>) -> Option<&'static str> {
    let status = class.status.as_ref()?;
    let is_known = |text: &str| !text.is_empty();
    let is_other = images.is_some_and(|images| !images.contains(&machine.image_id));
    if !status.amis.is_empty() && is_known(&machine.image_id) && is_other {
        return Some("AMIDrift");
    }
    let groups: BTreeSet<&str> = status.security_groups.iter().map(|one| one.id.as_str()).collect();
    let has: BTreeSet<&str> = machine.groups.iter().map(String::as_str).collect();
    if !groups.is_empty() && !has.is_empty() && groups != has {
        return Some("SecurityGroupDrift");
    }
    let subnets = &status.subnets;
    let is_elsewhere = !subnets.iter().any(|one| one.id == machine.subnet_id);
    (!subnets.is_empty() && is_known(&machine.subnet_id) && is_elsewhere).then_some("SubnetDrift")
}

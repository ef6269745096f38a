//! Which offerings a NodePool can launch at all.
//!
//! Overlays do not look at a pool's requirements, so a pool has prices for types that it never launches. Advice and
//! previews leave those out.

use veneer_api::NodePool;

use crate::bitset::BitSet;
use crate::instance_type::Catalogue;
use crate::labels::{self, LabelSet};
use crate::requirements::{Operator, Requirements};

/// The offerings that the requirements and labels of `pool` allow, numbered through the whole catalogue. A
/// requirement with an unknown operator is left out, as if it were not there.
#[must_use]
pub fn launchable(catalogue: &Catalogue, pool: &NodePool) -> BitSet {
    let mut vocabulary = catalogue.vocabulary.clone();
    let template = &pool.spec.template;
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let labels = template.metadata.labels.iter();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
    let mut wanted = Requirements::from_labels(labels.chain([(labels::NODE_POOL, name)]), &mut vocabulary);
    for requirement in &template.spec.requirements {
        if let Ok(operator) = requirement.operator.as_str().parse::<Operator>() {
            wanted.add_selector(
                &requirement.key,
                operator,
                &requirement.values,
                None,
                &mut vocabulary,
            );
        }
    }
    let well_known = LabelSet::of(catalogue.rules.well_known(), &mut vocabulary);
    let offerings = catalogue.types.iter().map(|it| it.offerings.len()).sum();
    let mut allowed = BitSet::empty(offerings);
    let mut number = 0;
    for it in &catalogue.types {
        let fits = it.requirements.intersects(&wanted, &vocabulary).is_ok();
        for offering in &it.offerings {
            let buyable = offering.available
                && wanted
                    .compatible(&offering.requirements, &well_known, &vocabulary)
                    .is_ok();
            if fits && buyable {
                allowed.insert(number);
            }
            number += 1;
        }
    }
    allowed
}

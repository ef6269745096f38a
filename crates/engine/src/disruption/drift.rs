//! Whether a claim is no longer what its pool would make.

use veneer_api::labels::karpenter;
use veneer_api::{NodeClaim, NodePool};

use crate::cluster::purchase::purchase_option_of;
use crate::labels::normalise;
use crate::plan::NodeClassHash;
use crate::provision::HASH_VERSION;
use crate::requirements::{Operator, Requirements};
use crate::vocabulary::Vocabulary;

/// Why a claim has drifted, as one word, if it has. Overlays never make a claim drift.
pub(crate) fn reason(
    claim: &NodeClaim,
    pool: &NodePool,
    pool_hash: &str,
    class: Option<&NodeClassHash>,
) -> Option<&'static str> {
    let annotation = |key: &str| claim.metadata.annotations.as_ref()?.get(key);
    let is_ours = annotation(karpenter::NODEPOOL_HASH_VERSION).is_some_and(|version| version == HASH_VERSION);
    if is_ours && annotation(karpenter::NODEPOOL_HASH).is_some_and(|hash| *hash != pool_hash) {
        return Some("NodePoolDrifted");
    }
    if !meets_requirements(claim, pool) {
        return Some("RequirementsDrifted");
    }
    let hash = class?;
    let same_version = annotation(&hash.version_key).is_some_and(|version| *version == hash.version);
    let differs = annotation(&hash.key).is_some_and(|known| *known != hash.hash);
    (same_version && differs).then_some("NodeClassDrifted")
}

fn meets_requirements(claim: &NodeClaim, pool: &NodePool) -> bool {
    let mut vocabulary = Vocabulary::default();
    let required = &pool.spec.template.spec.requirements;
    let labels = claim.metadata.labels.iter().flatten();
    let labels: Vec<(&str, &str)> = labels
        .filter(|(key, _)| {
            let mut keys = required.iter().map(|one| normalise(&one.key));
            keys.any(|wanted| wanted == normalise(key))
        })
        .filter_map(|(key, value)| {
            // The capacity type of a spare says that it is one; how it was bought stands beside it.
            if key == karpenter::CAPACITY_TYPE && value == karpenter::CAPACITY_TYPE_OVERPROVISIONED {
                let bought = purchase_option_of(&claim.metadata)?;
                return Some((key.as_str(), bought));
            }
            Some((key.as_str(), value.as_str()))
        })
        .collect();
    let has = Requirements::from_labels(labels.iter().copied(), &mut vocabulary);
    required.iter().all(|one| {
        let Ok(operator) = one.operator.as_str().parse::<Operator>() else {
            return true;
        };
        let mut wanted = Requirements::new();
        wanted.add_selector(&one.key, operator, &one.values, None, &mut vocabulary);
        let none = crate::labels::LabelSet::none();
        has.compatible(&wanted, &none, &vocabulary).is_ok()
    })
}

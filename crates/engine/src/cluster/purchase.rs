//! How a machine is bought, and whether commitments pay for it.
//!
//! The capacity type of a spare says that it is one (`overprovisioned`); how it was bought stands beside it in
//! `veneer.io/purchase-option`. Commitments (Reserved Instances, Savings Plans) pay for whatever runs and is not spot, spare or not;
//! what is stopped or on its way out uses none of them.

use std::collections::BTreeMap;

use veneer_api::labels::{karpenter, veneer};
use veneer_api::{NodeClaim, Operator};

use super::machine::{is_leaving, is_stopped};
use crate::labels::{ON_DEMAND, RESERVED, SPOT};

/// How a machine with these labels was bought, as far as that is known.
#[must_use]
pub fn purchase_option(labels: &BTreeMap<String, String>) -> Option<&str> {
    let label = |key| {
        labels
            .get(key)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    };
    match label(karpenter::CAPACITY_TYPE) {
        None | Some(karpenter::CAPACITY_TYPE_OVERPROVISIONED) => label(veneer::PURCHASE_OPTION),
        bought => bought,
    }
}

/// The same for a claim or a node.
#[must_use]
pub fn purchase_option_of(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<&str> {
    metadata.labels.as_ref().and_then(purchase_option)
}

/// Whether commitments may pay for a machine with these labels. One that is not bought yet, as far as its requirements say: by
/// operator and values, those of the capacity type. One that may become either will become what an overlay makes the cheaper
/// one, so it counts.
pub fn may_be_committed<'r>(
    labels: &BTreeMap<String, String>,
    required: impl IntoIterator<Item = (&'r str, &'r [String])>,
) -> bool {
    match purchase_option(labels) {
        Some(bought) => bought != SPOT,
        None => required.into_iter().all(|(operator, values)| {
            let has = |wanted: &str| values.iter().any(|value| value == wanted);
            match operator {
                "In" => has(ON_DEMAND) || has(RESERVED),
                "NotIn" => !has(ON_DEMAND),
                "DoesNotExist" => false,
                _ => true,
            }
        }),
    }
}

/// Whether commitments may pay for the machine of a claim: it runs, or will, and is not spot.
#[must_use]
pub fn uses_commitments(claim: &NodeClaim) -> bool {
    let none = BTreeMap::new();
    let labels = claim.metadata.labels.as_ref().unwrap_or(&none);
    let required = claim.spec.requirements.iter();
    let required = required.filter(|one| one.key == karpenter::CAPACITY_TYPE);
    let required = required.map(|one| (Operator::as_str(&one.operator), one.values.as_slice()));
    !is_leaving(claim) && !is_stopped(claim) && may_be_committed(labels, required)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    type Labels<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn a_spare_says_beside_its_capacity_type_how_it_was_bought() {
        let (capacity, bought) = ("karpenter.sh/capacity-type", "veneer.io/purchase-option");
        let cases: [(Labels<'_>, Option<&str>); 6] = [
            (&[], None),
            (&[(capacity, "spot")], Some("spot")),
            (&[(capacity, "overprovisioned")], None),
            (&[(capacity, "overprovisioned"), (bought, "")], None),
            (&[(capacity, "overprovisioned"), (bought, "spot")], Some("spot")),
            // In use, its capacity type is its own again.
            (
                &[(capacity, "on-demand"), (bought, "on-demand")],
                Some("on-demand"),
            ),
        ];
        for (given, expected) in cases {
            assert_eq!(purchase_option(&labels(given)), expected, "{given:?}");
        }
    }

    #[test]
    fn what_may_become_on_demand_may_be_paid_for() {
        let none = labels(&[]);
        let values = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<String>>();
        for (operator, list, expected) in [
            ("In", &["on-demand", "spot"][..], true),
            ("In", &["reserved"], true),
            ("In", &["spot"], false),
            ("NotIn", &["on-demand"], false),
            ("NotIn", &["spot"], true),
            ("Exists", &[], true),
            ("DoesNotExist", &[], false),
        ] {
            let values = values(list);
            let found = may_be_committed(&none, [(operator, values.as_slice())]);
            assert_eq!(found, expected, "{operator} {list:?}");
        }
        assert!(may_be_committed(&none, []), "nothing says that it is spot");
    }
}

//! The label domains of cloud providers, and the rules that close them.
//!
//! A provider sets the labels of its domain itself. A requirement on a key that it does not set matches nothing, and
//! such a key is nearly always a slip of the pen; the CRDs of Karpenter's provider charts refuse it, and so do ours
//! when they are made for a provider.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, ValidationRule,
};

use crate::{
    crds::root_schemas,
    labels::{aws, kwok},
};

/// The cloud behind the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// EC2, whose label domain is `karpenter.k8s.aws`.
    Ec2,
    /// KWOK, whose label domain is `karpenter.kwok.sh`.
    Kwok,
}

/// A place in a CRD where label keys stand.
#[derive(Clone, Copy)]
enum Place {
    ClaimRequirements,
    PoolRequirements,
    PoolLabels,
}

impl Place {
    /// The way from the root; `[]` steps into a list.
    fn path(self) -> &'static [&'static str] {
        match self {
            Place::ClaimRequirements => &["spec", "requirements", "[]", "key"],
            Place::PoolRequirements => &["spec", "template", "spec", "requirements", "[]", "key"],
            Place::PoolLabels => &["spec", "template", "metadata", "labels"],
        }
    }

    fn rule(self, domain: &str, keys: &[&str]) -> ValidationRule {
        let list = keys
            .iter()
            .map(|key| format!("'{key}'"))
            .collect::<Vec<_>>()
            .join(", ");
        let check = |key: &str| format!("{key} in [{list}] || !{key}.split('/')[0].endsWith('{domain}')");
        let (field, rule) = match self {
            Place::PoolLabels => ("labels", format!("self.all(key, {})", check("key"))),
            Place::ClaimRequirements | Place::PoolRequirements => ("key", check("self")),
        };
        let message =
            format!("{field}: not a label that the provider sets in the domain {domain}; check its spelling");
        ValidationRule {
            rule,
            message: Some(message),
            ..Default::default()
        }
    }
}

/// Adds the rules of a provider to a CRD, in the places where the provider's own chart has them.
pub(crate) fn close_label_domain(crd: &mut CustomResourceDefinition, provider: Provider) {
    use Place::{ClaimRequirements, PoolLabels, PoolRequirements};
    let overlay_keys = &aws::OVERLAY_KEYS[..];
    let all_keys = [overlay_keys, &aws::PLACEMENT_KEYS[..]].concat();
    let (domain, places, keys): (_, &[Place], _) = match (provider, crd.spec.names.kind.as_str()) {
        (Provider::Ec2, "NodeClaim") => (aws::GROUP, &[ClaimRequirements], &all_keys[..]),
        (Provider::Ec2, "NodeOverlay") => (aws::GROUP, &[ClaimRequirements], overlay_keys),
        (Provider::Ec2, "NodePool") => (aws::GROUP, &[PoolRequirements, PoolLabels], &all_keys[..]),
        (Provider::Kwok, "NodeClaim") => (kwok::GROUP, &[ClaimRequirements], &kwok::KEYS[..]),
        (Provider::Kwok, "NodePool") => (kwok::GROUP, &[PoolRequirements], &kwok::KEYS[..]),
        _ => return,
    };
    for schema in root_schemas(crd) {
        for place in places {
            if let Some(schema) = descend(schema, place.path()) {
                schema
                    .x_kubernetes_validations
                    .get_or_insert_default()
                    .push(place.rule(domain, keys));
            }
        }
    }
}

fn descend<'a>(schema: &'a mut JSONSchemaProps, path: &[&str]) -> Option<&'a mut JSONSchemaProps> {
    path.iter()
        .try_fold(schema, |schema, step| match (*step, &mut schema.items) {
            ("[]", Some(JSONSchemaPropsOrArray::Schema(items))) => Some(items.as_mut()),
            (name, _) => schema.properties.as_mut()?.get_mut(name),
        })
}

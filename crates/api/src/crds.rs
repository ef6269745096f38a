//! The CRDs, derived from the types of this crate.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{
    NodeClaim, NodeOverlay, NodePool, Overprovisioner, ec2_node_class::Ec2NodeClassDefinition,
    kwok_node_class::KwokNodeClassDefinition, labels,
};

/// Who provisions nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Karpenter does, and installs its own CRDs; only ours come on top.
    Companion,
    /// Veneer does, and needs all of them.
    Standalone,
}

/// The cloud behind the nodes, whose label domain is then closed to unknown keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// EC2: the domain `karpenter.k8s.aws`.
    Ec2,
    /// KWOK: the domain `karpenter.kwok.sh`.
    Kwok,
}

/// The CRDs of a mode, in the order of their names.
///
/// Without a provider the label domains of both providers are open, as in Karpenter's provider-neutral CRDs; with
/// one, requirements and template labels may use only the keys of its domain that it knows, as in its own charts.
#[must_use]
pub fn crds(mode: Mode, provider: Option<Provider>) -> Vec<CustomResourceDefinition> {
    let mut crds = match mode {
        Mode::Companion => vec![Overprovisioner::crd()],
        Mode::Standalone => vec![
            without_required_spec(Ec2NodeClassDefinition::crd()),
            without_required_spec(KwokNodeClassDefinition::crd()),
            NodeClaim::crd(),
            NodeOverlay::crd(),
            NodePool::crd(),
            Overprovisioner::crd(),
        ],
    };
    for crd in &mut crds {
        for schema in root_schemas(crd) {
            schema.title = None;
            disallow_null(schema);
        }
        if let Some(provider) = provider {
            close_label_domain(crd, provider);
        }
    }
    crds
}

/// One CRD as YAML.
///
/// # Errors
///
/// When the object cannot be written as YAML, which would be a fault of the serializer.
pub fn to_yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::SerializeError> {
    let mut value = serde_json::to_value(crd).map_err(|error| error.to_string())?;
    write_whole_numbers_as_integers(&mut value);
    // Patterns and rules stay on one line each: folding them would hide where a space is.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&value, options)
}

/// Bounds are floating point numbers in the CRD type; people write `minimum: 1`, not `minimum: 1.0`.
fn write_whole_numbers_as_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number
                .as_f64()
                .filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 1e15)
            {
                *number = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers_as_integers),
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers_as_integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn root_schemas(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

/// Karpenter's node classes may come without a spec.
fn without_required_spec(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for schema in root_schemas(&mut crd) {
        schema.required = None;
    }
    crd
}

/// Visits a schema and everything below it.
fn visit(schema: &mut JSONSchemaProps, visitor: &mut dyn FnMut(&mut JSONSchemaProps)) {
    visitor(schema);
    for property in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        visit(property, visitor);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        visit(items, visitor);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        visit(values, visitor);
    }
}

/// An optional field is one that may be absent. The API server drops a null for a field that is not nullable, so
/// `percentage: null` is accepted and means the same as no `percentage`.
fn disallow_null(schema: &mut JSONSchemaProps) {
    visit(schema, &mut |schema| {
        schema.nullable = None;
        if let Some(values) = &mut schema.enum_ {
            values.retain(|value| !value.0.is_null());
        }
    });
}

/// Where requirements and template labels stand in each kind, and which keys of a provider's domain they may use.
fn close_label_domain(crd: &mut CustomResourceDefinition, provider: Provider) {
    const CLAIM_REQUIREMENTS: &[&str] = &["spec", "requirements", "[]", "key"];
    const POOL_REQUIREMENTS: &[&str] = &["spec", "template", "spec", "requirements", "[]", "key"];
    const POOL_LABELS: &[&str] = &["spec", "template", "metadata", "labels"];
    let aws_keys = [&labels::aws::PLACEMENT_KEYS[..], &labels::aws::OVERLAY_KEYS[..]].concat();
    let (domain, places): (&str, &[(&[&str], &[&str])]) = match (provider, crd.spec.names.kind.as_str()) {
        (Provider::Ec2, "NodeClaim") => (labels::aws::GROUP, &[(CLAIM_REQUIREMENTS, &aws_keys)]),
        (Provider::Ec2, "NodeOverlay") => (
            labels::aws::GROUP,
            &[(CLAIM_REQUIREMENTS, &labels::aws::OVERLAY_KEYS)],
        ),
        (Provider::Ec2, "NodePool") => (
            labels::aws::GROUP,
            &[(POOL_REQUIREMENTS, &aws_keys), (POOL_LABELS, &aws_keys)],
        ),
        (Provider::Kwok, "NodeClaim") => (labels::kwok::GROUP, &[(CLAIM_REQUIREMENTS, &labels::kwok::KEYS)]),
        (Provider::Kwok, "NodePool") => (labels::kwok::GROUP, &[(POOL_REQUIREMENTS, &labels::kwok::KEYS)]),
        _ => return,
    };
    for schema in root_schemas(crd) {
        for (path, keys) in places {
            if let Some(schema) = descend(schema, path) {
                schema
                    .x_kubernetes_validations
                    .get_or_insert_default()
                    .push(known_keys_rule(
                        domain,
                        keys,
                        schema.type_.as_deref() == Some("object"),
                    ));
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

fn known_keys_rule(domain: &str, keys: &[&str], keys_of_a_map: bool) -> ValidationRule {
    let list = keys
        .iter()
        .map(|key| format!("'{key}'"))
        .collect::<Vec<_>>()
        .join(", ");
    let check = |key: &str| format!("{key} in [{list}] || !{key}.split('/')[0].endsWith('{domain}')");
    let (field, rule) = if keys_of_a_map {
        ("labels", format!("self.all(key, {})", check("key")))
    } else {
        ("key", check("self"))
    };
    ValidationRule {
        rule,
        message: Some(format!(
            "{field}: not a label that the provider sets in the domain {domain}; check its spelling"
        )),
        ..Default::default()
    }
}

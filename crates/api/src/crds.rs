//! The CRDs, derived from the types of this crate.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{
    NodeClaim, NodeOverlay, NodePool, Overprovisioner,
    ec2_node_class::Ec2NodeClassDefinition,
    kwok_node_class::KwokNodeClassDefinition,
    provider::{self, Provider},
};

/// Who provisions nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Karpenter does, and installs its own CRDs; only ours come on top.
    Companion,
    /// Veneer does, and needs all of them.
    Standalone,
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
            provider::close_label_domain(crd, provider);
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

pub(crate) fn root_schemas(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
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

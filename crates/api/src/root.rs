//! Root objects whose `spec` may be absent.
//!
//! Karpenter's node classes do not require `spec`, and a KWOKNodeClass usually comes without one. The root that
//! kube derives requires it, so a list with one such object would fail to read; in this root it is optional.

/// Defines a root object with the identity of a derived one, and an optional `spec`.
macro_rules! optional_spec_root {
    ($(#[$meta:meta])* $kind:ident($definition:ident) { spec: $spec:ident, status: $status:ident }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $kind {
            /// Name, labels and the like.
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is wanted.
            #[serde(default)]
            pub spec: Option<$spec>,
            /// What was observed.
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl $kind {
            /// An object with a name and a spec.
            #[must_use]
            pub fn new(name: &str, spec: $spec) -> Self {
                let derived = $definition::new(name, spec);
                Self { metadata: derived.metadata, spec: Some(derived.spec), status: derived.status }
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut object = serializer.serialize_struct(stringify!($kind), 5)?;
                object.serialize_field("apiVersion", &<$definition as kube::Resource>::api_version(&()))?;
                object.serialize_field("kind", &<$definition as kube::Resource>::kind(&()))?;
                object.serialize_field("metadata", &self.metadata)?;
                match &self.spec {
                    Some(spec) => object.serialize_field("spec", spec)?,
                    None => object.skip_field("spec")?,
                }
                match &self.status {
                    Some(status) => object.serialize_field("status", status)?,
                    None => object.skip_field("status")?,
                }
                object.end()
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = kube::core::ClusterResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$definition as kube::Resource>::kind(&())
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$definition as kube::Resource>::group(&())
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$definition as kube::Resource>::version(&())
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$definition as kube::Resource>::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use optional_spec_root;

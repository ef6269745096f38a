//! Enumerations that are text on the wire and stay readable when a newer release adds a value.
//!
//! Watches read whole lists: one object with a value that this release does not know must not hide all the others.
//! So every such enumeration has the variant `Other`, which keeps the text as it was; the schema lists the known
//! values only, so that a mistyped value is still refused by the API server.

/// Defines an enumeration with its text, its schema and the catch-all variant `Other`.
macro_rules! text_enum {
    (
        $(#[$meta:meta])*
        $name:ident { $( $(#[$variant_meta:meta])* $variant:ident = $text:literal ),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(
                $(#[$variant_meta])*
                #[serde(rename = $text)]
                $variant,
            )+
            /// A value that this release does not know.
            #[serde(untagged)]
            Other(String),
        }

        impl $name {
            /// The known values, in the order in which they are documented.
            pub const KNOWN: &'static [&'static str] = &[$($text),+];

            /// The text of the value as it stands in a manifest.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $text, )+
                    Self::Other(text) => text,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $( $text => Self::$variant, )+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": Self::KNOWN })
            }
        }
    };
}

pub(crate) use text_enum;

#[cfg(test)]
mod tests {
    use crate::overprovisioner::SpareState;

    #[test]
    fn a_known_value_reads_as_its_variant_and_writes_back_the_same() {
        let state: SpareState = serde_json::from_str("\"Stopped\"").unwrap();
        assert_eq!(state, SpareState::Stopped);
        assert_eq!(serde_json::to_string(&state).unwrap(), "\"Stopped\"");
        assert_eq!(SpareState::from("Hibernated"), SpareState::Hibernated);
    }

    #[test]
    fn an_unknown_value_is_kept_as_it_was() {
        let state: SpareState = serde_json::from_str("\"Dreaming\"").unwrap();
        assert_eq!(state, SpareState::Other("Dreaming".into()));
        assert_eq!(state.to_string(), "Dreaming");
        assert_eq!(serde_json::to_string(&state).unwrap(), "\"Dreaming\"");
    }

    #[test]
    fn a_value_that_is_not_text_is_refused() {
        assert!(serde_json::from_str::<SpareState>("3").is_err());
    }
}

//! Values while a rule is evaluated. What comes from the object stays a reference until something needs it.

use serde_json::Value as Json;

use crate::schema::{Additional, Schema, Type};

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    /// Nanoseconds.
    Duration(i64),
    List(Vec<Val<'a>>),
    /// A list of the object, with the schema of its items.
    Items(&'a [Json], Option<&'a Schema>),
    /// A map or an object.
    Fields(&'a serde_json::Map<String, Json>, &'a Schema),
}

impl<'a> Val<'a> {
    /// A part of the object as its schema types it.
    pub(super) fn read(json: &'a Json, schema: Option<&'a Schema>) -> Result<Self, String> {
        let Some(schema) = schema else {
            return Err(format!("nothing is known of {json}"));
        };
        let kind = schema.types.first();
        Ok(match (json, kind) {
            (Json::Null, _) if schema.nullable => Self::Null,
            (Json::Null, _) => return Err("null is not possible here".to_owned()),
            (Json::String(text), _) if schema.int_or_string => Self::Text(text.clone()),
            (Json::Number(number), _) if schema.int_or_string || kind == Some(&Type::Integer) => {
                Self::Int(number.as_i64().ok_or_else(|| format!("{number} is no integer"))?)
            }
            (Json::Number(number), Some(Type::Number)) => Self::Double(number.as_f64().unwrap_or_default()),
            (Json::String(text), Some(Type::String)) => Self::Text(text.clone()),
            (Json::Bool(flag), Some(Type::Boolean)) => Self::Bool(*flag),
            (Json::Array(items), Some(Type::Array)) => Self::Items(items, schema.items.as_deref()),
            (Json::Object(fields), Some(Type::Object)) => Self::Fields(fields, schema),
            _ => return Err(format!("{json} is not of the type in the schema")),
        })
    }

    /// The field of an object or the value of a map.
    pub(super) fn field(&self, name: &str) -> Result<Self, String> {
        let Self::Fields(fields, schema) = self else {
            return Err(format!("no field {name} here"));
        };
        let value = fields.get(name).ok_or_else(|| format!("no such key: {name}"))?;
        Self::read(value, schema.field(name))
    }

    /// Whether an object or a map has a field.
    pub(super) fn has(&self, name: &str) -> Result<bool, String> {
        match self {
            Self::Fields(fields, schema) => Ok(fields.contains_key(name) && schema.field(name).is_some()),
            _ => Err(format!("no field {name} here")),
        }
    }

    /// What a macro walks over: the items of a list, the keys of a map. An item that cannot be read is an error.
    pub(super) fn walk(&self) -> Result<Vec<Result<Self, String>>, String> {
        match self {
            Self::List(items) => Ok(items.iter().cloned().map(Ok).collect()),
            Self::Items(items, schema) => Ok(items.iter().map(|item| Self::read(item, *schema)).collect()),
            Self::Fields(fields, schema) if matches!(schema.additional, Additional::Values(_)) => {
                Ok(fields.keys().map(|key| Ok(Self::Text(key.clone()))).collect())
            }
            _ => Err("this is no list and no map".to_owned()),
        }
    }

    /// Whether two values are equal; values of different types are not.
    pub(super) fn equals(&self, other: &Self) -> Result<bool, String> {
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Double(a), Self::Double(b)) => a == b,
            (Self::Int(a), Self::Double(b)) | (Self::Double(b), Self::Int(a)) => *a as f64 == *b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Fields(a, _), Self::Fields(b, _)) => a == b,
            (Self::List(_) | Self::Items(..), Self::List(_) | Self::Items(..)) => {
                let (a, b) = (self.walk()?, other.walk()?);
                let mut same = a.len() == b.len();
                for (a, b) in a.into_iter().zip(b) {
                    same = same && a?.equals(&b?)?;
                }
                same
            }
            _ => false,
        })
    }

    /// The order of two values of the same type.
    pub(super) fn order(&self, other: &Self) -> Result<std::cmp::Ordering, String> {
        let order = match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::Double(b)) => (*a as f64).partial_cmp(b),
            (Self::Double(a), Self::Int(b)) => a.partial_cmp(&(*b as f64)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            _ => None,
        };
        order.ok_or_else(|| "these two cannot be compared".to_owned())
    }
}

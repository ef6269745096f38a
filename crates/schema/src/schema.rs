//! A structural schema, read once so that objects are checked without looking anything up by name.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde_json::Value;

use crate::{Unreadable, cel::Program, join};

/// A type of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A map from names to values.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
}

/// What may stand beside the properties of an object.
#[derive(Debug)]
pub enum Additional {
    /// Nothing: other fields are unknown.
    None,
    /// Values of which nothing is known.
    Any,
    /// Values of a schema.
    Values(Box<Schema>),
}

/// A CEL rule with the words for the user.
#[derive(Debug)]
pub struct Rule {
    /// The rule.
    pub program: Program,
    /// What the API server answers when it does not hold.
    pub message: String,
}

/// The bounds of one value. Absent bounds are None, empty or false.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names are those of OpenAPI")]
pub struct Schema {
    pub types: Vec<Type>,
    pub int_or_string: bool,
    pub nullable: bool,
    pub format: Option<String>,
    pub pattern: Option<Regex>,
    pub values: Vec<Value>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub required: Vec<String>,
    pub properties: BTreeMap<String, Schema>,
    pub additional: Additional,
    pub items: Option<Box<Schema>>,
    pub default: Option<Value>,
    pub preserves_unknown_fields: bool,
    pub list_type: Option<String>,
    pub list_map_keys: Vec<String>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
    pub rules: Vec<Rule>,
}

/// Keys that say nothing about what is accepted.
const WORDS: [&str; 6] = [
    "description",
    "title",
    "example",
    "externalDocs",
    "x-kubernetes-map-type",
    "x-kubernetes-embedded-resource",
];

impl Schema {
    /// Reads a schema; `path` is where it stands, for messages.
    ///
    /// # Errors
    ///
    /// When something in it is beyond what this crate knows: better no answer than a wrong one.
    pub fn read(value: &Value, path: &str) -> Result<Self, Unreadable> {
        let at = |what: String| Unreadable(format!("{}: {what}", if path.is_empty() { "." } else { path }));
        let Some(fields) = value.as_object() else {
            return Err(at("the schema is no object".to_owned()));
        };
        let mut schema = Self::empty();
        for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let flag = value.as_bool().unwrap_or_default();
            let list = || -> Result<Vec<Self>, Unreadable> {
                let items = value.as_array().into_iter().flatten();
                items.map(|schema| Self::read(schema, path)).collect()
            };
            match key.as_str() {
                "type" => schema.types = vec![type_of(value.as_str().unwrap_or_default()).map_err(at)?],
                "x-kubernetes-int-or-string" => schema.int_or_string = flag,
                "nullable" => schema.nullable = flag,
                "format" => schema.format = value.as_str().map(str::to_owned),
                "pattern" => {
                    let text = value.as_str().unwrap_or_default();
                    let pattern = Regex::new(text).map_err(|error| at(format!("pattern {text}: {error}")))?;
                    schema.pattern = Some(pattern);
                }
                "enum" => schema.values = value.as_array().cloned().unwrap_or_default(),
                "minimum" => schema.minimum = value.as_f64(),
                "maximum" => schema.maximum = value.as_f64(),
                "exclusiveMinimum" => schema.exclusive_minimum = flag,
                "exclusiveMaximum" => schema.exclusive_maximum = flag,
                "minLength" => schema.min_length = value.as_u64(),
                "maxLength" => schema.max_length = value.as_u64(),
                "minItems" => schema.min_items = value.as_u64(),
                "maxItems" => schema.max_items = value.as_u64(),
                "uniqueItems" => schema.unique_items = flag,
                "minProperties" => schema.min_properties = value.as_u64(),
                "maxProperties" => schema.max_properties = value.as_u64(),
                "required" => schema.required = texts(value),
                "properties" => {
                    for (name, property) in value.as_object().into_iter().flatten() {
                        let property = Self::read(property, &join(path, name))?;
                        schema.properties.insert(name.clone(), property);
                    }
                }
                "additionalProperties" => {
                    schema.additional = match value {
                        Value::Bool(true) => Additional::Any,
                        Value::Bool(false) => Additional::None,
                        values => Additional::Values(Box::new(Self::read(values, &join(path, "*"))?)),
                    };
                }
                "items" => schema.items = Some(Box::new(Self::read(value, &format!("{path}[]"))?)),
                "default" => schema.default = Some(value.clone()),
                "x-kubernetes-preserve-unknown-fields" => schema.preserves_unknown_fields = flag,
                "x-kubernetes-list-type" => schema.list_type = value.as_str().map(str::to_owned),
                "x-kubernetes-list-map-keys" => schema.list_map_keys = texts(value),
                "allOf" => schema.all_of = list()?,
                "anyOf" => schema.any_of = list()?,
                "oneOf" => schema.one_of = list()?,
                "not" => schema.not = Some(Box::new(Self::read(value, path)?)),
                "x-kubernetes-validations" => {
                    for rule in value.as_array().into_iter().flatten() {
                        schema.rules.push(read_rule(rule).map_err(at)?);
                    }
                }
                word if WORDS.contains(&word) => {}
                unknown => return Err(at(format!("{unknown} is not understood"))),
            }
        }
        if let Some(format) = &schema.format
            && !crate::formats::KNOWN.contains(&format.as_str())
        {
            return Err(at(format!("format {format} is not understood")));
        }
        if schema.int_or_string {
            schema.types = vec![Type::Integer, Type::String];
        }
        Ok(schema)
    }

    fn empty() -> Self {
        Self {
            types: Vec::new(),
            int_or_string: false,
            nullable: false,
            format: None,
            pattern: None,
            values: Vec::new(),
            minimum: None,
            maximum: None,
            exclusive_minimum: false,
            exclusive_maximum: false,
            min_length: None,
            max_length: None,
            min_items: None,
            max_items: None,
            unique_items: false,
            min_properties: None,
            max_properties: None,
            required: Vec::new(),
            properties: BTreeMap::new(),
            additional: Additional::None,
            items: None,
            default: None,
            preserves_unknown_fields: false,
            list_type: None,
            list_map_keys: Vec::new(),
            all_of: Vec::new(),
            any_of: Vec::new(),
            one_of: Vec::new(),
            not: None,
            rules: Vec::new(),
        }
    }

    /// The schema of a field: that of the property, or the one of all other fields.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        match (self.properties.get(name), &self.additional) {
            (Some(property), _) => Some(property),
            (None, Additional::Values(values)) => Some(values),
            (None, Additional::None | Additional::Any) => None,
        }
    }

    /// Visits this schema and everything below it; items are `[]` in the path, values of a map are `*`.
    pub fn visit(&self, path: &str, visitor: &mut dyn FnMut(&str, &Self)) {
        visitor(path, self);
        for (name, property) in &self.properties {
            property.visit(&join(path, name), visitor);
        }
        if let Additional::Values(values) = &self.additional {
            values.visit(&join(path, "*"), visitor);
        }
        if let Some(items) = &self.items {
            items.visit(&format!("{path}[]"), visitor);
        }
    }
}

fn type_of(name: &str) -> Result<Type, String> {
    Ok(match name {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        other => return Err(format!("type {other} is not understood")),
    })
}

fn texts(value: &Value) -> Vec<String> {
    let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn read_rule(rule: &Value) -> Result<Rule, String> {
    let text = rule.get("rule").and_then(Value::as_str).unwrap_or_default();
    let program = Program::compile(text).map_err(|error| format!("rule {text}: {error}"))?;
    let message = rule.get("message").and_then(Value::as_str);
    let message = message.map_or_else(|| format!("the rule does not hold: {text}"), str::to_owned);
    Ok(Rule { program, message })
}

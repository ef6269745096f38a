//! A YAML or JSON document with the line of every field, so that a message about a field can point at it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;
use veneer_api::yaml::AliasBudget;

/// A value and the line where it begins; for the value of a field, the line of the field's name.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    line: usize,
    node: Node,
}

#[derive(Clone, Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Tree {
    /// Reads one document; `line_offset` lines of the file come before it.
    pub(crate) fn parse(
        text: &str,
        line_offset: usize,
        budget: AliasBudget,
    ) -> Result<Self, Box<serde_saphyr::Error>> {
        let mut tree: Self = budget.read(text)?;
        tree.shift(line_offset);
        Ok(tree)
    }

    fn shift(&mut self, lines: usize) {
        self.line += lines;
        match &mut self.node {
            Node::Scalar(_) => {}
            Node::List(items) => items.iter_mut().for_each(|item| item.shift(lines)),
            Node::Map(fields) => fields.iter_mut().for_each(|(_, value)| value.shift(lines)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.node, Node::Scalar(Value::Null))
    }

    /// The value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match &self.node {
            Node::Map(fields) => fields.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            Node::Scalar(_) | Node::List(_) => None,
        }
    }

    /// The items of the list in a field.
    pub(crate) fn into_items(self, name: &str) -> Vec<Self> {
        let Node::Map(fields) = self.node else {
            return Vec::new();
        };
        match fields.into_iter().find(|(key, _)| key == name) {
            Some((
                _,
                Self {
                    node: Node::List(items),
                    ..
                },
            )) => items,
            _ => Vec::new(),
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.node {
            Node::Scalar(value) => value.as_str(),
            Node::List(_) | Node::Map(_) => None,
        }
    }

    /// The line of `field`, e.g. `spec.requirements[0].values[1]`, or of the nearest thing around it that exists.
    pub(crate) fn line_of(&self, field: &str) -> usize {
        let field = field.trim_start_matches('.');
        if field.is_empty() {
            return self.line;
        }
        match &self.node {
            Node::Scalar(_) => self.line,
            Node::List(items) => {
                let index = field.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let item =
                    index.and_then(|(index, rest)| Some((items.get(index.parse::<usize>().ok()?)?, rest)));
                item.map_or(self.line, |(item, rest)| item.line_of(rest))
            }
            Node::Map(fields) => {
                // Names of resources and labels have dots in them, so the longest name that fits is meant.
                let fits = |name: &str| {
                    let rest = field.strip_prefix(name)?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
                };
                fields
                    .iter()
                    .filter_map(|(name, value)| Some((name.len(), value, fits(name)?)))
                    .max_by_key(|(length, ..)| *length)
                    .map_or(self.line, |(_, value, rest)| value.line_of(rest))
            }
        }
    }

    /// The plain value.
    pub(crate) fn to_value(&self) -> Value {
        match &self.node {
            Node::Scalar(value) => value.clone(),
            Node::List(items) => items.iter().map(Self::to_value).collect(),
            Node::Map(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), value.to_value()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Node>::deserialize(deserializer)?;
        Ok(Self {
            line: usize::try_from(spanned.referenced.line()).unwrap_or(1).max(1),
            node: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(
            Number::from_f64(value).map_or(Value::Null, Value::Number),
        ))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(Value::String(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            let mut value: Tree = map.next_value()?;
            value.line = usize::try_from(name.referenced.line()).unwrap_or(1).max(1);
            fields.push((name.value, value));
        }
        Ok(Node::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "kind: NodeOverlay\nspec:\n  requirements:\n  - key: a\n    values:\n    - x\n    - y\n  capacity:\n    example.com/a.b: 1\n";

    #[test]
    fn every_field_has_its_line_and_a_missing_one_that_of_what_is_around_it() {
        let tree = Tree::parse(TEXT, 10, AliasBudget::for_input(TEXT.len())).unwrap();
        for (field, line) in [
            ("kind", 11),
            ("spec", 12),
            ("spec.requirements", 13),
            ("spec.requirements[0].key", 14),
            ("spec.requirements[0].values[1]", 17),
            ("spec.requirements[7].key", 13),
            ("spec.capacity.example.com/a.b", 19),
            ("spec.price", 12),
            ("", 11),
        ] {
            assert_eq!(tree.line_of(field), line, "{field}");
        }
    }

    #[test]
    fn json_is_read_too() {
        let text = "{\n\t\"spec\": {\"weight\": 3,\n\t\"price\": null}}";
        let tree = Tree::parse(text, 0, AliasBudget::for_input(text.len())).unwrap();
        assert_eq!(tree.line_of("spec.price"), 3);
        assert_eq!(
            tree.to_value(),
            serde_json::json!({"spec": {"weight": 3, "price": null}})
        );
    }
}

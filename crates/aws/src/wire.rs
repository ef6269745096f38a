//! The two forms that AWS speaks here: requests as flat parameters with answers in XML (EC2, IAM), and JSON (SSM, SQS).

use std::fmt::Write;

use roxmltree::Node;
use serde_json::Value;

/// Flattens a request: `{"Filter": [{"Name": "x"}]}` becomes `Filter.1.Name=x`. Names are written as the wire has them.
/// Nulls and empty lists are left out.
pub(crate) fn parameters(request: &Value) -> Vec<(String, String)> {
    let mut flat = Vec::new();
    flatten(request, String::new(), &mut flat);
    flat
}

fn flatten(value: &Value, path: String, flat: &mut Vec<(String, String)>) {
    let under = |key: &str| match path.as_str() {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (key, field) in fields {
                flatten(field, under(key), flat);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                flatten(item, under(&(at + 1).to_string()), flat);
            }
        }
        Value::String(text) => flat.push((path, text.clone())),
        other => flat.push((path, other.to_string())),
    }
}

/// The body of a form.
pub(crate) fn form(parameters: &[(String, String)]) -> String {
    let mut body = String::new();
    for (at, (key, value)) in parameters.iter().enumerate() {
        if at > 0 {
            body.push('&');
        }
        encode(key, &mut body);
        body.push('=');
        encode(value, &mut body);
    }
    body
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
}

/// The first element of that name, at any depth.
pub(crate) fn find<'a, 'i>(root: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    root.descendants().find(|one| one.tag_name().name() == name)
}

/// The text of the first child of that name; empty if there is none.
pub(crate) fn field(node: Node<'_, '_>, name: &str) -> String {
    let child = node.children().find(|one| one.tag_name().name() == name);
    child
        .and_then(|one| one.text())
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The elements of the first list of that name.
pub(crate) fn items<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Vec<Node<'a, 'i>> {
    let list = node.children().find(|one| one.tag_name().name() == name);
    let items = list.into_iter().flat_map(|list| list.children());
    items
        .filter(|one| matches!(one.tag_name().name(), "item" | "member"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_flattened_as_the_query_api_has_them() {
        let request = serde_json::json!({
            "MaxResults": 5, "DryRun": false, "Absent": null, "Empty": [],
            "Filter": [{"Name": "tag:a b", "Value": ["x&y", "ü"]}],
        });
        let flat = parameters(&request);
        assert_eq!(
            form(&flat),
            "DryRun=false&Filter.1.Name=tag%3Aa%20b&Filter.1.Value.1=x%26y&Filter.1.Value.2=%C3%BC&MaxResults=5"
        );
    }
}

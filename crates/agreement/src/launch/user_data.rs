//! What user data says, in a form in which two writers of it agree.

use serde_json::{Map, Value};

/// Arguments of the kubelet whose entries come in the random order of Go's maps.
const UNORDERED: [&str; 5] = [
    "--system-reserved=\"",
    "--kube-reserved=\"",
    "--eviction-hard=\"",
    "--eviction-soft=\"",
    "--eviction-soft-grace-period=\"",
];

/// The meaning of user data that is in base64.
pub(super) fn meaning(base64: &str) -> String {
    let text = match decode(base64) {
        Some(text) => text,
        None => return format!("not base64: {base64}"),
    };
    if let Some(rest) =
        text.strip_prefix("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n")
    {
        let parts = rest.trim_end_matches("--//--\n").split("--//\n");
        return parts
            .filter(|part| !part.is_empty())
            .map(part)
            .collect::<Vec<_>>()
            .join("\n---\n");
    }
    match toml::from_str::<Value>(&text) {
        Ok(settings) if settings.get("settings").is_some() => without_nothing(settings).to_string(),
        _ => ordered(&text),
    }
}

fn part(text: &str) -> String {
    let (head, content) = text.split_once("\n\n").unwrap_or(("", text));
    if head == "Content-Type: application/node.eks.aws"
        && let Ok(config) = serde_saphyr::from_str::<Value>(content)
    {
        return format!("{head}\n{}", without_nothing(config));
    }
    format!("{head}\n{}", ordered(content))
}

/// Without fields that say nothing: Go writes some of them.
fn without_nothing(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .into_iter()
                .map(|(key, field)| (key, without_nothing(field)));
            let kept: Map<String, Value> = fields
                .filter(|(_, field)| {
                    !field.is_null() && field.as_object().is_none_or(|fields| !fields.is_empty())
                })
                .collect();
            kept.into()
        }
        other => other,
    }
}

fn ordered(text: &str) -> String {
    // Lines that a script continues may break anywhere.
    let mut text = text.replace(" \\\n", " ").replace("  ", " ");
    for name in UNORDERED {
        let Some((before, rest)) = text.split_once(name) else {
            continue;
        };
        let Some((list, after)) = rest.split_once('"') else {
            continue;
        };
        let mut entries: Vec<&str> = list.split(',').collect();
        entries.sort_unstable();
        text = format!("{before}{name}{}\"{after}", entries.join(","));
    }
    text
}

fn decode(base64: &str) -> Option<String> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).ok()?;
    String::from_utf8(bytes).ok()
}

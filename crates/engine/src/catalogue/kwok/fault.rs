//! Where a file is wrong. This is the cold path: the text is read again, entry by entry, to name what the fast
//! reader did not keep.

use serde_json::value::RawValue;

use super::Malformed;
use super::document::Entry;

/// Turns the error of the fast reader into one that names entry and field.
pub(super) fn locate(text: &str, origin: &str, error: &serde_json::Error) -> Malformed {
    let outside = Malformed {
        origin: origin.to_owned(),
        line: error.line().max(1),
        column: error.column().max(1),
        entry: None,
        name: None,
        field: String::new(),
        problem: problem(error),
    };
    let Ok(entries) = serde_json::from_str::<Vec<&RawValue>>(text) else {
        return outside_an_entry(text, outside, error);
    };
    let faulty = entries.iter().enumerate().find_map(|(index, raw)| {
        let mut reader = serde_json::Deserializer::from_str(raw.get());
        let error = serde_path_to_error::deserialize::<_, Entry<'_>>(&mut reader).err()?;
        Some((index, raw.get(), error))
    });
    let Some((index, raw, error)) = faulty else {
        return outside;
    };
    let (line, column) = within(text, raw, error.inner());
    let path = error.path().to_string();
    Malformed {
        line,
        column,
        entry: Some(index + 1),
        name: name_of(raw),
        field: if path == "." { String::new() } else { path },
        problem: problem(error.inner()),
        ..outside
    }
}

/// The text is no list, or no JSON at all; for the latter, find the entry in which it breaks.
fn outside_an_entry(text: &str, outside: Malformed, error: &serde_json::Error) -> Malformed {
    if error.is_data() || !text.trim_start().starts_with('[') {
        let expected = "expected a list of instance types, as Karpenter's KWOK provider reads it";
        return Malformed {
            problem: format!("{}; {expected}", outside.problem),
            ..outside
        };
    }
    // An entry of the list is what is nested one deep.
    let (mut depth, mut entries, mut start) = (0usize, 0usize, 0usize);
    let (mut quoted, mut escaped) = (false, false);
    // The byte at fault itself does not count.
    let end = offset_of(text, outside.line, outside.column)
        .saturating_sub(1)
        .min(text.len());
    for (at, byte) in text.bytes().enumerate().take(end) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => {
                if depth == 1 {
                    entries += 1;
                    start = at;
                }
                depth += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if depth < 2 {
        return outside;
    }
    let name = text.get(start..end).and_then(readable_name).map(str::to_owned);
    Malformed {
        entry: Some(entries),
        name,
        ..outside
    }
}

/// The name in the beginning of an entry that is no JSON as a whole.
fn readable_name(entry: &str) -> Option<&str> {
    let (_, rest) = entry.split_once("\"name\"")?;
    let (name, _) = rest
        .trim_start()
        .strip_prefix(':')?
        .trim_start()
        .strip_prefix('"')?
        .split_once('"')?;
    (!name.is_empty()).then_some(name)
}

/// The position of an error inside `raw` as a position in `text`, of which `raw` is a part.
fn within(text: &str, raw: &str, error: &serde_json::Error) -> (usize, usize) {
    let start = (raw.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let before = text.get(..start).unwrap_or_default();
    let lines_before = before.bytes().filter(|&byte| byte == b'\n').count();
    let column_before = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
    let column = if error.line() <= 1 {
        column_before + error.column()
    } else {
        error.column()
    };
    (lines_before + error.line().max(1), column)
}

fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    before + column
}

fn name_of(raw: &str) -> Option<String> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(raw).ok()?;
    let name = object.get("name").or_else(|| object.get("Name"))?.as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// The error's text without the position, which stands at the front of ours.
fn problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text.get(..at).unwrap_or_default().to_owned(),
        None => text,
    }
}

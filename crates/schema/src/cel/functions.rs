//! The functions that rules may call.

use regex_lite::Regex;

use super::value::Val;

/// Name, whether it may be called as a function and as a method, and the number of arguments with the receiver.
const KNOWN: [(&str, bool, bool, usize); 14] = [
    ("size", true, true, 1),
    ("int", true, false, 1),
    ("string", true, false, 1),
    ("duration", true, false, 1),
    ("matches", true, true, 2),
    ("find", false, true, 2),
    ("startsWith", false, true, 2),
    ("endsWith", false, true, 2),
    ("contains", false, true, 2),
    ("split", false, true, 2),
    ("lowerAscii", false, true, 1),
    ("upperAscii", false, true, 1),
    ("trim", false, true, 1),
    ("join", false, true, 2),
];

/// The function of this name, if it may be called so.
pub(super) fn find(name: &str, is_method: bool, arguments: usize) -> Option<&'static str> {
    KNOWN
        .iter()
        .find(|(known, function, method, count)| {
            *known == name && *count == arguments && if is_method { *method } else { *function }
        })
        .map(|(known, ..)| *known)
}

/// Calls a function.
pub(super) fn call<'a>(name: &str, arguments: &[Val<'a>]) -> Result<Val<'a>, String> {
    let text = |at: usize| match arguments.get(at) {
        Some(Val::Text(text)) => Ok(text.as_str()),
        other => Err(format!("{name} needs text, not {other:?}")),
    };
    Ok(match name {
        "size" => Val::Int(size(arguments.first())?),
        "int" => Val::Int(integer(arguments.first())?),
        "string" => Val::Text(match arguments.first() {
            Some(Val::Text(text)) => text.clone(),
            Some(Val::Int(number)) => number.to_string(),
            Some(Val::Bool(flag)) => flag.to_string(),
            other => return Err(format!("string() of {other:?} is not known here")),
        }),
        "duration" => {
            let text = text(0)?;
            Val::Duration(duration(text).ok_or_else(|| format!("{text:?} is no duration"))?)
        }
        "matches" | "find" => {
            let pattern = text(1)?;
            let pattern = Regex::new(pattern).map_err(|error| format!("pattern {pattern}: {error}"))?;
            search(text(0)?, &pattern, name == "find")
        }
        "startsWith" => Val::Bool(text(0)?.starts_with(text(1)?)),
        "endsWith" => Val::Bool(text(0)?.ends_with(text(1)?)),
        "contains" => Val::Bool(text(0)?.contains(text(1)?)),
        "split" => {
            let (whole, by) = (text(0)?, text(1)?);
            let texts: Vec<String> = if by.is_empty() {
                whole.chars().map(String::from).collect()
            } else {
                whole.split(by).map(str::to_owned).collect()
            };
            Val::List(texts.into_iter().map(Val::Text).collect())
        }
        "lowerAscii" => Val::Text(text(0)?.to_ascii_lowercase()),
        "upperAscii" => Val::Text(text(0)?.to_ascii_uppercase()),
        "trim" => Val::Text(text(0)?.trim().to_owned()),
        "join" => {
            let list = arguments.first().map_or_else(|| Ok(Vec::new()), Val::walk)?;
            let mut parts = Vec::new();
            for item in list {
                match item? {
                    Val::Text(text) => parts.push(text),
                    other => return Err(format!("join needs text, not {other:?}")),
                }
            }
            Val::Text(parts.join(text(1)?))
        }
        other => return Err(format!("{other} is not known here")),
    })
}

/// `matches` and `find`.
pub(super) fn search<'a>(text: &str, pattern: &Regex, finds: bool) -> Val<'a> {
    if finds {
        let found = pattern.find(text).map_or("", |found| found.as_str());
        Val::Text(found.to_owned())
    } else {
        Val::Bool(pattern.is_match(text))
    }
}

fn size(value: Option<&Val<'_>>) -> Result<i64, String> {
    let size = match value {
        Some(Val::Text(text)) => text.chars().count(),
        Some(Val::List(items)) => items.len(),
        Some(Val::Items(items, _)) => items.len(),
        Some(Val::Fields(fields, _)) => fields.len(),
        other => return Err(format!("{other:?} has no size")),
    };
    i64::try_from(size).map_err(|error| error.to_string())
}

fn integer(value: Option<&Val<'_>>) -> Result<i64, String> {
    match value {
        Some(Val::Int(number)) => Ok(*number),
        Some(Val::Double(number)) if number.abs() < 9.2e18 => Ok(*number as i64),
        Some(Val::Text(text)) => text.parse().map_err(|_| format!("{text:?} is no integer")),
        other => Err(format!("{other:?} is no integer")),
    }
}

/// Nanoseconds of a duration such as `1h30m` or `1.5h`, as Go reads it.
fn duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let units = [
            ("ns", 1),
            ("us", 1_000),
            ("µs", 1_000),
            ("μs", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000_i128),
        ];
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, nanos) = units.into_iter().find(|(name, _)| *name == unit)?;
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        sum = sum.checked_add(whole.checked_mul(nanos)?)?;
        if !fraction.is_empty() {
            let digits: String = fraction.chars().take(18).collect();
            let scale = 10_i128.checked_pow(u32::try_from(digits.len()).ok()?)?;
            sum = sum.checked_add(digits.parse::<i128>().ok()?.checked_mul(nanos)? / scale)?;
        }
        rest = after;
    }
    i64::try_from(if negative { -sum } else { sum }).ok()
}

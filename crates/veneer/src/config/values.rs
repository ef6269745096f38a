//! The forms of values. Each gives nothing where the text does not have its form.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::Level;
use veneer_engine::labels::check_key;
use veneer_steering::overlays::MixedPools;

use super::{CommitmentSource, LogFormat, PricingMode};

pub(super) fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn boolean(text: &str) -> Option<bool> {
    text.parse().ok()
}

pub(super) fn level(text: &str) -> Option<Level> {
    match text {
        "error" | "warn" | "info" | "debug" | "trace" => text.parse().ok(),
        _ => None,
    }
}

pub(super) fn log_format(text: &str) -> Option<LogFormat> {
    match text {
        "text" | "pretty" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

pub(super) fn pricing(text: &str) -> Option<PricingMode> {
    match text {
        "ordered" => Some(PricingMode::Ordered),
        "zero" => Some(PricingMode::Zero),
        _ => None,
    }
}

pub(super) fn source(text: &str) -> Option<CommitmentSource> {
    match text {
        "prometheus" => Some(CommitmentSource::Prometheus),
        "aws" => Some(CommitmentSource::Aws),
        _ => None,
    }
}

pub(super) fn mixed_pools(text: &str) -> Option<MixedPools> {
    match text {
        "include" => Some(MixedPools::Include),
        "exclude" => Some(MixedPools::Exclude),
        _ => None,
    }
}

/// The servers read it once more; here only the form counts.
pub(super) fn address(text: &str) -> Option<String> {
    let fits = match text.strip_prefix(':') {
        Some(port) => port.parse::<u16>().is_ok(),
        None => text == "0" || text.parse::<std::net::SocketAddr>().is_ok(),
    };
    fits.then(|| text.to_owned())
}

pub(super) fn url(text: &str) -> Option<String> {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))?;
    let host = rest.split(['/', '?', '#']).next()?;
    let plain = !text.contains(|letter: char| letter.is_whitespace() || letter.is_control())
        && !text.contains(['?', '#', '@']);
    let port = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let good_port = port.is_none_or(|(_, port)| port.parse::<u16>().is_ok());
    let name = port.map_or(host, |(name, _)| name);
    (plain && good_port && !name.is_empty()).then(|| text.trim_end_matches('/').to_owned())
}

pub(super) fn account(text: &str) -> Option<String> {
    (text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.to_owned())
}

/// `us-west-2`, `us-gov-east-1`, `ap-southeast-3`: words and a number.
pub(super) fn region(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split('-').collect();
    let (number, names) = words.split_last()?;
    let fits = names.len() >= 2
        && names
            .iter()
            .all(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase()))
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.to_owned())
}

fn word(text: &str, longest: usize, more: &[u8]) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
    let is_word = !text.is_empty() && text.len() <= longest && text.bytes().all(fits);
    is_word.then(|| text.to_owned())
}

/// As EKS allows it.
pub(super) fn cluster_name(text: &str) -> Option<String> {
    word(text, 100, b"-_")
}

/// The name of an SQS queue.
pub(super) fn queue(text: &str) -> Option<String> {
    word(text, 80, b"-_.")
}

pub(super) fn cidr(text: &str) -> Option<String> {
    let (address, bits) = text.split_once('/')?;
    let address: std::net::IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then(|| text.to_owned())
}

pub(super) fn whole_or_fraction(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (0.0..=100.0).contains(&number).then_some(number)
}

pub(super) fn percent(text: &str) -> Option<f64> {
    whole_or_fraction(text).filter(|number| *number > 0.0)
}

pub(super) fn small_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number <= 10)
}

pub(super) fn weight(text: &str) -> Option<i32> {
    text.parse().ok().filter(|weight| (1..=10_000).contains(weight))
}

pub(super) fn dns_label(text: &str) -> Option<String> {
    let edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    let inside = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let fits = text.len() <= 63 && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inside);
    fits.then(|| text.to_owned())
}

/// The beginning of a name, with room for what follows.
pub(super) fn dns_prefix(text: &str) -> Option<String> {
    dns_label(text)
}

pub(super) fn label_key(text: &str) -> Option<String> {
    check_key(text).ok().map(|()| text.to_owned())
}

/// The longest duration: times that far ahead can still be reckoned with.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// `90s`, `5m`, `1h5m`, `1.5h`, `250ms`; more than nothing, at most ten years.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, unit) = rest.split_at_checked(end)?;
        let number: f64 = number.parse().ok()?;
        let end = unit
            .find(|letter: char| letter.is_ascii_digit())
            .unwrap_or(unit.len());
        let (unit, after) = unit.split_at_checked(end)?;
        seconds += number
            * match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = after;
    }
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero() && *duration <= LONGEST)
}

/// `job="lumina",namespace=~"a|b"`, as PromQL writes it between braces. At least one of them says what is wanted: what only
/// excludes lets everybody else in.
pub(super) fn matchers(text: &str) -> Option<String> {
    let mut rest = text.trim();
    let mut written = Vec::new();
    let mut selects = false;
    loop {
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')?;
        let (name, after) = rest.split_at_checked(end)?;
        let named = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit()) && name != "__name__";
        let after = after.trim_start();
        let operator = ["=~", "!~", "!=", "="]
            .into_iter()
            .find(|one| after.starts_with(one))?;
        let quoted = after.strip_prefix(operator)?.trim_start().strip_prefix('"')?;
        let (value, after) = quoted_text(quoted)?;
        if !named {
            return None;
        }
        selects |= !operator.starts_with('!') && !matches!(value, "" | ".*" | ".+");
        written.push(format!("{name}{operator}\"{value}\""));
        rest = after.trim_start();
        if rest.is_empty() {
            return selects.then(|| written.join(","));
        }
        rest = rest.strip_prefix(',')?.trim_start();
    }
}

/// The text up to the closing quote, as it is written, and what follows it.
fn quoted_text(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if letter.is_control() => return None,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// `Name=value,Other=value`.
pub(super) fn headers(text: &str) -> Option<BTreeMap<String, String>> {
    let mut headers = BTreeMap::new();
    for pair in text.split(',').map(str::trim) {
        let (name, value) = pair.split_once('=')?;
        let name_fits = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        let value_fits = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !name_fits || !value_fits || headers.insert(name.to_owned(), value.to_owned()).is_some() {
            return None;
        }
    }
    Some(headers)
}

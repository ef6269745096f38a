//! Durations as custom resources state them: `1h30m`, `45s`, `Never`.

use k8s_openapi::jiff::SignedDuration;

/// How long something may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as it likes.
    Never,
    /// This long.
    After(SignedDuration),
}

impl Lifetime {
    /// Reads `Never` or a duration. The CRDs let nothing else through; what cannot be read lasts for ever, since
    /// nothing should be removed because of a typing error.
    #[must_use]
    pub fn read(text: &str) -> Self {
        parse(text).map_or(Self::Never, Self::After)
    }
}

/// Reads a duration in the format of Go: numbers with the units h, m, s, ms.
#[must_use]
pub fn parse(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut total = SignedDuration::ZERO;
    if rest.is_empty() {
        return None;
    }
    if rest == "0" {
        return Some(total);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let number: f64 = number.parse().ok()?;
        let units = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(units)?;
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        let part = SignedDuration::try_from_secs_f64(number * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let cases = [
            ("30s", Some(30_000)),
            ("1h30m", Some(5_400_000)),
            ("720h", Some(2_592_000_000)),
            ("1.5m", Some(90_000)),
            ("250ms", Some(250)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("", None),
            ("10", None),
            ("h", None),
            ("Never", None),
            ("5 m", None),
        ];
        for (text, expected) in cases {
            let found = parse(text).map(|duration| duration.as_millis());
            assert_eq!(found, expected, "{text:?}");
        }
        assert_eq!(Lifetime::read("Never"), Lifetime::Never);
        assert_eq!(
            Lifetime::read("2s"),
            Lifetime::After(SignedDuration::from_secs(2))
        );
    }
}

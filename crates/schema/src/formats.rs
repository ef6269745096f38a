//! Formats of text and numbers.

/// The formats that can be judged.
pub(crate) const KNOWN: [&str; 3] = ["int32", "int64", "date-time"];

/// Whether text is a time as the API server reads it: a date, `T`, a time of day and an offset.
pub(crate) fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time)
}

fn number(text: &str, digits: usize) -> Option<u32> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2)) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// `15:04:05`, a fraction of a second if there is one, and `z` or an offset such as `+01:00`.
fn is_time(text: &str) -> bool {
    let (Some(clock), Some(rest)) = (text.get(..8), text.get(8..)) else {
        return false;
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = parts.as_slice() else {
        return false;
    };
    let within = |text: &str, end: u32| number(text, 2).is_some_and(|number| number <= end);
    if !(within(hour, 23) && within(minute, 59) && within(second, 59)) {
        return false;
    }
    is_zone(rest) || {
        // Any one character may stand before the digits of a fraction.
        let mut chars = rest.chars();
        chars.next();
        let rest = chars.as_str();
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < rest.len() && is_zone(digits)
    }
}

fn is_zone(text: &str) -> bool {
    text == "z"
        || text.strip_prefix(['+', '-']).is_some_and(|offset| {
            offset
                .split_once(':')
                .is_some_and(|(hours, minutes)| number(hours, 2).is_some() && number(minutes, 2).is_some())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_other_text() {
        for time in [
            "2026-01-02T03:04:05Z",
            "2024-02-29t23:59:59.123+01:00",
            "2026-01-02T03:04:05-99:99",
        ] {
            assert!(is_date_time(time), "{time}");
        }
        for other in [
            "",
            "2026-01-02",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-02T24:00:00Z",
            "2026-01-02T03:04:05",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05.Z",
        ] {
            assert!(!is_date_time(other), "{other}");
        }
    }
}

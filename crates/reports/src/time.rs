//! Moments as reports write them, in seconds since 1970 (UTC).

/// Reads `2026-11-01T05:00:00Z`, with a fraction of a second or without, with a space instead of the `T`, or a day alone.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    let (day, clock) = match text.find(['T', ' ']) {
        Some(at) => (text.get(..at)?, text.get(at + 1..)?),
        None => (text, "00:00:00"),
    };
    let mut parts = day.split('-');
    let year: i64 = number(parts.next()?, 4)?;
    let month: i64 = number(parts.next()?, 2)?;
    let day: i64 = number(parts.next()?, 2)?;
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let clock = clock.trim_end_matches("+00:00").trim_end_matches(" UTC");
    let clock = clock.strip_suffix('Z').unwrap_or(clock);
    let clock = clock.split_once('.').map_or(clock, |(clock, _)| clock);
    let mut parts = clock.split(':');
    let hour: i64 = number(parts.next()?, 2)?;
    let minute: i64 = number(parts.next()?, 2)?;
    let second: i64 = parts.next().map_or(Some(0), |second| number(second, 2))?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(text: &str, width: usize) -> Option<i64> {
    (text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Days since 1970, counted in years that begin in March, so that the leap day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A moment as `2026-11-01T05:00:00Z`.
#[must_use]
pub fn format(at: i64) -> String {
    let (day, second) = (at.div_euclid(86_400) + 719_468, at.rem_euclid(86_400));
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_every_form_and_written_in_one() {
        for (text, at) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-18T11:00:00.000Z", 1_794_999_600),
            ("2026-11-18 11:00:00", 1_794_999_600),
            ("2026-11-18 11:00:00 UTC", 1_794_999_600),
            ("2024-02-29", 1_709_164_800),
            ("2000-03-01T00:00", 951_868_800),
        ] {
            assert_eq!(parse(text), Some(at), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-1-01",
            "2026-11-18T25:00:00Z",
            "18/11/2026",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        for at in [0, 951_868_799, 1_709_164_800, 1_794_999_600, 4_102_444_800] {
            assert_eq!(parse(&format(at)), Some(at));
        }
    }
}

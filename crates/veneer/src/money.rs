//! Dollars as people read them: by the hour and by the month, without a sign before nothing.

/// Hours in an average month, as AWS's own price calculator counts them.
const HOURS_A_MONTH: f64 = 730.0;

/// The smallest amount by the hour that the four decimals of a price show.
const SMALLEST: f64 = 0.000_05;

/// Whether an amount by the hour shows at all.
pub(crate) fn is_visible(hourly: f64) -> bool {
    hourly.abs() >= SMALLEST
}

/// A price by the hour, without the dollar sign: `0.0960`.
pub(crate) fn price(hourly: f64) -> String {
    // A little less than nothing, from adding in binary, is nothing.
    let hourly = if is_visible(hourly) { hourly } else { 0.0 };
    format!("{hourly:.4}")
}

/// A difference by the hour: `+$0.0960`.
pub(crate) fn signed(hourly: f64) -> String {
    let sign = if is_visible(hourly) && hourly < 0.0 {
        '-'
    } else {
        '+'
    };
    format!("{sign}${}", price(hourly.abs()))
}

/// What a price by the hour comes to in a month, without the dollar sign: `5,590`, and with cents below a hundred.
pub(crate) fn month(hourly: f64) -> String {
    let amount = hourly.abs() * HOURS_A_MONTH;
    if amount < 100.0 {
        return format!("{amount:.2}");
    }
    let whole = format!("{amount:.0}");
    let mut text = String::with_capacity(whole.len() + whole.len() / 3);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The same as part of a sentence: `about $5,590 a month`.
pub(crate) fn monthly(hourly: f64) -> String {
    format!("about ${} a month", month(hourly))
}

/// A difference by the month: `about +$2,016 a month`.
pub(crate) fn signed_monthly(hourly: f64) -> String {
    let sign = if hourly < 0.0 { '-' } else { '+' };
    format!("about {sign}${} a month", month(hourly))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_sign_of_its_own() {
        assert_eq!(price(-0.000_01), "0.0000");
        assert_eq!(signed(-0.000_000_1), "+$0.0000");
        assert_eq!(signed(-0.0), "+$0.0000");
        assert_eq!(signed(-1.0675), "-$1.0675");
    }

    #[test]
    fn months_have_thousands_and_small_ones_have_cents() {
        assert_eq!(month(7.657), "5,590");
        assert_eq!(month(0.0104), "7.59");
        assert_eq!(month(1.0), "730");
        assert_eq!(month(2_000.0), "1,460,000");
        assert_eq!(signed_monthly(-2.761), "about -$2,016 a month");
        assert_eq!(monthly(0.1), "about $73.00 a month");
    }
}

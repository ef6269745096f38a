//! The grammar of one annotation, with a diagnosis of every part that does not fit.

use veneer_api::labels::veneer::PREFERENCE_PREFIX;
use veneer_api::{Extra, NodeSelectorRequirement, Operator};
use veneer_engine::labels::{LabelRules, check_key, check_value};

use super::{FORM, Fault, MAX_NUMBER, Preference};

const ADJUST: &str = "adjust";

/// Reads one annotation. Every part that is wrong is named, not only the first.
pub fn parse(annotation: &str, value: &str) -> Result<Preference, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut fault = |part: &str, problem: &str, expected: &str| {
        faults.push(Fault {
            annotation: annotation.to_owned(),
            part: part.to_owned(),
            problem: problem.to_owned(),
            expected: expected.to_owned(),
        });
    };
    let number = number(annotation);
    if number.is_none() {
        let part = annotation.strip_prefix(PREFERENCE_PREFIX).unwrap_or(annotation);
        fault(
            part,
            "is no number of a preference",
            &format!("{PREFERENCE_PREFIX}1 to {PREFERENCE_PREFIX}{MAX_NUMBER}, without leading zeros"),
        );
    }
    let mut matchers = Vec::new();
    let mut adjustment: Option<&str> = None;
    let mut adjustments = 0;
    for part in value.split_whitespace() {
        if is_adjustment(part) {
            adjustments += 1;
            if adjustments == 2 {
                fault(part, "is a second adjustment", "one adjust=[+-]N% per annotation");
            }
            match read_adjustment(part) {
                Ok(read) => adjustment = Some(read),
                Err((problem, expected)) => fault(part, problem, &expected),
            }
            continue;
        }
        match read_matcher(part) {
            Ok(matcher) => matchers.push(matcher),
            Err((problem, expected)) => fault(part, &problem, &expected),
        }
    }
    if faults.is_empty() {
        let whole = |problem: &str| Fault {
            annotation: annotation.to_owned(),
            part: value.to_owned(),
            problem: problem.to_owned(),
            expected: FORM.to_owned(),
        };
        match (adjustment, matchers.is_empty(), number) {
            (Some(adjustment), false, Some(number)) => {
                return Ok(Preference {
                    number,
                    matchers,
                    adjustment: adjustment.to_owned(),
                });
            }
            (None, _, _) => faults.push(whole("has no adjustment")),
            _ => faults.push(whole("has no matcher, and would change every instance type")),
        }
    }
    Err(faults)
}

fn number(annotation: &str) -> Option<i32> {
    let text = annotation.strip_prefix(PREFERENCE_PREFIX)?;
    let number: i32 = text.parse().ok()?;
    // Two spellings of one number would fight over one overlay.
    ((1..=MAX_NUMBER).contains(&number) && number.to_string() == text).then_some(number)
}

fn is_adjustment(part: &str) -> bool {
    part.strip_prefix(ADJUST)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ':']))
}

/// The adjustment as a NodeOverlay writes it, or what is wrong and the right form.
fn read_adjustment(part: &str) -> Result<&str, (&'static str, String)> {
    let form = || "adjust=-20% or adjust=+15%".to_owned();
    let Some(value) = part.strip_prefix("adjust=") else {
        return Err(("is no adjustment", form()));
    };
    let Some(number) = value.strip_suffix('%') else {
        return Err(("is no percentage", form()));
    };
    let (negative, digits) = match (number.strip_prefix('-'), number.strip_prefix('+')) {
        (Some(digits), _) => (true, digits),
        (_, Some(digits)) => (false, digits),
        _ if is_decimal(number) => {
            return Err(("has no sign", format!("adjust=-{number}% or adjust=+{number}%")));
        }
        _ => return Err(("is no percentage", form())),
    };
    if !is_decimal(digits) {
        return Err(("is no percentage", form()));
    }
    if negative && digits.parse::<f64>().is_ok_and(|percent| percent > 100.0) {
        return Err((
            "takes away more than the whole price",
            "adjust=-100% at most".to_owned(),
        ));
    }
    // The CRD has no leading zeros and no fraction of a hundred to take away.
    let plain = digits.split('.').next().is_some_and(|whole| whole.len() <= 2) || digits == "100";
    if negative && !plain {
        return Err((
            "is not written as a NodeOverlay writes it",
            "adjust=-100% or two digits before the point, such as adjust=-7.5%".to_owned(),
        ));
    }
    Ok(value)
}

/// Digits, or digits with a fraction.
fn is_decimal(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(text),
    }
}

fn read_matcher(part: &str) -> Result<NodeSelectorRequirement, (String, String)> {
    let forms = "key=a,b or key!=a,b or key>4 or key<4, without spaces";
    let Some(at) = part.find(['=', '!', '>', '<']) else {
        return Err(("is no matcher".to_owned(), forms.to_owned()));
    };
    let (key, rest) = part.split_at(at);
    let operators = [
        ("!=", Operator::NotIn),
        ("=", Operator::In),
        (">", Operator::Gt),
        ("<", Operator::Lt),
    ];
    let Some((text, operator)) = operators.into_iter().find(|(text, _)| rest.starts_with(text)) else {
        return Err(("is no matcher".to_owned(), forms.to_owned()));
    };
    let values = rest.strip_prefix(text).unwrap_or_default();
    if let Err(error) = check_key(key) {
        return Err((
            format!("has the label key {key:?}, which {error}"),
            forms.to_owned(),
        ));
    }
    if LabelRules::core().is_restricted(key) {
        let problem = format!("uses the label {key}, which no overlay may require");
        return Err((problem, "another label".to_owned()));
    }
    let values: Vec<String> = match operator {
        Operator::Gt | Operator::Lt => vec![bound(key, text, values)?],
        _ => values
            .split(',')
            .map(|value| label_value(key, text, value))
            .collect::<Result<_, _>>()?,
    };
    Ok(NodeSelectorRequirement {
        key: key.to_owned(),
        operator,
        values,
        extra: Extra::new(),
    })
}

fn label_value(key: &str, operator: &str, value: &str) -> Result<String, (String, String)> {
    let form = format!("{key}{operator}value or {key}{operator}a,b");
    if value.is_empty() {
        return Err(("has an empty value".to_owned(), form));
    }
    match check_value(value) {
        Ok(()) => Ok(value.to_owned()),
        Err(error) => Err((format!("has the value {value:?}, which {error}"), form)),
    }
}

/// The one integer of a comparison.
fn bound(key: &str, operator: &str, value: &str) -> Result<String, (String, String)> {
    if let Some(number) = value.strip_prefix('=') {
        let strict = number.parse::<i64>().ok().and_then(|number| {
            let shifted = if operator == ">" {
                number.checked_sub(1)?
            } else {
                number.checked_add(1)?
            };
            (shifted >= 0).then(|| format!("{key}{operator}{shifted}"))
        });
        return Err((
            format!("uses {operator}=, which is no operator"),
            strict.unwrap_or_else(|| format!("{key}{operator}4")),
        ));
    }
    let fits =
        !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) && value.parse::<i64>().is_ok();
    if fits {
        Ok(value.to_owned())
    } else {
        Err((
            format!("compares with {value:?}, which is no integer of 0 or more"),
            format!("{key}{operator}4"),
        ))
    }
}

//! The words of a rule.

/// One word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Ident(String),
    Int(i64),
    Double(f64),
    Text(String),
    Sign(&'static str),
}

/// Longer signs come first.
const SIGNS: [&str; 23] = [
    "&&", "||", "==", "!=", "<=", ">=", "!", "<", ">", "+", "-", "*", "/", "%", "?", ":", ".", ",", "(", ")",
    "[", "]", "{",
];

/// Takes a rule apart.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = if first.is_ascii_alphabetic() || first == '_' {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if after.starts_with(['\'', '"']) {
                return Err(format!("text with the prefix {word} is not known here"));
            }
            (Token::Ident(word.to_owned()), after)
        } else if first.is_ascii_digit() {
            number(rest)?
        } else if first == '\'' || first == '"' {
            quoted(rest, first)?
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| format!("{first:?} is not known here"))?;
            (Token::Sign(sign), rest.get(sign.len()..).unwrap_or_default())
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn number(text: &str) -> Result<(Token, &str), String> {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())
    };
    let whole = digits(0);
    let fraction =
        text.get(whole..).is_some_and(|rest| rest.starts_with('.')) && digits(whole + 1) > whole + 1;
    let end = if fraction { digits(whole + 1) } else { whole };
    let (number, after) = text.split_at(end);
    if after.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(format!(
            "the number {number} has an ending that is not known here"
        ));
    }
    let token = if fraction {
        number.parse().ok().map(Token::Double)
    } else {
        number.parse().ok().map(Token::Int)
    };
    let token = token.ok_or_else(|| format!("{number} is out of range"))?;
    Ok((token, after))
}

fn quoted(text: &str, quote: char) -> Result<(Token, &str), String> {
    let mut written = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Ok((Token::Text(written), text.get(at + 1..).unwrap_or_default()));
        }
        if c != '\\' {
            written.push(c);
            continue;
        }
        let escaped = chars.next().map(|(_, escaped)| escaped);
        written.push(match escaped {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(same @ ('\\' | '\'' | '"' | '`' | '?')) => same,
            _ => {
                return Err(format!(
                    "the escape \\{} is not known here",
                    escaped.unwrap_or_default()
                ));
            }
        });
    }
    Err("text without an end".to_owned())
}

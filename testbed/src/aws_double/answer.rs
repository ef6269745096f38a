//! Answers and refusals in the form of each service.

use serde_json::json;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    /// The header in which services of one protocol name the error.
    pub(super) error: Option<String>,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn xml(body: String) -> Self {
        Self {
            status: 200,
            kind: "text/xml;charset=UTF-8",
            error: None,
            body,
        }
    }

    pub(super) fn json(service: &str, body: &serde_json::Value) -> Self {
        Self {
            status: 200,
            kind: media_type(service),
            error: None,
            body: body.to_string(),
        }
    }

    /// A refusal as the service words it.
    pub(super) fn refusal(service: &str, status: u16, code: &str, message: &str) -> Self {
        let (error, body) = match service {
            "ec2" => (
                None,
                format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>0</RequestID></Response>"
                ),
            ),
            "sts" => (
                None,
                format!(
                    "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>0</RequestId></ErrorResponse>"
                ),
            ),
            "savingsplans" => (Some(code.to_owned()), json!({"message": message}).to_string()),
            _ => (
                None,
                json!({"__type": format!("com.amazonaws.{service}#{code}"), "message": message}).to_string(),
            ),
        };
        Self {
            status,
            kind: media_type(service),
            error,
            body,
        }
    }
}

fn media_type(service: &str) -> &'static str {
    match service {
        "ec2" | "sts" => "text/xml;charset=UTF-8",
        "pricing" => "application/x-amz-json-1.1",
        "billing" => "application/x-amz-json-1.0",
        _ => "application/json",
    }
}

/// One page of a list: the entries, and the token of the next page.
pub(super) fn page<'a, T>(
    all: &'a [T],
    token: Option<&str>,
    asked: usize,
    limit: Option<usize>,
) -> Result<(&'a [T], Option<String>), String> {
    let first = match token {
        None | Some("") => 0,
        Some(token) => {
            let at = token.strip_prefix("page").and_then(|at| at.parse::<usize>().ok());
            at.filter(|at| *at < all.len())
                .ok_or_else(|| format!("{token} is no token of this list"))?
        }
    };
    let size = asked.min(limit.unwrap_or(usize::MAX)).max(1);
    let after = first.saturating_add(size).min(all.len());
    let next = (after < all.len()).then(|| format!("page{after}"));
    Ok((all.get(first..after).unwrap_or_default(), next))
}

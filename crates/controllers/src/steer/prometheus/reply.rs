//! Reads answers of Prometheus' HTTP API, without a tree of what nobody looks at: an answer is as large as its server likes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use veneer_steering::commitments::Sample;

use super::Series;

/// How much of a bad answer is shown.
const SHOWN: usize = 200;

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
    #[serde(borrow, default)]
    warnings: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow, rename = "resultType")]
    result_type: Cow<'a, str>,
    #[serde(borrow)]
    result: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Vector<'a> {
    metric: BTreeMap<String, String>,
    #[serde(borrow)]
    value: (IgnoredAny, Cow<'a, str>),
}

#[derive(Deserialize)]
struct Matrix<'a> {
    metric: BTreeMap<String, String>,
    #[serde(borrow)]
    values: Vec<(f64, Cow<'a, str>)>,
}

/// The beginning of a text.
pub(super) fn shortened(bytes: &[u8]) -> String {
    let head = bytes.get(..SHOWN * 8).unwrap_or(bytes);
    let head = String::from_utf8_lossy(head);
    let head = head.trim();
    match head.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", head.get(..end).unwrap_or_default()),
        None => head.to_owned(),
    }
}

/// The samples of an answer.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Sample>, String> {
    each(bytes, "vector", |raw| {
        let result: Vector<'_> = serde_json::from_str(raw).ok()?;
        Some(Sample {
            labels: result.metric,
            value: number(&result.value.1)?,
        })
    })
}

/// The series of an answer.
pub(super) fn read_series(bytes: &[u8]) -> Result<Vec<Series>, String> {
    each(bytes, "matrix", |raw| {
        let result: Matrix<'_> = serde_json::from_str(raw).ok()?;
        let values = result.values.iter().map(|(second, value)| {
            #[allow(clippy::cast_possible_truncation, reason = "whole seconds were asked for")]
            let second = second.round() as i64;
            Some((Timestamp::from_second(second).ok()?, number(value)?))
        });
        Some(Series {
            values: values.collect::<Option<_>>()?,
            labels: result.metric,
        })
    })
}

/// Reads the results of a complete answer of one kind.
fn each<T>(bytes: &[u8], kind: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let reply: Reply<'_> =
        serde_json::from_slice(bytes).map_err(|_| format!("the answer is no JSON: {}", shortened(bytes)))?;
    if reply.status.map(RawValue::get) != Some("\"success\"") {
        return Err(format!("the answer is no success: {}", shortened(bytes)));
    }
    let warnings = reply.warnings.unwrap_or_default();
    if !warnings.is_empty() {
        let warnings: Vec<&str> = warnings.into_iter().map(RawValue::get).collect();
        let warnings = warnings.join(", ");
        return Err(format!(
            "the answer may be incomplete: {}",
            shortened(warnings.as_bytes())
        ));
    }
    let data: Option<Data<'_>> = reply.data.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let Some(data) = data.filter(|data| data.result_type == kind) else {
        return Err(format!("the answer is no {kind}: {}", shortened(bytes)));
    };
    let results = data.result.into_iter().map(RawValue::get).map(|raw| {
        read(raw).ok_or_else(|| format!("a result cannot be read: {}", shortened(raw.as_bytes())))
    });
    results.collect()
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_with_all_its_results() {
        let text = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"__name__":"m","a":"x"},"value":[1.5,"2.5"]},
            {"metric":{},"value":[1.5,"NaN"]},
            {"metric":{"a":"y"},"value":[1.5,"+Inf"]},
            {"metric":{"a":"z"},"value":[1.5,"-Inf"]}]}}"#;
        let read = read(text.as_bytes()).unwrap();
        assert_eq!(read.len(), 4);
        assert_eq!((read[0].label("a"), read[0].value), ("x", 2.5));
        assert!(read[1].value.is_nan() && read[1].labels.is_empty());
        assert_eq!((read[2].value, read[3].value), (f64::INFINITY, f64::NEG_INFINITY));
        let empty = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
        assert_eq!(super::read(empty.as_bytes()), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_complete_answer_is_an_error() {
        for (text, expected) in [
            ("<html>", "the answer is no JSON: <html>"),
            ("", "the answer is no JSON: "),
            ("{}", "the answer is no success: {}"),
            (r#"{"status":"error"}"#, "the answer is no success"),
            (r#"{"status":"success"}"#, "the answer is no vector"),
            (
                r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
                "the answer is no vector",
            ),
            (
                r#"{"status":"success","warnings":["store gone"],"data":{"resultType":"vector","result":[]}}"#,
                "the answer may be incomplete: \"store gone\"",
            ),
            (
                r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,2]}]}}"#,
                "a result cannot be read",
            ),
            (
                r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":1},"value":[1,"2"]}]}}"#,
                "a result cannot be read",
            ),
            (
                r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"two"]}]}}"#,
                "a result cannot be read",
            ),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let long = read("x".repeat(10_000).as_bytes()).unwrap_err();
        assert!(long.len() < 300, "{long}");
    }
}

//! Asks Prometheus: three instant queries, each with a timeout and some retries.
//!
//! The HTTP client is the one of the Kubernetes client, so there is one TLS stack and one way to read tokens and
//! certificates. Whatever is not a complete answer is an error: a wrong status, text that is no answer, an answer
//! with warnings (a part of the data may be missing), a value that cannot be read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::body::{Body as AnyBody, to_bytes};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use veneer_steering::commitments::{Answer, Observation, Sample};

use crate::metrics::SteeringMetrics;
use crate::observe::chain;

/// The pause before the first retry; each later one is twice as long.
const BACKOFF: Duration = Duration::from_millis(200);
/// The largest answer that is read: tens of thousands of series.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// Everything that belongs together in one query, which sees one moment of the database: in two, one could
/// see numbers of a scrape and the other the age of the scrape before.
const COMMITMENTS: (&str, &str) = (
    "commitments",
    "{__name__=~\"savings_plan_hourly_commitment|savings_plan_remaining_capacity|savings_plan_utilization_percent|ec2_reserved_instance|lumina_data_freshness_seconds\"}",
);
/// Which running instances are covered by what.
const RUNNING: (&str, &str) = (
    "running_instances",
    "count by (account_id, region, availability_zone, instance_type, cost_type) (ec2_instance_hourly_cost)",
);
/// The age of the sample that says how old the data is: a server may answer with one of some minutes ago.
const SCRAPE_AGE: (&str, &str) = ("scrape_age", "time() - timestamp(lumina_data_freshness_seconds)");

/// How to reach Prometheus.
#[derive(Clone, Debug, Default)]
pub struct PrometheusSettings {
    /// Where it is, with a path if it has one.
    pub url: String,
    /// How long one query may take.
    pub timeout: Duration,
    /// How often a failed query is tried again.
    pub retries: u32,
    /// A file with a bearer token.
    pub bearer_token_file: Option<String>,
    /// User and password for basic authentication.
    pub basic: Option<(String, String)>,
    /// A file with the certificates that its own is signed by.
    pub ca_file: Option<String>,
    /// More headers.
    pub headers: BTreeMap<String, String>,
}

/// Why Prometheus cannot be asked at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask Prometheus at {url}: {why}")]
pub struct PrometheusError {
    url: String,
    why: String,
}

/// A Prometheus server.
#[derive(Clone)]
pub(crate) struct Prometheus {
    client: Client,
    timeout: Duration,
    retries: u32,
    token_file: Option<String>,
}

impl Prometheus {
    pub(crate) fn new(settings: &PrometheusSettings) -> Result<Self, PrometheusError> {
        let failed = |why: String| PrometheusError {
            url: settings.url.clone(),
            why,
        };
        let url: Uri = settings.url.parse().map_err(|error| failed(format!("{error}")))?;
        let mut config = Config::new(url);
        config.connect_timeout = Some(settings.timeout);
        config.read_timeout = Some(settings.timeout);
        config.write_timeout = Some(settings.timeout);
        config.default_retry = false;
        config.root_cert_file = settings.ca_file.as_ref().map(Into::into);
        let auth = match &settings.basic {
            Some((user, password)) => json!({"username": user, "password": password}),
            None => json!({}),
        };
        config.auth_info = serde_json::from_value(auth).map_err(|error| failed(error.to_string()))?;
        for (name, value) in &settings.headers {
            let header: HeaderName = name
                .parse()
                .map_err(|error| failed(format!("header {name}: {error}")))?;
            let value: HeaderValue = value
                .parse()
                .map_err(|error| failed(format!("header {name}: {error}")))?;
            config.headers.push((header, value));
        }
        let client = Client::try_from(config).map_err(|error| failed(chain(&error)))?;
        Ok(Self {
            client,
            timeout: settings.timeout,
            retries: settings.retries,
            token_file: settings.bearer_token_file.clone(),
        })
    }

    /// All answers of this moment.
    pub(crate) async fn observe(&self, metrics: &SteeringMetrics) -> Observation {
        let at = Timestamp::now();
        let (all, running, scrape_age) = tokio::join!(
            self.answer(COMMITMENTS, metrics),
            self.answer(RUNNING, metrics),
            self.answer(SCRAPE_AGE, metrics),
        );
        let of = |name: &str| {
            let all = all.as_ref().map_err(Clone::clone)?;
            let samples = all.iter().filter(|sample| sample.label("__name__") == name);
            Ok(samples.cloned().collect())
        };
        Observation {
            at,
            commitment: of("savings_plan_hourly_commitment"),
            remaining: of("savings_plan_remaining_capacity"),
            utilization: of("savings_plan_utilization_percent"),
            reserved: of("ec2_reserved_instance"),
            running,
            freshness: of("lumina_data_freshness_seconds").and_then(|told| aged(told, &scrape_age?)),
        }
    }

    async fn answer(&self, (name, query): (&'static str, &'static str), metrics: &SteeringMetrics) -> Answer {
        let began = Instant::now();
        let mut pause = BACKOFF;
        let mut attempt = 0;
        let answer = loop {
            let answer = match timeout(self.timeout, self.ask(query)).await {
                Ok(answer) => answer,
                Err(_) => Err(Refusal::again(format!("no answer within {:?}", self.timeout))),
            };
            match answer {
                Err(refusal) if refusal.again && attempt < self.retries => {
                    attempt += 1;
                    sleep(pause).await;
                    pause *= 2;
                }
                other => break other.map_err(|refusal| refusal.why),
            }
        };
        metrics.queried(name, began.elapsed(), answer.as_ref().map(Vec::len).ok());
        answer
    }

    async fn ask(&self, query: &'static str) -> Result<Vec<Sample>, Refusal> {
        let uri = format!("/api/v1/query?query={}", escape(query));
        let text = self.send(uri).await?;
        read(&text).map_err(Refusal::again)
    }

    async fn send(&self, uri: String) -> Result<String, Refusal> {
        let mut request = Request::get(uri);
        if let Some(file) = &self.token_file {
            // Tokens are renewed in place, so the file is read for every question; it often ends with a new line.
            let token = std::fs::read_to_string(file);
            let token =
                token.map_err(|error| Refusal::again(format!("cannot read the token in {file}: {error}")))?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        let request = request.body(Body::empty());
        let request = request.map_err(|error| Refusal::for_good(error.to_string()))?;
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| Refusal::again(chain(&error)))?;
        let status = answer.status();
        let bytes = to_bytes(AnyBody::new(answer.into_body()), LARGEST_ANSWER).await;
        let bytes = bytes.map_err(|error| Refusal::again(chain(&error)))?;
        let text = String::from_utf8_lossy(&bytes);
        if !status.is_success() {
            let why = format!("status {status}: {}", shortened(&text));
            let passes = status.is_server_error()
                || matches!(
                    status,
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                );
            return Err(Refusal { why, again: passes });
        }
        Ok(text.into_owned())
    }
}

/// One series over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its values, oldest first.
    pub values: Vec<(Timestamp, f64)>,
}

/// What Prometheus remembers of a query between two moments, a value every `step`.
pub async fn history(
    settings: &PrometheusSettings,
    query: &str,
    (from, to): (Timestamp, Timestamp),
    step: Duration,
) -> Result<Vec<Series>, PrometheusError> {
    let prometheus = Prometheus::new(settings)?;
    let uri = format!(
        "/api/v1/query_range?query={}&start={}&end={}&step={}",
        escape(query),
        from.as_second(),
        to.as_second(),
        step.as_secs().max(1)
    );
    let answer = timeout(settings.timeout, prometheus.send(uri)).await;
    let text = match answer {
        Ok(answer) => answer.map_err(|refusal| refusal.why),
        Err(_) => Err(format!("no answer within {:?}", settings.timeout)),
    };
    text.and_then(|text| read_series(&text))
        .map_err(|why| PrometheusError {
            url: settings.url.clone(),
            why,
        })
}

fn read_series(text: &str) -> Result<Vec<Series>, String> {
    let results = results(text, "matrix")?;
    let series = |result: &Value| {
        let values = result.get("values")?.as_array()?.iter().map(|pair| {
            #[allow(clippy::cast_possible_truncation, reason = "whole seconds were asked for")]
            let second = pair.get(0)?.as_f64()?.round() as i64;
            Some((
                Timestamp::from_second(second).ok()?,
                number(pair.get(1)?.as_str()?)?,
            ))
        });
        Some(Series {
            labels: labels(result)?,
            values: values.collect::<Option<_>>()?,
        })
    };
    let series = results.iter().map(|result| {
        series(result).ok_or_else(|| format!("a result cannot be read: {}", shortened(&result.to_string())))
    });
    series.collect()
}

fn labels(result: &Value) -> Option<BTreeMap<String, String>> {
    let labels = result.get("metric")?.as_object()?;
    let labels = labels
        .iter()
        .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    labels.collect()
}

/// The ages that were told, each made older by the age of its sample. One whose own age nobody knows is no number.
fn aged(mut told: Vec<Sample>, scrape_age: &[Sample]) -> Answer {
    for sample in &mut told {
        let mut labels = sample.labels.clone();
        labels.remove("__name__");
        let age = scrape_age.iter().find(|age| age.labels == labels);
        sample.value += age.map_or(f64::NAN, |age| age.value.max(0.0));
    }
    Ok(told)
}

/// Why there is no answer, and whether it is worth to ask again.
struct Refusal {
    why: String,
    again: bool,
}

impl Refusal {
    fn again(why: String) -> Self {
        Self { why, again: true }
    }

    fn for_good(why: String) -> Self {
        Self { why, again: false }
    }
}

fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The samples of an answer in the format of Prometheus' HTTP API.
fn read(text: &str) -> Result<Vec<Sample>, String> {
    let results = results(text, "vector")?;
    let sample = |result: &Value| {
        Some(Sample {
            labels: labels(result)?,
            value: number(result.pointer("/value/1")?.as_str()?)?,
        })
    };
    let samples = results.iter().map(|result| {
        sample(result).ok_or_else(|| format!("a result cannot be read: {}", shortened(&result.to_string())))
    });
    samples.collect()
}

/// The results of a complete answer of one kind.
fn results(text: &str, kind: &str) -> Result<Vec<Value>, String> {
    let mut answer: Value =
        serde_json::from_str(text).map_err(|_| format!("the answer is no JSON: {}", shortened(text)))?;
    if answer.get("status").and_then(Value::as_str) != Some("success") {
        return Err(format!("the answer is no success: {}", shortened(text)));
    }
    if let Some(warnings) = answer
        .get("warnings")
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty())
    {
        let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        return Err(format!(
            "the answer may be incomplete: {}",
            shortened(&warnings.join(", "))
        ));
    }
    let is_kind = answer.pointer("/data/resultType").and_then(Value::as_str) == Some(kind);
    match answer.pointer_mut("/data/result").map(Value::take) {
        Some(Value::Array(results)) if is_kind => Ok(results),
        _ => Err(format!("the answer is no {kind}: {}", shortened(text))),
    }
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok(),
    }
}

/// A query as a part of a URL.
fn escape(query: &str) -> String {
    let mut escaped = String::new();
    for byte in query.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
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
        let read = read(text).unwrap();
        assert_eq!(read.len(), 4);
        assert_eq!((read[0].label("a"), read[0].value), ("x", 2.5));
        assert!(read[1].value.is_nan() && read[1].labels.is_empty());
        assert_eq!((read[2].value, read[3].value), (f64::INFINITY, f64::NEG_INFINITY));
        let empty = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
        assert_eq!(super::read(empty), Ok(Vec::new()));
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
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let long = read(&"x".repeat(10_000)).unwrap_err();
        assert!(long.len() < 300, "{long}");
    }

    #[test]
    fn data_is_as_old_as_it_says_and_its_sample_together() {
        let told = |account: &str| Sample::new(&[("__name__", "x"), ("account_id", account)], 30.0);
        let age = |account: &str, value| Sample::new(&[("account_id", account)], value);
        let found = aged(
            vec![told("a"), told("b"), told("c")],
            &[age("a", 5.0), age("b", -1.0)],
        )
        .unwrap();
        assert_eq!((found[0].value, found[1].value), (35.0, 30.0));
        assert!(found[2].value.is_nan());
    }

    #[test]
    fn a_query_is_escaped_for_a_url() {
        assert_eq!(
            escape("sum by (a) (b{c=\"d\"})"),
            "sum%20by%20%28a%29%20%28b%7Bc%3D%22d%22%7D%29"
        );
    }
}

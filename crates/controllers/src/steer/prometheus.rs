//! Asks Prometheus: three instant queries, each with a timeout and some retries.
//!
//! The HTTP client is the one of the Kubernetes client, so there is one TLS stack and one way to read tokens and
//! certificates. Whatever is not a complete answer is an error: a wrong status, text that is no answer, an answer
//! with warnings (a part of the data may be missing), a value that cannot be read.

mod reply;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body as AnyBody;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::json;
use tokio::time::{sleep, timeout};
use veneer_steering::commitments::{Answer, Observation, Sample};

use crate::metrics::SteeringMetrics;
use crate::observe::chain;

/// The pause before the first retry; each later one is twice as long.
const BACKOFF: Duration = Duration::from_millis(200);
/// How large an answer may be, and what to do about a larger one.
#[derive(Clone, Copy)]
struct Limit {
    bytes: usize,
    fix: &'static str,
}

/// About thirty thousand series; an organization with hundreds of accounts has a tenth of that.
const COMMITMENTS_LIMIT: Limit = Limit {
    bytes: 16 << 20,
    fix: "set prometheus.matcher, such as job=\"lumina\", so that only the series of the exporter are in it",
};
const HISTORY_LIMIT: Limit = Limit {
    bytes: 64 << 20,
    fix: "ask for a shorter history or a longer step",
};

/// The series about commitments.
const COMMITMENTS: [&str; 8] = [
    "savings_plan_hourly_commitment",
    "savings_plan_remaining_capacity",
    "savings_plan_utilization_percent",
    "ec2_reserved_instance",
    "ec2_reserved_instance_count",
    "veneer_reserved_instances",
    "veneer_reserved_instances_unused",
    "lumina_data_freshness_seconds",
];

/// The queries, each with its name in metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Queries {
    /// Everything that belongs together in one query, which sees one moment of the database: in two, one could see
    /// numbers of a scrape and the other the age of the scrape before.
    commitments: (&'static str, String),
    /// Which running instances are covered by what.
    running: (&'static str, String),
    /// The age of the sample that says how old the data is: a server may answer with one of some minutes ago.
    scrape_age: (&'static str, String),
}

impl Queries {
    /// The queries with the label matchers that tell whose series are believed.
    fn new(matcher: Option<&str>) -> Self {
        let more = matcher.map(|matcher| format!(",{matcher}")).unwrap_or_default();
        let only = matcher
            .map(|matcher| format!("{{{matcher}}}"))
            .unwrap_or_default();
        let names = COMMITMENTS.join("|");
        let by = "account_id, region, availability_zone, instance_type, cost_type";
        // Two exporters that are scraped at once tell of the same instances.
        let once = format!("max by (instance_id, {by})");
        Self {
            commitments: ("commitments", format!("{{__name__=~\"{names}\"{more}}}")),
            running: (
                "running_instances",
                format!("count by ({by}) ({once} (ec2_instance_hourly_cost{only}))"),
            ),
            scrape_age: (
                "scrape_age",
                format!("time() - timestamp(lumina_data_freshness_seconds{only})"),
            ),
        }
    }
}

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
    /// Label matchers that every series about commitments must meet, such as `job="lumina"`.
    pub matcher: Option<String>,
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
    queries: Arc<Queries>,
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
            queries: Arc::new(Queries::new(settings.matcher.as_deref())),
        })
    }

    /// All answers of this moment.
    pub(crate) async fn observe(&self, metrics: &SteeringMetrics) -> Observation {
        let at = Timestamp::now();
        let Queries {
            commitments,
            running,
            scrape_age,
        } = &*self.queries;
        let (all, running, scrape_age) = tokio::join!(
            self.answer(commitments, metrics),
            self.answer(running, metrics),
            self.answer(scrape_age, metrics),
        );
        let mut all = all.map(by_name);
        let mut of = |name: &str| match &mut all {
            Ok(all) => Ok(all.remove(name).unwrap_or_default()),
            Err(why) => Err(why.clone()),
        };
        Observation {
            at,
            commitment: of("savings_plan_hourly_commitment"),
            remaining: of("savings_plan_remaining_capacity"),
            utilization: of("savings_plan_utilization_percent"),
            reserved: of("ec2_reserved_instance"),
            reserved_counts: of("ec2_reserved_instance_count"),
            counted: of("veneer_reserved_instances"),
            unused: of("veneer_reserved_instances_unused"),
            running,
            freshness: of("lumina_data_freshness_seconds").and_then(|told| aged(told, &scrape_age?)),
        }
    }

    async fn answer(&self, query: &(&'static str, String), metrics: &SteeringMetrics) -> Answer {
        let (name, query) = (query.0, &query.1);
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

    async fn ask(&self, query: &str) -> Result<Vec<Sample>, Refusal> {
        let uri = format!("/api/v1/query?query={}", escape(query));
        let answer = self.send(uri, COMMITMENTS_LIMIT).await?;
        reply::read(&answer).map_err(Refusal::again)
    }

    async fn send(&self, uri: String, limit: Limit) -> Result<Vec<u8>, Refusal> {
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
        let bytes = self.body(answer.into_body(), limit).await?;
        if !status.is_success() {
            let why = format!("status {status}: {}", reply::shortened(&bytes));
            let passes = status.is_server_error()
                || matches!(
                    status,
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                );
            return Err(Refusal { why, again: passes });
        }
        Ok(bytes)
    }

    /// Reads an answer as far as it is not too large. One that is would be so again.
    async fn body(&self, body: Body, limit: Limit) -> Result<Vec<u8>, Refusal> {
        let mut bytes = Vec::new();
        let mut chunks = AnyBody::new(body).into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| Refusal::again(chain(&error)))?;
            if bytes.len() + chunk.len() > limit.bytes {
                return Err(Refusal::for_good(format!(
                    "the answer is longer than {} MiB; {}",
                    limit.bytes >> 20,
                    limit.fix
                )));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// Samples by the name of their series.
fn by_name(samples: Vec<Sample>) -> BTreeMap<String, Vec<Sample>> {
    let mut all: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for sample in samples {
        match all.get_mut(sample.label("__name__")) {
            Some(list) => list.push(sample),
            None => drop(all.insert(sample.label("__name__").to_owned(), vec![sample])),
        }
    }
    all
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
    let answer = timeout(settings.timeout, prometheus.send(uri, HISTORY_LIMIT)).await;
    let bytes = match answer {
        Ok(answer) => answer.map_err(|refusal| refusal.why),
        Err(_) => Err(format!("no answer within {:?}", settings.timeout)),
    };
    bytes
        .and_then(|bytes| reply::read_series(&bytes))
        .map_err(|why| PrometheusError {
            url: settings.url.clone(),
            why,
        })
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
    fn the_matcher_is_in_every_query() {
        let bare = Queries::new(None);
        assert_eq!(
            bare.running.1,
            "count by (account_id, region, availability_zone, instance_type, cost_type) (max by (instance_id, account_id, region, availability_zone, instance_type, cost_type) (ec2_instance_hourly_cost))"
        );
        let queries = Queries::new(Some("job=\"lumina\",namespace=~\"a|b\""));
        assert_eq!(
            queries.commitments.1,
            "{__name__=~\"savings_plan_hourly_commitment|savings_plan_remaining_capacity|savings_plan_utilization_percent|ec2_reserved_instance|ec2_reserved_instance_count|veneer_reserved_instances|veneer_reserved_instances_unused|lumina_data_freshness_seconds\",job=\"lumina\",namespace=~\"a|b\"}"
        );
        assert_eq!(
            queries.running.1,
            "count by (account_id, region, availability_zone, instance_type, cost_type) (max by (instance_id, account_id, region, availability_zone, instance_type, cost_type) (ec2_instance_hourly_cost{job=\"lumina\",namespace=~\"a|b\"}))"
        );
        assert_eq!(
            queries.scrape_age.1,
            "time() - timestamp(lumina_data_freshness_seconds{job=\"lumina\",namespace=~\"a|b\"})"
        );
    }

    #[test]
    fn a_query_is_escaped_for_a_url() {
        assert_eq!(
            escape("sum by (a) (b{c=\"d\"})"),
            "sum%20by%20%28a%29%20%28b%7Bc%3D%22d%22%7D%29"
        );
    }

    /// The most memory that this process has had so far, in MiB.
    fn peak() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
    }

    /// Answers every question with `size` bytes of series, and says how many of them each caller took.
    fn talkative(size: usize) -> (String, std::sync::mpsc::Receiver<usize>) {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (taken, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, taken) = (stream.unwrap(), taken.clone());
                std::thread::spawn(move || {
                    let mut head = [0; 4096];
                    let _ = stream.read(&mut head);
                    let begin = r#"{"status":"success","data":{"resultType":"vector","result":["#;
                    let result = r#"{"metric":{"__name__":"ec2_reserved_instance","instance_type":"p5.48xlarge"},"value":[1,"9"]},"#;
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n{begin}"
                    );
                    let mut sent = 0;
                    let mut open = stream.write_all(answer.as_bytes()).is_ok();
                    let chunk = result.repeat(100);
                    while open && sent < size {
                        open = stream.write_all(chunk.as_bytes()).is_ok();
                        sent += chunk.len();
                    }
                    let _ = taken.send(sent);
                });
            }
        });
        (url, told)
    }

    #[tokio::test]
    async fn an_answer_that_is_too_large_is_named_and_not_read_to_its_end() {
        const SIZE: usize = 63_000_000;
        let (url, told) = talkative(SIZE);
        let settings = PrometheusSettings {
            url,
            timeout: Duration::from_secs(60),
            retries: 2,
            ..PrometheusSettings::default()
        };
        let before = peak();
        let observed = Prometheus::new(&settings)
            .unwrap()
            .observe(&crate::Metrics::new().steering)
            .await;
        println!("three answers of 63 MB: {} MiB more", peak() - before);
        let ledger = veneer_steering::commitments::Ledger::read(
            &observed,
            &veneer_steering::commitments::Scope {
                account: "123456789012".to_owned(),
                region: "us-west-2".to_owned(),
                shared_plans: true,
                freshness_limit: "65m".parse().unwrap(),
            },
        );
        let doubts: Vec<String> = ledger.doubts().map(|(_, doubt)| doubt.to_string()).collect();
        assert_eq!(doubts.len(), 3);
        assert!(doubts[0].contains("query failed: ec2_reserved_instance: the answer is longer than 16 MiB"));
        assert!(
            doubts.iter().all(|doubt| doubt.contains("prometheus.matcher")),
            "{doubts:?}"
        );
        // Asked once each: a second answer would be as large. Beyond the limit, only what the sockets hold was sent.
        let taken = tokio::task::spawn_blocking(move || {
            let wait = Duration::from_secs(60);
            let taken = [(); 3].map(|()| told.recv_timeout(wait).unwrap());
            assert!(told.try_recv().is_err(), "it was asked again");
            taken
        });
        for taken in taken.await.unwrap() {
            assert!(taken < SIZE * 3 / 4, "{taken} bytes were taken");
        }
    }
}

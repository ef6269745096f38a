//! One signed request and its answer, tried again where that helps.
//!
//! Credentials, region, endpoints and FIPS come from the SDK's own configuration (files, variables, IRSA, pod identity,
//! instance metadata). A throttled call waits longer each time, at random, so that replicas do not come back together;
//! expired credentials are fetched again once; a clock that is wrong is corrected by what AWS says the time is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_http_client::tls;
use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::http::Request;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use aws_types::service_config::ServiceConfigKey;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{debug, warn};
use veneer_engine::backoff::Backoff;

use crate::call::{Call, Service};
use crate::endpoint;
use crate::error::Error;
use crate::outside::Outside;
use crate::wire;

/// How often a call is tried, the first time included.
const ATTEMPTS: u32 = 6;
/// The longest pause after the first failure; it doubles, up to the second number.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(8));
/// Credentials are fetched again this long before they expire.
const EXPIRY_MARGIN: Duration = Duration::from_secs(120);
/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client goes on with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often it is tried, the first time included.
    pub attempts: u32,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// The longest pause after the first failure; it doubles, up to the second number.
    pub pause: (Duration, Duration),
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: ATTEMPTS,
            timeout: TIMEOUT,
            pause: PAUSE,
        }
    }
}

/// The way to AWS.
#[derive(Clone, Debug)]
pub struct Client {
    config: SdkConfig,
    region: String,
    outside: Outside,
    patience: Patience,
    shared: Arc<Shared>,
}

/// What clients of the same account share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Held while credentials are fetched, so that they are fetched once.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    credentials: Option<Credentials>,
    /// How far AWS's clock is ahead of ours, in seconds.
    skew: i64,
    traffic: Traffic,
    requests: BTreeMap<Call, u64>,
}

/// What went over the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests, repeated ones included.
    pub requests: u64,
    /// Bytes of bodies, in both directions.
    pub bytes: u64,
}

impl Client {
    /// Finds out who we are and where. `region` wins over what the environment says.
    pub async fn load(region: Option<&str>) -> Result<Self, Error> {
        Self::finish(aws_config::defaults(BehaviorVersion::latest()), region).await
    }

    /// One region at one address, with these credentials.
    pub async fn at(
        region: &str,
        url: &str,
        credentials: impl ProvideCredentials + 'static,
    ) -> Result<Self, Error> {
        let loader = aws_config::defaults(BehaviorVersion::latest())
            .endpoint_url(url)
            .credentials_provider(credentials);
        Self::finish(loader, Some(region)).await
    }

    async fn finish(mut loader: ConfigLoader, region: Option<&str>) -> Result<Self, Error> {
        let provider = tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring);
        let connector = aws_smithy_http_client::Connector::builder()
            .tls_provider(provider)
            .build();
        let connector = SharedHttpConnector::new(connector);
        let shared = connector.clone();
        loader = loader.http_client(http_client_fn(move |_, _| shared.clone()));
        if let Some(region) = region.filter(|region| !region.is_empty()) {
            loader = loader.region(Region::new(region.to_owned()));
        }
        let config = loader.load().await;
        let region = config.region().map(ToString::to_string).ok_or(Error::NoRegion)?;
        Ok(Self {
            config,
            region,
            outside: Outside::real(connector),
            patience: Patience::default(),
            shared: Arc::default(),
        })
    }

    /// For a simulation: nothing of the machine is asked.
    #[must_use]
    pub fn within(outside: &Outside) -> Self {
        let config = Outside::config();
        Self {
            region: config.region().map(ToString::to_string).unwrap_or_default(),
            config,
            outside: outside.clone(),
            patience: Patience::default(),
            shared: Arc::default(),
        }
    }

    /// The same account in another region: credentials and counts are shared.
    #[must_use]
    pub fn in_region(&self, region: &str) -> Self {
        Self {
            region: region.to_owned(),
            ..self.clone()
        }
    }

    /// The same, with more or less patience.
    #[must_use]
    pub fn with_patience(&self, patience: Patience) -> Self {
        Self {
            patience,
            ..self.clone()
        }
    }

    /// Somebody else at the same addresses.
    #[must_use]
    pub fn with_credentials(&self, credentials: impl ProvideCredentials + 'static) -> Self {
        let provider = SharedCredentialsProvider::new(credentials);
        let config = self.config.clone().into_builder();
        Self {
            config: config.credentials_provider(provider).build(),
            shared: Arc::default(),
            ..self.clone()
        }
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        self.outside.now()
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// What went over the wire so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.state().traffic
    }

    /// How many requests each call took so far, repeated ones included.
    #[must_use]
    pub fn requests(&self) -> BTreeMap<Call, u64> {
        self.state().requests.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call whose answer is XML.
    pub(crate) async fn query(&self, call: Call, request: &Value) -> Result<String, Error> {
        let version = match call.service() {
            Service::Iam => "2010-05-08",
            Service::Sts => "2011-06-15",
            _ => "2016-11-15",
        };
        let mut parameters = vec![
            ("Action".to_owned(), call.action().to_owned()),
            ("Version".to_owned(), version.to_owned()),
        ];
        parameters.extend(wire::parameters(request));
        let headers = [(
            "content-type",
            "application/x-www-form-urlencoded; charset=utf-8".to_owned(),
        )];
        self.send(call, "", &headers, wire::form(&parameters)).await
    }

    /// A call in JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: Call, request: &Value) -> Result<T, Error> {
        let (prefix, version) = match call.service() {
            Service::Sqs => ("AmazonSQS", "application/x-amz-json-1.0"),
            Service::Billing => ("AWSBilling", "application/x-amz-json-1.0"),
            Service::Pricing => ("AWSPriceListService", "application/x-amz-json-1.1"),
            _ => ("AmazonSSM", "application/x-amz-json-1.1"),
        };
        let headers = [
            ("content-type", version.to_owned()),
            ("x-amz-target", format!("{prefix}.{}", call.action())),
        ];
        let answer = self.send(call, "", &headers, request.to_string()).await?;
        read_json(call, &answer)
    }

    /// A call in JSON that the path names.
    pub(crate) async fn rest<T: DeserializeOwned>(&self, call: Call, request: &Value) -> Result<T, Error> {
        let headers = [("content-type", "application/json".to_owned())];
        let answer = self.send(call, call.action(), &headers, request.to_string());
        read_json(call, &answer.await?)
    }

    async fn send(
        &self,
        call: Call,
        path: &str,
        headers: &[(&'static str, String)],
        body: String,
    ) -> Result<String, Error> {
        let url = format!("{}{path}", self.endpoint(call.service()));
        let Patience { attempts, pause, .. } = self.patience;
        let pauses = Backoff::doubling(pause.0, pause.1);
        let mut pause = pauses.first();
        let mut corrected = false;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let credentials = self.credentials().await?;
            let key = credentials.access_key_id().to_owned();
            let error = match self.attempt(call, &url, headers, &body, credentials).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let fixable = (error.is_expired() || error.may_be_skewed()) && !corrected;
            if attempt >= attempts || !(fixable || error.may_pass()) {
                return Err(error);
            }
            if fixable {
                // The credentials are fetched again, and the clock was set by the answer.
                corrected = true;
                // Another call may have fetched them meanwhile.
                let mut state = self.state();
                state.credentials.take_if(|known| known.access_key_id() == key);
                drop(state);
                debug!(%error, "trying again with fresh credentials");
                continue;
            }
            let wait = pause.mul_f64(self.outside.jitter());
            if attempt > 2 {
                warn!(%error, attempt, ?wait, "AWS asks to wait");
            }
            tokio::time::sleep(wait).await;
            pause = pauses.after(pause);
        }
    }

    async fn attempt(
        &self,
        call: Call,
        url: &str,
        headers: &[(&'static str, String)],
        body: &str,
        credentials: Credentials,
    ) -> Result<String, Error> {
        let timeout = self.patience.timeout;
        let action = call.action();
        let unreadable = |message: String| Error::Unreadable { action, message };
        let unreachable = |message: String| Error::Unreachable {
            action,
            url: url.to_owned(),
            message,
        };
        let mut request = http::Request::builder().method("POST").uri(url);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let mut request = request
            .body(SdkBody::from(body))
            .map_err(|error| unreadable(error.to_string()))?;
        self.sign(call.service(), &mut request, headers, body, credentials)
            .map_err(unreadable)?;
        let request = Request::try_from(request).map_err(|error| unreadable(error.to_string()))?;
        let answer = tokio::time::timeout(timeout, async {
            let answer = self.outside.connector.call(request).await;
            let mut answer = answer.map_err(|error| unreachable(chain(&error)))?;
            let status = answer.status().as_u16();
            let date = answer.headers().get("date").and_then(read_date);
            let kind = answer.headers().get("x-amzn-errortype").map(str::to_owned);
            let body = std::mem::replace(answer.body_mut(), SdkBody::taken());
            let body = ByteStream::new(body).collect().await;
            let body = body.map_err(|error| unreachable(chain(&error)))?;
            Ok((
                status,
                date,
                kind,
                String::from_utf8_lossy(&body.into_bytes()).into_owned(),
            ))
        });
        {
            let mut state = self.state();
            state.traffic.requests += 1;
            state.traffic.bytes += body.len() as u64;
            *state.requests.entry(call).or_default() += 1;
        }
        let answer = answer
            .await
            .map_err(|_| unreachable(format!("no answer within {timeout:?}")));
        let (status, date, kind, text) = answer??;
        self.state().traffic.bytes += text.len() as u64;
        if (200..300).contains(&status) {
            return Ok(text);
        }
        let (code, message) =
            refusal(kind.as_deref(), &text).unwrap_or_else(|| (format!("HTTP {status}"), brief(&text)));
        let error = Error::Refused {
            action,
            code,
            message,
            status,
        };
        if let Some(date) = date.filter(|_| error.may_be_skewed()) {
            self.state().skew = date - self.outside.now().as_second();
        }
        Err(error)
    }

    async fn credentials(&self) -> Result<Credentials, Error> {
        let is_fresh = |one: &Credentials| {
            one.expiry()
                .is_none_or(|at| at > self.outside.system_now() + EXPIRY_MARGIN)
        };
        let known = || self.state().credentials.clone().filter(is_fresh);
        if let Some(known) = known() {
            return Ok(known);
        }
        let _one_at_a_time = self.shared.fetching.lock().await;
        if let Some(known) = known() {
            return Ok(known);
        }
        let provider = self.config.credentials_provider();
        let provider = provider.ok_or_else(|| Error::NoCredentials("nothing provides any".to_owned()))?;
        let found = provider.provide_credentials().await;
        let found = found.map_err(|error| Error::NoCredentials(chain(&error)))?;
        self.state().credentials = Some(found.clone());
        Ok(found)
    }

    fn sign(
        &self,
        service: Service,
        request: &mut http::Request<SdkBody>,
        headers: &[(&'static str, String)],
        body: &str,
        credentials: Credentials,
    ) -> Result<(), String> {
        let identity = credentials.into();
        let skew = self.state().skew;
        let now = self.outside.system_now();
        let span = Duration::from_secs(skew.unsigned_abs());
        let now = if skew < 0 {
            now.checked_sub(span)
        } else {
            now.checked_add(span)
        }
        .unwrap_or(now);
        let region = endpoint::signing_region(service, &self.region);
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(region)
            .name(service.name())
            .time(now)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| error.to_string())?
            .into();
        let uri = request.uri().to_string();
        let named = headers.iter().map(|(name, value)| (*name, value.as_str()));
        let signable = SignableRequest::new("POST", uri, named, SignableBody::Bytes(body.as_bytes()))
            .map_err(|error| error.to_string())?;
        let signed = sign(signable, &parameters).map_err(|error| error.to_string())?;
        let (instructions, _) = signed.into_parts();
        instructions.apply_to_request_http1x(request);
        Ok(())
    }

    /// Where a service is: as configured for it, as configured for all, or where AWS has it.
    fn endpoint(&self, service: Service) -> String {
        let key = ServiceConfigKey::builder()
            .service_id(service.name())
            .env("AWS_ENDPOINT_URL")
            .profile("endpoint_url")
            .build();
        let own = key
            .ok()
            .and_then(|key| self.config.service_config()?.load_config(key));
        if let Some(url) = own.as_deref().or(self.config.endpoint_url()) {
            return format!("{}/", url.trim_end_matches('/'));
        }
        let fips = self.config.use_fips().unwrap_or_default();
        let dual = self.config.use_dual_stack().unwrap_or_default();
        endpoint::url(service, &self.region, fips, dual)
    }
}

fn read_json<T: DeserializeOwned>(call: Call, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Unreadable {
        action: call.action(),
        message: error.to_string(),
    })
}

/// Code and message of a refusal, in XML or JSON; `kind` is what the header says, where a service names the code there.
fn refusal(kind: Option<&str>, text: &str) -> Option<(String, String)> {
    if let Ok(document) = roxmltree::Document::parse(text) {
        let of = |name| wire::find(document.root(), name).and_then(|one| one.text());
        return Some((
            of("Code")?.to_owned(),
            of("Message").unwrap_or_default().to_owned(),
        ));
    }
    let value: Value = serde_json::from_str(text).ok()?;
    let of = |name: &str| value.get(name).and_then(Value::as_str);
    // A namespace may come before the code, and an address after it.
    let code = kind.or(of("__type")).or(of("code"))?;
    let code = code.split(':').next()?.rsplit('#').next()?.to_owned();
    let message = of("message").or(of("Message")).unwrap_or_default();
    Some((code, message.to_owned()))
}

fn brief(text: &str) -> String {
    text.chars().take(200).collect()
}

/// An HTTP date in seconds since the epoch.
fn read_date(text: &str) -> Option<i64> {
    let form = aws_smithy_types::date_time::Format::HttpDate;
    let date = aws_smithy_types::DateTime::from_str(text, form).ok()?;
    Some(date.secs())
}

/// An error with its causes, since the outer ones rarely say what happened.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read_in_every_form() {
        let xml = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow</Message></Error></Errors></Response>";
        assert_eq!(
            refusal(None, xml),
            Some(("RequestLimitExceeded".to_owned(), "slow".to_owned()))
        );
        let json = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no"}"#;
        assert_eq!(
            refusal(None, json),
            Some(("QueueDoesNotExist".to_owned(), "no".to_owned()))
        );
        let kind = "com.amazonaws#ValidationException:http://internal.amazon.com/x/";
        assert_eq!(
            refusal(Some(kind), r#"{"message":"no"}"#),
            Some(("ValidationException".to_owned(), "no".to_owned()))
        );
        assert_eq!(refusal(None, "<html>500"), None);
        assert_eq!(read_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
    }
}

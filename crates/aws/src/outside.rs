//! What a client meets outside of itself: the network, the clock and chance. A simulation gives its own.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use k8s_openapi::jiff::Timestamp;

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
type Chance = Arc<dyn Fn() -> f64 + Send + Sync>;

/// The network, the clock and chance.
#[derive(Clone)]
pub struct Outside {
    pub(crate) connector: SharedHttpConnector,
    clock: Clock,
    chance: Chance,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outside")
    }
}

/// Answers requests without a network: a body in, a status and a body out.
struct Answers<F>(F);

impl<F> fmt::Debug for Answers<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answers")
    }
}

impl<F, A> HttpConnector for Answers<F>
where
    F: Fn(String) -> A + Send + Sync,
    A: Future<Output = Result<(u16, String), String>> + Send + 'static,
{
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = String::from_utf8_lossy(request.body().bytes().unwrap_or_default());
        let answer = (self.0)(body.into_owned());
        HttpConnectorFuture::new(async move {
            let failed = |why: String| ConnectorError::io(why.into());
            let (status, text) = answer.await.map_err(failed)?;
            let status = status
                .try_into()
                .map_err(|_| failed(format!("{status} is no status")))?;
            Ok(HttpResponse::new(status, SdkBody::from(text)))
        })
    }
}

impl Outside {
    /// The machine's own, with this way to the network.
    pub(crate) fn real(connector: SharedHttpConnector) -> Self {
        Self {
            connector,
            clock: Arc::new(Timestamp::now),
            chance: Arc::new(random),
        }
    }

    /// One that is made up: `answers` says status and body for the body of a request, or why there is no answer; `chance` gives
    /// numbers from 0 to 1.
    pub fn simulated<A>(
        answers: impl Fn(String) -> A + Send + Sync + 'static,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
        chance: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<(u16, String), String>> + Send + 'static,
    {
        Self {
            connector: SharedHttpConnector::new(Answers(answers)),
            clock: Arc::new(clock),
            chance: Arc::new(chance),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) fn system_now(&self) -> SystemTime {
        self.now().into()
    }

    /// A number from 0.2 to 1: never at once, never all together.
    pub(crate) fn jitter(&self) -> f64 {
        0.2 + 0.8 * (self.chance)()
    }

    /// A configuration that leads nowhere: everything is answered here.
    pub(crate) fn config() -> SdkConfig {
        let nobody = Credentials::new("simulated", "simulated", None, None, "simulated");
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .endpoint_url("http://simulated.invalid")
            .credentials_provider(SharedCredentialsProvider::new(nobody))
            .build()
    }
}

fn random() -> f64 {
    let drawn = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(drawn) / f64::from(u32::MAX)
}

//! The few blocking requests a cluster makes itself: readiness, and installing CustomResourceDefinitions.

use std::sync::Arc;
use std::time::Duration;

use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::Error;

/// A client that trusts the CA of one cluster and no other, and never goes through a proxy.
#[derive(Debug)]
pub(crate) struct Http {
    agent: ureq::Agent,
    authorization: String,
}

/// A status code and a body.
pub(crate) type Answer = (u16, String);

impl Http {
    pub(crate) fn new(ca_pem: &str, token: &str) -> Result<Self, Error> {
        let ca = Certificate::from_pem(ca_pem.as_bytes())
            .map_err(|error| Error::Certificates(error.to_string()))?;
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&[ca]))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let agent = ureq::Agent::config_builder()
            .tls_config(tls)
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .build()
            .new_agent();
        Ok(Http {
            agent,
            authorization: format!("Bearer {token}"),
        })
    }

    /// Gives up early, because it is asked again and again and the one who listens may be a silent stranger.
    pub(crate) fn get(&self, url: &str) -> Result<Answer, ureq::Error> {
        let mut response = self
            .agent
            .get(url)
            .config()
            .timeout_global(Some(Duration::from_secs(2)))
            .build()
            .header("Authorization", &self.authorization)
            .call()?;
        Ok((response.status().as_u16(), response.body_mut().read_to_string()?))
    }

    pub(crate) fn post_yaml(&self, url: &str, body: &str) -> Result<Answer, ureq::Error> {
        let mut response = self
            .agent
            .post(url)
            .header("Authorization", &self.authorization)
            .content_type("application/yaml")
            .send(body)?;
        Ok((response.status().as_u16(), response.body_mut().read_to_string()?))
    }
}

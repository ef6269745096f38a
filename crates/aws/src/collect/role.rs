//! Other accounts: a role of theirs is assumed, and who that is is checked.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::read::unreadable;
use crate::call::Call;
use crate::client::Client;
use crate::ec2::parse;
use crate::error::Error;
use crate::wire::{field, find};

/// The credentials of a role, fetched anew whenever they are asked for: whoever asks keeps them.
#[derive(Clone, Debug)]
pub(super) struct Role {
    pub(super) client: Client,
    pub(super) arn: String,
    pub(super) external_id: Option<String>,
}

/// What AWS shows in its trail.
const SESSION: &str = "veneer";

impl Role {
    async fn assume(&self) -> Result<Credentials, Error> {
        let call = Call::AssumeRole;
        let unreadable = unreadable(call);
        let request =
            json!({"RoleArn": self.arn, "RoleSessionName": SESSION, "ExternalId": self.external_id});
        let text = self.client.query(call, &request).await?;
        let document = parse(call, &text)?;
        let found = find(document.root(), "Credentials");
        let of = |name: &str| found.map(|one| field(one, name)).filter(|text| !text.is_empty());
        let needed = |name: &str| of(name).ok_or_else(|| unreadable(format!("it has no {name}")));
        let expiry: Timestamp = needed("Expiration")?
            .parse()
            .map_err(|_| unreadable("Expiration is no time".to_owned()))?;
        Ok(Credentials::new(
            needed("AccessKeyId")?,
            needed("SecretAccessKey")?,
            Some(needed("SessionToken")?),
            Some(SystemTime::from(expiry)),
            "assumed role",
        ))
    }
}

impl ProvideCredentials for Role {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async move {
            let assumed = self.assume().await;
            assumed.map_err(CredentialsError::provider_error)
        })
    }
}

impl Client {
    /// The account that the credentials belong to.
    pub(super) async fn caller(&self) -> Result<String, Error> {
        let call = Call::GetCallerIdentity;
        let text = self.query(call, &json!({})).await?;
        let document = parse(call, &text)?;
        let found = find(document.root(), "Account").and_then(|one| one.text());
        let found = found.map(|text| text.trim().to_owned());
        found.ok_or_else(|| unreadable(call)("it has no Account".to_owned()))
    }
}

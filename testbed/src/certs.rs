//! The identity of one cluster: its CA, its serving certificate, its service-account key and its admin token.

use std::fmt::Write as _;
use std::path::PathBuf;

use base64::Engine as _;
use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::Error;
use crate::folder::Folder;

/// Written into the cluster's folder once, before anything starts.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) ca_pem: String,
    pub(crate) ca: PathBuf,
    pub(crate) serving_cert: PathBuf,
    pub(crate) serving_key: PathBuf,
    pub(crate) service_account_key: PathBuf,
    pub(crate) service_account_public: PathBuf,
    pub(crate) tokens: PathBuf,
    pub(crate) admin_token: String,
    /// Of a user with the same rights, so that the audit log tells a provisioner from whoever else is in the cluster.
    pub(crate) provisioner_token: String,
}

impl Identity {
    pub(crate) fn create(folder: &Folder) -> Result<Self, Error> {
        let failed = |error: rcgen::Error| Error::Certificates(error.to_string());
        let (ca_pem, cert, key) = generate().map_err(failed)?;
        let service_accounts = KeyPair::generate().map_err(failed)?;
        let (admin_token, provisioner_token) = (random_token()?, random_token()?);
        Ok(Identity {
            ca: folder.write("ca.crt", &ca_pem)?,
            serving_cert: folder.write("serving.crt", cert.pem())?,
            serving_key: folder.write("serving.key", key.serialize_pem())?,
            service_account_key: folder.write("service-accounts.key", service_accounts.serialize_pem())?,
            service_account_public: folder
                .write("service-accounts.pub", service_accounts.public_key_pem())?,
            tokens: folder.write(
                "tokens.csv",
                format!(
                    "{admin_token},admin,admin,system:masters\n\
                     {provisioner_token},provisioner,provisioner,system:masters\n"
                ),
            )?,
            ca_pem,
            admin_token,
            provisioner_token,
        })
    }

    /// A kubeconfig of the user with this token; it needs no other file.
    pub(crate) fn kubeconfig(&self, port: u16, token: &str) -> String {
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem);
        format!(
            "{KUBECONFIG_MARK}
apiVersion: v1
kind: Config
clusters:
- name: testbed
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority-data: {ca}
users:
- name: testbed
  user:
    token: {token}
contexts:
- name: testbed
  context:
    cluster: testbed
    user: testbed
current-context: testbed
"
        )
    }
}

/// The first line of every kubeconfig of ours, by which a later run knows that it may replace the file.
pub const KUBECONFIG_MARK: &str = "# Written by testbed. Valid while that testbed runs.";

/// A CA, and a certificate with its key for the loopback address that this CA has signed.
fn generate() -> Result<(String, Certificate, KeyPair), rcgen::Error> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name
        .push(DnType::CommonName, "veneer testbed CA");
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;

    let key = KeyPair::generate()?;
    let cert =
        CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?.signed_by(&key, &ca)?;
    Ok((ca.pem(), cert, key))
}

fn random_token() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(Error::NoRandomness)?;
    Ok(bytes.iter().fold(String::new(), |mut token, byte| {
        // Writing to a String cannot fail.
        let _ = write!(token, "{byte:02x}");
        token
    }))
}

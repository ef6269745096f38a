//! Two provisioners in one cluster would each launch nodes for the same pods, so standalone mode does not start beside
//! a running Karpenter.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::observe::chain;

const LEASE: &str = "karpenter-leader-election";

/// Says where a Karpenter runs, if one does.
pub(super) async fn rival(client: &Client) -> Result<Option<String>, String> {
    let failed = |what: &str, error: &kube::Error| {
        format!(
            "cannot look for a running Karpenter among {what}: {}; standalone mode needs the rights in the guide's page on it",
            chain(error)
        )
    };
    let deployments: Api<Deployment> = Api::all(client.clone());
    let named = ListParams::default().labels("app.kubernetes.io/name=karpenter");
    let found = deployments
        .list(&named)
        .await
        .map_err(|error| failed("deployments", &error))?;
    let running = found.iter().find(|one| {
        let wanted = one.spec.replicas.unwrap_or(1);
        wanted > 0
    });
    if let Some(one) = running {
        let namespace = one.namespace().unwrap_or_default();
        let name = one.name_any();
        return Ok(Some(format!(
            "Deployment {namespace}/{name} runs Karpenter. Stop it first (kubectl -n {namespace} scale deployment {name} --replicas=0), or run beside it with --mode companion"
        )));
    }
    let leases: Api<Lease> = Api::all(client.clone());
    let found = leases
        .list(&ListParams::default().fields(&format!("metadata.name={LEASE}")))
        .await
        .map_err(|error| failed("leases", &error))?;
    let held = found.iter().find(|lease| is_held(lease, Timestamp::now()));
    Ok(held.map(|lease| {
        let spec = lease.spec.clone().unwrap_or_default();
        format!(
            "Karpenter holds the lease {}/{LEASE} (holder {:?}). Stop it first and start again when the lease has run out, or run beside it with --mode companion",
            lease.namespace().unwrap_or_default(),
            spec.holder_identity.unwrap_or_default(),
        )
    }))
}

fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    let duration = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(15)));
    !holder.is_empty() && renewed.is_some_and(|renewed| now.duration_since(renewed) <= duration)
}

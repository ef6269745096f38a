//! Two provisioners in one cluster would each launch nodes for the same pods, so standalone mode runs beside no Karpenter.
//!
//! Anybody who may create a Deployment or a Lease in some namespace could look like one. So a Deployment counts only if its
//! service account may create NodeClaims, and a Lease only where Karpenter's own is: in a namespace of administrators.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use tracing::debug;

use crate::observe::chain;

const LEASE: &str = "karpenter-leader-election";
/// Where Karpenter is installed, as its guide says or said.
const LEASE_NAMESPACES: [&str; 2] = ["kube-system", "karpenter"];

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
    for deployment in &found {
        let is_running = deployment.spec.replicas.unwrap_or(1) > 0;
        if !is_running || !may_provision(client, deployment).await {
            continue;
        }
        let namespace = deployment.namespace().unwrap_or_default();
        let name = deployment.name_any();
        return Ok(Some(format!(
            "Deployment {namespace}/{name} runs Karpenter. Stop it first (kubectl -n {namespace} scale deployment {name} --replicas=0), or run beside it with --mode companion"
        )));
    }
    let leases: Api<Lease> = Api::all(client.clone());
    let found = leases
        .list(&ListParams::default().fields(&format!("metadata.name={LEASE}")))
        .await
        .map_err(|error| failed("leases", &error))?;
    let mut held = found.iter().filter(|lease| {
        let namespace = lease.namespace().unwrap_or_default();
        LEASE_NAMESPACES.contains(&namespace.as_str()) && is_held(lease, Timestamp::now())
    });
    Ok(held.next().map(|lease| {
        let spec = lease.spec.clone().unwrap_or_default();
        format!(
            "Karpenter holds the lease {}/{LEASE} (holder {:?}). Stop it first and start again when the lease has run out, or run beside it with --mode companion",
            lease.namespace().unwrap_or_default(),
            spec.holder_identity.unwrap_or_default(),
        )
    }))
}

/// Whether the pods of a Deployment may create NodeClaims. Where that cannot be found out, they may.
async fn may_provision(client: &Client, deployment: &Deployment) -> bool {
    let namespace = deployment.namespace().unwrap_or_default();
    let pod = deployment.spec.template.spec.as_ref();
    let account = pod.and_then(|pod| pod.service_account_name.as_deref());
    let account = account.unwrap_or("default");
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                group: Some("karpenter.sh".to_owned()),
                resource: Some("nodeclaims".to_owned()),
                verb: Some("create".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    match reviews.create(&PostParams::default(), &review).await {
        Ok(review) => review.status.is_none_or(|status| status.allowed),
        Err(error) => {
            debug!(error = %chain(&error), "cannot find out whether a Deployment may create NodeClaims");
            true
        }
    }
}

fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    let duration = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(15)));
    !holder.is_empty() && renewed.is_some_and(|renewed| now.duration_since(renewed) <= duration)
}

//! Carries plans out: server-side apply, deletions that name the version they are about, and Warning events.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use futures::StreamExt;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
};
use serde_json::{Value, json};
use tracing::{error, info, warn};
use veneer_api::NodeOverlay;
use veneer_api::labels::veneer;
use veneer_steering::overlays::{Action, Existing};
use veneer_steering::preferences::OUTRANKS_COMMITMENTS;
use veneer_steering::steer::Decided;

use crate::act::{CONCURRENCY, FIELD_MANAGER, PoolEvent};
use crate::metrics::SteeringMetrics;
use crate::observe::chain;

/// The longest note that an event may have.
const NOTE: usize = 1000;

/// A write that did not succeed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) overlay: String,
    pub(super) error: String,
    /// The NodePool whose preference the API server refused.
    refused_for: Option<String>,
    /// Somebody else was faster; the watch brings what they wrote, and the next pass decides again.
    overtaken: bool,
}

/// Writes overlays.
pub(super) struct OverlayWriter {
    overlays: Api<DynamicObject>,
    /// The failures that were logged, by overlay.
    failing: BTreeMap<String, String>,
}

impl OverlayWriter {
    pub(super) fn new(client: &Client) -> Self {
        let kind = ApiResource::erase::<NodeOverlay>(&());
        Self {
            overlays: Api::all_with(client.clone(), &kind),
            failing: BTreeMap::new(),
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        !self.failing.is_empty()
    }

    /// Writes first what is new or changed, then takes away what goes, and gives back what failed.
    pub(super) async fn carry_out(&mut self, actions: &[Action], metrics: &SteeringMetrics) -> Vec<Failure> {
        let mut failures = Vec::new();
        for deletes in [false, true] {
            let batch = actions
                .iter()
                .filter(|action| matches!(action, Action::Delete(_)) == deletes);
            let batch: Vec<Action> = batch.cloned().collect();
            let writes = batch.into_iter().map(|action| {
                let overlays = self.overlays.clone();
                async move {
                    let result = carry_out(&overlays, &action).await;
                    (action, result)
                }
            });
            let mut writes = futures::stream::iter(writes).buffer_unordered(CONCURRENCY);
            while let Some((action, result)) = writes.next().await {
                let (overlay, operation) = (action.name(), action.operation());
                match result {
                    Ok(()) => {
                        metrics.operation(operation, action.capacity_type());
                        info!(overlay, operation, "overlay written");
                    }
                    Err(error) => {
                        metrics.operation_error(operation, error_type(&error));
                        failures.push(failure(&action, &error));
                    }
                }
            }
        }
        let failing: BTreeMap<String, String> = failures
            .iter()
            .filter(|one| !one.overtaken)
            .map(|one| (one.overlay.clone(), one.error.clone()))
            .collect();
        for (overlay, error) in failing
            .iter()
            .filter(|(name, error)| self.failing.get(*name) != Some(error))
        {
            error!(overlay, %error, "cannot write the overlay; trying again");
        }
        self.failing = failing;
        failures
    }
}

fn failure(action: &Action, error: &kube::Error) -> Failure {
    let refused = matches!(error, kube::Error::Api(status) if status.code == 422 || status.code == 400);
    let pool = match action {
        Action::Create(overlay) | Action::Update { overlay, .. } => {
            let labels = overlay.metadata.labels.as_ref();
            labels
                .and_then(|labels| labels.get(veneer::SOURCE_NODEPOOL))
                .cloned()
        }
        Action::Delete(_) => None,
    };
    Failure {
        overlay: action.name().to_owned(),
        error: match error {
            kube::Error::Api(status) => status.message.clone(),
            other => chain(other),
        },
        refused_for: pool.filter(|_| refused),
        overtaken: matches!(error, kube::Error::Api(status) if status.is_conflict()),
    }
}

fn error_type(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) => match status.code {
            409 => "conflict",
            401 | 403 => "forbidden",
            404 => "not-found",
            400 | 422 => "invalid",
            429 => "throttled",
            _ => "server",
        },
        _ => "network",
    }
}

/// The overlay as it is applied; with a version, only onto that one.
fn manifest(overlay: &NodeOverlay, version: Option<&str>) -> Value {
    let metadata = [
        ("name", json!(overlay.metadata.name)),
        ("labels", json!(overlay.metadata.labels)),
        ("ownerReferences", json!(overlay.metadata.owner_references)),
        ("resourceVersion", json!(version)),
    ];
    let metadata = metadata.into_iter().filter(|(_, value)| !value.is_null());
    let metadata: BTreeMap<&str, Value> = metadata.collect();
    json!({
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": metadata,
        "spec": overlay.spec,
    })
}

async fn carry_out(overlays: &Api<DynamicObject>, action: &Action) -> Result<(), kube::Error> {
    let apply = PatchParams::apply(FIELD_MANAGER);
    match action {
        // Without force: had somebody made one of this name meanwhile, it would be theirs.
        Action::Create(overlay) => {
            let patch = Patch::Apply(manifest(overlay, None));
            overlays.patch(action.name(), &apply, &patch).await?;
        }
        Action::Update {
            overlay,
            before,
            strip,
        } => {
            let mut version = before.resource_version.clone();
            if !strip.is_empty() {
                version = replace_spec(overlays, overlay, before, strip).await?;
            }
            let patch = Patch::Apply(manifest(overlay, Some(&version)));
            overlays.patch(action.name(), &apply.force(), &patch).await?;
        }
        Action::Delete(existing) => {
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(existing.uid.clone()),
                    resource_version: Some(existing.resource_version.clone()),
                }),
                ..DeleteParams::default()
            };
            match overlays.delete(action.name(), &params).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Takes fields away that another writer owns, which applying cannot do, in one write with the new spec: nobody
/// ever sees an overlay with half of each.
async fn replace_spec(
    overlays: &Api<DynamicObject>,
    overlay: &NodeOverlay,
    before: &Existing,
    strip: &[String],
) -> Result<String, kube::Error> {
    let mut spec = serde_json::to_value(&overlay.spec).unwrap_or_default();
    if let Some(spec) = spec.as_object_mut() {
        spec.extend(strip.iter().map(|field| (field.clone(), Value::Null)));
    }
    let patch = json!({
        "metadata": {"resourceVersion": before.resource_version},
        "spec": spec,
    });
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let written = overlays
        .patch(&before.name, &params, &Patch::Merge(patch))
        .await?;
    Ok(written.metadata.resource_version.unwrap_or_default())
}

/// Tells the owners of NodePools what is wrong with their annotations, once for each fault.
pub(super) struct Reporter {
    events: Api<Event>,
    told: BTreeSet<String>,
    taken: BTreeSet<String>,
    /// Whether a warning could not be written.
    failing: bool,
}

struct Warning {
    pool: String,
    uid: String,
    reason: &'static str,
    note: String,
}

impl Warning {
    /// The same warning has the same name, so that the API server refuses a second one, from whichever replica.
    fn name(&self) -> String {
        let mut hash = DefaultHasher::new();
        (&self.uid, self.reason, &self.note).hash(&mut hash);
        format!("{}.{:016x}", self.pool, hash.finish())
    }
}

impl Reporter {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            events: Api::namespaced(client.clone(), "default"),
            told: BTreeSet::new(),
            taken: BTreeSet::new(),
            failing: false,
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing
    }

    /// `unmatched` is what to say where commitments are believed whoever tells them.
    pub(super) async fn report(
        &mut self,
        decided: &Decided,
        failures: &[Failure],
        unmatched: Option<&str>,
        now: Timestamp,
    ) {
        let mut told = BTreeSet::new();
        self.failing = false;
        for warning in warnings(decided, failures, unmatched) {
            let name = warning.name();
            if self.told.contains(&name) {
                told.insert(name);
                continue;
            }
            warn!(node_pool = warning.pool, "{}", warning.note);
            let event = PoolEvent {
                pool: &warning.pool,
                uid: &warning.uid,
                name: name.clone(),
                type_: "Warning",
                reason: warning.reason,
                action: "ReadPreferences",
                note: warning.note,
            };
            match self.events.create(&PostParams::default(), &event.at(now)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => {
                    warn!(node_pool = warning.pool, error = %chain(&error), "cannot write an event; trying again");
                    self.failing = true;
                    continue;
                }
            }
            told.insert(name);
        }
        self.told = told;
        let taken: BTreeSet<String> = decided.taken.iter().cloned().collect();
        for overlay in taken.difference(&self.taken) {
            warn!(
                overlay,
                "an overlay of this name is not Veneer's; it is left alone, and ours is missing"
            );
        }
        self.taken = taken;
    }
}

fn warnings(decided: &Decided, failures: &[Failure], unmatched: Option<&str>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for pool in &decided.pools {
        let mut warn = |reason: &'static str, note: String| {
            warnings.push(Warning {
                pool: pool.name.clone(),
                uid: pool.uid.clone(),
                reason,
                note: note.chars().take(NOTE).collect(),
            });
        };
        if let Some(note) = unmatched {
            warn("PrometheusMatcherMissing", note.to_owned());
        }
        for fault in &pool.read.faults {
            warn("InvalidPreference", fault.to_string());
        }
        for preference in pool.read.outranking() {
            let number = preference.number;
            warn(
                "PreferenceOutranksCommitments",
                format!(
                    "veneer.io/preference.{number}: weight {number} can outrank overlays for capacity that is paid for (one of the same weight moves up to the next free weight); expected a number below {OUTRANKS_COMMITMENTS}"
                ),
            );
        }
        for failure in failures
            .iter()
            .filter(|one| one.refused_for.as_ref() == Some(&pool.name))
        {
            warn(
                "PreferenceRejected",
                format!("NodeOverlay {}: {}", failure.overlay, failure.error),
            );
        }
    }
    warnings
}

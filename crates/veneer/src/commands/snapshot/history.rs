//! A scenario from what a cluster is now and what Prometheus remembers of its load.
//!
//! What runs comes from the cluster: NodePools with their preferences, overlays of others, Overprovisioners, DaemonSets, and a pod
//! of every Deployment and StatefulSet as its template. How many there were and when comes from kube-state-metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};
use veneer_controllers::{PrometheusSettings, Series, history};
use veneer_world::Span;

use super::fields;
use crate::input::live::{self, Page};

/// Prometheus gives at most this many values of a series.
const MOST_VALUES: i64 = 11_000;
/// How long a query may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What kube-state-metrics says: the kind of owner, its label, and the query.
const REPLICAS: [(&str, &str, &str); 2] = [
    ("ReplicaSet", "deployment", "kube_deployment_spec_replicas"),
    ("StatefulSet", "statefulset", "kube_statefulset_replicas"),
];

/// A namespace and a name.
type Key = (String, String);

/// What the scenario is made of.
#[derive(Default)]
struct Found {
    objects: Vec<Value>,
    /// The template of each workload.
    templates: BTreeMap<Key, Value>,
    /// Pods that no Deployment or StatefulSet stands behind.
    left_out: BTreeSet<String>,
    region: Option<String>,
}

/// Where and how far back to look.
pub(super) struct Asked<'a> {
    pub(super) url: &'a str,
    pub(super) span: Span,
    pub(super) step: Span,
    pub(super) context: Option<&'a str>,
    pub(super) kubeconfig: Option<&'a std::path::Path>,
}

/// Writes the scenario; says how many workloads it has, and what is missing in it.
pub(super) fn write(asked: &Asked<'_>, out: &mut impl Write) -> Result<(usize, Vec<String>)> {
    let (span, step) = (asked.span.0.as_secs(), asked.step.0.as_secs());
    if step < 1 || span < step {
        bail!(
            "--history {} with --step {}: expected a step of at least 1s that is not longer than the history",
            asked.span,
            asked.step
        );
    }
    if span / step > MOST_VALUES {
        bail!(
            "--history {} with --step {} is {} values of each series; Prometheus gives at most {MOST_VALUES}, so take a longer --step",
            asked.span,
            asked.step,
            span / step
        );
    }
    let to = Timestamp::from_second(Timestamp::now().as_second())?;
    let from = to.checked_sub(asked.span.0)?;
    let mut found = Found::default();
    live::stream(asked.context, asked.kubeconfig, &mut |page| {
        if let Page::Items(resource, items) = page {
            for object in items {
                let value = serde_json::to_value(&object)
                    .with_context(|| format!("cannot read a {}", resource.kind))?;
                take(&mut found, &resource.kind, &resource.api_version, value);
            }
        }
        Ok(())
    })?;
    let mut traces = BTreeMap::new();
    for (_, label, query) in REPLICAS {
        let query = format!("max by (namespace, {label}) ({query})");
        for series in ask(asked, &query, (from, to))? {
            let of = |name: &str| series.labels.get(name).cloned().unwrap_or_default();
            traces.insert((of("namespace"), of(label)), trace(&series, from));
        }
    }
    if traces.is_empty() {
        bail!(
            "Prometheus at {} has no {} or {} between {from} and {to}; expected those of kube-state-metrics, so look whether it is scraped, or take another --history",
            asked.url,
            REPLICAS[0].2,
            REPLICAS[1].2
        );
    }
    let mut missing: Vec<String> = found.left_out.iter().cloned().collect();
    let mut workloads = Vec::new();
    for ((namespace, name), trace) in traces {
        match found.templates.remove(&(namespace.clone(), name.clone())) {
            Some(template) => workloads
                .push(json!({"name": name, "namespace": namespace, "template": template,
                "replicas": {"trace": trace}})),
            None => missing.push(format!("{namespace}/{name} (no pod of it is there now)")),
        }
    }
    missing.extend(
        found
            .templates
            .keys()
            .map(|(namespace, name)| format!("{namespace}/{name} (Prometheus does not know it)")),
    );
    let count = workloads.len();
    let mut scenario = json!({"name": "history", "start": from.to_string(), "duration": asked.span.to_string(),
        "loadInterval": asked.step.to_string(), "objects": found.objects, "workloads": workloads});
    if let Some(region) = found.region {
        scenario["region"] = json!(region);
    }
    writeln!(
        out,
        "# What ran from {from} to {to}; play it with veneer simulate --scenario FILE. Commitments are for you to add."
    )?;
    out.write_all(serde_saphyr::to_string(&scenario)?.as_bytes())?;
    Ok((count, missing))
}

fn ask(asked: &Asked<'_>, query: &str, times: (Timestamp, Timestamp)) -> Result<Vec<Series>> {
    let settings = PrometheusSettings {
        url: asked.url.to_owned(),
        timeout: TIMEOUT,
        ..PrometheusSettings::default()
    };
    let step = Duration::try_from(asked.step.0)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the client's runtime")?;
    Ok(runtime.block_on(history(&settings, query, times, step))?)
}

/// How many pods from when on; a value that stays is told once.
fn trace(series: &Series, from: Timestamp) -> Vec<(String, u32)> {
    let mut trace: Vec<(String, u32)> = Vec::new();
    for (at, value) in &series.values {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let count = value.clamp(0.0, 1e6) as u32;
        if trace.last().is_none_or(|(_, last)| *last != count) {
            trace.push((Span(at.duration_since(from)).to_string(), count));
        }
    }
    trace
}

fn take(found: &mut Found, kind: &str, api_version: &str, value: Value) {
    match kind {
        "NodePool" | "Overprovisioner" | "NodeOverlay" => {
            let of_veneer = |field: &str| -> Map<String, Value> {
                let entries = value
                    .pointer(&format!("/metadata/{field}"))
                    .and_then(Value::as_object);
                let entries = entries.into_iter().flatten();
                entries
                    .filter(|(key, _)| key.starts_with("veneer.io/"))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect()
            };
            // What steering wrote it will write again.
            if kind == "NodeOverlay" && !of_veneer("labels").is_empty() {
                return;
            }
            found.objects.push(json!({"apiVersion": api_version, "kind": kind,
                "metadata": {"name": value["metadata"]["name"], "annotations": of_veneer("annotations")},
                "spec": value["spec"]}));
        }
        "DaemonSet" => {
            let kept = fields::keep(kind, value);
            found.objects.push(json!({"apiVersion": api_version, "kind": kind,
                "metadata": {"name": kept["metadata"]["name"], "namespace": kept["metadata"]["namespace"]},
                "spec": kept["spec"]}));
        }
        "Node" => {
            let region = value.pointer("/metadata/labels/topology.kubernetes.io~1region");
            if let Some(region) = region.and_then(Value::as_str) {
                found.region.get_or_insert_with(|| region.to_owned());
            }
        }
        "Pod" => take_pod(found, value),
        _ => {}
    }
}

fn take_pod(found: &mut Found, value: Value) {
    let mut pod = fields::keep("Pod", value);
    let text = |path: &str| {
        pod.pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let hash = text("/metadata/labels/pod-template-hash");
    let owner = pod.pointer("/metadata/ownerReferences/0");
    let owner = |field: &str| {
        let of_owner = owner.and_then(|owner| owner.get(field)).and_then(Value::as_str);
        of_owner.unwrap_or_default().to_owned()
    };
    let workload = match owner("kind").as_str() {
        "ReplicaSet" => {
            let set = owner("name");
            let deployment = set.strip_suffix(&format!("-{hash}")).map(str::to_owned);
            deployment.unwrap_or(set)
        }
        "StatefulSet" => owner("name"),
        "DaemonSet" | "Node" => return,
        "" => {
            found
                .left_out
                .insert(format!("{namespace}/{name} (a pod on its own)"));
            return;
        }
        kind => {
            found
                .left_out
                .insert(format!("{namespace}/{} ({kind})", owner("name")));
            return;
        }
    };
    let mut labels = pod["metadata"]["labels"].take();
    if let Some(labels) = labels.as_object_mut() {
        labels.remove("pod-template-hash");
    }
    let mut spec = pod["spec"].take();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("nodeName");
        // The world has no volumes.
        spec.remove("volumes");
    }
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    found.templates.entry((namespace, workload)).or_insert(template);
}

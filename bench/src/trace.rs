//! When each pod and NodeClaim of a run was seen to change, to find out what a run waited for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use veneer_engine::provision::refusal;

/// When objects were seen to change, in order.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) began: Option<Instant>,
    lines: Vec<(f64, String)>,
    /// What was noted last of each state of each object.
    noted: BTreeMap<(String, &'static str), String>,
}

impl Trace {
    /// Notes what is new about a pod: that it is there, refused, with which words, nominated, bound, running.
    pub(crate) fn pod(&mut self, pod: &Pod) {
        let name = pod.name_any();
        self.note("pod", &name, "created", "");
        let status = pod.status.as_ref();
        if let Some(refused) = refusal(status) {
            self.note(
                "pod",
                &name,
                "refused",
                refused.message.as_deref().unwrap_or_default(),
            );
        }
        let nominated = status.and_then(|status| status.nominated_node_name.as_deref());
        self.note("pod", &name, "nominated", nominated.unwrap_or_default());
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            self.note("pod", &name, "bound", node);
        }
        if status.and_then(|status| status.phase.as_deref()) == Some("Running") {
            self.note("pod", &name, "running", "");
        }
    }

    /// Notes what is new about a node: that it is there, ready, and its taints.
    pub(crate) fn node(&mut self, node: &Node) {
        let name = node.name_any();
        self.note("node", &name, "created", "");
        let conditions = node
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref());
        let ready = conditions
            .unwrap_or_default()
            .iter()
            .find(|one| one.type_ == "Ready");
        if let Some(ready) = ready {
            self.note("node", &name, "ready", &ready.status);
        }
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let taints: Vec<&str> = taints.map(|taint| taint.key.as_str()).collect();
        self.note("node", &name, "taints", &taints.join(" "));
    }

    /// Notes a state of an object, if it differs from the one that was noted last.
    pub(crate) fn note(&mut self, kind: &str, name: &str, state: &'static str, detail: &str) {
        let seconds = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        let before = self.noted.insert((name.to_owned(), state), detail.to_owned());
        let is_news = before
            .as_deref()
            .map_or(state != "nominated" || !detail.is_empty(), |before| {
                before != detail
            });
        if is_news {
            let detail = detail.replace([',', '\n'], ";");
            self.lines
                .push((seconds, format!("{kind},{name},{state},{detail}")));
        }
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut out = BufWriter::new(file);
        writeln!(out, "seconds,kind,name,state,detail")?;
        for (seconds, line) in &self.lines {
            writeln!(out, "{seconds:.3},{line}")?;
        }
        Ok(out.flush()?)
    }
}

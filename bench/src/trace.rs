//! When each pod and NodeClaim of a run was seen to change, to find out what a run waited for.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// The first time that an object was seen in a state, in order.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) began: Option<Instant>,
    lines: Vec<(f64, String)>,
    noted: BTreeSet<String>,
}

impl Trace {
    /// Notes what is new about a pod: that it is there, refused, with which words, nominated, bound, running.
    pub(crate) fn pod(&mut self, pod: &Pod) {
        let name = pod.name_any();
        self.note("pod", &name, "created", "");
        let status = pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let refused = conditions
            .unwrap_or_default()
            .iter()
            .find(|one| one.type_ == "PodScheduled" && one.status == "False");
        if let Some(refused) = refused {
            self.note("pod", &name, "refused", refused.message.as_deref().unwrap_or_default());
        }
        if let Some(node) = status.and_then(|status| status.nominated_node_name.as_deref()) {
            self.note("pod", &name, "nominated", node);
        }
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            self.note("pod", &name, "bound", node);
        }
        if status.and_then(|status| status.phase.as_deref()) == Some("Running") {
            self.note("pod", &name, "running", "");
        }
    }

    /// Notes a state of an object, if it was not seen in it before.
    pub(crate) fn note(&mut self, kind: &str, name: &str, state: &str, detail: &str) {
        let line = format!("{kind},{name},{state},{}", detail.replace([',', '\n'], ";"));
        let seconds = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        if self.noted.insert(line.clone()) {
            self.lines.push((seconds, line));
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

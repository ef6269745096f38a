//! What NodePools and claims are explained with: objects, types, and prices after overlays.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use veneer_api::EC2NodeClass;
use veneer_engine::explain::Planner;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::{Evaluation, nearest};
use veneer_engine::packing;

use super::Format;
use crate::commands::diagnose::{is_bad_input, tell};
use crate::finding::Finding;
use crate::input::{CatalogueArgs, ManifestArgs};
use crate::output::{self, Timing};
use crate::scheduling::PolicyArgs;

/// What every such explanation starts from, and how it is shown.
#[derive(Debug, Args)]
pub(super) struct SceneArgs {
    #[command(flatten)]
    pub(super) manifests: ManifestArgs,

    #[command(flatten)]
    catalogue: CatalogueArgs,

    #[command(flatten)]
    pub(super) policies: PolicyArgs,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(super) output: Format,

    /// Adds how long it took and how much memory
    #[arg(long)]
    pub(super) timing: bool,
}

/// An explanation as JSON and YAML have it.
#[derive(Serialize)]
pub(super) struct Report<'a, E> {
    #[serde(flatten)]
    pub(super) explanation: &'a E,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timing: Option<Timing>,
}

pub(super) struct Scene {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) objects: packing::Objects,
    evaluation: Arc<Evaluation>,
    node_classes: Vec<EC2NodeClass>,
    findings: Vec<Finding>,
    notes: Vec<String>,
    load_ms: f64,
    overlay_ms: f64,
}

impl Scene {
    pub(super) fn load(args: &SceneArgs) -> Result<Self> {
        let started = Instant::now();
        let (_, objects) = args.manifests.load_cluster()?;
        let loaded = args.catalogue.load(&objects)?;
        let catalogue = Arc::new(loaded.catalogue);
        let load_ms = output::milliseconds(started);
        let classes = objects.ec2_node_classes.iter();
        let node_classes = classes.map(|class| class.object.clone()).collect();
        let prepared = args.policies.prepare(&catalogue, objects);
        let mut notes = prepared.notes;
        notes.extend(loaded.notes);
        Ok(Self {
            catalogue,
            objects: prepared.objects,
            evaluation: prepared.evaluation,
            node_classes,
            findings: prepared.findings,
            notes,
            load_ms,
            overlay_ms: prepared.overlay_ms,
        })
    }

    pub(super) fn planner(&self, policies: &PolicyArgs) -> Planner<'_> {
        Planner {
            catalogue: &self.catalogue,
            evaluation: Arc::clone(&self.evaluation),
            node_classes: &self.node_classes,
            options: policies.options(&|| false),
        }
    }

    pub(super) fn timing(&self, solved: Instant) -> Timing {
        Timing::new(self.load_ms, self.overlay_ms).with_solve(output::milliseconds(solved))
    }

    /// Says on standard error what was found wrong, then the notes for people, and gives the exit code.
    pub(super) fn finish(&self, for_people: bool, notes: &[String]) -> Result<ExitCode> {
        let mut err = io::stderr().lock();
        tell(&mut err, self.findings.iter())?;
        if for_people {
            for note in notes.iter().chain(&self.notes) {
                writeln!(err, "note: {note}")?;
            }
        }
        Ok(if self.findings.iter().any(is_bad_input) {
            ExitCode::from(2)
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// The end of an error about an object that is not there: what may have been meant, or what there is.
pub(super) fn hint<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    match nearest(wanted, names.iter().copied()) {
        Some(near) => format!("; did you mean {near}?"),
        None if names.is_empty() => "; there is none".to_owned(),
        None if names.len() == 1 => format!("; there is only {}", names.concat()),
        None => {
            let shown: Vec<&str> = names.iter().take(5).copied().collect();
            let more = if names.len() > 5 { " …" } else { "" };
            format!("; there are {}{more}", shown.join(", "))
        }
    }
}

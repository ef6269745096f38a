//! What NodePools and claims are explained with: objects, types, and prices after overlays.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use veneer_api::EC2NodeClass;
use veneer_engine::explain::Planner;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::{Evaluation, nearest};
use veneer_engine::packing;

use crate::commands::diagnose::{is_bad_input, tell};
use crate::finding::Finding;
use crate::input::{CatalogueArgs, ManifestArgs};
use crate::output::{self, Timing};
use crate::scheduling::PolicyArgs;

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
    pub(super) fn load(
        manifests: &ManifestArgs,
        catalogue: &CatalogueArgs,
        policies: &PolicyArgs,
    ) -> Result<Self> {
        let started = Instant::now();
        let (_, objects) = manifests.load_cluster()?;
        let loaded = catalogue.load(&objects)?;
        let catalogue = Arc::new(loaded.catalogue);
        let load_ms = output::milliseconds(started);
        let classes = objects.ec2_node_classes.iter();
        let node_classes = classes.map(|class| class.object.clone()).collect();
        let prepared = policies.prepare(&catalogue, objects);
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

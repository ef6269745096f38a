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
use crate::finding::{Finding, Rule};
use crate::input::{CatalogueArgs, ManifestArgs, workloads};
use crate::output::{self, Timing};
use crate::preview::{Preview, TieBreak};
use crate::scheduling::schedulable;

pub(super) struct Scene {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) evaluation: Arc<Evaluation>,
    pub(super) objects: packing::Objects,
    pub(super) node_classes: Vec<EC2NodeClass>,
    pub(super) notes: Vec<String>,
    findings: Vec<Finding>,
    load_ms: f64,
    overlay_ms: f64,
}

impl Scene {
    pub(super) fn load(
        manifests: &ManifestArgs,
        catalogue: &CatalogueArgs,
        tie_break: TieBreak,
    ) -> Result<Self> {
        let started = Instant::now();
        let (_, mut objects) = manifests.load_cluster()?;
        let loaded = catalogue.load(&objects)?;
        let catalogue = Arc::new(loaded.catalogue);
        let load_ms = output::milliseconds(started);
        let started = Instant::now();
        let cluster = objects.cluster.take().unwrap_or_default();
        let (made, note) = workloads::pods(&cluster);
        let preview = Preview::new(&objects, Arc::clone(&catalogue), tie_break);
        // Advice is the business of `diagnose`; what leaves an overlay out changes the result here.
        let left_out = |finding: &Finding| matches!(finding.rule, Rule::InvalidField | Rule::Conflict);
        let of_overlays = (0..preview.overlays.len())
            .flat_map(|at| preview.findings(at))
            .filter(left_out);
        let findings = objects.findings.iter().cloned().chain(of_overlays).collect();
        let evaluation = Arc::new(preview.evaluation);
        let overlay_ms = output::milliseconds(started);
        let mut notes: Vec<String> = output::ignored(&objects).into_iter().collect();
        notes.extend(note);
        notes.extend(loaded.notes);
        let node_classes = objects.ec2_node_classes.iter();
        let node_classes = node_classes.map(|class| class.object.clone()).collect();
        Ok(Self {
            catalogue,
            evaluation,
            node_classes,
            objects: schedulable(objects, *cluster, made),
            notes,
            findings,
            load_ms,
            overlay_ms,
        })
    }

    pub(super) fn planner(&self) -> Planner<'_> {
        Planner {
            catalogue: &self.catalogue,
            evaluation: Arc::clone(&self.evaluation),
            node_classes: &self.node_classes,
            options: packing::Options::default(),
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

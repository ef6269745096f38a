//! What commands work on: objects from files or a live cluster, and the catalogue of instance types.

mod catalogue;
pub(crate) mod cluster;
pub(crate) mod documents;
pub(crate) mod live;
pub(crate) mod objects;
pub(crate) mod snapshot;
mod tree;
pub(crate) mod what_if;
pub(crate) mod workloads;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use veneer_api::yaml::AliasBudget;

pub(crate) use catalogue::CatalogueArgs;
use objects::Objects;
use what_if::WhatIfArgs;

/// Where objects come from.
#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    /// Reads objects from a file or folder of YAML or JSON instead of the live cluster; `-` is standard input
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    files: Vec<PathBuf>,

    /// Puts the objects of FILE over those of the cluster or of -f, as if they had been applied
    #[arg(long, value_name = "FILE")]
    propose: Vec<PathBuf>,

    /// Context of the kubeconfig, for the live cluster
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    context: Option<String>,

    /// Kubeconfig of the live cluster
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    kubeconfig: Option<PathBuf>,
}

impl ManifestArgs {
    /// Reads the objects, from the live cluster unless files were given.
    pub(crate) fn load(&self) -> Result<Objects> {
        let mut objects = self.base(Objects::default)?;
        if let Some(proposed) = self.proposed(Objects::default)? {
            objects.layer(proposed);
            objects.settle();
        }
        objects.add_preferences();
        Ok(objects)
    }

    /// Reads the objects with pods, nodes and what else scheduling needs: without the proposed ones, if there are
    /// any, and with them.
    pub(crate) fn load_cluster(&self) -> Result<(Option<Objects>, Objects)> {
        self.load_what_if(None)
    }

    /// The same, and what is tried without a manifest.
    pub(crate) fn load_what_if(&self, what_if: Option<&WhatIfArgs>) -> Result<(Option<Objects>, Objects)> {
        let empty = || Objects {
            cluster: Some(Box::default()),
            ..Objects::default()
        };
        let mut objects = self.base(empty)?;
        let proposed = self.proposed(empty)?;
        let what_if = what_if.filter(|what_if| !what_if.is_empty());
        if proposed.is_none() && what_if.is_none() {
            objects.add_preferences();
            return Ok((None, objects));
        }
        let mut before = objects.clone();
        before.add_preferences();
        if let Some(proposed) = proposed {
            objects.layer(proposed);
        }
        if let Some(what_if) = what_if {
            what_if.apply(&mut objects)?;
        }
        objects.settle();
        objects.add_preferences();
        Ok((Some(before), objects))
    }

    fn base(&self, empty: impl Fn() -> Objects) -> Result<Objects> {
        let mut objects = if self.files.is_empty() {
            live::load(self.context.as_deref(), self.kubeconfig.as_deref(), empty())?
        } else {
            read_files(&self.files, empty())?
        };
        objects.settle();
        Ok(objects)
    }

    fn proposed(&self, empty: impl Fn() -> Objects) -> Result<Option<Objects>> {
        if self.propose.is_empty() {
            return Ok(None);
        }
        let mut proposed = read_files(&self.propose, empty())?;
        proposed.settle();
        if proposed.is_empty() && proposed.findings.is_empty() {
            let more = if proposed.cluster.is_some() {
                ", pod or node"
            } else {
                ""
            };
            bail!(
                "--propose: found no NodePool, NodeOverlay or Overprovisioner{more} in {}",
                shown(&self.propose)
            );
        }
        Ok(Some(proposed))
    }

    /// Whether the objects come from a live cluster.
    pub(crate) fn is_live(&self) -> bool {
        self.files.is_empty()
    }

    /// Where the objects come from, in words.
    pub(crate) fn described(&self) -> String {
        if self.files.is_empty() {
            "the cluster".to_owned()
        } else {
            shown(&self.files)
        }
    }
}

fn shown(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

/// Reads the objects of files and folders, each also as it was written.
pub(crate) fn from_files_with_raw(paths: &[PathBuf]) -> Result<Objects> {
    let empty = Objects {
        raw: Some(Vec::new()),
        ..Objects::default()
    };
    read_files(paths, empty)
}

fn read_files(paths: &[PathBuf], mut objects: Objects) -> Result<Objects> {
    let texts = texts(paths)?;
    let budget = budget(&texts);
    for (name, text) in texts {
        documents::read(&name, &text, budget, &mut objects);
    }
    Ok(objects)
}

/// What aliases may come to in all of these files.
pub(crate) fn budget(texts: &[(String, String)]) -> AliasBudget {
    AliasBudget::for_input(texts.iter().map(|(_, text)| text.len()).sum())
}

/// The name and text of every file; folders are walked in the order of names.
pub(crate) fn texts(paths: &[PathBuf]) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("cannot read standard input")?;
            texts.push(("<stdin>".to_owned(), text));
            continue;
        }
        let mut files = Vec::new();
        walk(path, true, &mut files)?;
        if files.is_empty() {
            bail!("{}: the folder has no .yaml, .yml or .json file", path.display());
        }
        for file in files {
            let name = file.display().to_string();
            let bytes = fs::read(&file).with_context(|| format!("cannot read {name}"))?;
            let text = String::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8 text"))?;
            texts.push((name, text));
        }
    }
    Ok(texts)
}

fn walk(path: &Path, named: bool, files: &mut Vec<PathBuf>) -> Result<()> {
    let shown = path.display();
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    if !metadata.is_dir() {
        let extension = path.extension().and_then(|extension| extension.to_str());
        // A file that was named is read whatever it is called; in a folder, other files are none of ours.
        if named || matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    let entries = fs::read_dir(path).with_context(|| format!("cannot read the folder {shown}"))?;
    let mut entries: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .with_context(|| format!("cannot read the folder {shown}"))?;
    entries.sort();
    let hidden = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
    };
    for entry in entries.into_iter().filter(|entry| !hidden(entry)) {
        walk(&entry, false, files)?;
    }
    Ok(())
}

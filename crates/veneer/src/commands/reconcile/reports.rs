//! Reports as arguments name them: files, folders, gzip, standard input.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use flate2::bufread::MultiGzDecoder;
use veneer_billing::{Interval, Sharing, SharingMode};
use veneer_reports::{HourStore, Reconciliation, Report};

use crate::commands::simulate::progress::Progress;

/// Which reports, and how their accounts share commitments.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Cost and Usage Reports or FOCUS as CSV, also gzip; folders with such files; `-` is standard input
    #[arg(long = "cur", value_name = "PATH", required = true, num_args = 1..)]
    paths: Vec<PathBuf>,

    /// How accounts share commitments, which reports do not say
    #[arg(long, value_enum, default_value = "organization")]
    sharing: Mode,

    /// With --sharing prioritized or restricted: the accounts of a group; may be given several times
    #[arg(long = "group", value_name = "NAME=ACCOUNT,…")]
    groups: Vec<String>,

    /// An account for which sharing is switched off; may be given several times
    #[arg(long = "not-shared", value_name = "ACCOUNT")]
    excluded: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Every account has its own commitments only
    Off,
    /// With the whole organization
    Organization,
    /// First with the accounts of the owner's group, then with the rest
    Prioritized,
    /// With the accounts of the owner's group only
    Restricted,
}

impl ReportArgs {
    /// Reads everything and replays it.
    pub(crate) fn reconcile(&self) -> Result<Report> {
        let sharing = self.sharing()?;
        let files = files(&self.paths)?;
        let progress = Progress::start("reading reports");
        let mut reconciliation = Reconciliation::new(FolderStore::new()?, sharing);
        let total: u64 = files
            .iter()
            .filter_map(|path| Some(fs::metadata(path).ok()?.len()))
            .sum();
        let mut before = 0;
        for path in &files {
            let name = path.display().to_string();
            let input: Box<dyn Read> = match name.as_str() {
                "-" => Box::new(io::stdin().lock()),
                _ => Box::new(File::open(path).with_context(|| format!("cannot read {name}"))?),
            };
            let counted = Counted {
                input,
                read: before,
                total,
                progress: &progress,
            };
            let mut input = BufReader::with_capacity(1 << 18, counted);
            let start = input.fill_buf().with_context(|| format!("cannot read {name}"))?;
            if start.starts_with(b"PAR1") {
                bail!("{name} is Parquet, which is not read; export the report as CSV, or convert the file");
            }
            if start.is_empty() {
                bail!("{name} is empty; expected a Cost and Usage Report or FOCUS as CSV, with a header");
            }
            if start.starts_with(&[0x1f, 0x8b]) {
                let unpacked = BufReader::with_capacity(1 << 18, MultiGzDecoder::new(input));
                reconciliation.read(&name, unpacked)?;
            } else {
                reconciliation.read(&name, input)?;
            }
            before += fs::metadata(path).map_or(0, |metadata| metadata.len());
        }
        if reconciliation.lines() == 0 {
            bail!("there are no lines in the reports; expected at least one below the header");
        }
        progress.stage("replaying hours");
        let report = reconciliation
            .finish(|done, all| progress.detail(format!("{done} of {all}")))
            .context("cannot read lines again that were kept in the folder for temporary files")?;
        drop(progress);
        Ok(report)
    }

    fn sharing(&self) -> Result<Sharing> {
        let mode = match self.sharing {
            Mode::Off => SharingMode::Off,
            Mode::Organization => SharingMode::Organization,
            Mode::Prioritized => SharingMode::PrioritizedGroup,
            Mode::Restricted => SharingMode::RestrictedGroup,
        };
        let mut groups = BTreeMap::new();
        for group in &self.groups {
            let Some((name, accounts)) = group.split_once('=') else {
                bail!("--group: found {group:?}, expected NAME=ACCOUNT,ACCOUNT; name the group");
            };
            for account in accounts.split(',').map(str::trim) {
                groups.insert(account.to_owned(), name.to_owned());
            }
        }
        if groups.is_empty() && matches!(self.sharing, Mode::Prioritized | Mode::Restricted) {
            bail!("--sharing prioritized and restricted need --group NAME=ACCOUNT,ACCOUNT");
        }
        Ok(Sharing {
            mode,
            groups,
            excluded: self.excluded.iter().cloned().collect(),
        })
    }
}

/// Files as they are; of folders all reports in them, by name.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = files.len();
            walk(path, &mut files)?;
            if files.len() == before {
                bail!(
                    "there is no report in {}: expected files that end in .csv or .csv.gz",
                    path.display()
                );
            }
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    let entries = fs::read_dir(folder).with_context(cannot)?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()
        .with_context(cannot)?;
    paths.sort();
    for path in paths {
        let name = path.to_string_lossy();
        if path.is_dir() {
            walk(&path, files)?;
        } else if name.ends_with(".csv") || name.ends_with(".csv.gz") {
            files.push(path.clone());
        }
    }
    Ok(())
}

/// Tells how much was read.
struct Counted<'a> {
    input: Box<dyn Read>,
    read: u64,
    total: u64,
    progress: &'a Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        let before = self.read >> 20;
        self.read += count as u64;
        if self.read >> 20 != before {
            let (done, all) = (self.read >> 20, self.total >> 20);
            self.progress.detail(match all {
                0 => format!("{done} MiB"),
                all => format!("{done} of {all} MiB"),
            });
        }
        Ok(count)
    }
}

/// Lines by their hour, in a folder that goes when this does.
struct FolderStore {
    folder: tempfile::TempDir,
    waiting: BTreeMap<Interval, String>,
    size: usize,
    /// What has a file.
    written: BTreeMap<Interval, ()>,
}

/// So much waits in memory at most.
const WAITING: usize = 32 << 20;

impl FolderStore {
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("veneer-reconcile-").tempdir();
        Ok(Self {
            folder: folder.context("cannot make a folder for temporary files (TMPDIR says where)")?,
            waiting: BTreeMap::new(),
            size: 0,
            written: BTreeMap::new(),
        })
    }

    fn path(&self, slot: Interval) -> PathBuf {
        self.folder.path().join(format!("{}-{}", slot.start, slot.end))
    }
}

impl HourStore for FolderStore {
    fn append(&mut self, slot: Interval, record: &str) -> io::Result<()> {
        self.waiting.entry(slot).or_default().push_str(record);
        self.size += record.len();
        if self.size > WAITING {
            for (slot, records) in std::mem::take(&mut self.waiting) {
                let mut file = File::options().create(true).append(true).open(self.path(slot))?;
                file.write_all(records.as_bytes())?;
                self.written.insert(slot, ());
            }
            self.size = 0;
        }
        Ok(())
    }

    fn slots(&self) -> Vec<Interval> {
        let mut slots: Vec<Interval> = self.waiting.keys().chain(self.written.keys()).copied().collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    fn take(&mut self, slot: Interval) -> io::Result<String> {
        let waiting = self.waiting.remove(&slot).unwrap_or_default();
        if self.written.remove(&slot).is_none() {
            return Ok(waiting);
        }
        let path = self.path(slot);
        let mut records = fs::read_to_string(&path)?;
        records.push_str(&waiting);
        fs::remove_file(&path)?;
        Ok(records)
    }
}

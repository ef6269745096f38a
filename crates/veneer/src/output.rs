//! How results are written: to a locked standard output, so that a closed pipe neither panics nor changes the exit code.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;

pub(crate) use crate::columns::{Align, Columns, counted, paragraph, width};
use crate::input::objects::Objects;

/// Standard output, buffered. Flush it before returning, so that a failure is noticed.
pub(crate) fn stdout() -> BufWriter<UntilClosed<StdoutLock<'static>>> {
    BufWriter::new(UntilClosed {
        out: io::stdout().lock(),
        is_closed: false,
    })
}

/// Drops what nobody reads any more: with `veneer lint … | head -1` the answer, and so the exit code, is the same as without `head`.
#[derive(Debug)]
pub(crate) struct UntilClosed<W> {
    out: W,
    is_closed: bool,
}

impl<W: Write> UntilClosed<W> {
    fn unless_closed(
        &mut self,
        what: impl FnOnce(&mut W) -> io::Result<usize>,
        whole: usize,
    ) -> io::Result<usize> {
        if self.is_closed {
            return Ok(whole);
        }
        match what(&mut self.out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(whole)
            }
            done => done,
        }
    }
}

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_closed(|out| out.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_closed(|out| out.flush().map(|()| 0), 0).map(drop)
    }
}

/// What is complete already.
pub(crate) fn text(bytes: &[u8]) -> Result<()> {
    let mut out = stdout();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Indented JSON.
pub(crate) fn json(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// YAML.
pub(crate) fn yaml(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let text = serde_saphyr::to_string(value).context("cannot write YAML")?;
    writeln!(out, "{}", text.trim_end())?;
    Ok(())
}

/// A line of comma-separated values (RFC 4180).
pub(crate) fn csv_line(out: &mut impl Write, fields: &[&str]) -> io::Result<()> {
    let quoted = fields
        .iter()
        .map(|field| match field.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", field.replace('"', "\"\"")),
            false => (*field).to_owned(),
        });
    writeln!(out, "{}", quoted.collect::<Vec<_>>().join(","))
}

/// What was left unread because commands do not use it, in words.
pub(crate) fn ignored(objects: &Objects) -> Option<String> {
    let total: usize = objects.ignored.values().sum();
    let kinds: Vec<String> = objects
        .ignored
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    let noun = if total == 1 { "object" } else { "objects" };
    (total > 0).then(|| format!("ignored {total} {noun} of other kinds ({})", kinds.join(", ")))
}

pub(crate) fn milliseconds(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

/// What a command took.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timing {
    load_ms: f64,
    overlay_ms: f64,
    solve_ms: f64,
    /// Null where the system does not say.
    #[serde(rename = "peakRssMiB")]
    peak_rss_mib: Option<f64>,
}

impl Timing {
    /// The same with the time that scheduling took.
    pub(crate) fn with_solve(mut self, solve_ms: f64) -> Self {
        self.solve_ms = solve_ms;
        self
    }

    pub(crate) fn new(load_ms: f64, overlay_ms: f64) -> Self {
        Self {
            load_ms,
            overlay_ms,
            solve_ms: 0.0,
            peak_rss_mib: peak_rss_mib(),
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "loading took {} ms, overlays {} ms",
            self.load_ms, self.overlay_ms
        )?;
        if self.solve_ms > 0.0 {
            write!(f, ", scheduling {} ms", self.solve_ms)?;
        }
        match self.peak_rss_mib {
            Some(peak) => write!(f, ", peak memory {peak} MiB"),
            None => Ok(()),
        }
    }
}

/// Linux tells the peak of the resident memory; other systems only through calls that need unsafe code.
fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some((kib / 1024.0 * 10.0).round() / 10.0)
}

/// Writes a file that takes the place of an older one only when it is complete: a failure leaves the older one as it was.
pub(crate) fn replace_file<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T>,
) -> Result<T> {
    let cannot = || format!("cannot write {}", path.display());
    // A device or a pipe has no older content, and nothing can take its place.
    let in_place = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = if in_place {
        path.to_owned()
    } else {
        PathBuf::from(name)
    };
    let written = (|| {
        let mut out = BufWriter::new(File::create(&partial).with_context(cannot)?);
        let result = write(&mut out)?;
        out.flush().with_context(cannot)?;
        if !in_place {
            out.get_ref().sync_all().with_context(cannot)?;
            fs::rename(&partial, path).with_context(cannot)?;
        }
        Ok(result)
    })();
    if written.is_err() && !in_place {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_by_a_complete_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let failed: Result<()> = replace_file(&path, |out| {
            out.write_all(b"half")?;
            anyhow::bail!("no cluster answers")
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        replace_file(&path, |out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}

//! What can go wrong with a cluster, in words that say which part, and what its log says.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::Part;

/// Why a cluster or one of its parts did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A binary is not in the cache.
    #[error("{name} is not built: {path} does not exist; run testbed/parts/build (or `testbed parts`) first", path = path.display())]
    NotBuilt {
        /// The file name of what is missing.
        name: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// No environment variable says where the cache is.
    #[error(
        "none of VENEER_CACHE, XDG_CACHE_HOME and HOME is set; set one so that the built parts can be found"
    )]
    NoCache,
    /// A part ended by itself before it was ready.
    #[error("{part} ended before it was ready ({status}); {log}")]
    Ended {
        /// The part that ended.
        part: Part,
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: LogTail,
    },
    /// A part runs but did not become ready in time.
    #[error("{part} was not ready after {within:?}: {answer}; {log}")]
    NotReady {
        /// The part that is not ready.
        part: Part,
        /// How long it was given.
        within: Duration,
        /// What its readiness endpoint said last.
        answer: String,
        /// The end of its log.
        log: LogTail,
    },
    /// The start was called off through [`Options::stop_on`](crate::Options::stop_on).
    #[error("stopped while waiting for {0}")]
    Stopped(Part),
    /// The AWS that moto plays did not do what a test asked of it.
    #[error("moto: {0}")]
    Aws(String),
    /// A part was asked for that this cluster was started without.
    #[error("{0} is not part of this cluster; name it in the Options the cluster is started with")]
    NotInCluster(Part),
    /// The API server refused a request.
    #[error("the API server refused {what}: {answer}")]
    Refused {
        /// What was asked.
        what: String,
        /// What the API server answered.
        answer: String,
    },
    /// Every port that was tried is taken.
    #[error(
        "no free ports: {tried} blocks of loopback ports between {low} and {high} were tried and each has one in use"
    )]
    NoPorts {
        /// How many blocks were tried.
        tried: usize,
        /// The lowest port that can be chosen.
        low: u16,
        /// The highest port that can be chosen.
        high: u16,
    },
    /// Certificates could not be made.
    #[error("cannot make the cluster's certificates: {0}")]
    Certificates(String),
    /// The system gave no random bytes, without which neither tokens nor ports can be chosen.
    #[error("the system gives no random bytes: {0}")]
    NoRandomness(getrandom::Error),
    /// A file or process operation failed.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        what: &'static str,
        /// The file it was attempted on.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Error::Io {
            what,
            path: path.to_owned(),
            source,
        }
    }
}

/// The end of a part's log. It is kept in the error because the log's folder goes away with the cluster.
#[derive(Debug)]
pub struct LogTail(String);

impl LogTail {
    const LINES: usize = 20;

    pub(crate) fn of(log: &str) -> Self {
        let lines = log.lines().collect::<Vec<_>>();
        let tail = lines
            .get(lines.len().saturating_sub(Self::LINES)..)
            .unwrap_or_default();
        if tail.is_empty() {
            return LogTail("its log is empty".to_owned());
        }
        let mut text = "its log ends:".to_owned();
        for line in tail {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {line}");
        }
        LogTail(text)
    }
}

impl std::fmt::Display for LogTail {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

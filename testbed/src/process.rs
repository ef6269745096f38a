//! One running part: a child process, its log, and the certainty that it ends.
//!
//! A part ends in three ways: its value is dropped; the process that started it exits; or that process is killed.
//! The last two are the kernel's work: the child asks for SIGKILL on the death of its parent (`setpriv
//! --pdeathsig`). The kernel counts the *thread* that started the child as the parent, and test threads end early,
//! so one thread that lives as long as the process starts all children.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use crate::{Error, Part};

/// What to run, resolved: nothing is inherited from our own environment but the path to programs.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) binary: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(&'static str, String)>,
}

/// A child process that is killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct Process {
    part: Part,
    child: Child,
    log: PathBuf,
    log_start: u64,
}

impl Process {
    /// Starts a part that writes its output to the end of the file `log`.
    pub(crate) fn start(part: Part, invocation: &Invocation, log: &Path) -> Result<Self, Error> {
        let open = || {
            let out = OpenOptions::new().create(true).append(true).open(log)?;
            let start = out.metadata()?.len();
            Ok((out.try_clone()?, out, start))
        };
        let (out, err, log_start) = open().map_err(|error| Error::io("open", log, error))?;
        // The shell runs after setpriv and compares its parent with us: had we died before the request for SIGKILL
        // was in place, nobody would send it. Each program replaces the one before, so the child is the part.
        let mut command = Command::new("setpriv");
        command
            .args([
                "--pdeathsig",
                "KILL",
                "sh",
                "-c",
                r#"[ "$PPID" = "$0" ] && exec "$@""#,
            ])
            .arg(std::process::id().to_string())
            .arg(&invocation.binary)
            .args(&invocation.args)
            .env_clear()
            .env(
                "PATH",
                std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
            )
            .envs(invocation.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // A Ctrl-C in a terminal reaches us alone; we end the parts in order.
            .process_group(0);
        let child = spawn(command)
            .map_err(|error| Error::io("start (through setpriv and sh)", &invocation.binary, error))?;
        Ok(Process {
            part,
            child,
            log: log.to_owned(),
            log_start,
        })
    }

    /// The status with which the part ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.child
            .try_wait()
            .map_err(|error| Error::io("wait for", Path::new(self.part.name()), error))
    }

    /// What the part wrote since it was started.
    pub(crate) fn log(&self) -> String {
        let read = || {
            let mut file = fs::File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.log_start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| format!("(cannot read {}: {error})", self.log.display()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the child has ended and is reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Request = (Command, Sender<io::Result<Child>>);

/// The thread that is the parent of every part.
static SPAWNER: LazyLock<io::Result<Sender<Request>>> = LazyLock::new(|| {
    let (sender, requests) = channel::<Request>();
    thread::Builder::new()
        .name("testbed-spawner".to_owned())
        .spawn(move || {
            for (mut command, answer) in requests {
                // The one who asked waits for the answer, so it is there to receive it.
                let _ = answer.send(command.spawn());
            }
        })?;
    Ok(sender)
});

fn spawn(command: Command) -> io::Result<Child> {
    let spawner = SPAWNER
        .as_ref()
        .map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let (answer, child) = channel();
    let gone = || io::Error::other("the thread that starts parts is gone");
    spawner.send((command, answer)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

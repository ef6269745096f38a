//! `veneer apply`: changes an embedded world while it runs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

/// How long the world may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Applies manifests to a running `veneer run --embedded`, as kubectl would to a cluster
///
/// NodePools (with their preferences), NodeOverlays, DaemonSets and PodDisruptionBudgets. For a real cluster use kubectl.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer apply -f nodepool.yaml
  veneer apply -f nodepool.yaml --server http://127.0.0.1:8080")]
pub(crate) struct ApplyArgs {
    /// Reads manifests from FILE (YAML or JSON); `-` is standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Where the embedded world serves; the picture shows it
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    server: String,
}

pub(crate) fn run(args: &ApplyArgs) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    for path in &args.files {
        let text = if path.as_os_str() == "-" {
            let mut text = String::new();
            io::stdin()
                .lock()
                .read_to_string(&mut text)
                .context("cannot read standard input")?;
            text
        } else {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?
        };
        let (status, body) = post(&args.server, &text)?;
        if status != 200 {
            bail!("{}: {}", path.display(), body.trim_end());
        }
        out.write_all(body.as_bytes())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// One request on a connection of its own; the server closes it when everything is said.
fn post(server: &str, text: &str) -> Result<(u16, String)> {
    let Some(address) = server
        .strip_prefix("http://")
        .map(|rest| rest.trim_end_matches('/'))
    else {
        bail!("--server {server:?} is no address; expected http://HOST:PORT such as http://127.0.0.1:8080");
    };
    let missing = || {
        format!(
            "no embedded world answers at {server}; start one with `veneer run --embedded`, or give its address with --server"
        )
    };
    let mut stream = TcpStream::connect(address).with_context(missing)?;
    stream.set_read_timeout(Some(PATIENCE)).context("cannot wait")?;
    let head = format!(
        "POST /apply HTTP/1.1\r\nHost: {address}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).with_context(missing)?;
    stream.write_all(text.as_bytes()).with_context(missing)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(missing)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(missing)?;
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let status = status.with_context(missing)?;
    if status == 404 {
        bail!(
            "{server} serves, but is no embedded world: `veneer run` beside a cluster takes no manifests, use kubectl"
        );
    }
    Ok((status, body.to_owned()))
}

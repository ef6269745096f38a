//! Callers that mean harm: half-open connections, huge heads, names and pages that are not ours.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail so"
)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A slow world, so that what the process takes is what connections take.
const WORLD: [&str; 10] = [
    "run",
    "--embedded",
    "--speed",
    "1x",
    "--every",
    "1h",
    "--metrics-bind-address",
    "127.0.0.1:0",
    "--health-probe-bind-address",
    "127.0.0.1:0",
];
/// How long an answer is waited for before it counts as none.
const PATIENCE: Duration = Duration::from_secs(30);

struct World {
    child: Child,
    observers: String,
    probes: String,
    /// Kept open: the world writes to it.
    _out: Box<dyn BufRead>,
}

impl World {
    /// Starts a world with so many file descriptors.
    fn start(descriptors: usize) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_veneer"))
            .args(WORLD)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut address = || {
            let mut line = String::new();
            while !line.contains("http://") {
                line.clear();
                assert!(out.read_line(&mut line).unwrap() > 0, "it ended before it served");
            }
            let rest = line.split("http://").nth(1).unwrap();
            rest.split('/').next().unwrap().to_owned()
        };
        let (observers, probes) = (address(), address());
        Self {
            child,
            observers,
            probes,
            _out: Box::new(out),
        }
    }

    /// The most memory that it has had so far, in MiB.
    fn peak(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(address: &str, head: &str, body: &str) -> Result<String, std::io::Error> {
    let mut stream = connect(address);
    let length = body.len();
    let request = format!("{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Asks until there is an answer: a world that has just been flooded may turn a caller away once.
fn get(address: &str, path: &str) -> String {
    let began = Instant::now();
    loop {
        match ask(
            address,
            &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n"),
            "",
        ) {
            Ok(answer) if !answer.is_empty() => return answer,
            other => assert!(began.elapsed() < PATIENCE, "{path}: {other:?}"),
        }
    }
}

#[test]
fn six_hundred_unfinished_requests_with_large_heads_take_little_memory() {
    let world = World::start(1024);
    assert!(get(&world.probes, "/healthz").contains("200 OK"));
    assert!(get(&world.observers, "/metrics").contains("200 OK"));
    let before = world.peak();
    let filler = "a".repeat(4096);
    let open: Vec<TcpStream> = (0..600)
        .map(|_| {
            let mut stream = connect(&world.observers);
            let mut sent = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n");
            for at in 0..96 {
                // The server may hang up at any time.
                sent = sent.and_then(|()| stream.write_all(format!("X-{at}: {filler}\r\n").as_bytes()));
            }
            if let Err(error) = sent {
                let hung_up = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                assert!(hung_up.contains(&error.kind()), "{error}");
            }
            stream
        })
        .collect();
    // It has read everything when it answers on the same port.
    assert!(get(&world.observers, "/metrics").contains("200 OK"));
    assert!(get(&world.probes, "/healthz").contains("200 OK"));
    let grown = world.peak() - before;
    println!(
        "{} unfinished requests: {before} MiB before, {grown} MiB more",
        open.len()
    );
    assert!(grown <= 50, "{grown} MiB more than {before} MiB");
}

#[test]
fn half_open_connections_to_one_port_do_not_silence_the_other() {
    let world = World::start(64);
    assert!(get(&world.probes, "/healthz").contains("200 OK"));
    let open: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = connect(&world.observers);
            // Hanging up is fine.
            let _ = stream.write_all(b"GET /met");
            stream
        })
        .collect();
    for _ in 0..5 {
        assert!(get(&world.probes, "/healthz").contains("200 OK"));
        assert!(get(&world.observers, "/metrics").contains("200 OK"));
    }
    drop(open);
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let world = World::start(1024);
    for begin in ["", "GET /metrics HTT"] {
        let mut stream = connect(&world.probes);
        stream.write_all(begin.as_bytes()).unwrap();
        let began = Instant::now();
        let mut rest = Vec::new();
        stream
            .read_to_end(&mut rest)
            .unwrap_or_else(|error| panic!("still open after {:?}: {error}", began.elapsed()));
    }
}

#[test]
fn decisions_and_manifests_are_for_callers_that_name_this_server() {
    let world = World::start(1024);
    let port = world.observers.rsplit(':').next().unwrap();
    let overlay = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: mine}\nspec:\n  requirements: []\n  priceAdjustment: \"+1%\"\n";
    let look = |host: &str, more: &str| {
        ask(
            &world.observers,
            &format!("GET /debug/decisions HTTP/1.1\r\nHost: {host}\r\n{more}"),
            "",
        )
        .unwrap()
    };
    let apply = |host: &str, more: &str| {
        let head = format!("POST /apply HTTP/1.1\r\nHost: {host}\r\nContent-Type: text/plain\r\n{more}");
        ask(&world.observers, &head, overlay).unwrap()
    };
    let localhost = format!("localhost:{port}");
    for host in ["evil.example", "veneer.evil.example:8080", "10.1.2.3"] {
        for answer in [look(host, ""), apply(host, "")] {
            assert!(
                answer.contains("403 Forbidden") && answer.contains(host),
                "{answer}"
            );
        }
    }
    for origin in ["http://evil.example", "null", "http://localhost:3000"] {
        let origin = format!("Origin: {origin}\r\n");
        for answer in [look(&localhost, &origin), apply(&localhost, &origin)] {
            assert!(
                answer.contains("403 Forbidden") && answer.contains("Origin"),
                "{answer}"
            );
        }
    }
    // Nothing of it was applied.
    assert!(apply(&localhost, "").contains("nodeoverlay/mine created"));
    assert!(apply(&localhost, &format!("Origin: http://{localhost}\r\n")).contains("unchanged"));
    assert!(look(&format!("127.0.0.1:{port}"), "").contains("\"decisions\""));
    // Metrics are for everybody.
    let metrics = ask(
        &world.observers,
        "GET /metrics HTTP/1.1\r\nHost: veneer.veneer-system\r\n",
        "",
    )
    .unwrap();
    assert!(metrics.contains("200 OK"), "{metrics}");
}

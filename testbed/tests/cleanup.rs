//! No part outlives its cluster or its owner, and nothing stays on disk.
// Clippy knows test functions, but not their helpers.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use veneer_testbed::{Cluster, Options};

mod support;
use support::{client_from, runs, signal};

/// A running `testbed up`, with what it printed until the wanted line.
struct Up {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    lines: Vec<String>,
}

impl Up {
    fn start(arguments: &[&str]) -> Up {
        let mut child = Command::new(env!("CARGO_BIN_EXE_testbed"))
            .arg("up")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Up {
            child,
            output,
            lines: Vec::new(),
        }
    }

    fn read_until(&mut self, wanted: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "`testbed up` ended; it printed {:?}",
                self.lines
            );
            self.lines.push(line.trim_end().to_owned());
            if line.contains(wanted) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Waits for the kubeconfig, whose folder is the cluster's unless another path was asked for.
    fn kubeconfig(&mut self) -> PathBuf {
        self.read_until("export KUBECONFIG=")
            .trim_start_matches("export KUBECONFIG=")
            .into()
    }

    fn parts(&self) -> Vec<u32> {
        children_of(self.child.id())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            after_name.split_whitespace().nth(1) == Some(&parent.to_string())
        })
        .collect()
}

fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn dropping_a_cluster_ends_its_parts_and_removes_its_folder() {
    let cluster = Cluster::start(Options::nodes()).unwrap();
    let pids = cluster.process_ids();
    let folder = cluster.folder().to_owned();
    assert_eq!(pids.len(), 5);
    assert!(pids.values().all(|pid| runs(*pid)));

    drop(cluster);

    assert!(!pids.values().any(|pid| runs(*pid)));
    assert!(!folder.exists());
}

#[test]
fn a_panic_ends_the_parts_too_and_keeps_their_logs() {
    let panicked = std::thread::spawn(|| {
        let cluster = Cluster::start(Options::api_server()).unwrap();
        let pids = cluster.process_ids().into_values().collect::<Vec<_>>();
        std::panic::panic_any((pids, cluster.folder().to_owned()));
    });
    let (pids, folder) = *panicked
        .join()
        .unwrap_err()
        .downcast::<(Vec<u32>, PathBuf)>()
        .unwrap();

    assert_eq!(pids.len(), 2);
    assert!(!pids.iter().any(|pid| runs(*pid)));
    assert!(!folder.exists());
    let kept = support::cache().join("logs").join(folder.file_name().unwrap());
    assert!(
        std::fs::read_to_string(kept.join("etcd.log"))
            .unwrap()
            .contains("etcd")
    );
}

#[test]
fn a_cluster_outlives_the_thread_that_started_it() {
    let cluster = std::thread::spawn(|| Cluster::start(Options::api_server()).unwrap())
        .join()
        .unwrap();
    let pids = cluster.process_ids();
    // The kernel would have sent the signal when the thread ended, which is before join returned.
    assert!(pids.values().all(|pid| runs(*pid)));
}

#[test]
fn killing_the_owner_outright_ends_the_parts_and_the_next_start_removes_the_folder() {
    let mut up = Up::start(&["--kwok"]);
    let folder = up.kubeconfig().parent().unwrap().to_owned();
    let pids = up.parts();
    assert_eq!(pids.len(), 5, "{:?}", up.lines);

    signal("KILL", up.child.id());
    up.child.wait().unwrap();

    soon("every part has ended", || !pids.iter().any(|pid| runs(*pid)));
    assert!(folder.exists(), "a killed process cannot clean up");
    let _next = Cluster::start(Options::api_server()).unwrap();
    assert!(!folder.exists());
}

#[tokio::test]
async fn ctrl_c_ends_everything_and_removes_the_kubeconfig() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("kubeconfig");
    let mut up = Up::start(&["--kubeconfig", path.to_str().unwrap()]);
    assert_eq!(up.kubeconfig(), path);
    let pids = up.parts();
    assert_eq!(pids.len(), 4, "{:?}", up.lines);
    client_from(&path).await.apiserver_version().await.unwrap();

    signal("INT", up.child.id());
    let status = up.child.wait().unwrap();

    assert!(status.success(), "{status}");
    assert!(!pids.iter().any(|pid| runs(*pid)));
    assert!(!path.exists());
}

#[test]
fn sigterm_during_the_start_ends_everything() {
    let mut up = Up::start(&["--karpenter"]);
    up.read_until("etcd");
    let pids = up.parts();
    assert!(!pids.is_empty());

    signal("TERM", up.child.id());
    let status = up.child.wait().unwrap();

    assert!(status.success(), "{status}");
    assert!(!pids.iter().any(|pid| runs(*pid)));
}

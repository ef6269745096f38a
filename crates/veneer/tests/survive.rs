//! Standalone mode lives through what happens to programs in clusters: it is killed, the API server restarts, etcd
//! hangs, connections break, and others write the same objects. Afterwards nothing is lost and nothing is doubled.
//!
//! `VENEER_TEST_KILLS=100` makes this the long version.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail so")]

mod bed;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bed::{Bed, expect};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use veneer_api::{NodeClaim, NodePool};
use veneer_testbed::Part;

/// A cluster with one pool of small nodes and a Deployment of pods of which two fit on four CPUs.
fn bed() -> Bed {
    let bed = Bed::start();
    bed.pool(
        "default",
        json!({"requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4", "8"]}]}),
    );
    bed.deployment("work", 0, json!({"cpu": "1500m"}), json!({}));
    bed
}

/// Waits until `replicas` pods run, on nodes that are all consistent and none empty; then everything goes.
fn all_is_well(bed: &Bed, replicas: usize) {
    bed.all_run(replicas);
    bed.consistent();
    let pods: Vec<Pod> = bed.list();
    let used: BTreeSet<String> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect();
    bed.eventually("empty nodes go", || {
        expect((bed.list::<Node>().len(), used.len()))
    });
    bed.consistent();
    bed.scale("work", 0);
    bed.empty();
}

/// Numbers that look random and are the same in every run.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn killing_it_at_random_points_loses_and_doubles_nothing() {
    let kills: usize = std::env::var("VENEER_TEST_KILLS").map_or(10, |text| text.parse().unwrap());
    let mut seed = std::env::var("VENEER_TEST_SEED").map_or(0x5eed, |text| text.parse().unwrap());
    let bed = bed();
    let mut replicas = 0;
    for kill in 0..kills {
        let running = bed.veneer(&["--kwok-launch-delay", "50ms"]);
        // Up, down, and up to a little more; every twelfth time down to almost nothing.
        replicas = match kill % 12 {
            11 => 2,
            even if even % 2 == 0 => replicas + 16,
            _ => replicas - 10,
        };
        bed.scale("work", replicas);
        // The experiment is about when, so this waits by the clock.
        std::thread::sleep(Duration::from_millis(300 + random(&mut seed) % 2_000));
        drop(running);
    }
    let running = bed.veneer(&["--kwok-launch-delay", "50ms"]);
    all_is_well(&bed, replicas);
    println!("{kills} kills survived");
    drop(running);
}

/// Sends a signal to a part of the cluster.
fn signal(bed: &Bed, part: Part, name: &str) {
    let id = bed.cluster.process_ids()[&part].to_string();
    let sent = Command::new("kill").args([name, &id]).status().unwrap();
    assert!(sent.success());
}

fn claims_come(bed: &Bed, more_than: usize) {
    bed.eventually("claims are made", || {
        let claims = bed.list::<NodeClaim>().len();
        expect((claims > more_than, true))
    });
}

#[test]
fn a_restart_of_the_api_server_and_a_pause_of_etcd_are_survived() {
    let mut bed = bed();
    let mut running = bed.veneer(&["--kwok-launch-delay", "200ms"]);
    bed.scale("work", 16);
    claims_come(&bed, 0);
    bed.cluster.stop_part(Part::ApiServer);
    bed.cluster.start_part(Part::ApiServer).unwrap();
    bed.all_run(16);

    let claims = bed.list::<NodeClaim>().len();
    bed.scale("work", 32);
    claims_come(&bed, claims);
    signal(&bed, Part::Etcd, "-STOP");
    // Longer than the API server waits for etcd, so that requests fail and do not only take long.
    std::thread::sleep(Duration::from_secs(8));
    signal(&bed, Part::Etcd, "-CONT");
    all_is_well(&bed, 32);
    assert!(
        running.0.try_wait().unwrap().is_none(),
        "the same process all along"
    );
}

/// Passes bytes between clients and the API server, and can cut all connections at once.
struct Proxy {
    connections: Arc<Mutex<Vec<TcpStream>>>,
    kubeconfig: PathBuf,
}

impl Proxy {
    fn start(bed: &Bed) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = bed.cluster.url();
        let target = url.strip_prefix("https://").unwrap().to_owned();
        let text = std::fs::read_to_string(bed.cluster.kubeconfig_path()).unwrap();
        let kubeconfig = bed.cluster.folder().join("kubeconfig-of-the-proxy");
        std::fs::write(
            &kubeconfig,
            text.replace(&url, &format!("https://127.0.0.1:{port}")),
        )
        .unwrap();
        let connections: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let open = Arc::clone(&connections);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&target)) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    open.lock().unwrap().push(from.try_clone().unwrap());
                    std::thread::spawn(move || pass(from, to));
                }
            }
        });
        Self {
            connections,
            kubeconfig,
        }
    }

    /// Ends all connections and says how many there were.
    fn cut(&self) -> usize {
        let mut connections = self.connections.lock().unwrap();
        let mut open = 0;
        for connection in connections.drain(..) {
            open += usize::from(connection.shutdown(Shutdown::Both).is_ok());
        }
        open
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Changes an annotation of every object of a kind.
async fn touch<T>(client: &Client, round: usize)
where
    T: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<T> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/round": round.to_string()}}}));
    for object in api.list(&ListParams::default().match_any()).await.unwrap() {
        // It may be gone by now.
        let _ = api
            .patch(&object.name_any(), &PatchParams::default(), &patch)
            .await;
    }
}

#[test]
fn broken_connections_and_other_writers_are_survived() {
    let bed = bed();
    let proxy = Proxy::start(&bed);
    let done = Arc::new(AtomicBool::new(false));
    let others = {
        let (done, kubeconfig) = (Arc::clone(&done), bed.cluster.kubeconfig_path());
        std::thread::spawn(move || {
            bed::runtime().block_on(async move {
                let client = bed::connect(&kubeconfig).await;
                let mut round = 0;
                while !done.load(Ordering::Relaxed) {
                    touch::<NodeClaim>(&client, round).await;
                    touch::<Node>(&client, round).await;
                    touch::<NodePool>(&client, round).await;
                    round += 1;
                }
            });
        })
    };
    let mut running = bed.veneer_by(
        &proxy.kubeconfig,
        &["--kwok-launch-delay", "100ms", "--log-level", "debug"],
    );
    let mut cut = 0;
    for replicas in [16, 32, 20] {
        bed.scale("work", replicas);
        for _ in 0..4 {
            // The experiment is about when, so this waits by the clock.
            std::thread::sleep(Duration::from_millis(700));
            cut += proxy.cut();
        }
    }
    done.store(true, Ordering::Relaxed);
    others.join().unwrap();
    all_is_well(&bed, 20);
    assert!(
        running.0.try_wait().unwrap().is_none(),
        "the same process all along"
    );
    let conflicts = bed.log().matches("decided again").count();
    println!("{cut} connections were cut, {conflicts} writes came too late");
    assert!(cut > 10 && conflicts > 0, "{cut} and {conflicts}");
}

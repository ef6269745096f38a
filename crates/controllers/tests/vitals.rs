//! The Lease is renewed and the probes are answered whatever the controllers do with their thread.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use support::{Bed, eventually, family, get, standalone, with_metrics};
use veneer_controllers::{Election, Output, Server, run};

/// Keeps the thread that prints busy until it is told to go on, as a decision of many seconds does.
struct Blocking {
    began: Sender<()>,
    go_on: Receiver<()>,
}

// Only the thread of the controllers uses it.
struct Shared(std::sync::Mutex<Blocking>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let blocking = self.0.lock().unwrap();
        let _ = blocking.began.send(());
        // Ends with an error when the test does.
        let _ = blocking.go_on.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_takes_long_loses_no_lease_and_fails_no_probe() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("default").await;
    bed.create_overlay("a", family("m5", json!({"price": "1"}))).await;
    let kubeconfig = Kubeconfig::read_from(bed.cluster.kubeconfig_path()).unwrap();
    let cluster = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let (began, blocked) = channel();
    let (go_on, wait) = channel();
    let mut settings = standalone();
    settings.output = Output::Text(Box::new(Shared(std::sync::Mutex::new(Blocking {
        began,
        go_on: wait,
    }))));
    settings.election = Some(Election {
        namespace: "default".to_owned(),
        name: "veneer".to_owned(),
        identity: "one".to_owned(),
        duration: Duration::from_secs(2),
        cluster: Some(cluster.clone()),
    });
    let metrics = with_metrics(&mut settings).await;
    let probes = Server::probes("127.0.0.1:0", &settings.health)
        .await
        .unwrap()
        .unwrap();
    let address = probes.address();
    settings.servers.push(probes);
    // As `veneer run` has it: one thread for everything.
    let running = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = kube::Client::try_from(cluster).unwrap();
            tokio::time::timeout(
                Duration::from_secs(60),
                run(client, settings, std::future::pending()),
            )
            .await
        })
    });
    tokio::task::spawn_blocking(move || blocked.recv().unwrap())
        .await
        .unwrap();

    // Now the thread is busy. Three times the duration of the Lease later it is still held.
    let leases: Api<Lease> = Api::namespaced(bed.admin.clone(), "default");
    let renewals = async || {
        let spec = leases.get("veneer").await.unwrap().spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("one"));
        spec.renew_time.unwrap().0
    };
    let first = renewals().await;
    eventually("the Lease is renewed for long", async || {
        assert_eq!(get(address, "/healthz").await.0, 200);
        assert_eq!(get(address, "/readyz").await.0, 200);
        assert_eq!(get(metrics, "/metrics").await.0, 200);
        let held = renewals().await.duration_since(first);
        (held.as_secs() >= 6).then_some(())
    })
    .await;
    assert!(!running.is_finished());
    drop(go_on);
}

//! Two replicas of `veneer run`: one acts, and when it is killed in the middle of its work the other takes over.
//!
//! `VENEER_KILLS=100` makes this the long version.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use serde_json::json;
use veneer_api::{NodeOverlay, NodePool};
use veneer_testbed::{Cluster, Options};

const DEADLINE: Duration = Duration::from_secs(120);
const POOLS: usize = 4;

struct Replica(Child);

impl Replica {
    fn start(cluster: &Cluster) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_veneer"))
            .args(["run", "--provider", "kwok", "--catalog"])
            .arg(veneer_testbed::karpenter_instance_types().unwrap())
            .args(["--metrics-bind-address=0", "--health-probe-bind-address=0"])
            .args([
                "--leader-election-lease-duration=1s",
                "--leader-election-namespace=default",
            ])
            .envs(cluster.env())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Starts it again if it has ended by itself, as a kubelet would: a leader that could not renew its Lease ends, and on
    /// a machine as busy as one with tests that happens.
    fn revive(&mut self, cluster: &Cluster) {
        if self.0.try_wait().unwrap().is_some() {
            *self = Self::start(cluster);
        }
    }

    fn kill(&mut self) {
        // SIGKILL: nothing of it runs any more.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn client(cluster: &Cluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The process id of the leader, which is the second part of its identity.
async fn leader(leases: &Api<Lease>) -> Option<u32> {
    let lease = leases.get_opt("veneer").await.unwrap()?;
    let holder = lease.spec?.holder_identity?;
    holder.rsplit('_').nth(1)?.parse().ok()
}

#[tokio::test]
async fn the_other_replica_takes_over_whenever_the_leader_is_killed() {
    let kills: usize = std::env::var("VENEER_KILLS").map_or(3, |text| text.parse().unwrap());
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(Options::api_server()))
        .await
        .unwrap()
        .unwrap();
    let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
    cluster.install_crds(&crds).unwrap();
    let client = client(&cluster).await;
    let pools: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<NodePool>(&()));
    let overlays: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<NodeOverlay>(&()));
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    for at in 0..POOLS {
        let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": format!("pool-{at}")}, "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [], "expireAfter": "Never",
            }},
            "disruption": {"consolidateAfter": "Never"},
        }});
        pools
            .create(&PostParams::default(), &serde_json::from_value(pool).unwrap())
            .await
            .unwrap();
    }

    let mut replicas = [Replica::start(&cluster), Replica::start(&cluster)];
    for round in 0..=kills {
        // Load: every pool gets nine other preferences, and half of them another number.
        let first = 1 + round % 2;
        for at in 0..POOLS {
            let annotations: BTreeMap<String, Option<String>> = (1..=10)
                .map(|number| {
                    let wanted = (first..first + 9).contains(&number);
                    let value = wanted.then(|| format!("team=t{round} adjust=-{number}%"));
                    (format!("veneer.io/preference.{number}"), value)
                })
                .collect();
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            pools
                .patch(&format!("pool-{at}"), &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
        if round < kills {
            let (leading, ids) = eventually("one of the two leads", async || {
                replicas.iter_mut().for_each(|replica| replica.revive(&cluster));
                let ids: Vec<u32> = replicas.iter().map(|replica| replica.0.id()).collect();
                let leading = leader(&leases).await.filter(|id| ids.contains(id))?;
                Some((leading, ids))
            })
            .await;
            // In the middle of the round's writes, or before or after them: wherever the round falls.
            tokio::time::sleep(Duration::from_millis((round as u64 * 37) % 150)).await;
            let at = ids.iter().position(|id| *id == leading).unwrap();
            replicas[at].kill();
            replicas[at] = Replica::start(&cluster);
        }
    }
    let round = kills;
    let first = 1 + round % 2;
    let mut expected = BTreeMap::new();
    for at in 0..POOLS {
        for number in first..first + 9 {
            expected.insert(
                format!("pref-pool-{at}-{number}"),
                format!("t{round} -{number}% {number}"),
            );
        }
    }
    eventually(
        "the desired state, without a missing or a surplus overlay",
        async || {
            replicas.iter_mut().for_each(|replica| replica.revive(&cluster));
            let found = overlays.list(&ListParams::default()).await.unwrap();
            let found: BTreeMap<String, String> = found
                .iter()
                .map(|one| {
                    let spec = &one.data["spec"];
                    let team = spec["requirements"][1]["values"][0].as_str().unwrap();
                    let words = format!(
                        "{team} {} {}",
                        spec["priceAdjustment"].as_str().unwrap(),
                        spec["weight"]
                    );
                    (one.name_any(), words)
                })
                .collect();
            (found == expected).then_some(())
        },
    )
    .await;
    // A leader that is told to end gives the Lease back, and the other one need not wait.
    let leading = eventually("somebody leads", async || {
        replicas.iter_mut().for_each(|replica| replica.revive(&cluster));
        let ids: Vec<u32> = replicas.iter().map(|replica| replica.0.id()).collect();
        leader(&leases).await.filter(|id| ids.contains(id))
    })
    .await;
    let status = Command::new("kill")
        .args(["-TERM", &leading.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
    eventually("the other one leads", async || {
        replicas.iter_mut().for_each(|replica| replica.revive(&cluster));
        leader(&leases).await.filter(|id| *id != leading)
    })
    .await;
    println!("{kills} kills survived");
}

//! From the accounts to a real Karpenter, with no series written by hand: through `veneer export` and a real Prometheus, and without
//! both of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

#[path = "support/accounts.rs"]
mod accounts;
#[path = "support/running.rs"]
mod running;

use std::process::Command;

use accounts::{ACCOUNT, REGION, change, collected, command, instance, organization, reserved, write};
use kube::ResourceExt;
use kube::api::DynamicObject;
use running::{Objects, Running, eventually, get};
use serde_json::{Value, json};
use veneer_api::{NodeClaim, NodeOverlay};
use veneer_testbed::aws_double::{AwsDouble, Fault, Trouble};
use veneer_testbed::{Cluster, Options, Part, workload};

const COMPUTE: &str = "cost-aware-compute-sp-global";
const FAMILY: &str = "cost-aware-ec2-sp-m5-us-west-2";
const RESERVED: &str = "cost-aware-ri-c5.large-us-west-2";
const ZONAL: &str = "cost-aware-ri-c5.large-us-west-2b";
const APPLIED: &str = "karpenter.sh/price-overlay-applied";

struct Site {
    cluster: Cluster,
    objects: Objects,
    double: AwsDouble,
    folder: tempfile::TempDir,
}

impl Site {
    /// A cluster with Karpenter and a NodePool, and an account with regional and zonal Reserved Instances and plans.
    fn new() -> Self {
        let options = Options::karpenter().with(Part::Prometheus).scraped_twice();
        let cluster = Cluster::start(options).unwrap();
        let objects = Objects::of(&cluster);
        objects.create(
            json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
        );
        objects.create(workload::node_pool("default", json!({})));
        let double = AwsDouble::start(organization()).unwrap();
        change(&double, |region| {
            let id = "66666666-7777-8888-9999-000000000000";
            region.reserved.push(reserved(id, 1, Some("us-west-2b")));
        });
        Self {
            cluster,
            objects,
            double,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A run beside this Karpenter, with this at the beginning of its configuration.
    fn run(&self, source: &str) -> Command {
        let file = format!(
            "{source}reconcileInterval: 200ms\nmetricsBindAddress: 127.0.0.1:0\nhealthProbeBindAddress: \"0\"\naws: {{accountId: \"{ACCOUNT}\", region: {REGION}}}\n"
        );
        let config = write(self.folder.path(), "veneer.yaml", &file);
        let mut run = command(&self.double, &["run", "--provider", "kwok", "--config", &config]);
        run.arg("--catalog")
            .arg(veneer_testbed::karpenter_instance_types().unwrap())
            .envs(self.cluster.env());
        run
    }

    /// Waits until Karpenter has found an overlay valid, as it is now.
    fn ready(&self, name: &str) {
        eventually(&format!("Karpenter finds {name} ready"), || {
            let all = self.objects.all::<NodeOverlay>();
            let found = all.iter().find(|one| one.name_any() == name);
            let conditions = found.and_then(|one| one.data.pointer("/status/conditions"));
            let conditions = conditions.and_then(Value::as_array);
            let is_ready =
                |one: &Value| one["type"] == "Ready" && one["status"] == "True" && one["reason"] == "Ready";
            match conditions.is_some_and(|all| all.iter().any(is_ready)) {
                true => Ok(()),
                false => Err(format!("{found:?}")),
            }
        });
    }

    /// A pod that needs a c5.large of its own in a zone, and the NodeClaim that Karpenter makes for it.
    fn launch(&self, zone: &str) -> DynamicObject {
        self.objects.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("in-{zone}")},
            "spec": {"nodeSelector": {"node.kubernetes.io/instance-type": "c5.large", "karpenter.sh/capacity-type": "on-demand",
                    "topology.kubernetes.io/zone": zone},
                "containers": [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}]}}));
        eventually(&format!("a NodeClaim in {zone}"), || {
            let claims = self.objects.all::<NodeClaim>().into_iter();
            let mut here = claims.filter(|claim| {
                claim
                    .labels()
                    .get("topology.kubernetes.io/zone")
                    .map(String::as_str)
                    == Some(zone)
            });
            here.next().ok_or_else(|| "none".to_owned())
        })
    }

    fn decision(&self, running: &Running, overlay: &str) -> Value {
        let (_, page) = get(&running.address("serving metrics"), "/debug/decisions").unwrap();
        let page: Value = serde_json::from_str(&page).unwrap();
        let decisions = page["decisions"].as_array().unwrap().clone();
        let mut found = decisions.into_iter().filter(|one| {
            let target = &one["target"];
            let zone = target["zone"].as_str().unwrap_or_default();
            let covers = target["covers"].as_str().unwrap();
            match overlay {
                COMPUTE => target["kind"] == "compute-savings-plan",
                FAMILY => covers == "m5",
                RESERVED => covers == "c5.large" && zone.is_empty(),
                _ => covers == "c5.large" && zone == "us-west-2b",
            }
        });
        found.next().unwrap_or_else(|| panic!("{overlay}: {page:#}"))
    }
}

/// One cluster for both ways: they differ in where steering reads what is left, and in nothing that Karpenter sees.
#[test]
fn karpenter_follows_the_accounts_through_prometheus_and_without_it() {
    let site = Site::new();
    let all = [COMPUTE, FAMILY, RESERVED, ZONAL];

    // `veneer export` → Prometheus, which scrapes it under two jobs → steering → overlays → Karpenter.
    let file = format!(
        "{}healthProbeBindAddress: \"0\"\nmetricsBindAddress: 127.0.0.1:{}\n",
        collected(),
        site.cluster.exporter_port()
    );
    let config = write(site.folder.path(), "lumina.yaml", &file);
    let exporter = Running::start(command(&site.double, &["export", "--config", &config]));
    let prometheus = format!("prometheusUrl: {}\n", site.cluster.prometheus_url());
    let running = Running::start(site.run(&prometheus));
    site.objects.wait_for_overlays(&running, &all);
    for overlay in all {
        site.ready(overlay);
    }
    // What two exporters tell counts once.
    for (overlay, owned) in [(COMPUTE, 5.0), (FAMILY, 1.0), (RESERVED, 3.0), (ZONAL, 1.0)] {
        let decision = site.decision(&running, overlay);
        assert_eq!(decision["balance"]["owned"], owned, "{decision:#}");
    }
    let claim = site.launch("us-west-2a");
    assert!(claim.annotations().contains_key(APPLIED), "{claim:?}");
    // Two more c5.large in the zone use up the regional ones; the zonal one is in another zone.
    change(&site.double, |region| {
        let more = [instance("i-3", "c5.large"), instance("i-4", "c5.large")];
        region.instances.extend(more);
    });
    site.objects
        .wait_for_overlays(&running, &[COMPUTE, FAMILY, ZONAL]);
    drop((running, exporter));

    // `commitments.source: aws`: neither Lumina nor Prometheus.
    change(&site.double, |region| region.instances.truncate(2));
    let accounts = write(site.folder.path(), "accounts.yaml", &collected());
    let source = format!("commitments: {{source: aws, configFile: {accounts}}}\n");
    let running = Running::start(site.run(&source));
    site.objects.wait_for_overlays(&running, &all);
    for overlay in all {
        site.ready(overlay);
    }
    let reserved = site.decision(&running, RESERVED);
    assert_eq!(reserved["balance"]["left"], 2.0, "{reserved:#}");
    assert!(
        reserved["rule"]
            .as_str()
            .unwrap()
            .contains("(rules 2, 3, 4, 5, 8)"),
        "{reserved:#}"
    );
    let zonal = site.decision(&running, ZONAL);
    assert_eq!(zonal["balance"]["left"], 1.0, "{zonal:#}");
    assert!(
        zonal["rule"].as_str().unwrap().contains("(rules 2, 3, 7, 8)"),
        "{zonal:#}"
    );
    // The node that Karpenter launches in the zone uses up the zonal one, before AWS tells of it.
    let claim = site.launch("us-west-2b");
    assert!(claim.annotations().contains_key(APPLIED), "{claim:?}");
    site.objects
        .wait_for_overlays(&running, &[COMPUTE, FAMILY, RESERVED]);
    assert_eq!(site.decision(&running, ZONAL)["reason"], "used-up-by-launches");
    // A size that nobody reserved uses the regional ones up as well.
    change(&site.double, |region| {
        region.instances.push(instance("i-3", "c5.xlarge"));
    });
    site.objects.wait_for_overlays(&running, &[COMPUTE, FAMILY]);
    // What cannot be collected deletes nothing, and what was unused before is not made anew.
    site.double.trouble(Trouble::always(Fault::Denied));
    site.double
        .change(|described| described.accounts[0].plans.clear());
    eventually("the account is denied", || {
        let log = running.log();
        match log.contains("not collected") {
            true => Ok(()),
            false => Err(log),
        }
    });
    assert_eq!(site.objects.overlays(), [COMPUTE, FAMILY]);
}

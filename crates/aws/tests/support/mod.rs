//! moto and EC2 as Veneer sees it, and the objects that tests launch.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]
#![allow(dead_code, reason = "not every test uses every helper")]

use std::sync::Arc;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use veneer_api::{EC2NodeClass, NodeClaim};
use veneer_aws::node_class::{self, Site};
use veneer_aws::{Client, Cluster as Where, Ec2, Failure};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::provision::{LaunchOption, Market};
use veneer_testbed::{Aws, Cluster, Options, Prepared};

const REGION: &str = "us-west-2";

/// moto, and EC2 as Veneer sees it.
pub(crate) struct Bed {
    pub(crate) runtime: Runtime,
    pub(crate) ec2: Ec2,
    pub(crate) aws: Aws,
    pub(crate) prepared: Prepared,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) cluster: Cluster,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
}

pub(crate) fn keys() -> SharedCredentialsProvider {
    SharedCredentialsProvider::new(Credentials::new("testing", "testing", None, None, "test"))
}

impl Bed {
    pub(crate) fn start() -> Self {
        let cluster = Cluster::start(Options::aws()).unwrap();
        let aws = Aws::of(&cluster, REGION);
        let prepared = aws.prepare("1.33").unwrap();
        let catalogue = veneer_engine::catalogue::aws::region(REGION).unwrap().catalogue;
        let catalogue = Arc::new(catalogue);
        let runtime = runtime();
        let ec2 = Self::another(&runtime, &cluster, &catalogue, keys());
        Self {
            runtime,
            ec2,
            aws,
            prepared,
            catalogue,
            cluster,
        }
    }

    /// EC2 as another process would see it: with nothing remembered.
    pub(crate) fn another(
        runtime: &Runtime,
        cluster: &Cluster,
        catalogue: &Arc<Catalogue>,
        keys: SharedCredentialsProvider,
    ) -> Ec2 {
        let client = runtime
            .block_on(Client::at(REGION, &cluster.aws_url(), keys))
            .unwrap();
        let place = Where {
            name: "test".to_owned(),
            version: "1.33".to_owned(),
            endpoint: "https://api.example".to_owned(),
            ca_bundle: Some("Q0E=".to_owned()),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            dns: Some("10.100.0.10".to_owned()),
        };
        Ec2::new(client, place, Arc::clone(catalogue))
    }

    pub(crate) fn reborn(&self) -> Ec2 {
        Self::another(&self.runtime, &self.cluster, &self.catalogue, keys())
    }

    pub(crate) fn class(&self, change: Value) -> EC2NodeClass {
        let selects = json!([{"tags": {"karpenter.sh/discovery": "test"}}]);
        let mut spec = json!({
            "amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "node",
            "subnetSelectorTerms": selects, "securityGroupSelectorTerms": selects, "tags": {"team": "a"},
        });
        for (key, value) in change.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let mut class: EC2NodeClass = serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "default", "uid": "class-uid", "generation": 1}, "spec": spec,
        }))
        .unwrap();
        let now = Timestamp::now();
        let found = self
            .runtime
            .block_on(node_class::find(&self.ec2.client, &class, &site(), now));
        class.status = Some(node_class::status(&class, &found, now));
        class
    }

    pub(crate) fn options(&self, claim: &NodeClaim) -> Vec<LaunchOption> {
        Market::new(Arc::clone(&self.catalogue)).options(claim, 600)
    }

    pub(crate) fn launch(
        &self,
        ec2: &Ec2,
        claim: &NodeClaim,
        class: &EC2NodeClass,
    ) -> Result<String, Failure> {
        let launched = self
            .runtime
            .block_on(ec2.launch(claim, class, &self.options(claim)));
        launched.map(|one| one.provider_id)
    }

    /// The requests of an action, without those that were refused.
    pub(crate) fn asked(&self, action: &str) -> Vec<Value> {
        let all = self.aws.requests().unwrap();
        all.into_iter()
            .filter(|one| one["action"] == action && one["refused"] == false)
            .map(|one| one["request"].clone())
            .collect()
    }

    /// Gives an instance termination protection, or takes it away.
    pub(crate) fn protect(&self, provider_id: &str, is_protected: bool) {
        let value = is_protected.to_string();
        let parameters = [
            ("InstanceId", veneer_aws::instance_id(provider_id)),
            ("DisableApiTermination.Value", value.as_str()),
        ];
        self.aws
            .call("ec2", "ModifyInstanceAttribute", &parameters)
            .unwrap();
    }

    pub(crate) fn running(&self) -> usize {
        let all = self.aws.instances("karpenter.sh/nodeclaim").unwrap();
        all.iter()
            .filter(|(_, state, _)| state == "running" || state == "pending")
            .count()
    }
}

pub(crate) fn site() -> Site {
    Site {
        cluster_name: "test".to_owned(),
        kubernetes_version: "1.33".to_owned(),
    }
}

pub(crate) fn claim(name: &str, types: &[&str], capacity: &[&str]) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"karpenter.sh/nodepool": "pool"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "resources": {"requests": {"cpu": "1", "pods": "3"}},
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity},
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a", "us-west-2b"]},
            ],
        },
    }))
    .unwrap()
}

pub(crate) fn ready(class: &EC2NodeClass) -> (String, String) {
    let conditions = &class.status.as_ref().unwrap().conditions;
    let ready = veneer_api::find_condition(conditions, "Ready").unwrap();
    (ready.status.as_str().to_owned(), ready.message.clone())
}

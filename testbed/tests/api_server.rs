//! A cluster of etcd and the API server: it answers, survives restarts, and is one's own.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PostParams};
use veneer_testbed::{Cluster, Error, Options, Part};

mod support;
use support::{client, eventually};

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

#[tokio::test]
async fn a_started_cluster_answers_over_verified_tls_and_stores_objects() {
    let cluster = Cluster::start(Options::api_server()).unwrap();
    let client = client(&cluster).await;

    let version = client.apiserver_version().await.unwrap();
    let objects = Api::<ConfigMap>::default_namespaced(client.clone());
    objects
        .create(&PostParams::default(), &config_map("first"))
        .await
        .unwrap();

    assert_eq!(version.major, "1");
    assert!(objects.get_opt("first").await.unwrap().is_some());
    let kubeconfig = std::fs::read_to_string(cluster.kubeconfig_path()).unwrap();
    assert!(!kubeconfig.contains("insecure"), "{kubeconfig}");
}

#[tokio::test]
async fn two_clusters_at_once_share_nothing() {
    let start = || std::thread::spawn(|| Cluster::start(Options::api_server()).unwrap());
    let (one, other) = (start(), start());
    let (one, other) = (one.join().unwrap(), other.join().unwrap());
    let (in_one, in_other) = (client(&one).await, client(&other).await);

    let only_one = Api::<ConfigMap>::default_namespaced(in_one);
    only_one
        .create(&PostParams::default(), &config_map("only-in-one"))
        .await
        .unwrap();

    let seen = Api::<ConfigMap>::default_namespaced(in_other)
        .get_opt("only-in-one")
        .await
        .unwrap();
    assert!(seen.is_none());
    assert_ne!(one.folder(), other.folder());
}

#[tokio::test]
async fn objects_survive_a_crash_and_restart_of_etcd_and_the_api_server() {
    let mut cluster = Cluster::start(Options::api_server()).unwrap();
    let client = client(&cluster).await;
    let objects = Api::<ConfigMap>::default_namespaced(client.clone());
    objects
        .create(&PostParams::default(), &config_map("kept"))
        .await
        .unwrap();

    cluster.stop_part(Part::ApiServer);
    assert!(
        objects.get_opt("kept").await.is_err(),
        "a stopped API server does not answer"
    );
    cluster.stop_part(Part::Etcd);
    cluster.start_part(Part::Etcd).unwrap();
    cluster.start_part(Part::ApiServer).unwrap();

    // The client may first find its old connection closed.
    let kept = eventually("the object is read again", async || {
        objects.get_opt("kept").await.ok().flatten()
    })
    .await;
    assert_eq!(kept.metadata.name.as_deref(), Some("kept"));
    let starts = cluster.log_of(Part::ApiServer).matches("Golang settings").count();
    assert_eq!(starts, 2, "the log holds both runs");
}

#[tokio::test]
async fn karpenters_crds_install_and_are_served() {
    let cluster = Cluster::start(Options::api_server()).unwrap();
    cluster
        .install_crds(&veneer_testbed::karpenter_crds().unwrap())
        .unwrap();

    let resources = client(&cluster)
        .await
        .list_api_group_resources("karpenter.sh/v1")
        .await
        .unwrap();
    let names = resources
        .resources
        .iter()
        .map(|resource| resource.name.as_str())
        .collect::<Vec<_>>();
    assert!(
        names.contains(&"nodepools") && names.contains(&"nodeclaims"),
        "{names:?}"
    );
}

#[test]
fn an_invalid_crd_is_refused_with_the_api_servers_words() {
    let cluster = Cluster::start(Options::api_server()).unwrap();
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\nspec: {}\n";

    let error = cluster.install_crds(&[crd]).unwrap_err();

    assert!(matches!(error, Error::Refused { .. }));
    assert!(error.to_string().contains("spec.group"), "{error}");
}

#[test]
fn a_part_that_was_not_asked_for_cannot_be_started() {
    let mut cluster = Cluster::start(Options::api_server()).unwrap();
    let error = cluster.start_part(Part::Scheduler).unwrap_err();
    assert!(matches!(error, Error::NotInCluster(Part::Scheduler)), "{error}");
}

#[tokio::test]
async fn a_part_that_dies_is_reported_with_the_end_of_its_log() {
    let mut cluster = Cluster::start(Options::api_server()).unwrap();
    cluster.check().unwrap();
    let etcd = cluster.process_ids()[&Part::Etcd];
    support::signal("KILL", etcd);

    let error = eventually("the death of etcd is noticed", async || cluster.check().err()).await;

    assert!(matches!(error, Error::Ended { part: Part::Etcd, .. }), "{error}");
    assert!(error.to_string().contains("its log ends:\n"), "{error}");
}

#[tokio::test]
async fn system_namespaces_and_roles_are_there_when_start_returns() {
    let cluster = Cluster::start(Options::api_server()).unwrap();
    let client = client(&cluster).await;
    let namespaces = Api::<Namespace>::all(client.clone());
    assert!(namespaces.get_opt("default").await.unwrap().is_some());
    let roles = Api::<k8s_openapi::api::rbac::v1::ClusterRole>::all(client);
    assert!(roles.get_opt("cluster-admin").await.unwrap().is_some());
}

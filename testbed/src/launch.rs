//! The command line of each part and the address at which it says that it is ready.

use serde_json::{Value, json};

use crate::certs::Identity;
use crate::folder::Folder;
use crate::ports::Ports;
use crate::process::Invocation;
use crate::{Error, Options, Part, part};

/// The life of Nodes and Pods that kwok plays.
const KWOK_CONFIG: &str = include_str!("kwok.yaml");

/// What a command line is made of.
pub(crate) struct Site<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) identity: &'a Identity,
    /// etcd's port, for its client the API server.
    pub(crate) etcd: u16,
    pub(crate) options: &'a Options,
}

/// Requests of service accounts and of the provisioner, and whatever places or removes pods, once when they are answered; for a watch that is
/// when it begins.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "Metadata", "users": ["provisioner"]},
        {"level": "Metadata", "verbs": ["create", "delete", "deletecollection"],
            "resources": [{"group": "", "resources": ["pods", "pods/eviction", "pods/binding"]}]},
        {"level": "None"}]}"#;

/// The defaults (20 requests a second for the controller manager) would make thousands of Pods a matter of minutes.
const RAISED_QPS: u32 = 1000;
const RAISED_BURST: u32 = 2000;

/// What kube-scheduler reads with `--config`.
fn scheduler_configuration(kubeconfig: &str, added_affinity: &Value, default_rates: bool) -> Value {
    let connection = if default_rates {
        json!({"kubeconfig": kubeconfig})
    } else {
        json!({"kubeconfig": kubeconfig, "qps": RAISED_QPS, "burst": RAISED_BURST})
    };
    let version = "kubescheduler.config.k8s.io/v1";
    let args = json!({"apiVersion": version, "kind": "NodeAffinityArgs", "addedAffinity": added_affinity});
    json!({"apiVersion": version, "kind": "KubeSchedulerConfiguration", "clientConnection": connection,
        "leaderElection": {"leaderElect": false},
        "profiles": [{"schedulerName": "default-scheduler",
            "pluginConfig": [{"name": "NodeAffinity", "args": args}]}]})
}

/// Where each part listens within a block of ports.
pub(crate) fn port(part: Part, ports: &Ports) -> u16 {
    ports.at(match part {
        Part::Etcd => 0,
        Part::ApiServer => 2,
        Part::Scheduler => 3,
        Part::ControllerManager => 4,
        Part::Kwok => 5,
        Part::Karpenter => 6,
        Part::Prometheus => 8,
        // Whoever launches on EC2 does so instead of Karpenter.
        Part::Moto => 6,
    })
}

/// The second port of the parts that need two: etcd's peers, Karpenter's metrics, and what Prometheus scrapes.
pub(crate) fn second_port(part: Part, ports: &Ports) -> u16 {
    ports.at(match part {
        Part::Etcd => 1,
        Part::Prometheus => 9,
        _ => 7,
    })
}

/// The addresses that all answer 200 once the part is ready.
pub(crate) fn readiness(part: Part, port: u16) -> Vec<String> {
    let (scheme, paths): (_, &[_]) = match part {
        Part::Etcd | Part::Kwok | Part::Karpenter => ("http", &["/readyz"]),
        Part::Prometheus => ("http", &["/-/ready"]),
        Part::Moto => ("http", &["/_testbed/ready"]),
        // The namespace comes from a controller that readyz does not wait for, and Pods cannot do without it.
        Part::ApiServer => ("https", &["/readyz", "/api/v1/namespaces/default"]),
        // Older schedulers have /healthz alone.
        Part::Scheduler if part::has_older_kubernetes() => ("https", &["/healthz"]),
        Part::Scheduler => ("https", &["/readyz"]),
        Part::ControllerManager => ("https", &["/healthz"]),
    };
    paths
        .iter()
        .map(|path| format!("{scheme}://127.0.0.1:{port}{path}"))
        .collect()
}

/// The command that runs `part` on `ports`.
pub(crate) fn invocation(part: Part, ports: &Ports, site: &Site<'_>) -> Result<Invocation, Error> {
    let port = port(part, ports);
    let second_port = second_port(part, ports);
    let folder = site.folder;
    let kubeconfig = folder.join("kubeconfig").display().to_string();
    let serving = || {
        vec![
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", site.identity.serving_cert.display()),
            format!("--tls-private-key-file={}", site.identity.serving_key.display()),
        ]
    };
    let mut env = vec![
        // Programs look for settings of the user in the home folder; these parts must not find any.
        ("HOME", folder.path().display().to_string()),
        ("KUBECONFIG", kubeconfig.clone()),
    ];
    let args = match part {
        Part::Etcd => vec![
            "--name=testbed".to_owned(),
            format!("--data-dir={}", folder.join("etcd").display()),
            format!("--listen-client-urls=http://127.0.0.1:{port}"),
            format!("--advertise-client-urls=http://127.0.0.1:{port}"),
            format!("--listen-peer-urls=http://127.0.0.1:{second_port}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{second_port}"),
            format!("--initial-cluster=testbed=http://127.0.0.1:{second_port}"),
            // The data goes away with the cluster; surviving a power cut is worth nothing here.
            "--unsafe-no-fsync".to_owned(),
        ],
        Part::ApiServer => {
            let identity = site.identity;
            let mut args = serving();
            args.extend([
                format!("--etcd-servers=http://127.0.0.1:{}", site.etcd),
                format!("--cert-dir={}", folder.join("apiserver").display()),
                format!("--token-auth-file={}", identity.tokens.display()),
                format!(
                    "--service-account-key-file={}",
                    identity.service_account_public.display()
                ),
                format!(
                    "--service-account-signing-key-file={}",
                    identity.service_account_key.display()
                ),
                format!("--service-account-issuer=https://127.0.0.1:{port}"),
                "--authorization-mode=RBAC".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
                // Pods need no service account, hence no controller that makes them.
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                // Without these it looks for a default route, and publishes an address that Pods could reach.
                "--advertise-address=127.0.0.1".to_owned(),
                "--endpoint-reconciler-type=none".to_owned(),
            ]);
            if site.options.audited {
                let policy = folder.write("audit-policy.yaml", AUDIT_POLICY)?;
                args.push(format!("--audit-policy-file={}", policy.display()));
                args.push(format!("--audit-log-path={}", folder.join("audit.log").display()));
            }
            args
        }
        Part::Scheduler | Part::ControllerManager => {
            let mut args = serving();
            args.extend([
                format!("--authentication-kubeconfig={kubeconfig}"),
                format!("--authorization-kubeconfig={kubeconfig}"),
            ]);
            let configuration = match (&site.options.added_affinity, part) {
                (Some(affinity), Part::Scheduler) => Some(scheduler_configuration(
                    &kubeconfig,
                    affinity,
                    site.options.default_rates,
                )),
                _ => None,
            };
            // With a configuration file, flags for what the file can say are ignored.
            if let Some(configuration) = configuration {
                let path = folder.write("kube-scheduler.yaml", configuration.to_string())?;
                args.push(format!("--config={}", path.display()));
            } else {
                args.push(format!("--kubeconfig={kubeconfig}"));
                args.push("--leader-elect=false".to_owned());
                if !site.options.default_rates {
                    args.push(format!("--kube-api-qps={RAISED_QPS}"));
                    args.push(format!("--kube-api-burst={RAISED_BURST}"));
                }
            }
            if part == Part::ControllerManager {
                args.extend([
                    format!(
                        "--service-account-private-key-file={}",
                        site.identity.service_account_key.display()
                    ),
                    format!("--root-ca-file={}", site.identity.ca.display()),
                ]);
            }
            args
        }
        Part::Kwok => {
            let config = folder.write("kwok.yaml", KWOK_CONFIG)?;
            vec![
                format!("--config={}", config.display()),
                format!("--kubeconfig={kubeconfig}"),
                format!("--server-address=127.0.0.1:{port}"),
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
                // Addresses that nothing has, and room for a hundred thousand Pods.
                "--node-ip=192.0.2.1".to_owned(),
                "--cidr=10.128.0.0/15".to_owned(),
                // The leases are the heartbeat that the controller manager watches.
                "--node-lease-duration-seconds=40".to_owned(),
            ]
        }
        Part::Karpenter => {
            env.extend([
                (
                    "KUBECONFIG",
                    folder.join("provisioner.kubeconfig").display().to_string(),
                ),
                ("SYSTEM_NAMESPACE", "kube-system".to_owned()),
                ("DISABLE_LEADER_ELECTION", "true".to_owned()),
                ("FEATURE_GATES", "NodeOverlay=true".to_owned()),
                (
                    "INSTANCE_TYPES_FILE_PATH",
                    part::karpenter_instance_types()?.display().to_string(),
                ),
                ("HEALTH_PROBE_PORT", port.to_string()),
                ("METRICS_PORT", second_port.to_string()),
            ]);
            Vec::new()
        }
        Part::Moto => {
            env.push(("MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION", "1".to_owned()));
            env.push(("MOTO_ENABLE_AMI_VALIDATION", "1".to_owned()));
            // Where a whole run of tests notes which calls were made.
            env.extend(std::env::var("VENEER_AWS_CALLS").map(|folder| ("VENEER_AWS_CALLS", folder)));
            vec![port.to_string()]
        }
        Part::Prometheus => {
            let jobs: &[&str] = if site.options.scraped_twice {
                &["exporter", "exporter-again"]
            } else {
                &["exporter"]
            };
            let jobs = jobs.iter().map(|job| {
                format!("{{job_name: {job}, static_configs: [{{targets: ['127.0.0.1:{second_port}']}}]}}")
            });
            let config = format!(
                "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs: [{}]\n",
                jobs.collect::<Vec<_>>().join(", ")
            );
            let config = folder.write("prometheus.yaml", config)?;
            vec![
                format!("--config.file={}", config.display()),
                format!("--storage.tsdb.path={}", folder.join("prometheus").display()),
                format!("--web.listen-address=127.0.0.1:{port}"),
            ]
        }
    };
    Ok(Invocation {
        binary: part.binary()?,
        args,
        env,
    })
}

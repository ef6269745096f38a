//! Node classes that use every field which reaches a launch template, and claims with labels and taints.

use serde_json::{Map, Value, json};
use veneer_api::EC2NodeClass;

use super::{CaseCluster, Launch};
use crate::rng::Rng;

const SIGNALS: [&str; 4] = [
    "memory.available",
    "nodefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

pub(super) fn launch(images: &[String], rng: &mut Rng) -> Launch {
    let ipv6 = rng.chance(15);
    let mut labels = Map::new();
    labels.insert("karpenter.sh/nodepool".to_owned(), "default".into());
    let known = [
        ("team", "a"),
        ("example.com/tier", "web"),
        ("node.kubernetes.io/instance-type", "m5.large"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
        ("kubernetes.io/hostname", "x"),
        ("node-restriction.kubernetes.io/fpga", "true"),
        ("my.k8s.io/x", "1"),
        ("k8s.io.example.com/x", "1"),
        ("karpenter.k8s.aws/instance-family", "m5"),
        ("karpenter.sh/capacity-type", "spot"),
    ];
    for (key, value) in known {
        if rng.chance(30) {
            labels.insert(key.to_owned(), value.into());
        }
    }
    Launch {
        class: class(images, rng),
        labels: labels.into(),
        taints: taints(rng),
        startup_taints: taints(rng),
        cluster: CaseCluster {
            dns: if ipv6 { "fd00:10::a" } else { "10.0.100.10" },
            ca: rng.chance(85).then_some("Y2EK"),
            cidr: rng.chance(97).then_some("10.100.0.0/16"),
            region: if rng.chance(20) {
                "us-iso-east-1"
            } else {
                "us-east-1"
            },
        },
    }
}

fn taints(rng: &mut Rng) -> Value {
    let mut all = Vec::new();
    for (key, value, effect) in [
        ("gpu", "true", "NoSchedule"),
        ("gpu", "yes", "NoExecute"),
        ("bare", "", "PreferNoSchedule"),
        ("karpenter.sh/unregistered", "", "NoExecute"),
    ] {
        if rng.chance(15) {
            all.push(match value {
                "" => json!({"key": key, "effect": effect}),
                value => json!({"key": key, "value": value, "effect": effect}),
            });
        }
    }
    all.into()
}

pub(crate) fn class(images: &[String], rng: &mut Rng) -> Value {
    let family = *rng.pick(&[
        "AL2023",
        "AL2023",
        "AL2",
        "Bottlerocket",
        "Windows2019",
        "Windows2022",
        "Windows2025",
        "Custom",
    ]);
    let mut spec = Map::new();
    let mut set = |key: &str, value: Value| drop(spec.insert(key.to_owned(), value));
    let selects = json!([{"tags": {"karpenter.sh/discovery": "test"}}]);
    set("subnetSelectorTerms", selects.clone());
    set("securityGroupSelectorTerms", selects);
    set("role", "node".into());
    let version = match family {
        "Bottlerocket" => *rng.pick(&["latest", "v1.45.0", "v1.46.0", "1.50.2", "v2.0.1", "1.46"]),
        _ => "latest",
    };
    match rng.below(4) {
        0 | 1 if family != "Custom" => {
            set(
                "amiSelectorTerms",
                json!([{"alias": format!("{}@{version}", family.to_lowercase())}]),
            );
            if rng.chance(50) {
                set("amiFamily", family.into());
            }
        }
        2 => {
            let name = *rng.pick(&["bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a", "my-*"]);
            set("amiSelectorTerms", json!([{"name": name}]));
            set("amiFamily", family.into());
        }
        _ => {
            let id = images.first().map_or("ami-none", String::as_str);
            set("amiSelectorTerms", json!([{"id": id}]));
            set("amiFamily", family.into());
        }
    }
    if rng.chance(50) {
        set("userData", user_data(family, rng).into());
    }
    if rng.chance(50) {
        let disks = (0..rng.between(1, 3)).map(|at| disk(at, rng)).collect::<Vec<_>>();
        set("blockDeviceMappings", disks.into());
    }
    if rng.chance(50) {
        set("metadataOptions", metadata(rng));
    }
    if rng.chance(25) {
        let mut cards = vec![json!({"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"})];
        for at in 1..=rng.between(0, 3) {
            let kind = *rng.pick(&["interface", "efa-only"]);
            cards.push(json!({"networkCardIndex": at, "deviceIndex": 1, "interfaceType": kind}));
        }
        set("networkInterfaces", cards.into());
    }
    if rng.chance(30) {
        set("associatePublicIPAddress", rng.chance(50).into());
    }
    if rng.chance(25) {
        set("ipPrefixCount", rng.between(0, 4).into());
    }
    if rng.chance(30) {
        set("detailedMonitoring", rng.chance(70).into());
    }
    if rng.chance(40) {
        set(
            "tags",
            json!({"team": "a", "Name": "mine", "cost centre": "1/2 & 3"}),
        );
    }
    if rng.chance(25) {
        set("instanceStorePolicy", "RAID0".into());
    }
    if rng.chance(25) {
        let mut tracking = Map::new();
        for (key, seconds) in [
            ("tcpEstablishedTimeout", 350),
            ("udpStreamTimeout", 120),
            ("udpTimeout", 45),
        ] {
            if rng.chance(60) {
                tracking.insert(key.to_owned(), seconds.into());
            }
        }
        set("connectionTracking", tracking.into());
    }
    if rng.chance(15) {
        let nested = *rng.pick(&["enabled", "disabled"]);
        set("cpuOptions", json!({"nestedVirtualization": nested}));
    }
    if rng.chance(15) {
        let group = if rng.chance(50) {
            json!({"id": "pg-1"})
        } else {
            json!({"name": "close"})
        };
        set("placementGroupSelector", group);
    }
    if rng.chance(60) {
        set("kubelet", kubelet(rng));
    }
    let groups: Vec<Value> = (0..rng.between(1, 3))
        .map(|at| json!({"id": format!("sg-{at}")}))
        .collect();
    let class = json!({"metadata": {"name": "default", "uid": "c1a5"}, "spec": spec,
        "status": {"securityGroups": groups, "instanceProfile": "nodes_123"}});
    // Through our type, which fills in what an API server fills in.
    let filled = serde_json::from_value::<EC2NodeClass>(class).and_then(serde_json::to_value);
    filled.unwrap_or_default()
}

fn disk(at: i64, rng: &mut Rng) -> Value {
    let mut ebs = Map::new();
    let mut maybe = |key: &str, value: Value, rng: &mut Rng| {
        if rng.chance(50) {
            ebs.insert(key.to_owned(), value);
        }
    };
    maybe("deleteOnTermination", rng.chance(50).into(), rng);
    maybe("encrypted", rng.chance(50).into(), rng);
    maybe("iops", rng.between(100, 16_000).into(), rng);
    maybe("throughput", rng.between(125, 1000).into(), rng);
    maybe("kmsKeyID", "arn:aws:kms:us-east-1:1:key/k".into(), rng);
    maybe("snapshotID", "snap-1".into(), rng);
    maybe("volumeInitializationRate", rng.between(100, 300).into(), rng);
    maybe(
        "volumeType",
        (*rng.pick(&["gp2", "gp3", "io1", "io2", "st1"])).into(),
        rng,
    );
    let size = *rng.pick(&["20Gi", "100G", "1Ti", "2T", "59000Gi"]);
    maybe("volumeSize", size.into(), rng);
    let mut mapping = json!({"deviceName": format!("/dev/xvd{at}"), "ebs": ebs});
    if at == 1 {
        mapping["rootVolume"] = rng.chance(50).into();
    }
    mapping
}

fn metadata(rng: &mut Rng) -> Value {
    let toggle = |rng: &mut Rng| *rng.pick(&["enabled", "disabled"]);
    json!({
        "httpEndpoint": toggle(rng),
        "httpProtocolIPv6": toggle(rng),
        "httpPutResponseHopLimit": rng.between(1, 3),
        "httpTokens": *rng.pick(&["required", "optional"]),
    })
}

fn kubelet(rng: &mut Rng) -> Value {
    let mut all = Map::new();
    let mut maybe = |key: &str, value: Value, rng: &mut Rng| {
        if rng.chance(35) {
            all.insert(key.to_owned(), value);
        }
    };
    maybe(
        "clusterDNS",
        json!([*rng.pick(&["10.1.2.3", "fd00::1"]), "10.1.2.4"]),
        rng,
    );
    maybe("maxPods", rng.between(5, 200).into(), rng);
    maybe("podsPerCore", rng.between(0, 10).into(), rng);
    maybe(
        "systemReserved",
        json!({"cpu": "100m", "memory": "200Mi", "ephemeral-storage": "1Gi"}),
        rng,
    );
    maybe("kubeReserved", json!({"cpu": "200m", "pid": "1000"}), rng);
    let signals = |values: &[&str], rng: &mut Rng| {
        let chosen = SIGNALS.iter().filter(|_| rng.chance(50)).collect::<Vec<_>>();
        let mut map: Map<String, Value> = chosen
            .into_iter()
            .map(|key| ((*key).to_owned(), (*rng.pick(values)).into()))
            .collect();
        map.entry(SIGNALS[0]).or_insert_with(|| values[0].into());
        Value::Object(map)
    };
    maybe("evictionHard", signals(&["5%", "100Mi"], rng), rng);
    maybe("evictionSoft", signals(&["10%", "500Mi"], rng), rng);
    maybe(
        "evictionSoftGracePeriod",
        signals(&["1m", "90s", "2m0s", "1h", "1500ms", "1m30s"], rng),
        rng,
    );
    maybe("evictionMaxPodGracePeriod", rng.between(0, 60).into(), rng);
    maybe("imageGCHighThresholdPercent", rng.between(50, 100).into(), rng);
    maybe("imageGCLowThresholdPercent", rng.between(0, 49).into(), rng);
    maybe("cpuCFSQuota", rng.chance(50).into(), rng);
    all.into()
}

fn user_data(family: &str, rng: &mut Rng) -> String {
    const ARCHIVE: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"BOUNDARY\"\n\n--BOUNDARY\n\
        Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/bash\necho first\n\n--BOUNDARY\n\
        Content-Type: text/cloud-config\n\n#cloud-config\nruncmd: [\"echo 1\"]\n--BOUNDARY--\n";
    const NODE_CONFIG: &str = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  featureGates:\n    FastImagePull: true\n";
    let choices: &[&str] = match family {
        "AL2023" => &[
            ARCHIVE,
            NODE_CONFIG,
            "#!/bin/bash\necho 'a: b'\n",
            "echo: [unclosed",
            "MIME-Version: 1.0\n\nnot an archive",
            "",
        ],
        "AL2" => &[
            ARCHIVE,
            "#!/bin/bash\necho \"hello\" && true",
            "MIME-Version: 1.0\n\nnot an archive",
            "",
        ],
        "Bottlerocket" => &[
            "[settings.kubernetes]\nkube-api-qps = 30\nmax-pods = 5\ncluster-name = \"other\"\nallowed-unsafe-sysctls = [\"net.core.somaxconn\"]\n\
             [settings.kubernetes.node-labels]\nown = \"1\"\nteam = \"theirs\"\n[settings.kubernetes.node-taints]\nold = [\"x:NoSchedule\"]\n\
             [settings.kubernetes.eviction-hard]\n\"memory.available\" = \"12%\"\n",
            "[settings.ntp]\ntime-servers = [\"169.254.169.123\"]\n[settings.bootstrap-commands.mine]\ncommands = [[\"apiclient\", \"set\"]]\nmode = \"once\"\nessential = false\n",
            "[settings.bootstrap-containers.one]\nsource = \"example.com/one:1\"\nmode = \"once\"\n",
            "settings = 5",
            "not toml at all",
            "",
        ],
        _ => &["Write-Host \"hi\"", "#!/bin/sh\n", "MIME-Version: 1.0\n", ""],
    };
    (*rng.pick(choices)).to_owned()
}

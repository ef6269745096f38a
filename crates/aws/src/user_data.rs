//! What runs at the first start of an instance, for each family of machine images.
//!
//! Custom user data of the node class comes first and ours last, so that ours decides how the node joins; `Custom` is
//! passed on as it is. The formats are those of nodeadm (Amazon Linux 2023), of `bootstrap.sh` (Amazon Linux 2), of
//! Bottlerocket's settings and of the Windows images.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use veneer_api::ec2_node_class::{AmiFamily, KubeletConfiguration};
use veneer_engine::plan::parse_duration;

const BOUNDARY: &str = "//";
const SHELL: &str = "text/x-shellscript; charset=\"us-ascii\"";
const NODE_CONFIG: &str = "application/node.eks.aws";

/// A taint that the kubelet registers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taint {
    /// The key.
    pub(crate) key: String,
    /// The value; may be empty.
    pub(crate) value: String,
    /// The effect.
    pub(crate) effect: String,
}

/// What a node needs to know to join.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bootstrap {
    /// The name of the cluster.
    pub(crate) cluster_name: String,
    /// The address of the API server.
    pub(crate) endpoint: String,
    /// Its certificates, in base64.
    pub(crate) ca_bundle: Option<String>,
    /// The addresses of Services.
    pub(crate) service_cidr: Option<String>,
    /// Settings of the kubelet, with the number of pods and the name server filled in.
    pub(crate) kubelet: KubeletConfiguration,
    /// Taints to register with.
    pub(crate) taints: Vec<Taint>,
    /// Labels to register with.
    pub(crate) labels: BTreeMap<String, String>,
    /// What the node class adds.
    pub(crate) custom: Option<String>,
    /// Whether instance store disks become one.
    pub(crate) raid0: bool,
    /// Whether the image (Bottlerocket) knows by itself what belongs on those.
    pub(crate) binds_by_default: bool,
}

/// Why there is no user data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Bottlerocket's settings cannot be read.
    #[error("spec.userData: expected TOML for the family Bottlerocket: {0}")]
    Toml(String),
    /// The parts of a MIME archive cannot be told apart.
    #[error("spec.userData: begins like a MIME archive but has no multipart Content-Type with a boundary")]
    Mime,
    /// nodeadm cannot do without it.
    #[error("the addresses of Services are not known, and Amazon Linux 2023 needs them; set aws.serviceCidr")]
    NoServiceCidr,
}

impl Bootstrap {
    /// The user data of a family, in base64.
    pub(crate) fn render(&self, family: &AmiFamily) -> Result<String, Error> {
        let text = match family {
            AmiFamily::Al2023 => self.nodeadm()?,
            AmiFamily::Al2 => self.bootstrap_sh()?,
            AmiFamily::Bottlerocket => self.bottlerocket()?,
            AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => self.windows(),
            _ => self.custom.clone().unwrap_or_default(),
        };
        Ok(STANDARD.encode(text))
    }

    fn custom(&self) -> Option<&str> {
        self.custom.as_deref().filter(|text| !text.is_empty())
    }

    fn nodeadm(&self) -> Result<String, Error> {
        let cidr = self.service_cidr.as_deref().ok_or(Error::NoServiceCidr)?;
        let mut cluster =
            json!({"name": self.cluster_name, "apiServerEndpoint": self.endpoint, "cidr": cidr});
        if let (Some(ca), Some(fields)) = (&self.ca_bundle, cluster.as_object_mut()) {
            fields.insert("certificateAuthority".to_owned(), ca.as_str().into());
        }
        let taints: Vec<Value> = self
            .taints
            .iter()
            .map(|one| {
                let value = Some(one.value.as_str()).filter(|value| !value.is_empty());
                without_nulls(json!({"key": one.key, "effect": one.effect, "value": value}))
            })
            .collect();
        let mut kubelet = serde_json::to_value(&self.kubelet).unwrap_or_default();
        if let Some(fields) = kubelet.as_object_mut() {
            fields.insert("registerWithTaints".to_owned(), taints.into());
        }
        let flags: Option<Vec<String>> = self.label_argument().map(|labels| vec![labels]);
        let storage = self.raid0.then(|| json!({"localStorage": {"strategy": "RAID0"}}));
        let spec = without_nulls(json!({
            "cluster": cluster,
            "kubelet": without_nulls(json!({"config": kubelet, "flags": flags})),
            "instance": storage,
        }));
        let config = json!({"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec});
        // JSON is YAML, and needs no writer of its own.
        let config = serde_json::to_string_pretty(&config).unwrap_or_default();
        let mut parts = match self.custom() {
            Some(custom) => parts(custom, |text| {
                let is_yaml = veneer_api::yaml::read::<BTreeMap<String, Value>>(text).is_ok();
                if is_yaml { NODE_CONFIG } else { SHELL }
            })?,
            None => Vec::new(),
        };
        parts.push((NODE_CONFIG.to_owned(), config));
        Ok(archive(&parts))
    }

    fn bootstrap_sh(&self) -> Result<String, Error> {
        let mut script = "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n".to_owned();
        // Writing to a string cannot fail.
        let _ = write!(
            script,
            "/etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}'",
            self.cluster_name, self.endpoint
        );
        if let Some(ca) = &self.ca_bundle {
            let _ = write!(script, " --b64-cluster-ca '{ca}'");
        }
        let mut argument = |name: &str, value: &str| {
            let _ = write!(script, " \\\n{name} {value}");
        };
        if let Some(dns) = self.kubelet.cluster_dns.first() {
            if dns.contains(':') {
                argument("--ip-family", "ipv6");
            }
            argument("--dns-cluster-ip", &format!("'{dns}'"));
        }
        if self.kubelet.max_pods.is_some() {
            argument("--use-max-pods", "false");
        }
        argument(
            "--kubelet-extra-args",
            &format!("'{}'", self.kubelet_arguments().join(" ")),
        );
        if self.raid0 {
            argument("--local-disks", "raid0");
        }
        let mut parts = match self.custom() {
            Some(custom) => parts(custom, |_| SHELL)?,
            None => Vec::new(),
        };
        parts.push((SHELL.to_owned(), script));
        Ok(archive(&parts))
    }

    fn windows(&self) -> String {
        let mut script = "<powershell>\n".to_owned();
        if let Some(custom) = self.custom() {
            script.push_str(custom);
            script.push('\n');
        }
        script.push_str(
            "[string]$EKSBootstrapScriptFile = \"$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1\"\n",
        );
        let _ = write!(
            script,
            "& $EKSBootstrapScriptFile -EKSClusterName '{}' -APIServerEndpoint '{}'",
            self.cluster_name, self.endpoint
        );
        if let Some(ca) = &self.ca_bundle {
            let _ = write!(script, " -Base64ClusterCA '{ca}'");
        }
        let _ = write!(
            script,
            " -KubeletExtraArgs '{}'",
            self.kubelet_arguments().join(" ")
        );
        if let Some(dns) = self.kubelet.cluster_dns.first() {
            let _ = write!(script, " -DNSClusterIP '{dns}'");
        }
        script.push_str("\n</powershell>");
        script
    }

    fn bottlerocket(&self) -> Result<String, Error> {
        let mut document: toml::Table = self
            .custom
            .as_deref()
            .unwrap_or_default()
            .parse()
            .map_err(|error: toml::de::Error| Error::Toml(error.message().to_owned()))?;
        let not_a_table = || Error::Toml("settings and settings.kubernetes must be tables".to_owned());
        let settings = table(&mut document, "settings").ok_or_else(not_a_table)?;
        let kubernetes = table(settings, "kubernetes").ok_or_else(not_a_table)?;
        let mut set = |key: &str, value: toml::Value| {
            kubernetes.insert(key.to_owned(), value);
        };
        set("cluster-name", self.cluster_name.as_str().into());
        set("api-server", self.endpoint.as_str().into());
        if let Some(ca) = &self.ca_bundle {
            set("cluster-certificate", ca.as_str().into());
        }
        let kubelet = &self.kubelet;
        if let Some(dns) = kubelet.cluster_dns.first() {
            set("cluster-dns-ip", dns.as_str().into());
        }
        if let Some(pods) = kubelet.max_pods {
            set("max-pods", i64::from(pods).into());
        }
        if let Some(seconds) = kubelet.eviction_max_pod_grace_period {
            set("eviction-max-pod-grace-period", i64::from(seconds).into());
        }
        if let Some(percent) = kubelet.image_gc_high_threshold_percent {
            set("image-gc-high-threshold-percent", percent.to_string().into());
        }
        if let Some(percent) = kubelet.image_gc_low_threshold_percent {
            set("image-gc-low-threshold-percent", percent.to_string().into());
        }
        if let Some(quota) = kubelet.cpu_cfs_quota {
            set("cpu-cfs-quota-enforced", quota.into());
        }
        let maps = [
            ("system-reserved", &kubelet.system_reserved),
            ("kube-reserved", &kubelet.kube_reserved),
            ("eviction-hard", &kubelet.eviction_hard),
            ("eviction-soft", &kubelet.eviction_soft),
            ("eviction-soft-grace-period", &kubelet.eviction_soft_grace_period),
        ];
        for (key, map) in maps.into_iter().filter(|(_, map)| !map.is_empty()) {
            let entries = map
                .iter()
                .map(|(key, value)| (key.clone(), value.as_str().into()));
            set(key, toml::Value::Table(entries.collect()));
        }
        let mut taints: BTreeMap<&str, Vec<toml::Value>> = BTreeMap::new();
        for taint in &self.taints {
            let text = format!("{}:{}", taint.value, taint.effect);
            taints.entry(&taint.key).or_default().push(text.into());
        }
        let taints = taints
            .into_iter()
            .map(|(key, list)| (key.to_owned(), list.into()));
        set("node-taints", toml::Value::Table(taints.collect()));
        let labels = table(kubernetes, "node-labels").ok_or_else(not_a_table)?;
        for (key, value) in &self.labels {
            labels.insert(key.clone(), value.as_str().into());
        }
        if self.raid0 {
            let commands = table(settings, "bootstrap-commands").ok_or_else(not_a_table)?;
            let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
            if !self.binds_by_default {
                bind.extend([
                    "--dirs",
                    "/var/lib/containerd",
                    "/var/lib/kubelet",
                    "/var/log/pods",
                ]);
            }
            let mut mount = toml::Table::new();
            let list = |words: &[&str]| toml::Value::Array(words.iter().map(|word| (*word).into()).collect());
            let both = vec![list(&["apiclient", "ephemeral-storage", "init"]), list(&bind)];
            mount.insert("commands".to_owned(), both.into());
            mount.insert("essential".to_owned(), true.into());
            mount.insert("mode".to_owned(), "always".into());
            commands.insert("000-mount-instance-storage".to_owned(), mount.into());
        }
        toml::to_string(&document).map_err(|error| Error::Toml(error.to_string()))
    }

    fn label_argument(&self) -> Option<String> {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        (!labels.is_empty()).then(|| format!("--node-labels=\"{}\"", labels.join(",")))
    }

    fn kubelet_arguments(&self) -> Vec<String> {
        let taints: Vec<String> = self.taints.iter().map(taint_text).collect();
        let mut arguments: Vec<String> = self.label_argument().into_iter().collect();
        arguments.push(format!("--register-with-taints=\"{}\"", taints.join(",")));
        let kubelet = &self.kubelet;
        let number = |name: &str, value: Option<i32>| value.map(|value| format!("--{name}={value}"));
        arguments.extend(number("max-pods", kubelet.max_pods));
        arguments.extend(number("pods-per-core", kubelet.pods_per_core));
        let maps = [
            ("system-reserved", &kubelet.system_reserved, "="),
            ("kube-reserved", &kubelet.kube_reserved, "="),
            ("eviction-hard", &kubelet.eviction_hard, "<"),
            ("eviction-soft", &kubelet.eviction_soft, "<"),
            (
                "eviction-soft-grace-period",
                &kubelet.eviction_soft_grace_period,
                "=",
            ),
        ];
        for (name, map, between) in maps.into_iter().filter(|(_, map, _)| !map.is_empty()) {
            let entries: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}{between}{value}"))
                .collect();
            arguments.push(format!("--{name}=\"{}\"", entries.join(",")));
        }
        let numbers = [
            number(
                "eviction-max-pod-grace-period",
                kubelet.eviction_max_pod_grace_period,
            ),
            number("image-gc-high-threshold", kubelet.image_gc_high_threshold_percent),
            number("image-gc-low-threshold", kubelet.image_gc_low_threshold_percent),
        ];
        arguments.extend(numbers.into_iter().flatten());
        arguments.extend(
            kubelet
                .cpu_cfs_quota
                .map(|quota| format!("--cpu-cfs-quota={quota}")),
        );
        arguments
    }
}

/// A duration as Go writes it: `1m30s`. What is none stays as it is.
pub(crate) fn go_duration(text: &str) -> String {
    let Some(length) = parse_duration(text) else {
        return text.to_owned();
    };
    let (seconds, nanoseconds) = (length.as_secs(), length.subsec_nanos());
    if seconds == 0 && nanoseconds > 0 {
        return format!("{}ms", f64::from(nanoseconds) / 1e6);
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = (seconds % 60) as f64 + f64::from(nanoseconds) / 1e9;
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// An object without what it does not say.
fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

fn taint_text(taint: &Taint) -> String {
    match taint.value.as_str() {
        "" => format!("{}:{}", taint.key, taint.effect),
        value => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

fn table<'t>(of: &'t mut toml::Table, key: &str) -> Option<&'t mut toml::Table> {
    let entry = of
        .entry(key)
        .or_insert_with(|| toml::Value::Table(toml::Table::new()));
    entry.as_table_mut()
}

/// A MIME archive.
fn archive(parts: &[(String, String)]) -> String {
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\n\n");
    for (content_type, content) in parts {
        let _ = write!(text, "--{BOUNDARY}\nContent-Type: {content_type}\n\n{content}\n");
    }
    text.push_str(&format!("--{BOUNDARY}--\n"));
    text
}

/// The parts of custom user data: of an archive its own, else the whole as one of the type that `guess` says.
fn parts(custom: &str, guess: impl Fn(&str) -> &'static str) -> Result<Vec<(String, String)>, Error> {
    let trimmed = custom.trim_start();
    if !trimmed.starts_with("MIME-Version:") && !trimmed.starts_with("Content-Type:") {
        return Ok(vec![(guess(custom).to_owned(), custom.to_owned())]);
    }
    let text = trimmed.replace('\r', "");
    let (head, body) = text.split_once("\n\n").ok_or(Error::Mime)?;
    let boundary = head
        .split_once("boundary=")
        .map(|(_, after)| {
            after
                .split(['\n', ';'])
                .next()
                .unwrap_or_default()
                .trim()
                .trim_matches('"')
        })
        .filter(|boundary| !boundary.is_empty() && head.to_ascii_lowercase().contains("multipart/"))
        .ok_or(Error::Mime)?;
    let mark = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut current: Option<Vec<&str>> = None;
    for line in body.lines() {
        if line.trim_end() == mark || line.trim_end() == format!("{mark}--") {
            parts.extend(current.take().map(|lines| part(&lines.join("\n"))));
            current = Some(Vec::new());
        } else if let Some(lines) = &mut current {
            lines.push(line);
        }
    }
    Ok(parts)
}

fn part(text: &str) -> (String, String) {
    let (head, content) = text.split_once("\n\n").unwrap_or(("", text));
    let content_type = head.lines().find_map(|line| line.strip_prefix("Content-Type:"));
    (
        content_type.unwrap_or(SHELL).trim().to_owned(),
        content.to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bootstrap(custom: Option<&str>) -> Bootstrap {
        Bootstrap {
            cluster_name: "prod".to_owned(),
            endpoint: "https://api".to_owned(),
            ca_bundle: Some("Q0E=".to_owned()),
            service_cidr: Some("10.0.0.0/16".to_owned()),
            kubelet: KubeletConfiguration {
                max_pods: Some(29),
                cluster_dns: vec!["10.0.0.10".to_owned()],
                ..KubeletConfiguration::default()
            },
            taints: vec![Taint {
                key: "karpenter.sh/unregistered".to_owned(),
                value: String::new(),
                effect: "NoExecute".to_owned(),
            }],
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            custom: custom.map(str::to_owned),
            raid0: false,
            binds_by_default: false,
        }
    }

    fn decoded(one: &Bootstrap, family: &AmiFamily) -> String {
        String::from_utf8(STANDARD.decode(one.render(family).unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn every_family_says_how_to_join() {
        for family in &[
            AmiFamily::Al2023,
            AmiFamily::Al2,
            AmiFamily::Bottlerocket,
            AmiFamily::Windows2022,
        ] {
            let text = decoded(&bootstrap(None), family);
            for fact in [
                "prod",
                "https://api",
                "Q0E=",
                "29",
                "10.0.0.10",
                "karpenter.sh/unregistered",
                "team",
            ] {
                assert!(text.contains(fact), "{fact} in\n{text}");
            }
        }
        assert_eq!(
            decoded(&bootstrap(Some("anything")), &AmiFamily::Custom),
            "anything"
        );
    }

    #[test]
    fn custom_parts_come_before_ours() {
        let mime = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n--B\nContent-Type: text/x-shellscript\n\necho a\n--B\nContent-Type: application/node.eks.aws\n\nkind: NodeConfig\n--B--\n";
        let text = decoded(&bootstrap(Some(mime)), &AmiFamily::Al2023);
        let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle} in\n{text}"));
        assert!(at("echo a") < at("kind: NodeConfig") && at("kind: NodeConfig") < at("\"NodeConfig\""));
        assert_eq!(text.matches("\n--//\n").count(), 3);
        // A script and a configuration are told apart.
        let script = decoded(&bootstrap(Some("#!/bin/sh\necho b")), &AmiFamily::Al2023);
        assert!(script.contains("text/x-shellscript"), "{script}");
        let config = decoded(
            &bootstrap(Some("kind: NodeConfig\nspec: {}\n")),
            &AmiFamily::Al2023,
        );
        assert_eq!(config.matches("application/node.eks.aws").count(), 2, "{config}");
    }

    #[test]
    fn bottlerocket_keeps_settings_that_are_not_ours() {
        let custom = "[settings.kubernetes]\nkube-api-qps = 30\ncluster-name = \"x\"\n[settings.kubernetes.node-labels]\nown = \"1\"\n";
        let text = decoded(&bootstrap(Some(custom)), &AmiFamily::Bottlerocket);
        for fact in [
            "kube-api-qps = 30",
            "own = \"1\"",
            "team = \"a\"",
            "cluster-name = \"prod\"",
        ] {
            assert!(text.contains(fact), "{fact} in\n{text}");
        }
        let broken = bootstrap(Some("settings = 5"));
        assert!(matches!(
            broken.render(&AmiFamily::Bottlerocket),
            Err(Error::Toml(_))
        ));
        let broken = bootstrap(Some("MIME-Version: 1.0\n\nx"));
        assert_eq!(broken.render(&AmiFamily::Al2), Err(Error::Mime));
    }
}

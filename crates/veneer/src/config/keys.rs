//! The table of keys. The name of a key in the file gives its flag and its variable: `overlays.mixedPools` is
//! `--overlays-mixed-pools` and `VENEER_OVERLAYS_MIXED_POOLS`.

use super::values::{
    account, address, boolean, cidr, cluster_name, dns_label, dns_prefix, duration, headers, label_key,
    level, log_format, matchers, mixed_pools, percent, pricing, queue, region, small_number, source, text,
    url, weight, whole_or_fraction,
};
use super::{Config, file};

/// One key.
pub(crate) struct Key {
    /// Its name in the file.
    pub(crate) path: &'static str,
    /// What it is for.
    pub(crate) help: &'static str,
    /// The default, as it would be written.
    pub(crate) default: &'static str,
    /// The accepted form, for messages.
    pub(crate) expected: &'static str,
    /// Takes over a text, or nothing if it does not have the accepted form.
    pub(super) set: fn(&mut Config, &str) -> Option<()>,
}

impl Key {
    /// The words of the name: `overlays.mixedPools` → overlays, mixed, pools.
    fn words(&self) -> Vec<String> {
        let mut words = vec![String::new()];
        for letter in self.path.chars() {
            if letter == '.' || letter.is_ascii_uppercase() {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut().filter(|_| letter != '.') {
                word.push(letter.to_ascii_lowercase());
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    /// The flag without its dashes.
    pub(crate) fn long(&self) -> String {
        self.words().join("-")
    }

    pub(crate) fn flag(&self) -> String {
        format!("--{}", self.long())
    }

    /// The variables that set it, the usual one first.
    pub(crate) fn variables(&self) -> impl Iterator<Item = String> + use<> {
        let usual = format!("VENEER_{}", self.words().join("_").to_uppercase());
        // The first release spelled this one in the singular.
        let older = (self.path == "overlays.disabled").then(|| "VENEER_OVERLAY_DISABLED".to_owned());
        std::iter::once(usual).chain(older)
    }

    pub(crate) fn is_boolean(&self) -> bool {
        self.expected == file::BOOLEAN
    }
}

/// A row: name, default, accepted form, help, and where the value goes.
macro_rules! keys {
    ($( $path:literal, $default:literal, $expected:expr, $help:literal, $parse:ident => $($field:ident).+ $(as $wrap:ident)? ; )+) => {
        /// All keys, in the order in which they are documented.
        pub(crate) const KEYS: &[Key] = &[$(Key {
            path: $path,
            help: $help,
            default: $default,
            expected: $expected,
            set: |config, text| {
                config.$($field).+ = $($wrap)?($parse(text)?);
                Some(())
            },
        }),+];
    };
}

keys! {
    "logLevel", "info", "error, warn, info, debug or trace", "What is logged", level => log_level;
    "logFormat", "", "text (or pretty) or json", "Format of the log on standard error; by default text on a terminal, else json", log_format => log_format as Some;
    "metricsBindAddress", ":8080", file::ADDRESS, "Where /metrics and /debug/decisions are served; 0 for nowhere", address => metrics_bind_address;
    "healthProbeBindAddress", ":8081", file::ADDRESS, "Where /healthz and /readyz are served; 0 for nowhere", address => health_probe_bind_address;
    "prometheusUrl", "", "a URL such as http://prometheus.monitoring:9090", "Prometheus with the Savings Plan and Reserved Instance metrics; without it there are no cost-aware overlays", url => prometheus_url as Some;
    "prometheus.timeout", "10s", file::DURATION, "How long one query may take", duration => prometheus.timeout;
    "prometheus.retries", "2", "a number from 0 to 10", "How often a failed query is tried again", small_number => prometheus.retries;
    "prometheus.bearerTokenFile", "", file::PATH, "A file with the bearer token for Prometheus; read again when it changes", text => prometheus.bearer_token_file as Some;
    "prometheus.username", "", "a user name", "The user for basic authentication", text => prometheus.username as Some;
    "prometheus.passwordFile", "", file::PATH, "A file with the password for basic authentication", text => prometheus.password_file as Some;
    "prometheus.caFile", "", file::PATH, "A file with the certificates (PEM) that Prometheus' own is signed by", text => prometheus.ca_file as Some;
    "prometheus.headers", "", "pairs such as X-Scope-OrgID=team,X-Other=1", "More headers for every query", headers => prometheus.headers;
    "prometheus.matcher", "", "label matchers such as job=\"lumina\",namespace=\"lumina\", with at least one = or =~", "Label matchers that series about commitments must meet, in every query; without them, whoever is scraped can invent commitments", matchers => prometheus.matcher as Some;
    "commitments.source", "prometheus", "prometheus or aws", "Where commitments are read: the metrics of an exporter in Prometheus, or the accounts themselves (aws)", source => commitments.source;
    "commitments.configFile", "", file::PATH, "The accounts to collect with commitments.source aws, as veneer export reads them; by default aws.accountId in aws.region", text => commitments.config_file as Some;
    "aws.accountId", "", "12 digits such as \"123456789012\" (in quotes in YAML)", "The account whose Reserved Instances and EC2 Instance Savings Plans count", account => aws_account_id;
    "aws.region", "", "a region such as us-west-2", "The region of the cluster", region => aws_region;
    "aws.sharedPlans", "true", file::BOOLEAN, "Whether Compute Savings Plans of every account count", boolean => aws_shared_plans;
    "aws.clusterName", "", "a name of letters, digits, dashes and underscores, at most 100, such as prod", "The name of the cluster, in the tags of everything that standalone mode makes on EC2", cluster_name => aws_cluster_name;
    "aws.clusterEndpoint", "", "a URL such as https://ABC.gr7.us-west-2.eks.amazonaws.com", "The API server as EC2 nodes reach it; by default the address that Veneer itself uses", url => aws_cluster_endpoint as Some;
    "aws.serviceCidr", "", "a range such as 10.100.0.0/16", "The addresses of Services, for Amazon Linux 2023; by default as the cluster says (ServiceCIDR)", cidr => aws_service_cidr as Some;
    "aws.interruptionQueue", "", "the name of a queue such as prod-interruptions", "The SQS queue from which nodes are drained ahead of interruptions", queue => aws_interruption_queue as Some;
    "overlays.disabled", "false", file::BOOLEAN, "Writes overlays that match nothing", boolean => overlays.disabled;
    "overlays.utilizationThreshold", "95", "a number above 0, at most 100", "Plans used more than this (in percent) get no overlay", percent => overlays.utilization_threshold;
    "overlays.hysteresis", "5", "a number from 0 to 100", "An overlay returns this far (in percent) below the threshold", whole_or_fraction => overlays.hysteresis;
    "overlays.weights.reservedInstance", "30", file::WEIGHT, "The weight of Reserved Instance overlays", weight => overlays.weights.reserved_instance;
    "overlays.weights.ec2InstanceSavingsPlan", "20", file::WEIGHT, "The weight of EC2 Instance Savings Plan overlays", weight => overlays.weights.ec2_instance_savings_plan;
    "overlays.weights.computeSavingsPlan", "10", file::WEIGHT, "The weight of Compute Savings Plan overlays", weight => overlays.weights.compute_savings_plan;
    "overlays.naming.reservedInstancePrefix", "cost-aware-ri", file::PREFIX, "What the names of Reserved Instance overlays begin with", dns_prefix => overlays.naming.reserved_instance;
    "overlays.naming.ec2InstanceSavingsPlanPrefix", "cost-aware-ec2-sp", file::PREFIX, "What the names of EC2 Instance Savings Plan overlays begin with", dns_prefix => overlays.naming.ec2_instance_savings_plan;
    "overlays.naming.computeSavingsPlanPrefix", "cost-aware-compute-sp", file::PREFIX, "What the names of Compute Savings Plan overlays begin with", dns_prefix => overlays.naming.compute_savings_plan;
    "overlays.pricing", "ordered", "ordered or zero", "The price of what is paid for: a discount that keeps the order of prices, or 0.00", pricing => overlays.pricing;
    "overlays.discountPercent", "95", "a number above 0 and below 100, such as 95", "The discount of ordered pricing", discount => overlays.discount_percent;
    "overlays.instanceFamilyLabel", "", "a label key such as karpenter.k8s.aws/instance-family", "The label that holds the instance family; by default that of the NodePools' provider", label_key => overlays.instance_family_label as Some;
    "overlays.mixedPools", "include", "include or exclude", "Whether NodePools that can launch spot too use cost-aware overlays", mixed_pools => overlays.mixed_pools;
    "freshnessLimit", "65m", file::DURATION, "Data older than this changes nothing", duration => freshness_limit;
    "reconcileInterval", "5m", file::DURATION, "How often Prometheus is asked", duration => reconcile_interval;
    "preferences.enabled", "true", file::BOOLEAN, "Whether veneer.io/preference.N annotations become overlays", boolean => preferences_enabled;
    "leaderElection.enabled", "true", file::BOOLEAN, "Whether replicas agree on one that acts", boolean => leader_election.enabled;
    "leaderElection.namespace", "", "a namespace such as veneer-system", "Where the Lease is; by default the namespace of the Pod or the kubeconfig", dns_label => leader_election.namespace as Some;
    "leaderElection.leaseName", "veneer", "a name such as veneer", "The name of the Lease", dns_prefix => leader_election.lease_name;
    "leaderElection.leaseDuration", "15s", "a duration from 1s to 1h, such as 15s", "How long a silent leader stays leader", lease_duration => leader_election.lease_duration;
}

fn discount(text: &str) -> Option<String> {
    let number = whole_or_fraction(text)?;
    // As a NodeOverlay writes it: at most two digits before the point, digits on both sides of it.
    let form = text
        .split('.')
        .all(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        && text.split('.').count() <= 2
        && text.split('.').next().is_some_and(|whole| whole.len() <= 2);
    (form && number > 0.0 && number < 100.0).then(|| text.to_owned())
}

fn lease_duration(text: &str) -> Option<std::time::Duration> {
    let range = std::time::Duration::from_secs(1)..=std::time::Duration::from_secs(3600);
    duration(text).filter(|duration| range.contains(duration))
}

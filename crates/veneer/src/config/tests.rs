//! Every key by flag, environment and file; the order of the layers; and messages about what is wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Two good values per key, neither of them the default.
const GOOD: &[(&str, &str, &str)] = &[
    ("logLevel", "debug", "warn"),
    ("logFormat", "json", "pretty"),
    ("metricsBindAddress", "127.0.0.1:9", "0"),
    ("healthProbeBindAddress", ":9", "[::1]:8081"),
    ("prometheusUrl", "http://p:9090", "https://p.example.com/prefix/"),
    ("prometheus.timeout", "1s", "1m30s"),
    ("prometheus.retries", "0", "10"),
    ("prometheus.bearerTokenFile", "/a", "/b"),
    ("prometheus.username", "a", "b"),
    ("prometheus.passwordFile", "/a", "/b"),
    ("prometheus.caFile", "/a", "/b"),
    ("prometheus.headers", "X-Scope-OrgID=team", "A=1,B=x=y"),
    (
        "prometheus.matcher",
        "job=\"lumina\"",
        "job=~\"a|b\",namespace!=\"x\"",
    ),
    ("commitments.source", "aws", "aws"),
    ("commitments.configFile", "/a", "/b"),
    ("aws.accountId", "123456789012", "000000000001"),
    ("aws.region", "us-west-2", "us-gov-east-1"),
    ("aws.sharedPlans", "false", "false"),
    ("aws.clusterName", "prod", "prod_2"),
    (
        "aws.clusterEndpoint",
        "https://api.example",
        "https://other.example:6443",
    ),
    ("aws.serviceCidr", "10.100.0.0/16", "fd00::/108"),
    ("aws.interruptionQueue", "prod-interruptions", "other"),
    ("overlays.disabled", "true", "true"),
    ("overlays.utilizationThreshold", "80", "99.5"),
    ("overlays.hysteresis", "0", "7.5"),
    ("overlays.weights.reservedInstance", "31", "10000"),
    ("overlays.weights.ec2InstanceSavingsPlan", "21", "22"),
    ("overlays.weights.computeSavingsPlan", "11", "1"),
    ("overlays.naming.reservedInstancePrefix", "a", "b"),
    ("overlays.naming.ec2InstanceSavingsPlanPrefix", "a", "b"),
    ("overlays.naming.computeSavingsPlanPrefix", "a", "b-1"),
    ("overlays.pricing", "zero", "zero"),
    ("overlays.discountPercent", "50", "7.5"),
    ("overlays.instanceFamilyLabel", "a/b", "c"),
    ("overlays.mixedPools", "exclude", "exclude"),
    ("freshnessLimit", "1h", "90m"),
    ("reconcileInterval", "1m", "250ms"),
    ("preferences.enabled", "false", "false"),
    ("leaderElection.enabled", "false", "false"),
    ("leaderElection.namespace", "a", "b"),
    ("leaderElection.leaseName", "a", "b"),
    ("leaderElection.leaseDuration", "1s", "2s"),
];

/// What a key cannot do without.
fn companions(path: &str) -> Vec<(&'static str, &'static str)> {
    match path {
        "prometheusUrl" => vec![("aws.accountId", "123456789012"), ("aws.region", "us-west-2")],
        "commitments.source" => vec![("aws.accountId", "123456789012"), ("aws.region", "us-west-2")],
        "commitments.configFile" => vec![
            ("commitments.source", "aws"),
            ("aws.accountId", "123456789012"),
            ("aws.region", "us-west-2"),
        ],
        "prometheus.username" => vec![("prometheus.passwordFile", "/p")],
        "prometheus.passwordFile" => vec![("prometheus.username", "u")],
        _ => Vec::new(),
    }
}

/// The layers, each with the values of some keys.
#[derive(Default)]
struct Layers {
    flags: BTreeMap<&'static str, String>,
    environment: BTreeMap<String, String>,
    file: String,
}

impl Layers {
    fn key(path: &str) -> &'static Key {
        KEYS.iter().find(|key| key.path == path).unwrap()
    }

    fn flag(mut self, path: &str, text: &str) -> Self {
        self.flags.insert(Self::key(path).path, text.to_owned());
        self
    }

    fn variable(mut self, path: &str, text: &str) -> Self {
        let name = Self::key(path).variables().next().unwrap();
        self.environment.insert(name, text.to_owned());
        self
    }

    /// As YAML of one key; strings that YAML would read as something else are quoted.
    fn in_file(mut self, path: &str, text: &str) -> Self {
        let parts: Vec<&str> = path.split('.').collect();
        for (depth, part) in parts.iter().enumerate() {
            self.file.push_str(&format!("{}{part}:", "  ".repeat(depth)));
            self.file
                .push_str(if depth + 1 < parts.len() { "\n" } else { "" });
        }
        self.file.push_str(&format!(" {text:?}\n"));
        self
    }

    fn resolve(&self) -> Result<Config, String> {
        let file = File {
            name: "veneer.yaml",
            text: &self.file,
        };
        let file = (!self.file.is_empty()).then_some(&file);
        resolve(&self.flags, |name| self.environment.get(name).cloned(), file)
            .map_err(|faults| describe(&faults))
    }
}

fn with_companions(path: &str) -> Layers {
    companions(path)
        .into_iter()
        .fold(Layers::default(), |layers, (path, text)| layers.flag(path, text))
}

#[test]
fn every_key_can_be_set_by_flag_environment_and_file_in_this_order() {
    let covered: Vec<&str> = GOOD.iter().map(|(path, ..)| *path).collect();
    let keys: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
    assert_eq!(covered, keys, "every key has good values here");
    for &(path, one, two) in GOOD {
        let unset = with_companions(path).resolve();
        let by_flag = with_companions(path).flag(path, one).resolve().unwrap();
        assert_ne!(unset.as_ref(), Ok(&by_flag), "{path} by flag");
        assert_eq!(
            with_companions(path).variable(path, one).resolve().as_ref(),
            Ok(&by_flag),
            "{path} by variable"
        );
        assert_eq!(
            with_companions(path).in_file(path, one).resolve().as_ref(),
            Ok(&by_flag),
            "{path} by file"
        );

        let other = with_companions(path).flag(path, two).resolve().unwrap();
        let beaten = with_companions(path)
            .flag(path, one)
            .variable(path, two)
            .in_file(path, two);
        assert_eq!(beaten.resolve().as_ref(), Ok(&by_flag), "{path}: the flag wins");
        let beaten = with_companions(path).variable(path, two).in_file(path, one);
        assert_eq!(
            beaten.resolve().as_ref(),
            Ok(&other),
            "{path}: the variable beats the file"
        );
        let beaten = with_companions(path).variable(path, "").in_file(path, two);
        assert_eq!(
            beaten.resolve().as_ref(),
            Ok(&other),
            "{path}: an empty variable is none"
        );
    }
}

#[test]
fn the_documented_defaults_are_the_ones_in_force() {
    for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
        let set = with_companions(key.path).flag(key.path, key.default).resolve();
        let unset = with_companions(key.path).resolve();
        assert_eq!(set.unwrap(), unset.unwrap(), "{}", key.path);
    }
    assert_eq!(Layers::default().resolve().unwrap(), Config::default());
}

#[test]
fn flags_and_variables_follow_from_the_name_and_are_all_different() {
    let names: Vec<(String, String)> = KEYS
        .iter()
        .map(|key| (key.flag(), key.variables().next().unwrap()))
        .collect();
    let flags: BTreeSet<&String> = names.iter().map(|(flag, _)| flag).collect();
    let variables: BTreeSet<&String> = names.iter().map(|(_, variable)| variable).collect();
    assert_eq!((flags.len(), variables.len()), (KEYS.len(), KEYS.len()));
    for (path, flag, variable) in [
        ("prometheusUrl", "--prometheus-url", "VENEER_PROMETHEUS_URL"),
        ("aws.accountId", "--aws-account-id", "VENEER_AWS_ACCOUNT_ID"),
        (
            "metricsBindAddress",
            "--metrics-bind-address",
            "VENEER_METRICS_BIND_ADDRESS",
        ),
        (
            "overlays.disabled",
            "--overlays-disabled",
            "VENEER_OVERLAYS_DISABLED",
        ),
        (
            "overlays.weights.ec2InstanceSavingsPlan",
            "--overlays-weights-ec2-instance-savings-plan",
            "VENEER_OVERLAYS_WEIGHTS_EC2_INSTANCE_SAVINGS_PLAN",
        ),
    ] {
        let key = Layers::key(path);
        assert_eq!(
            (key.flag().as_str(), key.variables().next().unwrap().as_str()),
            (flag, variable)
        );
    }
}

#[test]
fn the_first_releases_variable_for_disabled_mode_works() {
    let mut layers = Layers::default();
    layers
        .environment
        .insert("VENEER_OVERLAY_DISABLED".to_owned(), "true".to_owned());
    assert!(layers.resolve().unwrap().overlays.disabled);
    // The usual one wins over it.
    let layers = layers.variable("overlays.disabled", "false");
    assert!(!layers.resolve().unwrap().overlays.disabled);
}

#[test]
fn thirty_bad_values_are_named_with_key_value_and_accepted_form() {
    let bad: &[(&str, &[&str])] = &[
        ("logLevel", &["loud", "INFO"]),
        ("logFormat", &["xml"]),
        ("metricsBindAddress", &["8080", ":99999", "localhost"]),
        ("healthProbeBindAddress", &["::"]),
        (
            "prometheusUrl",
            &[
                "prometheus:9090",
                "http://",
                "http://p:port",
                "http://user@p",
                "http://p/?q=1",
                "ftp://p",
            ],
        ),
        ("prometheus.timeout", &["10", "soon", "0s", "5 m", "1d", "-5s"]),
        ("prometheus.retries", &["11", "-1", "two"]),
        ("prometheus.headers", &["X", "=a", "A=1,A=2", "a b=c"]),
        (
            "prometheus.matcher",
            &[
                "lumina",
                "job=lumina",
                "job=\"lumina",
                "job=\"lumina\\\"",
                "{job=\"lumina\"}",
                "job=\"lumina\",",
                "job=\"a\" namespace=\"b\"",
                "1job=\"a\"",
                "=\"a\"",
                "job==\"a\"",
                "__name__=\"a\"",
                "job=\"a\"} or vector(1) or x{job=\"b\"",
                // These let everybody in.
                "job!=\"a\"",
                "job=~\".*\"",
                "job=\"\"",
            ],
        ),
        ("aws.accountId", &["12345678901", "1234567890123", "12345678901x"]),
        (
            "aws.region",
            &["us", "us-west", "US-WEST-2", "us-west-2a", "-west-2"],
        ),
        ("aws.sharedPlans", &["yes", "1"]),
        ("aws.clusterName", &["a b", "a/b"]),
        ("aws.clusterEndpoint", &["api.example"]),
        ("aws.serviceCidr", &["10.0.0.0", "10.0.0.0/33", "x/8"]),
        ("aws.interruptionQueue", &["https://sqs/queue", "a b"]),
        ("overlays.disabled", &["on"]),
        (
            "overlays.utilizationThreshold",
            &["0", "101", "-1", "high", "NaN"],
        ),
        ("overlays.hysteresis", &["-1", "x"]),
        ("overlays.weights.reservedInstance", &["0", "10001", "2.5"]),
        ("overlays.weights.ec2InstanceSavingsPlan", &["-20"]),
        ("overlays.weights.computeSavingsPlan", &["ten"]),
        (
            "overlays.naming.reservedInstancePrefix",
            &["-a", "A", "a_b", "a."],
        ),
        ("overlays.naming.ec2InstanceSavingsPlanPrefix", &["a-"]),
        ("overlays.naming.computeSavingsPlanPrefix", &["ä"]),
        ("overlays.pricing", &["free", "Ordered"]),
        (
            "overlays.discountPercent",
            &["0", "100", "-5", ".5", "5.", "x", "+5", "005"],
        ),
        ("overlays.instanceFamilyLabel", &["a/b/c", "-x"]),
        ("overlays.mixedPools", &["maybe"]),
        ("freshnessLimit", &["65"]),
        ("reconcileInterval", &["5000000000000000h", "5min"]),
        ("preferences.enabled", &["no"]),
        ("leaderElection.enabled", &["no"]),
        ("leaderElection.namespace", &["a b"]),
        ("leaderElection.leaseName", &["x/y"]),
        (
            "leaderElection.leaseDuration",
            &["500ms", "x", "61m", "5000000000000000h"],
        ),
    ];
    assert!(bad.len() >= 30);
    for (path, texts) in bad {
        let key = Layers::key(path);
        for text in *texts {
            let layers = [
                (with_companions(path).flag(path, text), key.flag()),
                (
                    with_companions(path).variable(path, text),
                    key.variables().next().unwrap(),
                ),
                (
                    with_companions(path).in_file(path, text),
                    "veneer.yaml".to_owned(),
                ),
            ];
            for (layers, place) in layers {
                let message = layers.resolve().unwrap_err();
                let expected = format!("\n  {path} is {text:?} ({place}); expected {}", key.expected);
                assert!(message.contains(&expected), "{path} {text}: {message}");
            }
        }
    }
}

#[test]
fn thirty_bad_files_say_what_is_wrong_where() {
    let base = "aws: {accountId: \"123456789012\", region: us-west-2}\n";
    for (text, expected) in [
        ("prometheusUrl: [", "veneer.yaml is no YAML: "),
        (
            "- a\n- b",
            "veneer.yaml holds a list; expected keys such as prometheusUrl: http://prometheus:9090",
        ),
        ("hello", "veneer.yaml holds \"hello\"; expected keys such as"),
        (
            "prometheusURL: http://p",
            "prometheusURL is no key (veneer.yaml); did you mean prometheusUrl?",
        ),
        (
            "prometheus_url: http://p",
            "prometheus_url is no key (veneer.yaml); did you mean prometheusUrl?",
        ),
        (
            "overlays: {treshold: 1}",
            "overlays.treshold is no key (veneer.yaml)",
        ),
        (
            "overlays: {utilisationThreshold: 1}",
            "overlays.utilisationThreshold is no key (veneer.yaml); did you mean overlays.utilizationThreshold?",
        ),
        (
            "overlays: {weights: {reserved: 1}}",
            "overlays.weights.reserved is no key",
        ),
        (
            "overlays: true",
            "overlays is true (veneer.yaml); expected keys below it such as overlays.disabled",
        ),
        (
            "overlays: []",
            "overlays is a list (veneer.yaml); expected keys below it such as overlays.disabled",
        ),
        (
            "aws: us-west-2",
            "aws is \"us-west-2\" (veneer.yaml); expected keys below it such as aws.accountId",
        ),
        (
            "overlays: {weights: 30}",
            "overlays.weights is 30 (veneer.yaml); expected keys below it such as overlays.weights.reservedInstance",
        ),
        (
            "logLevel: {a: b}",
            "logLevel is a mapping (veneer.yaml); expected error, warn, info, debug or trace",
        ),
        (
            "logLevel: [info]",
            "logLevel is a list (veneer.yaml); expected error, warn",
        ),
        (
            "aws: {accountId: 12345678901}",
            "aws.accountId is \"12345678901\" (veneer.yaml); expected 12 digits such as \"123456789012\" (in quotes in YAML)",
        ),
        ("aws: {accountId: 1.5}", "aws.accountId is \"1.5\""),
        (
            "overlays: {disabled: 1}",
            "overlays.disabled is \"1\" (veneer.yaml); expected true or false",
        ),
        (
            "overlays: {utilizationThreshold: -0.5}",
            "overlays.utilizationThreshold is",
        ),
        (
            "overlays: {pricing: 0}",
            "overlays.pricing is \"0\" (veneer.yaml); expected ordered or zero",
        ),
        (
            "reconcileInterval: 300",
            "reconcileInterval is \"300\" (veneer.yaml); expected a duration such as 90s, 5m or 1h5m",
        ),
        (
            "prometheus: {headers: [a]}",
            "prometheus.headers is a list (veneer.yaml); expected pairs such as",
        ),
        (
            "prometheus: {headers: {a b: c}}",
            "prometheus.headers is \"a b=c\"",
        ),
        (
            "prometheus: {username: u}",
            "prometheus.passwordFile is \"\"; expected the path of a file, since prometheus.username is \"u\"",
        ),
        (
            "prometheus: {passwordFile: /p}",
            "prometheus.username is \"\"; expected a user name, since prometheus.passwordFile is \"/p\"",
        ),
        (
            "prometheus: {username: u, passwordFile: /p, bearerTokenFile: /t}",
            "prometheus.bearerTokenFile is \"/t\" and prometheus.username is \"u\"; expected one of them",
        ),
        (
            "overlays: {hysteresis: 95}",
            "overlays.hysteresis is \"95\"; expected less than overlays.utilizationThreshold, which is 95",
        ),
        (
            "overlays: {weights: {computeSavingsPlan: 20}}",
            "overlays.weights.computeSavingsPlan is \"20\"; expected another number than overlays.weights.ec2InstanceSavingsPlan",
        ),
        (
            "overlays: {weights: {reservedInstance: 10}}",
            "overlays.weights.computeSavingsPlan is \"10\"; expected another number than overlays.weights.reservedInstance",
        ),
        (
            "prometheusUrl: http://p\naws: {region: us-west-2}",
            "aws.accountId is \"\"; expected 12 digits, since prometheusUrl is set",
        ),
        (
            "prometheusUrl: http://p\naws: {accountId: \"123456789012\"}",
            "aws.region is \"\"; expected a region such as us-west-2, since prometheusUrl is set",
        ),
        ("totally: different", "totally is no key (veneer.yaml)"),
    ] {
        let file = if text.contains("aws") || text.starts_with('-') || text == "hello" {
            text.to_owned()
        } else {
            format!("{base}{text}")
        };
        let layers = Layers {
            file,
            ..Layers::default()
        };
        let message = layers.resolve().unwrap_err();
        assert!(message.contains(expected), "{text}:\n{message}");
    }
}

#[test]
fn all_errors_are_said_at_once() {
    let layers = Layers::default()
        .flag("logLevel", "loud")
        .variable("aws.accountId", "1")
        .in_file("overlays.pricing", "free");
    let message = layers.resolve().unwrap_err();
    assert!(
        message.starts_with("the configuration has 3 errors:\n"),
        "{message}"
    );
    for part in ["(--log-level)", "(VENEER_AWS_ACCOUNT_ID)", "(veneer.yaml)"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_file_may_be_empty_and_hold_nulls() {
    for text in ["", "# nothing\n", "prometheusUrl:\noverlays:\n  weights:\n"] {
        let layers = Layers {
            file: text.to_owned(),
            ..Layers::default()
        };
        assert_eq!(layers.resolve().unwrap(), Config::default(), "{text}");
    }
}

#[test]
fn the_guide_lists_every_key_with_default_and_accepted_form() {
    let page = include_str!("../../../../docs/src/configuration.md");
    for key in KEYS {
        let default = match key.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let row = format!("| `{}` | {default} | {} | {} |", key.path, key.expected, key.help);
        assert!(page.lines().any(|line| line == row), "missing: {row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, KEYS.len());
}

#[test]
fn the_command_line_has_a_flag_for_every_key() {
    use clap::{Args, Command, FromArgMatches};
    let parse = |arguments: &[String]| {
        let command = ConfigArgs::augment_args(Command::new("run").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        ConfigArgs::from_arg_matches(&matches).unwrap().0
    };
    for &(path, one, _) in GOOD {
        let key = Layers::key(path);
        let given = BTreeMap::from([(key.path, one.to_owned())]);
        assert_eq!(parse(&[format!("{}={one}", key.flag())]), given, "{path}");
        if key.is_boolean() {
            let alone = parse(&[key.flag()]);
            assert_eq!(alone.get(path).map(String::as_str), Some("true"), "{path}");
        } else {
            assert_eq!(parse(&[key.flag(), one.to_owned()]), given, "{path}");
        }
    }
    // A bad value is not refused here, but together with all the others.
    assert_eq!(parse(&["--log-level=loud".to_owned()]).len(), 1);
}

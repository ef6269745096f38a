//! The tree of a file, key by key.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use veneer_api::yaml;
use veneer_billing::{Exact, Platform};
use veneer_engine::overlay::nearest;
use veneer_inventory::series::{FIXED_LABELS, LabelNames};

use super::super::file::{ADDRESS, BOOLEAN, DURATION};
use super::super::values::{account, address, boolean, duration, level, region, text};
use super::super::{Fault, File};
use super::{AccountConfig, ExportConfig};

/// Every key, in the order of the guide; `[]` stands for the items of a list.
pub(super) const KEYS: [&str; 34] = [
    "awsAccounts",
    "awsAccounts[].accountId",
    "awsAccounts[].name",
    "awsAccounts[].assumeRoleArn",
    "awsAccounts[].region",
    "awsAccounts[].regions",
    "defaultAccount",
    "defaultAccount.accountId",
    "defaultAccount.name",
    "defaultAccount.assumeRoleArn",
    "defaultAccount.region",
    "defaultAccount.regions",
    "defaultRegion",
    "regions",
    "logLevel",
    "metricsBindAddress",
    "healthProbeBindAddress",
    "accountValidationInterval",
    "reconciliation.risp",
    "reconciliation.ec2",
    "reconciliation.pricing",
    "reconciliation.spotPricing",
    "pricing.operatingSystems",
    "pricing.spotPriceCacheExpiration",
    "pricing.defaultDiscounts.ec2Instance",
    "pricing.defaultDiscounts.compute",
    "metrics.disableInstanceMetrics",
    "metrics.labels.clusterName",
    "metrics.labels.accountName",
    "metrics.labels.accountId",
    "metrics.labels.region",
    "metrics.labels.nodeName",
    "metrics.labels.hostName",
    "metrics.nodeNameSource.tagKey",
];

/// What has keys below it.
const GROUPS: [&str; 6] = [
    "reconciliation",
    "pricing",
    "pricing.defaultDiscounts",
    "metrics",
    "metrics.labels",
    "metrics.nodeNameSource",
];

const REGION: &str = "a region such as us-west-2";
const REGIONS: &str = "a list of regions such as [us-west-2, us-east-1]";
const ACCOUNT: &str = "12 digits such as \"123456789012\" (in quotes in YAML)";
const NAME: &str = "a name such as Production";
const ROLE: &str = "the ARN of a role such as arn:aws:iam::123456789012:role/veneer-export";
const FACTOR: &str = "what is paid of the on-demand price, a number above 0 and at most 1, such as 0.72";
const LABEL: &str = "a label name of letters, digits and underscores, such as aws_account_id";
const SYSTEMS: &str = "a list of Linux, Windows, RHEL and SUSE";

pub(super) fn read(file: &File<'_>) -> Result<ExportConfig, Vec<Fault>> {
    let tree: Value = yaml::read(file.text).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        let why = yaml::describe(&error);
        vec![Fault(format!("{} is no YAML: {why} (line {line})", file.name))]
    })?;
    let mut reader = Reader {
        file: file.name,
        faults: Vec::new(),
    };
    let mut config = ExportConfig::default();
    match tree {
        Value::Null => {}
        Value::Object(fields) => reader.root(&mut config, Fields::new("", fields)),
        other => reader.fault(format!(
            "{} holds {}; expected keys such as awsAccounts",
            file.name,
            kind(&other)
        )),
    }
    check(&config, &mut reader);
    if reader.faults.is_empty() {
        Ok(config)
    } else {
        Err(reader.faults)
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Object(_) => "a mapping".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => other.to_string(),
    }
}

/// The fields of a mapping that are not read yet.
struct Fields {
    path: String,
    fields: Map<String, Value>,
}

impl Fields {
    fn new(path: &str, fields: Map<String, Value>) -> Self {
        Self {
            path: path.to_owned(),
            fields,
        }
    }

    fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.fields.remove(key).filter(|value| !value.is_null())
    }
}

struct Reader<'a> {
    file: &'a str,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn fault(&mut self, text: String) {
        self.faults.push(Fault(text));
    }

    fn wrong(&mut self, path: &str, value: &Value, expected: &str) {
        let found = kind(value);
        self.fault(format!("{path} is {found} ({}); expected {expected}", self.file));
    }

    /// Whatever nobody has taken is no key.
    fn rest(&mut self, fields: Fields) {
        for key in fields.fields.keys() {
            let path = fields.path_of(key);
            let plain = plain(&path);
            let hint = nearest(&plain, KEYS.into_iter().chain(GROUPS)).map_or_else(
                || "the guide's page on veneer export lists the keys".to_owned(),
                |known| format!("did you mean {known}?"),
            );
            self.fault(format!("{path} is no key ({}); {hint}", self.file));
        }
    }

    fn scalar<T>(
        &mut self,
        fields: &mut Fields,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = fields.take(key)?;
        let path = fields.path_of(key);
        self.one(&path, &value, expected, parse)
    }

    fn one<T>(
        &mut self,
        path: &str,
        value: &Value,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let found = match value {
            Value::String(text) => parse(text.trim()),
            Value::Object(_) | Value::Array(_) => None,
            scalar => parse(&scalar.to_string()),
        };
        if found.is_none() {
            self.wrong(path, value, expected);
        }
        found
    }

    fn list<T>(
        &mut self,
        fields: &mut Fields,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Vec<T>> {
        let value = fields.take(key)?;
        let path = fields.path_of(key);
        let Value::Array(items) = value else {
            self.wrong(&path, &value, expected);
            return None;
        };
        let items = items.iter().enumerate();
        let read: Vec<T> = items
            .filter_map(|(at, item)| self.one(&format!("{path}[{at}]"), item, expected, &parse))
            .collect();
        // Lumina takes an empty list for the default.
        (!read.is_empty()).then_some(read)
    }

    fn group(&mut self, fields: &mut Fields, key: &str) -> Option<Fields> {
        let value = fields.take(key)?;
        let path = fields.path_of(key);
        match value {
            Value::Object(fields) => Some(Fields::new(&path, fields)),
            other => {
                let below = KEYS
                    .iter()
                    .find(|one| one.starts_with(&format!("{}.", plain(&path))));
                let example = below.copied().unwrap_or("keys");
                self.wrong(&path, &other, &format!("keys below it such as {example}"));
                None
            }
        }
    }

    fn root(&mut self, config: &mut ExportConfig, mut fields: Fields) {
        match fields.take("awsAccounts") {
            None => {}
            Some(Value::Array(items)) => {
                for (at, item) in items.into_iter().enumerate() {
                    self.listed(config, &format!("awsAccounts[{at}]"), item);
                }
            }
            Some(other) => self.wrong(
                "awsAccounts",
                &other,
                "a list of accounts, each with accountId and name",
            ),
        }
        if let Some(fields) = self.group(&mut fields, "defaultAccount") {
            config.default_account = self.account(fields);
        }
        set(
            &mut config.default_region,
            self.scalar(&mut fields, "defaultRegion", REGION, region),
        );
        set(
            &mut config.regions,
            self.list(&mut fields, "regions", REGIONS, region),
        );
        let levels = "error, warn, info, debug or trace";
        set(
            &mut config.log_level,
            self.scalar(&mut fields, "logLevel", levels, level),
        );
        let served = &mut config.metrics_bind_address;
        set(
            served,
            self.scalar(&mut fields, "metricsBindAddress", ADDRESS, address),
        );
        let probed = &mut config.health_probe_bind_address;
        set(
            probed,
            self.scalar(&mut fields, "healthProbeBindAddress", ADDRESS, address),
        );
        let validated = self.scalar(&mut fields, "accountValidationInterval", DURATION, duration);
        set(&mut config.account_validation_interval, validated);
        if let Some(mut fields) = self.group(&mut fields, "reconciliation") {
            let every = &mut config.reconciliation;
            for (key, slot) in [
                ("risp", &mut every.risp),
                ("ec2", &mut every.ec2),
                ("pricing", &mut every.pricing),
                ("spotPricing", &mut every.spot_pricing),
            ] {
                set(slot, self.scalar(&mut fields, key, DURATION, duration));
            }
            self.rest(fields);
        }
        if let Some(fields) = self.group(&mut fields, "pricing") {
            self.pricing(config, fields);
        }
        if let Some(fields) = self.group(&mut fields, "metrics") {
            self.metrics(config, fields);
        }
        self.rest(fields);
    }

    fn listed(&mut self, config: &mut ExportConfig, path: &str, item: Value) {
        let Value::Object(fields) = item else {
            return self.wrong(path, &item, "keys below it such as accountId");
        };
        let Some(account) = self.account(Fields::new(path, fields)) else {
            return;
        };
        if config.accounts.iter().any(|known| known.id == account.id) {
            let file = self.file;
            self.fault(format!(
                "{path}.accountId is {:?} ({file}); expected each account once",
                account.id
            ));
        }
        config.accounts.push(account);
    }

    fn account(&mut self, mut fields: Fields) -> Option<AccountConfig> {
        let path = fields.path.clone();
        if fields.fields.get("accountId").is_none_or(Value::is_null) {
            self.fault(format!(
                "{path}.accountId is missing ({}); expected {ACCOUNT}",
                self.file
            ));
        }
        let id = self.scalar(&mut fields, "accountId", ACCOUNT, account);
        let role = self.scalar(&mut fields, "assumeRoleArn", ROLE, role);
        let name = self.scalar(&mut fields, "name", NAME, text);
        let of_account = AccountConfig {
            region: self.scalar(&mut fields, "region", REGION, region),
            regions: self
                .list(&mut fields, "regions", REGIONS, region)
                .unwrap_or_default(),
            name: name.or_else(|| id.clone()).unwrap_or_default(),
            role: role.map(|(arn, _)| arn).clone(),
            id: id.unwrap_or_default(),
        };
        if let Some(arn) = &of_account.role
            && let Some((_, owner)) = self::role(arn)
            && !of_account.id.is_empty()
            && owner != of_account.id
        {
            self.fault(format!(
                "{path}.assumeRoleArn is {arn:?} ({}); expected a role of account {}",
                self.file, of_account.id
            ));
        }
        self.rest(fields);
        (!of_account.id.is_empty()).then_some(of_account)
    }

    fn pricing(&mut self, config: &mut ExportConfig, mut fields: Fields) {
        let systems = self.list(&mut fields, "operatingSystems", SYSTEMS, system);
        set(&mut config.operating_systems, systems);
        let expiration = self.scalar(&mut fields, "spotPriceCacheExpiration", DURATION, duration);
        set(&mut config.spot_price_cache_expiration, expiration);
        if let Some(mut fields) = self.group(&mut fields, "defaultDiscounts") {
            config.discounts.ec2_instance = self.scalar(&mut fields, "ec2Instance", FACTOR, factor);
            config.discounts.compute = self.scalar(&mut fields, "compute", FACTOR, factor);
            self.rest(fields);
        }
        self.rest(fields);
    }

    fn metrics(&mut self, config: &mut ExportConfig, mut fields: Fields) {
        let without = self.scalar(&mut fields, "disableInstanceMetrics", BOOLEAN, boolean);
        set(&mut config.series.without_instances, without);
        if let Some(mut fields) = self.group(&mut fields, "labels") {
            let LabelNames {
                cluster_name,
                account_name,
                account_id,
                region,
                node_name,
                host_name,
            } = &mut config.series.labels;
            for (key, slot) in [
                ("clusterName", cluster_name),
                ("accountName", account_name),
                ("accountId", account_id),
                ("region", region),
                ("nodeName", node_name),
                ("hostName", host_name),
            ] {
                set(slot, self.scalar(&mut fields, key, LABEL, label));
            }
            self.rest(fields);
        }
        if let Some(mut fields) = self.group(&mut fields, "nodeNameSource") {
            let tag = self.scalar(&mut fields, "tagKey", "the key of a tag such as Name", text);
            set(&mut config.node_name_tag, tag);
            self.rest(fields);
        }
        self.rest(fields);
    }
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

/// A path without the numbers of items.
fn plain(path: &str) -> String {
    path.split('.')
        .map(|part| match part.split_once('[') {
            Some((name, _)) => format!("{name}[]"),
            None => part.to_owned(),
        })
        .collect::<Vec<_>>()
        .join(".")
}

/// The ARN of a role, and the account that it belongs to.
fn role(arn: &str) -> Option<(String, String)> {
    let mut parts = arn.splitn(6, ':');
    let fits = parts.next() == Some("arn")
        && parts.next().is_some_and(|partition| {
            partition == "aws"
                || partition
                    .strip_prefix("aws-")
                    .is_some_and(|rest| !rest.is_empty())
        })
        && parts.next() == Some("iam")
        && parts.next() == Some("");
    let owner = parts.next().and_then(account)?;
    let name = parts.next()?.strip_prefix("role/")?;
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@-_/".contains(&byte);
    (fits && !name.is_empty() && name.bytes().all(letters)).then(|| (arn.to_owned(), owner))
}

fn factor(text: &str) -> Option<Exact> {
    Exact::parse(text).filter(|factor| factor.is_positive() && *factor <= Exact::ONE)
}

fn label(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let begins = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let fits =
        begins && !text.starts_with("__") && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fits.then(|| text.to_owned())
}

fn system(text: &str) -> Option<Platform> {
    match text {
        "Linux" => Some(Platform::Linux),
        "Windows" => Some(Platform::Windows),
        "RHEL" => Some(Platform::RedHat),
        "SUSE" => Some(Platform::Suse),
        _ => None,
    }
}

/// What must fit together although each value by itself is right.
fn check(config: &ExportConfig, reader: &mut Reader<'_>) {
    if config.accounts.is_empty() && reader.faults.is_empty() {
        reader.fault(format!(
            "awsAccounts is empty ({}); expected at least one account with accountId and name",
            reader.file
        ));
    }
    let mut names: BTreeMap<&str, &str> = FIXED_LABELS.iter().map(|name| (*name, "")).collect();
    for (key, name) in config.series.labels.chosen() {
        if let Some(other) = names.insert(name, key) {
            let taken = match other {
                "" => "which is another label's name".to_owned(),
                other => format!("which is the name of metrics.labels.{other}"),
            };
            reader.fault(format!(
                "metrics.labels.{key} is {name:?} ({}), {taken}; expected {LABEL}",
                reader.file
            ));
        }
    }
}

//! Which data there is and how old it is, and which accounts can be reached.

use super::Options;
use super::exposition::{Exposition, Type};
use crate::part::DataKind;
use crate::store::Inventory;
use crate::validation::VALIDATION_BUCKETS;

/// Data with the labels that Lumina gives it: account, region and kind.
struct Told<'a> {
    account: &'a str,
    region: &'a str,
    kind: DataKind,
    age: Option<i64>,
    /// Nothing before it was tried.
    succeeded: Option<bool>,
}

/// What Lumina tells of: instances and Reserved Instances by account and region, plans by account, both kinds of prices once.
fn told(inventory: &Inventory, now: i64) -> Vec<Told<'_>> {
    let kinds = [
        DataKind::Instances,
        DataKind::ReservedInstances,
        DataKind::SavingsPlans,
    ];
    let mut told = Vec::new();
    for kind in kinds {
        told.extend(inventory.of_kind(kind).map(|(part, collected)| Told {
            account: &part.account,
            region: &part.region,
            kind,
            age: inventory.age(part, now),
            succeeded: collected.tried.map(|_| collected.error.is_none()),
        }));
    }
    for kind in [DataKind::Prices, DataKind::SpotPrices] {
        let tried: Vec<bool> = inventory
            .of_kind(kind)
            .filter(|(_, collected)| collected.tried.is_some())
            .map(|(_, collected)| collected.error.is_none())
            .collect();
        told.push(Told {
            account: "",
            region: "",
            kind,
            age: inventory.oldest(kind, now),
            succeeded: (!tried.is_empty()).then(|| tried.iter().all(|fine| *fine)),
        });
    }
    told
}

pub(super) fn write(text: &mut Exposition, inventory: &Inventory, options: &Options, now: i64) {
    let names = &options.labels;
    text.metric("lumina_controller_running", Type::Gauge);
    text.sample("lumina_controller_running", &[], 1.0);
    write_validations(text, inventory, options);
    let told = told(inventory, now);
    for (name, value) in [
        (
            "lumina_data_freshness_seconds",
            (|one| one.age.map(|age| age as f64)) as fn(&Told<'_>) -> Option<f64>,
        ),
        ("lumina_data_last_success", |one| {
            one.succeeded.map(|fine| f64::from(u8::from(fine)))
        }),
    ] {
        text.metric(name, Type::Gauge);
        for one in &told {
            let labels: [(&str, &str); _] = [
                (names.account_id.as_str(), one.account),
                (&names.account_name, inventory.account_name(one.account)),
                (&names.region, one.region),
                ("data_type", one.kind.name()),
            ];
            if let Some(value) = value(one) {
                text.sample(name, &labels, value);
            }
        }
    }
    type Value = fn(&Inventory, &crate::Part, &crate::Collected, i64) -> Option<f64>;
    let families: [(&'static str, Value); 2] = [
        ("veneer_data_age_seconds", |inventory, part, _, now| {
            inventory.age(part, now).map(|age| age as f64)
        }),
        ("veneer_data_rows", |_, _, collected, _| {
            collected.rows.as_ref().map(|rows| rows.len() as f64)
        }),
    ];
    for (name, value) in families {
        text.metric(name, Type::Gauge);
        for (part, collected) in inventory.parts() {
            let labels: [(&str, &str); _] = [
                (names.account_id.as_str(), part.account.as_str()),
                (&names.account_name, inventory.account_name(&part.account)),
                (&names.region, &part.region),
                ("data_type", part.kind.name()),
            ];
            if let Some(value) = value(inventory, part, collected, now) {
                text.sample(name, &labels, value);
            }
        }
    }
}

fn write_validations(text: &mut Exposition, inventory: &Inventory, options: &Options) {
    let names = &options.labels;
    let labels = |account| {
        [
            (names.account_id.as_str(), account),
            (names.account_name.as_str(), inventory.account_name(account)),
        ]
    };
    text.metric("lumina_account_validation_status", Type::Gauge);
    for (account, one) in inventory.validations() {
        let is_fine = f64::from(u8::from(one.error.is_none()));
        text.sample("lumina_account_validation_status", &labels(account), is_fine);
    }
    let name = "lumina_account_validation_last_success_timestamp";
    text.metric(name, Type::Gauge);
    for (account, one) in inventory.validations() {
        if let Some(at) = one.last_success {
            text.sample(name, &labels(account), at as f64);
        }
    }
    let name = "lumina_account_validation_duration_seconds";
    text.metric(name, Type::Histogram);
    for (account, one) in inventory.validations() {
        let [id, account_name] = labels(account);
        let bucket = format!("{name}_bucket");
        for (bound, count) in VALIDATION_BUCKETS.iter().zip(one.buckets) {
            let bound = bound.to_string();
            text.sample(&bucket, &[id, account_name, ("le", &bound)], count as f64);
        }
        text.sample(&bucket, &[id, account_name, ("le", "+Inf")], one.count as f64);
        text.sample(&format!("{name}_sum"), &[id, account_name], one.sum);
        text.sample(&format!("{name}_count"), &[id, account_name], one.count as f64);
    }
}

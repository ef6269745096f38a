//! An organization with commitments, as a double of AWS tells it, and commands that ask the double.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "every test file uses some of it, and helpers fail as tests do"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use veneer_testbed::aws_double::{
    AwsDouble, Described, DescribedAccount, DescribedInstance, DescribedPlan, DescribedPrice, DescribedRate,
    DescribedRegion, DescribedReserved,
};

pub(crate) const ACCOUNT: &str = "123456789012";
pub(crate) const OTHER: &str = "222222222222";
pub(crate) const REGION: &str = "us-west-2";
pub(crate) const ROLE: &str = "arn:aws:iam::222222222222:role/veneer-export";

pub(crate) fn instance(id: &str, instance_type: &str) -> DescribedInstance {
    DescribedInstance {
        id: id.to_owned(),
        instance_type: instance_type.to_owned(),
        zone: "us-west-2a".to_owned(),
        state: "running".to_owned(),
        usage_operation: "RunInstances".to_owned(),
        tenancy: "default".to_owned(),
        launched: "2026-01-02T00:00:00.000Z".to_owned(),
        tags: vec![
            ("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned()),
            ("Name".to_owned(), format!("node-{id}")),
        ],
        ..DescribedInstance::default()
    }
}

fn plan(id: &str, kind: &str, family: &str, commitment: &str, rates: &[(&str, &str)]) -> DescribedPlan {
    let rates = rates.iter().map(|(instance_type, rate)| DescribedRate {
        region: REGION.to_owned(),
        instance_type: (*instance_type).to_owned(),
        product: "Linux/UNIX".to_owned(),
        operation: "RunInstances".to_owned(),
        usage_type: format!("USW2-BoxUsage:{instance_type}"),
        tenancy: "shared".to_owned(),
        rate: (*rate).to_owned(),
    });
    DescribedPlan {
        id: id.to_owned(),
        kind: kind.to_owned(),
        family: family.to_owned(),
        region: if family.is_empty() { "" } else { REGION }.to_owned(),
        commitment: commitment.to_owned(),
        state: "active".to_owned(),
        start: "2026-01-01T00:00:00.000Z".to_owned(),
        end: "2099-01-01T00:00:00.000Z".to_owned(),
        rates: rates.collect(),
    }
}

pub(crate) fn price(instance_type: &str, price: &str) -> DescribedPrice {
    DescribedPrice {
        region: REGION.to_owned(),
        instance_type: instance_type.to_owned(),
        operating_system: "Linux".to_owned(),
        operation: "RunInstances".to_owned(),
        tenancy: "Shared".to_owned(),
        price: price.to_owned(),
    }
}

/// Reserved Instances of c5.large, regional ones without a zone.
pub(crate) fn reserved(id: &str, count: u32, zone: Option<&str>) -> DescribedReserved {
    DescribedReserved {
        id: id.to_owned(),
        instance_type: "c5.large".to_owned(),
        zone: zone.map(str::to_owned),
        product: "Linux/UNIX".to_owned(),
        tenancy: "default".to_owned(),
        count,
        start: "2026-01-01T00:00:00.000Z".to_owned(),
        end: "2099-01-01T00:00:00.000Z".to_owned(),
        state: "active".to_owned(),
        fixed_price: "0.0".to_owned(),
        hourly: "0.05".to_owned(),
    }
}

/// Three Reserved Instances of c5.large, one of them used; a plan for m5 and a Compute plan, both nearly unused; and another account.
pub(crate) fn organization() -> Described {
    let zones = || {
        let zones = [("us-west-2a", "usw2-az1"), ("us-west-2b", "usw2-az2")];
        zones.map(|(name, id)| (name.to_owned(), id.to_owned())).to_vec()
    };
    let own = DescribedRegion {
        zones: zones(),
        instances: vec![instance("i-1", "c5.large"), instance("i-2", "m5.large")],
        reserved: vec![reserved("11111111-2222-3333-4444-555555555555", 3, None)],
        ..DescribedRegion::default()
    };
    let other = DescribedRegion {
        zones: zones(),
        ..DescribedRegion::default()
    };
    let rates = [("m5.large", "0.07"), ("c5.large", "0.06")];
    Described {
        accounts: vec![
            DescribedAccount {
                id: ACCOUNT.to_owned(),
                shares: true,
                regions: BTreeMap::from([(REGION.to_owned(), own)]),
                plans: vec![
                    plan("family", "EC2Instance", "m5", "1.00", &rates[..1]),
                    plan("compute", "Compute", "", "5.00", &rates),
                ],
                ..DescribedAccount::default()
            },
            DescribedAccount {
                id: OTHER.to_owned(),
                role_arn: Some(ROLE.to_owned()),
                shares: true,
                regions: BTreeMap::from([(REGION.to_owned(), other)]),
                ..DescribedAccount::default()
            },
        ],
        prices: vec![price("m5.large", "0.096"), price("c5.large", "0.085")],
        ..Described::default()
    }
}

/// Changes what the first account has in the region.
pub(crate) fn change(double: &AwsDouble, change: impl FnOnce(&mut DescribedRegion)) {
    double.change(|described| {
        let account = described.accounts.first_mut().unwrap();
        change(account.regions.get_mut(REGION).unwrap());
    });
}

/// `veneer` with credentials of the first account, and the double for AWS.
pub(crate) fn command(double: &AwsDouble, arguments: &[&str]) -> Command {
    let (key, secret) = AwsDouble::keys(ACCOUNT);
    let mut command = Command::new(env!("CARGO_BIN_EXE_veneer"));
    command
        .args(arguments)
        .env("AWS_ENDPOINT_URL", double.url())
        .env("AWS_ACCESS_KEY_ID", key)
        .env("AWS_SECRET_ACCESS_KEY", secret)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("HOME", "/nonexistent")
        .env_remove("AWS_PROFILE")
        .env_remove("AWS_SESSION_TOKEN")
        .stdin(Stdio::null());
    command
}

/// Which account to collect, every second.
pub(crate) fn collected() -> String {
    format!(
        "awsAccounts: [{{accountId: \"{ACCOUNT}\", name: Production}}]\nregions: [{REGION}]\nreconciliation: {{ec2: 1s, risp: 1s, pricing: 1s, spotPricing: 1s}}\n"
    )
}

/// Writes a file and gives back its path.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

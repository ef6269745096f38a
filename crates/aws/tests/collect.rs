//! Commitments, usage and prices over HTTP, from a double that speaks the documented protocols; that it does is shown by the clients
//! of AWS itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]

mod organization;

use std::collections::{BTreeMap, BTreeSet};

use aws_credential_types::Credentials;
use aws_sdk_pricing::types::{Filter, FilterType};
use aws_sdk_savingsplans::types::{SavingsPlanRateFilterName, SavingsPlanState};
use aws_smithy_runtime_api::client::http::{SharedHttpConnector, http_client_fn};
use organization::{ACCOUNTS, Both, NOW, REGIONS, collector, sorted};
use veneer_aws::{Call, Market, policy};
use veneer_billing::{Allocator, Organization};
use veneer_inventory::{DataKind, Inventory, Part, Rows, series};
use veneer_testbed::aws_double::{AwsDouble, Fault, Trouble};

/// What AWS's own SDK needs for plain HTTP.
fn sdk(double: &AwsDouble) -> aws_config::SdkConfig {
    let connector = aws_smithy_http_client::Connector::builder().build_http();
    let connector = SharedHttpConnector::new(connector);
    let (key, secret) = AwsDouble::keys(ACCOUNTS[0]);
    let keys = Credentials::new(key, secret, None, None, "test");
    aws_config::SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::latest())
        .region(aws_config::Region::from_static("us-east-1"))
        .endpoint_url(double.url())
        .credentials_provider(aws_credential_types::provider::SharedCredentialsProvider::new(
            keys,
        ))
        .http_client(http_client_fn(move |_, _| connector.clone()))
        .build()
}

#[tokio::test]
async fn the_savings_plans_client_of_aws_reads_the_double() {
    let both = Both::new(1, 0);
    let mut described = both.described;
    described.page = Some(2);
    let double = AwsDouble::start(described.clone()).unwrap();
    let client = aws_sdk_savingsplans::Client::new(&sdk(&double));
    let (mut found, mut token) = (Vec::new(), None);
    loop {
        let page = client
            .describe_savings_plans()
            .states(SavingsPlanState::Active)
            .set_next_token(token)
            .send()
            .await
            .unwrap();
        found.extend(page.savings_plans().to_vec());
        token = page.next_token().map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    let given: Vec<_> = described.accounts[0]
        .plans
        .iter()
        .filter(|plan| plan.state == "active")
        .collect();
    assert_eq!(found.len(), 3);
    for (found, given) in found.iter().zip(&given) {
        assert_eq!(found.savings_plan_id(), Some(given.id.as_str()));
        assert_eq!(found.savings_plan_arn(), Some(given.arn(ACCOUNTS[0]).as_str()));
        assert_eq!(found.commitment(), Some(given.commitment.as_str()));
        assert_eq!(
            found
                .savings_plan_type()
                .map(aws_sdk_savingsplans::types::SavingsPlanType::as_str),
            Some(given.kind.as_str())
        );
        assert_eq!(found.start(), Some(given.start.as_str()));
        assert_eq!(found.term_duration_in_seconds(), 31_536_000);
    }
    let filter = aws_sdk_savingsplans::types::SavingsPlanRateFilter::builder()
        .name(SavingsPlanRateFilterName::InstanceType)
        .values("m5.large")
        .build();
    let rates = client
        .describe_savings_plan_rates()
        .savings_plan_id(&given[0].id)
        .filters(filter)
        .send()
        .await
        .unwrap();
    assert_eq!(rates.search_results().len(), 2, "a page of two");
    let rate = &rates.search_results()[1];
    assert_eq!(rate.rate(), Some("0.069120"));
    assert_eq!(rate.usage_type(), Some("USW2-BoxUsage:m5.large"));
    // Errors are AWS's, too.
    let refused = client
        .describe_savings_plan_rates()
        .savings_plan_id("no")
        .send()
        .await;
    let refused = refused.unwrap_err().into_service_error();
    assert!(refused.is_resource_not_found_exception(), "{refused:?}");
}

#[tokio::test]
async fn the_pricing_client_of_aws_reads_the_double() {
    let double = AwsDouble::start(Both::new(1, 0).described).unwrap();
    let client = aws_sdk_pricing::Client::new(&sdk(&double));
    let filter = |field: &str, value: &str| {
        Filter::builder()
            .r#type(FilterType::TermMatch)
            .field(field)
            .value(value)
            .build()
            .unwrap()
    };
    let mut pages = client
        .get_products()
        .service_code("AmazonEC2")
        .filters(filter("regionCode", "eu-west-1"))
        .filters(filter("operatingSystem", "Windows"))
        .filters(filter("capacitystatus", "Used"))
        .into_paginator()
        .page_size(3)
        .send();
    let mut products = Vec::new();
    while let Some(page) = pages.next().await {
        products.extend(page.unwrap().price_list().to_vec());
    }
    assert_eq!(products.len(), 4);
    let product: serde_json::Value = serde_json::from_str(&products[0]).unwrap();
    assert_eq!(product["product"]["attributes"]["instanceType"], "m5.large");
    assert!(products[0].contains(r#""USD":"0.1824000000""#), "{}", products[0]);
    let refused = client
        .get_products()
        .service_code("AmazonEC2")
        .filters(filter("colour", "red"))
        .send()
        .await;
    let refused = refused.unwrap_err().into_service_error();
    assert!(refused.is_invalid_parameter_exception(), "{refused:?}");
}

/// The bills of both, line by line.
fn bill(organization: &Organization) -> (Vec<String>, String, usize) {
    let allocator = Allocator::new(organization);
    let bill = allocator.now(NOW);
    let mut lines: Vec<String> = bill
        .usages()
        .map(|one| {
            format!(
                "{} {:?} {:?}",
                one.id(),
                one.effective_cost(),
                one.uncovered_cost()
            )
        })
        .collect();
    lines.extend(bill.commitments().map(|one| format!("{one:?}")));
    lines.sort();
    (lines, format!("{:?}", bill.totals()), allocator.problems().len())
}

fn assert_same(found: &Organization, expected: &Organization) {
    assert_eq!(found.instances.len(), expected.instances.len());
    for (found, expected) in found.instances.iter().zip(&expected.instances) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.reserved_instances, expected.reserved_instances);
    assert_eq!(found.capacity_reservations, expected.capacity_reservations);
    assert_eq!(found.savings_plans, expected.savings_plans);
    assert_eq!(found.prices, expected.prices);
    assert_eq!(found.rates, expected.rates);
    assert_eq!(found.sharing, expected.sharing);
}

#[tokio::test]
async fn what_is_collected_is_billed_to_the_digit_like_what_was_described() {
    let mut both = Both::new(210, 0);
    both.described.page = Some(70);
    let double = AwsDouble::start(both.described.clone()).unwrap();
    let mut collector = collector(&double, &both.described).await;
    let mut inventory = collector.inventory();
    let round = collector.collect(&mut inventory, NOW).await;
    assert_eq!(round.failed, []);
    let found = sorted(inventory.organization(NOW));
    assert_same(&found, &both.direct);
    let (lines, totals, problems) = bill(&found);
    let (expected_lines, expected_totals, _) = bill(&both.direct);
    assert_eq!(totals, expected_totals);
    assert_eq!(lines, expected_lines);
    assert_eq!(problems, 0, "everything has a price and a rate");
    println!("{} lines of the bill, {totals}", lines.len());
    // The catalog gets today's prices, in the zones as each account names them.
    let catalogue = veneer_engine::catalogue::aws::region("us-west-2")
        .unwrap()
        .catalogue;
    for (account, zone) in [(ACCOUNTS[0], "us-west-2a"), (ACCOUNTS[1], "us-west-2b")] {
        let mut market = Market::default();
        market.add_prices(&inventory, "us-west-2", account);
        let (changed, changes) = market.over(&catalogue);
        assert!(changes.listed >= 4 * 2 && changes.priced == 4 * 2, "{changes:?}");
        let it = changed.types.iter().find(|it| &*it.name == "r5.2xlarge").unwrap();
        let price = |capacity_type: &str| {
            let mut offerings = it.offerings.iter();
            let one = offerings.find(|one| {
                one.zone(&changed.vocabulary) == Some(zone)
                    && one.capacity_type(&changed.vocabulary) == Some(capacity_type)
            });
            one.unwrap().price
        };
        assert_eq!((price("on-demand"), price("spot")), (0.504_003, 0.156_240));
    }
    // Every call of the table was made, and no other; the policy allows these.
    let called: BTreeSet<String> = double
        .seen()
        .iter()
        .map(|one| format!("{}:{}", one.service, one.action))
        .collect();
    let listed = Call::ALL.iter().filter(|call| call.collects());
    let listed: BTreeSet<String> = listed.map(|call| policy::action(*call)).collect();
    assert_eq!(called, listed);
    let roles = ["arn:aws:iam::222222222222:role/veneer".to_owned()];
    assert_eq!(policy::allowed(&policy::collection(&roles)), listed);
    // Each was signed by the account that it is about.
    for seen in double.seen().iter().filter(|one| one.service == "ec2") {
        assert!(
            ACCOUNTS.contains(&seen.account.as_str()) && REGIONS.contains(&seen.region.as_str()),
            "{seen:?}"
        );
    }
    // A minute later nothing is due, and after five the instances and spot prices are.
    let again = collector.collect(&mut inventory, NOW + 60).await;
    assert_eq!((again.collected, again.requests), (0, 0));
    let again = collector.collect(&mut inventory, NOW + 300).await;
    assert_eq!((again.collected, again.failed.len()), (8, 0));
    assert_eq!(
        inventory.age(
            &Part::new(ACCOUNTS[1], REGIONS[0], DataKind::Instances),
            NOW + 300
        ),
        Some(0)
    );
    assert_eq!(
        inventory.age(&Part::new(ACCOUNTS[1], "", DataKind::SavingsPlans), NOW + 300),
        Some(300)
    );
}

/// Kilobytes of memory: now, and at most so far.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (of("VmRSS"), of("VmHWM"))
}

/// The parts that are not of this age, with the reason.
fn stale(inventory: &Inventory, now: i64) -> BTreeMap<(String, String, DataKind), (Option<i64>, String)> {
    let parts = inventory
        .parts()
        .filter(|(part, _)| inventory.age(part, now) != Some(0));
    let parts = parts.map(|(part, collected)| {
        let key = (part.account.clone(), part.region.clone(), part.kind);
        (
            key,
            (
                inventory.age(part, now),
                collected.error.clone().unwrap_or_default(),
            ),
        )
    });
    parts.collect()
}

fn ids(inventory: &Inventory, account: &str, region: &str) -> BTreeSet<String> {
    let part = inventory
        .part(&Part::new(account, region, DataKind::Instances))
        .unwrap();
    let Some(Rows::Instances(rows)) = &part.rows else {
        panic!("no instances of {account} in {region}");
    };
    rows.iter().map(|one| one.id.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_thousand_instances_survive_denied_throttled_expired_truncated_and_hanging_calls() {
    let per_region = std::env::var("VENEER_COLLECT_INSTANCES").ok();
    let per_region = per_region.map_or(2000, |count| count.parse().unwrap());
    let (first, second) = (Both::new(per_region, 0), Both::new(per_region, 1));
    let double = AwsDouble::start(first.described.clone()).unwrap();
    let mut collector = collector(&double, &first.described).await;
    let mut inventory = collector.inventory();
    let before = memory();
    let round = collector.collect(&mut inventory, NOW).await;
    let after = memory();
    println!(
        "{} instances: {} requests, {} bytes, {} parts; memory {} kB before, {} kB after, {} kB at most (with the double)",
        6 * per_region,
        round.requests,
        collector.traffic().bytes,
        round.collected,
        before.0,
        after.0,
        after.1,
    );
    for ((account, call), count) in collector.requests() {
        println!("  {account:12} {:30} {count}", call.action());
    }
    assert_eq!(round.failed, []);
    assert_same(&sorted(inventory.organization(NOW)), &first.direct);

    // Everything changes, and much goes wrong.
    let changed = second.described.clone();
    double.change(|described| *described = changed);
    let [one, two, three] = ACCOUNTS;
    let [europe, america] = REGIONS;
    for trouble in [
        Trouble::always(Fault::Denied).of(two),
        Trouble::always(Fault::Throttled)
            .of(one)
            .on("DescribeInstances")
            .times(3),
        Trouble::always(Fault::Html)
            .of(one)
            .at(europe)
            .on("DescribeCapacityReservations")
            .times(2),
        Trouble::always(Fault::Dropped)
            .of(one)
            .on("DescribeSavingsPlans")
            .times(1),
        Trouble::always(Fault::Expired)
            .of(three)
            .at(europe)
            .on("DescribeInstances")
            .times(1),
        Trouble::always(Fault::Truncated)
            .of(three)
            .at(america)
            .on("DescribeInstances")
            .after(1),
        Trouble::always(Fault::Hanging)
            .of(three)
            .at(europe)
            .on("DescribeReservedInstances"),
        Trouble::always(Fault::Truncated)
            .of(three)
            .on("DescribeSavingsPlans"),
    ] {
        double.trouble(trouble);
    }
    let roles = |seen: &[veneer_testbed::aws_double::Seen]| {
        seen.iter().filter(|one| one.action == "AssumeRole").count()
    };
    let assumed = roles(&double.seen());
    let day = 24 * 3600;
    let later = NOW + day;
    let round = collector.collect(&mut inventory, later).await;
    println!(
        "with trouble: {} requests, {} collected, {} failed",
        round.requests,
        round.collected,
        round.failed.len()
    );
    let stale_parts = stale(&inventory, later);
    let mut expected: Vec<(&str, &str, DataKind)> = vec![
        (three, america, DataKind::Instances),
        (three, europe, DataKind::ReservedInstances),
        (three, "", DataKind::SavingsPlans),
        (two, "", DataKind::SavingsPlans),
        (two, "", DataKind::PlanRates),
    ];
    for region in REGIONS {
        for kind in [
            DataKind::Zones,
            DataKind::Instances,
            DataKind::ReservedInstances,
            DataKind::CapacityReservations,
        ] {
            expected.push((two, region, kind));
        }
    }
    let expected: BTreeSet<(String, String, DataKind)> = expected
        .into_iter()
        .map(|(account, region, kind)| (account.to_owned(), region.to_owned(), kind))
        .collect();
    let found: BTreeSet<_> = stale_parts.keys().cloned().collect();
    assert_eq!(found, expected, "what is old, and nothing else");
    assert!(
        stale_parts.values().all(|(age, _)| *age == Some(day)),
        "{stale_parts:?}"
    );
    let why = |account: &str, region: &str, kind| {
        let key = (account.to_owned(), region.to_owned(), kind);
        stale_parts[&key].1.clone()
    };
    assert!(
        why(two, america, DataKind::Instances).contains("AccessDenied"),
        "{stale_parts:?}"
    );
    assert!(
        why(three, america, DataKind::Instances).contains("cannot read the answer"),
        "{stale_parts:?}"
    );
    assert!(
        why(three, europe, DataKind::ReservedInstances).contains("no answer within"),
        "{stale_parts:?}"
    );
    assert!(
        why(three, "", DataKind::SavingsPlans).contains("cannot read the answer"),
        "{stale_parts:?}"
    );
    assert_eq!(
        roles(&double.seen()),
        assumed + 1,
        "the expired token was replaced once"
    );
    // The metrics say so, too.
    let text = series::state(&inventory, &series::Options::default(), later);
    for (account, region, kind, age) in [
        (two, america, "ec2_instances", day),
        (two, europe, "reserved_instances", day),
        (three, america, "ec2_instances", day),
        (three, europe, "ec2_instances", 0),
        (one, america, "ec2_instances", 0),
        (two, "", "savings_plans", day),
        (one, "", "savings_plans", 0),
    ] {
        let name = "lumina_data_freshness_seconds";
        let labels = format!(
            "{{account_id=\"{account}\",account_name=\"{}\",region=\"{region}\",data_type=\"{kind}\"}}",
            inventory.account_name(account)
        );
        let line = format!("{name}{labels} {age}");
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    // Nothing is deleted: what could not be collected is as it was, the rest is new.
    let all = |both: &Both, account: &str, region: &str| -> BTreeSet<String> {
        let all = both.direct.instances.iter();
        let all = all.filter(|one| one.account == account && one.machine.region == region);
        all.map(|one| one.id.clone()).collect()
    };
    for region in REGIONS {
        assert_eq!(ids(&inventory, one, region), all(&second, one, region));
        assert_eq!(ids(&inventory, two, region), all(&first, two, region), "denied");
    }
    assert_eq!(
        ids(&inventory, three, europe),
        all(&second, three, europe),
        "expired"
    );
    assert_eq!(
        ids(&inventory, three, america),
        all(&first, three, america),
        "truncated"
    );
    // Only one call for the account that is denied: it is not asked for its parts.
    let denied = double
        .seen()
        .iter()
        .filter(|seen| seen.fault == Some(Fault::Denied))
        .count();
    assert_eq!(denied, 1);

    // When all is well again, only what failed is asked for, and all is right.
    double.calm();
    let soon = later + 60;
    let round = collector.collect(&mut inventory, soon).await;
    assert_eq!((round.collected, round.failed.len()), (expected.len(), 0));
    assert_same(&sorted(inventory.organization(soon)), &second.direct);
}

#[tokio::test]
async fn credentials_of_another_account_are_not_taken_for_those_of_this_one() {
    let both = Both::new(2, 0);
    let double = AwsDouble::start(both.described.clone()).unwrap();
    let mut described = both.described;
    described.accounts.truncate(1);
    // The credentials are those of the first account, and the configuration says that they are of the second.
    described.accounts[0].id = ACCOUNTS[1].to_owned();
    let mut collector = collector(&double, &described).await;
    let mut inventory = collector.inventory();
    let round = collector.collect(&mut inventory, NOW).await;
    assert_eq!(round.collected, 0);
    let (_, why) = &round.failed[0];
    assert!(why.contains("belong to account 111111111111"), "{why}");
    let (_, validation) = inventory.validations().next().unwrap();
    assert_eq!(validation.error.as_ref(), Some(why));
}

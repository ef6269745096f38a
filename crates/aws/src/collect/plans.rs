//! Savings Plans and their rates.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::json;
use veneer_billing::{
    Interval, Machine, PlanKind, Platform, PriceTable, Priced, SavingsPlan, State, Tenancy,
};

use super::read::{amount, follow, seconds, unreadable};
use crate::call::Call;
use crate::client::Client;
use crate::error::Error;

/// A plan, as the API has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    savings_plan_id: String,
    savings_plan_arn: String,
    savings_plan_type: String,
    state: String,
    commitment: String,
    start: String,
    end: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    ec2_instance_family: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlanPage {
    savings_plans: Vec<Plan>,
    next_token: Option<String>,
}

/// What a plan pays for one thing, as the API has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rate {
    rate: String,
    usage_type: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    properties: Vec<Property>,
}

#[derive(Debug, Deserialize)]
struct Property {
    name: String,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RatePage {
    search_results: Vec<Rate>,
    next_token: Option<String>,
}

impl Client {
    /// The plans of an account that pay for instances and whose term is not over. The API has one endpoint for all regions.
    pub(super) async fn savings_plans(&self, account: &str) -> Result<Vec<SavingsPlan>, Error> {
        let call = Call::DescribeSavingsPlans;
        let unreadable = unreadable(call);
        let states = [
            "active",
            "queued",
            "payment-pending",
            "payment-failed",
            "pending-return",
        ];
        let mut request = json!({"states": states, "maxResults": 1000});
        let (mut found, mut before) = (Vec::new(), String::new());
        loop {
            let page: PlanPage = self.rest(call, &request).await?;
            for plan in page.savings_plans {
                found.extend(row(plan, account).map_err(&unreadable)?);
            }
            match page.next_token.filter(|token| !token.is_empty()) {
                Some(next) => follow(&mut request, "nextToken", &next, &mut before).map_err(&unreadable)?,
                None => return Ok(found),
            }
        }
    }

    /// What one plan pays for instances in some regions.
    pub(super) async fn savings_plan_rates(
        &self,
        card: &str,
        regions: &BTreeSet<String>,
        platforms: &BTreeSet<Platform>,
    ) -> Result<PriceTable, Error> {
        let call = Call::DescribeSavingsPlanRates;
        let unreadable = unreadable(call);
        let named = platforms.iter().filter(|one| !matches!(one, Platform::Other(_)));
        let named: Vec<String> = named.map(ToString::to_string).collect();
        let mut filters = vec![
            json!({"name": "productType", "values": ["EC2"]}),
            json!({"name": "region", "values": regions}),
        ];
        // One that has no name among platforms is found by its operation, among all of them.
        if named.len() == platforms.len() {
            filters.push(json!({"name": "productDescription", "values": named}));
        }
        let mut request = json!({"savingsPlanId": card, "filters": filters, "maxResults": 1000});
        let (mut found, mut before) = (PriceTable::new(), String::new());
        loop {
            let page: RatePage = self.rest(call, &request).await?;
            for rate in &page.search_results {
                if let Some((what, rate)) = rate_row(rate).map_err(&unreadable)? {
                    found.insert(what, rate);
                }
            }
            match page.next_token.filter(|token| !token.is_empty()) {
                Some(next) => follow(&mut request, "nextToken", &next, &mut before).map_err(&unreadable)?,
                None => return Ok(found),
            }
        }
    }
}

/// Nothing for plans that pay for other things than instances.
fn row(plan: Plan, account: &str) -> Result<Option<SavingsPlan>, String> {
    let kind = match plan.savings_plan_type.as_str() {
        "Compute" => PlanKind::Compute,
        "EC2Instance" => PlanKind::Ec2Instance {
            family: plan.ec2_instance_family,
            region: plan.region,
        },
        _ => return Ok(None),
    };
    let state = State::from_name(&plan.state).ok_or_else(|| format!("{:?} is no state", plan.state))?;
    Ok(Some(SavingsPlan {
        id: plan.savings_plan_arn,
        account: account.to_owned(),
        kind,
        commitment: amount(&plan.commitment)?,
        rates: plan.savings_plan_id,
        term: Interval::new(seconds(&plan.start)?, seconds(&plan.end)?),
        state,
    }))
}

/// Nothing for rates of other things than running instances. What a reservation does not use has the rate of an instance.
fn rate_row(rate: &Rate) -> Result<Option<(Priced, veneer_billing::Exact)>, String> {
    let property = |name: &str| {
        let mut all = rate.properties.iter();
        all.find(|one| one.name == name).map(|one| one.value.as_str())
    };
    // Such as USW2-BoxUsage:m5.large.
    let usage = rate.usage_type.split(':').next().unwrap_or_default();
    let usage = usage.rsplit('-').next().unwrap_or_default();
    if !matches!(usage, "BoxUsage" | "DedicatedUsage" | "HostBoxUsage") {
        return Ok(None);
    }
    let (Some(region), Some(instance_type)) = (property("region"), property("instanceType")) else {
        return Ok(None);
    };
    let tenancy = match property("tenancy").unwrap_or_default() {
        "" | "shared" | "default" => Tenancy::Default,
        name => super::instances::tenancy(name)?,
    };
    let platform = match rate.operation.as_str() {
        "" => super::read::described(property("productDescription").unwrap_or_default()),
        operation => Platform::from_usage_operation(operation),
    };
    let machine = Machine {
        region: region.to_owned(),
        instance_type: instance_type.to_owned(),
        platform,
        tenancy,
    };
    Ok(Some((Priced::Machine(machine), amount(&rate.rate)?)))
}

/// The regions in which a plan pays, of those that are collected.
pub(super) fn regions_of(plan: &SavingsPlan, regions: &BTreeSet<String>) -> BTreeSet<String> {
    match &plan.kind {
        PlanKind::Ec2Instance { region, .. } => BTreeSet::from([region.clone()]),
        PlanKind::Compute => regions.clone(),
    }
}

/// Rates of several plans, by the name of the card.
pub(super) type Cards = BTreeMap<String, PriceTable>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_its_list_is_no_empty_list() {
        let page = |text: &str| serde_json::from_str::<PlanPage>(text);
        assert!(page(r#"{"savingsPlans": []}"#).unwrap().savings_plans.is_empty());
        assert!(page(r#"{"message": "sign in"}"#).is_err());
    }

    #[test]
    fn only_rates_of_running_instances_are_taken() {
        let rate = |usage: &str, operation: &str| Rate {
            rate: "0.0690000000".to_owned(),
            usage_type: usage.to_owned(),
            operation: operation.to_owned(),
            properties: [
                ("region", "us-west-2"),
                ("instanceType", "m5.large"),
                ("tenancy", "shared"),
            ]
            .map(|(name, value)| Property {
                name: name.to_owned(),
                value: value.to_owned(),
            })
            .into(),
        };
        let (what, amount) = rate_row(&rate("USW2-BoxUsage:m5.large", "RunInstances:0002"))
            .unwrap()
            .unwrap();
        let Priced::Machine(machine) = what else {
            panic!("rates of instances are about machines")
        };
        assert_eq!(machine.platform, Platform::Windows);
        assert_eq!(amount, veneer_billing::Exact::parse("0.069").unwrap());
        assert_eq!(
            rate_row(&rate("USW2-UnusedBox:m5.large", "RunInstances")),
            Ok(None)
        );
        assert_eq!(rate_row(&rate("USW2-Fargate-vCPU-Hours:perCPU", "")), Ok(None));
    }
}

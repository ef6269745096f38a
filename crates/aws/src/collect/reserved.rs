//! Reserved Instances. EC2 gives them all at once: there are no pages.

use serde_json::json;
use veneer_billing::{Exact, Interval, Machine, ReservedInstances, State};

use super::instances::tenancy;
use super::read::{amount, count, described, list, needed, seconds};
use crate::call::Call;
use crate::client::Client;
use crate::ec2::filter;
use crate::error::Error;
use crate::wire::{field, items};

impl Client {
    /// The Reserved Instances of the region whose term is not over.
    pub(super) async fn reserved_instances(&self, account: &str) -> Result<Vec<ReservedInstances>, Error> {
        let mut found = Vec::new();
        let states = ["active", "queued", "payment-pending", "payment-failed"];
        let request = json!({"Filter": [filter("state", &states)]});
        let region = self.region();
        let read = |item: roxmltree::Node<'_, '_>| {
            found.push(row(item, account, region)?);
            Ok(())
        };
        let call = Call::DescribeReservedInstances;
        list(self, call, request, "reservedInstancesSet", read).await?;
        Ok(found)
    }
}

fn row(item: roxmltree::Node<'_, '_>, account: &str, region: &str) -> Result<ReservedInstances, String> {
    let start = seconds(&needed(item, "start")?)?;
    let end = match field(item, "end").as_str() {
        "" => {
            let length = needed(item, "duration")?;
            let length: i64 = length.parse().map_err(|_| format!("{length:?} is no duration"))?;
            start.saturating_add(length)
        }
        end => seconds(end)?,
    };
    // What is paid by the hour of use is a thing of the past; what is paid for every hour is here.
    let mut hourly = Exact::ZERO;
    for charge in items(item, "recurringCharges") {
        hourly = hourly.plus(&amount(&needed(charge, "amount")?)?);
    }
    let upfront = match field(item, "fixedPrice").as_str() {
        "" => Exact::ZERO,
        price => amount(price)?,
    };
    let state = needed(item, "state")?;
    // Zonal ones say so; one of before there were regional ones has a zone only.
    let zone = field(item, "availabilityZone");
    let is_regional = field(item, "scope") == "Region" || zone.is_empty();
    Ok(ReservedInstances {
        id: needed(item, "reservedInstancesId")?,
        account: account.to_owned(),
        machine: Machine {
            region: region.to_owned(),
            instance_type: needed(item, "instanceType")?,
            platform: described(&needed(item, "productDescription")?),
            tenancy: tenancy(&field(item, "instanceTenancy"))?,
        },
        zone: Some(zone).filter(|_| !is_regional),
        count: count(&needed(item, "instanceCount")?)?,
        term: Interval::new(start, end),
        state: State::from_name(&state).ok_or_else(|| format!("{state:?} is no state"))?,
        upfront,
        hourly,
    })
}

//! On-Demand Capacity Reservations.

use serde_json::json;
use veneer_billing::{CapacityReservation, Interval, Machine};

use super::instances::tenancy;
use super::read::{count, described, list, needed, seconds};
use crate::call::Call;
use crate::client::Client;
use crate::ec2::filter;
use crate::error::Error;
use crate::wire::field;

impl Client {
    /// The active reservations that an account owns in the region. Capacity Blocks are paid for otherwise, and reservations of others are
    /// collected from their owners.
    pub(super) async fn capacity_reservations(
        &self,
        account: &str,
    ) -> Result<Vec<CapacityReservation>, Error> {
        let mut found = Vec::new();
        let request = json!({"Filter": [filter("state", &["active"])], "MaxResults": 1000});
        let region = self.region();
        let read = |item: roxmltree::Node<'_, '_>| {
            let owner = field(item, "ownerId");
            let is_own = owner.is_empty() || owner == account;
            if is_own && field(item, "reservationType") != "capacity-block" {
                found.push(row(item, account, region)?);
            }
            Ok(())
        };
        let call = Call::DescribeCapacityReservations;
        list(self, call, request, "capacityReservationSet", read).await?;
        Ok(found)
    }
}

fn row(item: roxmltree::Node<'_, '_>, account: &str, region: &str) -> Result<CapacityReservation, String> {
    let start = match field(item, "startDate") {
        start if start.is_empty() => needed(item, "createDate")?,
        start => start,
    };
    let end = match field(item, "endDate").as_str() {
        "" => i64::MAX,
        end => seconds(end)?,
    };
    // The owner may have another account pay for what nobody uses.
    let payer = field(item, "unusedReservationBillingOwnerId");
    Ok(CapacityReservation {
        id: needed(item, "capacityReservationId")?,
        account: if payer.is_empty() {
            account.to_owned()
        } else {
            payer
        },
        zone: needed(item, "availabilityZone")?,
        machine: Machine {
            region: region.to_owned(),
            instance_type: needed(item, "instanceType")?,
            platform: described(&needed(item, "instancePlatform")?),
            tenancy: tenancy(&field(item, "tenancy"))?,
        },
        count: count(&needed(item, "totalInstanceCount")?)?,
        active: Interval::new(seconds(&start)?, end),
    })
}

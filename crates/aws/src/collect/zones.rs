//! The zones of a region: their names differ between accounts, their ids do not.

use serde_json::json;
use veneer_inventory::Zones;

use super::read::{list, needed};
use crate::call::Call;
use crate::client::Client;
use crate::error::Error;

impl Client {
    /// The ids of the region's zones by the names that this account has for them.
    pub(super) async fn zones(&self) -> Result<Zones, Error> {
        let mut found = Zones::new();
        let request = json!({"AllAvailabilityZones": true});
        let read = |item: roxmltree::Node<'_, '_>| {
            found.insert(needed(item, "zoneName")?, needed(item, "zoneId")?);
            Ok(())
        };
        let call = Call::DescribeAvailabilityZones;
        list(self, call, request, "availabilityZoneInfo", read).await?;
        Ok(found)
    }
}

//! Keeps the status of EC2NodeClasses: what their selectors find, and whether that is enough to launch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};
use veneer_api::{CONDITION_READY, ConditionStatus, EC2NodeClass, Ec2NodeClassStatus, find_condition};
use veneer_aws::node_class::{self, Found, Site};
use veneer_engine::plan::{is_deleting, name};

use crate::observe::chain;
use crate::standalone::{Stores, locked};

/// Keeps a class until what was made for it is removed.
const FINALIZER: &str = "karpenter.k8s.aws/termination";
/// How often AWS is asked about a class that has not changed: when all is well, and when something is missing.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(20));

struct Controller {
    classes: Api<DynamicObject>,
    stores: Arc<Stores>,
    aws: Arc<veneer_aws::Ec2>,
    site: Site,
    /// The generation that was looked up, when that was, and when it is due again.
    looked: HashMap<String, (Option<i64>, Instant, Duration)>,
}

/// Looks up classes as they come and change. Never ends.
pub(super) async fn control(client: Client, stores: Arc<Stores>, aws: Arc<veneer_aws::Ec2>, site: Site) {
    let mut controller = Controller {
        classes: Api::all_with(client, &ApiResource::erase::<EC2NodeClass>(&())),
        stores,
        aws,
        site,
        looked: HashMap::new(),
    };
    loop {
        let classes: Vec<Arc<EC2NodeClass>> = {
            let store = locked(&controller.stores.ec2_node_classes);
            store.objects().cloned().collect()
        };
        for class in &classes {
            if let Err(error) = controller.one(class).await {
                warn!(node_class = name(&class.metadata), %error, "cannot update the EC2NodeClass; trying again");
            }
        }
        controller
            .looked
            .retain(|known, _| classes.iter().any(|class| uid(class) == *known));
        tokio::select! {
            biased;
            () = controller.stores.classes_changed() => {}
            () = tokio::time::sleep(Duration::from_secs(5)) => {}
        }
    }
}

fn uid(class: &EC2NodeClass) -> String {
    class.metadata.uid.clone().unwrap_or_default()
}

impl Controller {
    async fn one(&mut self, class: &EC2NodeClass) -> Result<(), String> {
        let finalizers = class.metadata.finalizers.clone().unwrap_or_default();
        let is_ours = finalizers.iter().any(|one| one == FINALIZER);
        if is_deleting(&class.metadata) {
            if is_ours && !self.is_used(class) {
                let cleaned = node_class::clean(&self.aws.client, class, &self.site).await;
                cleaned.map_err(|error| error.to_string())?;
                let rest: Vec<String> = finalizers.into_iter().filter(|one| one != FINALIZER).collect();
                self.finalizers(class, &rest).await?;
                info!(
                    node_class = name(&class.metadata),
                    "removed what was made for the EC2NodeClass"
                );
            }
            return Ok(());
        }
        let known = self.looked.get(&uid(class));
        let is_due = known.is_none_or(|(generation, at, every)| {
            *generation != class.metadata.generation || at.elapsed() >= *every
        });
        if !is_due {
            return Ok(());
        }
        if !is_ours {
            let all: Vec<String> = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect();
            self.finalizers(class, &all).await?;
        }
        let now = self.stores.clock().machine();
        let found = node_class::find(&self.aws.client, class, &self.site, now).await;
        for subnet in found.subnets.iter().flatten() {
            self.aws.set_free_addresses(&subnet.id, subnet.free_addresses);
        }
        let status = node_class::status(class, &found, now);
        let is_ready = find_condition(&status.conditions, CONDITION_READY)
            .is_some_and(|one| one.status == ConditionStatus::True);
        report(class, &found);
        if class.status.as_ref() != Some(&status) {
            self.write(class, &status).await?;
            if is_ready {
                info!(
                    node_class = name(&class.metadata),
                    subnets = status.subnets.len(),
                    security_groups = status.security_groups.len(),
                    amis = status.amis.len(),
                    "EC2NodeClass is ready"
                );
            }
        }
        let every = if is_ready { INTERVAL.0 } else { INTERVAL.1 };
        self.looked
            .insert(uid(class), (class.metadata.generation, Instant::now(), every));
        Ok(())
    }

    /// Whether a claim still needs the class.
    fn is_used(&self, class: &EC2NodeClass) -> bool {
        let claims = locked(&self.stores.node_claims);
        claims.objects().any(|claim| {
            let of = &claim.spec.node_class_ref;
            of.kind == "EC2NodeClass" && of.name == name(&class.metadata)
        })
    }

    async fn finalizers(&self, class: &EC2NodeClass, all: &[String]) -> Result<(), String> {
        let patch = json!({"metadata": {
            "resourceVersion": class.metadata.resource_version, "uid": class.metadata.uid, "finalizers": all,
        }});
        let patched = self
            .classes
            .patch(
                name(&class.metadata),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        self.take_in(patched)
    }

    /// What was written counts before the watch brings it.
    fn take_in(&self, patched: kube::Result<DynamicObject>) -> Result<(), String> {
        let patched = patched.map_err(|error| chain(&error))?;
        if let Ok(class) = patched.try_parse() {
            locked(&self.stores.ec2_node_classes).written(class);
        }
        Ok(())
    }

    async fn write(&self, class: &EC2NodeClass, status: &Ec2NodeClassStatus) -> Result<(), String> {
        let mut value = serde_json::to_value(status).map_err(|error| error.to_string())?;
        // A merge leaves alone what is not named, so what is gone is named.
        if let Some(fields) = value.as_object_mut() {
            for key in [
                "amis",
                "capacityReservations",
                "securityGroups",
                "subnets",
                "instanceProfile",
            ] {
                fields.entry(key).or_insert(Value::Null);
            }
        }
        let patch = json!({"metadata": {"uid": class.metadata.uid}, "status": value});
        let patched = self
            .classes
            .patch_status(
                name(&class.metadata),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        self.take_in(patched)
    }
}

fn report(class: &EC2NodeClass, found: &Found) {
    let parts = [
        found.subnets.as_ref().err(),
        found.groups.as_ref().err(),
        found.images.as_ref().err(),
        found.profile.as_ref().err(),
    ];
    for error in parts.into_iter().flatten() {
        warn!(node_class = name(&class.metadata), %error, "cannot look up a part of the EC2NodeClass");
    }
}

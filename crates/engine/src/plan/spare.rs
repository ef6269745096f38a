//! What the objects of a spare node say about it.
//!
//! A spare is a NodeClaim, and its Node, with the label `veneer.io/overprovisioned: "true"`. When pods get it, the
//! value becomes `used` for good: a used spare is a node like any other, but the stock of an Overprovisioner that
//! keeps a minimum still counts it. Whether its instance shall run stands in an annotation of the claim before
//! anybody asks the provider, so that a process that is killed in between leaves nothing to guess.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use veneer_api::NodeClaim;
use veneer_api::labels::{karpenter, veneer};

use super::label;

/// Whether a claim or a node is a spare that nobody uses.
#[must_use]
pub fn is_spare(metadata: &ObjectMeta) -> bool {
    label(metadata, veneer::OVERPROVISIONED) == Some(veneer::OVERPROVISIONED_SPARE)
}

/// Whether a claim or a node was a spare and is in use now.
#[must_use]
pub fn is_used_spare(metadata: &ObjectMeta) -> bool {
    label(metadata, veneer::OVERPROVISIONED) == Some(veneer::OVERPROVISIONED_USED)
}

/// What the instance of a claim shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Run, as all do that nobody stops.
    Run,
    /// Be stopped.
    Stop,
    /// Be stopped with its memory on disk.
    Hibernate,
}

impl Power {
    /// As the annotation says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Stop => "stop",
            Self::Hibernate => "hibernate",
        }
    }

    /// What a claim says.
    #[must_use]
    pub fn of(claim: &NodeClaim) -> Self {
        Self::of_metadata(&claim.metadata)
    }

    /// What the metadata of a claim say.
    #[must_use]
    pub fn of_metadata(metadata: &ObjectMeta) -> Self {
        let annotations = metadata.annotations.as_ref();
        match annotations
            .and_then(|list| list.get(veneer::POWER))
            .map(String::as_str)
        {
            Some("stop") => Self::Stop,
            Some("hibernate") => Self::Hibernate,
            _ => Self::Run,
        }
    }
}

/// Whether the instance of a claim shall be stopped, or is.
#[must_use]
pub fn is_to_be_stopped(claim: &NodeClaim) -> bool {
    Power::of(claim) != Power::Run
}

/// The taint that keeps pods from a spare.
#[must_use]
pub fn spare_taint() -> Taint {
    Taint {
        key: karpenter::OVERPROVISIONED_TAINT.to_owned(),
        value: Some("true".to_owned()),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

/// Whether a taint is the one that keeps pods from a spare.
#[must_use]
pub fn is_spare_taint(taint: &Taint) -> bool {
    taint.key == karpenter::OVERPROVISIONED_TAINT && taint.effect == "NoSchedule"
}

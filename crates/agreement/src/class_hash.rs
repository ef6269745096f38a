//! Fingerprints of node classes, against those of Karpenter's AWS provider (`oracle/internal/classhash`).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use veneer_api::EC2NodeClass;
use veneer_aws::{CLASS_HASH_VERSION, class_hash};

use crate::harness::{Subject, differ};
use crate::launch::generate;
use crate::rng::Rng;

/// The subject.
pub struct ClassHashes;

/// A class, as an API server has it, and the cluster's certificates.
#[derive(Debug, Serialize)]
pub struct Case {
    class: Value,
    ca: Option<&'static str>,
}

/// The fields are those of `oracle/internal/classhash`.
#[derive(Debug, Deserialize)]
pub struct Answer {
    hash: String,
    version: String,
}

impl Subject for ClassHashes {
    type Case = Case;
    type Answer = Answer;

    fn arguments(&self) -> Vec<String> {
        vec!["class-hash".to_owned()]
    }

    fn generate(&self, rng: &mut Rng) -> Case {
        Case {
            class: generate::class(&["ami-1".to_owned()], rng),
            ca: rng.chance(80).then_some("Y2EK"),
        }
    }

    fn differences(&self, case: &Case, answer: &Answer) -> Vec<String> {
        let mut details = Vec::new();
        match serde_json::from_value::<EC2NodeClass>(case.class.clone()) {
            Err(error) => details.push(format!("our side cannot read the case: {error}")),
            Ok(class) => {
                let ours = class_hash(&class, case.ca);
                differ(&mut details, || "hash".to_owned(), &answer.hash, &ours);
                let version = CLASS_HASH_VERSION.to_owned();
                differ(&mut details, || "version".to_owned(), &answer.version, &version);
            }
        }
        details
    }
}

//! One look of steering: from pools, overlays and what is known about commitments to what is written.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::collections::BTreeMap;

use k8s_openapi::jiff::SignedDuration;
use serde_json::json;
use support::{REGION, machine, now};
use veneer_api::{NodeOverlay, NodeSelectorRequirementWithMinValues};
use veneer_steering::commitments::{Balance, Book, Certainty, Doubt, Kind, Ledger, Target};
use veneer_steering::overlays::{Action, Existing, MixedPools, Naming, Pricing, Weights};
use veneer_steering::steer::{Decided, Decider, Settings, SteeredPool};

fn settings() -> Settings {
    Settings {
        threshold: 95.0,
        hysteresis: 0.0,
        disabled: false,
        weights: Weights::default(),
        naming: Naming::default(),
        pricing: Pricing::Zero,
        family_label: None,
        mixed_pools: MixedPools::Include,
        preferences: true,
    }
}

/// Half of a plan for m5 is left, and nothing is known to be reserved.
fn ledger() -> Ledger {
    let book = |balances| {
        Ok(Book {
            data_at: now(),
            balances,
            unlisted: None,
        })
    };
    let balance = Balance {
        owned: 10.0,
        left: 5.0,
        utilization: Some(50.0),
        certainty: Certainty::Exact,
    };
    Ledger {
        books: BTreeMap::from([
            (Kind::ReservedInstance, book(BTreeMap::new())),
            (
                Kind::Ec2InstanceSavingsPlan,
                book(BTreeMap::from([(Target::family("m5", REGION), Ok(balance))])),
            ),
            (Kind::ComputeSavingsPlan, book(BTreeMap::new())),
        ]),
        age: None,
    }
}

struct Pool {
    group: &'static str,
    capacity: &'static [&'static str],
    preference: &'static str,
    deleting: bool,
}

const POOL: Pool = Pool {
    group: "karpenter.k8s.aws",
    capacity: &["on-demand"],
    preference: "kubernetes.io/arch=arm64 adjust=-10%",
    deleting: false,
};

fn look(decider: &mut Decider, pools: &[Pool], existing: &[Existing]) -> Decided {
    let annotations: Vec<BTreeMap<String, String>> = pools
        .iter()
        .map(|pool| BTreeMap::from([("veneer.io/preference.1".to_owned(), pool.preference.to_owned())]))
        .collect();
    let requirements: Vec<Vec<NodeSelectorRequirementWithMinValues>> = pools
        .iter()
        .map(|pool| {
            let one =
                json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": pool.capacity}]);
            serde_json::from_value(one).unwrap()
        })
        .collect();
    let names: Vec<String> = (0..pools.len()).map(|at| format!("pool-{at}")).collect();
    let steered: Vec<SteeredPool<'_>> = pools
        .iter()
        .zip(names.iter().zip(annotations.iter().zip(&requirements)))
        .map(|(pool, (name, (annotations, requirements)))| SteeredPool {
            name,
            uid: name,
            annotations,
            requirements,
            node_class_group: pool.group,
            deleting: pool.deleting,
        })
        .collect();
    decider.decide(&steered, existing, &[machine("a", "m5.large", 0.096, 60)])
}

fn written(decided: &Decided) -> Vec<String> {
    let actions = decided.actions.iter();
    actions
        .map(|action| format!("{} {}", action.operation(), action.name()))
        .collect()
}

fn overlay<'a>(decided: &'a Decided, name: &str) -> &'a NodeOverlay {
    let found = decided.actions.iter().find_map(|action| match action {
        Action::Create(overlay) if action.name() == name => Some(overlay),
        _ => None,
    });
    found.unwrap()
}

fn ours(name: &str, labels: &[(&str, &str)]) -> Existing {
    let own = ("app.kubernetes.io/managed-by", "veneer");
    let labels = labels.iter().chain([&own]);
    Existing {
        name: name.to_owned(),
        labels: labels
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..Existing::default()
    }
}

const PLAN: &str = "cost-aware-ec2-sp-m5-us-west-2";

#[test]
fn what_was_learned_is_kept_until_the_next_time() {
    let mut decider = Decider::new(settings());
    assert_eq!((decider.ledger(), decider.observed_at()), (None, None));
    assert_eq!(decider.worst_doubt(), None);
    assert_eq!(
        written(&look(&mut decider, &[POOL], &[])),
        ["create pref-pool-0-1"]
    );
    decider.learn(now(), ledger());
    assert_eq!(decider.ledger(), Some(&ledger()));
    assert_eq!(decider.observed_at(), Some(now()));
    let decided = look(&mut decider, &[POOL], &[]);
    assert_eq!(
        written(&decided),
        ["create pref-pool-0-1".to_owned(), format!("create {PLAN}")]
    );
    assert_eq!((decided.machines, decided.doubts.len()), (1, 0));
    assert_eq!(decided.pools.len(), 1);
}

#[test]
fn a_fault_is_told_before_old_data() {
    let stale = || Doubt::Stale {
        age: SignedDuration::from_hours(2),
        limit: SignedDuration::from_hours(1),
    };
    let mut decider = Decider::new(settings());
    let mut known = ledger();
    known.books.insert(Kind::ReservedInstance, Err(stale()));
    decider.learn(now(), known.clone());
    assert_eq!(decider.worst_doubt(), Some(&stale()));
    let fault = Doubt::QueryFailed("no answer".to_owned());
    known.books.insert(Kind::ComputeSavingsPlan, Err(fault.clone()));
    decider.learn(now(), known);
    assert_eq!(decider.worst_doubt(), Some(&fault));
    assert_eq!(look(&mut decider, &[], &[]).doubts.len(), 2);
}

#[test]
fn preferences_go_with_their_pool_and_with_the_switch() {
    let deleted = Pool {
        deleting: true,
        ..POOL
    };
    let mut decider = Decider::new(settings());
    let existing = [
        ours("pref-pool-0-1", &[("veneer.io/type", "preference")]),
        ours("pref-pool-1-1", &[("veneer.io/type", "preference")]),
    ];
    let decided = look(&mut decider, &[POOL, deleted], &existing);
    assert_eq!(
        written(&decided),
        ["update pref-pool-0-1", "delete pref-pool-1-1"]
    );
    assert_eq!(decided.owned, BTreeMap::from([("preference", 2)]));
    let mut off = Decider::new(Settings {
        preferences: false,
        ..settings()
    });
    let decided = look(&mut off, &[POOL], &existing);
    assert_eq!(
        written(&decided),
        ["delete pref-pool-0-1", "delete pref-pool-1-1"]
    );
    assert!(decided.pools.is_empty());
}

#[test]
fn families_are_named_by_the_label_of_the_provider() {
    let key = |settings: Settings, pools: &[Pool]| {
        let mut decider = Decider::new(settings);
        decider.learn(now(), ledger());
        let decided = look(&mut decider, pools, &[]);
        let spec = serde_json::to_value(&overlay(&decided, PLAN).spec).unwrap();
        let keys = spec.pointer("/requirements").unwrap().as_array().unwrap().clone();
        let keys: Vec<String> = keys
            .iter()
            .map(|one| one.pointer("/key").unwrap().as_str().unwrap().to_owned())
            .filter(|key| key.contains("family"))
            .collect();
        keys.concat()
    };
    let kwok = || Pool {
        group: "karpenter.kwok.sh",
        ..POOL
    };
    assert_eq!(key(settings(), &[]), "karpenter.k8s.aws/instance-family");
    assert_eq!(
        key(settings(), &[kwok(), POOL]),
        "karpenter.k8s.aws/instance-family"
    );
    assert_eq!(
        key(settings(), &[kwok(), kwok()]),
        "karpenter.kwok.sh/instance-family"
    );
    let own = Settings {
        family_label: Some("example.com/family".to_owned()),
        ..settings()
    };
    assert_eq!(key(own, &[kwok()]), "example.com/family");
}

#[test]
fn pools_that_can_launch_spot_are_left_out_on_demand() {
    let mixed = || Pool {
        capacity: &["on-demand", "spot"],
        ..POOL
    };
    let plans = |mixed_pools: MixedPools, pools: &[Pool]| {
        let mut decider = Decider::new(Settings {
            mixed_pools,
            preferences: false,
            ..settings()
        });
        decider.learn(now(), ledger());
        let decided = look(&mut decider, pools, &[]);
        let rendered: Vec<String> = decided
            .actions
            .iter()
            .map(|action| match action {
                Action::Create(overlay) => serde_json::to_string(&overlay.spec).unwrap(),
                _ => action.operation().to_owned(),
            })
            .collect();
        rendered.concat()
    };
    assert!(!plans(MixedPools::Include, &[POOL, mixed()]).contains("pool-0"));
    let only = plans(MixedPools::Exclude, &[POOL, mixed()]);
    assert!(only.contains("pool-0") && !only.contains("pool-1"), "{only}");
    assert_eq!(plans(MixedPools::Exclude, &[mixed()]), "", "no pool may use it");
}

#[test]
fn an_overlay_that_says_not_what_it_covers_stays_while_there_is_doubt() {
    let unnamed = || {
        [ours(
            "cost-aware-old",
            &[("veneer.io/capacity-type", "ec2-instance-savings-plan")],
        )]
    };
    let mut decider = Decider::new(Settings {
        preferences: false,
        ..settings()
    });
    decider.learn(now(), ledger());
    let sure = look(&mut decider, &[POOL], &unnamed());
    assert_eq!(
        written(&sure),
        [format!("create {PLAN}"), "delete cost-aware-old".to_owned()]
    );
    let mut known = ledger();
    let doubt = Doubt::QueryFailed("no answer".to_owned());
    known.books.insert(Kind::Ec2InstanceSavingsPlan, Err(doubt));
    decider.learn(now(), known);
    assert_eq!(written(&look(&mut decider, &[POOL], &unnamed())), [""; 0]);
}

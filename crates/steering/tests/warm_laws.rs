//! Whatever happens to a cluster with Overprovisioners, and wherever the process is killed: when it settles, the number
//! of spares is the wanted one, and nothing is lost or left behind.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "support/cluster.rs"]
mod cluster;

use std::collections::BTreeSet;

use cluster::Cluster;
use serde_json::json;
use veneer_api::overprovisioner::SpareStrategy;
use veneer_engine::plan::{
    InstanceState, is_deleting, is_spare, is_spare_taint, is_used_spare, name, provider_id,
};
use veneer_steering::warm::sizing::{Size, wanted};

/// A small deterministic generator of random numbers.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| {
            random.below(2);
        });
        random
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }
}

struct Wish {
    strategy: SpareStrategy,
    size: Size,
    state: &'static str,
}

fn apply(cluster: &mut Cluster, named: &str, wish: &Wish) {
    let sizing = match wish.size {
        Size::Count(count) => json!({"count": count}),
        Size::Percent(percent) => json!({"percentage": percent}),
    };
    cluster.overprovisioner(
        named,
        json!({"targetNodePools": ["default"], "state": wish.state, "strategy": wish.strategy, "sizing": sizing}),
    );
}

fn wish(random: &mut Random, is_cold: bool) -> Wish {
    Wish {
        strategy: [SpareStrategy::KeepEmpty, SpareStrategy::KeepMinimum][random.below(2)].clone(),
        size: match random.below(2) {
            0 => Size::Count(random.below(4)),
            _ => Size::Percent(10 * random.below(11)),
        },
        state: if is_cold {
            ["Stopped", "Hibernated"][random.below(2)]
        } else {
            "Running"
        },
    }
}

fn check(cluster: &Cluster, wishes: &[(&str, Wish)], at: &str) {
    let base = cluster.claims(|claim| !is_spare(&claim.metadata)).len();
    for (named, wish) in wishes {
        let used = cluster.used(named).len();
        let expected = wanted(&wish.strategy, wish.size, base, used);
        let spares = cluster.spares(named);
        assert_eq!(
            spares.len(),
            expected,
            "{at}: {named} {:?} {:?}",
            wish.strategy,
            wish.size
        );
        let status = cluster.status(named);
        let number = |count: usize| i32::try_from(count).unwrap();
        assert_eq!(
            (status.desired, status.ready, status.in_use),
            (number(expected), number(expected), number(used)),
            "{at}: {named}"
        );
        let stopped = spares.iter().filter(|spare| {
            let id = provider_id(spare);
            let instances = cluster.snapshot.instances.iter();
            let mut own = instances.filter(|one| Some(one.provider_id.as_str()) == id);
            own.any(|one| one.state == InstanceState::Stopped)
        });
        let is_cold = wish.state != "Running";
        assert_eq!(
            stopped.count(),
            if is_cold { expected } else { 0 },
            "{at}: {named}"
        );
    }
    let claims: BTreeSet<&str> = cluster
        .snapshot
        .node_claims
        .iter()
        .map(|claim| name(&claim.metadata))
        .collect();
    let instances: BTreeSet<&str> = cluster
        .snapshot
        .instances
        .iter()
        .map(|one| one.claim.as_str())
        .collect();
    assert_eq!(claims, instances, "{at}: one instance for each claim");
    for node in &cluster.snapshot.nodes {
        let taints = node.spec.as_ref().unwrap().taints.iter().flatten();
        let is_closed = taints.into_iter().any(is_spare_taint);
        assert_eq!(
            is_closed,
            is_spare(&node.metadata),
            "{at}: {}",
            name(&node.metadata)
        );
        assert!(!is_deleting(&node.metadata), "{at}");
        let claim = cluster.claims(|claim| claim.metadata.name == node.metadata.name);
        assert_eq!(
            is_used_spare(&claim[0].metadata),
            is_used_spare(&node.metadata),
            "{at}: {}",
            name(&node.metadata)
        );
    }
    for pod in &cluster.snapshot.pods {
        let node = pod.spec.as_ref().unwrap().node_name.clone();
        let node = node.unwrap_or_else(|| panic!("{at}: {} waits", name(&pod.metadata)));
        assert!(!is_spare(&cluster.node(&node).metadata), "{at}");
    }
}

#[test]
fn the_number_is_kept_whatever_happens_and_wherever_it_is_killed() {
    for seed in 0..15 {
        let mut random = Random::new(seed);
        let mut cluster = Cluster::with_pool();
        let mut wishes = vec![
            ("cold", wish(&mut random, true)),
            ("hot", wish(&mut random, false)),
        ];
        for (named, wish) in &wishes {
            apply(&mut cluster, named, wish);
        }
        let mut pods: Vec<String> = Vec::new();
        for step in 0..12 {
            let does = match random.below(6) {
                0 => {
                    let at = random.below(2);
                    let named = wishes[at].0;
                    wishes[at] = (named, wish(&mut random, at == 0));
                    apply(&mut cluster, named, &wishes[at].1);
                    "another wish"
                }
                1 if !pods.is_empty() => {
                    let pod = pods.swap_remove(random.below(pods.len()));
                    cluster.remove_pod(&pod);
                    "one pod less"
                }
                2 => {
                    cluster.pass_time(120);
                    "time"
                }
                _ => {
                    for number in 0..=random.below(3) {
                        let pod = format!("p{step}-{number}");
                        cluster.pod(&pod, ["500m", "1500m", "3"][random.below(3)]);
                        pods.push(pod);
                    }
                    "more pods"
                }
            };
            // Some passes are cut short after any of their actions, and the process forgets everything.
            for _ in 0..random.below(6) {
                let actions = cluster.decide().actions;
                let done = random.below(actions.len() + 1);
                actions
                    .into_iter()
                    .take(done)
                    .for_each(|action| cluster.act(action));
                cluster.schedule();
                cluster.reset_cycle();
            }
            for _ in 0..3 {
                cluster.settle();
                cluster.pass_time(60);
            }
            cluster.settle();
            check(&cluster, &wishes, &format!("seed {seed}, step {step} ({does})"));
        }
    }
}

//! Cases from seeds: the same seed is the same case, on every machine.
//!
//! Of three seeds in a row the first has one feature alone, the other two have several. Most cases can run entirely;
//! some cannot (limits, constraints that exclude each other across workloads), and then both sides have to leave pods.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use veneer_agreement::Rng;
use veneer_testbed::workload::node_pool;

use super::case::{Action, Case, Expected, Kind, Step};
use super::feature::Feature;
use super::pods::{self, Template};

/// No case ever asks for more pods at the same time.
const MAX_PODS: usize = 150;

/// The case of a seed.
#[must_use]
pub fn generate(seed: u64) -> Case {
    let mut rng = Rng::new(0x7665_6e65_6572, seed);
    let features = features(&mut rng, seed);
    let mut generator = Generator {
        rng,
        case: Case {
            seed,
            features: features.clone(),
            setting: Vec::new(),
            steps: Vec::new(),
            expected: Vec::new(),
            consolidates: false,
        },
        budget: MAX_PODS,
    };
    generator.cluster();
    generator.workloads();
    if features.contains(&Feature::NotReady) {
        generator.not_ready();
    }
    let mut case = generator.case;
    case.steps.sort_by_key(|step| step.at);
    case
}

fn features(rng: &mut Rng, seed: u64) -> BTreeSet<Feature> {
    if seed.is_multiple_of(3) {
        let number = usize::try_from(seed / 3).unwrap_or_default() % Feature::ALL.len();
        return Feature::ALL.get(number).copied().into_iter().collect();
    }
    let count = 3 + rng.below(6);
    (0..count).map(|_| *rng.pick(&Feature::ALL)).collect()
}

pub(super) struct Generator {
    pub(super) rng: Rng,
    pub(super) case: Case,
    budget: usize,
}

impl Generator {
    fn has(&self, feature: Feature) -> bool {
        self.case.features.contains(&feature)
    }

    fn step(&mut self, at: i64, action: Action) {
        let at = Duration::from_secs(u64::try_from(at).unwrap_or_default());
        self.case.steps.push(Step { at, action });
    }

    fn cluster(&mut self) {
        let delay = self
            .has(Feature::SlowRegistration)
            .then(|| self.rng.between(2, 9));
        let spec = delay.map_or_else(
            || json!({}),
            |delay| json!({"nodeRegistrationDelay": format!("{delay}s")}),
        );
        self.case
            .setting
            .push(json!({"apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": spec}));
        for (name, value) in [("low", 100), ("high", 10_000)] {
            self.case.setting.push(
                json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value}),
            );
        }
        self.node_pools();
        if self.has(Feature::DaemonSets) {
            for number in 0..=self.rng.below(2) {
                let cpu = *self.rng.pick(&["50m", "100m", "300m"]);
                let requests = pods::requests(cpu, "128Mi");
                let daemons = pods::daemon_set(&format!("agent-{number}"), &requests, self.rng.chance(70));
                if self.rng.chance(20) {
                    let at = self.rng.between(4, 12);
                    self.step(at, Action::Create(daemons));
                } else {
                    self.case.setting.push(daemons);
                }
            }
        }
    }

    fn node_pools(&mut self) {
        let disruption = match self.rng.below(20) {
            0..=6 => {
                json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]})
            }
            7..=11 => {
                json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]})
            }
            _ => {
                let nodes = *self.rng.pick(&["100%", "50%", "1"]);
                json!({"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "2s", "budgets": [{"nodes": nodes}]})
            }
        };
        self.case.consolidates = disruption["consolidateAfter"] != "Never";
        let mut pools = vec![self.pool("general", true)];
        if self.has(Feature::Weights) || self.rng.chance(25) {
            for name in ["preferred", "second"].iter().take(1 + self.rng.below(2)) {
                let mut pool = self.pool(name, false);
                if self.has(Feature::Weights) {
                    pool["spec"]["weight"] = self.rng.between(1, 100).into();
                }
                pools.push(pool);
            }
        }
        if self.has(Feature::Taints) {
            let mut pool = self.pool("dedicated", false);
            let effect = *self.rng.pick(&["NoSchedule", "NoSchedule", "NoExecute"]);
            pool["spec"]["template"]["spec"]["taints"] =
                json!([{"key": "dedicated", "value": "yes", "effect": effect}]);
            if self.rng.chance(50) {
                pool["spec"]["weight"] = self.rng.between(1, 100).into();
            }
            pools.push(pool);
        }
        if self.has(Feature::Limits) {
            // Alone, the limited pool has to do for everything; beside others it comes first.
            let at = if pools.len() > 1 { 1 } else { 0 };
            if let Some(pool) = pools.get_mut(at) {
                pool["spec"]["limits"] = json!({"cpu": self.rng.between(12, 64).to_string()});
                if at == 1 {
                    pool["spec"]["weight"] = json!(100);
                }
            }
        }
        for mut pool in pools {
            pool["spec"]["disruption"] = disruption.clone();
            self.case.setting.push(pool);
        }
    }

    /// A NodePool; a general one takes whatever a workload may ask for.
    fn pool(&mut self, name: &str, is_general: bool) -> Value {
        let within = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
        let mut requirements = vec![within("kubernetes.io/os", &["linux"])];
        let both = ["on-demand", "spot"];
        if is_general || self.rng.chance(50) {
            requirements.push(within("karpenter.sh/capacity-type", &both));
        } else {
            let one = *self.rng.pick(&both);
            requirements.push(within("karpenter.sh/capacity-type", &[one]));
        }
        if is_general || self.rng.chance(30) {
            requirements.push(within("kubernetes.io/arch", &["amd64", "arm64"]));
        } else {
            requirements.push(within("kubernetes.io/arch", &["amd64"]));
        }
        match self.rng.below(4) {
            0 => requirements.push(within("karpenter.kwok.sh/instance-cpu", &["4", "8", "16", "32"])),
            1 => requirements.push(within("karpenter.kwok.sh/instance-cpu", &["2", "4", "8"])),
            2 if !is_general => {
                requirements.push(within("karpenter.kwok.sh/instance-family", &["m5", "c5", "r5"]));
            }
            _ => {}
        }
        if !is_general && self.rng.chance(30) {
            requirements.push(within(pods::ZONE, &["us-west-2a", "us-west-2b"]));
        }
        let mut pool = node_pool(name, json!({"requirements": requirements}));
        pool["spec"]["template"]["metadata"] = json!({"labels": {"example.com/pool": name}});
        pool
    }

    fn workloads(&mut self) {
        let alone = self.case.features.len() == 1;
        // Priorities and anti-affinity to another workload need another workload.
        let least =
            1 + usize::from(self.has(Feature::Priorities) || self.has(Feature::OtherAntiAffinity) || !alone);
        let count = least + self.rng.below(if alone { 2 } else { 5 });
        let mut of_workloads: Vec<Vec<Feature>> = vec![Vec::new(); count];
        let wanted: Vec<Feature> = self
            .case
            .features
            .iter()
            .copied()
            .filter(|one| !one.is_of_the_cluster())
            .collect();
        for feature in wanted {
            let at = self.rng.below(count);
            let again = self.rng.below(count);
            for (number, features) in of_workloads.iter_mut().enumerate() {
                let takes = number == at
                    || (number == again && feature != Feature::Priorities && self.rng.chance(50));
                if takes && !features.iter().any(|other| feature.excludes(*other)) {
                    features.push(feature);
                }
            }
        }
        for (number, features) in of_workloads.into_iter().enumerate() {
            let share = self.budget / (count - number);
            let used = self.workload(number, &features, share.max(2));
            self.budget = self.budget.saturating_sub(used);
        }
    }

    /// Adds a workload and gives back how many pods it may have at the same time.
    fn workload(&mut self, number: usize, features: &[Feature], share: usize) -> usize {
        let has = |feature| features.contains(&feature);
        let app = format!("app-{number}");
        let at_once = if self.rng.chance(70) {
            0
        } else {
            self.rng.between(1, 8)
        };
        let at = if has(Feature::Priorities) {
            5 + at_once
        } else {
            at_once
        };
        let most = pods::most(features).min(share);
        let up_to = if self.rng.chance(60) { most.min(20) } else { most };
        let replicas = 1 + self.rng.below(up_to);
        let mut template = Template::new(&app, &mut self.rng);
        for feature in features {
            template.add(*feature, number, &mut self.rng);
        }
        if self.has(Feature::Priorities) {
            template.spec["priorityClassName"] = json!(if has(Feature::Priorities) { "high" } else { "low" });
        }
        if has(Feature::Budgets) {
            self.case.setting.push(pods::budget(&app, &mut self.rng));
        }
        let mut expected = Expected {
            app: app.clone(),
            kind: Kind::Deployment,
            pods: replicas,
            version: "1".to_owned(),
        };
        if has(Feature::Jobs) {
            expected.kind = Kind::Job;
            let seconds = self.rng.between(1, 15);
            self.step(
                at,
                Action::Create(pods::job(&app, replicas.min(20), &template, seconds)),
            );
            expected.pods = replicas.min(20);
            self.case.expected.push(expected);
            return replicas;
        }
        if has(Feature::BarePods) {
            expected.kind = Kind::Pod;
            expected.pods = replicas.min(8);
            for pod in 0..expected.pods {
                self.step(at, Action::Create(pods::bare_pod(&app, pod, &template)));
            }
            self.case.expected.push(expected);
            return replicas;
        }
        let (mut most, mut last) = (replicas, replicas);
        let target = if has(Feature::ScaleUp) {
            Some(
                replicas
                    + self
                        .rng
                        .below(share.min(pods::most(features)).saturating_sub(replicas) + 1),
            )
        } else if has(Feature::ScaleDown) {
            Some(self.rng.below(replicas + 1))
        } else {
            None
        };
        if let Some(target) = target {
            most = most.max(target);
            last = target;
        }
        let stateful = has(Feature::StatefulSets) || has(Feature::Volumes);
        let manifest = if stateful {
            let parallel = self.rng.chance(60);
            expected.kind = Kind::StatefulSet;
            if has(Feature::Volumes) {
                let volumes = pods::volumes(&app, most, &mut self.rng);
                self.case.setting.extend(volumes);
            }
            pods::stateful_set(&app, replicas, &template, parallel, has(Feature::Volumes))
        } else {
            pods::deployment(&app, replicas, &template)
        };
        let kind = if stateful { "StatefulSet" } else { "Deployment" };
        self.step(at, Action::Create(manifest));
        if target.is_some() {
            let at = at + self.rng.between(2, 15);
            let patch = json!({"spec": {"replicas": last}});
            self.step(
                at,
                Action::Patch {
                    kind,
                    name: app.clone(),
                    patch,
                },
            );
        }
        if has(Feature::Rollouts) || has(Feature::MatchLabelKeys) {
            let at = at + self.rng.between(2, 15);
            let patch = json!({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}});
            self.step(
                at,
                Action::Patch {
                    kind,
                    name: app,
                    patch,
                },
            );
            expected.version = "2".to_owned();
            most += most.div_ceil(4);
        }
        expected.pods = last;
        self.case.expected.push(expected);
        most
    }

    /// A node is not ready for some seconds.
    fn not_ready(&mut self) {
        let apps: Vec<String> = self
            .case
            .expected
            .iter()
            .map(|expected| expected.app.clone())
            .collect();
        if apps.is_empty() {
            return;
        }
        let app = self.rng.pick(&apps).clone();
        let (at, takes) = (self.rng.between(8, 14), self.rng.between(5, 15));
        self.step(at, Action::NodeNotReady { app });
        self.step(at + takes, Action::NodesReady);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_always_the_same_case_of_at_most_150_pods() {
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let case = generate(seed);
            assert_eq!(format!("{case:?}"), format!("{:?}", generate(seed)));
            assert!(case.pods() <= MAX_PODS, "{seed}: {}", case.pods());
            assert!(!case.steps.is_empty(), "{seed}");
            assert!(case.steps.is_sorted_by_key(|step| step.at));
            seen.extend(case.features);
        }
        assert_eq!(seen.len(), Feature::ALL.len(), "every feature occurs");
    }
}

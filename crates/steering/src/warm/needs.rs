//! What the pods of a pool need of a node: those that it has, those that it had lately, and those that it could get.
//!
//! The scheduler is asked which types, zones and capacity types of the pool would take one pod of each kind beside the
//! DaemonSets. Its answers are kept as long as nothing changes that they depend on; all of it may be forgotten.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::labels::kubernetes;
use veneer_api::{NodePool, NodeShape, Overprovisioner, Pod};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::Evaluation;
use veneer_engine::plan::{
    Snapshot, controller_of, is_daemon_pod, is_deleting, is_terminal, label, name, node_pool_of,
};
use veneer_engine::provision::{Market, is_provisionable};
use veneer_engine::quantity::Quantity;

use super::fits::{Asked, Fit};
use super::spares::Spare;

/// How long pods that are gone still count.
const LATELY: SignedDuration = SignedDuration::from_hours(24);
/// How many kinds of pods are remembered for each pool.
const REMEMBERED: usize = 200;
/// How many kinds of pods, or templates, count.
const KINDS: usize = 20;
/// About how many of them the scheduler is asked at most.
const ASKED: usize = 100;

/// Where the needs of a pool are known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The Overprovisioner says so itself.
    NodeShape,
    /// Pods that the pool has, or had lately.
    Pods,
    /// Workloads whose pods could land in the pool.
    Templates,
    /// Nothing is known.
    Nothing,
}

/// What one kind of pods needs.
#[derive(Clone, Debug)]
pub struct Need {
    /// How many such pods there were at once.
    pub pods: usize,
    /// How many of them were without a place at once.
    pub waiting: usize,
    /// Where they fit.
    pub fit: Arc<Fit>,
}

/// What spares of a pool have to be good for.
#[derive(Clone, Debug)]
pub struct Needs {
    /// Where this is known from.
    pub source: Source,
    /// What a new spare is made for.
    pub wanted: Vec<Need>,
    /// A spare that takes none of these is of no use; with none known, any spare is.
    pub useful: Vec<Arc<Fit>>,
}

impl Needs {
    /// Whether any of the pods fits on a spare. One whose type cannot be launched at the moment is not judged.
    #[must_use]
    pub fn is_useful(&self, spare: &Spare<'_>, snapshot: &Snapshot) -> bool {
        let Some(instance_type) = type_of(spare) else {
            return true;
        };
        let is_short = |short: &str| short == instance_type;
        self.useful.is_empty()
            || snapshot
                .shortages
                .iter()
                .any(|shortage| is_short(&shortage.instance_type))
            || self
                .useful
                .iter()
                .any(|fit| fit.takes(instance_type, zone_of(spare), spare.bought_as()))
    }
}

/// The type that a spare is of, or will be.
#[must_use]
pub fn type_of<'a>(spare: &'a Spare<'_>) -> Option<&'a str> {
    stated(spare, kubernetes::INSTANCE_TYPE)
}

/// The zone that a spare is in, or will be.
#[must_use]
pub fn zone_of<'a>(spare: &'a Spare<'_>) -> Option<&'a str> {
    stated(spare, kubernetes::ZONE)
}

fn stated<'a>(spare: &'a Spare<'_>, key: &str) -> Option<&'a str> {
    label(&spare.claim.metadata, key).or_else(|| {
        let requirements = &spare.claim.spec.requirements;
        let stated = requirements.iter().find(|one| one.key == key)?;
        match (stated.operator.as_str(), stated.values.as_slice()) {
            ("In", [only]) => Some(only.as_str()),
            _ => None,
        }
    })
}

/// A kind of pods that a pool had.
#[derive(Clone, Debug)]
struct Seen {
    pod: Arc<Pod>,
    /// How many there were at once, and how many of them waited.
    pods: usize,
    waiting: usize,
    /// Since when these numbers hold, and when the last pod was seen.
    since: Timestamp,
    last: Timestamp,
}

/// What the answers of the scheduler depend on.
#[derive(Debug)]
struct Basis {
    evaluation: Arc<Evaluation>,
    catalogue: Arc<Catalogue>,
    pools: Vec<Arc<NodePool>>,
    daemon_sets: Vec<Arc<DaemonSet>>,
}

impl Basis {
    fn of(snapshot: &Snapshot, market: &Market) -> Self {
        Self {
            evaluation: Arc::clone(market.evaluation()),
            catalogue: Arc::clone(market.catalogue()),
            pools: snapshot.node_pools.clone(),
            daemon_sets: snapshot.daemon_sets.clone(),
        }
    }

    fn holds(&self, now: &Self) -> bool {
        let same_pool = |(a, b): (&Arc<NodePool>, &Arc<NodePool>)| {
            Arc::ptr_eq(a, b) || (a.metadata.name == b.metadata.name && a.spec == b.spec)
        };
        let same_set = |(a, b): (&Arc<DaemonSet>, &Arc<DaemonSet>)| Arc::ptr_eq(a, b) || a.spec == b.spec;
        Arc::ptr_eq(&self.evaluation, &now.evaluation)
            && Arc::ptr_eq(&self.catalogue, &now.catalogue)
            && self.pools.len() == now.pools.len()
            && self.daemon_sets.len() == now.daemon_sets.len()
            && self.pools.iter().zip(&now.pools).all(same_pool)
            && self.daemon_sets.iter().zip(&now.daemon_sets).all(same_set)
    }
}

/// What is remembered from pass to pass about the pods of pools that have spares.
#[derive(Debug, Default)]
pub struct Memory {
    /// By pool and kind of pods.
    seen: BTreeMap<String, BTreeMap<String, Seen>>,
    /// By pool and kind of pods or template.
    fits: HashMap<(String, String), Option<Arc<Fit>>>,
    basis: Option<Basis>,
}

impl Memory {
    /// Takes in which pods the target pools have now, and those that wait for a place.
    pub fn observe(&mut self, snapshot: &Snapshot, market: &Market, now: Timestamp) {
        let overprovisioners = snapshot.overprovisioners.iter();
        let targets = overprovisioners.flat_map(|one| &one.spec.target_node_pools);
        self.observe_for(snapshot, targets.map(String::as_str).collect(), market, now);
    }

    /// The same for these pools.
    pub(super) fn observe_for(
        &mut self,
        snapshot: &Snapshot,
        targets: BTreeSet<&str>,
        market: &Market,
        now: Timestamp,
    ) {
        let basis = Basis::of(snapshot, market);
        if !self.basis.as_ref().is_some_and(|known| known.holds(&basis)) {
            self.fits.clear();
        }
        self.basis = Some(basis);
        self.seen.retain(|pool, _| targets.contains(pool.as_str()));
        let nodes = snapshot.nodes.iter();
        let pool_of: HashMap<&str, &str> = nodes
            .map(|node| (name(&node.metadata), node_pool_of(&node.metadata)))
            .filter(|(_, pool)| targets.contains(pool))
            .collect();
        let mut found: BTreeMap<(&str, String), (&Arc<Pod>, usize, usize)> = BTreeMap::new();
        let mut kinds: HashMap<(Option<*const PodSpec>, Option<&str>), String> = HashMap::new();
        for pod in &snapshot.pods {
            if is_daemon_pod(pod) || is_terminal(pod) || is_deleting(&pod.metadata) {
                continue;
            }
            let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let waits = on.is_none() && is_provisionable(pod);
            let of_node = on.and_then(|on| pool_of.get(on)).copied();
            let pools = of_node
                .into_iter()
                .chain(targets.iter().copied().filter(|_| waits));
            // Pods that share their spec are copies of each other; the rest is compared only once for all of them.
            let shared = pod.spec.as_ref().map(|spec| Arc::as_ptr(spec.shared()));
            let kind = || {
                let kind = kinds.entry((shared, controller_of(&pod.metadata)));
                kind.or_insert_with(|| kind_of(pod)).clone()
            };
            let kind = LazyCell::new(kind);
            for pool in pools {
                let (_, pods, waiting) = found.entry((pool, kind.clone())).or_insert((pod, 0, 0));
                *pods += 1;
                *waiting += usize::from(waits);
            }
        }
        for ((pool, kind), (pod, pods, waiting)) in found {
            let kinds = self.seen.entry(pool.to_owned()).or_default();
            let seen = kinds.entry(kind).or_insert_with(|| Seen {
                pod: Arc::clone(pod),
                pods: 0,
                waiting: 0,
                since: now,
                last: now,
            });
            if now.duration_since(seen.since) > LATELY {
                (seen.pods, seen.waiting) = (0, 0);
            }
            if pods > seen.pods || waiting > seen.waiting {
                seen.since = now;
            }
            seen.pods = seen.pods.max(pods);
            seen.waiting = seen.waiting.max(waiting);
            seen.last = now;
        }
        for kinds in self.seen.values_mut() {
            kinds.retain(|_, seen| now.duration_since(seen.last) <= LATELY);
            while kinds.len() > REMEMBERED {
                let oldest = kinds.iter().min_by_key(|(_, seen)| seen.last);
                let Some(oldest) = oldest.map(|(kind, _)| kind.clone()) else {
                    break;
                };
                kinds.remove(&oldest);
            }
        }
    }

    /// What spares of a pool have to be good for, or what is wrong with what the Overprovisioner says about that.
    pub fn needs(
        &mut self,
        one: Option<&Overprovisioner>,
        pool: &NodePool,
        snapshot: &Snapshot,
        market: &mut Market,
        now: Timestamp,
    ) -> Result<Needs, String> {
        let mut asked = Asked::new(snapshot, pool, market, now);
        if let Some(shape) = one.and_then(|one| one.spec.node_shape.as_ref()) {
            return self.by_shape(shape, &mut asked);
        }
        let pool_name = name(&pool.metadata);
        let kinds = self.seen.get(pool_name);
        let mut kinds: Vec<(String, Seen)> = kinds
            .into_iter()
            .flatten()
            .map(|(kind, seen)| (kind.clone(), seen.clone()))
            .collect();
        kinds.sort_by_cached_key(|(kind, seen)| {
            let size = size(seen.pod.spec.as_ref().map(|spec| &**spec.shared()));
            (std::cmp::Reverse((seen.pods, size)), kind.clone())
        });
        let mut wanted = Vec::new();
        for (kind, seen) in kinds.into_iter().take(ASKED) {
            if wanted.len() == KINDS {
                break;
            }
            if let Some(fit) = self.fit(kind, &seen.pod, &mut asked) {
                let (pods, waiting) = (seen.pods, seen.waiting);
                wanted.push(Need { pods, waiting, fit });
            }
        }
        if !wanted.is_empty() {
            return Ok(Needs {
                source: Source::Pods,
                useful: wanted.iter().map(|need| Arc::clone(&need.fit)).collect(),
                wanted,
            });
        }
        Ok(self.by_templates(&mut asked))
    }

    fn fit(&mut self, kind: String, pod: &Pod, asked: &mut Asked<'_>) -> Option<Arc<Fit>> {
        let key = (asked.pool_name().to_owned(), kind);
        if let Some(known) = self.fits.get(&key) {
            return known.clone();
        }
        let fit = asked.fit(pod).map(Arc::new);
        self.fits.insert(key, fit.clone());
        fit
    }

    /// The largest template that the pool can take decides; a spare is useful if it takes any of them.
    fn by_templates(&mut self, asked: &mut Asked<'_>) -> Needs {
        let snapshot = asked.snapshot();
        let mut templates: Vec<Template<'_>> = templates(snapshot).collect();
        templates.sort_by_cached_key(|template| {
            let size = size(template.template.spec.as_ref());
            (std::cmp::Reverse(size), template.key())
        });
        let mut useful = Vec::new();
        for template in templates.into_iter().take(ASKED) {
            if useful.len() == KINDS {
                break;
            }
            useful.extend(self.fit(template.key(), &template.pod(), asked));
        }
        let largest = useful.first().map(|fit| Need {
            pods: 1,
            waiting: 0,
            fit: Arc::clone(fit),
        });
        Needs {
            source: if useful.is_empty() {
                Source::Nothing
            } else {
                Source::Templates
            },
            wanted: largest.into_iter().collect(),
            useful,
        }
    }

    fn by_shape(&mut self, shape: &NodeShape, asked: &mut Asked<'_>) -> Result<Needs, String> {
        let pool = asked.pool_name().to_owned();
        let field = "spec.nodeShape";
        let set = [
            !shape.instance_types.is_empty(),
            !shape.resources.is_empty(),
            shape.pod_template_ref.is_some(),
            shape.scalable_ref.is_some(),
        ];
        if set.iter().filter(|is_set| **is_set).count() != 1 {
            return Err(format!(
                "{field}: set exactly one of instanceTypes, resources, podTemplateRef and scalableRef"
            ));
        }
        let fit = if !shape.instance_types.is_empty() {
            Arc::new(Fit::of_types(shape.instance_types.iter().cloned()))
        } else if !shape.resources.is_empty() {
            let wrong = shape.resources.iter().find(|(_, amount)| {
                let amount = amount.0.parse::<Quantity>().ok();
                amount.is_none_or(|amount| amount.milli_value() <= 0)
            });
            if let Some((resource, amount)) = wrong {
                return Err(format!(
                    "{field}.resources: expected an amount above 0 for {resource}, such as \"4\" or 16Gi, found {:?}",
                    amount.0
                ));
            }
            let kind = format!("resources {:?}", shape.resources);
            self.fit(kind, &holding(shape), asked).ok_or_else(|| {
                format!("{field}.resources: no type of NodePool {pool} has that free beside its DaemonSets; ask for less, or widen the requirements of the NodePool")
            })?
        } else {
            let (wanted, words) = referenced(shape);
            let found = templates(asked.snapshot()).find(|one| wanted == (one.kind, one.namespace, one.name));
            let template = found.or_else(|| {
                pod_templates(asked.snapshot()).find(|one| wanted == (one.kind, one.namespace, one.name))
            });
            let Some(template) = template else {
                let (kind, ..) = wanted;
                return Err(if asked.snapshot().unseen_kinds.contains(kind) {
                    format!(
                        "{field}: {words} cannot be seen: the ClusterRole of the controller does not allow to list and watch {kind} objects; add the rule (the chart has it)"
                    )
                } else {
                    format!("{field}: there is no {words}; create it, or name one that exists")
                });
            };
            self.fit(template.key(), &template.pod(), asked).ok_or_else(|| {
                format!("{field}: a pod of {words} fits on no type of NodePool {pool}; `veneer explain pod` says why")
            })?
        };
        Ok(Needs {
            source: Source::NodeShape,
            useful: vec![Arc::clone(&fit)],
            wanted: vec![Need {
                pods: 1,
                waiting: 0,
                fit,
            }],
        })
    }
}

/// What a shape refers to: kind, namespace and name, and the same in words.
fn referenced(shape: &NodeShape) -> ((&str, &str, &str), String) {
    let (kind, namespace, object) = match (&shape.scalable_ref, &shape.pod_template_ref) {
        (Some(one), _) => (one.kind.as_str(), one.namespace.as_str(), one.name.as_str()),
        (None, Some(one)) => ("PodTemplate", one.namespace.as_str(), one.name.as_str()),
        (None, None) => ("PodTemplate", "", ""),
    };
    ((kind, namespace, object), format!("{kind} {namespace}/{object}"))
}

/// A pod that asks for what a spare shall have free, and tolerates everything.
fn holding(shape: &NodeShape) -> Pod {
    let resources = ResourceRequirements {
        requests: Some(shape.resources.clone()),
        ..ResourceRequirements::default()
    };
    let spec = PodSpec {
        containers: vec![Container {
            name: "room".to_owned(),
            resources: Some(resources),
            ..Container::default()
        }],
        tolerations: Some(vec![Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }]),
        ..PodSpec::default()
    };
    Pod {
        metadata: ObjectMeta {
            name: Some("room".to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some("room".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(spec.into()),
        status: None,
    }
}

/// What pods of one kind share. Pods of one controller are copies of each other, unless they have volumes, which may be in other zones.
fn kind_of(pod: &Pod) -> String {
    let uid = || pod.metadata.uid.clone().unwrap_or_default();
    let Some(spec) = &pod.spec else { return uid() };
    let claims_volumes = |volume: &k8s_openapi::api::core::v1::Volume| {
        volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
    };
    if spec.volumes.iter().flatten().any(claims_volumes) {
        return uid();
    }
    let size = size(Some(spec));
    if let Some(owner) = controller_of(&pod.metadata) {
        return format!("{owner} {size:?}");
    }
    if spec.affinity.is_some() || spec.topology_spread_constraints.is_some() {
        return uid();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let (selector, tolerations) = (&spec.node_selector, &spec.tolerations);
    format!("{namespace} {size:?} {selector:?} {tolerations:?}")
}

/// Processors and memory that the containers ask for, in thousandths.
fn size(spec: Option<&PodSpec>) -> [i128; 2] {
    let mut size = [0_i128; 2];
    for container in spec.into_iter().flat_map(|spec| &spec.containers) {
        let requests = container.resources.as_ref().and_then(|one| one.requests.as_ref());
        for (total, resource) in size.iter_mut().zip(["cpu", "memory"]) {
            let amount = requests.and_then(|list| list.get(resource));
            let amount = amount.and_then(|text| text.0.parse::<Quantity>().ok());
            *total += amount.map_or(0, |amount| i128::from(amount.milli_value()));
        }
    }
    size
}

/// What the pods of a workload would be.
struct Template<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    /// Changes with the template.
    version: String,
    template: &'a PodTemplateSpec,
}

impl<'a> Template<'a> {
    fn of(kind: &'static str, metadata: &'a ObjectMeta, template: &'a PodTemplateSpec) -> Self {
        let version = match metadata.generation {
            Some(generation) => generation.to_string(),
            None => metadata.resource_version.clone().unwrap_or_default(),
        };
        Self {
            kind,
            namespace: metadata.namespace.as_deref().unwrap_or("default"),
            name: name(metadata),
            version,
            template,
        }
    }

    fn key(&self) -> String {
        format!("{}/{}/{}/{}", self.kind, self.namespace, self.name, self.version)
    }

    fn pod(&self) -> Pod {
        let metadata = self.template.metadata.clone().unwrap_or_default();
        Pod {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                namespace: Some(self.namespace.to_owned()),
                uid: Some(self.key()),
                labels: metadata.labels,
                annotations: metadata.annotations,
                ..ObjectMeta::default()
            },
            spec: self.template.spec.clone().map(Into::into),
            status: None,
        }
    }
}

/// The templates of the workloads that may make pods.
fn templates(snapshot: &Snapshot) -> impl Iterator<Item = Template<'_>> {
    let deployments = snapshot.deployments.iter();
    let deployments = deployments.map(|one| Template::of("Deployment", &one.metadata, &one.spec.template));
    let stateful_sets = snapshot.stateful_sets.iter();
    let stateful_sets =
        stateful_sets.map(|one| Template::of("StatefulSet", &one.metadata, &one.spec.template));
    let jobs = snapshot.jobs.iter().filter_map(|job| {
        let conditions = job
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref());
        let is_over = conditions
            .unwrap_or_default()
            .iter()
            .any(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True");
        let spec = job.spec.as_ref().filter(|_| !is_over)?;
        Some(Template::of("Job", &job.metadata, &spec.template))
    });
    deployments.chain(stateful_sets).chain(jobs)
}

/// PodTemplates, which nothing makes pods of by itself.
fn pod_templates(snapshot: &Snapshot) -> impl Iterator<Item = Template<'_>> {
    let templates = snapshot.pod_templates.iter();
    templates.filter_map(|one| Some(Template::of("PodTemplate", &one.metadata, one.template.as_ref()?)))
}

//! Claims that use every rule of the AWS provider: mixed capacity types, reservations of every kind, exotic types,
//! overlays, `minValues`, many types of the same price, images that suit few types, zones without a subnet.

use std::collections::BTreeMap;

use veneer_engine::instance_type::{Catalogue, InstanceType};
use veneer_engine::labels;

use super::{Case, CaseAmi, CaseOffering, CaseRequirement, CaseReservation, CaseSubnet, CaseType};
use crate::rng::Rng;

const ZONES: [&str; 4] = ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d"];
const OVERLAYS: [&str; 7] = ["-50%", "+20%", "-95%", "0.50", "-0.10", "+1.5", "-0%"];

pub(super) fn case(catalogue: &Catalogue, rng: &mut Rng) -> Case {
    let reserved = rng.chance(20);
    // Many types and few demands: more than a request can hold.
    let wide = rng.chance(40);
    let requirements = requirements(reserved, wide, rng);
    let mut requests = BTreeMap::new();
    let cpu: &[&str] = if wide {
        &["100m", "1"]
    } else {
        &["100m", "1", "3500m", "15", "63", "100"]
    };
    let memory: &[&str] = if wide {
        &["128Mi", "1Gi"]
    } else {
        &["128Mi", "2Gi", "30Gi", "120Gi"]
    };
    requests.insert("cpu", (*rng.pick(cpu)).to_owned());
    requests.insert("memory", (*rng.pick(memory)).to_owned());
    requests.insert("pods", rng.between(1, if wide { 4 } else { 40 }).to_string());
    if rng.chance(4) {
        requests.insert("nvidia.com/gpu", "1".to_owned());
    }
    if rng.chance(6) {
        requests.insert("vpc.amazonaws.com/efa", "1".to_owned());
    }
    Case {
        types: types(catalogue, reserved, wide, rng),
        requirements,
        requests,
        min_values_relaxed: rng.chance(5),
        best_effort: rng.chance(15),
        subnets: subnets(rng),
        amis: amis(rng),
        context: rng.chance(15).then(|| "context-1".to_owned()),
    }
}

fn types(catalogue: &Catalogue, reserved: bool, wide: bool, rng: &mut Rng) -> Vec<CaseType> {
    let count = match rng.below(10) {
        _ if wide => rng.between(61, 300),
        0..=2 => rng.between(1, 10),
        3..=5 => rng.between(11, 70),
        _ => rng.between(61, 250),
    };
    let mut chosen: Vec<&InstanceType> = (0..count).map(|_| rng.pick(&catalogue.types)).collect();
    // One entry for each name, in a random order.
    let mut seen = std::collections::BTreeSet::new();
    chosen.retain(|it| seen.insert(it.name.clone()));
    let habits = Habits {
        coarse: rng.chance(25),
        overlay: rng.chance(50).then(|| (*rng.pick(&OVERLAYS), rng.below(4))),
        spot_from: rng.between(20, 70),
        spot_to: rng.between(70, 140),
        reservation: reserved.then(|| rng.below(4)),
    };
    chosen
        .iter()
        .enumerate()
        .map(|(at, it)| CaseType {
            name: it.name.to_string(),
            offerings: offerings(catalogue, it, at, &habits, rng),
        })
        .collect()
}

/// What the offerings of a case have in common.
struct Habits {
    /// Whether prices are rounded, so that many are the same.
    coarse: bool,
    /// The overlay and where it acts.
    overlay: Option<(&'static str, usize)>,
    spot_from: i64,
    spot_to: i64,
    /// The kinds of reservations: one kind, or a mix.
    reservation: Option<usize>,
}

fn offerings(
    catalogue: &Catalogue,
    it: &InstanceType,
    number: usize,
    habits: &Habits,
    rng: &mut Rng,
) -> Vec<CaseOffering> {
    let on_demand = it
        .offerings
        .iter()
        .find(|offering| offering.capacity_type(&catalogue.vocabulary) == Some(labels::ON_DEMAND));
    let mut list = on_demand.map_or(1.0, |offering| offering.price);
    if habits.coarse {
        list = (list * 4.0).ceil() / 4.0;
    }
    let is_arm = catalogue
        .vocabulary
        .get(labels::ARCH)
        .zip(catalogue.vocabulary.get("arm64"))
        .is_some_and(|(key, arm)| {
            let arch = it.requirements.get(key);
            arch.is_some_and(|arch| arch.values().contains(&arm))
        });
    let mut offerings = Vec::new();
    for zone in ZONES {
        if rng.chance(15) {
            continue;
        }
        for capacity_type in [labels::ON_DEMAND, labels::SPOT] {
            if rng.chance(12) {
                continue;
            }
            let price = if capacity_type == labels::SPOT {
                let share = rng.between(habits.spot_from, habits.spot_to) as f64 / 100.0;
                if habits.coarse {
                    (list * share * 4.0).ceil() / 4.0
                } else {
                    list * share
                }
            } else {
                list
            };
            let acts = |place: usize, rng: &mut Rng| match place {
                0 => is_arm,
                1 => capacity_type == labels::ON_DEMAND,
                2 => rng.chance(5),
                _ => rng.chance(50),
            };
            let overlay = habits.overlay.filter(|(_, place)| acts(*place, rng));
            offerings.push(CaseOffering {
                zone: zone.to_owned(),
                capacity_type,
                price,
                overlay: overlay.map_or("", |(text, _)| text),
                available: rng.chance(92),
                reservation: None,
            });
        }
    }
    if let Some(kind) = habits.reservation
        && rng.chance(25)
    {
        for at in 0..=rng.below(3) {
            let (reservation_type, interruptible) = match if kind == 3 { rng.below(3) } else { kind } {
                0 => ("default", false),
                1 => ("capacity-block", false),
                _ => ("default", true),
            };
            let capacity = rng.between(0, 6);
            offerings.push(CaseOffering {
                zone: (*rng.pick(&ZONES)).to_owned(),
                capacity_type: labels::RESERVED,
                // No two types cost the same: which capacity block comes first would be random.
                price: list / 1e7 * (1.0 + number as f64 * 1e-6),
                overlay: if rng.chance(10) { "-50%" } else { "" },
                available: capacity > 0,
                reservation: Some(CaseReservation {
                    id: format!("cr-{number}-{at}"),
                    r#type: reservation_type,
                    interruptible,
                    capacity,
                }),
            });
        }
    }
    offerings
}

fn requirement(key: &'static str, operator: &'static str, values: &[&str]) -> CaseRequirement {
    CaseRequirement {
        key,
        operator,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        min_values: None,
    }
}

fn requirements(reserved: bool, wide: bool, rng: &mut Rng) -> Vec<CaseRequirement> {
    let capacity: &[&str] = match rng.below(if reserved { 4 } else { 10 }) {
        0 => &["reserved", "on-demand"],
        1 => &["reserved", "spot", "on-demand"],
        2 => &["reserved"],
        3..=4 => &["on-demand"],
        5..=6 => &["spot"],
        _ => &["spot", "on-demand"],
    };
    let mut all = vec![requirement("karpenter.sh/nodepool", "In", &["default"])];
    if !rng.chance(15) {
        all.push(requirement(labels::CAPACITY_TYPE, "In", capacity));
    } else if rng.chance(30) {
        all.push(requirement(labels::CAPACITY_TYPE, "NotIn", &["spot"]));
    }
    let narrows = |percent: usize, rng: &mut Rng| rng.chance(if wide { percent / 4 } else { percent });
    if narrows(30, rng) {
        let zones = &ZONES[..1 + rng.below(3)];
        let operator = if rng.chance(67) { "In" } else { "NotIn" };
        all.push(requirement(labels::ZONE, operator, zones));
    }
    if narrows(25, rng) {
        let arch: &[&str] = if rng.chance(50) {
            &["arm64"]
        } else {
            &["amd64", "arm64"]
        };
        all.push(requirement(labels::ARCH, "In", arch));
    }
    if narrows(25, rng) {
        let bound = *rng.pick(&["4", "33", "97", "129"]);
        all.push(requirement("karpenter.k8s.aws/instance-cpu", "Lt", &[bound]));
    }
    if rng.chance(20) {
        all.push(requirement("karpenter.k8s.aws/instance-cpu", "Gt", &["1"]));
    }
    if narrows(25, rng) {
        all.push(requirement(
            "karpenter.k8s.aws/instance-category",
            "In",
            &["c", "m", "r"],
        ));
    }
    if rng.chance(10) {
        let tenancy: &[&str] = if rng.chance(60) {
            &["dedicated"]
        } else {
            &["default", "dedicated"]
        };
        all.push(requirement(labels::INSTANCE_TENANCY, "In", tenancy));
    }
    if rng.chance(10) {
        all.push(requirement("example.com/team", "In", &["a"]));
    }
    if rng.chance(20) {
        let key = *rng.pick(&[
            labels::INSTANCE_TYPE,
            "karpenter.k8s.aws/instance-family",
            "karpenter.k8s.aws/instance-category",
            labels::ARCH,
        ]);
        let mut one = requirement(key, "Exists", &[]);
        one.min_values = Some(rng.between(1, if key == labels::ARCH { 2 } else { 30 }));
        all.push(one);
    }
    all
}

fn subnets(rng: &mut Rng) -> Vec<CaseSubnet> {
    if rng.chance(2) {
        return Vec::new();
    }
    let mut subnets = Vec::new();
    for zone in ZONES {
        if rng.chance(15) {
            continue;
        }
        for at in 0..=rng.below(3) {
            subnets.push(CaseSubnet {
                id: format!("subnet-{zone}-{at}"),
                zone: zone.to_owned(),
                addresses: rng.between(0, 3) as i32 * 100,
            });
        }
    }
    subnets
}

fn amis(rng: &mut Rng) -> Vec<CaseAmi> {
    let ami = |id: &str, requirements| CaseAmi {
        id: id.to_owned(),
        name: id.to_owned(),
        requirements,
    };
    let arch = |value: &str| requirement(labels::ARCH, "In", &[value]);
    let gpus = |operator| requirement("karpenter.k8s.aws/instance-gpu-count", operator, &[]);
    let mut amis = Vec::new();
    if rng.chance(40) {
        amis.push(ami("ami-gpu", vec![arch("amd64"), gpus("Exists")]));
    }
    if !rng.chance(10) {
        let mut wanted = vec![arch("amd64")];
        if rng.chance(30) {
            wanted.push(gpus("DoesNotExist"));
        }
        amis.push(ami("ami-amd64", wanted));
    }
    if !rng.chance(15) {
        amis.push(ami("ami-arm64", vec![arch("arm64")]));
    }
    if rng.chance(10) {
        amis.push(ami("ami-any", Vec::new()));
    }
    amis
}

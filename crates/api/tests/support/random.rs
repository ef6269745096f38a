//! Objects that nobody thought of: cases of the tables with random changes, the same for the same seed.

use serde_json::{Value, json};

use super::cases::{Table, with_spec};

/// Which objects to make.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Among {
    All,
    /// Only those for which Karpenter's CRDs are not known to differ from ours.
    Common,
}

/// A case of the table with up to three changes.
pub(crate) fn random_object(table: &Table, among: Among, random: &mut Random) -> Value {
    let cases: Vec<&Value> = table
        .accepted
        .iter()
        .chain(&table.refused)
        .filter(|case| {
            among == Among::All || (case.karpenter.is_none() && !case.spec.to_string().contains("overhead"))
        })
        .map(|case| &case.spec)
        .collect();
    // Most refused cases stay refused whatever else changes, so the accepted ones at the front come more often.
    let pick = |random: &mut Random| {
        let end = if random.below(4) == 0 {
            cases.len()
        } else {
            table.accepted.len().min(cases.len())
        };
        cases[random.below(end)]
    };
    let mut object = table.object(pick(random));
    for _ in 0..random.below(4) {
        if random.below(3) == 0 {
            object = with_spec(object, pick(random));
        } else if let Some(spec) = object.get_mut("spec") {
            change_somewhere(spec, random);
        }
    }
    // Absent requirements are the one known deviation, and null counts as absent.
    if among == Among::Common
        && object["kind"] == "NodeOverlay"
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("requirements").is_none_or(Value::is_null)
    {
        spec.insert("requirements".to_owned(), json!([]));
    }
    object
}

/// Walks down at random and changes what it comes to.
fn change_somewhere(value: &mut Value, random: &mut Random) {
    let children = match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if children > 0 && random.below(6) > 0 {
        let at = random.below(children);
        let child = match value {
            Value::Object(fields) => fields.values_mut().nth(at),
            Value::Array(items) => items.get_mut(at),
            _ => None,
        };
        return change_somewhere(child.unwrap(), random);
    }
    match (value, random.below(3)) {
        (Value::Object(fields), 0) if !fields.is_empty() => {
            let key = fields.keys().nth(random.below(fields.len())).unwrap().clone();
            fields.remove(&key);
        }
        (Value::Object(fields), 1) if !fields.is_empty() => {
            let key = fields.keys().nth(random.below(fields.len())).unwrap().clone();
            let moved = fields[&key].clone();
            fields.insert(TEXTS[random.below(TEXTS.len())].to_owned(), moved);
        }
        (Value::Array(items), 0) => items.clear(),
        (Value::Array(items), 1) if !items.is_empty() => {
            let item = items[random.below(items.len())].clone();
            items.extend(vec![item; [1, 29, 30, 49, 50, 99, 100][random.below(7)]]);
        }
        (Value::Number(number), 0 | 1) => {
            let by = if random.below(2) == 0 { 1 } else { -1 };
            *number = number.as_i64().unwrap_or_default().saturating_add(by).into();
        }
        (Value::String(text), 0) => text.push_str(TEXTS[random.below(TEXTS.len())]),
        (value, _) => {
            *value = match random.below(8) {
                0..4 => TEXTS[random.below(TEXTS.len())].into(),
                4..6 => NUMBERS[random.below(NUMBERS.len())].into(),
                6 => [json!(null), json!(true), json!(1.5)][random.below(3)].clone(),
                _ => [json!({}), json!([]), json!([""]), json!({ "": "" })][random.below(4)].clone(),
            };
        }
    }
}

/// Texts on both sides of the patterns, enumerations and rules.
#[rustfmt::skip]
pub(crate) const TEXTS: &[&str] = &[
    "", " ", "0", "1", "-1", "+1", "007", "1.5", ".5", "5.", "1e3", "a", "A", "a b", "-a", "a/b", "a/b/c", "/", "x/", "_",
    "5%", "10%", "100%", "101%", "+5%", "-5%", "-100%", "-100.0%", "+.5", "-.5%", "+5.00", "0.00", "9223372036854775808",
    "1Gi", "59000Gi", "59001Gi", "64000G", "Ti", "58Ti", "18Ti", "64T", "T", "100m", "1k", "1Ki", "5Xi", "-1Gi", "1h", "1h30m",
    "30m1h", "1h30m0s", "0s", "1d", "Never", "never", "@daily", "@often", "0 9 * * mon-fri", "0 9 * *", "x@daily",
    "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "NoSchedule", "WhenEmpty", "Balanced", "Empty", "Drifted",
    "karpenter.sh/capacity-type", "karpenter.sh/nodepool", "karpenter.sh/x", "a.karpenter.sh/x", "xkarpenter.sh", "karpenter.sh",
    "kubernetes.io/hostname", "kubernetes.io/arch", "karpenter.k8s.aws/instance-cpu", "cpu", "memory", "pods", "nodes", "hugepages-2Mi",
    "al2", "al2@", "@", "al2@latest", "al2023@v1", "bottlerocket@latest", "windows2022@latest", "windows2022@v1", "AL2@latest", "a@b@c",
    "AL2", "AL2023", "Bottlerocket", "Custom", "ami-1", "xami-1", "sg-1", "subnet-1", "cr-1", "pg-1", "123456789012", "open",
    "enabled", "disabled", "required", "optional", "interface", "efa-only", "gp3", "RAID0", "memory.available", "nodefs.available",
    "eks:eks-cluster-name", "kubernetes.io/cluster/a", "kubernetes.io/clusters", "karpenter.sh/nodeclaim", "karpenter.k8s.aws/ec2nodeclass",
    "alias", "id", "name", "tags", "owner", "ssmParameter", "role", "instanceProfile", "price", "priceAdjustment", "replicas", "weight",
    "limits", "snapshotID", "volumeSize", "evictionSoft", "evictionSoftGracePeriod", "minValues", "values", "schedule", "duration",
];

/// Numbers on both sides of the bounds.
pub(crate) const NUMBERS: &[i64] = &[
    -1,
    0,
    1,
    2,
    29,
    30,
    31,
    50,
    51,
    59,
    60,
    61,
    64,
    65,
    99,
    100,
    101,
    180,
    181,
    300,
    301,
    10000,
    10001,
    432_000,
    432_001,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    i64::MAX,
];

/// A small generator, so that a seed means the same cases everywhere (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        usize::try_from(bits % u64::try_from(end).unwrap()).unwrap()
    }
}

//! Sizes of instances as AWS counts them for Reserved Instances.
//!
//! Amounts are whole quarters of AWS's normalization factor, so sums of them are exact.

/// The part of an instance type before the dot.
#[must_use]
pub fn family_of(instance_type: &str) -> &str {
    instance_type.split('.').next().unwrap_or_default()
}

/// Families whose Reserved Instances cover the exact size only (EC2 user guide, "How Reserved Instances are applied").
const NOT_FLEXIBLE: [&str; 15] = [
    "g4ad", "g4dn", "g5", "g5g", "g6", "g6e", "g6f", "gr6", "gr6f", "hpc7a", "inf1", "inf2", "p5", "u7i-6tb",
    "u7i-8tb",
];

/// The factors of sizes called `metal`, which count as their virtual equals.
const METAL: [(u64, &[&str]); 8] = [
    (32, &["a1"]),
    (96, &["m5zn", "x2iezn", "z1d"]),
    (128, &["c6g", "c6gd", "i3", "m6g", "m6gd", "r6g", "r6gd", "x2gd"]),
    (144, &["c5n"]),
    (
        192,
        &[
            "c5", "c5d", "i3en", "m5", "m5d", "m5dn", "m5n", "r5", "r5b", "r5d", "r5dn", "r5n",
        ],
    ),
    (256, &["c6i", "c6id", "m6i", "m6id", "r6id"]),
    (448, &["u-18tb1", "u-24tb1"]),
    (896, &["u-6tb1", "u-9tb1", "u-12tb1"]),
];

/// Whether regional Reserved Instances of a family (Linux, shared tenancy) cover every size of it.
#[must_use]
pub fn is_size_flexible(family: &str) -> bool {
    !NOT_FLEXIBLE.contains(&family)
}

/// The normalization factor of an instance type in quarters, if its size is known.
#[must_use]
pub fn size_quarters(instance_type: &str) -> Option<u64> {
    let (family, size) = instance_type.split_once('.')?;
    match size {
        "nano" => Some(1),
        "micro" => Some(2),
        "small" => Some(4),
        "medium" => Some(8),
        "large" => Some(16),
        "xlarge" => Some(32),
        "metal" => {
            let mut known = METAL.iter();
            let (factor, _) = known.find(|(_, families)| families.contains(&family))?;
            Some(4 * factor)
        }
        _ => {
            let metal = size
                .strip_prefix("metal-")
                .and_then(|size| size.strip_suffix("xl"));
            let count = metal.or_else(|| size.strip_suffix("xlarge"))?;
            Some(32 * u64::from(count.parse::<u16>().ok()?))
        }
    }
}

/// The normalization factor of an instance type, if its size is known.
#[must_use]
pub fn size_factor(instance_type: &str) -> Option<f64> {
    // Exact: factors are far below what a double counts.
    size_quarters(instance_type).map(|quarters| quarters as f64 / 4.0)
}

/// How one reserved type counts against usage of another, as (units of the reserved one, units of the used one): by
/// size inside a flexible family, one by one for the same type, and not at all otherwise.
#[must_use]
pub fn exchange(reserved: &str, used: &str) -> Option<(u64, u64)> {
    if reserved == used {
        return Some((1, 1));
    }
    let family = family_of(reserved);
    if family != family_of(used) || !is_size_flexible(family) {
        return None;
    }
    size_quarters(reserved).zip(size_quarters(used))
}

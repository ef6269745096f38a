//! The nearest known word to one that is not known: "did you mean".

/// The one of `known` that `found` was probably meant to be, if any is near enough: at most two slips of the pen,
/// or a third of a longer word. Label keys that differ in their domain alone are near, and so is what `found` begins
/// with (`m5` for `m5large`).
pub fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = |text: &str| text.rsplit('/').next().unwrap_or_default().to_lowercase();
    let found_name = name(found);
    let distance = |candidate: &str| {
        if found.contains('/') && candidate.contains('/') && name(candidate) == found_name {
            return 0;
        }
        strsim::damerau_levenshtein(&found.to_lowercase(), &candidate.to_lowercase())
    };
    let limit = (found.chars().count() / 3).max(2);
    let known: Vec<&str> = known.into_iter().collect();
    let beginning = || {
        let begins = known
            .iter()
            .filter(|candidate| candidate.len() > 1 && found.starts_with(**candidate));
        begins.max_by_key(|candidate| candidate.len()).copied()
    };
    known
        .iter()
        .map(|candidate| (distance(candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= limit && *distance < candidate.chars().count())
        .min()
        .map(|(_, candidate)| candidate)
        .or_else(beginning)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_recognised_and_a_different_word_is_not() {
        let known = ["m5.large", "m5.xlarge", "c5.large"];
        assert_eq!(nearest("m5.lrage", known), Some("m5.large"));
        assert_eq!(nearest("M5.LARGE", known), Some("m5.large"));
        assert_eq!(nearest("p4d.24xlarge", known), None);
        assert_eq!(nearest("x", ["ab"]), None);
        assert_eq!(nearest("m5large", ["c5", "m5", "m"]), Some("m5"));
        let keys = [
            "karpenter.k8s.aws/instance-category",
            "node.kubernetes.io/instance-type",
        ];
        assert_eq!(
            nearest("node.kubernetes.io/instance-category", keys),
            Some("karpenter.k8s.aws/instance-category")
        );
    }
}

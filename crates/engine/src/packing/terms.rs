//! Node selectors and node affinity as requirements.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use crate::requirements::{Operator, Requirements};
use crate::vocabulary::Vocabulary;

/// Narrows `requirements` to `expressions`. An operator that does not exist makes its expression impossible to
/// satisfy; the API server refuses such a pod.
pub(super) fn add_expressions<'a>(
    requirements: &mut Requirements,
    expressions: impl IntoIterator<Item = &'a NodeSelectorRequirement>,
    vocabulary: &mut Vocabulary,
) {
    for expression in expressions {
        let operator = expression.operator.parse().unwrap_or(Operator::In);
        let values = expression.values.as_deref().unwrap_or_default();
        requirements.add_selector(&expression.key, operator, values, None, vocabulary);
    }
}

/// Narrows `requirements` to a term of a node affinity; `matchFields` do not count, as in Karpenter.
pub(super) fn add_term(
    requirements: &mut Requirements,
    term: &NodeSelectorTerm,
    vocabulary: &mut Vocabulary,
) {
    add_expressions(requirements, term.match_expressions.iter().flatten(), vocabulary);
}

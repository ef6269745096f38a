//! One file per subcommand.

pub(crate) mod apply;
pub(crate) mod catalog;
pub(crate) mod chaos;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod crds;
pub(crate) mod diagnose;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod iam_policy;
pub(crate) mod lint;
pub(crate) mod man;
pub(crate) mod reconcile;
pub(crate) mod run;
pub(crate) mod savings;
pub(crate) mod simulate;
pub(crate) mod snapshot;

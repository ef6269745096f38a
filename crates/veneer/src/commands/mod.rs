//! One file per subcommand.

pub(crate) mod catalog;
pub(crate) mod crds;

//! Operating systems and tenancies, as far as commitments tell them apart (rule 13).

use std::fmt;

/// What an instance runs, as EC2 bills it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Platform {
    /// Linux/UNIX; also what brings its own subscription.
    #[default]
    Linux,
    /// Red Hat Enterprise Linux.
    RedHat,
    /// SUSE Linux.
    Suse,
    /// Ubuntu Pro: no Reserved Instances.
    UbuntuPro,
    /// Windows.
    Windows,
    /// Windows with a license of one's own.
    WindowsByol,
    /// macOS: no Reserved Instances.
    MacOs,
    /// Anything else (SQL Server, high availability), by AWS's name.
    Other(String),
}

impl Platform {
    /// The platform of a `UsageOperation`, such as `RunInstances:0002`.
    #[must_use]
    pub fn from_usage_operation(operation: &str) -> Self {
        let code = operation.strip_prefix("RunInstances").unwrap_or(operation);
        match code.strip_prefix(':').unwrap_or(code) {
            // 00g0 is Red Hat with a subscription of one's own.
            "" | "00g0" => Self::Linux,
            "0010" => Self::RedHat,
            "000g" => Self::Suse,
            "0g00" => Self::UbuntuPro,
            "0002" => Self::Windows,
            "0800" => Self::WindowsByol,
            code => Self::Other(code.to_owned()),
        }
    }

    /// The platform of a Reserved Instance's `ProductDescription`, such as `Linux/UNIX (Amazon VPC)`.
    #[must_use]
    pub fn from_product_description(description: &str) -> Self {
        let name = description.strip_suffix("(Amazon VPC)").unwrap_or(description);
        match name.trim() {
            "Linux/UNIX" => Self::Linux,
            "Red Hat Enterprise Linux" => Self::RedHat,
            "SUSE Linux" => Self::Suse,
            "Ubuntu Pro" => Self::UbuntuPro,
            "Windows" => Self::Windows,
            "Windows BYOL" => Self::WindowsByol,
            name => Self::Other(name.to_owned()),
        }
    }

    /// Whether Reserved Instances exist for it.
    #[must_use]
    pub fn has_reserved_instances(&self) -> bool {
        !matches!(self, Self::UbuntuPro | Self::MacOs)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linux => "Linux/UNIX",
            Self::RedHat => "Red Hat Enterprise Linux",
            Self::Suse => "SUSE Linux",
            Self::UbuntuPro => "Ubuntu Pro",
            Self::Windows => "Windows",
            Self::WindowsByol => "Windows BYOL",
            Self::MacOs => "macOS",
            Self::Other(name) => name,
        })
    }
}

/// On whose hardware an instance runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tenancy {
    /// Shared hardware.
    #[default]
    Default,
    /// Hardware of one account.
    Dedicated,
    /// A Dedicated Host, which has reservations of its own.
    Host,
}

impl Tenancy {
    /// The tenancy with the name that EC2 gives it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "default" => Some(Self::Default),
            "dedicated" => Some(Self::Dedicated),
            "host" => Some(Self::Host),
            _ => None,
        }
    }
}

//! Ports of the node that pods take for themselves.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::PodRecord;

/// So many pairs of ports are compared one by one.
const FEW_PAIRS: usize = 256;

/// A port that a pod takes on its node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostPort {
    /// None for text that is no address; such ports only collide with each other and with every-address ones.
    address: Option<IpAddr>,
    port: i32,
    protocol: String,
}

impl HostPort {
    /// Whether both cannot be on one node.
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        let everywhere = |port: &Self| port.address.is_some_and(|address| address.is_unspecified());
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || everywhere(self) || everywhere(other))
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.port, self.protocol)?;
        match self.address {
            Some(address) if !address.is_unspecified() => write!(f, " on {address}"),
            _ => Ok(()),
        }
    }
}

/// Whether any of `wanted` is taken by one of `taken`.
pub(super) fn conflict<'a>(wanted: &'a [HostPort], taken: &[HostPort]) -> Option<&'a HostPort> {
    if wanted.len().saturating_mul(taken.len()) <= FEW_PAIRS {
        let mut wanted = wanted.iter();
        return wanted.find(|port| taken.iter().any(|other| port.conflicts_with(other)));
    }
    let is_everywhere = |port: &HostPort| port.address.is_some_and(|address| address.is_unspecified());
    let number = |port: &'_ HostPort| (port.port, port.protocol.clone());
    let all: BTreeSet<(i32, String)> = taken.iter().map(number).collect();
    let everywhere: BTreeSet<(i32, String)> = taken
        .iter()
        .filter(|port| is_everywhere(port))
        .map(number)
        .collect();
    let exact: BTreeSet<((i32, String), Option<IpAddr>)> =
        taken.iter().map(|port| (number(port), port.address)).collect();
    wanted.iter().find(|port| {
        let number = number(port);
        if is_everywhere(port) {
            all.contains(&number)
        } else {
            everywhere.contains(&number) || exact.contains(&(number, port.address))
        }
    })
}

/// The ports that `pod` takes. Only ordinary containers count, as in Karpenter.
pub(super) fn host_ports(pod: &PodRecord) -> Vec<HostPort> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number != 0)?;
            let address = port
                .host_ip
                .as_deref()
                .filter(|text| !text.is_empty())
                .unwrap_or("0.0.0.0");
            Some(HostPort {
                address: address
                    .parse::<IpAddr>()
                    .ok()
                    .map(|address| address.to_canonical()),
                port: number,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_conflict_on_the_same_or_on_every_address() {
        let port = |address: &str, port, protocol: &str| HostPort {
            address: address.parse().ok(),
            port,
            protocol: protocol.to_owned(),
        };
        let one = port("10.0.0.1", 80, "TCP");
        for (other, conflicts) in [
            (port("10.0.0.1", 80, "TCP"), true),
            (port("10.0.0.2", 80, "TCP"), false),
            (port("0.0.0.0", 80, "TCP"), true),
            (port("::", 80, "TCP"), true),
            (port("10.0.0.1", 80, "UDP"), false),
            (port("10.0.0.1", 81, "TCP"), false),
        ] {
            assert_eq!(one.conflicts_with(&other), conflicts, "{other}");
            assert_eq!(other.conflicts_with(&one), conflicts, "{other}");
            // Among many others it is the same.
            let many: Vec<HostPort> = (0..300).map(|at| port("10.0.0.3", 1_000 + at, "TCP")).collect();
            let taken: Vec<HostPort> = many.iter().cloned().chain([other.clone()]).collect();
            assert_eq!(
                conflict(std::slice::from_ref(&one), &taken).is_some(),
                conflicts,
                "{other}"
            );
            let taken: Vec<HostPort> = many.iter().cloned().chain([one.clone()]).collect();
            assert_eq!(
                conflict(std::slice::from_ref(&other), &taken).is_some(),
                conflicts,
                "{other}"
            );
        }
    }
}

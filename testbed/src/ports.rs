//! Loopback ports for the parts of a cluster.
//!
//! Parts take their port as a number, so a port has to be chosen before it is bound. Three things keep clusters
//! apart: a cluster's block of ports is claimed with a file lock that the system releases with the process; blocks
//! lie below the range from which the system picks ports for outgoing connections; and a part that still finds
//! its port taken is started again in another block (see `cluster`).

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};

use crate::{Error, part};

const LOW: u16 = 12_000;
const HIGH: u16 = 31_999;
const BLOCK: u16 = 10;
const TRIES: usize = 200;

/// Ten consecutive ports that no other cluster of this user will choose while this value lives.
#[derive(Debug)]
pub(crate) struct Ports {
    first: u16,
    _claim: Option<File>,
}

impl Ports {
    pub(crate) fn claim() -> Result<Self, Error> {
        let folder = part::cache()?.join("ports");
        fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, error))?;
        for _ in 0..TRIES {
            let random = getrandom::u32().map_err(Error::NoRandomness)?;
            let blocks = u32::from((HIGH - LOW + 1) / BLOCK);
            let block = u16::try_from(random % blocks).unwrap_or_default();
            let first = LOW + block * BLOCK;
            let path = folder.join(first.to_string());
            let claim = File::create(&path).map_err(|error| Error::io("create", &path, error))?;
            if claim.try_lock().is_ok() && (first..first + BLOCK).all(is_free) {
                return Ok(Ports {
                    first,
                    _claim: Some(claim),
                });
            }
        }
        Err(Error::NoPorts {
            tried: TRIES,
            low: LOW,
            high: HIGH,
        })
    }

    /// A block that is used as it is, so that a test can stage a port that another program has taken.
    #[cfg(test)]
    pub(crate) fn unchecked(first: u16) -> Self {
        Ports { first, _claim: None }
    }

    /// The port number at `offset`, which is below the size of a block.
    pub(crate) fn at(&self, offset: u16) -> u16 {
        self.first + offset % BLOCK
    }
}

/// All addresses, because Karpenter's metrics listen on all of them.
fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_claimed_at_the_same_time_do_not_overlap() {
        let claims = (0..20).map(|_| Ports::claim().unwrap()).collect::<Vec<_>>();
        let mut ports = claims
            .iter()
            .flat_map(|block| (0..BLOCK).map(|n| block.at(n)))
            .collect::<Vec<_>>();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20 * usize::from(BLOCK));
    }

    #[test]
    fn a_port_that_is_listened_on_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }
}

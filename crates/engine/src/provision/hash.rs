//! Hashes that do not depend on the process: names of claims, and the fingerprint of a NodePool.

use veneer_api::NodePool;

/// How [`pool_hash`] is computed. Karpenter has other versions, and takes a claim whose version is not its own as
/// not drifted until it has written its own hash; so does Veneer.
pub const HASH_VERSION: &str = "veneer-v1";

/// FNV-1a: short, stable, and good enough for names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher(u64);

impl Hasher {
    pub(super) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The low bits of FNV are weak when the input ends alike; this spreads them.
    pub(super) fn finish(self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    }

    /// `length` letters and digits that a name may end with.
    pub(super) fn letters(self, length: usize) -> String {
        const LETTERS: &[u8; 32] = b"bcdfghjklmnpqrstvwxz2456789aeiuy";
        let mut rest = self.finish();
        let mut text = String::with_capacity(length);
        for _ in 0..length {
            let at = usize::try_from(rest % 32).unwrap_or_default();
            text.push(char::from(LETTERS.get(at).copied().unwrap_or(b'x')));
            rest /= 32;
        }
        text
    }
}

/// The fingerprint of what a NodePool's nodes are made from. Requirements are not part of it, since a node that still
/// meets them has not drifted; neither is the order of lists.
#[must_use]
pub fn pool_hash(pool: &NodePool) -> String {
    let mut template = pool.spec.template.clone();
    template.spec.requirements.clear();
    let key = |taint: &veneer_api::Taint| (taint.key.clone(), taint.effect.clone(), taint.value.clone());
    template.spec.taints.sort_by_key(key);
    template.spec.startup_taints.sort_by_key(key);
    let mut hasher = Hasher::new();
    // A template that cannot be written as JSON cannot have come from an API server.
    hasher.write(&serde_json::to_vec(&template).unwrap_or_default());
    hasher.finish().to_string()
}

//! A fast hash for keys that are small integers or strings of trusted length; tables made with it are only looked
//! up, never iterated, so nobody's choice of keys changes a result.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiply and rotate, eight bytes at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FastHasher(u64);

impl FastHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }

    /// A string and its end, so that `ab` + `c` differs from `a` + `bc`.
    pub(super) fn text(&mut self, text: &str) {
        self.write(text.as_bytes());
        self.mix(text.len() as u64);
    }

    /// An optional string.
    pub(super) fn maybe(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.mix(u64::MAX),
        }
    }
}

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        // The multiplication leaves the low bits weak, and tables use them.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.mix(u64::from_le_bytes(*chunk));
        }
        if !rest.is_empty() {
            self.mix(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

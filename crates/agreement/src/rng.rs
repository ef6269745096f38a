//! A small deterministic generator (SplitMix64, public domain algorithm of Sebastiano Vigna). It is our own, so that
//! a seed printed today gives the same case after every upgrade of dependencies.

/// A stream of random numbers that depends on nothing but its seed.
pub struct Rng(u64);

impl Rng {
    /// The stream of case `number` under `seed`.
    pub fn new(seed: u64, number: u64) -> Self {
        let mut mixed = Self(seed);
        Self(mixed.next() ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    /// The next 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "an endless stream is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = high.abs_diff(low) as usize;
        low.saturating_add_unsigned(self.below(span.saturating_add(1)) as u64)
    }

    /// True in `percent` of a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        #[expect(clippy::indexing_slicing, reason = "an empty list is a fault of the caller")]
        &items[self.below(items.len())]
    }
}

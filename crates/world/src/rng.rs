//! Numbers that look random and follow from a seed and from what they are for.
//!
//! Most draws are made from a name (`Rng::of(seed, &["boot", claim])`), so that two worlds with the same seed see the same
//! load and the same faults although they decide differently.

/// A stream of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }

    /// The stream of a seed for one purpose.
    #[must_use]
    pub fn of(seed: u64, purpose: &[&str]) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ mix(seed);
        for part in purpose {
            for byte in part.bytes().chain([0xff]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        Self::new(hash)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: even enough for a simulation.
        let product = u128::from(self.next()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or_default()
    }

    /// A number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are what a double keeps.
        #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
        let value = (self.next() >> 11) as f64;
        value / 9_007_199_254_740_992.0
    }

    /// True this often.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// How often something happens that happens `mean` times on average.
    pub(crate) fn poisson(&mut self, mean: f64) -> u64 {
        // Knuth's way is slow for large means; those are cut into pieces.
        let mut left = mean.clamp(0.0, 100_000.0);
        let mut count = 0;
        while left > 0.0 {
            let piece = left.min(30.0);
            left -= piece;
            let limit = (-piece).exp();
            let mut product = self.unit();
            while product > limit {
                count += 1;
                product *= self.unit();
            }
        }
        count
    }
}

//! A set of small integers as bits: candidate instance types, offering classes.
//!
//! Two sets are only combined when they were made for the same universe; the shorter one counts as padded with
//! zeros.

/// A fixed-universe bit set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    /// No member, with room for members below `universe`.
    #[must_use]
    pub fn empty(universe: usize) -> Self {
        Self {
            words: vec![0; universe.div_ceil(64)],
        }
    }

    /// Every integer below `universe`.
    #[must_use]
    pub fn full(universe: usize) -> Self {
        let mut set = Self {
            words: vec![u64::MAX; universe.div_ceil(64)],
        };
        if let (Some(last), rest @ 1..) = (set.words.last_mut(), universe % 64) {
            *last = (1 << rest) - 1;
        }
        set
    }

    /// Adds `member`; one outside the universe is ignored.
    pub fn insert(&mut self, member: usize) {
        if let Some(word) = self.words.get_mut(member / 64) {
            *word |= 1 << (member % 64);
        }
    }

    /// Whether `member` is in the set.
    #[must_use]
    pub fn contains(&self, member: usize) -> bool {
        self.words
            .get(member / 64)
            .is_some_and(|word| word >> (member % 64) & 1 == 1)
    }

    /// Keeps what is also in `other`.
    pub fn intersect_with(&mut self, other: &Self) {
        for (at, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(at).copied().unwrap_or(0);
        }
    }

    /// Adds what is in `other`.
    pub fn union_with(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Removes what is in `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (word, less) in self.words.iter_mut().zip(&other.words) {
            *word &= !less;
        }
    }

    /// Whether the sets share a member.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(at, word)| bits(*word).map(move |bit| at * 64 + bit))
    }

    /// The words, for code that works on 64 members at a time.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// The positions of the one-bits of `word`, ascending.
pub fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const UNIVERSE: usize = 130;

    fn set_of(members: &BTreeSet<usize>) -> BitSet {
        let mut set = BitSet::empty(UNIVERSE);
        for member in members {
            set.insert(*member);
        }
        set
    }

    proptest! {
        #[test]
        fn a_bit_set_behaves_as_a_set(
            a in prop::collection::btree_set(0..UNIVERSE, 0..40),
            b in prop::collection::btree_set(0..UNIVERSE, 0..40),
        ) {
            let (x, y) = (set_of(&a), set_of(&b));
            let combined = |change: fn(&mut BitSet, &BitSet)| {
                let mut result = x.clone();
                change(&mut result, &y);
                result.iter().collect::<BTreeSet<_>>()
            };
            prop_assert_eq!(combined(BitSet::intersect_with), &a & &b);
            prop_assert_eq!(combined(BitSet::union_with), &a | &b);
            prop_assert_eq!(combined(BitSet::subtract), &a - &b);
            prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert!((0..UNIVERSE).all(|member| x.contains(member) == a.contains(&member)));
        }
    }

    #[test]
    fn the_full_set_ends_at_its_universe() {
        for universe in [0, 1, 63, 64, 65, 128, 130] {
            assert_eq!(BitSet::full(universe).len(), universe);
            assert!(!BitSet::full(universe).contains(universe));
        }
    }
}

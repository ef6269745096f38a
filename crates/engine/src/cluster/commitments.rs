//! What is left of commitments, drawn from while a decision is looked for.
//!
//! Who counts what is left ([`Commitments`]) may be replaced: all that a search needs to know is what a launch would take of which
//! commitment. What it draws is on a list, so that a search that goes back gives everything back that it drew since.

use std::fmt;

/// What a launch takes of a commitment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// Which commitment, as whoever counts them numbers them.
    pub commitment: usize,
    /// How much of it: instances, or dollars per hour.
    pub amount: f64,
}

/// What is known about commitments at one moment.
pub trait Commitments: fmt::Debug {
    /// What a launch would take whose price this overlay sets; none where the overlay is not for a commitment, or nothing is known
    /// about what is left of it: doubt changes nothing.
    fn need(&self, overlay: &str, list_price: f64) -> Option<Need>;

    /// What is left of a commitment before anything is drawn from it.
    fn left(&self, commitment: usize) -> f64;
}

/// Less of a commitment than this is nothing.
const NOTHING: f64 = 1e-9;

/// What is left while something is being decided.
#[derive(Clone, Debug, Default)]
pub struct CommitmentHeadroom<'c> {
    known: Option<&'c dyn Commitments>,
    drawn: Vec<Need>,
}

impl<'c> CommitmentHeadroom<'c> {
    /// Nothing is drawn yet. Where nothing is known about commitments, everything is allowed.
    #[must_use]
    pub fn new(known: Option<&'c dyn Commitments>) -> Self {
        Self {
            known,
            drawn: Vec::new(),
        }
    }

    /// What a launch needs whose price this overlay sets.
    #[must_use]
    pub fn need(&self, overlay: &str, list_price: f64) -> Option<Need> {
        self.known?.need(overlay, list_price)
    }

    /// What is left of a commitment.
    #[must_use]
    pub fn left(&self, commitment: usize) -> f64 {
        let all = self.known.map_or(0.0, |known| known.left(commitment));
        let drawn = self.drawn.iter().filter(|need| need.commitment == commitment);
        all - drawn.map(|need| need.amount).sum::<f64>()
    }

    /// Whether there is enough.
    #[must_use]
    pub fn has(&self, need: Need) -> bool {
        self.left(need.commitment) - need.amount >= -NOTHING
    }

    /// Draws it, also where there is not enough.
    pub fn take(&mut self, need: Need) {
        self.drawn.push(need);
    }

    /// Where it stands, for [`CommitmentHeadroom::give_back`].
    #[must_use]
    pub fn mark(&self) -> usize {
        self.drawn.len()
    }

    /// Gives back everything that was drawn since the mark.
    pub fn give_back(&mut self, mark: usize) {
        self.drawn.truncate(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct OnePlan(f64);

    impl Commitments for OnePlan {
        fn need(&self, overlay: &str, list_price: f64) -> Option<Need> {
            (overlay == "plan").then_some(Need {
                commitment: 0,
                amount: list_price,
            })
        }

        fn left(&self, _: usize) -> f64 {
            self.0
        }
    }

    #[test]
    fn what_is_drawn_is_given_back() {
        let plan = OnePlan(0.3);
        let mut headroom = CommitmentHeadroom::new(Some(&plan));
        assert_eq!(headroom.need("other", 0.2), None);
        let need = headroom.need("plan", 0.2).unwrap();
        assert!(headroom.has(need));
        let mark = headroom.mark();
        headroom.take(need);
        assert!(!headroom.has(need), "a second one is too much");
        let less = headroom.need("plan", 0.1).unwrap();
        assert!(headroom.has(less), "all of it can be drawn, in spite of rounding");
        headroom.give_back(mark);
        assert!(headroom.has(need));
    }

    #[test]
    fn where_nothing_is_known_nothing_is_needed() {
        assert_eq!(CommitmentHeadroom::new(None).need("plan", 1.0), None);
    }
}

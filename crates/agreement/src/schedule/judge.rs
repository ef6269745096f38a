//! Decides whether both sides agree on a scenario, and makes scenarios smaller on which they do not.

use anyhow::Result;

use super::answer::Answer;
use super::oracle::{Oracle, Programs};
use super::ours::Ours;
use super::{Facts, Scenario, check, compare};

/// How often Karpenter is asked at first, after a difference, and before a difference is believed.
const REPEATS: [usize; 3] = [2, 10, 60];

/// What came out.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Karpenter repeats itself, and we say the same.
    Same,
    /// Karpenter gives different answers, and ours is one of them.
    OneOf,
    /// Karpenter gives different answers, and ours is the one it gives when ties are taken in order.
    Ordered,
    /// Karpenter gives different answers, ours is another one with the same counts and cost, and every constraint holds.
    AsGood,
    /// Neither; where we differ.
    Differs(Vec<String>),
}

impl Verdict {
    /// Where we differ, if we do.
    #[must_use]
    pub fn details(&self) -> &[String] {
        match self {
            Self::Differs(details) => details,
            _ => &[],
        }
    }
}

/// A verdict with what it rests on.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// What came out.
    pub verdict: Verdict,
    /// Karpenter's answers.
    pub theirs: Vec<Answer>,
    /// Our answer.
    pub ours: Answer,
}

/// Both sides.
pub struct Judge<'a> {
    facts: &'a Facts,
    oracle: Oracle,
    ordered: Oracle,
    ours: Ours,
    strict: bool,
}

impl<'a> Judge<'a> {
    /// Starts both sides. A strict judge takes an answer that is only as good as Karpenter's for a difference.
    pub fn new(facts: &'a Facts, programs: &Programs, strict: bool) -> Result<Self> {
        Ok(Self {
            facts,
            oracle: Oracle::start(&programs.karpenter, facts)?,
            ordered: Oracle::start(&programs.ordered, facts)?,
            ours: Ours::new(facts)?,
            strict,
        })
    }

    /// Asks both sides.
    pub fn judge(&mut self, scenario: &Scenario) -> Result<Judgement> {
        let ours = self.ours.answer(scenario)?;
        let mut theirs = self.oracle.ask(scenario, REPEATS[0])?;
        if theirs
            .iter()
            .any(|answer| compare::exact(answer, &ours).is_empty())
        {
            let verdict = if theirs.len() > 1 {
                Verdict::OneOf
            } else {
                Verdict::Same
            };
            return Ok(Judgement {
                verdict,
                theirs,
                ours,
            });
        }
        let ordered = self.ordered.ask(scenario, 1)?;
        let from_ordered: Vec<String> = ordered
            .iter()
            .flat_map(|answer| compare::exact(answer, &ours))
            .collect();
        if from_ordered.is_empty() {
            return Ok(Judgement {
                verdict: Verdict::Ordered,
                theirs,
                ours,
            });
        }
        let mut details = from_ordered;
        for repeat in REPEATS.into_iter().skip(1).filter(|_| !self.strict) {
            theirs.extend(self.oracle.ask(scenario, repeat)?);
            theirs.dedup_by(|a, b| compare::exact(a, b).is_empty());
            if theirs
                .iter()
                .any(|answer| compare::exact(answer, &ours).is_empty())
            {
                return Ok(Judgement {
                    verdict: Verdict::OneOf,
                    theirs,
                    ours,
                });
            }
            if theirs.len() > 1 {
                details = compare::within(&theirs, &ours);
                details.extend(check::violations(self.facts, scenario, &ours)?);
                if details.is_empty() {
                    return Ok(Judgement {
                        verdict: Verdict::AsGood,
                        theirs,
                        ours,
                    });
                }
            }
        }
        Ok(Judgement {
            verdict: Verdict::Differs(details),
            theirs,
            ours,
        })
    }

    /// The smallest part of a scenario, as far as leaving things out one after the other gets, on which both sides
    /// still differ.
    pub fn shrink(&mut self, scenario: &Scenario) -> Result<Scenario> {
        let mut smallest = scenario.clone();
        // Parts of halving size first: most objects do not matter.
        let mut part = smallest.objects.len().div_ceil(2);
        while part > 0 {
            let mut from = 0;
            while from < smallest.objects.len() {
                let mut without = smallest.clone();
                let to = (from + part).min(without.objects.len());
                // A namespace is part of the pods in it.
                let mut at = 0;
                without.objects.retain(|object| {
                    at += 1;
                    !(from..to).contains(&(at - 1)) || object["kind"] == "Namespace"
                });
                if without.objects.len() < smallest.objects.len() && self.still_differs(&without) {
                    smallest = without;
                } else {
                    from += part;
                }
            }
            part /= 2;
        }
        self.fewer_types(smallest)
    }

    fn fewer_types(&mut self, mut smallest: Scenario) -> Result<Scenario> {
        let mut part = smallest.types.as_ref().map_or(0, |types| types.len().div_ceil(2));
        while part > 0 {
            let mut from = 0;
            while smallest.types.as_ref().is_some_and(|types| from < types.len()) {
                let mut without = smallest.clone();
                if let Some(types) = &mut without.types {
                    let to = (from + part).min(types.len());
                    types.drain(from..to);
                }
                if self.still_differs(&without) {
                    smallest = without;
                } else {
                    from += part;
                }
            }
            part /= 2;
        }
        Ok(smallest)
    }

    fn still_differs(&mut self, scenario: &Scenario) -> bool {
        // A part that the oracle refuses, such as a claim without its volume, is of no use.
        self.judge(scenario)
            .is_ok_and(|judgement| matches!(judgement.verdict, Verdict::Differs(_)))
    }
}

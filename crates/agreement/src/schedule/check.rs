use anyhow::Result;
use super::{Facts, Scenario};
use super::answer::Answer;
pub fn violations(_facts: &Facts, _scenario: &Scenario, _answer: &Answer) -> Result<Vec<String>> { Ok(vec![]) }

//! How instances end. Those of the same moment share a request.
//!
//! EC2 refuses a whole request because of one instance in it: one that has termination protection, is unknown, or is not
//! ours by the policy. The instances that a refusal names leave the request, and the rest is asked for again; where it
//! names none, the request is halved until every instance has an answer of its own. An instance that was refused is
//! asked for alone from then on, so it never delays another one again.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

use crate::error::Error;
use crate::provider::{ASKED, Ec2, instance_id};

/// Ends that are asked for within this time of each other are one request.
const GATHER: Duration = Duration::from_millis(25);
/// How many instances one request ends at most.
const BATCH: usize = 500;
/// How many requests one refused batch may become; what has no answer then is asked for again later.
const MAX_REQUESTS: usize = 64;

/// An instance that shall end, and who waits for the answer.
pub(crate) type Ending = (String, oneshot::Sender<Result<(), Error>>);

impl Ec2 {
    /// Ends an instance; one that is gone is fine.
    pub async fn terminate(&self, provider_id: &str) -> Result<(), Error> {
        let id = instance_id(provider_id).to_owned();
        let was_refused = {
            let memory = self.memory();
            if memory.ended.get(&id).is_some_and(|asked| asked.elapsed() < ASKED) {
                return Ok(());
            }
            memory.refused.contains(&id)
        };
        if was_refused {
            return self.terminate_all(vec![id.clone()]).await.of(&id);
        }
        let (answer, waits) = oneshot::channel();
        let is_first = {
            let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
            ending.push((id, answer));
            ending.len() == 1
        };
        if is_first {
            tokio::time::sleep(GATHER).await;
            let batch = std::mem::take(&mut *self.ending.lock().unwrap_or_else(PoisonError::into_inner));
            self.end(batch).await;
        }
        waits.await.unwrap_or_else(|_| Err(given_up()))
    }

    async fn end(&self, batch: Vec<Ending>) {
        let mut batch = batch;
        while !batch.is_empty() {
            let rest = batch.split_off(batch.len().min(BATCH));
            let mut ids: Vec<String> = batch.iter().map(|(id, _)| id.clone()).collect();
            ids.sort();
            ids.dedup();
            let answers = self.terminate_all(ids).await;
            for (id, waits) in batch {
                // Whoever asked may have gone.
                drop(waits.send(answers.of(&id)));
            }
            batch = rest;
        }
    }

    /// Asks for the end of instances until each has an answer, and remembers the answers.
    async fn terminate_all(&self, ids: Vec<String>) -> Answers {
        let mut answers = Answers::default();
        let mut batches = vec![ids];
        let mut requests = 0;
        while let Some(batch) = batches.pop() {
            requests += 1;
            let error = match self.client.terminate(&batch).await {
                Ok(()) => {
                    let now = Instant::now();
                    let mut memory = self.memory();
                    memory.refused.retain(|id| !batch.contains(id));
                    memory.ended.extend(batch.iter().map(|id| (id.clone(), now)));
                    answers.set(&batch, &Ok(()));
                    continue;
                }
                Err(error) => error,
            };
            let Some(division) = divide(&batch, &error).filter(|_| requests < MAX_REQUESTS) else {
                answers.set(&batch, &Err(error));
                continue;
            };
            if error.is_not_found() {
                warn!(instances = ?division.answered, "instances to end were gone already");
                answers.set(&division.answered, &Ok(()));
            } else {
                self.memory().refused.extend(division.answered.iter().cloned());
                answers.set(&division.answered, &Err(error));
            }
            batches.extend(division.again);
        }
        answers
    }
}

/// What a refused request comes to.
#[derive(Debug, Default, PartialEq)]
struct Division {
    /// The instances that the refusal is about.
    answered: Vec<String>,
    /// The requests that are to be made instead, none of them empty.
    again: Vec<Vec<String>>,
}

/// Divides a refused request; none if the refusal would be the same for any other request.
fn divide(batch: &[String], error: &Error) -> Option<Division> {
    if !error.is_about_content() {
        return None;
    }
    let text = error.to_string();
    let words: HashSet<&str> = text
        .split(|one: char| !one.is_ascii_alphanumeric() && one != '-')
        .collect();
    let (mut answered, mut others): (Vec<String>, Vec<String>) =
        batch.iter().cloned().partition(|id| words.contains(id.as_str()));
    if answered.is_empty() && others.len() == 1 {
        std::mem::swap(&mut answered, &mut others);
    }
    let mut again = Vec::new();
    if answered.is_empty() {
        again.push(others.split_off(others.len() / 2));
    }
    again.push(others);
    again.retain(|batch| !batch.is_empty());
    Some(Division { answered, again })
}

/// The answers so far, by instance.
#[derive(Debug, Default)]
struct Answers(HashMap<String, Result<(), Error>>);

impl Answers {
    fn set(&mut self, ids: &[String], answer: &Result<(), Error>) {
        self.0.extend(ids.iter().map(|id| (id.clone(), answer.clone())));
    }

    fn of(&self, id: &str) -> Result<(), Error> {
        self.0.get(id).cloned().unwrap_or_else(|| Err(given_up()))
    }
}

fn given_up() -> Error {
    Error::Unreadable {
        action: "TerminateInstances",
        message: "the request that this end was part of was given up".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, message: &str, status: u16) -> Error {
        Error::Refused {
            action: "TerminateInstances",
            code: code.to_owned(),
            message: message.to_owned(),
            status,
        }
    }

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn the_instances_that_a_refusal_names_leave_the_request() {
        let message = "The instance 'i-2' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.";
        let error = refused("OperationNotPermitted", message, 400);
        let division = divide(&ids(&["i-1", "i-2", "i-22", "i-3"]), &error).unwrap();
        assert_eq!(division.answered, ids(&["i-2"]));
        assert_eq!(division.again, [ids(&["i-1", "i-22", "i-3"])]);
        let division = divide(&ids(&["i-2"]), &error).unwrap();
        assert_eq!((division.answered, division.again), (ids(&["i-2"]), Vec::new()));
    }

    #[test]
    fn a_refusal_that_names_nobody_halves_the_request_until_one_is_left() {
        let error = refused("UnauthorizedOperation", "You are not authorized.", 403);
        let division = divide(&ids(&["i-1", "i-2", "i-3"]), &error).unwrap();
        assert_eq!(division.answered, ids(&[]));
        assert_eq!(division.again, [ids(&["i-2", "i-3"]), ids(&["i-1"])]);
        let division = divide(&ids(&["i-1"]), &error).unwrap();
        assert_eq!((division.answered, division.again), (ids(&["i-1"]), Vec::new()));
    }

    #[test]
    fn what_any_request_would_be_told_divides_nothing() {
        for (code, status) in [
            ("RequestLimitExceeded", 503),
            ("InternalError", 500),
            ("RequestExpired", 400),
        ] {
            assert_eq!(
                divide(&ids(&["i-1", "i-2"]), &refused(code, "i-1", status)),
                None,
                "{code}"
            );
        }
        assert_eq!(divide(&ids(&["i-1", "i-2"]), &Error::NoRegion), None);
    }
}

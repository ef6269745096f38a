//! Two processes that both believe that they lead, for a while.

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_steering::cycle::Cycle;

use crate::steerer::Steerer;
use crate::world::{Memory, World};

/// A second process that believes that it leads.
#[derive(Debug)]
pub(crate) struct Rival {
    cycle: Cycle,
    pub(crate) memory: Memory,
    until: Timestamp,
}

impl World {
    /// The pass of the second process, if there is one at the moment.
    pub(crate) fn rival_pass(&mut self) -> (bool, Option<Timestamp>) {
        let Some(mut rival) = self.rival.take().filter(|rival| rival.until > self.now) else {
            return (false, None);
        };
        let epoch = self.epoch;
        std::mem::swap(&mut self.cycle, &mut rival.cycle);
        std::mem::swap(&mut self.memory, &mut rival.memory);
        let passed = self.pass();
        if self.epoch == epoch {
            std::mem::swap(&mut self.cycle, &mut rival.cycle);
            std::mem::swap(&mut self.memory, &mut rival.memory);
            self.rival = Some(rival);
        }
        passed
    }

    /// For a while, a second process believes that it leads.
    pub(crate) fn split(&mut self, lasts: SignedDuration) {
        self.say("two controllers believe that they lead".to_owned());
        let mut cycle = Cycle::new(Arc::clone(&self.catalogue), self.rules.clone());
        if let Some(ledger) = self.steerer.as_ref().and_then(Steerer::ledger) {
            cycle.learn(Some(Arc::new(ledger.clone())));
        }
        self.rival = Some(Box::new(Rival {
            cycle,
            memory: Memory::default(),
            until: self.now.checked_add(lasts).unwrap_or(self.now),
        }));
        self.wake_after(SignedDuration::from_secs(1));
    }
}

//! Events on NodePools: one when what overlays do to a pool changes, and not too often.
//!
//! What holds at the first look is taken as known, so that a restart says nothing.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Effects, PoolEffect, earlier};
use crate::overlay::Evaluation;
use crate::overlay::advice::matching::counted;

/// An event on a NodePool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The pool's name.
    pub node_pool: String,
    /// What overlays do to it now.
    pub note: String,
}

/// What was announced, by pool; nothing before the first look.
#[derive(Clone, Debug, Default)]
pub(super) struct Announced(Option<BTreeMap<String, Said>>);

#[derive(Clone, Debug, Default)]
struct Said {
    effect: PoolEffect,
    at: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) announcements: Vec<Announcement>,
    pub(super) look_again: Option<Timestamp>,
}

impl Announced {
    /// What to announce now, given what was announced before.
    pub(super) fn update(
        &mut self,
        evaluation: &Evaluation,
        effects: &Effects,
        interval: SignedDuration,
        now: Timestamp,
    ) -> Told {
        let mut told = Told::default();
        let mut known = self.0.take();
        let pools = evaluation.pools().iter().zip(&effects.pools);
        let said = pools.map(|(pool, effect)| {
            let name = pool.name.clone();
            let Some(known) = &mut known else {
                let effect = effect.clone();
                return (name, Said { effect, at: None });
            };
            let mut said = known.remove(&name).unwrap_or_else(|| Said {
                effect: untouched(effect),
                at: None,
            });
            if said.effect != *effect {
                match said
                    .at
                    .and_then(|at| at.checked_add(interval).ok())
                    .filter(|due| *due > now)
                {
                    Some(due) => told.look_again = earlier(told.look_again, Some(due)),
                    None => {
                        told.announcements.push(Announcement {
                            node_pool: name.clone(),
                            note: note(effect),
                        });
                        said = Said {
                            effect: effect.clone(),
                            at: Some(now),
                        };
                    }
                }
            }
            (name, said)
        });
        self.0 = Some(said.collect());
        told
    }
}

/// A pool that no overlay changes is nothing to tell when it is new.
fn untouched(effect: &PoolEffect) -> PoolEffect {
    if effect.overlays == 0 {
        effect.clone()
    } else {
        PoolEffect::default()
    }
}

fn note(effect: &PoolEffect) -> String {
    let PoolEffect {
        overlays,
        repriced,
        offerings,
        types_with_resources,
        ..
    } = effect;
    if *overlays == 0 {
        return "no NodeOverlay changes an offering of this pool any more".to_owned();
    }
    format!(
        "{} in effect: {repriced} of {} with another price, {} with other resources",
        counted(*overlays, "NodeOverlay"),
        counted(*offerings, "offering"),
        counted(*types_with_resources, "instance type"),
    )
}

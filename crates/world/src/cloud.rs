//! The cloud: instances, what can be had of each kind, and what they are paid.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_engine::lifecycle::Launched;
use veneer_engine::plan::Shortage;
use veneer_engine::provision::LaunchOption;

use crate::billing::{Usage, Used};
use crate::scenario::{self, Offer};

/// How far an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It boots or runs; it is paid.
    Running,
    /// It is being stopped; it is not paid any more.
    Stopping,
    /// It is stopped, perhaps with its memory on disk.
    Stopped,
    /// It ends; it is not paid any more.
    Ending,
}

/// An instance.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The provider's name of it.
    pub id: String,
    /// The claim for which it was launched.
    pub claim: String,
    /// Its type.
    pub instance_type: String,
    /// How it was bought.
    pub capacity_type: String,
    /// Where it is.
    pub zone: String,
    /// The list price in dollars per hour.
    pub price: f64,
    /// When it was launched.
    pub launched: Timestamp,
    /// Since when it is paid.
    pub paid_since: Timestamp,
    /// Since when it is not paid any more.
    pub ended: Option<Timestamp>,
    /// Whether its memory is on disk while it is stopped.
    pub hibernates: bool,
    /// How far it is.
    pub state: State,
    /// What it is, for the claim.
    pub described: Launched,
    /// Whether it will be taken back.
    pub interrupted: bool,
    /// Whether a process that lives was told of it; of one that nobody heard of, nobody can take account.
    pub heard: bool,
}

impl Machine {
    /// Whether it is spot.
    #[must_use]
    pub fn is_spot(&self) -> bool {
        self.capacity_type == "spot"
    }

    fn usage(&self) -> Usage {
        Usage {
            instance_type: self.instance_type.clone(),
            zone: self.zone.clone(),
            is_spot: self.is_spot(),
        }
    }
}

fn offering(option: &LaunchOption) -> (&str, &str, &str) {
    (&option.instance_type, &option.capacity_type, &option.zone)
}

/// All instances, and what can be had.
#[derive(Clone, Debug, Default)]
pub struct Cloud {
    /// Instances that are not gone, by id.
    pub machines: BTreeMap<String, Machine>,
    /// Instances that are gone and still have to be paid.
    gone: Vec<Machine>,
    capacity: Vec<scenario::Capacity>,
    /// What cannot be had, and until when.
    outages: Vec<(Offer, Timestamp)>,
    launches: u64,
}

impl Cloud {
    /// A cloud in which nothing runs.
    #[must_use]
    pub fn new(settings: &scenario::Cloud) -> Self {
        Self {
            capacity: settings.capacity.clone(),
            ..Self::default()
        }
    }

    /// Takes offerings away for a while.
    pub fn outage(&mut self, of: Offer, until: Timestamp) {
        self.outages.push((of, until));
    }

    fn is_short(&self, (type_, capacity, zone): (&str, &str, &str), now: Timestamp) -> bool {
        let is = |offer: &Offer| offer.matches(type_, capacity, zone);
        let is_out = self
            .outages
            .iter()
            .any(|(offer, until)| *until > now && is(offer));
        is_out
            || self.capacity.iter().filter(|one| is(&one.of)).any(|one| {
                let running = self.machines.values().filter(|machine| {
                    one.of
                        .matches(&machine.instance_type, &machine.capacity_type, &machine.zone)
                });
                running.count() >= one.instances
            })
    }

    /// The instance of a claim, if there is one.
    #[must_use]
    pub fn of_claim(&self, claim: &str) -> Option<&Machine> {
        let mut machines = self.machines.values();
        machines.find(|machine| machine.claim == claim && machine.state != State::Ending)
    }

    /// Launches the first option that can be had, or says what could not. The claim's name is the token by which a repeated
    /// launch gives the same instance; with `token` off it does not (a fault that tests must notice).
    pub fn launch(
        &mut self,
        claim: &str,
        options: &[LaunchOption],
        token: bool,
        now: Timestamp,
    ) -> Result<&Machine, Vec<Shortage>> {
        let known = self
            .of_claim(claim)
            .filter(|_| token)
            .map(|machine| machine.id.clone());
        let id = match known {
            Some(id) => id,
            None => {
                let Some(option) = options.iter().find(|one| !self.is_short(offering(one), now)) else {
                    let shortages = options.iter().map(|option| Shortage {
                        instance_type: option.instance_type.clone(),
                        capacity_type: option.capacity_type.clone(),
                        zone: option.zone.clone(),
                    });
                    return Err(shortages.collect());
                };
                self.launches += 1;
                let id = format!("aws:///{}/i-{:017x}", option.zone, self.launches);
                let machine = Machine {
                    id: id.clone(),
                    claim: claim.to_owned(),
                    instance_type: option.instance_type.clone(),
                    capacity_type: option.capacity_type.clone(),
                    zone: option.zone.clone(),
                    price: option.list_price,
                    launched: now,
                    paid_since: now,
                    ended: None,
                    hibernates: false,
                    state: State::Running,
                    described: Launched {
                        provider_id: id.clone(),
                        labels: BTreeMap::clone(&option.labels),
                        capacity: BTreeMap::clone(&option.capacity),
                        allocatable: BTreeMap::clone(&option.allocatable),
                        image_id: None,
                        annotations: Default::default(),
                    },
                    interrupted: false,
                    heard: false,
                };
                self.machines.insert(id.clone(), machine);
                id
            }
        };
        self.machines.get(&id).ok_or_else(Vec::new)
    }

    /// Begins to end an instance; says whether that is news.
    pub fn terminate(&mut self, id: &str, now: Timestamp) -> bool {
        match self.machines.get_mut(id) {
            Some(machine) if machine.state != State::Ending => {
                machine.state = State::Ending;
                machine.ended = Some(now);
                true
            }
            _ => false,
        }
    }

    /// Begins to stop an instance; says whether that is news.
    pub fn stop(&mut self, id: &str, hibernate: bool, now: Timestamp) -> bool {
        match self.machines.get_mut(id) {
            Some(machine) if machine.state == State::Running => {
                machine.state = State::Stopping;
                machine.hibernates = hibernate;
                machine.ended = Some(now);
                true
            }
            _ => false,
        }
    }

    /// An instance has stopped.
    pub fn stopped(&mut self, id: &str) -> Option<&Machine> {
        let machine = self
            .machines
            .get_mut(id)
            .filter(|one| one.state == State::Stopping)?;
        machine.state = State::Stopped;
        Some(machine)
    }

    /// Starts a stopped instance; says whether that is news, or what there is none of.
    pub fn start(&mut self, id: &str, now: Timestamp) -> Result<bool, Shortage> {
        let Some(machine) = self
            .machines
            .get(id)
            .filter(|one| one.state == State::Stopped)
            .cloned()
        else {
            return Ok(false);
        };
        let of = (
            machine.instance_type.as_str(),
            machine.capacity_type.as_str(),
            machine.zone.as_str(),
        );
        if self.is_short(of, now) {
            return Err(Shortage {
                instance_type: machine.instance_type,
                capacity_type: machine.capacity_type,
                zone: machine.zone,
            });
        }
        if let Some(known) = self.machines.get_mut(id) {
            known.state = State::Running;
            known.paid_since = now;
            known.ended = None;
        }
        // The time that it ran before is still to be paid.
        self.gone.push(machine);
        Ok(true)
    }

    /// An instance is gone.
    pub fn remove(&mut self, id: &str, now: Timestamp) -> Option<Machine> {
        let mut machine = self.machines.remove(id)?;
        machine.ended.get_or_insert(now);
        self.gone.push(machine.clone());
        Some(machine)
    }

    /// What runs now, as one hour of each.
    #[must_use]
    pub fn rates(&self) -> Used {
        let mut used = Used::new();
        let running = self.machines.values().filter(|machine| machine.ended.is_none());
        for machine in running {
            let entry = used.entry(machine.usage()).or_insert((0.0, machine.price));
            entry.0 += 1.0;
        }
        used
    }

    /// What was used between two moments.
    #[must_use]
    pub fn usage(&self, from: Timestamp, to: Timestamp) -> Used {
        let mut used = Used::new();
        for machine in self.machines.values().chain(&self.gone) {
            let begin = machine.paid_since.max(from);
            let end = machine.ended.unwrap_or(to).min(to);
            let hours = end.duration_since(begin).max(SignedDuration::ZERO).as_secs_f64() / 3600.0;
            if hours > 0.0 {
                let entry = used.entry(machine.usage()).or_insert((0.0, machine.price));
                entry.0 += hours;
            }
        }
        used
    }

    /// What was used until a moment is paid: instances that are gone are forgotten.
    pub fn settled(&mut self, to: Timestamp) {
        self.gone.clear();
        self.outages.retain(|(_, until)| *until > to);
    }
}

//! Collects commitments, usage and prices of several accounts and regions into an [`Inventory`].
//!
//! Invariants:
//! - A part (one account, one region, one kind of data) is replaced by a complete answer or not at all: what fails keeps its old rows,
//!   says why, and does not stop the others.
//! - A page becomes rows before the next one is asked for, and the number of requests under way is bounded.
//! - Amounts are read to the last digit of what AWS wrote.

mod capacity;
mod due;
mod instances;
mod plans;
mod prices;
mod read;
mod reserved;
mod role;
mod settings;
mod sharing;
mod spot;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};
use veneer_inventory::{Account, Inventory, Part, Rows};

use self::due::{Ask, Due};
pub use self::prices::platform_of;
use self::role::Role;
pub use self::settings::{Intervals, Settings, Target};
use crate::call::Call;
use crate::client::{Client, Traffic};
use crate::error::Error;

/// Collects, whenever it is told to, what is due.
#[derive(Debug)]
pub struct Collector {
    settings: Settings,
    /// Who assumes roles.
    base: Client,
    /// One for each account, which its regions share.
    clients: BTreeMap<String, Client>,
    due: Due,
}

/// What one [`Collector::collect`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The parts that were replaced.
    pub collected: usize,
    /// The parts that were tried in vain, and why.
    pub failed: Vec<(Part, String)>,
    /// The requests that it took.
    pub requests: u64,
}

enum Outcome {
    Account(String, Result<(), String>, f64),
    Part(Part, Box<Result<Rows, String>>),
}

impl Collector {
    /// One that has collected nothing yet; `base` has the credentials that we are given.
    #[must_use]
    pub fn new(settings: Settings, base: &Client) -> Self {
        let base = base.with_patience(settings.patience);
        let clients = settings.accounts.iter().map(|target| {
            let region = target.regions.first().map_or(base.region(), String::as_str);
            let client = match &target.role_arn {
                None => base.in_region(region),
                Some(arn) => base.in_region(region).with_credentials(Role {
                    client: base.clone(),
                    arn: arn.clone(),
                    external_id: target.external_id.clone(),
                }),
            };
            (target.id.clone(), client)
        });
        Self {
            clients: clients.collect(),
            base,
            due: Due::default(),
            settings,
        }
    }

    /// The inventory that this fills, with nothing in it.
    #[must_use]
    pub fn inventory(&self) -> Inventory {
        let accounts = self.settings.accounts.iter();
        let accounts = accounts.map(|target| Account {
            id: target.id.clone(),
            name: target.name.clone(),
        });
        let mut inventory = Inventory::new(accounts.collect());
        self.expect(&mut inventory);
        inventory
    }

    fn expect(&self, inventory: &mut Inventory) {
        for part in due::parts(&self.settings) {
            inventory.expect(part);
        }
    }

    /// Collects what is due at `now`, in seconds since 1970. What is known only now (a plan whose rates are not known, a platform
    /// without prices) is collected as well.
    pub async fn collect(&mut self, inventory: &mut Inventory, now: i64) -> Round {
        self.expect(inventory);
        let before = self.traffic().requests;
        let mut round = Round::default();
        for _ in 0..2 {
            let asks = self.due.asks(&self.settings, inventory, now);
            if asks.is_empty() {
                break;
            }
            self.pass(asks, inventory, now, &mut round).await;
        }
        round.requests = self.traffic().requests - before;
        round
    }

    async fn pass(&mut self, asks: Vec<Ask>, inventory: &mut Inventory, now: i64, round: &mut Round) {
        let permits = Arc::new(Semaphore::new(self.settings.concurrency.max(1)));
        let mut tasks = JoinSet::new();
        let mut waiting: BTreeMap<String, Vec<Ask>> = BTreeMap::new();
        for ask in asks {
            self.due.tried(&ask);
            if self.due.must_validate(&self.settings, &ask.account, now) {
                waiting.entry(ask.account.clone()).or_default().push(ask);
            } else {
                self.spawn(ask, now, &permits, &mut tasks);
            }
        }
        for account in waiting.keys() {
            let client = self.clients.get(account).cloned();
            tasks.spawn(validate(account.clone(), client, Arc::clone(&permits)));
        }
        while let Some(done) = tasks.join_next().await {
            match done {
                Ok(Outcome::Account(account, result, seconds)) => {
                    self.due.validated(&account, now, result.is_ok());
                    let asks = waiting.remove(&account).unwrap_or_default();
                    for ask in asks {
                        match &result {
                            Ok(()) => self.spawn(ask, now, &permits, &mut tasks),
                            Err(error) => fail(inventory, ask.part, error.clone(), now, round),
                        }
                    }
                    inventory.validated(&account, result, now, seconds);
                }
                Ok(Outcome::Part(part, result)) => match *result {
                    Ok(rows) => {
                        debug!(?part, rows = rows.len(), "collected");
                        round.collected += 1;
                        inventory.replace(&part, rows, now);
                    }
                    Err(error) => fail(inventory, part, error, now, round),
                },
                Err(error) => warn!(%error, "a part was not collected"),
            }
        }
    }

    fn spawn(&self, ask: Ask, now: i64, permits: &Arc<Semaphore>, tasks: &mut JoinSet<Outcome>) {
        let client = self.clients.get(&ask.account);
        let client = client.map(|client| match ask.part.region.as_str() {
            "" => client.clone(),
            region => client.in_region(region),
        });
        let permits = Arc::clone(permits);
        let limit = self.settings.part_timeout;
        let tag = self.settings.node_name_tag.clone();
        tasks.spawn(async move {
            let _permit = permits.acquire_owned().await;
            let result = match client {
                None => Err(format!("account {} is not configured", ask.account)),
                Some(client) => match tokio::time::timeout(limit, ask.answer(&client, &tag, now)).await {
                    Ok(result) => result.map_err(|error| error.to_string()),
                    Err(_) => Err(format!("not complete within {limit:?}")),
                },
            };
            Outcome::Part(ask.part, Box::new(result))
        });
    }

    /// The requests that were made so far, by account and call, repeated ones included. Those that assume roles are made with the
    /// credentials that we are given, and listed without an account.
    #[must_use]
    pub fn requests(&self) -> BTreeMap<(String, Call), u64> {
        let accounts = self.clients.iter().filter(|(id, _)| self.has_role(id));
        let accounts = accounts.map(|(id, client)| (id.as_str(), client));
        let all = accounts.chain([("", &self.base)]);
        let all = all.flat_map(|(id, client)| {
            let requests = client.requests().into_iter();
            requests.map(move |(call, count)| ((id.to_owned(), call), count))
        });
        all.collect()
    }

    /// What went over the wire so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let clients = self.clients.iter().filter(|(id, _)| self.has_role(id));
        let clients = clients.map(|(_, client)| client).chain([&self.base]);
        clients.fold(Traffic::default(), |sum, client| {
            let one = client.traffic();
            Traffic {
                requests: sum.requests + one.requests,
                bytes: sum.bytes + one.bytes,
            }
        })
    }

    /// Those without a role share the counts of the base.
    fn has_role(&self, id: &str) -> bool {
        let mut accounts = self.settings.accounts.iter();
        accounts.any(|target| target.id == id && target.role_arn.is_some())
    }

    /// The regions that are collected.
    #[must_use]
    pub fn regions(&self) -> BTreeSet<String> {
        due::regions(&self.settings)
    }
}

fn fail(inventory: &mut Inventory, part: Part, error: String, now: i64, round: &mut Round) {
    warn!(account = part.account, region = part.region, kind = part.kind.name(), %error, "not collected; what is known stays");
    inventory.failed(&part, error.as_str(), now);
    round.failed.push((part, error));
}

async fn validate(account: String, client: Option<Client>, permits: Arc<Semaphore>) -> Outcome {
    let _permit = permits.acquire_owned().await;
    let began = Instant::now();
    let found = match client {
        Some(client) => client.caller().await.map_err(|error: Error| error.to_string()),
        None => Err(format!("account {account} is not configured")),
    };
    let result = match found {
        Ok(found) if found == account => Ok(()),
        Ok(found) => Err(format!(
            "the credentials for account {account} belong to account {found}; check the account id and the role"
        )),
        Err(error) => Err(error),
    };
    Outcome::Account(account, result, began.elapsed().as_secs_f64())
}

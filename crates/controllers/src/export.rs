//! `veneer export`: collects what several accounts have and use, and tells it as metrics.
//!
//! A [`Collect`] fills an [`Inventory`] beside everything else; what callers read is the last one that was published, so that a slow
//! account never delays a scrape.

mod pages;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};
use veneer_aws::collect::Collector;
use veneer_inventory::{Inventory, series};

/// Something that is under way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Collects what is due: whatever fails is noted in the inventory, part by part.
pub trait Collect: Send {
    /// Collects what is due at `now`, in seconds since 1970.
    fn collect<'a>(&'a mut self, inventory: &'a mut Inventory, now: i64) -> Pending<'a, ()>;
}

impl Collect for Collector {
    fn collect<'a>(&'a mut self, inventory: &'a mut Inventory, now: i64) -> Pending<'a, ()> {
        Box::pin(async move {
            // What failed is in the inventory, which is where it is told from.
            let round = Collector::collect(self, inventory, now).await;
            debug!(
                collected = round.collected,
                requests = round.requests,
                "collected"
            );
        })
    }
}

/// What was collected last, for everybody who reads it.
#[derive(Clone, Default)]
pub struct Exported(Arc<State>);

#[derive(Default)]
struct State {
    options: series::Options,
    inventory: watch::Sender<Option<Arc<Inventory>>>,
    /// The last text about the bill.
    bill: Mutex<Option<MadeBill>>,
}

/// What a text about the bill was made from, in which minute, and the text.
type MadeBill = (Arc<Inventory>, i64, Arc<str>);

impl std::fmt::Debug for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exported")
    }
}

/// Seconds since 1970.
pub(crate) fn clock() -> i64 {
    Timestamp::now().as_second()
}

impl Exported {
    /// Nothing yet, to be told in this way.
    #[must_use]
    pub fn new(options: series::Options) -> Self {
        Self(Arc::new(State {
            options,
            ..State::default()
        }))
    }

    /// Puts an inventory in place of the one before.
    pub fn publish(&self, inventory: Inventory) {
        self.0.inventory.send_replace(Some(Arc::new(inventory)));
    }

    /// What was published last.
    #[must_use]
    pub fn inventory(&self) -> Option<Arc<Inventory>> {
        self.0.inventory.borrow().clone()
    }

    /// Tells of everything that is published from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<Inventory>>> {
        self.0.inventory.subscribe()
    }

    /// What was published last; waits for the first.
    pub(crate) async fn first(&self) -> Arc<Inventory> {
        let mut published = self.subscribe();
        loop {
            if let Some(inventory) = &*published.borrow_and_update() {
                return Arc::clone(inventory);
            }
            // The sender is in the same place as this.
            if published.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The metrics; nothing before the first collection.
    #[must_use]
    pub fn text(&self, now: i64) -> String {
        let Some(inventory) = self.inventory() else {
            return String::new();
        };
        let minute = now.div_euclid(60);
        // Held while it is made: two scrapes at once make it once.
        let mut made = self.0.bill.lock().unwrap_or_else(PoisonError::into_inner);
        let bill = match &*made {
            Some((of, at, text)) if Arc::ptr_eq(of, &inventory) && *at == minute => Arc::clone(text),
            _ => {
                let text: Arc<str> = series::bill(&inventory, &self.0.options, now).into();
                *made = Some((Arc::clone(&inventory), minute, Arc::clone(&text)));
                text
            }
        };
        drop(made);
        let mut text = bill.to_string();
        text.push_str(&series::state(&inventory, &self.0.options, now));
        text
    }

    /// Why nothing is told yet.
    pub(crate) fn trouble(&self) -> Option<String> {
        let Some(inventory) = self.inventory() else {
            return Some("waiting for the first collection".to_owned());
        };
        if inventory.parts().any(|(_, collected)| collected.at.is_some()) {
            return None;
        }
        let errors = inventory
            .parts()
            .filter_map(|(_, collected)| collected.error.as_deref());
        let first = errors.take(1).collect::<String>();
        Some(format!("nothing could be collected: {first}"))
    }

    /// `/debug/inventory`: every part, with its age and its error.
    pub(crate) fn inventory_json(&self, now: i64) -> String {
        self.inventory().map_or_else(
            || "{}\n".to_owned(),
            |inventory| pages::inventory(&inventory, now),
        )
    }

    /// `/debug/bill`: what is paid by whom, with the rules.
    pub(crate) fn bill_json(&self, now: i64) -> String {
        self.inventory()
            .map_or_else(|| "{}\n".to_owned(), |inventory| pages::bill(&inventory, now))
    }
}

/// What could not be collected, a line each.
#[must_use]
pub fn errors(inventory: &Inventory) -> Vec<String> {
    let parts = inventory.parts();
    let failed = parts.filter_map(|(part, collected)| {
        let error = collected.error.as_ref()?;
        let place: Vec<&str> = [part.account.as_str(), &part.region]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        let of = if place.is_empty() { "" } else { " of " };
        Some(format!("{}{of}{}: {error}", part.kind.name(), place.join(" in ")))
    });
    failed.collect()
}

/// Collects every so often and publishes what came of it, until it is dropped.
pub async fn keep_collecting(
    mut collector: impl Collect,
    mut inventory: Inventory,
    exported: Exported,
    every: Duration,
) {
    let mut told: Vec<String> = Vec::new();
    loop {
        let began = Instant::now();
        collector.collect(&mut inventory, clock()).await;
        let failed = errors(&inventory);
        if failed.is_empty() && !told.is_empty() {
            info!("everything can be collected again");
        }
        told = failed;
        exported.publish(inventory.clone());
        sleep_until(began + every).await;
    }
}

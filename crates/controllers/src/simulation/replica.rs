//! One replica: processes that wait for the Lease, provision while they have it, and end when they lose it or are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use kube::Client;
use tokio::sync::Notify;
use tokio::time::sleep;
use veneer_world::rng::Rng;

use super::Sim;
use super::wire::{Process, Wire};
use crate::lease::{Candidate, Election};
use crate::provider::ec2;
use crate::standalone::{self, Clock, Settings, Shown};

pub(super) const LEASE_NAMESPACE: &str = "veneer";
pub(super) const LEASE: &str = "veneer";

/// Runs one process after the other.
pub(super) async fn run(sim: Arc<Sim>, seed: u64, replica: usize, skew: SignedDuration, killed: Arc<Notify>) {
    let mut rng = Rng::of(seed, &["replica", &replica.to_string()]);
    for number in 0.. {
        let process = Arc::new(Process {
            replica,
            identity: format!("replica-{replica}.{number}"),
            ended: AtomicBool::new(false),
        });
        let why = {
            let life = live(&sim, &process, skew, rng.chance(0.5));
            tokio::select! {
                biased;
                () = killed.notified() => "killed".to_owned(),
                why = life => why,
            }
        };
        process.ended.store(true, Ordering::Relaxed);
        sim.with(|inner| {
            if let Some(seat) = inner.seats.get_mut(replica) {
                *seat = super::Seat::default();
            }
        });
        sim.log(|| format!("{} ends: {why}", process.identity));
        sleep(Duration::from_secs(1 + rng.below(12))).await;
    }
}

async fn live(sim: &Arc<Sim>, process: &Arc<Process>, skew: SignedDuration, waits: bool) -> String {
    let wire = Wire {
        sim: Arc::clone(sim),
        process: Arc::clone(process),
    };
    let client = Client::new(wire.clone(), LEASE_NAMESPACE);
    let at = sim.now();
    let clock = Clock::simulated(at.checked_add(skew).unwrap_or(at));
    let election = Election {
        namespace: LEASE_NAMESPACE.to_owned(),
        name: LEASE.to_owned(),
        identity: process.identity.clone(),
        duration: Duration::from_secs(15),
        cluster: None,
    };
    let mut candidate = Candidate::new(&client, election);
    candidate.clock = clock.clone();
    candidate.acquire().await;
    let lead = leads(sim, process);
    if let Some(wrong) = lead {
        sim.violate(wrong);
    }
    sim.log(|| format!("{} leads", process.identity));
    let provisioning = async {
        let settings = settings(&wire, &clock);
        if waits {
            sleep(Duration::from_millis(500)).await;
        }
        let shown = Shown {
            fence: candidate.fence.clone(),
            ..Shown::default()
        };
        let watches = standalone::watch(&client, &settings, &shown.health).await;
        sim.with(|inner| {
            if let Some(seat) = inner.seats.get_mut(process.replica) {
                seat.stores = Some(Arc::clone(&watches.stores));
            }
        });
        standalone::provision(client.clone(), watches, settings, shown).await;
    };
    tokio::select! {
        biased;
        why = candidate.hold() => why,
        () = provisioning => "provisioning ended".to_owned(),
    }
}

/// Takes the seat of the leader; says what is wrong with that.
fn leads(sim: &Sim, process: &Process) -> Option<String> {
    let at = sim.elapsed();
    sim.with(|inner| {
        let mut others = inner
            .seats
            .iter()
            .enumerate()
            .filter(|(seat, _)| *seat != process.replica);
        let other = others.find_map(|(_, seat)| seat.leads.clone());
        if let Some(seat) = inner.seats.get_mut(process.replica) {
            seat.leads = Some(process.identity.clone());
        }
        let is_excused = inner.tampered.is_some_and(|when| at < when + super::TAMPERED);
        other
            .filter(|_| !is_excused)
            .map(|other| format!("{} leads while {other} does", process.identity))
    })
}

fn settings(wire: &Wire, clock: &Clock) -> Settings {
    let sim = &wire.sim;
    let (way, time, chance) = (wire.clone(), clock.clone(), Arc::clone(sim));
    let outside = veneer_aws::Outside::simulated(
        move |body| way.clone().aws(body),
        move || time.machine(),
        move || chance.draw(Rng::unit),
    );
    let mut settings = Settings::new(sim.with(|inner| Arc::clone(&inner.catalogue)));
    settings.node_overlay_gate = true;
    settings.clock = clock.clone();
    settings.ec2 = Some(ec2::Settings {
        cluster_name: "simulated".to_owned(),
        cluster_endpoint: "https://simulated.invalid".to_owned(),
        service_cidr: Some("10.0.0.0/16".to_owned()),
        outside: Some(outside),
        ..ec2::Settings::default()
    });
    settings
}

//! `veneer run --embedded`: the whole system on a cluster in memory, live, with nothing to install.

mod view;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use veneer_api::admission::Admission;
use veneer_api::yaml::{self, AliasBudget};
use veneer_controllers::embedded::Publisher;
use veneer_controllers::standalone::Pending;
use veneer_controllers::{ApplyRequest, Decisions, Health, Metrics, ServeError, Server};
use veneer_world::picture::Summary;
use veneer_world::{Scenario, World, catalogue};

use super::RunArgs;
use crate::config::Config;
use crate::input::documents;
pub(crate) use view::summary;

/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(250);
/// How long the world may run before somebody else gets a turn.
const TURN: Duration = Duration::from_millis(100);
/// The defaults that a real cluster uses; embedded runs stay on the loopback.
const EVERYWHERE: [(&str, &str); 2] = [(":8080", "127.0.0.1:8080"), (":8081", "127.0.0.1:8081")];

/// Options of the embedded world.
#[derive(Debug, Args)]
pub(crate) struct EmbeddedArgs {
    /// Runs everything on a cluster, a cloud and a clock in memory: no Kubernetes, no AWS, nothing to install
    #[arg(long)]
    pub(crate) embedded: bool,

    /// Embedded: how fast time passes, as 60x, or max
    #[arg(long, value_name = "SPEED", default_value = "60x", requires = "embedded")]
    speed: Speed,

    /// Embedded: what happens, from FILE (YAML) [default: a working day of a small shop]
    #[arg(long, value_name = "FILE", requires = "embedded")]
    scenario: Option<PathBuf>,

    /// Embedded: another seed for everything random
    #[arg(long, value_name = "N", requires = "embedded")]
    seed: Option<u64>,

    /// Embedded, when standard output is no terminal: one line after so much simulated time
    #[arg(long, value_name = "SPAN", default_value = "30m", requires = "embedded")]
    every: veneer_world::Span,
}

/// Simulated seconds per second.
#[derive(Clone, Copy, Debug)]
struct Speed(Option<f64>);

impl std::str::FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self(None));
        }
        let factor = text.trim_end_matches('x').parse::<f64>().ok();
        let factor = factor.filter(|factor| factor.is_finite() && *factor > 0.0);
        factor
            .map(|factor| Self(Some(factor)))
            .ok_or_else(|| format!("{text:?} is no speed; expected a factor such as 60x, or max"))
    }
}

/// The scenario that was named, or the embedded one.
pub(crate) fn scenario(path: Option<&PathBuf>) -> Result<Scenario> {
    let Some(path) = path else {
        return Ok(Scenario::embedded()?);
    };
    let origin = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the scenario {origin}"))?;
    Ok(Scenario::parse(&text, &origin)?)
}

pub(super) fn run(args: &RunArgs, config: &Config) -> Result<()> {
    let embedded = &args.embedded;
    let scenario = scenario(embedded.scenario.as_ref())?;
    let catalogue = catalogue(&scenario)?;
    let seed = embedded.seed.unwrap_or(scenario.seed);
    let world = World::new(Arc::new(scenario), catalogue, seed)?;
    let twin = world.unsteered()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .context("cannot start the runtime")?
        .block_on(live(embedded, config, world, twin))
}

async fn live(args: &EmbeddedArgs, config: &Config, world: World, twin: World) -> Result<()> {
    let (metrics, decisions, health) = (Metrics::new(), Decisions::default(), Health::default());
    let pending = Pending::default();
    let (requests, mut asked) = mpsc::channel::<ApplyRequest>(16);
    let serve = async |address: &str| {
        Server::embedded(address, &metrics, &decisions, &pending, requests.clone()).await
    };
    let observers = bind(&config.metrics_bind_address, EVERYWHERE[0], serve).await?;
    let probe = async |address: &str| Server::probes(address, &health).await;
    let probes = bind(&config.health_probe_bind_address, EVERYWHERE[1], probe).await?;
    let address = |server: &Option<Server>| server.as_ref().map(Server::address);
    let addresses = (address(&observers), address(&probes));
    let mut servers = tokio::task::JoinSet::new();
    for server in observers.into_iter().chain(probes) {
        servers.spawn(server.run());
    }
    let mut publisher = Publisher::new(&metrics, &decisions, &pending, &health);
    let mut stage = Stage::new(args, world, twin);
    let mut screen = view::Screen::new(addresses, args.every);
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut tick = tokio::time::interval(FRAME);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let is_over = stage.run_on();
                publisher.publish(&mut stage.world);
                screen.draw(&mut stage)?;
                if is_over {
                    break;
                }
                if stage.speed.is_none() {
                    tick.reset_immediately();
                }
            }
            Some(request) = asked.recv() => {
                // Whoever asked may be gone by now.
                let _ = request.answer.send(stage.apply(&request.text));
            }
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    screen.leave()?;
    let text = summary(&stage.finish());
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Listens on the loopback where nothing else was asked for, on another port if the usual one is taken.
async fn bind(
    wanted: &str,
    (everywhere, loopback): (&str, &str),
    open: impl AsyncFn(&str) -> Result<Option<Server>, ServeError>,
) -> Result<Option<Server>> {
    if wanted != everywhere {
        return Ok(open(wanted).await?);
    }
    match open(loopback).await {
        Err(ServeError::Unusable { .. }) => Ok(open("127.0.0.1:0").await?),
        opened => Ok(opened?),
    }
}

/// The world, the same without steering, and the clock between them and ours.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) twin: World,
    pub(super) speed: Option<f64>,
    every: veneer_world::Span,
    end: Timestamp,
    began: Instant,
}

impl Stage {
    fn new(args: &EmbeddedArgs, world: World, twin: World) -> Self {
        let start = world.scenario.start;
        Self {
            end: start
                .checked_add(world.scenario.duration.0)
                .unwrap_or(Timestamp::MAX),
            speed: args.speed.0,
            every: args.every,
            began: Instant::now(),
            world,
            twin,
        }
    }

    /// Lets both worlds go on to what our clock says; says whether the scenario is over.
    fn run_on(&mut self) -> bool {
        let target = match self.speed {
            // As fast as it goes, and still a line for every so much time.
            None => {
                let next = self.world.now.checked_add(self.every.0);
                next.unwrap_or(self.end).min(self.end)
            }
            Some(speed) => {
                let passed = SignedDuration::try_from_secs_f64(self.began.elapsed().as_secs_f64() * speed);
                let start = self.world.scenario.start;
                let target = passed.ok().and_then(|passed| start.checked_add(passed).ok());
                target.unwrap_or(self.end).min(self.end)
            }
        };
        let deadline = Instant::now() + TURN;
        while self.world.next().min(self.twin.next()) <= target {
            if self.world.next() <= self.twin.next() {
                self.world.step();
            } else {
                self.twin.step();
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
        self.world.advance(target);
        self.twin.advance(target);
        target >= self.end
    }

    /// Applies manifests to both worlds.
    fn apply(&mut self, text: &str) -> Result<String, String> {
        let manifests = manifests(text)?;
        // Nothing is applied when something would be refused.
        let refused = refused(&manifests)?;
        if !refused.is_empty() {
            return Err(refused);
        }
        let mut lines = String::new();
        for manifest in &manifests {
            let applied = self
                .world
                .apply(manifest)
                .map_err(|error| format!("{lines}{error}"))?;
            let _ = self.twin.apply(manifest);
            let _ = writeln!(lines, "{} {}", applied.object, applied.outcome);
        }
        Ok(lines)
    }

    fn finish(mut self) -> Summary {
        self.twin.advance(self.world.now);
        self.world.summary(Some(&self.twin))
    }
}

/// What the API server of a standalone cluster would refuse, a line for each reason.
fn refused(manifests: &[Value]) -> Result<String, String> {
    let admission = Admission::new(veneer_api::Mode::Standalone, None).map_err(|error| error.to_string())?;
    let mut lines = String::new();
    for manifest in manifests {
        let text = |pointer: &str| {
            manifest
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        for refusal in admission.check(manifest).unwrap_or_default() {
            let _ = writeln!(lines, "{kind} {name}: {}: {}", refusal.field, refusal.sentence());
        }
    }
    Ok(lines)
}

/// The documents of a text, lists taken apart.
pub(crate) fn manifests(text: &str) -> Result<Vec<Value>, String> {
    let mut manifests = Vec::new();
    let budget = AliasBudget::for_input(text.len());
    for document in documents::split(text) {
        let value: Value = budget.read(document.text).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            let line = usize::try_from(line).unwrap_or(1).max(1) + document.lines_before;
            format!("line {line}: {}", yaml::describe(&error))
        })?;
        match value.get("items").and_then(Value::as_array) {
            Some(items) => manifests.extend(items.iter().cloned()),
            None => manifests.push(value),
        }
    }
    if manifests.is_empty() {
        return Err("there is no object in what was sent".to_owned());
    }
    Ok(manifests)
}

/// Whether standard output shows pictures.
fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Refuses what makes no sense together.
pub(super) fn check(args: &RunArgs) -> Result<()> {
    if args.once || args.dry_run {
        bail!(
            "--embedded runs live; leave out --once and --dry-run, or use `veneer simulate --scenario FILE`"
        );
    }
    Ok(())
}

//! The live picture on a terminal, the lines where there is none, and the summary at the end.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::SocketAddr;

use k8s_openapi::jiff::Timestamp;
use veneer_world::Span;
use veneer_world::picture::{Picture, Summary};

use super::{Stage, is_terminal};

/// Enters and leaves the terminal's other screen, so that the picture leaves no trace.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Where pictures go.
pub(super) struct Screen {
    addresses: (Option<SocketAddr>, Option<SocketAddr>),
    every: Span,
    is_terminal: bool,
    has_colour: bool,
    /// When the last line was written.
    last: Option<Timestamp>,
}

impl Screen {
    pub(super) fn new(addresses: (Option<SocketAddr>, Option<SocketAddr>), every: Span) -> Self {
        let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            addresses,
            every,
            is_terminal: is_terminal(),
            has_colour,
            last: None,
        }
    }

    pub(super) fn draw(&mut self, stage: &mut Stage) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.is_terminal {
            if self.last.is_none() {
                writeln!(out, "{}", header(stage, self.addresses))?;
            }
            let due = self
                .last
                .is_none_or(|last| stage.world.now.duration_since(last) >= self.every.0);
            if due {
                self.last = Some(stage.world.now);
                writeln!(out, "{}", line(stage))?;
            }
            return out.flush();
        }
        let (width, height) = terminal_size::terminal_size().map_or((100, 40), |(width, height)| {
            (usize::from(width.0), usize::from(height.0))
        });
        let text = picture(stage, self.addresses, width, height);
        let mut frame = String::from(if self.last.is_none() { ENTER } else { "" });
        self.last = Some(stage.world.now);
        frame.push_str(HOME);
        for line in text.lines().take(height.saturating_sub(1)) {
            let cut: String = line.chars().take(width).collect();
            let is_title = !line.starts_with(' ') && !line.is_empty();
            if is_title && self.has_colour {
                let _ = write!(frame, "\x1b[1m{cut}\x1b[0m{CLEAR_LINE}\r\n");
            } else {
                let _ = write!(frame, "{cut}{CLEAR_LINE}\r\n");
            }
        }
        frame.push_str(CLEAR_BELOW);
        out.write_all(frame.as_bytes())?;
        out.flush()
    }

    /// Gives the terminal back.
    pub(super) fn leave(&self) -> io::Result<()> {
        if self.is_terminal && self.last.is_some() {
            let mut out = io::stdout().lock();
            out.write_all(LEAVE.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }
}

fn header(stage: &Stage, (observers, probes): (Option<SocketAddr>, Option<SocketAddr>)) -> String {
    let world = &stage.world;
    let mut text = format!(
        "Veneer, embedded: scenario {} of {}, {} simulated",
        world.scenario.name, world.scenario.region, world.scenario.duration
    );
    match stage.speed {
        Some(speed) => {
            let _ = write!(text, " at {speed}x");
        }
        None => text.push_str(" as fast as it goes"),
    }
    text.push_str(" (Ctrl-C ends with a summary)");
    if let Some(address) = observers {
        let _ = write!(
            text,
            "\n  http://{address}/metrics, /debug/decisions; `veneer apply -f FILE --server http://{address}`"
        );
    }
    if let Some(address) = probes {
        let _ = write!(text, "\n  http://{address}/healthz, /readyz");
    }
    text
}

/// The time as people read it.
fn clock(now: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let day = usize::try_from((now.as_second().div_euclid(86_400) + 3).rem_euclid(7)).unwrap_or_default();
    let second = now.as_second().rem_euclid(86_400);
    let day = DAYS.get(day).copied().unwrap_or_default();
    format!("{day} {:02}:{:02}", second / 3600, second / 60 % 60)
}

/// One moment in one line.
fn line(stage: &mut Stage) -> String {
    let picture = stage.world.picture();
    let (paid, without) = (stage.world.bill().paid, stage.twin.bill().paid);
    let rate = stage.twin.rates().bill.paid;
    format!(
        "{}  {:3} nodes  {:4} pods  {:3} pending  {} overlays  ${:.2}/h list  ${:.2}/h paid  ${rate:.2}/h without steering  ${:.2} saved so far",
        clock(picture.now),
        picture.pools.iter().map(|pool| pool.nodes).sum::<usize>(),
        picture.pods,
        picture.pending,
        picture.overlays.len(),
        picture.rate.list,
        picture.rate.paid,
        without - paid,
    )
}

/// A bar of ten parts.
fn bar(share: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to 10"
    )]
    let full = (share.clamp(0.0, 1.0) * 10.0).round() as usize;
    format!(
        "[{}{}]",
        "#".repeat(full),
        ".".repeat(10_usize.saturating_sub(full))
    )
}

fn picture(
    stage: &mut Stage,
    addresses: (Option<SocketAddr>, Option<SocketAddr>),
    width: usize,
    height: usize,
) -> String {
    let picture = stage.world.picture();
    let so_far = stage.world.bill();
    let without = stage.twin.bill();
    let twin_rate = stage.twin.rates().bill;
    let latency = stage.world.statistics.latency();
    let mut text = String::new();
    let mut put = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    put(header(stage, addresses));
    put(String::new());
    put(format!(
        "NOW {}   {} nodes ({} booting, {} spare, {} stopped)   {} pods, {} pending   a pod waits {} s (p50), {} s (p99)",
        clock(picture.now),
        picture.pools.iter().map(|pool| pool.nodes).sum::<usize>(),
        picture.booting,
        picture.spares,
        picture.stopped,
        picture.pods,
        picture.pending,
        latency.p50,
        latency.p99,
    ));
    put(String::new());
    money(&mut put, &picture, &twin_rate, &so_far, &without);
    put("COMMITMENTS (paid for, used or not)".to_owned());
    for row in &picture.commitments {
        let share = if row.owned > 0.0 {
            row.used / row.owned
        } else {
            0.0
        };
        put(format!(
            "  {:<16} {} {:>6.2} of {:>5.2} {:<9}  steering {}",
            row.name,
            bar(share),
            row.used,
            row.owned,
            row.unit,
            row.steering
        ));
    }
    put("OVERLAYS (what changes the prices that launches see)".to_owned());
    for row in &picture.overlays {
        put(format!("  {:<36} {:>7}  {}", row.name, row.effect, row.why));
    }
    if picture.overlays.is_empty() {
        put("  none".to_owned());
    }
    put("POOLS".to_owned());
    for pool in &picture.pools {
        let kinds = pool.kinds.iter().map(|(kind, count)| format!("{count} {kind}"));
        put(format!(
            "  {:<10} {:>3} nodes   {}",
            pool.name,
            pool.nodes,
            kinds.collect::<Vec<_>>().join(", ")
        ));
    }
    put("INSTANCES".to_owned());
    for row in picture.machines.iter().take(6) {
        put(format!(
            "  {:>3} {:<12} {:<6} {:<10} ${:.2}/h",
            row.count, row.instance_type, row.arch, row.capacity_type, row.list
        ));
    }
    if picture.machines.len() > 6 {
        put(format!("  and {} more kinds", picture.machines.len() - 6));
    }
    put("LATELY".to_owned());
    let used = text.lines().count();
    let room = height.saturating_sub(used + 2).clamp(3, 30);
    let lines: Vec<String> = stage
        .world
        .lines()
        .rev()
        .take(room)
        .map(|(at, line)| format!("  {} {line}", clock(*at)))
        .collect();
    for line in lines {
        let cut: String = line.chars().take(width).collect();
        text.push_str(&cut);
        text.push('\n');
    }
    text
}

fn money(
    put: &mut impl FnMut(String),
    picture: &Picture,
    twin: &veneer_world::billing::Bill,
    so_far: &veneer_world::billing::Bill,
    without: &veneer_world::billing::Bill,
) {
    put("MONEY            per hour now      so far".to_owned());
    let row = |name: &str, rate: f64, total: f64| format!("  {name:<16} ${rate:>8.2}   ${total:>10.2}");
    put(row("list prices", picture.rate.list, so_far.list));
    put(row("paid", picture.rate.paid, so_far.paid));
    put(row("without steering", twin.paid, without.paid));
    let rate = twin.paid - picture.rate.paid;
    put(format!(
        "{}   <- the same load, never steered",
        row("SAVED", rate, without.paid - so_far.paid)
    ));
    put(format!(
        "  of what is paid: ${:.2}/h on demand, ${:.2}/h spot, ${:.2}/h commitments (${:.2}/h of them unused)",
        picture.rate.on_demand, picture.rate.spot, picture.rate.commitments, picture.rate.unused
    ));
    put(String::new());
}

/// What a run came to, for people.
pub(crate) fn summary(sum: &Summary) -> String {
    let mut text = String::new();
    let joined = |counts: &std::collections::BTreeMap<String, u64>| {
        let counts = counts
            .iter()
            .map(|(what, count)| format!("{count} {}", what.replace('_', " ")));
        let counts: Vec<String> = counts.collect();
        if counts.is_empty() {
            "none".to_owned()
        } else {
            counts.join(", ")
        }
    };
    let rows = [
        (
            "nodes",
            format!(
                "{} now, {} at most; launched {}",
                sum.nodes,
                sum.peak_nodes,
                joined(&sum.launched)
            ),
        ),
        ("removed", joined(&sum.removed)),
        (
            "pods",
            format!(
                "{} now, {} pending; {} placed, {} moved",
                sum.pods, sum.pending, sum.latency.pods, sum.evictions
            ),
        ),
        (
            "pods waited",
            format!(
                "p50 {} s, p95 {} s, p99 {} s",
                sum.latency.p50, sum.latency.p95, sum.latency.p99
            ),
        ),
        (
            "trouble",
            format!(
                "{} spot interruptions, {} launches without capacity",
                sum.interruptions, sum.insufficient_capacity
            ),
        ),
        ("overlays", joined(&sum.overlay_writes)),
        ("spares used", sum.spares_used.to_string()),
        ("$ list", format!("{:>10.2}", sum.cost.list)),
        (
            "$ paid",
            format!(
                "{:>10.2}  ({:.2} of it for commitments that nothing used)",
                sum.cost.paid, sum.cost.unused
            ),
        ),
    ];
    let _ = writeln!(
        text,
        "{} (seed {}), {} simulated",
        sum.scenario, sum.seed, sum.simulated
    );
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<12} {value}");
    }
    if let (Some(without), Some(saved)) = (sum.without_steering, sum.saved) {
        let share = if without > 0.0 {
            100.0 * saved / without
        } else {
            0.0
        };
        let _ = writeln!(
            text,
            "  {:<12} {saved:>10.2}  ({share:.1} % of {without:.2}, what the same load costs without steering)",
            "$ saved"
        );
    }
    text
}

//! What was seen of each side, which of two outcomes is better, and tables of both.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::measure::median;
use crate::sides::{Rates, Side};

/// One side of one case, as a line of JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "names of measurements, with their units")]
pub struct Outcome {
    pub seed: u64,
    pub rates: Rates,
    pub side: Side,
    pub features: Vec<String>,
    /// How many pods shall run at the end.
    pub pods: usize,
    /// How many of each workload run at the end.
    pub running: BTreeMap<String, usize>,
    /// How many of each workload do not.
    pub pending: BTreeMap<String, usize>,
    pub daemon_pods_pending: usize,
    /// What kube-scheduler says about them.
    pub pending_reasons: BTreeMap<String, usize>,
    /// From the first step until the last of the pods runs; none if not all of them run.
    pub all_running_seconds: Option<f64>,
    /// From the first step until the last pod began to run, also one that was evicted later.
    pub last_running_seconds: Option<f64>,
    pub mean_wait_seconds: f64,
    pub longest_wait_seconds: f64,
    /// Whether all was quiet at the end; otherwise the deadline came first.
    pub settled: bool,
    /// How many CPUs a NodePool had at any time beyond its limit. Nodes of Karpenter's KWOK provider have as their capacity what
    /// was requested of them, and Karpenter counts that, so that its NodePools exceed their limits.
    pub cpus_over_limit: f64,
    pub nodes: usize,
    pub list_dollars_per_hour: f64,
    pub evictions: usize,
    pub preemptions: usize,
    pub processor_seconds: f64,
    pub peak_memory_mib: f64,
    /// Requests of the provisioner to the API server; a watch is one.
    pub requests: usize,
    pub writes: usize,
}

impl Outcome {
    fn pending_total(&self) -> usize {
        self.pending.values().sum()
    }

    fn seconds(&self) -> f64 {
        let seconds = self.all_running_seconds.or(self.last_running_seconds);
        seconds.unwrap_or_default()
    }
}

/// What our outcome is beside Karpenter's.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Verdict {
    /// A pod waits with us that runs with Karpenter, or we exceed a limit.
    Fail,
    /// A pod waits with us that runs with Karpenter, which exceeds a limit.
    Limited,
    /// Neither side runs everything, and other pods wait with us.
    Different,
    /// More than 5 % and two seconds later, and more than 5 % dearer.
    LaterAndDearer,
    /// More than 5 % and two seconds later.
    Later,
    /// More than 5 % dearer.
    Dearer,
    /// None of these.
    Good,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Verdict::Fail => "FAIL",
            Verdict::Limited => "limited",
            Verdict::Different => "different",
            Verdict::LaterAndDearer => "later, dearer",
            Verdict::Later => "later",
            Verdict::Dearer => "dearer",
            Verdict::Good => "good",
        })
    }
}

/// Compares the two sides of one case.
#[must_use]
pub fn judge(theirs: &Outcome, ours: &Outcome) -> Verdict {
    if ours.cpus_over_limit > 0.0 {
        return Verdict::Fail;
    }
    if ours.pending_total() > theirs.pending_total() {
        let is_limited = theirs.cpus_over_limit > 0.0;
        return if is_limited {
            Verdict::Limited
        } else {
            Verdict::Fail
        };
    }
    let fewer = ours.pending.iter().any(|(app, pending)| {
        let of_theirs = theirs.pending.get(app).copied().unwrap_or_default();
        *pending > of_theirs
    });
    if fewer {
        return Verdict::Different;
    }
    let late = ours.seconds() - theirs.seconds();
    let is_later = late > 2.0 && late > 0.05 * theirs.seconds();
    let is_dearer = ours.list_dollars_per_hour > 1.05 * theirs.list_dollars_per_hour + 1e-9;
    match (is_later, is_dearer) {
        (true, true) => Verdict::LaterAndDearer,
        (true, false) => Verdict::Later,
        (false, true) => Verdict::Dearer,
        (false, false) => Verdict::Good,
    }
}

/// The outcomes in a file; none if there is no file.
pub fn read(path: &Path) -> Result<Vec<Outcome>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    // A run that was killed may have left half a line.
    Ok(text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

/// Adds an outcome to a file.
pub fn append(path: &Path, outcome: &Outcome) -> Result<()> {
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    // One write, so that a killed run leaves a whole line or none.
    let line = format!("{}\n", serde_json::to_string(outcome)?);
    file.write_all(line.as_bytes())?;
    Ok(())
}

/// The cases of which both sides are known, by rates and seed.
fn pairs(outcomes: &[Outcome]) -> BTreeMap<(Rates, u64), (&Outcome, &Outcome)> {
    let of = |side: Side| {
        let all = outcomes.iter().filter(move |outcome| outcome.side == side);
        all.map(|outcome| ((outcome.rates, outcome.seed), outcome))
            .collect::<BTreeMap<_, _>>()
    };
    let (theirs, ours) = (of(Side::Karpenter), of(Side::Veneer));
    theirs
        .into_iter()
        .filter_map(|(key, theirs)| Some((key, (theirs, *ours.get(&key)?))))
        .collect()
}

/// Prints one line about a case.
pub fn print_case(out: &mut impl Write, theirs: &Outcome, ours: &Outcome) -> Result<()> {
    let verdict = judge(theirs, ours);
    writeln!(
        out,
        "{:>5} {:<7} {verdict:<13} {:>3} of {:<3} {:>3} {:>6.1} {:>6.1} {:>4} {:>3} {:>7.3} {:>7.3} {:>3} {:>3}  {}",
        ours.seed,
        ours.rates.to_string(),
        ours.pods - ours.pending_total().min(ours.pods),
        ours.pods,
        theirs.pods - theirs.pending_total().min(theirs.pods),
        ours.seconds(),
        theirs.seconds(),
        ours.nodes,
        theirs.nodes,
        ours.list_dollars_per_hour,
        theirs.list_dollars_per_hour,
        ours.evictions,
        theirs.evictions,
        ours.features.join(" ")
    )?;
    if verdict <= Verdict::Different {
        writeln!(
            out,
            "      pending with us {:?}, with Karpenter {:?}; CPUs over a limit with us {}, with Karpenter {}",
            ours.pending, theirs.pending, ours.cpus_over_limit, theirs.cpus_over_limit
        )?;
        for (reason, pods) in &ours.pending_reasons {
            writeln!(out, "      {pods} pods: {reason}")?;
        }
    }
    Ok(())
}

/// The columns of [`print_case`], ours before theirs.
pub const HEADER: &str =
    " seed rates   verdict       pods run       seconds   nodes     $/h       evicted  features";

/// Prints what all cases come to of which both sides are known, after those whose verdict is `least` or worse.
pub fn print_summary(out: &mut impl Write, outcomes: &[Outcome], least: Verdict) -> Result<()> {
    let pairs = pairs(outcomes);
    writeln!(out, "\n{HEADER}")?;
    for (theirs, ours) in pairs.values() {
        if judge(theirs, ours) <= least {
            print_case(out, theirs, ours)?;
        }
    }
    for rates in [Rates::Default, Rates::Raised] {
        let of_rates: Vec<_> = pairs
            .iter()
            .filter(|((other, _), _)| *other == rates)
            .map(|(_, pair)| *pair)
            .collect();
        if of_rates.is_empty() {
            continue;
        }
        let mut verdicts: BTreeMap<Verdict, usize> = BTreeMap::new();
        for (theirs, ours) in &of_rates {
            *verdicts.entry(judge(theirs, ours)).or_default() += 1;
        }
        let verdicts: Vec<String> = verdicts
            .iter()
            .map(|(verdict, count)| format!("{count} {verdict}"))
            .collect();
        writeln!(
            out,
            "\n{} cases at {rates} rates: {}\n\n | Karpenter | ours | median of ours / theirs\n---|---|---|---",
            of_rates.len(),
            verdicts.join(", ")
        )?;
        type Number = fn(&Outcome) -> f64;
        let rows: [(&str, Number); 12] = [
            ("pods that do not run", |one| one.pending_total() as f64),
            ("DaemonSet pods that do not run", |one| {
                one.daemon_pods_pending as f64
            }),
            ("seconds until all pods run", Outcome::seconds),
            ("seconds that a pod waits on average", |one| one.mean_wait_seconds),
            ("nodes", |one| one.nodes as f64),
            ("list price, $/h", |one| one.list_dollars_per_hour),
            ("evictions", |one| one.evictions as f64),
            ("preemptions", |one| one.preemptions as f64),
            ("processor time, s", |one| one.processor_seconds),
            ("peak memory, MiB", |one| one.peak_memory_mib),
            ("API requests", |one| one.requests as f64),
            ("of these writes", |one| one.writes as f64),
        ];
        for (what, of) in rows {
            let ratios = of_rates.iter().map(|(theirs, ours)| of(ours) / of(theirs));
            let ratio = median(ratios.filter(|ratio| ratio.is_finite()).collect());
            writeln!(
                out,
                "{what}, sum | {:.1} | {:.1} | {}",
                of_rates.iter().map(|(theirs, _)| of(theirs)).sum::<f64>(),
                of_rates.iter().map(|(_, ours)| of(ours)).sum::<f64>(),
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"))
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(pending: &[(&str, usize)], seconds: f64, price: f64) -> Outcome {
        Outcome {
            seed: 1,
            rates: Rates::Default,
            side: Side::Veneer,
            features: Vec::new(),
            pods: 10,
            running: BTreeMap::new(),
            pending: pending
                .iter()
                .map(|(app, pods)| ((*app).to_owned(), *pods))
                .collect(),
            daemon_pods_pending: 0,
            pending_reasons: BTreeMap::new(),
            all_running_seconds: Some(seconds),
            last_running_seconds: Some(seconds),
            mean_wait_seconds: 0.0,
            longest_wait_seconds: 0.0,
            settled: true,
            cpus_over_limit: 0.0,
            nodes: 1,
            list_dollars_per_hour: price,
            evictions: 0,
            preemptions: 0,
            processor_seconds: 0.0,
            peak_memory_mib: 0.0,
            requests: 0,
            writes: 0,
        }
    }

    #[test]
    fn a_verdict_says_what_is_worse_with_us() {
        let theirs = outcome(&[], 10.0, 1.0);
        for (ours, verdict) in [
            (outcome(&[], 11.9, 1.04), Verdict::Good),
            (outcome(&[], 12.1, 1.0), Verdict::Later),
            (outcome(&[], 5.0, 1.06), Verdict::Dearer),
            (outcome(&[], 20.0, 2.0), Verdict::LaterAndDearer),
            (outcome(&[("a", 1)], 5.0, 0.5), Verdict::Fail),
        ] {
            assert_eq!(judge(&theirs, &ours), verdict, "{ours:?}");
        }
        let mut greedy = theirs.clone();
        greedy.cpus_over_limit = 8.0;
        assert_eq!(judge(&theirs, &greedy), Verdict::Fail);
        assert_eq!(judge(&greedy, &outcome(&[("a", 1)], 5.0, 0.5)), Verdict::Limited);
        // Of a long run two seconds are little.
        assert_eq!(
            judge(&outcome(&[], 100.0, 1.0), &outcome(&[], 104.0, 1.0)),
            Verdict::Good
        );
        let limited = outcome(&[("a", 2)], 10.0, 1.0);
        assert_eq!(judge(&limited, &outcome(&[("a", 2)], 10.0, 1.0)), Verdict::Good);
        assert_eq!(
            judge(&limited, &outcome(&[("b", 2)], 10.0, 1.0)),
            Verdict::Different
        );
        assert_eq!(judge(&limited, &outcome(&[("b", 3)], 10.0, 1.0)), Verdict::Fail);
    }
}

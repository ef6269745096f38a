//! How rude the servers are, and when. All of it follows from the seed.

use std::time::Duration;

use veneer_world::rng::Rng;

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rude {
    /// 403.
    Forbidden,
    /// 429 with Retry-After, or EC2's way to say so.
    Throttled,
    /// 503.
    Unavailable,
    /// The connection is cut before the request arrives.
    Cut,
    /// The connection is cut after the request was carried out.
    LostAnswer,
    /// The answer ends in the middle.
    HalfAnswer,
    /// It takes seconds.
    Slow,
    /// It is carried out at once, and the answer takes seconds.
    LateAnswer,
    /// A watch stays open and brings nothing.
    Silent,
}

/// A time in which requests for one kind of object, or EC2, fare badly.
#[derive(Clone, Debug)]
pub(super) struct Window {
    from: Duration,
    until: Duration,
    plural: &'static str,
    /// Whom it is about, if not everybody.
    replica: Option<usize>,
    rude: Rude,
}

impl Window {
    fn is_open(&self, plural: &str, replica: usize, at: Duration) -> bool {
        let is_meant = self.replica.is_none_or(|meant| meant == replica);
        (self.from..self.until).contains(&at) && self.plural == plural && is_meant
    }
}

/// EC2 among the kinds.
pub(super) const EC2: &str = "ec2";

/// Pods that come to nodes while the watch of pods is silent.
#[derive(Clone, Debug)]
pub(super) struct Unseen {
    /// When pods leave, as everybody sees.
    pub(super) begins: Duration,
    /// When the watch falls silent.
    pub(super) silent_from: Duration,
    /// How many of each workload there are then.
    pub(super) replicas: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Faults {
    pub(super) on: bool,
    rate: f64,
    windows: Vec<Window>,
    /// Kinds that the role of the controllers does not let them see, for good.
    forbidden: &'static [&'static str],
    pub(super) unseen: Option<Unseen>,
    /// Until when the API server restarts.
    pub(super) down_until: Duration,
}

impl Faults {
    pub(super) fn of(seed: u64, lasts: Duration) -> Self {
        let mut rng = Rng::of(seed, &["faults"]);
        let plurals = [
            "pods",
            "pods",
            "nodes",
            "nodeclaims",
            "nodeclaims",
            "nodepools",
            "ec2nodeclasses",
            "leases",
            EC2,
            EC2,
        ];
        let kinds = [
            Rude::Forbidden,
            Rude::Forbidden,
            Rude::Throttled,
            Rude::Unavailable,
            Rude::Cut,
            Rude::LostAnswer,
            Rude::HalfAnswer,
            Rude::Slow,
            Rude::Silent,
            Rude::Silent,
        ];
        let pick = |rng: &mut Rng, count: usize| usize::try_from(rng.below(count as u64)).unwrap_or(0);
        let windows = (0..3 + rng.below(5)).filter_map(|_| {
            let from = Duration::from_secs(rng.below(lasts.as_secs()));
            let until = from + Duration::from_secs(5 + rng.below(150));
            let plural = *plurals.get(pick(&mut rng, plurals.len()))?;
            let rude = *kinds.get(pick(&mut rng, kinds.len()))?;
            Some(Window {
                from,
                until: until.min(lasts),
                plural,
                replica: rng.chance(0.4).then(|| usize::from(rng.chance(0.5))),
                rude,
            })
        });
        let mut windows: Vec<Window> = windows.collect();
        // The worst that can happen to a Lease: late answers, then none, for one replica alone.
        for replica in 0..2 {
            if rng.chance(0.3) {
                let from = Duration::from_secs(rng.below(lasts.as_secs()));
                let cut = from + Duration::from_secs(20 + rng.below(20));
                let parts = [
                    (Rude::LateAnswer, from, cut),
                    (Rude::Cut, cut, cut + Duration::from_secs(40)),
                ];
                windows.extend(parts.map(|(rude, from, until)| Window {
                    from,
                    until: until.min(lasts),
                    plural: "leases",
                    replica: Some(replica),
                    rude,
                }));
            }
        }
        // The worst that can happen to a node that is empty: it is not, and the watch that brings nothing is not dead.
        let unseen = rng.chance(0.4).then(|| {
            let begins = Duration::from_secs(60 + rng.below(lasts.as_secs().saturating_sub(150)));
            Unseen {
                begins,
                silent_from: begins + Duration::from_secs(4 + rng.below(20)),
                replicas: 3 + pick(&mut rng, 6),
            }
        });
        windows.extend(unseen.iter().map(|scene| Window {
            from: scene.silent_from,
            until: (scene.silent_from + Duration::from_secs(100)).min(lasts),
            plural: "pods",
            replica: None,
            rude: Rude::Silent,
        }));
        // An older role knows nothing of what only shapes spares.
        let forbidden: &[&str] = if Rng::of(seed, &["role"]).chance(0.3) {
            &["statefulsets", "jobs", "podtemplates"]
        } else {
            &[]
        };
        Self {
            on: true,
            forbidden,
            unseen,
            down_until: Duration::ZERO,
            windows,
            rate: [0.0, 0.01, 0.04].get(pick(&mut rng, 3)).copied().unwrap_or(0.0),
        }
    }

    /// What goes wrong with a request now, if anything does.
    pub(super) fn request(&self, plural: &str, replica: usize, at: Duration, rng: &mut Rng) -> Option<Rude> {
        if at < self.down_until && plural != EC2 {
            return Some(Rude::Cut);
        }
        if self.forbidden.contains(&plural) {
            return Some(Rude::Forbidden);
        }
        if !self.on {
            return None;
        }
        let window = self
            .windows
            .iter()
            .find(|window| window.is_open(plural, replica, at) && window.rude != Rude::Silent);
        if let Some(window) = window {
            return Some(window.rude);
        }
        if !rng.chance(self.rate) {
            return None;
        }
        let kinds = [
            Rude::Throttled,
            Rude::Unavailable,
            Rude::Cut,
            Rude::LostAnswer,
            Rude::HalfAnswer,
            Rude::Slow,
            Rude::LateAnswer,
        ];
        usize::try_from(rng.below(7))
            .ok()
            .and_then(|at| kinds.get(at))
            .copied()
    }

    /// Whether the open watches of a kind bring nothing now.
    pub(super) fn is_silent(&self, plural: &str, replica: usize, at: Duration) -> bool {
        let mut windows = self.windows.iter();
        self.on && windows.any(|window| window.is_open(plural, replica, at) && window.rude == Rude::Silent)
    }

    /// Whether the open watches of a kind are ended now.
    pub(super) fn is_cut(&self, plural: &str, replica: usize, at: Duration) -> bool {
        let mut windows = self.windows.iter();
        let is_cut = windows.any(|window| {
            window.is_open(plural, replica, at) && matches!(window.rude, Rude::Forbidden | Rude::Cut)
        });
        at < self.down_until || self.on && is_cut
    }

    /// How long something takes on the way.
    pub(super) fn latency(&self, rng: &mut Rng) -> Duration {
        if self.on && rng.chance(0.02) {
            Duration::from_millis(100 + rng.below(4000))
        } else {
            Duration::from_millis(1 + rng.below(15))
        }
    }
}

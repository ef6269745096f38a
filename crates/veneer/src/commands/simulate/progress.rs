//! One line about what is going on, on a terminal, for runs that take longer than a moment.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shorter runs show nothing.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(200);

#[derive(Default)]
struct State {
    stage: Mutex<&'static str>,
    steps: AtomicUsize,
    detail: Mutex<String>,
}

/// Shows the line until it is dropped, and then wipes it.
pub(crate) struct Progress {
    state: Arc<State>,
    shown: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    pub(crate) fn start(stage: &'static str) -> Self {
        let state = Arc::new(State::default());
        let progress = Self {
            shown: io::stderr().is_terminal().then(|| {
                let (stop, stopped) = mpsc::channel();
                let state = Arc::clone(&state);
                (stop, std::thread::spawn(move || show(&state, &stopped)))
            }),
            state,
        };
        progress.stage(stage);
        progress
    }

    /// Something else is being done now.
    pub(crate) fn stage(&self, stage: &'static str) {
        *self.state.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        self.state.steps.store(0, Ordering::Relaxed);
        self.detail(String::new());
    }

    /// How far the stage is, in words.
    pub(crate) fn detail(&self, detail: String) {
        *self.state.detail.lock().unwrap_or_else(PoisonError::into_inner) = detail;
    }

    /// One more step of the stage is done.
    pub(crate) fn step(&self) {
        self.state.steps.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.shown.take() {
            drop(stop);
            // A thread that panicked has nothing to wipe.
            let _ = thread.join();
        }
    }
}

fn show(state: &State, stopped: &mpsc::Receiver<()>) {
    let started = Instant::now();
    let mut wait = PATIENCE;
    let mut is_shown = false;
    // Writing can only fail when nobody looks any more.
    while stopped.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
        let stage = *state.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let detail = state
            .detail
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let steps = match state.steps.load(Ordering::Relaxed) {
            0 if !detail.is_empty() => format!(", {detail}"),
            0 => String::new(),
            steps => format!(", {steps} steps"),
        };
        let _ = write!(
            io::stderr().lock(),
            "\r\x1b[K{stage}… {} s{steps}",
            started.elapsed().as_secs()
        );
        is_shown = true;
        wait = BETWEEN;
    }
    if is_shown {
        let _ = write!(io::stderr().lock(), "\r\x1b[K");
    }
}

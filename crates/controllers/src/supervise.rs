//! Tasks that panic: logged, counted, and begun again or given back as an error, never silently gone.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::sleep;
use tracing::error;
use veneer_engine::backoff::Backoff;

use crate::standalone::Meters;

/// The pauses before a task that panicked begins again.
const PAUSES: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no reason given".to_owned())
}

/// Runs a task to its end; a panic in it is counted and becomes an error.
pub(crate) async fn caught<T>(
    task: &str,
    meters: &Meters,
    work: impl Future<Output = T>,
) -> Result<T, String> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => Ok(done),
        Err(panic) => {
            let why = words(&*panic);
            error!(task, panic = why, "a task panicked; please report this");
            meters.panicked(task.split(' ').next().unwrap_or_default());
            Err(format!("it panicked: {why}"))
        }
    }
}

/// Runs a task that never ends, and begins it again whenever it panics.
pub(crate) async fn restarted<F: Future<Output = ()>>(
    task: &str,
    meters: &Meters,
    mut begin: impl FnMut() -> F,
) {
    let mut pause = PAUSES.first();
    while caught(task, meters, begin()).await.is_err() {
        sleep(pause).await;
        pause = PAUSES.after(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_error_that_says_what_happened() {
        let meters = Meters::default();
        let found: Result<(), String> = caught("launch a", &meters, async { panic!("no more {}", 7) }).await;
        assert_eq!(found, Err("it panicked: no more 7".to_owned()));
        assert_eq!(caught("launch a", &meters, async { 3 }).await, Ok(3));
    }

    #[tokio::test]
    async fn a_task_that_panics_begins_again() {
        let mut begun = 0;
        let meters = Meters::default();
        restarted("watch Pod", &meters, || {
            begun += 1;
            let is_first = begun == 1;
            async move { assert!(!is_first, "the first time") }
        })
        .await;
        assert_eq!(begun, 2);
    }
}

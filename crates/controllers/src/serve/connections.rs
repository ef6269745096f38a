//! Connections that cost little, whoever opens them.
//!
//! Every listener has a bounded number of connections with small buffers; for a new one, the oldest that is not being
//! answered goes. A request has to arrive within some seconds. Where the process has no file descriptor left, the oldest idle
//! connection of all listeners goes, so that callers of one port cannot silence another one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::warn;
use veneer_engine::backoff::Backoff;

use super::caller;

/// How many connections a listener has at most, where there are file descriptors enough.
const CONNECTIONS: usize = 64;
/// The share of the process' file descriptors that a listener may use.
const SHARE_OF_DESCRIPTORS: usize = 8;
/// The buffer of a connection; the head of a request has to fit.
const BUFFER: usize = 16 * 1024;
/// How many headers a request may have.
const HEADERS: usize = 64;
/// How long a connection may wait for the head of its next request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the rest of a request and its answer may take; a manifest is applied within a turn of the world.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection lives, however busy.
const LIFETIME: Duration = Duration::from_secs(600);
/// The pauses after a connection could not be accepted.
const PAUSES: Backoff = Backoff::doubling(Duration::from_millis(10), Duration::from_secs(1));

/// All connections of the process.
static POOL: LazyLock<Pool> = LazyLock::new(Pool::default);

/// Answers until it is dropped.
pub(super) async fn serve(listener: TcpListener, address: SocketAddr, router: Router) -> io::Result<()> {
    let most = most_connections(&std::fs::read_to_string("/proc/self/limits").unwrap_or_default());
    let mut pause = PAUSES.first();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                pause = PAUSES.first();
                POOL.admit(address, most, |id, busy| {
                    tokio::spawn(answer(id, busy, stream, router.clone())).abort_handle()
                });
            }
            // Whoever called has hung up.
            Err(error) if is_of_the_caller(&error) => {}
            Err(error) => {
                let closed = POOL.close_oldest(|_| true);
                if pause == PAUSES.first() {
                    warn!(%address, %error, closed, "cannot accept connections; trying again");
                }
                sleep(pause).await;
                pause = PAUSES.after(pause);
            }
        }
    }
}

fn is_of_the_caller(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// How many connections a listener may have, by the text of `/proc/self/limits`.
fn most_connections(limits: &str) -> usize {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    soft.map_or(CONNECTIONS, |soft| {
        CONNECTIONS.min(soft / SHARE_OF_DESCRIPTORS).max(1)
    })
}

/// Answers the requests of one connection.
async fn answer(id: Id, busy: Arc<AtomicUsize>, stream: TcpStream, router: Router) {
    let Ok(local) = stream.local_addr() else {
        return;
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let router = TowerToHyperService::new(router.clone());
        let busy = Busy::new(&busy);
        async move {
            let answer = answer_one(request, local, router).await;
            drop(busy);
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // A caller that breaks off or says nonsense is no fault of ours.
    drop(timeout(LIFETIME, connection).await);
    drop(id);
}

async fn answer_one(
    request: Request<Incoming>,
    local: SocketAddr,
    router: TowerToHyperService<Router>,
) -> Response {
    let said = |name: header::HeaderName| {
        // More than one of these is nothing that a client does; what cannot be read is no address either.
        let mut values = request.headers().get_all(name).iter();
        let first = values.next().map(|value| value.to_str().unwrap_or("?"));
        if values.next().is_some() { Some("?") } else { first }
    };
    // A request may name the server in its first line; then that counts.
    let host = request
        .uri()
        .authority()
        .map_or_else(|| said(header::HOST), |it| Some(it.as_str()));
    if let Some(why) = caller::refusal(request.uri().path(), host, said(header::ORIGIN), local) {
        return (StatusCode::FORBIDDEN, format!("{why}\n")).into_response();
    }
    match timeout(ANSWER_TIMEOUT, router.call(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(never)) => match never {},
        Err(_) => {
            let why = format!("not answered within {} s\n", ANSWER_TIMEOUT.as_secs());
            (StatusCode::REQUEST_TIMEOUT, why).into_response()
        }
    }
}

/// Says that a request is being answered, until it is dropped.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn new(busy: &Arc<AtomicUsize>) -> Self {
        busy.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(busy))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connections by age.
#[derive(Clone, Default)]
struct Pool(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Open>,
}

struct Open {
    listener: SocketAddr,
    /// How many requests of it are being answered.
    busy: Arc<AtomicUsize>,
    task: AbortHandle,
}

/// A connection's place in the pool, until it is dropped.
struct Id(u64, Pool);

impl Drop for Id {
    fn drop(&mut self) {
        self.1.table().open.remove(&self.0);
    }
}

impl Pool {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a connection, in the place of another one if there are `most` already; if all of those are busy, it is not
    /// started.
    fn admit(
        &self,
        listener: SocketAddr,
        most: usize,
        start: impl FnOnce(Id, Arc<AtomicUsize>) -> AbortHandle,
    ) -> bool {
        let count = self
            .table()
            .open
            .values()
            .filter(|open| open.listener == listener)
            .count();
        if count >= most && !self.close_oldest(|of| of == listener) {
            return false;
        }
        // The task cannot drop its place before this has put it there.
        let mut table = self.table();
        let id = table.next;
        table.next += 1;
        let busy = Arc::new(AtomicUsize::new(0));
        let task = start(Id(id, self.clone()), Arc::clone(&busy));
        table.open.insert(id, Open { listener, busy, task });
        true
    }

    /// Closes the oldest connection of some listeners that is not being answered.
    fn close_oldest(&self, of: impl Fn(SocketAddr) -> bool) -> bool {
        let mut table = self.table();
        let mut idle = table
            .open
            .iter()
            .filter(|(_, open)| of(open.listener) && open.busy.load(Ordering::Relaxed) == 0);
        let Some(oldest) = idle.next().map(|(id, _)| *id) else {
            return false;
        };
        let closed = table.open.remove(&oldest);
        drop(table);
        if let Some(open) = closed {
            open.task.abort();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_file_descriptors_allow_few_connections() {
        let limits = |soft: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            {soft:<21}1048576              files     \n"
            )
        };
        for (soft, most) in [
            ("64", 8),
            ("1024", 64),
            ("1048576", 64),
            ("4", 1),
            ("unlimited", 64),
        ] {
            assert_eq!(most_connections(&limits(soft)), most, "{soft}");
        }
        assert_eq!(most_connections(""), 64);
    }

    #[tokio::test]
    async fn a_new_connection_takes_the_place_of_the_oldest_idle_one_of_its_listener() {
        let pool = Pool::default();
        let here: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let there: SocketAddr = "127.0.0.1:2".parse().unwrap();
        let states: Arc<Mutex<Vec<Arc<AtomicUsize>>>> = Arc::default();
        let admit = |listener| {
            let states = Arc::clone(&states);
            pool.admit(listener, 2, move |id, busy| {
                states.lock().unwrap().push(busy);
                tokio::spawn(async move {
                    let _id = id;
                    std::future::pending::<()>().await;
                })
                .abort_handle()
            })
        };
        let open = || pool.table().open.keys().copied().collect::<Vec<_>>();
        assert!(admit(there) && admit(here) && admit(here));
        assert_eq!(open(), [0, 1, 2]);
        // The oldest of this listener is busy, so the next one goes.
        states.lock().unwrap()[1].store(1, Ordering::Relaxed);
        assert!(admit(here));
        assert_eq!(open(), [0, 1, 3]);
        // All are busy: the new one is turned away.
        states.lock().unwrap()[3].store(1, Ordering::Relaxed);
        assert!(!admit(here));
        assert_eq!(open(), [0, 1, 3]);
        // Without descriptors, any listener's may go.
        assert!(pool.close_oldest(|_| true));
        assert_eq!(open(), [1, 3]);
        assert!(!pool.close_oldest(|_| true));
    }
}

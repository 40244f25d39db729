//! Connections that are lent to one statement at a time.
//!
//! Statements are not pipelined: one that waits for another transaction's row lock would hold up all that come after it.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row};

use super::relogin::Relogin;
use super::statements::{Arg, Statement, Statements};
use super::url::Target;
use super::{connection, faults};
use crate::backend::Fault;
use crate::backend::kit::outage::Outage;
use crate::backend::kit::server_clock::ServerClock;
use crate::observe::metrics;
use crate::values::clock::{self, Moment};
use crate::values::error::StoreError;
use crate::values::refusal::ShutdownCause;
use crate::values::store::StoreKind;

/// For how long a statement that nobody waits for any more may go on before it is cancelled. Most end by themselves in much
/// less, and a new connection costs the server more than the rest of a statement.
const GRACE: Duration = Duration::from_millis(100);

/// For how long a statement that was cancelled may keep its connection.
const LONGEST_RETIREMENT: Duration = Duration::from_secs(5);

/// What a statement is for. Acquires leave some connections to the others: what is held has to be given back and kept
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Acquire,
    Other,
}

/// What a statement answered, and when it was sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    pub(super) sent_at: Moment,
}

/// Until when a statement has to be sent, and answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    pub(super) sent: Moment,
    pub(super) answered: Moment,
}

impl From<Moment> for Until {
    fn from(deadline: Moment) -> Until {
        Until {
            sent: deadline,
            answered: deadline,
        }
    }
}

/// So many connections at the most.
pub(super) struct Pool {
    target: Arc<Target>,
    statements: Arc<Statements>,
    clock: Arc<ServerClock>,
    handle: Handle,
    /// For opening a connection.
    timeout: Duration,
    /// Connections that are open and lent to nobody.
    idle: Mutex<Vec<Open>>,
    /// One for each connection that may be lent. Closed with the pool.
    places: Arc<Semaphore>,
    /// One for each that may be lent to an acquire.
    acquires: Arc<Semaphore>,
    outage: Mutex<Outage>,
    /// Whether the server was reached before.
    reached: AtomicBool,
    /// µs, an exponentially weighted average.
    round_trip: AtomicU64,
}

impl Pool {
    pub(super) fn new(
        target: &Arc<Target>,
        statements: &Arc<Statements>,
        clock: &Arc<ServerClock>,
        handle: &Handle,
        timeout: Duration,
        size: usize,
    ) -> Arc<Pool> {
        Arc::new(Pool {
            target: target.clone(),
            statements: statements.clone(),
            clock: clock.clone(),
            handle: handle.clone(),
            timeout,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(size)),
            acquires: Arc::new(Semaphore::new(size - (size / 4).max(1))),
            outage: Mutex::new(Outage::new("the connection to the lock store is")),
            reached: AtomicBool::new(false),
            round_trip: AtomicU64::new(0),
        })
    }

    /// Runs one statement, in a task of its own: a caller that is not polled keeps its connection from nobody. When the
    /// future is dropped, the statement is cancelled, or was never sent.
    pub(super) async fn call(
        self: &Arc<Pool>,
        purpose: Purpose,
        statement: &Arc<Statement>,
        args: Vec<Arg>,
        now: Moment,
        until: Until,
    ) -> Result<Answer, Fault> {
        let (pool, statement) = (self.clone(), statement.clone());
        let running = async move { pool.run(purpose, &statement, &args, now, until).await };
        let mut task = Aborted(self.handle.spawn(running));
        match (&mut task.0).await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::Closed(ShutdownCause::RuntimeEnded)),
        }
    }

    async fn run(
        self: Arc<Pool>,
        purpose: Purpose,
        statement: &Statement,
        args: &[Arg],
        now: Moment,
        until: Until,
    ) -> Result<Answer, Fault> {
        let mut lent = self.lend(purpose, now, until.sent).await?;
        let sent_at = lent.since;
        let typed: Vec<_> = args.iter().map(Arg::typed).collect();
        let asked = lent.client()?.query_typed(&statement.text, &typed);
        let answer = tokio::time::timeout(until.answered - sent_at, asked).await;
        metrics::called(statement.name, answer.is_ok());
        match answer {
            Ok(Ok(rows)) => {
                lent.is_good();
                self.took(sent_at.elapsed());
                Ok(Answer { rows, sent_at })
            }
            Ok(Err(error)) => {
                match faults::ends_the_connection(&error) {
                    true => lent.is_bad(),
                    false => lent.is_good(),
                }
                Err(faults::of_statement(&error))
            }
            Err(_) => Err(Fault::Unknown(StoreError::new(format!(
                "no answer within {:?}",
                sent_at.elapsed()
            )))),
        }
    }

    /// Opens a connection and checks its server, to keep it for later.
    pub(super) async fn open(self: &Arc<Pool>) -> Result<(), Fault> {
        let open = self.connect().await?;
        self.idle().push(open);
        Ok(())
    }

    /// What errors and logs call its server.
    pub(super) fn server(&self) -> &str {
        self.target.shown()
    }

    /// Where its connections live.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Keeps a connection for the next statement.
    fn keep(&self, open: Open) {
        // Looked at under the lock: `close` would miss what is pushed after it.
        let mut idle = self.idle();
        if !self.places.is_closed() && !open.is_replaced() {
            idle.push(open);
        }
    }

    /// The average time of a statement.
    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip.load(Ordering::Relaxed))
    }

    /// Ends all connections. Statements that are under way still have theirs.
    pub(super) fn close(&self) {
        self.places.close();
        self.acquires.close();
        self.idle().clear();
    }

    fn took(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let before = self.round_trip.load(Ordering::Relaxed);
        let average = match before {
            0 => time,
            before => before - before / 8 + time / 8,
        };
        self.round_trip.store(average.max(1), Ordering::Relaxed);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Open>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lend(
        self: &Arc<Pool>,
        purpose: Purpose,
        now: Moment,
        deadline: Moment,
    ) -> Result<Lent, Fault> {
        let waiting = async {
            let acquire = match purpose {
                Purpose::Acquire => Some(place(&self.acquires).await?),
                Purpose::Other => None,
            };
            Ok((acquire, place(&self.places).await?))
        };
        let places = match tokio::time::timeout(deadline - now, waiting).await {
            Ok(places) => places?,
            Err(_) => {
                return Err(Fault::NotDone(StoreError::new(
                    "all connections to the database were busy (`lock_pool`)",
                )));
            }
        };
        let ready = loop {
            match self.idle().pop() {
                Some(open) if open.client.is_closed() => {}
                ready => break ready,
            }
        };
        let client = match ready {
            Some(client) => client,
            None => match tokio::time::timeout(deadline - clock::now(), self.connect()).await {
                Ok(client) => client?,
                Err(_) => {
                    let fault = StoreError::new("no connection to the database in time");
                    return Err(Fault::NotDone(fault));
                }
            },
        };
        Ok(Lent {
            pool: self.clone(),
            client: Some(client),
            since: clock::now(),
            places: Some(places),
        })
    }

    /// Lends this connection from now on, and not the one that the closure marks.
    pub(super) fn replace(&self, open: Open, mark: impl FnOnce()) {
        let mut idle = self.idle();
        mark();
        idle.retain(|open| !open.is_replaced());
        if !self.places.is_closed() {
            idle.push(open);
        }
    }

    /// Connects. A failure is not logged.
    pub(super) async fn connect_once(self: &Arc<Pool>) -> Result<Open, Fault> {
        let (target, timeout) = (&self.target, self.timeout);
        let opening =
            connection::open(target, &self.statements, &self.clock, timeout, &self.handle);
        let (client, renew_after) = opening.await?;
        let again = self.outage().is_over(self.server());
        self.reached.store(true, Ordering::Relaxed);
        Ok(Open {
            client,
            relogin: renew_after.map(|after| Relogin::start(self, after)),
            _up: metrics::Connection::is_up(StoreKind::Postgres, again),
        })
    }

    async fn connect(self: &Arc<Pool>) -> Result<Open, Fault> {
        match self.connect_once().await {
            Ok(open) => Ok(open),
            Err(fault @ Fault::Closed(_)) => Err(fault),
            Err(fault) => {
                self.outage().is_on(self.server(), &fault);
                Err(match fault {
                    // A standby may be promoted, and a failover may lead to another server.
                    Fault::Impossible(why) if self.reached.load(Ordering::Relaxed) => {
                        Fault::NotDone(StoreError::new(why))
                    }
                    fault => fault,
                })
            }
        }
    }
}

async fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Fault> {
    let place = places.clone().acquire_owned().await;
    place.map_err(|_| Fault::Closed(ShutdownCause::Shutdown))
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("idle", &self.idle().len())
            .finish_non_exhaustive()
    }
}

/// A connection that is counted.
pub(super) struct Open {
    client: Client,
    /// Replaces it, if its login expires.
    relogin: Option<Relogin>,
    _up: metrics::Connection,
}

impl Open {
    fn is_replaced(&self) -> bool {
        self.relogin.as_ref().is_some_and(Relogin::is_over)
    }
}

/// A task that ends when nobody waits for it any more.
struct Aborted<T>(JoinHandle<T>);

impl<T> Drop for Aborted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// That of an acquire, if it is one, and that of any statement.
type Places = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

/// A connection that one statement has.
struct Lent {
    pool: Arc<Pool>,
    /// `None` once it went back, or is to end.
    client: Option<Open>,
    since: Moment,
    places: Option<Places>,
}

impl Lent {
    fn client(&mut self) -> Result<&Client, Fault> {
        let open = self.client.as_ref();
        open.map(|open| &open.client)
            .ok_or(Fault::Closed(ShutdownCause::Shutdown))
    }

    /// Its statement was answered: the next one may have the connection.
    fn is_good(&mut self) {
        if let Some(client) = self.client.take() {
            self.pool.keep(client);
        }
    }

    fn is_bad(&mut self) {
        self.client = None;
    }
}

impl Drop for Lent {
    /// A statement that nobody waits for any more may still end by itself: then the next one may have the connection. If it
    /// does not end soon, it is cancelled. After that, the connection is not used again: the cancellation may arrive late,
    /// and would end the next statement. Until its statement has ended, a connection counts as lent.
    fn drop(&mut self) {
        let Some(mut open) = self.client.take() else {
            return;
        };
        let (pool, places) = (self.pool.clone(), self.places.take());
        self.pool.handle.spawn(async move {
            let _places = places;
            {
                // Answered after the statement.
                let mut ended = pin!(open.client.simple_query(""));
                match tokio::time::timeout(GRACE, &mut ended).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        // Nothing replaces it: its place is free for another one.
                        open.relogin = None;
                        let tls = pool.target.tls.clone();
                        let cancelled = async {
                            // It may have ended meanwhile, or not have begun: both is fine.
                            let _ = open.client.cancel_token().cancel_query(tls).await;
                            let _ = ended.await;
                        };
                        let _ = tokio::time::timeout(LONGEST_RETIREMENT, cancelled).await;
                        return;
                    }
                }
            }
            pool.keep(open);
        });
    }
}

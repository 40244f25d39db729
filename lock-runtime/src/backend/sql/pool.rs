//! Connections that are lent to one statement at a time.
//!
//! Statements are not pipelined: one that waits for another transaction's row lock would hold up all that come after it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::relogin::PoolRelogin;
use super::row_limit::{RowLimit, RowPlace};
use super::{Arg, Connector, OpenedConnection, Row, Server, Statement};
use crate::backend::kit::{outage::Outage, round_trip::RoundTrip};
use crate::backend::{Fault, Reply};
use crate::observe::metrics;
use crate::sync::Mutex;
use crate::values::{HolderId, HolderIds, Moment, clock};

/// A server that has not answered for this time seems to be away. A shorter silence is no sign: the last request of a
/// wait may have only a few milliseconds.
const SILENCE: Duration = Duration::from_millis(250);

/// The time for which a statement that nobody waits for any more may keep its place, at least. The server may end the
/// statement later by itself, and has a session for it until then.
const LONGEST_RETIREMENT: Duration = Duration::from_secs(5);

/// The time that a sign of life may take. A statement that waits for it has its own limit.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// The time that the opening of a connection may take once its statement was given up.
const LONGEST_OPENING: Duration = Duration::from_secs(2);

/// The purpose of a statement. Acquires, and what undoes them, leave some connections to the others, because held locks
/// must be renewed and released first; and the statements that may wait for one row leave some to those that do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For this holder, whose id must have been drawn after the connection was opened.
    Acquire {
        holder: HolderId,
        waits_for_row: bool,
    },
    /// To change the row that the first argument names, if it is one name. The statement waits for the row while another
    /// transaction has it locked.
    Change,
    /// To make this holder the holder of the row that the first argument names. Its id must have been drawn after the
    /// connection was opened, as that of an acquire.
    HandOver(HolderId),
    /// To undo an acquire of the row that the first argument names. It waits for the row as well.
    Undo,
    Other,
}

impl Purpose {
    /// An acquire that does not wait for a row.
    pub(crate) fn acquire(holder: HolderId) -> Purpose {
        Purpose::Acquire {
            holder,
            waits_for_row: false,
        }
    }

    /// Returns the row for which a statement with these arguments may have to wait.
    fn row(self, args: &[Arg]) -> Option<&str> {
        let waits = match self {
            Purpose::Acquire { waits_for_row, .. } => waits_for_row,
            Purpose::Change | Purpose::HandOver(_) | Purpose::Undo => true,
            Purpose::Other => false,
        };
        match args.first() {
            Some(Arg::Text(row)) if waits => Some(row),
            _ => None,
        }
    }
}

/// The rows that answered a statement, and the time at which it was sent.
#[derive(Debug)]
pub(crate) struct SqlAnswer {
    pub(crate) rows: Vec<Row>,
    pub(super) sent_at: Moment,
}

impl SqlAnswer {
    /// Returns the only row of a statement about one lock, if the statement found it.
    pub(crate) fn row(&self) -> Option<&Row> {
        self.rows.first()
    }
}

/// The times by which a statement has to be sent and answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    pub(super) sent: Moment,
    pub(super) answered: Moment,
    /// The silence after which another connection is tried.
    pub(super) patience: Duration,
}

impl From<Moment> for Until {
    fn from(deadline: Moment) -> Until {
        Until {
            sent: deadline,
            answered: deadline,
            patience: deadline.remaining() / 2,
        }
    }
}

/// Connections, as the kinds of locks see them.
pub(crate) trait Calls: Send + Sync + 'static {
    /// Runs one statement. When the future is dropped, the statement is cancelled, or was never sent.
    fn call<'a>(
        self: Arc<Self>,
        purpose: Purpose,
        statement: &'a Arc<Statement>,
        args: Vec<Arg>,
        until: Until,
    ) -> Reply<'a, SqlAnswer>;

    /// Returns the time that a recent statement took.
    fn round_trip(&self) -> Duration;

    /// Ends all connections, except those of statements that are under way.
    fn close(&self);
}

/// A pool with a limited number of connections.
pub(crate) struct Pool<C: Connector> {
    connector: C,
    /// The name of its server for errors and logs.
    pub(super) server: String,
    /// The runtime on which its connections live.
    pub(super) handle: Handle,
    /// The number of connections that may be lent at a time.
    size: usize,
    /// Connections that are open and lent to nobody.
    idle: Mutex<Vec<Open<C>>>,
    /// A permit for each connection that may be lent. The semaphore is closed with the pool.
    places: Arc<Semaphore>,
    /// A permit for each connection that may be lent to an acquire.
    acquires: Arc<Semaphore>,
    /// The limit for the statements that may wait for one row.
    rows: Arc<RowLimit>,
    /// A permit for an opening whose statement was given up. There is one: the openings of a server that swallows everything
    /// must not pile up.
    left_openings: Semaphore,
    outage: Mutex<Outage>,
    /// True if the server was reached before, by whichever pool of the manager.
    reached: Arc<AtomicBool>,
    round_trip: RoundTrip,
    ids: Arc<HolderIds>,
}

impl<C: Connector> Calls for Pool<C> {
    /// Runs the statement in a task of its own, so that a caller that is not polled does not keep its connection from
    /// others.
    fn call<'a>(
        self: Arc<Self>,
        purpose: Purpose,
        statement: &'a Arc<Statement>,
        args: Vec<Arg>,
        until: Until,
    ) -> Reply<'a, SqlAnswer> {
        Box::pin(async move {
            let (pool, statement) = (self.clone(), statement.clone());
            let running = async move { pool.run(purpose, &statement, &args, until).await };
            let running = Aborted::spawn(&self.handle, running);
            let longest = until.answered.later(until.sent).remaining();
            Fault::if_driven(longest, running.answer()).await?
        })
    }

    fn round_trip(&self) -> Duration {
        self.round_trip.recent()
    }

    fn close(&self) {
        self.places.close();
        self.acquires.close();
        // A driver may spawn a task that ends its connection, which needs a runtime.
        let _runtime = self.handle.enter();
        self.idle.lock().clear();
    }
}

impl<C: Connector> Pool<C> {
    pub(in crate::backend) fn new<H>(
        connector: C,
        server: &Server<H>,
        ids: &Arc<HolderIds>,
        size: usize,
    ) -> Arc<Pool<C>> {
        let quarter = (size / 4).max(1);
        Arc::new(Pool {
            connector,
            server: server.target.shown.clone(),
            handle: server.handle.clone(),
            size,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(size)),
            acquires: Arc::new(Semaphore::new(size - quarter)),
            // Two locked rows leave connections to releases. With fewer for each, the readers of one row get fewer turns: a
            // quarter cost 32 tasks a third of them, and a third costs a fifth.
            rows: RowLimit::new(size.div_ceil(3)),
            left_openings: Semaphore::new(1),
            outage: Mutex::new(Outage::new("a connection to the lock store")),
            reached: server.reached.clone(),
            round_trip: RoundTrip::default(),
            ids: ids.clone(),
        })
    }

    async fn run(
        self: Arc<Self>,
        purpose: Purpose,
        statement: &Statement,
        args: &[Arg],
        until: Until,
    ) -> Result<SqlAnswer, Fault> {
        let row = purpose.row(args);
        let mut lent = self.lend(purpose, row, until).await?;
        let open = lent.open.as_mut().ok_or_else(Fault::closed)?;
        if let Purpose::Acquire { holder, .. } | Purpose::HandOver(holder) = purpose
            && holder.number() < open.ids_from
        {
            lent.is_good();
            return Err(Fault::Outdated);
        }
        let sent_at = clock::now();
        let is_awaited_late = !(until.answered - until.sent).is_zero();
        let asking = async {
            let mut asked = pin!(self.connector.run(&mut open.connection, statement, args));
            if is_awaited_late {
                // A renewal goes on after the time for which its caller waits. The caller asks again then, by another
                // connection, and the idle ones are dead if the server is away. So that is found out before.
                let quiet = until.patience.max(SILENCE);
                if let Ok(answer) = tokio::time::timeout(quiet, &mut asked).await {
                    return answer;
                }
                self.doubt();
            }
            asked.await
        };
        let answer = tokio::time::timeout(until.answered - sent_at, asking).await;
        let is_answered = match &answer {
            Ok(Err(failed)) => !matches!(failed.fault, Fault::Unknown(_)),
            answer => answer.is_ok(),
        };
        metrics::called(C::STORE, statement.name, is_answered);
        match answer {
            Ok(Ok(rows)) => {
                lent.is_good();
                self.round_trip.took(sent_at.elapsed());
                Ok(SqlAnswer { rows, sent_at })
            }
            Ok(Err(failed)) => {
                if failed.ends_the_connection {
                    lent.is_bad()
                } else {
                    lent.is_good()
                }
                Err(failed.fault)
            }
            Err(_) => {
                if sent_at.elapsed() >= SILENCE {
                    self.doubt();
                }
                if is_awaited_late {
                    // A connection that was silent for so long keeps its place from others no longer.
                    lent.places = None;
                }
                Err(Fault::unknown(format!(
                    "no answer within {:?}",
                    sent_at.elapsed()
                )))
            }
        }
    }

    /// Takes the idle connections away, because the server was silent on another one: after a failover all of them are
    /// dead, and each would cost a caller as much time as the first one. Connections that give a sign of life come
    /// back.
    fn doubt(self: &Arc<Self>) {
        for open in std::mem::take(&mut *self.idle.lock()) {
            drop(self.alive(open));
        }
    }

    /// Asks for a sign of life on a connection. The statement that waits for it gets the connection. If it no longer waits,
    /// the next one does. A connection that gives none ends.
    fn alive(self: &Arc<Self>, mut open: Open<C>) -> oneshot::Receiver<Open<C>> {
        let (statement, alive) = oneshot::channel();
        let pool = self.clone();
        self.handle.spawn(async move {
            let asked = pool.connector.is_alive(&mut open.connection);
            if let Ok(true) = tokio::time::timeout(LONGEST_LOOK, asked).await
                && let Err(open) = statement.send(open)
            {
                pool.keep(open);
            }
        });
        alive
    }

    /// Opens a connection. If its statement is given up meanwhile, the next one gets the connection: statements that have
    /// little time would otherwise never get one from a slow server.
    async fn opened(self: &Arc<Self>) -> Result<Open<C>, Fault> {
        let pool = self.clone();
        let (mut statement, opening) = oneshot::channel();
        self.handle.spawn(async move {
            let mut connecting = std::pin::pin!(pool.connect());
            let opened = tokio::select! {
                biased;
                opened = &mut connecting => statement.send(opened).err(),
                () = statement.closed() => {
                    let Ok(_only) = pool.left_openings.try_acquire() else {
                        return;
                    };
                    tokio::time::timeout(LONGEST_OPENING, connecting).await.ok()
                }
            };
            if let Some(Ok(open)) = opened {
                pool.keep(open);
            }
        });
        opening.await.map_err(|_| Fault::runtime_ended())?
    }

    /// Takes an idle connection, or opens one. One that has to give a sign of life first, and is silent, may only be slow: it is
    /// awaited beside the opening of another.
    async fn ready(self: &Arc<Self>, patience: Duration) -> Result<Open<C>, Fault> {
        loop {
            let Some(open) = self.idle.lock().pop() else {
                return self.opened().await;
            };
            if self.connector.is_fresh(&open.connection) {
                return Ok(open);
            }
            let mut alive = self.alive(open);
            match tokio::time::timeout(patience, &mut alive).await {
                Ok(Ok(open)) => return Ok(open),
                Ok(Err(_)) => {}
                Err(_) => {
                    self.doubt();
                    let mut opening = pin!(self.opened());
                    return tokio::select! {
                        biased;
                        alive = &mut alive => match alive {
                            Ok(open) => Ok(open),
                            Err(_) => opening.await,
                        },
                        opened = &mut opening => match opened {
                            Ok(open) => Ok(open),
                            Err(fault) => alive.await.map_err(|_| fault),
                        },
                    };
                }
            }
        }
    }

    /// Opens a connection and checks its server, to keep it for later.
    pub(crate) async fn open(self: &Arc<Self>) -> Result<(), Fault> {
        let open = self.connect().await?;
        self.idle.lock().push(open);
        Ok(())
    }

    /// Keeps a connection for the next statement.
    fn keep(&self, open: Open<C>) {
        // This is checked under the lock: `close` would miss a connection that is pushed after it.
        let mut idle = self.idle.lock();
        // Others may have been opened while this one was doubted.
        let is_wanted = idle.len() < self.size && !open.is_replaced();
        if !self.places.is_closed() && is_wanted {
            idle.push(open);
        }
    }

    async fn lend(
        self: &Arc<Self>,
        purpose: Purpose,
        row: Option<&str>,
        until: Until,
    ) -> Result<Lent<C>, Fault> {
        let deadline = until.sent;
        let mut row_is_free = row.is_none();
        let waiting = async {
            // In this order: those that wait for their row keep no connection from others.
            let row = match row {
                Some(row) => Some(self.rows.place(row).await),
                None => None,
            };
            row_is_free = true;
            let acquire = match purpose {
                Purpose::Acquire { .. } | Purpose::Undo => Some(place(&self.acquires).await?),
                Purpose::Change | Purpose::HandOver(_) | Purpose::Other => None,
            };
            Ok(PoolPlaces {
                _row: row,
                _acquire: acquire,
                _any: place(&self.places).await?,
            })
        };
        let places = tokio::time::timeout(deadline.remaining(), waiting).await;
        let places = places.map_err(|_| {
            Fault::not_done(if row_is_free {
                "all connections to the database were busy (`lock_pool` says how many there are for requests)"
            } else {
                "other statements of this process wait for the same row, which another transaction has locked"
            })
        })??;
        let mut lent = Lent {
            pool: self.clone(),
            open: None,
            places: Some(places),
        };
        let left = deadline.remaining();
        let ready = tokio::time::timeout(left, self.ready(until.patience.min(left / 2))).await;
        let open =
            ready.map_err(|_| Fault::not_done("no connection to the database in time"))??;
        lent.open = Some(open);
        Ok(lent)
    }

    /// Lends this connection from now on, instead of the one that is marked as replaced.
    pub(super) fn replace(&self, open: Open<C>) {
        self.idle.lock().retain(|open| !open.is_replaced());
        self.keep(open);
    }

    /// Connects. A failure is not logged.
    pub(super) async fn connect_once(self: &Arc<Self>) -> Result<Open<C>, Fault> {
        let pool = self.clone();
        // The caller's runtime may end before the connection does.
        let opening = async move { pool.connector.open().await };
        let OpenedConnection {
            connection,
            renew_after,
            drawn,
        } = Aborted::spawn(&self.handle, opening).answer().await?;
        let ids_from = self.ids.renew(&drawn);
        let again = self.outage.lock().notice_end(&self.server);
        self.reached.store(true, Ordering::Relaxed);
        Ok(Open {
            connection,
            ids_from,
            relogin: renew_after.map(|after| PoolRelogin::start(self, after)),
            _up: metrics::Connection::is_up(C::STORE, again),
        })
    }

    async fn connect(self: &Arc<Self>) -> Result<Open<C>, Fault> {
        match self.connect_once().await {
            Ok(open) => Ok(open),
            Err(fault @ Fault::Closed(_)) => Err(fault),
            Err(fault) => {
                self.outage.lock().notice_failure(&self.server, &fault);
                Err(match fault {
                    // A standby may be promoted, and a failover may lead to another server.
                    Fault::Impossible(why) if self.reached.load(Ordering::Relaxed) => {
                        Fault::not_done(why)
                    }
                    fault => fault,
                })
            }
        }
    }

    /// Keeps the connection of a statement that nobody waits for any more, if the statement ends soon; otherwise ends
    /// the connection. Until then, the statement keeps its places.
    fn retire(self: &Arc<Self>, mut open: Open<C>, places: Option<PoolPlaces>) {
        let pool = self.clone();
        self.handle.spawn(async move {
            let _places = places;
            let retired = pool.connector.retire(&mut open.connection);
            let longest = LONGEST_RETIREMENT.max(pool.connector.longest_statement());
            if let Ok(true) = tokio::time::timeout(longest, retired).await {
                pool.keep(open);
            }
        });
    }
}

async fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Fault> {
    let place = places.clone().acquire_owned().await;
    place.map_err(|_| Fault::closed())
}

/// An open connection, which the metrics count.
pub(super) struct Open<C: Connector> {
    connection: C::Connection,
    /// The ids of holders from this number on were drawn after it was opened. See [`HolderIds`].
    ids_from: u64,
    /// The task that replaces it, if its login expires.
    relogin: Option<PoolRelogin>,
    _up: metrics::Connection,
}

impl<C: Connector> Open<C> {
    fn is_replaced(&self) -> bool {
        self.relogin.as_ref().is_some_and(PoolRelogin::is_over)
    }
}

/// A task that ends when nobody waits for it any more.
pub(crate) struct Aborted<T>(JoinHandle<Result<T, Fault>>);

impl<T: Send + 'static> Aborted<T> {
    pub(crate) fn spawn(
        runtime: &Handle,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Aborted<T> {
        Aborted(runtime.spawn(work))
    }

    pub(crate) async fn answer(mut self) -> Result<T, Fault> {
        let done = (&mut self.0).await;
        done.unwrap_or_else(|ended| {
            Err(if ended.is_panic() {
                Fault::unknown("a driver or this library panicked")
            } else {
                Fault::runtime_ended()
            })
        })
    }

    pub(crate) fn abort(&self) {
        self.0.abort();
    }
}

impl<T> Drop for Aborted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a statement keeps from others until the server has ended it.
struct PoolPlaces {
    _row: Option<RowPlace>,
    _acquire: Option<OwnedSemaphorePermit>,
    _any: OwnedSemaphorePermit,
}

/// A connection that is lent to one statement.
struct Lent<C: Connector> {
    pool: Arc<Pool<C>>,
    /// `None` before there is a connection, and after it went back or was given up.
    open: Option<Open<C>>,
    places: Option<PoolPlaces>,
}

impl<C: Connector> Lent<C> {
    /// Gives the connection back to the pool. Its statement was answered, so the next one may have it.
    fn is_good(&mut self) {
        if let Some(open) = self.open.take() {
            self.pool.keep(open);
        }
    }

    /// Drops the connection, which was lost, and the idle ones, which probably were lost with it.
    fn is_bad(&mut self) {
        self.open = None;
        self.pool.idle.lock().clear();
    }
}

impl<C: Connector> Drop for Lent<C> {
    /// Retires the connection if nobody waits for its statement any more. It is lent again only after the statement has
    /// ended.
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let places = self.places.take();
            self.pool.retire(open, places);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::backend::sql::Failed;
    use crate::values::StoreKind;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// A server that falls silent, as in a failover: on the connections that are open then, nothing arrives any more.
    #[derive(Default)]
    struct Failover {
        opened: AtomicUsize,
        silent: AtomicUsize,
        /// After how many ms an idle connection gives a sign of life, and another one is open, and whether they do at all.
        late: Mutex<Option<[(u32, bool); 2]>>,
    }

    impl Failover {
        async fn answers(&self, connection: usize) {
            if connection < self.silent.load(Ordering::Relaxed) {
                pending().await
            }
        }
    }

    impl Connector for Arc<Failover> {
        type Connection = usize;

        const STORE: StoreKind = StoreKind::Postgres;

        async fn open(&self) -> Result<OpenedConnection<usize>, Fault> {
            let late = *self.late.lock();
            if let Some([_, (after, succeeds)]) = late {
                tokio::time::sleep(MS * after).await;
                if !succeeds {
                    return Err(Fault::not_done("refused"));
                }
            }
            Ok(OpenedConnection {
                connection: self.opened.fetch_add(1, Ordering::Relaxed),
                drawn: String::new(),
                renew_after: None,
            })
        }

        fn is_fresh(&self, _: &usize) -> bool {
            self.late.lock().is_none()
        }

        async fn is_alive(&self, connection: &mut usize) -> bool {
            let late = *self.late.lock();
            if let Some([(after, succeeds), _]) = late {
                tokio::time::sleep(MS * after).await;
                return succeeds;
            }
            self.answers(*connection).await;
            true
        }

        async fn run(
            &self,
            connection: &mut usize,
            _: &Statement,
            _: &[Arg],
        ) -> Result<Vec<Row>, Failed> {
            self.answers(*connection).await;
            Ok(vec![])
        }

        fn longest_statement(&self) -> Duration {
            SECOND
        }

        async fn retire(&self, connection: &mut usize) -> bool {
            self.answers(*connection).await;
            true
        }
    }

    fn pool_of(server: &Arc<Failover>) -> Arc<Pool<Arc<Failover>>> {
        Arc::new(Pool {
            connector: server.clone(),
            server: String::new(),
            handle: Handle::current(),
            size: 2,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(2)),
            acquires: Arc::new(Semaphore::new(1)),
            rows: RowLimit::new(1),
            left_openings: Semaphore::new(1),
            outage: Mutex::new(Outage::new("a connection")),
            reached: Arc::default(),
            round_trip: RoundTrip::default(),
            ids: Arc::default(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_sign_of_life_is_awaited_beside_another_connection() {
        let (lives, fails) = (true, false);
        for (late, expected) in [
            ([(500, lives), (1, lives)], Ok(0)),
            ([(500, fails), (1, lives)], Ok(1)),
            ([(1_500, lives), (9_000, lives)], Ok(0)),
            ([(1_500, lives), (100, lives)], Ok(1)),
            ([(1_500, lives), (100, fails)], Ok(0)),
            ([(1_300, fails), (500, lives)], Ok(1)),
            ([(1_300, fails), (500, fails)], Err(())),
            ([(1_500, fails), (100, fails)], Err(())),
            ([(9_000, lives), (9_000, lives)], Err(())),
        ] {
            let server = Arc::<Failover>::default();
            let pool = pool_of(&server);
            pool.open().await.unwrap();
            *server.late.lock() = Some(late);
            let lent = pool.lend(Purpose::Other, None, (clock::now() + 2 * SECOND).into());
            let lent = lent
                .await
                .map_err(|fault| assert!(fault.is_passing(), "{fault}"));
            let connection = lent.map(|lent| lent.open.as_ref().unwrap().connection);
            assert_eq!(connection, expected, "{late:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_makes_the_next_request_open_another_one() {
        let server = Arc::<Failover>::default();
        let pool = pool_of(&server);
        let ask = || {
            let (pool, now) = (pool.clone(), clock::now());
            let until = Until {
                sent: now + 2 * SECOND,
                answered: now + 8 * SECOND,
                patience: SECOND,
            };
            async move {
                let statement = Statement::new("renew", String::new());
                pool.call(Purpose::Other, &statement, vec![], until).await
            }
        };
        pool.open().await.unwrap();
        pool.open().await.unwrap();
        server.silent.store(2, Ordering::Relaxed);
        let first = tokio::spawn(ask());
        // A renewal without an answer is followed by another one after a call timeout.
        tokio::time::sleep(2 * SECOND).await;
        let second = ask().await;
        assert!(second.is_ok(), "{second:?}");
        assert!(!first.is_finished(), "it may still be answered");
    }
}

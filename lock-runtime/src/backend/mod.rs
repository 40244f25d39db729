//! The [`Backend`] trait: the operations that every store provides. Everything above this trait is the same for every
//! backend.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::values::{
    Alias, Checkup, FencingToken, HolderId, Key, Kind, LockError, LockMode, Moment, ShutdownCause,
    StoreError, StoreKind, TokenRange, Ttl,
};

mod clash;
pub(crate) mod connect;
mod counters;
mod directory;
pub(crate) mod kit;
pub(crate) mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
pub(crate) mod opening;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod sql;
#[cfg(test)]
mod tests;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod transactions;

#[cfg(feature = "redis")]
pub(crate) use self::clash::not_as_asked;
pub(crate) use self::clash::{Asked, Found, clash};
pub(crate) use self::counters::{CounterKind, CounterRef, Counters};
pub(crate) use self::directory::{Directory, Introduction, KnownClient};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use self::transactions::{GIVEN, Give, TOO_EARLY, Transactions};

/// The time for which one request of a waiting writer keeps new readers out. It is longer than the pause between two
/// requests of the writer, so that readers are kept out for as long as the writer waits. It is short because nobody
/// revokes it when the writer is killed.
pub(crate) const READERS_KEPT_OUT: Duration = Duration::from_millis(1_500);
/// The time for which new readers are kept out after the last reader has left and the waiting writer has been told.
/// The writer may be gone, so this is short.
pub(crate) const WRITER_HAS_TO_COME: Duration = Duration::from_millis(300);

/// Boxed because a manager holds its backend as `dyn`: one allocation beside a network round trip.
pub(crate) type Boxed<'a, T = ()> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub(crate) type Reply<'a, T> = Boxed<'a, Result<T, Fault>>;

/// A lock store: one authority, or something that acts as one.
///
/// Five methods are enough for a store that keeps mutexes. The other methods have defaults. A store names the
/// [`kinds`](Backend::kinds) that it keeps, and the core refuses other kinds before it sends any request.
///
/// Every operation is idempotent, because it names its [`HolderId`], which is never reused. `timeout` bounds the whole
/// call, including the wait for a connection.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Takes the lock for `holder` if nobody has it.
    ///
    /// Cancel safety is the backend's duty: when the future is dropped or ends in [`Fault::Unknown`], the backend
    /// undoes the acquisition in the background, whether it has happened or may still happen. Fair locks are the
    /// exception for an unknown outcome: the caller has a place in a queue, and asks again as the same holder.
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired>;

    /// Releases what the holder has at the key, and wakes a waiter.
    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released>;

    /// Extends each lease to its TTL, never shortening one. The answers are in the order of the items.
    ///
    /// Renewals that [wait](Renewal::waits) may be sent for as long as they are useful.
    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>>;

    /// Deletes the lock, no matter who holds it, wakes a waiter and tells the holder. Returns `true` if it was held.
    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool>;

    /// Looks without touching.
    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>>;

    /// The store's kind and name, for errors, logs and metrics.
    fn store(&self) -> StoreKind;

    /// The backend that this one wraps, if any. It answers the methods below that this one does not implement.
    fn around(&self) -> Option<&dyn Backend> {
        None
    }

    /// Whether its connections end with the runtime that they were opened in. The manager then ends with it.
    fn lives_in_a_runtime(&self) -> bool {
        self.around().is_none_or(|inner| inner.lives_in_a_runtime())
    }

    /// The kinds that it keeps.
    fn kinds(&self) -> &'static [Kind] {
        self.around().map_or(&[Kind::Mutex], |inner| inner.kinds())
    }

    /// The store's own rules for names.
    ///
    /// # Errors
    /// [`LockError::InvalidName`].
    fn check_key(&self, key: &Key) -> Result<(), LockError> {
        self.around().map_or(Ok(()), |inner| inner.check_key(key))
    }

    /// Takes all of the locks, which are mutexes, or none of them. Cancel safe as [`acquire`](Backend::acquire).
    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        match self.around() {
            Some(inner) => inner.acquire_all(requests),
            None => Box::pin(std::future::ready(Ok(AcquiredAll::Apart))),
        }
    }

    /// The operation that passes a hold to another holder without the lock being free in between. With `None`, the
    /// caller releases the lock and the next holder acquires it.
    fn hand_off(&self) -> Option<&dyn HandOff> {
        self.around()?.hand_off()
    }

    /// The operations that only read/write locks need. A store that keeps read/write locks returns them.
    fn shared(&self) -> Option<&dyn Shared> {
        self.around()?.shared()
    }

    /// Whether a holder that keeps a lock between its holds is told that somebody else wants it
    /// ([`Event::Wanted`]). Such a store has a [`hand_off`](Backend::hand_off).
    fn tells_keepers(&self) -> bool {
        self.around().is_some_and(|inner| inner.tells_keepers())
    }

    /// Plain permits and latches.
    fn counters(&self) -> Option<&dyn Counters> {
        self.around()?.counters()
    }

    /// Locks that a transaction of the caller's has.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }

    /// The records of the store's clients. Without them, operators see only ids.
    fn directory(&self) -> Option<&dyn Directory> {
        self.around()?.directory()
    }

    /// Asks its servers whether they answer, within `timeout`, and changes nothing. The default is that of a store
    /// without servers.
    fn health(&self, timeout: Duration) -> Boxed<'_, Checkup> {
        match self.around() {
            Some(inner) => inner.health(timeout),
            None => Box::pin(std::future::ready(Checkup::default())),
        }
    }

    /// Starts listening for releases of `key`. Never fails: where there is no push, the waiter's cap decides.
    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        match self.around() {
            Some(inner) => inner.listen(key),
            None => Box::new(Deaf),
        }
    }

    /// Like [`listen`](Backend::listen), for one waiter of a kind whose waiters are woken one by one.
    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        match self.around() {
            Some(inner) => inner.listen_alone(key, holder),
            None => self.listen(key),
        }
    }

    /// Like [`listen`](Backend::listen), and hears when the lock is reserved for the process of `holder`.
    fn listen_in_crowd(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        match self.around() {
            Some(inner) => inner.listen_in_crowd(key, holder),
            None => self.listen(key),
        }
    }

    /// Whether those that want the lock wait on the store's list, and the process of `holder` hears when the lock is
    /// reserved for it. It has [listened](Backend::listen_in_crowd) lately then.
    fn waits_on_list(&self, key: &Key, holder: HolderId) -> bool {
        self.around()
            .is_some_and(|inner| inner.waits_on_list(key, holder))
    }

    /// The number of keys that one [`renew`](Backend::renew) call may carry.
    fn renew_batch(&self) -> usize {
        self.around().map_or(128, |inner| inner.renew_batch())
    }

    /// The current place of the key, such as its node. Keys of different places are renewed by different calls, so
    /// that a place that does not answer does not delay the others. This is a hint. It is called under a lock.
    fn place(&self, key: &Key) -> usize {
        self.around().map_or(0, |inner| inner.place(key))
    }

    /// True for a quorum: one of its nodes may still keep a lock that the majority reported as not held.
    fn is_divided(&self) -> bool {
        self.around().is_some_and(|inner| inner.is_divided())
    }

    /// A recent round trip to where the key is, for pauses that must be longer than one.
    fn round_trip(&self, key: &Key) -> Duration {
        self.around()
            .map_or(Duration::ZERO, |inner| inner.round_trip(key))
    }

    /// Resolves once nothing is being undone in the background any more.
    fn drained(&self) -> Boxed<'_> {
        match self.around() {
            Some(inner) => inner.drained(),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// Ends connections and tasks, and reports no further events. A store with connections fails further calls with
    /// [`Fault::Closed`]; a store without connections may go on answering them.
    fn close(&self) {
        if let Some(inner) = self.around() {
            inner.close();
        }
    }
}

/// The operation of a store that can pass a lock from one holder to the next.
pub(crate) trait HandOff: Send + Sync {
    /// Makes `to` the holder if `from` holds the lock, and counts the others that may be waiting. Wakes nobody.
    ///
    /// `spare` is the number of further tokens to set aside, if `to` wants a token. Tokens that follow the clock are
    /// never more than that many µs ahead of it.
    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver>;
}

/// The operation of a store that keeps read/write locks.
pub(crate) trait Shared: Send + Sync {
    /// Makes a writer a reader, and wakes the waiters that may read beside it. `hold_ref` names the read hold. Reports
    /// that nothing is held if the holder is neither writer nor reader.
    fn downgrade<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        ttl: Ttl,
        timeout: Duration,
    ) -> Reply<'a, Released>;
}

/// Hears nothing: where there is no push.
struct Deaf;

impl Listen for Deaf {
    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(std::future::pending())
    }
}

/// Hears what either of them hears.
pub(crate) struct Both(pub(crate) Box<dyn Listen>, pub(crate) Box<dyn Listen>);

impl Listen for Both {
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(async {
            self.0.ready().await;
            self.1.ready().await;
        })
    }

    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(async {
            tokio::select! {
                () = self.0.heard() => {}
                () = self.1.heard() => {}
            }
        })
    }

    fn is_crowded(&self) -> bool {
        self.0.is_crowded() || self.1.is_crowded()
    }
}

/// One listener's view of a key's wake-up messages.
pub(crate) trait Listen: Send + Sync {
    /// Resolves once messages published from now on will be heard, or it is clear that none will be.
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Resolves when there was a message, or the subscription was renewed, since the last `heard` (or `listen`).
    /// Nothing is missed between two calls. A hint, not a promise: the caller looks for itself.
    fn heard(&mut self) -> Boxed<'_>;

    /// Whether many processes wait, who do it on a list, as of the last message that told.
    fn is_crowded(&self) -> bool {
        false
    }
}

/// A holder, and its share of a key that it has or wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldRef<'a> {
    pub(crate) key: &'a Key,
    pub(crate) holder: HolderId,
    /// The number of permits of a semaphore; 1 for every other kind.
    pub(crate) permits: u32,
    /// Whether many processes may want the lock. A request then puts the holder on the store's list of those that wait if it
    /// cannot have the lock, and needs a process that [hears](Backend::waits_on_list). A release takes the holder off the
    /// list, and reserves the lock for the first on it if there really are many.
    pub(crate) contended: bool,
}

impl<'a> HoldRef<'a> {
    /// Returns a reference to a hold of a lock, or to a single permit.
    pub(crate) fn one(key: &'a Key, holder: HolderId) -> HoldRef<'a> {
        let permits = 1;
        HoldRef {
            key,
            holder,
            permits,
            contended: false,
        }
    }
}

/// A request for a lock: for whom, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquireRequest<'a> {
    pub(crate) hold_ref: HoldRef<'a>,
    pub(crate) ttl: Ttl,
    /// Whether a fencing token is wanted.
    pub(crate) fenced: bool,
    /// The time for which the caller goes on waiting if the lock is busy; `None` if it does not wait.
    pub(crate) waits: Option<Duration>,
    /// Whether the store has told this caller lately how much of the holder's lease is left. If the lock is still busy, it
    /// need not find out again.
    pub(crate) knows_left: bool,
    /// The time of the call, a moment ago. Requests that are sent without waiting for anything use it as the time of
    /// sending.
    pub(crate) asked_at: Moment,
    pub(crate) timeout: Duration,
}

impl AcquireRequest<'_> {
    /// Returns the time until which an answer is awaited.
    pub(crate) fn deadline(&self) -> Moment {
        self.asked_at + self.timeout
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Acquired {
    Granted(Granted),
    /// Somebody else holds it. `left` is the rest of the lease, if there is one.
    Busy {
        left: Option<Duration>,
    },
    /// Like `Busy`; in addition, the holder keeps the lock between its holds, and was asked to give it up.
    Kept {
        left: Option<Duration>,
    },
    /// Like `Busy`; in addition, the caller has a place in the store's queue, which it keeps while it goes on asking.
    Queued {
        left: Option<Duration>,
        /// Nobody is before it.
        first: bool,
        /// The holder keeps the lock between its holds, and was asked to give it up.
        kept: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum AcquiredAll {
    /// In the order of the requests.
    Granted(Vec<Granted>),
    /// Somebody else holds one of them.
    Busy,
    /// They cannot be had by one request, or only a process that keeps one is in the way: ask for each by itself.
    Apart,
}

/// The number of waiters of a fair lock's queue that an inspection names. The script `inspect` has the same number.
pub(crate) const FIRST_WAITERS: usize = 16;

/// The time for which a waiter keeps its place in a fair lock's queue without asking again.
pub(crate) const QUEUE_LIFE: Duration = Duration::from_secs(5);

/// A hold that the store has just confirmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) token: Option<FencingToken>,
    /// Taken before the request entered any queue; a resend does not move it.
    pub(crate) sent_at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    Done,
    NotHeld,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HandedOver {
    Done {
        granted: Granted,
        /// The number of waiters of other managers; `None` if that cannot be known.
        strangers: Option<u64>,
        spare: Spare,
    },
    /// Neither of the two holds the lock.
    NotHeld,
}

/// The permission for further holds of the same process to run as the same holder without asking the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spare {
    /// There are none: the store names every holder.
    Nothing,
    /// The lock, without a token.
    Untokened,
    Tokens(TokenRange),
}

#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) key: Arc<Key>,
    pub(crate) holder: HolderId,
    pub(crate) permits: u32,
    /// The lease to extend to; `None` only checks that the hold is there.
    pub(crate) ttl: Option<Ttl>,
    /// Whether the renewal waits while others write the key; otherwise the store may skip it. All renewals of its
    /// batch wait then, and all are of one key, so that no other renewal waits with them.
    pub(crate) waits: bool,
}

/// The time that a renewal may take, counted from the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    /// It is sent by then, or has failed.
    pub(crate) timeout: Duration,
    /// An answer that takes longer than that is waited for as long as it is useful, and the connection is looked at
    /// meanwhile.
    pub(crate) useful: Duration,
}

impl Within {
    /// Returns the limits of any other call.
    pub(crate) fn call(timeout: Duration) -> Within {
        let useful = timeout;
        Within { timeout, useful }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Held,
    /// The store names another holder or none.
    NotHeld,
    /// The store failed at this key alone.
    Unknown,
    /// Others were writing the key. It was left out, so that the rest of the batch did not wait for them.
    #[cfg_attr(
        not(any(feature = "mysql", feature = "postgres")),
        allow(dead_code, reason = "said by databases alone")
    )]
    LeftOut,
}

/// The state of a held lock or of a counter, as `inspect` saw it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) mode: LockMode,
    /// The holder's id as text. Redacted before it leaves the crate. A semaphore names none.
    pub(crate) holder: Option<String>,
    /// For a semaphore, the number of leased permits.
    pub(crate) count: u64,
    /// The rest of the lease. For a semaphore, the rest of its first lease to end.
    pub(crate) left: Option<Duration>,
    /// The permits that are free; `None` for a lock.
    pub(crate) available: Option<i64>,
    /// The number of waiters in the store's queue, which only fair locks have.
    pub(crate) queued: u64,
    /// The ids of the first of these, in their order, [`FIRST_WAITERS`] at most.
    pub(crate) first_waiters: Vec<String>,
    /// The number of readers.
    pub(crate) readers: u64,
}

impl Snapshot {
    /// Returns the snapshot of a lock that has one hold, of an unknown holder.
    pub(crate) fn of(mode: LockMode) -> Snapshot {
        Snapshot {
            mode,
            holder: None,
            count: 1,
            left: None,
            available: None,
            queued: 0,
            first_waiters: Vec::new(),
            readers: 0,
        }
    }

    /// A semaphore with so many leases or leased permits, or a counter without.
    pub(crate) fn of_permits(leased: u64, free: i64) -> Snapshot {
        let mode = match leased {
            0 => LockMode::Counter,
            _ => LockMode::Semaphore,
        };
        Snapshot {
            count: leased,
            available: Some(free),
            ..Snapshot::of(mode)
        }
    }
}

/// Something the store says without being asked.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// These holders were released by force: the listener looks for its own among them.
    ForceReleased(Holders),
    /// Somebody wants the lock that these holders keep. The listener gives it up if it is one of them.
    Wanted(Holders),
}

/// The holders that an event names.
#[derive(Clone, Debug)]
pub(crate) enum Holders {
    Id(HolderId),
    /// One or several holders, by their [`HolderId::alias`], because others can read the message.
    Aliases(Arc<HashSet<Alias>>),
}

impl Holders {
    /// True if no other holder is meant once one is found.
    pub(crate) fn is_one(&self) -> bool {
        match self {
            Holders::Id(_) => true,
            Holders::Aliases(aliases) => aliases.len() == 1,
        }
    }
}

/// The callback through which a backend reports its events. It is called on the backend's tasks, so it must not block.
pub(crate) type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// The reason why an operation gave no answer.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The store certainly did nothing; trying again can help.
    NotDone(StoreError),
    /// Granted, and given back: too few replicas knew of it in time. A caller that asks again does so as another holder.
    TooFew(StoreError),
    /// No answer: it may have happened, or may yet.
    Unknown(StoreError),
    /// Refused for good: login, ACL, TLS.
    Denied(StoreError),
    /// The key exists and is something else.
    Foreign { key: String, why: String },
    /// A semaphore whose permits were never set, or that the store lost.
    NotSet,
    /// It cannot be served as things are set up, however long one waits.
    Impossible(String),
    /// The backend was closed, or its runtime is gone.
    Closed(ShutdownCause),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotDone(source)
            | Fault::TooFew(source)
            | Fault::Unknown(source)
            | Fault::Denied(source) => source.fmt(f),
            Fault::Foreign { key, why } => write!(f, "key `{key}`: {why}"),
            Fault::NotSet => f.write_str("the semaphore has no permits: they were not set"),
            Fault::Impossible(why) => f.write_str(why),
            Fault::Closed(why) => why.fmt(f),
        }
    }
}

impl Fault {
    pub(crate) fn not_done(why: impl Into<String>) -> Fault {
        Fault::NotDone(StoreError::new(why))
    }

    pub(crate) fn unknown(why: impl Into<String>) -> Fault {
        Fault::Unknown(StoreError::new(why))
    }

    pub(crate) fn denied(why: impl Into<String>) -> Fault {
        Fault::Denied(StoreError::new(why))
    }

    pub(crate) fn too_few(why: impl Into<String>) -> Fault {
        Fault::TooFew(StoreError::new(why))
    }

    pub(crate) fn impossible(why: impl Into<String>) -> Fault {
        Fault::Impossible(why.into())
    }

    /// The backend was closed.
    pub(crate) fn closed() -> Fault {
        Fault::Closed(ShutdownCause::Shutdown)
    }

    /// The runtime is gone that a task of the backend ran in.
    pub(crate) fn runtime_ended() -> Fault {
        Fault::Closed(ShutdownCause::RuntimeEnded)
    }

    /// The server's clock says that the caller has stopped waiting for this request.
    pub(crate) fn too_late() -> Fault {
        Fault::not_done("the request reached the lock store too late")
    }

    /// True if the same request may succeed in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Fault::NotDone(_) | Fault::TooFew(_) | Fault::Unknown(_)
        )
    }

    /// With the server's address where the error has no other place for it.
    #[cfg(feature = "redis")]
    pub(crate) fn at(self, server: &str) -> Fault {
        match self {
            Fault::Impossible(why) => Fault::Impossible(format!("`{server}`: {why}")),
            fault => fault,
        }
    }

    /// A semaphore has fewer permits in all than a request wants; `None` if none were ever set.
    pub(crate) fn not_so_many_permits(name: &str, all: Option<i64>) -> Fault {
        match all {
            Some(all) => Fault::Impossible(format!(
                "the semaphore `{name}` has {all} permits in all: too few"
            )),
            None => Fault::NotSet,
        }
    }

    pub(crate) fn into_error(self, name: &str) -> LockError {
        let name = name.to_owned();
        match self {
            Fault::NotDone(source) | Fault::TooFew(source) | Fault::Unknown(source) => {
                LockError::Unavailable { name, source }
            }
            Fault::Denied(source) => LockError::Denied { name, source },
            Fault::Foreign { key, why } => LockError::ForeignKey { key, why },
            Fault::NotSet => LockError::NotSet { name },
            Fault::Impossible(why) => LockError::InvalidConfig { why },
            Fault::Closed(why) => LockError::ShuttingDown { name, why },
        }
    }
}

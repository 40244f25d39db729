//! What a store must be able to do. Everything above this trait is the same for every backend.

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

/// For how long one question of a waiting writer keeps further readers out. Longer than the pause between two of
/// its questions, so that it does so for as long as it waits; short, because nobody takes it back when it is killed.
pub(crate) const READERS_KEPT_OUT: Duration = Duration::from_millis(1_500);
/// For how long it does so once the last reader has left and the writer has been told: it may be gone.
pub(crate) const WRITER_HAS_TO_COME: Duration = Duration::from_millis(300);

/// Boxed because a manager holds its backend as `dyn`: one allocation beside a network round trip.
pub(crate) type Boxed<'a, T = ()> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub(crate) type Reply<'a, T> = Boxed<'a, Result<T, Fault>>;

/// A lock store: one authority, or something that acts as one.
///
/// Five methods make a store that keeps mutexes. The rest has defaults, or is asked for: a store names the
/// [`kinds`](Backend::kinds) that it keeps, and the core refuses the others before any request.
///
/// Every operation has the effect of once when it is sent twice, because it names its [`HolderId`], which is
/// never reused. `timeout` bounds the whole call, waiting for a connection included.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Takes the lock for `holder` if nobody has it.
    ///
    /// Cancel safety is the backend's duty: when the future is dropped or ends in [`Fault::Unknown`], the
    /// backend undoes the acquisition in the background, should it have happened or still happen. Only of a fair
    /// lock an unknown outcome is left to the caller, who asks again as the same holder: it has a place in a queue.
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired>;

    /// Gives back what the holder has at the key, and wakes a waiter.
    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released>;

    /// Extends each lease to its TTL, never shortening one. The answers are in the order of the items.
    ///
    /// Renewals that [wait](Renewal::waits) may be sent for as long as they are useful.
    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>>;

    /// Deletes the lock, no matter who holds it, wakes a waiter and tells the holder. True if it was held.
    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool>;

    /// Looks without touching.
    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>>;

    /// Which store it is, for errors, logs and metrics.
    fn store(&self) -> StoreKind;

    /// The backend that this one is around, if it is: it answers what this one leaves out of the methods below.
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

    /// How a hold goes to another holder without being free in between; `None`: it is released, and asked for again.
    fn hand_off(&self) -> Option<&dyn HandOff> {
        self.around()?.hand_off()
    }

    /// What read/write locks need beside the rest. A store that keeps them has it.
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

    /// Records of who its clients are. Without them, operators see ids alone.
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

    /// As [`listen`](Backend::listen), for one waiter of a kind that wakes them one by one.
    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        match self.around() {
            Some(inner) => inner.listen_alone(key, holder),
            None => self.listen(key),
        }
    }

    /// How many keys one [`renew`](Backend::renew) call may carry.
    fn renew_batch(&self) -> usize {
        self.around().map_or(128, |inner| inner.renew_batch())
    }

    /// Where the key is just now: keys of different places are renewed by different calls, so that a place that does
    /// not answer keeps nobody else waiting. A hint, asked under a lock.
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

    /// Ends connections and tasks, and tells nobody of events any more. A store with connections fails further calls with
    /// [`Fault::Closed`]; one without may go on answering them.
    fn close(&self) {
        if let Some(inner) = self.around() {
            inner.close();
        }
    }
}

/// What a store can do that hands a lock from one holder to the next.
pub(crate) trait HandOff: Send + Sync {
    /// Makes `to` the holder if `from` is, and counts who else may be waiting. Wakes nobody.
    ///
    /// `spare`: how many further tokens to set aside, if `to` wants a token. Those that follow the clock are never more
    /// than as many µs ahead of it.
    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver>;
}

/// What a store can do that keeps read/write locks.
pub(crate) trait Shared: Send + Sync {
    /// Makes a writer a reader, and wakes who may read beside it. `hold_ref` is that of the read; nothing is held if it
    /// is neither.
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

/// One listener's view of a key's wake-up messages.
pub(crate) trait Listen: Send + Sync {
    /// Resolves once messages published from now on will be heard, or it is clear that none will be.
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Resolves when there was a message, or the subscription was renewed, since the last `heard` (or `listen`).
    /// Nothing is missed between two calls. A hint, not a promise: the caller looks for itself.
    fn heard(&mut self) -> Boxed<'_>;
}

/// A holder, and what it has or wants at a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldRef<'a> {
    pub(crate) key: &'a Key,
    pub(crate) holder: HolderId,
    /// How many permits of a semaphore; 1 of anything else.
    pub(crate) permits: u32,
}

impl<'a> HoldRef<'a> {
    /// Of what is no set of permits.
    pub(crate) fn one(key: &'a Key, holder: HolderId) -> HoldRef<'a> {
        let permits = 1;
        HoldRef {
            key,
            holder,
            permits,
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
    /// For how long the caller goes on waiting if the lock is busy; `None` if it does not wait at all.
    pub(crate) waits: Option<Duration>,
    /// Whether the store has told this caller lately how much of the holder's lease is left. If the lock is still busy, it
    /// need not find out again.
    pub(crate) knows_left: bool,
    /// When the call was made: a moment ago. What is sent without waiting for anything counts as sent then.
    pub(crate) asked_at: Moment,
    pub(crate) timeout: Duration,
}

impl AcquireRequest<'_> {
    /// Until when an answer is waited for.
    pub(crate) fn deadline(&self) -> Moment {
        self.asked_at + self.timeout
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Acquired {
    Granted(Granted),
    /// Somebody has it; what is left of the lease, if it has one.
    Busy {
        left: Option<Duration>,
    },
    /// As busy, and the holder, which keeps the lock between its holds, was asked to give it up.
    Kept {
        left: Option<Duration>,
    },
    /// As busy, and the caller has a place in the store's queue, which it keeps while it goes on asking.
    Queued {
        left: Option<Duration>,
        /// Nobody is before it.
        first: bool,
        /// And the holder keeps the lock, and was asked to give it up.
        kept: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum AcquiredAll {
    /// In the order of the requests.
    Granted(Vec<Granted>),
    /// Somebody has one of them.
    Busy,
    /// They cannot be had by one request, or only a process that keeps one is in the way: ask for each by itself.
    Apart,
}

/// How many waiters of a fair lock's queue an inspection names. The script `inspect` has the same number.
pub(crate) const FIRST_WAITERS: usize = 16;

/// How long a waiter keeps its place in a fair lock's queue without asking.
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
        /// How many waiters of other managers are known; `None` if that cannot be known.
        strangers: Option<u64>,
        spare: Spare,
    },
    /// Neither of the two holds the lock.
    NotHeld,
}

/// What further holds of the same process may have as the same holder, while the store is not asked.
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
    /// Whether it waits while others write the key, where the store would leave it out. All of its batch do then, and all
    /// are of one key, so that nobody else's renewal waits with them.
    pub(crate) waits: bool,
}

/// How long a renewal may take, from the call on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    /// It is sent by then, or has failed.
    pub(crate) timeout: Duration,
    /// An answer that takes longer than that is waited for as long as it is useful, and the connection is looked at
    /// meanwhile.
    pub(crate) useful: Duration,
}

impl Within {
    /// As long as any other call.
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

/// What `inspect` saw of a held lock, or of a counter.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) mode: LockMode,
    /// The holder's id as text. Redacted before it leaves the crate. A semaphore names none.
    pub(crate) holder: Option<String>,
    /// Of a semaphore: how many permits are leased.
    pub(crate) count: u64,
    /// Of a semaphore, until the first of its leases is over.
    pub(crate) left: Option<Duration>,
    /// The permits that are free; `None` for a lock.
    pub(crate) available: Option<i64>,
    /// How many wait for it in the store's queue, which fair locks have.
    pub(crate) queued: u64,
    /// The ids of the first of these, in their order, [`FIRST_WAITERS`] at most.
    pub(crate) first_waiters: Vec<String>,
    /// How many read.
    pub(crate) readers: u64,
}

impl Snapshot {
    /// What is held once, by nobody who is known.
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
    /// Somebody wants what these holders keep: the listener gives it up if it is one of them.
    Wanted(Holders),
}

/// The holders that an event names.
#[derive(Clone, Debug)]
pub(crate) enum Holders {
    Id(HolderId),
    /// One or several holders, by what [`HolderId::alias`] makes of them: others can read along.
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

/// Where a backend reports its events. Called on the backend's tasks: it must not block.
pub(crate) type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// Why an operation gave no answer of its own.
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

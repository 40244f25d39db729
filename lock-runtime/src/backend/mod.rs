//! The [`Backend`] trait: the operations that every store provides. Everything above this trait is the same for every
//! backend.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::values::{Checkup, HolderId, Key, Kind, LockError, Moment, StoreKind, Ttl};

mod clash;
pub(crate) mod connect;
mod counters;
mod directory;
mod fault;
pub(crate) mod kit;
mod listen;
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
mod transactions;
mod types;

pub(crate) use self::clash::{AskedKind, FoundKind, clash, not_as_asked, shuffle_clash};
pub(crate) use self::counters::{CounterKind, CounterRef, Counters};
pub(crate) use self::directory::{Directory, Introduction, KnownClient};
pub(crate) use self::fault::Fault;
pub(crate) use self::listen::{Both, Listen, SilentListener};
pub(crate) use self::transactions::{GIVEN, Give, TOO_EARLY, Transactions};
pub(crate) use self::types::{
    AcquireRequest, Acquired, AcquiredAll, Event, EventSink, FIRST_WAITERS, FurtherTurns, Granted,
    HandedOver, HoldRef, Holders, LAST_SENT, QUEUE_LIFE, Released, Renewal, Renewed, Snapshot,
    Spare, WithRelease, Within,
};

/// The time for which one request of a waiting writer keeps new readers out, even of a free lock. It is longer than the pause
/// between two requests of the writer. So the writer gets the lock after the last reader has left, even if no message
/// arrives. The time is short because no process revokes it when the writer is killed.
pub(crate) const READERS_KEPT_OUT: Duration = Duration::from_millis(1_500);
/// The time for which a release reserves a lock for the first holder on its [waiting list](WaitingList). On Redis, the
/// script fragment `waiting` and the shortcut of `listed_release` have the same number.
pub(crate) const RESERVED: Duration = Duration::from_secs(1);

/// Boxed because a manager holds its backend as `dyn`: one allocation beside a network round trip.
pub(crate) type Boxed<'a, T = ()> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub(crate) type Reply<'a, T> = Boxed<'a, Result<T, Fault>>;

/// A lock store: one authority, or something that acts as one.
///
/// Six methods have no default: five keep mutexes, and [`store`](Backend::store) says which store it is. A store names
/// the [`kinds`](StoreTraits::kinds) that it keeps, and the core refuses other kinds before it sends any request.
///
/// A request that is sent twice has the same effect as one that is sent once: what names a [`HolderId`], which is never
/// reused, is done or undone for that holder alone. `timeout` bounds the whole call, including the wait for a connection. A
/// call that is over its time ends in [`Fault::Unknown`] if it may still be carried out, else in [`Fault::NotDone`].
pub(crate) trait Backend: Send + Sync + 'static {
    /// Acquires the lock for `holder` if no other holder has it.
    ///
    /// Cancel safety is the backend's duty: when the future is dropped or ends in [`Fault::Unknown`], the backend
    /// undoes the acquisition in the background, whether it has happened or may still happen. No request names the holder
    /// again after that, so the undoing hits nobody. Fair locks are the exception for an unknown outcome: the caller has a
    /// place in a queue, and asks again as the same holder. A repeat grants again, with the same token or a later one.
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired>;

    /// Releases what the holder has at the key, and wakes a waiter if the store sends messages.
    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released>;

    /// As [`release`](Backend::release). Also does what `with` asks for, if the store can.
    fn release_with<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        _with: WithRelease<'a>,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        self.release(hold_ref, timeout)
    }

    /// Extends each lease to its TTL, and never shortens a lease. The answers are in the order of the items.
    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>>;

    /// Deletes the lock of any holder, wakes a waiter, and tells the holder's manager, also in another process
    /// ([`Event::ForceReleased`]). Returns `true` if the lock was held.
    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool>;

    /// Reads the state of the lock, and changes nothing. `None` if the lock is free, or its lease is over.
    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>>;

    /// The store's kind and name, for errors, logs and metrics.
    fn store(&self) -> StoreKind;

    /// The backend that this one wraps, if any. The wrapped backend answers the methods below that this one does not
    /// implement.
    fn around(&self) -> Option<&dyn Backend> {
        None
    }

    /// Describes the store to the code that uses it.
    fn traits(&self) -> StoreTraits {
        self.around()
            .map_or(StoreTraits::default(), |inner| inner.traits())
    }

    /// The store's own rules for names.
    ///
    /// # Errors
    /// [`LockError::InvalidName`].
    fn check_key(&self, key: &Key) -> Result<(), LockError> {
        self.around().map_or(Ok(()), |inner| inner.check_key(key))
    }

    /// Acquires all of the locks, which are mutexes, or none of them. Cancel safe as [`acquire`](Backend::acquire).
    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        match self.around() {
            Some(inner) => inner.acquire_all(requests),
            None => Box::pin(std::future::ready(Ok(AcquiredAll::Apart))),
        }
    }

    /// Passes the lock from one holder to the next without it being free in between: makes `to` the holder if `from`
    /// holds the lock, and counts the other processes that may be waiting. Sends no message. It is done as well if `to`
    /// holds the lock already.
    ///
    /// Only asked of a store that [hands over](StoreTraits::hands_over), and for mutexes, fenced locks and writes:
    /// readers acquire a lock beside each other, the front at a semaphore has no owner, and the successor at a fair lock
    /// is the first waiter in its queue.
    ///
    /// The core awaits it to its end, and gives back both holders after [`Fault::Unknown`]: the backend undoes nothing.
    ///
    /// `spare` is the number of further tokens to reserve, if `to` wants a token. Tokens that follow the clock are at
    /// most that many µs ahead of it.
    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver> {
        match self.around() {
            Some(inner) => inner.hand_over(from, to, spare),
            None => never_asked(),
        }
    }

    /// Makes a writer a reader, and wakes the waiters that may read beside it. `hold_ref` names the read hold. Reports
    /// that nothing is held if the holder is neither writer nor reader. Only asked of a store that keeps read/write
    /// locks.
    fn downgrade<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        ttl: Ttl,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        match self.around() {
            Some(inner) => inner.downgrade(hold_ref, ttl, timeout),
            None => never_asked(),
        }
    }

    /// Plain permits and latches.
    fn counters(&self) -> Option<&dyn Counters> {
        self.around()?.counters()
    }

    /// Locks that belong to a transaction of the caller's.
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }

    /// The records of the store's clients. Without them, operators see only the ids of holders.
    fn directory(&self) -> Option<&dyn Directory> {
        self.around()?.directory()
    }

    /// Checks for each server, within `timeout`, whether it grants locks. The default is for a store without servers.
    fn health(&self, timeout: Duration) -> Boxed<'_, Checkup> {
        match self.around() {
            Some(inner) => inner.health(timeout),
            None => Box::pin(std::future::ready(Checkup::default())),
        }
    }

    /// Starts listening for releases of `key`. Never fails: in a store that sends no messages, waiters ask again after
    /// the longest nap, which is about a second. `kit::polling` asks again much sooner.
    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        match self.around() {
            Some(inner) => inner.listen(key),
            None => Box::new(SilentListener),
        }
    }

    /// Like [`listen`](Backend::listen), for one waiter of a kind whose waiters are woken one at a time.
    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        match self.around() {
            Some(inner) => inner.listen_alone(key, holder),
            None => self.listen(key),
        }
    }

    /// The waiting list of the lock. Without one, a release wakes all waiting processes.
    fn waiting_list(&self, key: &Key) -> Option<&dyn WaitingList> {
        self.around()?.waiting_list(key)
    }

    /// Returns `true` if this process already receives messages about releases of `key`: then a new listener misses
    /// none.
    fn hears(&self, key: &Key) -> bool {
        self.around().is_some_and(|inner| inner.hears(key))
    }

    /// The number of other processes that were seen to want the key in the last seconds. The result is a hint: there may be
    /// more of them, or fewer.
    fn wanted_by(&self, key: &Key) -> u64 {
        self.around().map_or(0, |inner| inner.wanted_by(key))
    }

    /// The current place of the key, such as its node. Keys of different places are renewed by different calls, so that
    /// a place that does not answer does not delay the others. The result is a hint. Called under a lock: it must not block.
    fn place(&self, key: &Key) -> usize {
        self.around().map_or(0, |inner| inner.place(key))
    }

    /// A recent round trip to the place of the key, for pauses that must be longer than a round trip.
    fn round_trip(&self, key: &Key) -> Duration {
        self.around()
            .map_or(Duration::ZERO, |inner| inner.round_trip(key))
    }

    /// The time in which others notice that the key was given back after a hold of this length: a round trip, or longer
    /// where waiters ask after pauses.
    fn notice_time(&self, key: &Key, held_for: Duration) -> Duration {
        match self.around() {
            Some(inner) => inner.notice_time(key, held_for),
            None => self.round_trip(key),
        }
    }

    /// Resolves once no acquire, and no undoing of one, is under way.
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

/// The answer of a store to a request that it is never asked for, because of its [traits](StoreTraits).
fn never_asked<'a, T: Send + 'a>() -> Reply<'a, T> {
    let fault = Fault::impossible("the lock store cannot do that");
    Box::pin(std::future::ready(Err(fault)))
}

/// The properties of a store. The default is a store of mutexes with connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreTraits {
    /// The kinds that the store keeps.
    pub(crate) kinds: &'static [Kind],
    /// The number of keys that one [`renew`](Backend::renew) call may carry.
    pub(crate) renew_batch: usize,
    /// True for a quorum: one of its nodes may still keep a lock that the majority reported as not held.
    pub(crate) divided: bool,
    /// Whether the store notifies a holder that keeps a lock between its turns when another process wants the lock
    /// ([`Event::Wanted`]). Such a store [hands over](StoreTraits::hands_over).
    pub(crate) tells_keepers: bool,
    /// Whether the store can [hand over](Backend::hand_over) a lock. If not, the caller releases the lock and the next
    /// holder acquires it.
    pub(crate) hands_over: bool,
    /// Whether the store's connections or tasks end with the runtime that they were opened in. The manager then ends with it.
    pub(crate) lives_in_a_runtime: bool,
}

impl Default for StoreTraits {
    fn default() -> StoreTraits {
        StoreTraits {
            kinds: &[Kind::Mutex],
            renew_batch: 128,
            divided: false,
            tells_keepers: false,
            hands_over: false,
            lives_in_a_runtime: true,
        }
    }
}

/// The operations of a store with a waiting list for mutexes: a release reserves the lock for the first process on the
/// list.
///
/// The store decides which releases look at the list: those of a mutex for which another process waited lately.
pub(crate) trait WaitingList: Send + Sync {
    /// Like [`Backend::listen`]. The listener also receives the message that the lock is reserved for the process of
    /// `holder`.
    fn listen(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen>;

    /// Returns `true` if the process of `holder` receives the message that the lock is reserved for it. Only then may a
    /// holder be [listed](HoldRef::listed). The process must have [listened](WaitingList::listen) lately.
    fn hears(&self, key: &Key, holder: HolderId) -> bool;

    /// Takes the reservation of the lock for the holder, if a message has brought one that may be believed without a
    /// request. No request of the holder may be under way. After this call, only a request gets the lock for the holder.
    fn take_reserved(&self, key: &Key, holder: HolderId, now: Moment) -> Option<Granted>;
}

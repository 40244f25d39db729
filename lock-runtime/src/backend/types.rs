//! The values that pass through the trait: requests, answers, and events.

use std::collections::HashSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use crate::values::{Alias, FencingToken, HolderId, Key, LockMode, Moment, TokenRange, Ttl};

/// A holder, and its share of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldRef<'a> {
    pub(crate) key: &'a Key,
    pub(crate) holder: HolderId,
    /// The number of permits of a semaphore; 1 for every other kind.
    pub(crate) permits: u32,
    /// Whether the holder is, or is to be, on the store's [waiting list](super::WaitingList). If the lock is busy, a
    /// request then puts the holder on the list. A release removes the holder from the list.
    pub(crate) listed: bool,
}

impl<'a> HoldRef<'a> {
    /// Returns a reference to a hold of a lock, or to a single permit.
    pub(crate) fn one(key: &'a Key, holder: HolderId) -> HoldRef<'a> {
        let permits = 1;
        HoldRef {
            key,
            holder,
            permits,
            listed: false,
        }
    }
}

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquireRequest<'a> {
    pub(crate) hold_ref: HoldRef<'a>,
    /// The id under which a fair waiter has its place in the store's queue, if it differs from the holder's id. That is
    /// so after the old id was [outdated](super::Fault::Outdated). An unanswered request may have granted the lock to
    /// the old id; then it passes to the holder.
    pub(crate) place: Option<&'a HolderId>,
    pub(crate) ttl: Ttl,
    /// Whether a fencing token is wanted.
    pub(crate) fenced: bool,
    /// The number of permits that a semaphore is set to if it is not set.
    pub(crate) in_all: Option<NonZeroU64>,
    /// The time for which the caller goes on waiting if the lock is busy; `None` if it does not wait.
    pub(crate) waits: Option<Duration>,
    /// Whether other callers of the process wait behind this caller, so that [further turns](FurtherTurns) are useful. A
    /// store that allows none grants the lock alone.
    pub(crate) others_wait: bool,
    /// Whether the store has refused a request of this caller before. Where waiters ask after pauses, most of such
    /// requests are refused again, so a look that locks nothing comes first.
    pub(crate) again: bool,
    /// Whether the caller looks for a [reservation](super::WaitingList::take_reserved) before it asks again. Only the
    /// first request of a holder on the list may do so.
    pub(crate) looks_for_reservation: bool,
    /// The time of the call. A request that is sent at once uses it as the time of sending.
    pub(crate) asked_at: Moment,
    pub(crate) timeout: Duration,
}

impl<'a> AcquireRequest<'a> {
    /// Returns a request for a lock without a token, by a caller that does not wait. The other fields have their
    /// defaults.
    pub(crate) fn of(
        hold_ref: HoldRef<'a>,
        ttl: Ttl,
        asked_at: Moment,
        timeout: Duration,
    ) -> AcquireRequest<'a> {
        AcquireRequest {
            hold_ref,
            place: None,
            ttl,
            fenced: false,
            in_all: None,
            waits: None,
            others_wait: false,
            again: false,
            looks_for_reservation: false,
            asked_at,
            timeout,
        }
    }

    /// Returns [`place`](AcquireRequest::place), or the holder's id if it is `None`.
    pub(crate) fn place(&self) -> HolderId {
        *self.place.unwrap_or(&self.hold_ref.holder)
    }

    /// Returns the time until which an answer is awaited.
    pub(crate) fn deadline(&self) -> Moment {
        self.asked_at + self.timeout
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Acquired {
    /// The terms are there only if callers of the process [wait](AcquireRequest::others_wait). They are boxed because
    /// that is rare.
    Granted(Granted, Option<Box<FurtherTurns>>),
    /// Another holder has the lock.
    Busy {
        /// The rest of its lease, if it has one.
        left: Option<Duration>,
        /// Whether the holder keeps the lock between its turns, and was asked to give it up.
        kept: bool,
        /// Whether the caller is the first in the store's queue. `None` if it has no place there; it keeps a place as long
        /// as it asks again.
        first: Option<bool>,
    },
}

impl Acquired {
    /// Returns the answer that another holder has the lock and does not keep it, and that the caller has no place in a
    /// queue.
    pub(crate) fn busy(left: Option<Duration>) -> Acquired {
        Acquired::Busy {
            left,
            kept: false,
            first: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum AcquiredAll {
    /// The grants, in the order of the requests.
    Granted(Vec<Granted>),
    /// Another holder has one of the locks.
    Busy,
    /// One request cannot acquire these locks, or only holders that may be keeping their locks are in the way. The
    /// caller asks for each lock by itself.
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
    /// The time before the request entered any queue, such as its `asked_at`. A second sending does not change it.
    pub(crate) sent_at: Moment,
    /// The ms for which the store has only reserved the lock, and after which it is not believed any more. The watchdog
    /// asks for the lease soon. `None` for a grant of the lease. In few bytes, because every request has room for one.
    pub(crate) reserved_ms: Option<NonZeroU32>,
}

impl Granted {
    /// Returns a grant for the lease.
    pub(crate) fn leased(token: Option<FencingToken>, sent_at: Moment) -> Granted {
        Granted {
            token,
            sent_at,
            reserved_ms: None,
        }
    }
}

/// What a release does beside releasing, if the store can.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WithRelease<'a> {
    /// Reserved tokens that no hold has used. They go back.
    pub(crate) unused: Option<&'a TokenRange>,
    /// A fresh holder of the same process. If the release reserves the lock for another process, this holder is put at
    /// the end of the [waiting list](super::WaitingList), as by its first request. Once the outcome is unknown, the
    /// holder may be on the list.
    pub(crate) next: Option<&'a HolderId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    Done,
    /// The lock was released, and [`WithRelease::next`] is on the waiting list.
    DoneAndListed,
    NotHeld,
}

/// The terms on which further holds of the same process may follow this hold, without a request to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FurtherTurns {
    /// The number of waiters of other processes; `None` if it cannot be known.
    pub(crate) others: Option<u64>,
    pub(crate) spare: Spare,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HandedOver {
    Done(Granted, FurtherTurns),
    /// Neither of the two holds the lock.
    NotHeld,
}

/// The permission for further holds of the same process to run as the same holder without asking the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spare {
    /// Each further hold needs a request.
    Nothing,
    /// Further holds need no request, and have no tokens.
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
    /// Whether the renewal waits while other transactions write the key; otherwise the store may skip it. If it waits,
    /// all renewals of its batch wait and are about the same key, so that no other renewal waits with them.
    pub(crate) waits: bool,
}

/// The number of call timeouts after which a renewal is not sent any more.
pub(crate) const LAST_SENT: u32 = 3;

/// The time that a renewal may take, counted from the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    /// The time after which an answer is late, and another renewal is sent. On a database, this one may be sent even later,
    /// up to [`LAST_SENT`] times as late.
    pub(crate) timeout: Duration,
    /// The time for which an answer is of use: the core awaits it until then. If it takes longer than `timeout`, the store
    /// checks the connection meanwhile.
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
    /// Another transaction was writing the key. The renewal was left out, so that the rest of the batch did not wait.
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
    /// The permits that are free; `None` for a lock, and for a semaphore whose number the store has lost.
    pub(crate) available: Option<i64>,
    /// The number of waiters in the store's queue, which only fair locks have.
    pub(crate) queued: u64,
    /// The ids of the first waiters in their order, [`FIRST_WAITERS`] at most.
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

    /// Returns the snapshot of a semaphore with `leased` leases or leased permits, or of a counter without leases.
    pub(crate) fn of_permits(leased: u64, free: Option<i64>) -> Snapshot {
        let mode = match leased {
            0 => LockMode::Counter,
            _ => LockMode::Semaphore,
        };
        Snapshot {
            count: leased,
            available: free,
            ..Snapshot::of(mode)
        }
    }
}

/// A message from the store that answers no request.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// These holders were released by force. The receiver looks for its own holders among them.
    ForceReleased(Holders),
    /// Another client wants the lock that these holders keep. The receiver gives the lock up if it is one of them.
    Wanted(Holders),
}

/// The holders that an event names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holders {
    Id(HolderId),
    /// One or several holders, by their [`HolderId::alias`], because others can read the message.
    Aliases(Arc<HashSet<Alias>>),
}

impl Holders {
    /// Returns `true` if the event names one holder only.
    pub(crate) fn is_one(&self) -> bool {
        match self {
            Holders::Id(_) => true,
            Holders::Aliases(aliases) => aliases.len() == 1,
        }
    }
}

/// The callback through which a backend reports its events. It is called on the backend's tasks, so it must not block.
pub(crate) type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

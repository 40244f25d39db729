//! The state that a row shows, and whether a request has to wait for it; and the making of a row that a look has not found.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::backend::sql::{Arg, Purpose, Row, SqlShared};
use crate::backend::{AcquireRequest, AskedKind, FIRST_WAITERS, Fault, FoundKind, HoldRef, clash};
use crate::values::{Key, Kind, Moment, clock};

/// The row of a lock, as a look has found it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) kind: String,
    /// The exclusive holder.
    pub(super) holder: Option<String>,
    pub(super) left: Duration,
    /// The number of readers, or of leases of permits.
    pub(super) shares: u64,
    /// The holder of one of these shares.
    pub(super) sharer: Option<String>,
    /// The number of leased permits.
    pub(super) units: i64,
    pub(super) first_left: Option<Duration>,
    pub(super) last_left: Option<Duration>,
    pub(super) permits: Option<i64>,
    /// The time for which readers are kept out.
    pub(super) writer_left: Option<Duration>,
    /// True if releases are notified for a while.
    pub(super) waited: bool,
    /// True if releases say for a while that somebody waits.
    pub(super) polled: bool,
    pub(super) queued: u64,
    /// The holders of the first places in the queue.
    pub(super) first_waiters: Vec<String>,
    /// The time of the look in µs, by the server's clock.
    pub(super) now: u64,
    /// True if nobody has the lock by a lease, but a transaction has locked the row.
    pub(super) locked: bool,
}

impl SqlShared {
    /// Returns the row of that name, if there is one.
    pub(super) async fn look(&self, key: &Key, deadline: Moment) -> Result<Option<Seen>, Fault> {
        self.look_as(Purpose::Other, key, deadline).await
    }

    /// Does the same on a connection for this purpose.
    pub(super) async fn look_as(
        &self,
        purpose: Purpose,
        key: &Key,
        deadline: Moment,
    ) -> Result<Option<Seen>, Fault> {
        let args = vec![Arg::text(key.raw()), Arg::count(FIRST_WAITERS as u64)];
        let asked = self.run_for(purpose, &self.statements.look, args, deadline);
        let answer = asked.await.map_err(Fault::of_a_question)?;
        let seen = answer.row().map(read).transpose()?;
        if let Some(seen) = &seen {
            self.clock.saw(seen.now, answer.sent_at);
            self.last_seen.set(key.digest(), seen.who_holds());
            if let (Purpose::Acquire { holder: own, .. }, Some(holder)) = (purpose, &seen.holder) {
                self.others.has(key, own, holder);
            }
        }
        Ok(seen)
    }

    /// Makes the rows of names that were never used, as free. The next request takes them.
    pub(super) async fn make_rows(
        &self,
        purpose: Purpose,
        names: Vec<String>,
        deadline: Moment,
    ) -> Result<(), Fault> {
        let not_after = self.clock.not_after(clock::now(), deadline);
        let args = vec![Arg::Texts(names), Arg::moment(not_after)];
        let made = self.run_for(purpose, &self.statements.insert, args, deadline);
        made.await.map(drop)
    }
}

fn read(row: &Row) -> Result<Seen, Fault> {
    let micros = |column| -> Result<Option<Duration>, Fault> {
        let micros = row.signed(column)?;
        let micros = micros.and_then(|micros| u64::try_from(micros).ok());
        Ok(micros.map(Duration::from_micros))
    };
    let text = |column| Ok(row.text(column)?.map(str::to_owned));
    let waiters = row.text(12)?.unwrap_or_default().split_whitespace();
    Ok(Seen {
        kind: row.word(0)?,
        holder: text(1)?,
        left: micros(2)?.unwrap_or_default(),
        shares: row.number(3)?,
        units: row.signed(4)?.unwrap_or(0),
        first_left: micros(5)?,
        last_left: micros(6)?,
        sharer: text(7)?,
        permits: row.signed(8)?,
        writer_left: micros(9)?,
        waited: row.flag(10)?,
        polled: row.flag(15)?,
        queued: row.number(11)?,
        first_waiters: waiters.map(str::to_owned).collect(),
        now: row.number(13)?,
        locked: row.flag(14)?,
    })
}

/// The reason why a request was not granted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// Nothing is in its way any more.
    No,
    /// The request has to wait for this time at most.
    For(Duration),
    /// The request is of a writer that waits for readers, for this time at most.
    ByReaders(Duration),
}

impl Seen {
    /// Returns what blocks a request.
    pub(super) fn blocks(&self, request: &AcquireRequest<'_>) -> Result<Blocked, Fault> {
        let key = request.hold_ref.key;
        let wants = key.kind();
        if wants == Kind::Semaphore {
            return self.blocks_permits(request);
        }
        let shared = matches!(wants, Kind::Read | Kind::Write);
        let is_of_other_kind = match self.holder {
            Some(_) => shared != (self.kind == READ_WRITE),
            None => self.shares > 0 && !shared,
        };
        if self.permits.is_some() || self.is_ids() || is_of_other_kind {
            return Err(self.is_not(key, AskedKind::Lock(wants)));
        }
        Ok(match wants {
            _ if self.holder.is_some() => Blocked::For(self.left),
            // Only a writer that waits keeps a reader out.
            Kind::Read => self.writer_left.map_or(Blocked::No, Blocked::For),
            Kind::Write if self.shares > 0 => {
                Blocked::ByReaders(self.last_left.unwrap_or_default())
            }
            _ => Blocked::No,
        })
    }

    fn blocks_permits(&self, request: &AcquireRequest<'_>) -> Result<Blocked, Fault> {
        let key = request.hold_ref.key;
        let Some(all) = self.permits else {
            return if self.holder.is_some() || self.shares > 0 {
                Err(self.is_not(key, AskedKind::Lock(Kind::Semaphore)))
            } else {
                // The request sets them.
                may_set(request).map(|()| Blocked::No)
            };
        };
        let need = i64::from(request.hold_ref.permits);
        if need > all {
            return Err(Fault::not_so_many_permits(key.name(), Some(all)));
        }
        if all - self.units >= need {
            Ok(Blocked::No)
        } else {
            Ok(Blocked::For(self.first_left.unwrap_or(FOREVER)))
        }
    }

    /// Returns the number of permits that nobody has, or what is left of a latch.
    pub(super) fn free(&self) -> Option<i64> {
        Some(self.permits? - self.units)
    }

    /// Returns a number that differs, as a rule, if other holders have the lock or the permits.
    fn who_holds(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.holder, &self.sharer, self.shares).hash(&mut hasher);
        (self.units, self.permits).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns `true` for the row of a source of ids.
    pub(super) fn is_ids(&self) -> bool {
        self.kind == IDS && self.holder.is_some()
    }

    /// The fault of a name that is used for something else.
    pub(super) fn is_not(&self, key: &Key, asked: AskedKind) -> Fault {
        let found = match self.permits {
            Some(_) if self.units > 0 => FoundKind::Semaphore,
            Some(_) => FoundKind::Counter,
            None if self.kind == READ_WRITE => FoundKind::ReadWrite,
            None if self.is_ids() => FoundKind::Ids,
            None => FoundKind::Exclusive,
        };
        clash(key, found, asked)
    }
}

/// Refuses a request that may not set a semaphore that is not set. A request may set it if it names the number of
/// permits in all, and wants no more.
pub(super) fn may_set(request: &AcquireRequest<'_>) -> Result<(), Fault> {
    let HoldRef { key, permits, .. } = request.hold_ref;
    let in_all = request.in_all.ok_or(Fault::NotSet)?.get();
    if u64::from(permits) <= in_all {
        Ok(())
    } else {
        Err(Fault::not_so_many_permits(
            key.name(),
            i64::try_from(in_all).ok(),
        ))
    }
}

/// The value of the column `kind` for read/write locks.
pub(super) const READ_WRITE: &str = "read_write";

/// The value of the column `kind` for sources of ids, and what the name of their holder begins with.
pub(super) const IDS: &str = "ids";

/// The time to wait for permits that no end of a lease will bring. A waiter asks again within the cap of its sleep.
const FOREVER: Duration = Duration::from_secs(3_600);

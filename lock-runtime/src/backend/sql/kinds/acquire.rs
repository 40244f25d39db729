//! Acquire: one statement takes the lock if it is free. If it is not, a look at the row tells why, and what can be done
//! about it.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::seen::{Blocked, READ_WRITE, Seen, may_set};
use crate::backend::kit::undo::Undo;
use crate::backend::sql::{
    Arg, Purpose, Row, SqlAnswer, SqlShared, Statement, compensate, own_topic,
};
use crate::backend::{
    AcquireRequest, Acquired, Fault, Granted, HoldRef, QUEUE_LIFE, READERS_KEPT_OUT, Reply,
};
use crate::values::{FencingToken, Kind, Moment, clock};

/// The number of times that a request is sent, or a first look, if looks find the lock free again and again.
const TRIES: usize = 4;
/// The pauses while another transaction has locked the row. A transaction of this library is soon over; one of a caller
/// may take any time. After the last pause, the lock counts as busy.
const WHILE_LOCKED: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];

pub(in crate::backend::sql) async fn acquire(
    inner: &Arc<SqlShared>,
    request: AcquireRequest<'_>,
) -> Result<Acquired, Fault> {
    let asking = SqlAcquire {
        inner,
        request: &request,
        deadline: request.deadline(),
    };
    let (key, deadline) = (request.hold_ref.key, asking.deadline);
    let mut asked_at = Some(request.asked_at);
    let mut looks_first = request.again && key.kind() != Kind::Fair && !inner.notifies;
    let mut thorough = false;
    let mut pauses = WHILE_LOCKED.into_iter();
    for _ in 0..TRIES {
        let now = asked_at.take().unwrap_or_else(clock::now);
        if !std::mem::take(&mut looks_first)
            && let Some(granted) = asking.take(now, thorough).await?
        {
            return Ok(Acquired::Granted(granted, None));
        }
        let purpose = Purpose::acquire(request.hold_ref.holder);
        let Some(seen) = inner.look_as(purpose, key, deadline).await? else {
            if key.kind() == Kind::Semaphore {
                may_set(&request)?;
            }
            let names = vec![key.raw().to_owned()];
            inner.make_rows(purpose, names, deadline).await?;
            continue;
        };
        let left = match seen.blocks(&request)? {
            Blocked::No if seen.locked && !asking.waits_for_row() => {
                let Some(pause) = pauses.next() else {
                    return Ok(Acquired::busy(None));
                };
                clock::sleep(pause.min(deadline.remaining())).await;
                thorough = true;
                continue;
            }
            // The lock was given back meanwhile, or the holders that the row names are dead, or the request was too
            // late.
            Blocked::No if key.kind() != Kind::Fair || seen.queued == 0 => {
                thorough = true;
                continue;
            }
            Blocked::No => Some(Duration::ZERO),
            Blocked::For(left) => {
                asking.wait_for(&seen, Duration::ZERO).await?;
                Some(left)
            }
            Blocked::ByReaders(left) => {
                asking.wait_for(&seen, READERS_KEPT_OUT).await?;
                Some(left)
            }
        };
        if key.kind() == Kind::Fair && request.waits.is_some() {
            return asking.queue_up().await;
        }
        return Ok(Acquired::busy(left));
    }
    if thorough {
        // The lock changes hands all the time.
        Ok(Acquired::busy(None))
    } else {
        Err(Fault::too_late())
    }
}

/// One acquire request under way.
struct SqlAcquire<'a> {
    inner: &'a Arc<SqlShared>,
    request: &'a AcquireRequest<'a>,
    deadline: Moment,
}

impl<'a> SqlAcquire<'a> {
    /// Returns a guard that gives back what the store may have granted, unless it is disarmed.
    fn undo(&self, not_after: u64) -> Undo<impl FnOnce() + use<'a>> {
        let (inner, request, deadline) = (self.inner, self.request, self.deadline);
        Undo::armed(move || compensate(inner, request, not_after, deadline))
    }

    fn run(&self, statement: &'a Arc<Statement>, args: Vec<Arg>) -> Reply<'a, SqlAnswer> {
        let purpose = Purpose::Acquire {
            holder: self.request.hold_ref.holder,
            waits_for_row: self.waits_for_row(),
        };
        self.inner.run_for(purpose, statement, args, self.deadline)
    }

    /// Returns `true` if the request waits for a row that another transaction has locked. Where many transactions write
    /// one row in turn, these requests might starve if they did not wait for it: reads, writes beside reads, requests
    /// for permits, and those in the queue of a fair lock.
    fn waits_for_row(&self) -> bool {
        match self.request.hold_ref.key.kind() {
            Kind::Mutex | Kind::Fenced => false,
            Kind::Fair => self.request.waits.is_some(),
            Kind::Read | Kind::Write | Kind::Semaphore => true,
        }
    }

    /// Takes the lock if it is free. If `thorough`, also replaces other holders that are dead.
    async fn take(&self, now: Moment, thorough: bool) -> Result<Option<Granted>, Fault> {
        let (inner, request, deadline) = (self.inner, self.request, self.deadline);
        let not_after = inner.clock.not_after(now, deadline);
        let HoldRef {
            key,
            holder,
            permits,
            ..
        } = request.hold_ref;
        let statements = &inner.statements;
        let mut args = vec![
            Arg::text(key.raw()),
            Arg::Text(holder.text()),
            Arg::micros(request.ttl.duration()),
            Arg::moment(not_after),
        ];
        let numbered = Arg::Number((key.kind() == Kind::Fenced).into());
        let statement = match key.kind() {
            Kind::Mutex | Kind::Fenced if !thorough => {
                args.push(numbered);
                &statements.acquire
            }
            Kind::Mutex | Kind::Fenced | Kind::Write => {
                let writes = key.kind() == Kind::Write;
                let kind = if writes { READ_WRITE } else { "exclusive" };
                args.extend([numbered, Arg::text(kind)]);
                args.push(Arg::Flag(self.waits_for_row()));
                &statements.take_over
            }
            Kind::Read => &statements.read,
            Kind::Fair => {
                args[1] = Arg::Text(request.place().text());
                args.push(Arg::Text(holder.text()));
                args.push(Arg::Flag(self.waits_for_row()));
                &statements.take_turn
            }
            Kind::Semaphore => {
                let in_all = request.in_all.map_or(0, NonZeroU64::get);
                args.extend([Arg::Number(permits.into()), Arg::count(in_all)]);
                &statements.acquire_permits
            }
        };
        let undo = self.undo(not_after);
        let answer = self.run(statement, args).await;
        // A fair waiter without an answer asks again as the same holder: only a drop has to be undone.
        let asks_again = key.kind() == Kind::Fair;
        if asks_again || !matches!(answer, Err(Fault::Unknown(_) | Fault::Closed(_))) {
            undo.disarm();
        }
        let answer = answer?;
        let granted = |row| self.granted(row, answer.sent_at);
        answer.row().map(granted).transpose()
    }

    fn granted(&self, row: &Row, sent_at: Moment) -> Result<Granted, Fault> {
        let (inner, request) = (self.inner, self.request);
        // Requests for reads and permits are not fenced.
        let token = FencingToken::checked(row.number(0)?).filter(|_| request.fenced);
        // Not every database answers with its time beside the token.
        if row.0.len() > 1 {
            inner.clock.saw(row.number(1)?, sent_at);
        }
        inner.database.holds_until(sent_at + request.ttl.duration());
        Ok(Granted::leased(token, sent_at))
    }

    /// Makes sure that a release notifies a caller that goes on waiting, or lets others come first, and that readers are
    /// kept out for `keeping_out`.
    async fn wait_for(&self, seen: &Seen, keeping_out: Duration) -> Result<(), Fault> {
        let (inner, request, deadline) = (self.inner, self.request, self.deadline);
        let Some(waits) = request.waits else {
            return Ok(());
        };
        let listens = inner.notifies;
        let is_noted = match request.hold_ref.key.kind() {
            // A fair waiter has its place in the queue, and gets a message of its own.
            Kind::Fair => true,
            // Nobody who has permits lets others come first.
            Kind::Semaphore if !listens => true,
            _ if listens => seen.waited,
            _ => seen.polled,
        };
        if is_noted && keeping_out.is_zero() {
            return Ok(());
        }
        let mut pauses = WHILE_LOCKED.into_iter();
        loop {
            let args = vec![
                Arg::text(request.hold_ref.key.raw()),
                Arg::Flag(listens),
                Arg::micros(keeping_out.min(waits)),
            ];
            match inner.run(&inner.statements.wait, args, deadline).await {
                // A transaction has locked the row. A transaction of a caller notifies in any case. A waiter that does not
                // listen says it after its next look.
                Ok(answer) if answer.rows.is_empty() && listens => {
                    let Some(pause) = pauses.next() else {
                        return Ok(());
                    };
                    clock::sleep(pause.min(deadline.remaining())).await;
                }
                // The lock is busy in any case. A waiter that gets no message asks again.
                Err(fault) if !fault.is_passing() => return Err(fault),
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }

    /// Takes a place in a fair lock's queue, or keeps it.
    async fn queue_up(&self) -> Result<Acquired, Fault> {
        let (key, place) = (self.request.hold_ref.key, self.request.place());
        let inner = self.inner;
        let not_after = inner.clock.not_after(clock::now(), self.deadline);
        let args = vec![
            Arg::text(key.raw()),
            Arg::Text(place.text()),
            Arg::micros(QUEUE_LIFE),
            Arg::Text(own_topic(key, place)),
            Arg::moment(not_after),
        ];
        let asked = self.run(&inner.statements.queue_up, args);
        // The caller asks again as the same holder: only a drop has to be undone.
        let undo = self.undo(not_after);
        let answer = asked.await;
        undo.disarm();
        let answer = answer?;
        let row = answer.row().ok_or_else(Fault::too_late)?;
        let (first, left) = (row.flag(0)?, row.number(1)?);
        Ok(Acquired::Busy {
            left: Some(Duration::from_micros(left)),
            kept: false,
            first: Some(first),
        })
    }
}

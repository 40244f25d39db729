//! Plain permits and latches.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::seen::Seen;
use crate::backend::sql::{Arg, Row, SqlBackend, SqlShared, Statement, topic};
use crate::backend::{AskedKind, CounterKind, CounterRef, Counters, Fault, Listen, Reply};
use crate::values::{IdRange, IdSecret, Key, Moment, clock};

/// The number of times that a semaphore is set, if others set it by their requests and give it back each time, and that
/// permits are asked for, if a look finds each time that they are free.
const TRIES: usize = 16;

/// Returns the counter's value in the column `kind`.
fn kind_of(counter: CounterRef<'_>) -> &'static str {
    match counter.kind {
        CounterKind::Semaphore => "semaphore",
        CounterKind::Latch => "latch",
    }
}

impl SqlShared {
    /// Reads the counter's row, if there is one and it is a counter.
    async fn counter(
        &self,
        counter: CounterRef<'_>,
        deadline: Moment,
    ) -> Result<Option<Seen>, Fault> {
        let seen = self.look(counter.key, deadline).await?;
        match seen {
            Some(seen) if seen.permits.is_some() => Ok(Some(seen)),
            Some(seen) if seen.holder.is_some() || seen.shares > 0 => {
                Err(seen.is_not(counter.key, AskedKind::Counter(counter.kind)))
            }
            _ => Ok(None),
        }
    }

    /// Changes a counter by a statement whose arguments are its name and `args`. Returns no row if there was nothing to
    /// change, and fails if the name is used for something else.
    async fn change<const N: usize>(
        &self,
        counter: CounterRef<'_>,
        statement: &Arc<Statement>,
        args: [Arg; N],
        deadline: Moment,
    ) -> Result<Option<Row>, Fault> {
        let name = Arg::text(counter.key.raw());
        let args = iter::once(name).chain(args).collect();
        let row = self.ask(statement, args, deadline).await?;
        if row.is_none() {
            self.counter(counter, deadline).await?;
        }
        Ok(row)
    }

    /// Makes sure that changes are notified to callers that may wait for the counter.
    async fn wait_for_counter(
        &self,
        key: &Key,
        seen: &Seen,
        deadline: Moment,
    ) -> Result<(), Fault> {
        if seen.waited || !self.notifies {
            return Ok(());
        }
        let args = vec![Arg::text(key.raw()), Arg::Flag(true), Arg::Number(0)];
        let wait = &self.statements.wait;
        match self.ask(wait, args, deadline).await {
            // What the caller asked for is known in any case. A waiter that gets no message asks again.
            Err(fault) if !fault.is_passing() => Err(fault),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn add(&self, key: &Key, permits: i64, deadline: Moment) -> Result<(), Fault> {
        let statement = &self.statements.add_permits;
        let args = [Arg::Number(permits), Arg::Text(topic(key))];
        let counter = CounterRef::semaphore(key);
        let added = self.change(counter, statement, args, deadline);
        // A database may count the rows that change, and adding zero permits may change nothing.
        let is_set = added.await?.is_some()
            || permits == 0 && self.counter(counter, deadline).await?.is_some();
        is_set.then_some(()).ok_or(Fault::NotSet)
    }
}

fn again_and_again() -> Fault {
    Fault::not_done("others took and gave back what has its name, again and again")
}

impl Counters for SqlBackend {
    fn set<'a>(
        &'a self,
        counter: CounterRef<'a>,
        value: u64,
        timeout: Duration,
    ) -> Reply<'a, bool> {
        Box::pin(async move {
            let deadline = clock::now() + timeout;
            for _ in 0..TRIES {
                let statement = &self.inner.statements.set_counter;
                let args = [
                    Arg::text(kind_of(counter)),
                    Arg::count(value),
                    Arg::Text(topic(counter.key)),
                ];
                let set = self.inner.change(counter, statement, args, deadline);
                if set.await?.is_some() {
                    return Ok(true);
                }
                if counter.kind != CounterKind::Semaphore {
                    match self.inner.counter(counter, deadline).await? {
                        Some(_) => return Ok(false),
                        // A lock of that name was in the way, and is gone.
                        None => continue,
                    }
                }
                // A semaphore that a request has set stays from now on. Adding zero permits does that, unless its last
                // permit has come back meanwhile.
                match self.inner.add(counter.key, 0, deadline).await {
                    Err(Fault::NotSet) => {}
                    added => return added.map(|()| false),
                }
            }
            Err(again_and_again())
        })
    }

    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(async move {
            let deadline = clock::now() + timeout;
            let counter = CounterRef::semaphore(key);
            for _ in 0..TRIES {
                let statement = &self.inner.statements.limit_counter;
                let args = [Arg::count(permits), Arg::Text(topic(key))];
                let set = self.inner.change(counter, statement, args, deadline);
                if set.await?.is_some() {
                    return Ok(());
                }
                // A database may count the rows that change, and the number may be the same.
                let seen = self.inner.counter(counter, deadline).await?;
                if seen.is_some_and(|seen| seen.permits == i64::try_from(permits).ok()) {
                    return Ok(());
                }
            }
            Err(again_and_again())
        })
    }

    fn read<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, Option<i64>> {
        Box::pin(async move {
            let deadline = clock::now() + timeout;
            let inner = &self.inner;
            let seen = inner.counter(counter, deadline).await?;
            // Waiters for a latch only read it, so a read notes that they wait.
            if let (CounterKind::Latch, Some(seen)) = (counter.kind, &seen) {
                inner.wait_for_counter(counter.key, seen, deadline).await?;
            }
            Ok(seen.and_then(|seen| seen.free()))
        })
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(self.inner.add(key, permits, clock::now() + timeout))
    }

    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let inner = &self.inner;
            let deadline = clock::now() + timeout;
            for _ in 0..TRIES {
                let args = vec![
                    Arg::text(key.raw()),
                    Arg::Number(permits.into()),
                    Arg::moment(inner.clock.not_after(clock::now(), deadline)),
                ];
                let taken = inner.ask(&inner.statements.take_permits, args, deadline);
                if taken.await?.is_some() {
                    return Ok(true);
                }
                let seen = inner.counter(CounterRef::semaphore(key), deadline).await?;
                let seen = seen.ok_or(Fault::NotSet)?;
                if seen.free() < Some(permits.into()) {
                    inner.wait_for_counter(key, &seen, deadline).await?;
                    return Ok(false);
                }
                // They were given back meanwhile, or the request was too late.
            }
            Err(Fault::too_late())
        })
    }

    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64> {
        Box::pin(async move {
            let deadline = clock::now() + timeout;
            let statement = &self.inner.statements.count_down;
            let args = [Arg::Text(topic(key))];
            let latch = CounterRef::latch(key);
            let left = self.inner.change(latch, statement, args, deadline).await?;
            left.map_or(Ok(0), |row| row.number(0))
        })
    }

    fn delete<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let deadline = clock::now() + timeout;
            let statement = &self.inner.statements.delete_counter;
            let args = [
                Arg::Text(topic(counter.key)),
                Arg::Flag(counter.kind == CounterKind::Latch),
            ];
            let deleted = self.inner.change(counter, statement, args, deadline);
            Ok(deleted.await?.is_some())
        })
    }

    fn draw_ids<'a>(
        &'a self,
        key: &'a Key,
        count: u32,
        secret: Option<IdSecret>,
        timeout: Duration,
    ) -> Reply<'a, Option<IdRange>> {
        Box::pin(self.inner.draw_ids(key, count, secret, timeout))
    }

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        self.inner.listen_for_all(counter.key)
    }
}

//! Plain permits and latches.

use std::sync::Arc;
use std::time::Duration;

use super::seen::Seen;
use crate::backend::sql::pool::Purpose;
use crate::backend::sql::statements::{Arg, Row, Statement};
use crate::backend::sql::topic::topic;
use crate::backend::sql::{Inner, SqlBackend};
use crate::backend::{Asked, CounterKind, CounterRef, Counters, Fault, Listen, Reply};
use crate::values::clock;
use crate::values::key::Key;

/// What the column `kind` says of it.
fn kind_of(counter: CounterRef<'_>) -> &'static str {
    match counter.kind {
        CounterKind::Semaphore => "semaphore",
        CounterKind::Latch => "latch",
    }
}

impl Inner {
    /// Runs a statement; its first row, if there is one.
    pub(super) async fn ask(
        self: &Arc<Inner>,
        statement: &Arc<Statement>,
        args: Vec<Arg>,
        timeout: Duration,
    ) -> Result<Option<Row>, Fault> {
        let now = clock::now();
        let until = (now + timeout).into();
        let answer = self.pool.call(Purpose::Other, statement, args, now, until);
        Ok(answer.await?.rows.into_iter().next())
    }

    /// What stands there, if it is a counter.
    async fn counter(
        &self,
        key: &Key,
        asked: CounterKind,
        timeout: Duration,
    ) -> Result<Option<Seen>, Fault> {
        let now = clock::now();
        let Some(seen) = self.look(key, now, now + timeout).await? else {
            return Ok(None);
        };
        if seen.permits.is_some() {
            return Ok(Some(seen));
        }
        match seen.holder.is_some() || seen.shares > 0 {
            true => Err(seen.is_not(key, Asked::Counter(asked))),
            false => Ok(None),
        }
    }

    /// Makes sure that those who may wait for it are told.
    async fn wait_for_counter(
        self: &Arc<Inner>,
        key: &Key,
        seen: &Seen,
        timeout: Duration,
    ) -> Result<(), Fault> {
        if seen.waited || !self.database.notifies() {
            return Ok(());
        }
        let args = vec![Arg::text(key.raw()), Arg::Number(0)];
        let wait = &self.statements.wait;
        self.ask(wait, args, timeout).await.map(drop)
    }
}

impl Counters for SqlBackend {
    fn set<'a>(
        &'a self,
        counter: CounterRef<'a>,
        value: u64,
        timeout: Duration,
    ) -> Reply<'a, bool> {
        Box::pin(async move {
            let (inner, key, topic) = (&self.inner, counter.key, topic(counter.key));
            let args = vec![
                Arg::text(key.raw()),
                Arg::text(kind_of(counter)),
                Arg::count(value),
                Arg::text(&topic),
            ];
            let set = inner
                .ask(&inner.statements.set_counter, args, timeout)
                .await?;
            if set.is_none() {
                inner.counter(key, counter.kind, timeout).await?;
            }
            Ok(set.is_some())
        })
    }

    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(async move {
            let (inner, topic) = (&self.inner, topic(key));
            let args = vec![Arg::text(key.raw()), Arg::count(permits), Arg::text(&topic)];
            let set = inner
                .ask(&inner.statements.limit_counter, args, timeout)
                .await?;
            if set.is_none() {
                inner.counter(key, CounterKind::Semaphore, timeout).await?;
            }
            Ok(())
        })
    }

    fn read<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, Option<i64>> {
        Box::pin(async move {
            let inner = &self.inner;
            let seen = inner.counter(counter.key, counter.kind, timeout).await?;
            // Those who wait for a latch only look at it.
            if let (CounterKind::Latch, Some(seen)) = (counter.kind, &seen) {
                inner.wait_for_counter(counter.key, seen, timeout).await?;
            }
            Ok(seen.and_then(|seen| Some(seen.permits? - seen.units)))
        })
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(async move {
            let (inner, topic) = (&self.inner, topic(key));
            let args = vec![
                Arg::text(key.raw()),
                Arg::Number(permits),
                Arg::text(&topic),
            ];
            match inner
                .ask(&inner.statements.add_permits, args, timeout)
                .await?
            {
                Some(_) => Ok(()),
                None => {
                    inner.counter(key, CounterKind::Semaphore, timeout).await?;
                    Err(Fault::NotSet)
                }
            }
        })
    }

    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let inner = &self.inner;
            let args = vec![Arg::text(key.raw()), Arg::Number(permits.into())];
            if inner
                .ask(&inner.statements.take_permits, args, timeout)
                .await?
                .is_some()
            {
                return Ok(true);
            }
            let seen = inner.counter(key, CounterKind::Semaphore, timeout).await?;
            let seen = seen.ok_or(Fault::NotSet)?;
            inner.wait_for_counter(key, &seen, timeout).await?;
            Ok(false)
        })
    }

    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64> {
        Box::pin(async move {
            let (inner, topic) = (&self.inner, topic(key));
            let args = vec![Arg::text(key.raw()), Arg::text(&topic)];
            match inner
                .ask(&inner.statements.count_down, args, timeout)
                .await?
            {
                Some(row) => row.number(0),
                None => {
                    inner.counter(key, CounterKind::Latch, timeout).await?;
                    Ok(0)
                }
            }
        })
    }

    fn delete<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let (inner, key, topic) = (&self.inner, counter.key, topic(counter.key));
            let args = vec![
                Arg::text(key.raw()),
                Arg::text(&topic),
                Arg::Flag(counter.kind == CounterKind::Latch),
            ];
            let deleted = inner
                .ask(&inner.statements.delete_counter, args, timeout)
                .await?;
            if deleted.is_none() {
                inner.counter(key, counter.kind, timeout).await?;
            }
            Ok(deleted.is_some())
        })
    }

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        self.inner.database.listen(topic(counter.key))
    }
}

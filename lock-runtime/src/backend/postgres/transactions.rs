//! Locks of a caller's own transaction: the row stays locked until the transaction ends, so no lease is needed.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::kinds::acquire::{make_row, wait_for};
use super::kinds::seen::Blocked;
use super::listen::topic;
use super::pool::Purpose;
use super::{Inner, PostgresBackend, faults};
use crate::backend::{AcquireRequest, Fault, Reply, TakenBy, Transactions};
use crate::values::clock::{self, Moment};
use crate::values::fence::FencingToken;
use crate::values::key::Key;
use crate::values::kind::Kind;

impl Transactions for PostgresBackend {
    fn take(&self, key: &Key) -> (&str, Vec<String>) {
        let inner = &self.inner;
        let topic = match inner.target.notify {
            true => topic(key),
            false => String::new(),
        };
        let counts = i32::from(key.kind() == Kind::Fenced);
        let params = vec![key.raw().to_owned(), topic, counts.to_string()];
        (&inner.statements.take_in_transaction.text, params)
    }

    fn answered<'a>(&'a self, request: AcquireRequest<'a>, answer: &'a str) -> Reply<'a, TakenBy> {
        Box::pin(answered(&self.inner, request, answer))
    }
}

async fn answered(
    inner: &Arc<Inner>,
    request: AcquireRequest<'_>,
    answer: &str,
) -> Result<TakenBy, Fault> {
    let deadline = request.asked_at + request.timeout;
    let words: Vec<&str> = answer.split(' ').collect();
    let (place, words) = words.split_first().ok_or_else(faults::malformed)?;
    check_place(inner, place, deadline).await?;
    match words {
        ["taken", token] => {
            let token = token.parse().map_err(|_| faults::malformed())?;
            let token = FencingToken::checked(token).filter(|_| request.fenced);
            Ok(TakenBy::Asker(token))
        }
        ["refused"] => who_has_it(inner, request, deadline).await,
        ["isolation"] => Err(Fault::Impossible(
            "a lock is taken in a transaction at `read committed` alone: at the stricter levels, the transaction would read \
             what was there before it had the lock"
                .to_owned(),
        )),
        _ => Err(faults::malformed()),
    }
}

/// Refuses a transaction of another database, in which the lock would exclude nobody.
async fn check_place(inner: &Arc<Inner>, place: &str, deadline: Moment) -> Result<(), Fault> {
    // A copied text: nothing can be half done.
    let known = || inner.place.lock().unwrap_or_else(PoisonError::into_inner);
    if *known() == place {
        return Ok(());
    }
    // It was not asked for yet, or the server has started again.
    let (statement, now) = (&inner.statements.place, clock::now());
    let asked = inner
        .pool
        .call(Purpose::Other, statement, Vec::new(), now, deadline.into());
    let answer = asked.await?;
    let row = answer.rows.first().ok_or_else(faults::malformed)?;
    let own: String = row.try_get(0).map_err(|error| faults::unreadable(&error))?;
    let is_own = own == place;
    *known() = own;
    match is_own {
        true => Ok(()),
        false => Err(Fault::Impossible(format!(
            "the transaction is not in the database of this lock manager, or its table `{}` is another one: roll it back; \
             both have to use one database and one schema",
            inner.target.table.name()
        ))),
    }
}

async fn who_has_it(
    inner: &Arc<Inner>,
    request: AcquireRequest<'_>,
    deadline: Moment,
) -> Result<TakenBy, Fault> {
    let key = request.hold_ref.key;
    let asked_at = clock::now();
    let Some(seen) = inner.look(key, asked_at, deadline).await? else {
        // In a transaction of its own: others could not see a row that the caller's transaction has made.
        make_row(inner, key, deadline).await?;
        return Ok(TakenBy::Nobody);
    };
    Ok(match seen.blocks(&request)? {
        Blocked::No if seen.locked => TakenBy::Other { left: None },
        Blocked::No => TakenBy::Nobody,
        Blocked::For(left) | Blocked::ByReaders(left) => {
            wait_for(inner, &request, &seen, Duration::ZERO, deadline).await?;
            TakenBy::Other { left: Some(left) }
        }
    })
}

//! Release, and the downgrade of a write to a read.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::sql::{Arg, Purpose, SqlShared, Statement, named, undo};
use crate::backend::{Fault, HoldRef, Released};
use crate::values::{Kind, Moment, clock};

pub(in crate::backend::sql) async fn release(
    inner: &Arc<SqlShared>,
    hold_ref: HoldRef<'_>,
    timeout: Duration,
) -> Result<Released, Fault> {
    let deadline = clock::now() + timeout;
    let key = hold_ref.key;
    match key.kind() {
        Kind::Mutex | Kind::Fenced => alone(inner, hold_ref, deadline).await,
        Kind::Fair | Kind::Semaphore => {
            let left = if key.kind() == Kind::Fair {
                let args = vec![Arg::text(key.raw()), Arg::Text(hold_ref.holder.text())];
                is_done(inner, &inner.statements.leave_queue, args, deadline).await?
            } else {
                shared(inner, hold_ref, deadline).await?
            };
            if left == Released::NotHeld {
                // A request of this fair holder may be under way, and may wait for a row that somebody else has locked. A
                // lease of permits that has ended may be the last trace of a semaphore that a request has set.
                undo::settle(inner, Purpose::Change, hold_ref, deadline).await?;
            }
            Ok(left)
        }
        // A write may have become a read, and the answer that says so may be under way. A read may still be a write, or
        // it has become a read since the first statement. A read does not change any more.
        Kind::Write | Kind::Read => {
            if key.kind() == Kind::Read
                && shared(inner, hold_ref, deadline).await? == Released::Done
            {
                return Ok(Released::Done);
            }
            match alone(inner, hold_ref, deadline).await? {
                Released::NotHeld => shared(inner, hold_ref, deadline).await,
                released => Ok(released),
            }
        }
    }
}

async fn alone(
    inner: &Arc<SqlShared>,
    hold_ref: HoldRef<'_>,
    deadline: Moment,
) -> Result<Released, Fault> {
    let answer = inner
        .run(&inner.statements.release, named(hold_ref), deadline)
        .await?;
    let Some(row) = answer.row() else {
        return Ok(Released::NotHeld);
    };
    if row.flag(0)? {
        inner.others.want(hold_ref.key);
    }
    Ok(Released::Done)
}

async fn shared(
    inner: &Arc<SqlShared>,
    hold_ref: HoldRef<'_>,
    deadline: Moment,
) -> Result<Released, Fault> {
    let statement = &inner.statements.release_share;
    is_done(inner, statement, named(hold_ref), deadline).await
}

pub(in crate::backend::sql) async fn downgrade(
    inner: &Arc<SqlShared>,
    hold_ref: HoldRef<'_>,
    timeout: Duration,
) -> Result<Released, Fault> {
    let deadline = clock::now() + timeout;
    let downgrade = &inner.statements.downgrade;
    if is_done(inner, downgrade, named(hold_ref), deadline).await? == Released::Done {
        return Ok(Released::Done);
    }
    // The downgrade may have been done already.
    let args = vec![
        Arg::Texts(vec![hold_ref.key.raw().to_owned()]),
        Arg::Texts(vec![hold_ref.holder.text()]),
    ];
    is_done(inner, &inner.statements.check, args, deadline).await
}

/// Runs a statement. Returns [`Released::Done`] if it found the hold.
async fn is_done(
    inner: &Arc<SqlShared>,
    statement: &Arc<Statement>,
    args: Vec<Arg>,
    deadline: Moment,
) -> Result<Released, Fault> {
    let answer = inner.run(statement, args, deadline).await?;
    Ok(answer.row().map_or(Released::NotHeld, |_| Released::Done))
}

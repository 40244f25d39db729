//! Several mutexes by one statement: all of them or none.

use std::collections::HashMap;
use std::sync::Arc;

use crate::backend::kit::undo::Undo;
use crate::backend::sql::{Arg, Purpose, SqlAnswer, SqlShared, compensate, malformed};
use crate::backend::{AcquireRequest, AcquiredAll, Fault, Granted};
use crate::values::{FencingToken, Kind, Moment, clock};

pub(in crate::backend::sql) async fn acquire_all(
    inner: &Arc<SqlShared>,
    requests: &[AcquireRequest<'_>],
) -> Result<AcquiredAll, Fault> {
    let Some(timeout) = requests.iter().map(|request| request.timeout).min() else {
        return Ok(AcquiredAll::Granted(Vec::new()));
    };
    let mut now = clock::now();
    let deadline = now + timeout;
    for _ in 0..2 {
        if let Some(granted) = take(inner, requests, now, deadline).await? {
            return Ok(AcquiredAll::Granted(granted));
        }
        let args = vec![Arg::Texts(names(requests)), holders(requests)];
        let asked = inner.run(&inner.statements.why_not_all, args, deadline);
        let answer = asked.await?;
        let row = answer.row().ok_or_else(malformed)?;
        inner.clock.saw(row.number(2)?, answer.sent_at);
        let (rows, is_busy) = (row.number(0)?, row.flag(1)?);
        // Another holder has one of the locks.
        if is_busy {
            return Ok(AcquiredAll::Busy);
        }
        // One of the locks was never used.
        if rows < requests.len() as u64 {
            let made = inner.make_rows(purpose(requests), names(requests), deadline);
            made.await?;
        }
        now = clock::now();
    }
    // The holders that the rows name are dead, or the set changes hands all the time. The caller finds out by asking
    // for each lock by itself.
    Ok(AcquiredAll::Apart)
}

fn names(requests: &[AcquireRequest<'_>]) -> Vec<String> {
    let names = requests.iter().map(|request| request.hold_ref.key.raw());
    names.map(str::to_owned).collect()
}

fn holders(requests: &[AcquireRequest<'_>]) -> Arg {
    let holders = requests.iter().map(|request| request.hold_ref.holder);
    Arg::Texts(holders.map(|holder| holder.text()).collect())
}

/// An acquire for the holder whose id is the first to be outdated.
fn purpose(requests: &[AcquireRequest<'_>]) -> Purpose {
    let holders = requests.iter().map(|request| request.hold_ref.holder);
    let first = holders.min_by_key(|holder| holder.number());
    Purpose::acquire(first.expect("a set that is empty is not asked for"))
}

async fn take(
    inner: &Arc<SqlShared>,
    requests: &[AcquireRequest<'_>],
    now: Moment,
    deadline: Moment,
) -> Result<Option<Vec<Granted>>, Fault> {
    let not_after = inner.clock.not_after(now, deadline);
    let is_fenced = |request: &AcquireRequest<'_>| request.hold_ref.key.kind() == Kind::Fenced;
    let counts = requests.iter().map(|request| i64::from(is_fenced(request)));
    let args = vec![
        Arg::Texts(names(requests)),
        holders(requests),
        Arg::leases(requests.iter().map(|request| request.ttl)),
        Arg::moment(not_after),
        Arg::Numbers(counts.collect()),
    ];
    let undo = Undo::armed(|| {
        for request in requests {
            compensate(inner, request, not_after, deadline);
        }
    });
    let (purpose, statement) = (purpose(requests), &inner.statements.acquire_all);
    let answer = inner.run_for(purpose, statement, args, deadline).await;
    let is_known = match &answer {
        // With any other number of rows, some locks were lost before their tokens were read.
        Ok(answer) => [0, requests.len()].contains(&answer.rows.len()),
        Err(fault) => !matches!(fault, Fault::Unknown(_) | Fault::Closed(_)),
    };
    if is_known {
        undo.disarm();
    }
    let SqlAnswer { rows, sent_at } = answer?;
    if !is_known {
        return Err(malformed());
    }
    let mut taken = HashMap::new();
    for row in &rows {
        let numbers = (row.number(1)?, row.number(2)?);
        inner.clock.saw(row.number(3)?, sent_at);
        taken.insert(row.word(0)?, numbers);
    }
    let granted = requests.iter().map(|request| {
        let (token, counter) = taken.get(request.hold_ref.key.raw())?;
        let token = if is_fenced(request) { counter } else { token };
        let token = FencingToken::checked(*token).filter(|_| request.fenced);
        inner.database.holds_until(sent_at + request.ttl.duration());
        Some(Granted::leased(token, sent_at))
    });
    Ok(granted.collect())
}

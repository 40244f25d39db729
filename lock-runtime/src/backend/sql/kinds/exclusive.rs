//! The hand-over of a lock from one holder to the next, without the lock being free in between.

use std::sync::Arc;

use crate::backend::sql::{Arg, Purpose, SqlShared};
use crate::backend::{AcquireRequest, Fault, FurtherTurns, Granted, HandedOver, HoldRef, Spare};
use crate::values::{FencingToken, HolderId, Kind, TokenRange, clock};

pub(in crate::backend::sql) async fn hand_over(
    inner: &Arc<SqlShared>,
    from: HolderId,
    to: AcquireRequest<'_>,
    spare: u64,
) -> Result<HandedOver, Fault> {
    let HoldRef { key, holder, .. } = to.hold_ref;
    let deadline = to.deadline();
    let (from, next) = (from.text(), holder.text());
    let spare = if to.fenced { spare } else { 0 };
    let counts = match key.kind() {
        Kind::Fenced => spare + 1,
        _ => 0,
    };
    let args = vec![
        Arg::text(key.raw()),
        Arg::text(&from),
        Arg::text(&next),
        Arg::micros(to.ttl.duration()),
        Arg::moment(inner.clock.not_after(to.asked_at, deadline)),
        Arg::count(spare),
        Arg::count(counts),
    ];
    let (purpose, statement) = (Purpose::HandOver(holder), &inner.statements.hand_over);
    let asked = inner.run_for(purpose, statement, args, deadline);
    let answer = asked.await?;
    let sent_at = answer.sent_at;
    let Some(row) = answer.row() else {
        return not_handed_over(inner, [&from, &next], &to).await;
    };
    let column = |column| row.number(column);
    let (token, last, counter, time) = (column(0)?, column(1)?, column(2)?, column(3)?);
    let heard = clock::now();
    inner.database.holds_until(sent_at + to.ttl.duration());
    inner.clock.saw(time, sent_at);
    let others = row.signed(4)?.map(|others| others.try_into().unwrap_or(0));
    if others > Some(0) {
        inner.others.want(key);
    }
    let (given, last, clock) = match key.kind() {
        Kind::Fenced => (counter - spare, counter, None),
        _ => (token, last, Some((time, heard))),
    };
    let token = FencingToken::checked(given).filter(|_| to.fenced);
    let spare = match (token, FencingToken::checked(last)) {
        (Some(token), Some(last)) => Spare::Tokens(TokenRange::new(token, last, clock)),
        _ => Spare::Untokened,
    };
    let granted = Granted::leased(token, sent_at);
    Ok(HandedOver::Done(granted, FurtherTurns { others, spare }))
}

/// Finds out whether neither of the two holds the lock, or the request was too late. The answer that it is not held
/// reads as a loss.
async fn not_handed_over(
    inner: &Arc<SqlShared>,
    holders: [&str; 2],
    to: &AcquireRequest<'_>,
) -> Result<HandedOver, Fault> {
    let deadline = clock::now() + to.timeout;
    let seen = inner.look(to.hold_ref.key, deadline).await?;
    let holder = seen.and_then(|seen| seen.holder);
    if holder.is_some_and(|holder| holders.contains(&&*holder)) {
        Err(Fault::too_late())
    } else {
        Ok(HandedOver::NotHeld)
    }
}

//! Renewals: one statement for all exclusive holds, one for all shared holds, and one for all holds that are only
//! looked at. Rows that others have locked are left out, unless a renewal waits for its row.

use std::collections::HashMap;
use std::sync::Arc;

use crate::backend::sql::{Arg, Purpose, SqlShared, Statement, Until};
use crate::backend::{Fault, LAST_SENT, Renewal, Renewed, Within};
use crate::observe::metrics::logged;
use crate::values::{Kind, clock};

/// The number of call timeouts that an answer may take: 12 s by default, more than a third of a lease of 30 s. A longer wait
/// would keep a connection that is dead from others. A sign of life that the connection has to give before may take half of
/// it.
pub(in crate::backend) const LATE: u32 = 2 * LAST_SENT;

/// The statement that renews an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Alone,
    Share,
    Look,
}

fn way_of(renewal: &Renewal) -> By {
    match (renewal.ttl, renewal.key.kind()) {
        (None, _) => By::Look,
        (_, Kind::Read | Kind::Semaphore) => By::Share,
        (_, Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Write) => By::Alone,
    }
}

/// The clause that leaves out rows that others have locked.
const LEAVES_OUT: &str = " SKIP LOCKED";

/// Returns the statement of renewals that wait for their rows.
fn waiting(name: &'static str, leaving_out: &Statement) -> Arc<Statement> {
    Statement::new(name, leaving_out.text.replace(LEAVES_OUT, ""))
}

pub(in crate::backend::sql) async fn renew(
    inner: &Arc<SqlShared>,
    batch: &[Renewal],
    Within { timeout, useful }: Within,
) -> Result<Vec<Renewed>, Fault> {
    let began = clock::now();
    let end = began + useful;
    let waits = batch.iter().any(|renewal| renewal.waits);
    let until = || {
        let now = clock::now();
        let left = end - now;
        if waits {
            // The statement itself finds out whether the lease is over when it has the row.
            return (now + left.min(inner.call_timeout)).into();
        }
        let longest = left.min(timeout * LATE);
        Until {
            sent: now + (longest / 2).max(timeout).min(left),
            answered: now + longest,
            patience: timeout / 2,
        }
    };
    let id = |renewal: &Renewal| (renewal.key.raw().to_owned(), renewal.holder.text());
    let ids: Vec<RenewalId> = batch.iter().map(id).collect();
    let mut seen = RenewalAnswers::new();
    let asking = async {
        for by in [By::Alone, By::Share, By::Look] {
            let all = batch.iter().zip(&ids);
            let items = all.filter(|(renewal, _)| way_of(renewal) == by).collect();
            ask(inner, by, waits, items, &until, &mut seen).await?;
        }
        // A read may still be a write in the row, and may become a read between one statement and the next.
        for by in [By::Alone, By::Share] {
            let all = batch.iter().zip(&ids);
            let is_missing = |(renewal, id): &Item<'_>| {
                let was_a_write = way_of(renewal) == By::Share && renewal.key.kind() == Kind::Read;
                was_a_write && !seen.contains_key(*id)
            };
            let items = all.filter(is_missing).collect();
            ask(inner, by, waits, items, &until, &mut seen).await?;
        }
        Ok(())
    };
    let asked: Result<(), Fault> = asking.await;
    if let Some(ttl) = batch.iter().filter_map(|renewal| renewal.ttl).max() {
        inner.database.holds_until(began + ttl.duration());
    }
    // What one statement has confirmed is not lost because the next one failed.
    let missing = match asked {
        Ok(()) => Renewed::NotHeld,
        Err(fault) if seen.is_empty() => return Err(fault),
        Err(fault) => {
            logged!(debug, %fault, "only a part of a batch of renewals was answered");
            Renewed::Unknown
        }
    };
    if missing == Renewed::NotHeld && seen.len() < batch.len() {
        // What was renewed must not wait for it.
        let _ = tokio::time::timeout(timeout, inner.database.misses_holds()).await;
    }
    let answers = ids.iter().map(|id| match seen.get(id) {
        Some(true) => Renewed::Held,
        Some(false) => Renewed::LeftOut,
        None => missing,
    });
    Ok(answers.collect())
}

/// A name and its holder.
type RenewalId = (String, String);

type Item<'a> = (&'a Renewal, &'a RenewalId);

/// The answers: false if somebody else has locked the row.
type RenewalAnswers = HashMap<RenewalId, bool>;

/// Asks about these items by one statement. Items whose statement is refused are asked about by halves, so that no item
/// fails because of another one, or because all of them do not fit into MySQL's `max_allowed_packet`. If one item alone is
/// refused and there are others, it counts as left out.
async fn ask(
    inner: &SqlShared,
    by: By,
    waits: bool,
    items: Vec<Item<'_>>,
    until: &(impl Fn() -> Until + Sync),
    seen: &mut RenewalAnswers,
) -> Result<(), Fault> {
    let all = items.len();
    let mut parts: Vec<&[_]> = vec![&items];
    while let Some(part) = parts.pop() {
        match ask_at_once(inner, by, waits, part, until(), seen).await {
            Err(Fault::Impossible(_)) if part.len() > 1 => {
                parts.extend(<[_; 2]>::from(part.split_at(part.len() / 2)));
            }
            Err(Fault::Impossible(why)) if all > 1 => {
                let [(renewal, id)] = part else { continue };
                logged!(warn, "`{}` cannot be renewed: {why}", renewal.key.name());
                seen.insert((*id).clone(), false);
            }
            asked => asked?,
        }
    }
    Ok(())
}

/// Asks about these items by one statement, if there are any.
async fn ask_at_once(
    inner: &SqlShared,
    by: By,
    waits: bool,
    items: &[Item<'_>],
    until: Until,
    seen: &mut RenewalAnswers,
) -> Result<(), Fault> {
    if items.is_empty() {
        return Ok(());
    }
    let (names, holders) = items.iter().map(|(_, id)| (*id).clone()).unzip();
    let mut args = vec![Arg::Texts(names), Arg::Texts(holders)];
    let statements = &inner.statements;
    let statement = match (by, waits) {
        (By::Alone, false) => statements.renew.clone(),
        (By::Alone, true) => waiting("renew_waiting", &statements.renew),
        (By::Share, false) => statements.renew_shares.clone(),
        (By::Share, true) => waiting("renew_shares_waiting", &statements.renew_shares),
        (By::Look, _) => statements.check.clone(),
    };
    if by != By::Look {
        let ttls = items.iter().map(|(renewal, _)| renewal.ttl);
        args.push(Arg::leases(ttls.flatten()));
    }
    let calls = if waits {
        &inner.waiting_renewals
    } else {
        &inner.renewals
    };
    let asked = calls.clone().call(Purpose::Other, &statement, args, until);
    for row in asked.await?.rows {
        seen.insert((row.word(0)?, row.word(1)?), row.flag(2)?);
    }
    Ok(())
}

#[cfg(test)]
pub(in crate::backend) mod checks {
    use super::*;
    use crate::backend::sql::Statements;

    /// Checks that renewals that wait have no clause left that leaves out rows, and that the others have it.
    pub(in crate::backend) fn some_renewals_wait(statements: &Statements) {
        for statement in [&statements.renew, &statements.renew_shares] {
            assert!(statement.text.contains(LEAVES_OUT), "{}", statement.text);
            let waiting = waiting("waiting", statement);
            assert!(!waiting.text.contains("SKIP"), "{}", waiting.text);
        }
    }
}

//! Renewals: one statement for all that are held alone, one for all that are shared, one for those that are only looked
//! at.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use crate::backend::postgres::pool::{Purpose, Until};
use crate::backend::postgres::statements::Arg;
use crate::backend::postgres::{Inner, faults};
use crate::backend::{Fault, Renewal, Renewed};
use crate::values::clock;
use crate::values::kind::Kind;

/// Which statement an item goes by.
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

pub(in crate::backend::postgres) async fn renew(
    inner: &Arc<Inner>,
    batch: &[Renewal],
    timeout: Duration,
    useful: Duration,
) -> Result<Vec<Renewed>, Fault> {
    let now = clock::now();
    let until = Until {
        sent: now + timeout,
        answered: now + useful,
    };
    let holders: Vec<String> = batch.iter().map(|renewal| renewal.holder.text()).collect();
    let mut held = HashSet::new();
    for by in [By::Alone, By::Share, By::Look] {
        let items = || {
            let all = batch.iter().zip(&holders);
            all.filter(move |(renewal, _)| way_of(renewal) == by)
        };
        if items().next().is_none() {
            continue;
        }
        let names = items().map(|(renewal, _)| renewal.key.raw().to_owned());
        let names = names.collect();
        let holders = items().map(|(_, holder)| holder.clone()).collect();
        let leases = items().map(|(renewal, _)| micros(renewal)).collect();
        let mut args = vec![Arg::Texts(names), Arg::Texts(holders)];
        let statement = match by {
            By::Alone => &inner.statements.renew,
            By::Share => &inner.statements.renew_shares,
            By::Look => &inner.statements.check,
        };
        if by != By::Look {
            args.push(Arg::Numbers(leases));
        }
        let answer = inner
            .renewals
            .call(Purpose::Other, statement, args, now, until);
        for row in answer.await?.rows {
            note(&mut held, by, &row).map_err(|error| faults::unreadable(&error))?;
        }
    }
    let answers = batch.iter().zip(holders);
    Ok(answers
        .map(
            |(renewal, holder)| match held.contains(&(renewal.key.raw().to_owned(), holder)) {
                true => Renewed::Held,
                false => Renewed::NotHeld,
            },
        )
        .collect())
}

fn micros(renewal: &Renewal) -> i64 {
    let lease = renewal.ttl.map_or(Duration::ZERO, |ttl| ttl.duration());
    i64::try_from(lease.as_micros()).unwrap_or(i64::MAX)
}

fn note(
    held: &mut HashSet<(String, String)>,
    by: By,
    row: &Row,
) -> Result<(), tokio_postgres::Error> {
    let name: String = row.try_get(0)?;
    match by {
        By::Share => {
            let holders: Vec<String> = row.try_get(1)?;
            held.extend(holders.into_iter().map(|holder| (name.clone(), holder)));
        }
        By::Alone | By::Look => _ = held.insert((name, row.try_get(1)?)),
    }
    Ok(())
}

//! Ids: ranges that are drawn from a source. A source is a row that looks held, so no lock is ever made of it.

use std::time::Duration;

use super::seen::IDS;
use crate::backend::sql::{Arg, Purpose, SqlShared};
use crate::backend::{AskedKind, Fault, shuffle_clash};
use crate::values::ids::draw;
use crate::values::{IdRange, IdSecret, Key, clock};

/// The number of times that ids are drawn, if a look finds each time that nothing is in the way any more.
const TRIES: usize = 4;

/// Returns what stands for the holder of a source.
fn holder_of(secret: Option<IdSecret>) -> String {
    match secret {
        Some(secret) => format!("{IDS}:{}", secret.text()),
        None => IDS.to_owned(),
    }
}

impl SqlShared {
    /// The secret is in the condition of the statement, so ids are never shuffled by one that was replaced meanwhile.
    pub(super) async fn draw_ids(
        &self,
        key: &Key,
        count: u32,
        mut secret: Option<IdSecret>,
        timeout: Duration,
    ) -> Result<Option<IdRange>, Fault> {
        let deadline = clock::now() + timeout;
        for _ in 0..TRIES {
            let args = vec![
                Arg::text(key.raw()),
                Arg::Number(count.into()),
                Arg::Text(holder_of(secret)),
            ];
            let answer = self.run(&self.statements.draw_ids, args, deadline).await?;
            if let Some(row) = answer.row() {
                let Some(first) = row.signed(0)?.filter(|first| *first != 0) else {
                    return Ok(None);
                };
                let range = IdRange::new(first, count, secret);
                return range.map(Some).ok_or_else(Fault::no_ids_at_this_time);
            }
            let Some(seen) = self.look(key, deadline).await? else {
                let names = vec![key.raw().to_owned()];
                self.make_rows(Purpose::Change, names, deadline).await?;
                continue;
            };
            if draw(None, seen.now, count, false).is_none() {
                return Err(Fault::no_ids_at_this_time());
            }
            let kept = match &seen.holder {
                Some(holder) if seen.kind == IDS => holder.split_once(':'),
                None if seen.permits.is_none() && seen.shares == 0 => continue,
                _ => return Err(seen.is_not(key, AskedKind::Ids)),
            };
            let kept = kept.and_then(|(_, kept)| IdSecret::parse(kept));
            if kept.is_some() != secret.is_some() {
                return Err(shuffle_clash(key, kept.is_some()));
            }
            if std::mem::replace(&mut secret, kept) == kept && kept.is_some() {
                // A statement that changes nothing may have no answer.
                return Ok(None);
            }
        }
        Err(Fault::not_done(
            "the row of the ids was changed by others, again and again",
        ))
    }
}

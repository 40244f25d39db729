//! The directory of managers: a row for each, in a table of its own.

use std::time::{Duration, UNIX_EPOCH};

use crate::backend::sql::{Arg, Row, SqlBackend};
use crate::backend::{Directory, Fault, Introduction, KnownClient, Reply};
use crate::values::client::{RECORD_TTL, presentable};
use crate::values::{ClientRecord, Key, clock};

impl Directory for SqlBackend {
    fn introduce<'a>(&'a self, client: Introduction<'a>, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(async move {
            let record = client.record;
            let args = vec![
                Arg::text(client.key.raw()),
                Arg::micros(RECORD_TTL),
                Arg::micros(client.began.elapsed()),
                Arg::text(client.short_id),
                Arg::text(&record.app),
                Arg::text(&record.host),
                Arg::Number(record.process_id.into()),
                Arg::text(&record.version),
            ];
            let introduce = &self.inner.statements.introduce;
            self.inner
                .ask(introduce, args, clock::now() + timeout)
                .await
                .map(drop)
        })
    }

    fn withdraw<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(async move {
            let withdraw = &self.inner.statements.withdraw;
            let args = vec![Arg::text(key.raw())];
            self.inner
                .ask(withdraw, args, clock::now() + timeout)
                .await
                .map(drop)
        })
    }

    fn who<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<KnownClient>> {
        Box::pin(async move {
            let args = vec![Arg::text(key.raw())];
            let inner = &self.inner;
            let row = inner
                .ask(&inner.statements.who, args, clock::now() + timeout)
                .await?;
            row.as_ref().map(known).transpose()
        })
    }
}

fn known(row: &Row) -> Result<KnownClient, Fault> {
    let text = |column| row.word(column).map(|text| presentable(&text));
    Ok(KnownClient {
        record: ClientRecord {
            app: text(0)?,
            host: text(1)?,
            process_id: u32::try_from(row.number(2)?).unwrap_or(0),
            version: text(3)?,
        },
        since: UNIX_EPOCH + Duration::from_micros(row.number(4)?),
    })
}

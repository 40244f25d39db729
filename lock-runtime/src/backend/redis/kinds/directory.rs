//! The records of clients: one hash for each client, with a TTL, in a slot of its own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::{Items, Script, Source, lua, script, source};
use crate::backend::{Directory, Fault, Introduction, KnownClient, Reply};
use crate::values::client::{RECORD_TTL, presentable};
use crate::values::{ClientRecord, Key};

impl Directory for Router {
    fn introduce<'a>(&'a self, client: Introduction<'a>, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(async move {
            let (key, record) = (client.key, client.record);
            let script = Introduce {
                client: key.raw(),
                ttl_s: RECORD_TTL.as_secs(),
                age_s: client.began.elapsed().as_secs(),
                id: client.short_id,
                app: &record.app,
                host: &record.host,
                process_id: record.process_id,
                version: &record.version,
            };
            self.call(key, &script, timeout).await
        })
    }

    fn withdraw<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(async move {
            let script = Withdraw { client: key.raw() };
            self.call(key, &script, timeout).await
        })
    }

    fn who<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<KnownClient>> {
        Box::pin(async move {
            let script = Who { client: key.raw() };
            self.call(key, &script, timeout).await
        })
    }
}

script! {
    "introduce", ["range", "digits"]
    struct Introduce<'a> {
        keys { client: &'a str }
        args {
            ttl_s: u64,
            age_s: u64,
            id: &'a str,
            app: &'a str,
            host: &'a str,
            process_id: u32,
            version: &'a str
        }
    }
    |_, mut items| -> () {
        let done = items.flag()?;
        items.end(Ok(())).filter(|_| done)
    }
}

script! {
    "withdraw", "allow-oom", []
    struct Withdraw<'a> {
        keys { client: &'a str }
        args {}
    }
    |_, mut items| -> () {
        items.flag()?;
        items.end(Ok(()))
    }
}

script! {
    "who", "no-writes", []
    struct Who<'a> {
        keys { client: &'a str }
        args {}
    }
    |_, mut items| -> Option<KnownClient> {
        let [app, host] = [presentable(&items.words()?), presentable(&items.words()?)];
        let (process_id, version, since) = (items.words()?, items.words()?, items.words()?);
        let since = since.parse().ok().map(Duration::from_secs);
        let known = KnownClient {
            record: ClientRecord {
                host,
                process_id: process_id.parse().unwrap_or(0),
                version: presentable(&version),
                app,
            },
            since: since
                .and_then(|since| UNIX_EPOCH.checked_add(since))
                .unwrap_or(SystemTime::UNIX_EPOCH),
        };
        items.end(Ok(Some(known).filter(|known| !known.record.app.is_empty())))
    }
}

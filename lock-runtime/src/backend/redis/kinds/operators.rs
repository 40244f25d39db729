//! The operators' requests: inspect a lock, release it by force, check the servers.

use std::time::Duration;

use redis::Value;

use super::counters::{ReadCounter, leases};
use super::{fair, permits};
use crate::backend::redis::pubsub::messages::channel;
use crate::backend::redis::router::{Nodes, Router};
use crate::backend::redis::scripting::outcomes::Announced;
use crate::backend::redis::scripting::{Items, Script, Source, lua, script, source};
use crate::backend::{AskedKind, FIRST_WAITERS, Fault, Snapshot};
use crate::observe::metrics::logged;
use crate::values::{Checkup, Key, Kind, LockMode, clock};

impl Router {
    pub(crate) async fn inspect(
        &self,
        key: &Key,
        timeout: Duration,
    ) -> Result<Option<Snapshot>, Fault> {
        let until = clock::now() + timeout;
        let [queue, _] = fair::queue_keys(key);
        let script = Inspect {
            lock: key.raw(),
            queue: &queue,
        };
        let lock = self.call(key, &script, timeout).await;
        let script = ReadCounter {
            counter: key.raw(),
            leases: &leases(key),
        };
        let counter = async { self.call(key, &script, until.remaining()).await };
        self.or_counter(key, lock, counter).await
    }

    /// Asks once more, as for a counter, if the first answer says that the key holds no lock. That may be nothing at all: the
    /// leases of a semaphore are at a key of their own, and stay if the server loses the number of the permits.
    async fn or_counter<T>(
        &self,
        key: &Key,
        lock: Result<Option<T>, Fault>,
        counter: impl Future<Output = Result<Option<T>, Fault>>,
    ) -> Result<Option<T>, Fault> {
        match lock {
            Err(fault @ Fault::Foreign { .. }) => match counter.await {
                Err(Fault::Foreign { .. }) => Err(self.named(fault, key, AskedKind::Any).await),
                answer => answer,
            },
            Ok(None) => match counter.await {
                // This user has no right to semaphores; or the key holds a lock that is free, of dead readers alone, or that
                // somebody has taken meanwhile.
                Err(Fault::Denied(_) | Fault::Foreign { .. }) => Ok(None),
                answer => answer,
            },
            answer => answer,
        }
    }

    /// Checks whether the server grants locks, or each master of the cluster.
    pub(crate) async fn health(&self, timeout: Duration) -> Checkup {
        let deadline = clock::now() + timeout;
        let nodes = match &self.nodes {
            Nodes::One(link) => vec![link.health(self.target.shown(), deadline).await],
            Nodes::Cluster(cluster) => cluster.health(deadline).await,
        };
        Checkup {
            nodes,
            majority: false,
        }
    }

    pub(crate) async fn force_release(&self, key: &Key, timeout: Duration) -> Result<bool, Fault> {
        let until = clock::now() + timeout;
        // Releases whatever the key holds: the kind of `key` says nothing about it.
        let [queue, _] = fair::queue_keys(key);
        let script = ForceRelease {
            lock: key.raw(),
            queue: &queue,
            channel: &channel(&key.as_kind(Kind::Mutex)),
            rw_channel: &channel(&key.as_kind(Kind::Write)),
        };
        let forced = self.call(key, &script, timeout).await.map(|reply| {
            let (released, untold) = reply.done;
            if untold > 0 {
                logged!(
                    warn,
                    key = key.raw(),
                    holders = untold,
                    "a forced release had too many holders to name all of them: the others notice it at their next renewals"
                );
            }
            self.publish_all(reply.unpublished);
            released.then_some(())
        });
        let permits = async {
            let released = permits::force_release(self, key, until.remaining()).await;
            released.map(|released| released.then_some(()))
        };
        let released = self.or_counter(key, forced, permits).await;
        released.map(|released| released.is_some())
    }
}

script! {
    "force_release", "allow-oom",
    ["digits", "refusal", "holder", "mode", "timeout_key", "readers", "publish", "publish_or_append"]
    struct ForceRelease<'a> {
        keys { lock: &'a str, queue: &'a str }
        args {
            channel: &'a str,
            /// The channel of the read/write lock of the same name.
            rw_channel: &'a str
        }
    }
    // Whether it released anything, and the number of holders that no message names. Their next renewals find the loss.
    |_, mut items| -> Announced<(bool, i64)> {
        items.word("OK")?;
        let released = items.flag()?;
        let untold = items.integer().filter(|untold| *untold >= 0)?;
        Announced::read((released, untold), items)
    }
}

script! {
    "inspect", "no-writes", ["digits", "refusal", "holder", "mode", "timeout_key", "readers"]
    struct Inspect<'a> {
        keys { lock: &'a str, queue: &'a str }
        args {}
    }
    |this, mut items| -> Option<Snapshot> {
        match items.text()?.as_str() {
            "FREE" => items.end(Ok(None)),
            "HELD" => held(items, this.lock),
            _ => None,
        }
    }
}

/// Parses the rest of a `{'HELD', …}` reply.
fn held(mut items: Items, lock: &str) -> Option<Result<Option<Snapshot>, Fault>> {
    let Value::BulkString(holder) = items.value()? else {
        return None;
    };
    let Ok(holder) = String::from_utf8(holder) else {
        return Some(Err(Fault::Foreign {
            key: lock.to_owned(),
            why: "the name of its holder is not text".to_owned(),
        }));
    };
    let count = items.digits()?;
    let left = items.expiry()?;
    let (mode, number) = (items.text()?, items.integer()?);
    let number = u64::try_from(number).ok()?;
    let mut first_waiters = Vec::new();
    while let Some(waiter) = items.words() {
        first_waiters.push(waiter);
    }
    if first_waiters.len() > FIRST_WAITERS {
        return None;
    }
    let (mode, queued, readers) = match mode.as_str() {
        "exclusive" if number > 0 => (LockMode::Fair, number, 0),
        "exclusive" => (LockMode::Exclusive, 0, 0),
        "read" => (LockMode::Read, 0, number),
        "write" => (LockMode::Write, 0, 0),
        _ => return None,
    };
    items.end(Ok(Some(Snapshot {
        holder: Some(holder),
        count,
        left,
        queued,
        first_waiters,
        readers,
        ..Snapshot::of(mode)
    })))
}

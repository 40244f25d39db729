//! Tests of each script alone: its answers, and the state that it leaves behind.

mod acquire;
mod acquire_all;
mod budgets;
mod counts;
mod directory;
mod each;
mod fair;
mod holding;
mod ids;
pub(super) mod listed;
mod permits;
mod read_write;
mod refusals;
mod shortcuts;
mod spare;
mod table;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

use super::server::{self, TestServer};
use super::*;
use crate::backend::redis::kinds::operators::{ForceRelease, Inspect};
use crate::backend::redis::kinds::read_write::{
    ReadAcquire, ReadRenew, ReadWriteDowngrade, ReadWriteRelease, WriteAcquire,
};
use crate::backend::redis::pubsub::messages::CONTROL;
use crate::backend::redis::scripting::exclusive::{Acquire, HandOver, NextToken, Release, Renew};
use crate::backend::redis::scripting::grouped::{
    AcquireEach, AcquireTerms, OneAcquire, OneRelease, ReleaseEach,
};
use crate::backend::redis::scripting::outcomes::*;
use crate::backend::redis::scripting::{Script, Source, reply};
use crate::backend::{FIRST_WAITERS, Fault, Released, Renewed};

/// The key that the tests lock.
pub(super) const LOCK: &str = "lock:k";
pub(super) const WAITING: &str = "lock:waiting:{lock:k}";
pub(super) const FENCE: &str = "lock:fence:{1}";
pub(super) const CHANNEL: &str = "redisson_lock__channel:{lock:k}";
pub(super) const QUEUE: &str = "redisson_lock_queue:{lock:k}";
const RW_CHANNEL: &str = "redisson_rwlock:{lock:k}";
const LEASE: u64 = 30_000;
const FAR: u64 = 1 << 52;
/// In the place of a ttl: only checks that the hold is there.
const LOOK: i64 = 0;
/// In the place of a ttl: writes a hold that is there once more, as it is.
const MARK: i64 = -1;
/// The reply of a release of which nobody heard, or where that is not counted.
const DONE: Announced<ReleaseReply> = Announced::DONE;

/// The reply of a release whose messages were refused.
fn unpublished(messages: &[(&str, &str)]) -> Announced<ReleaseReply> {
    let owned = |&(channel, payload): &(&str, &str)| (channel.to_owned(), payload.to_owned());
    Announced {
        unpublished: messages.iter().map(owned).collect(),
        ..DONE
    }
}

/// The reply of a release whose message had this number of receivers.
fn received_by(receivers: u64) -> Announced<ReleaseReply> {
    Announced {
        done: ReleaseReply {
            receivers,
            ..DONE.done
        },
        ..DONE
    }
}

/// Returns `true` for a release whose message was published.
pub(super) fn is_done(reply: &Announced<ReleaseReply>) -> bool {
    reply.done.released == Released::Done && reply.unpublished.is_empty()
}

/// A server and a connection, with short methods for what is done on it.
struct ScriptBench {
    server: TestServer,
    connection: MultiplexedConnection,
}

impl ScriptBench {
    async fn new() -> ScriptBench {
        let server = TestServer::start().await;
        let connection = server.connection().await;
        ScriptBench { server, connection }
    }

    async fn call<S: Script>(&self, script: S) -> Result<S::Reply, Fault> {
        run(&mut self.connection.clone(), &script).await
    }

    async fn acquire(&self, holder: &str) -> AcquireReply {
        self.call(acquire(holder)).await.unwrap()
    }

    async fn token(&self, holder: &str) -> u64 {
        match self.acquire(holder).await {
            AcquireReply::Granted { token, .. } => token.unwrap().get(),
            other => panic!("{other:?}"),
        }
    }

    async fn run(&self, words: &str) -> Value {
        let mut connection = self.connection.clone();
        let done = server::run(&mut connection, server::command(words)).await;
        done.unwrap()
    }

    async fn integer(&self, words: &str) -> i64 {
        redis::from_redis_value(self.run(words).await).unwrap()
    }

    async fn text(&self, words: &str) -> Option<String> {
        reply::text(self.run(words).await)
    }

    /// Returns the number of commands that changed data, and so were sent to replicas.
    async fn changes(&self) -> u64 {
        let info = self.text("INFO persistence").await.unwrap();
        let changes = |line: &str| {
            line.strip_prefix("rdb_changes_since_last_save:")?
                .parse()
                .ok()
        };
        info.lines().find_map(changes).unwrap()
    }

    /// Runs a script with arguments that the typed call would refuse.
    async fn raw(
        &self,
        source: &Source,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value, RedisError> {
        let mut command = redis::cmd("EVAL");
        command
            .arg(source.text)
            .arg(keys.len())
            .arg(keys)
            .arg(arguments);
        server::run(&mut self.connection.clone(), command).await
    }

    /// Returns a connection of a user that has all rights, as changed by `rules`.
    async fn user(&self, rules: &str) -> MultiplexedConnection {
        self.run(&format!(
            "ACL SETUSER limited on >secret ~* &* +@all {rules}"
        ))
        .await;
        let client = redis::Client::open(self.server.url_of("limited")).unwrap();
        let connected = client
            .get_multiplexed_async_connection_with_config(&server::patient())
            .await;
        connected.unwrap()
    }
}

fn acquire(holder: &str) -> Acquire<'_> {
    Acquire {
        lock: LOCK,
        fence: Some(FENCE),
        holder,
        lease_ms: LEASE,
        not_after_us: FAR,
        counted: false,
        channel: None,
        spare: None,
    }
}

fn release(holder: &str) -> Release<'_> {
    Release::of(LOCK, holder, CHANNEL)
}

fn hand_over<'a>(from: &'a str, to: &'a str) -> HandOver<'a> {
    HandOver {
        lock: LOCK,
        fence: Some(FENCE),
        from,
        to,
        lease_ms: LEASE,
        channel: CHANNEL,
        counted: false,
        spare: 0,
    }
}

fn force() -> ForceRelease<'static> {
    ForceRelease {
        lock: LOCK,
        queue: QUEUE,
        channel: CHANNEL,
        rw_channel: RW_CHANNEL,
    }
}

fn inspect() -> Inspect<'static> {
    Inspect {
        lock: LOCK,
        queue: QUEUE,
    }
}

fn renewals(items: &[(&'static str, &str, i64)]) -> Vec<(&'static str, String, i64)> {
    items
        .iter()
        .map(|&(lock, holder, ttl)| (lock, holder.to_owned(), ttl))
        .collect()
}

/// Returns the message that names these holders.
fn names(holders: &[&str]) -> String {
    let alias = |holder: &&str| sha1_smol::Sha1::from(holder).digest().to_string()[..32].to_owned();
    holders
        .iter()
        .map(alias)
        .fold("holders:".to_owned(), |names, alias| names + &alias)
}

fn is_foreign<T: std::fmt::Debug>(answer: Result<T, Fault>, of: &str) -> bool {
    matches!(answer, Err(Fault::Foreign { key, .. }) if key == of)
}

//! Tests of the backend against real servers. `REDIS_SERVER_BIN` names the binary; the default is `redis-server`.

mod addresses;
mod backend;
#[cfg(feature = "metrics")]
mod counted;
mod group;
mod interleavings;
mod outages;
mod replicas;
mod reservations;
mod rights;
mod scripts;
pub(super) mod server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use self::server::TestServer;
use super::connection::Link;
use super::router::{Nodes, Router};
use super::{RedisBackend, Target};
use crate::backend::opening::Opening;
use crate::backend::redis::scripting::{self, Script};
use crate::backend::{AcquireRequest, Acquired, Event, Fault, Granted, HoldRef};
use crate::values::clock;
use crate::values::error::LockError;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::name::LockName;
use crate::values::options::Options;
use crate::values::ttl::Ttl;

/// This is generous, because a busy machine may stand still for a second or two.
const CALL: Duration = Duration::from_secs(15);

/// Runs a script as on a single server.
async fn run<S: Script>(
    connection: &mut MultiplexedConnection,
    script: &S,
) -> Result<S::Reply, Fault> {
    scripting::run(connection, script, scripting::Manner::PLAIN).await
}

/// Runs a script, and extends its reservation in the same step: a reservation lasts a second at most, and a busy
/// machine may stand still for longer. Returns the answer, and the first end of the lease in ms of the server's time.
async fn run_prolonged<S: Script>(
    connection: &mut MultiplexedConnection,
    script: &S,
) -> Result<(S::Reply, i64), Fault> {
    const PROLONG: &str = "local left = redis.call('PTTL', KEYS[1]) \
                           local ends = redis.call('PEXPIRETIME', KEYS[1]) \
                           if left > 0 and left <= 1000 then redis.call('PEXPIRE', KEYS[1], 60000) end \
                           return ends";
    let mut eval = redis::cmd("EVAL");
    eval.arg(S::source().text).arg(script.keys());
    script.write(&mut eval);
    let mut both = redis::pipe();
    both.atomic().add_command(eval);
    both.cmd("EVAL").arg(PROLONG).arg(1).arg(scripts::LOCK);
    let (reply, ends) = both.query_async(connection).await.unwrap();
    if let Some(fault) = scripting::reply::foreign(&reply) {
        return Err(fault);
    }
    script.read(reply).unwrap().map(|reply| (reply, ends))
}

/// The events in the order of their arrival.
type Events = Arc<Mutex<Vec<Event>>>;

async fn connect_with(
    url: &str,
    options: Options,
) -> Result<(Arc<RedisBackend>, Events), LockError> {
    connect_to(Target::parse(url)?, options).await
}

async fn connect_to(
    target: Target,
    options: Options,
) -> Result<(Arc<RedisBackend>, Events), LockError> {
    let events = Events::default();
    let sink = events.clone();
    let sink = Arc::new(move |event| sink.lock().unwrap().push(event));
    let opening = Opening {
        options,
        runtime: Handle::current(),
        events: sink,
        ids: Arc::default(),
        uptime: None,
    };
    let backend = RedisBackend::connect(target, opening).await?;
    Ok((backend, events))
}

async fn connect(server: &TestServer) -> Arc<RedisBackend> {
    let options = Options {
        call_timeout: CALL,
        ..Options::default()
    };
    connect_with(&server.url(), options).await.unwrap().0
}

impl Router {
    /// Returns the connection of a single server.
    fn link(&self) -> &Arc<Link> {
        match &self.nodes {
            Nodes::One(link) => link,
            Nodes::Cluster(_) => panic!("a cluster has many"),
        }
    }
}

fn key(name: &str) -> Arc<Key> {
    Arc::new(Key::new("lock:", &LockName::from(name), Kind::Mutex).unwrap())
}

fn request(key: &Key, holder: HolderId, lease_ms: u64) -> AcquireRequest<'_> {
    let ttl = Ttl::new(Duration::from_millis(lease_ms), false).unwrap();
    AcquireRequest {
        fenced: true,
        ..AcquireRequest::of(hold_ref(key, holder), ttl, clock::now(), CALL)
    }
}

fn hold_ref(key: &Key, holder: HolderId) -> HoldRef<'_> {
    HoldRef::one(key, holder)
}

fn granted(acquired: Acquired) -> Granted {
    match acquired {
        Acquired::Granted(granted, _) => granted,
        Acquired::Busy { .. } => panic!("busy"),
    }
}

/// Waits for a condition. Fails the test if it does not become true.
pub(super) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

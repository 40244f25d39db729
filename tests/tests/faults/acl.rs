//! Tests of the documentation's ACLs: they are enough for every kind of lock, and each of their rights is needed, or
//! can be left out as the page says. A right that is missing is named.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockManagerBuilder, Replicas};
use redis::Value;
use tests::{Events, RedisServer, answered, documented_rights, eventually};
use tokio::time::timeout;
use tracing::Level;

const MS: Duration = Duration::from_millis(1);
const WAIT: Duration = Duration::from_secs(10);
const JAVA: &str = "00000000-0000-4000-8000-000000000000:1";

/// The rights without which everything goes on as before: see the page.
const SILENT: [&str; 4] = ["+ping", "+pexpireat", "~lock-manager:*", "~lock:waiting:*"];

/// A walk through every kind of lock as one user, with what is said of it.
struct Walk<'a> {
    server: &'a RedisServer,
    url: String,
    namespace: &'a str,
    /// The beginning of every name.
    prefix: &'a str,
    said: Vec<String>,
    events: Events,
    /// True if the walk ends only after a warning that a channel could not be given up.
    lingers: bool,
}

impl Walk<'_> {
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{}{name}", self.namespace, self.prefix)
    }

    fn note<T>(&mut self, answer: Result<T, LockError>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(error) => {
                self.said.push(error.to_string());
                None
            }
        }
    }

    async fn connect(&mut self) -> Option<LockManager> {
        let connected = self.connected(self.builder()).await;
        self.note(connected)
    }

    /// Returns the settings of managers that wait for the answers of a busy machine.
    fn builder(&self) -> LockManagerBuilder {
        tests::builder().namespace(self.namespace)
    }

    async fn connected(&self, builder: LockManagerBuilder) -> Result<LockManager, LockError> {
        answered(async || builder.clone().connect(&self.url).await).await
    }

    async fn everything(&mut self) {
        self.server.flushall();
        let _: Value = self.server.query(&["SCRIPT", "FLUSH"]);
        let (Some(locks), Some(other)) = (self.connect().await, self.connect().await) else {
            return;
        };
        self.exclusive(&locks, &other).await;
        self.fair(&locks, &other).await;
        self.read_write(&locks, &other).await;
        self.counters(&locks, &other).await;
        self.forced(&locks, &other).await;
        let confirmed = self.builder().replicas(Replicas::majority());
        let confirmed = self.connected(confirmed).await;
        self.note(confirmed);
        if self.lingers {
            // Channels are given up two seconds after their last listener has left.
            let warned = async || {
                self.events
                    .of(Level::WARN)
                    .iter()
                    .any(|text| text.contains("unsubscribe"))
            };
            eventually("a channel could not be given up", warned).await;
        }
        drop((locks, other));
        self.server.flushall();
        self.server.assert_deserted().await;
    }

    /// Waits until somebody listens for the name. That may not be allowed, which a warning says.
    async fn heard_of<T>(&self, name: &str, waiting: &tokio::task::JoinHandle<T>) {
        eventually("it listens, or may not", async || {
            let channels = self.server.channels();
            waiting.is_finished()
                || channels.iter().any(|channel| channel.contains(name))
                || !self.events.of(Level::WARN).is_empty()
        })
        .await;
    }

    async fn exclusive(&mut self, locks: &LockManager, other: &LockManager) {
        for name in ["mutex", "fenced"] {
            let name = self.name(name);
            let request = |manager: &LockManager| match name.ends_with("fenced") {
                true => manager.fenced(&name),
                false => manager.mutex(&name),
            };
            let Some(guard) = self.note(request(locks).acquire().await) else {
                continue;
            };
            self.note(guard.renew(WAIT).await);
            self.note(other.inspect(&name).await);
            let waiting = tokio::spawn(request(other).wait(WAIT).acquire());
            self.heard_of(&name, &waiting).await;
            self.note(guard.release().await);
            if let Some(guard) = self.note(waiting.await.expect("no panic")) {
                self.note(guard.release().await);
            }
        }
        let both = [locks.mutex(self.name("one")), locks.mutex(self.name("two"))];
        if let Some(both) = self.note(locks.multi(both).acquire().await) {
            self.note(both.release().await);
        }
    }

    async fn fair(&mut self, locks: &LockManager, other: &LockManager) {
        let name = self.name("fair");
        let [queue, timeouts] = ["queue", "timeout"]
            .map(|what| format!("redisson_lock_{what}:{{{}}}", self.key("fair")));
        let Some(guard) = self.note(locks.fair(&name).acquire().await) else {
            return;
        };
        // This is a Redisson waiter that lives, so that ours are parked behind it.
        let later = i64::MAX.to_string();
        let _: Value = self.server.query(&["RPUSH", &queue, JAVA]);
        let _: Value = self.server.query(&["ZADD", &timeouts, &later, JAVA]);
        let request = other.fair(&name).wait(100 * MS);
        let leaving = answered(async || request.clone().acquire().await).await;
        if !matches!(leaving, Err(LockError::Busy { .. })) {
            self.note(leaving);
        }
        // The waiter leaves in the background, if it may. Nothing depends on whether it has left already.
        let left = async || self.server.query::<i64>(&["LLEN", &queue]) == 1;
        let _ = timeout(500 * MS, eventually("it leaves", left)).await;
        let _: Value = self.server.query(&["DEL", &queue, &timeouts]);
        let _: Value = self.server.query(&["RPUSH", &queue, JAVA, "another"]);
        // Half of the queue is lost: the waiter looks for itself in the other half.
        let waiting = tokio::spawn(other.fair(&name).wait(2 * WAIT).acquire());
        eventually("it queues, or has failed", async || {
            waiting.is_finished() || self.server.query::<i64>(&["LLEN", &queue]) > 2
        })
        .await;
        let _: Value = self
            .server
            .query(&["ZADD", &timeouts, "1", JAVA, "1", "another"]);
        self.note(guard.release().await);
        if let Some(guard) = self.note(waiting.await.expect("no panic")) {
            self.note(guard.release().await);
        }
    }

    async fn read_write(&mut self, locks: &LockManager, other: &LockManager) {
        let name = self.name("shared");
        let first = locks.read(&name).acquire().await;
        let second = other.read(&name).acquire().await;
        let (Some(first), Some(second)) = (self.note(first), self.note(second)) else {
            return;
        };
        self.note(first.renew(WAIT).await);
        self.note(locks.inspect(&name).await);
        let waits = format!("lock:rw:waiting:{{{}}}", self.key("shared"));
        let waiting = tokio::spawn(other.write(&name).wait(WAIT).acquire());
        // What leaves the mark is the question after which it waits.
        eventually("it waits, or has failed", async || {
            waiting.is_finished() || !other.snapshot().waited_for.is_empty()
        })
        .await;
        if !waiting.is_finished() && !self.server.exists(&waits) {
            // The preference for writers needs a right of its own. Without it, readers may go before a waiting writer.
            self.said
                .push(format!("no preference for writers: missing ~{waits}"));
        }
        self.note(first.release().await);
        self.note(second.release().await);
        let Some(writer) = self.note(waiting.await.expect("no panic")) else {
            return;
        };
        let nested = writer
            .scope(async { other.read(&name).acquire().await })
            .await;
        let nested = self.note(nested);
        self.note(writer.release().await);
        if let Some(nested) = nested {
            self.note(nested.release().await);
        }
    }

    async fn counters(&mut self, locks: &LockManager, other: &LockManager) {
        let name = self.name("semaphore");
        let semaphore = locks.semaphore(&name);
        self.note(semaphore.try_set_permits(2).await);
        let leased = semaphore.permits(2).acquire().await;
        if let Some(leased) = self.note(leased) {
            self.note(leased.renew(WAIT).await);
            self.note(locks.inspect(&name).await);
            let waiting = tokio::spawn(other.semaphore(&name).permits(1).wait(WAIT).acquire());
            self.heard_of(&name, &waiting).await;
            self.note(leased.release().await);
            if let Some(guard) = self.note(waiting.await.expect("no panic")) {
                self.note(guard.release().await);
            }
        }
        // A lease of somebody else that is over is taken back.
        let leases = format!("{{{}}}:timeout", self.key("semaphore"));
        let _: Value = self
            .server
            .query(&["ZADD", &leases, "1", "0123456789abcdef"]);
        if let Some(guard) = self.note(semaphore.permits(1).acquire().await) {
            self.note(guard.release().await);
        }
        self.note(semaphore.add_permits(1).await);
        self.note(semaphore.delete().await);
        let latch = locks.latch(self.name("latch"));
        self.note(latch.try_set_count(1).await);
        let waiting = other.latch(self.name("latch"));
        let waiting = tokio::spawn(async move { waiting.opened().wait(WAIT).await });
        self.note(latch.count_down().await);
        self.note(waiting.await.expect("no panic"));
    }

    async fn forced(&mut self, locks: &LockManager, other: &LockManager) {
        let (mutex, shared, permits) = (
            self.name("forced"),
            self.name("forced-rw"),
            self.name("forced-permits"),
        );
        let held = self.note(locks.mutex(&mutex).acquire().await);
        self.note(other.force_release(&mutex).await);
        drop(held);
        let held = self.note(locks.read(&shared).acquire().await);
        self.note(other.force_release(&shared).await);
        drop(held);
        self.note(locks.semaphore(&permits).try_set_permits(1).await);
        let held = self.note(locks.semaphore(&permits).permits(1).acquire().await);
        self.note(other.force_release(&permits).await);
        drop(held);
    }
}

/// Returns what is said when every kind of lock is used with these rights.
async fn said_with(
    server: &RedisServer,
    user: &str,
    rights: &[&str],
    namespace: &str,
    prefix: &str,
) -> Vec<String> {
    let mut command = vec!["ACL", "SETUSER", user, "reset", "on", ">secret"];
    command.extend(rights);
    let _: Value = server.query(&command);
    let events = Events::default();
    let _guard = tracing::subscriber::set_default(events.clone());
    let mut walk = Walk {
        server,
        url: server.url_with(user, "secret"),
        namespace,
        prefix,
        said: Vec::new(),
        events: events.clone(),
        lingers: !rights.contains(&"+unsubscribe"),
    };
    walk.everything().await;
    // The walk causes these on purpose.
    let expected = |text: &String| {
        text.contains("lock lost")
            || text.contains("more locks lost")
            || text.contains(" was lost after ")
            || text.contains("fewer replicas are connected")
            || is_of_a_busy_machine(text)
    };
    walk.said.extend(
        events
            .of(Level::WARN)
            .into_iter()
            .filter(|text| !expected(text)),
    );
    walk.said
}

/// Returns whether it is said of a machine on which answers are late, and names no right that is missing.
pub(crate) fn is_of_a_busy_machine(text: &str) -> bool {
    let late = [
        "waited over 1 s",
        "renewal failed",
        "answer to a renewal",
        "renewals of more holds",
        "reconnecting",
        "retrying",
    ];
    let names_a_right = text.contains("missing rights") || text.contains("NOPERM");
    !names_a_right && late.iter().any(|late| text.contains(late))
}

/// Returns what a text must contain to name the right.
fn name_of(right: &str) -> String {
    let name = right.trim_start_matches(['+', '&']).trim_end_matches('*');
    name.replace('|', " ").to_lowercase()
}

fn names(said: &[String], right: &str) -> bool {
    said.iter().any(|text| {
        text.to_lowercase()
            .replace('|', " ")
            .contains(&name_of(right))
    })
}

async fn each_right_is_needed(begin: &str, namespace: &str, prefix: &str) {
    let rights = documented_rights(begin);
    let server = RedisServer::start();
    let all = said_with(&server, "all", &rights, namespace, prefix).await;
    assert!(all.is_empty(), "{all:#?}");
    let refused: Vec<Value> = server.query(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "{refused:?}");
    let mut unnamed = BTreeMap::new();
    for (at, right) in rights
        .iter()
        .enumerate()
        .filter(|(_, right)| right.starts_with(['+', '~', '&']))
    {
        let fewer: Vec<_> = rights
            .iter()
            .filter(|other| *other != right)
            .copied()
            .collect();
        let said = said_with(&server, &format!("but{at}"), &fewer, namespace, prefix).await;
        if SILENT.contains(right) {
            assert!(said.is_empty(), "{right}: {said:#?}");
        } else if !names(&said, right) {
            unnamed.insert(*right, said);
        }
    }
    assert!(unnamed.is_empty(), "{unnamed:#?}");
}

#[tokio::test]
async fn every_documented_right_is_needed_and_named_when_missing() {
    each_right_is_needed("ACL SETUSER locks on >PASSWORD", "lock:", "").await;
}

#[tokio::test]
async fn every_documented_right_for_bare_names_is_needed_and_named() {
    each_right_is_needed("ACL SETUSER bare-locks on >PASSWORD", "", "orders:").await;
}

/// A read needs each of these rights for itself. A write needs this one only when it is given back.
#[tokio::test]
async fn a_write_that_could_not_be_released_is_refused_before_a_grant() {
    let server = RedisServer::start();
    let rights = documented_rights("ACL SETUSER locks on >PASSWORD");
    let fewer: Vec<_> = rights
        .into_iter()
        .filter(|right| !right.starts_with("~{lock:"))
        .collect();
    let mut command = vec!["ACL", "SETUSER", "writer", "on", ">secret"];
    command.extend(&fewer);
    let _: Value = server.query(&command);
    let url = server.url_with("writer", "secret");
    let connecting = async || tests::builder().connect(&url).await;
    let locks = answered(connecting).await.unwrap();
    let refused = answered(async || locks.write("k").acquire().await).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("~{lock:k}"), "{refused}");
    assert!(!server.exists("lock:k"));
    drop(locks.mutex("k").acquire().await.unwrap());
}

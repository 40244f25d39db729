//! Tests of what a server refuses for good: it is reported at once, by name, without the password.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockMode, LostReason, Replicas, TryAcquire};
use redis::Value;
use tests::eventually::PATIENCE;
use tests::faults::{behind_a_proxy, connected, free_within, renewed, took, use_once};
use tests::{FaultProxy, RedisServer, eventually};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(240);
const PASSWORD: &str = "hunter2-secret";

/// Returns the rules of the documentation's `ACL SETUSER`, from `resetkeys` to the end of its block.
fn documented_rights() -> String {
    tests::documented_rights("ACL SETUSER locks on >PASSWORD").join(" ")
}

fn server_with_rights(more: &str) -> RedisServer {
    let rights = format!("on >{PASSWORD} {} {more}", documented_rights());
    RedisServer::builder().user("locks", &rights).start()
}

fn url(server: &RedisServer) -> String {
    server.url_with("locks", PASSWORD)
}

fn assert_denied(error: &LockError, named: &str) {
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
    assert!(error.to_string().contains(named), "{named}: {error}");
    assert!(!error.is_retryable());
    let shown = format!("{error} {error:?} {error:#?}");
    assert!(!shown.contains(PASSWORD), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_for_everything() {
    let server = server_with_rights("");
    let locks = tests::connected(&url(&server)).await;
    let other = tests::connected(&url(&server)).await;
    let confirmed = tests::builder().replicas(Replicas::majority());
    drop(connected(confirmed, &url(&server)).await);
    let renewed = locks.mutex("renewed").lease(30_000 * MS);
    let renewed = renewed.acquire().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let manager = [&locks, &other][task % 2].clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                free_within(&manager, "hot", LONG).await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let semaphore = other.semaphore("permits");
    assert!(semaphore.try_set_permits(3).await.unwrap());
    let leased = semaphore.permits(2).lease(LONG).acquire().await;
    let leased = leased.unwrap();
    let short = semaphore.permits(1).lease(1_000 * MS).auto_renew(false);
    let short = short.acquire().await.unwrap();
    let waited = locks.semaphore("permits").permits(1).wait(LONG);
    waited.acquire().await.unwrap().release().await.unwrap();
    semaphore.add_permits(1).await.unwrap();
    let plain = other.plain_semaphore("plain");
    plain.try_set_permits(1).await.unwrap();
    plain.permits(1).wait(LONG).acquire().await.unwrap();
    plain.release(1).await.unwrap();
    plain.delete().await.unwrap();
    for ids in [locks.ids("ids"), locks.ids("shuffled").shuffled()] {
        ids.next().await.unwrap();
    }
    server.query::<i64>(&["DEL", "lock:ids", "lock:shuffled"]);
    let latch = locks.latch("latch");
    latch.try_set_count(1).await.unwrap();
    let waiting = other.latch("latch");
    let waiting = tokio::spawn(async move { waiting.opened().wait(LONG).await });
    eventually("it listens", async || {
        server
            .channels()
            .iter()
            .any(|channel| channel.contains("latch"))
    })
    .await;
    latch.count_down().await.unwrap();
    waiting.await.unwrap().unwrap();
    let _: Value = server.query(&["SCRIPT", "FLUSH"]);
    let reader = locks.read("shared").acquire().await.unwrap();
    // A renewal may be quicker than the message: a read that was a write is asked about at once.
    let told = [LostReason::ForceReleased, LostReason::Refused];
    let write = other.write("shared").lease(20 * LONG).auto_renew(false);
    let writing = tokio::spawn(write.wait(LONG).acquire());
    eventually("the writer waits", async || {
        matches!(
            locks.read("shared").try_acquire().await.unwrap(),
            TryAcquire::Busy { .. }
        )
    })
    .await;
    reader.release().await.unwrap();
    let writer = writing.await.unwrap().unwrap();
    assert_eq!(
        other.inspect("shared").await.unwrap().mode,
        Some(LockMode::Write)
    );
    let read = other.read("shared").lease(20 * LONG).auto_renew(false);
    let nested = writer.scope(async { read.acquire().await });
    let nested = nested.await.unwrap();
    writer.release().await.unwrap();
    assert!(other.force_release("shared").await.unwrap());
    assert!(told.contains(&nested.lost().wait().await));
    drop(nested);
    let forced = locks.mutex("forced").acquire().await.unwrap();
    assert!(other.inspect("forced").await.unwrap().held);
    assert!(other.force_release("forced").await.unwrap());
    assert_eq!(forced.lost().wait().await, LostReason::ForceReleased);
    server.cut_clients();
    free_within(&locks, "hot", LONG).await;
    eventually("both are told of forced releases again", async || {
        server.subscribers("lock:control:released") == 2
    })
    .await;
    let mut left = Duration::MAX;
    eventually("it is renewed", async || {
        assert!(renewed.is_held());
        let before = std::mem::replace(&mut left, renewed.remaining());
        left > before
    })
    .await;
    renewed.release().await.unwrap();
    assert!(leased.is_held());
    assert!(other.inspect("permits").await.unwrap().held);
    assert!(other.force_release("permits").await.unwrap());
    assert!(told.contains(&leased.lost().wait().await));
    drop((leased, short));
    assert_eq!(semaphore.available().await.unwrap(), 4);
    assert!(semaphore.delete().await.unwrap());
    let fair = locks.fair("fair").acquire().await.unwrap();
    let next = tokio::spawn(other.fair("fair").wait(LONG).acquire());
    let queued = async |count| {
        let seen = async || locks.inspect("fair").await.unwrap().waiters == count;
        eventually("they queue", seen).await;
    };
    queued(1).await;
    let leaving = tokio::spawn(other.fair("fair").wait(LONG).acquire());
    queued(2).await;
    leaving.abort();
    queued(1).await;
    // Half of the lock's queue is lost, and the next question mends it.
    server.query::<Value>(&["DEL", "redisson_lock_timeout:{lock:fair}"]);
    eventually("it asks again", async || {
        server.exists("redisson_lock_timeout:{lock:fair}")
    })
    .await;
    fair.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
    drop(forced);
    locks.shutdown().await;
    let refused: Vec<Value> = server.query(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "{refused:?}");
    drop((locks, other, semaphore, plain, latch));
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_missing_right_is_named_at_connect() {
    for (missing, named) in [
        ("-hset", "acquire"),
        ("-hset", "missing rights: +hset"),
        ("-time", "TIME"),
        ("-hexists", "renew"),
        ("-hdel", "handover"),
        ("-evalsha", "evalsha"),
        ("resetkeys ~other:*", "missing rights: ~lock:"),
    ] {
        let server = server_with_rights(missing);
        let proxy = FaultProxy::start(server.addr()).await;
        let url = format!("redis://locks:{PASSWORD}@{}/", proxy.addr());
        let error = tests::builder().connect(&url).await.unwrap_err();
        assert_eq!(proxy.connections(), 1, "{missing}: no retry");
        assert!(
            error
                .to_string()
                .to_lowercase()
                .contains(&named.to_lowercase()),
            "{missing}: {error}"
        );
        assert_denied(&error, "");
        eventually("nothing is left", async || server.stray_keys().is_empty()).await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_denied_at_once_and_asked_once() {
    let server = RedisServer::builder().requirepass("correct").start();
    for login in [
        format!(":{PASSWORD}@"),
        format!("default:{PASSWORD}@"),
        format!("nobody:{PASSWORD}@"),
        String::new(),
    ] {
        let proxy = FaultProxy::start(server.addr()).await;
        let url = format!("redis://{login}{}/", proxy.addr());
        let error = tests::builder().connect(&url).await.unwrap_err();
        assert_denied(&error, "");
        eventually("the connection is gone", async || {
            proxy.open_connections() == 0
        })
        .await;
        assert_eq!(proxy.connections(), 1, "no retry");
    }
}

#[tokio::test]
async fn a_wrong_password_of_a_lazy_manager_is_told_by_its_first_call() {
    let server = RedisServer::builder().requirepass("correct").start();
    let url = server.url_with("default", PASSWORD);
    let locks = tests::builder().lazy(true).connect(&url).await.unwrap();
    assert!(!format!("{locks:?} {locks:#?}").contains(PASSWORD));
    let (refused, waited) = took(locks.mutex("k").wait(LONG).acquire()).await;
    assert_denied(&refused.unwrap_err(), "`k`");
    assert!(waited < PATIENCE, "no wait can help: {waited:?}");
}

#[tokio::test]
async fn a_password_in_a_url_that_cannot_be_used_is_not_shown() {
    for url in [
        format!("redis://locks:{PASSWORD}@127.0.0.1:1/"),
        format!("redis://locks:{PASSWORD}@127.0.0.1:notaport/"),
        format!("redis://locks:{PASSWORD}@/notadatabase"),
        format!("redis://locks:{PASSWORD}@[::1/"),
        format!("rediss://locks:{PASSWORD}@127.0.0.1:1/#what"),
        format!("nonsense://locks:{PASSWORD}@127.0.0.1/"),
        format!("locks:{PASSWORD}@127.0.0.1"),
        format!("unix:///nowhere?user=locks&pass={PASSWORD}"),
    ] {
        let error = LockManager::connect(&url).await.unwrap_err();
        let shown = format!("{error} {error:?} {error:#?}");
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
}

#[tokio::test]
async fn revoked_rights_end_waits_in_time_and_holds_on_time() {
    let server = server_with_rights("");
    let holder = tests::connected(&url(&server)).await;
    let other = tests::connected(&server.url()).await;
    let taken = other.mutex("taken").acquire().await.unwrap();
    let guard = holder.mutex("k").lease(1_000 * MS).acquire().await.unwrap();
    let (refused, left) = (25_000 * MS, 8_000 * MS);
    let waiting = took(holder.mutex("taken").wait(refused).acquire());
    let waiting = tokio::spawn(waiting);
    eventually("it waits", async || holder.snapshot().waited_for.len() == 1).await;
    let _: Value = server.query(&["ACL", "SETUSER", "locks", "-hset", "-hexists", "-hlen"]);
    // A renewal that is denied says nothing about the hold, which ends when its lease does.
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    drop(guard);
    // The store served this manager's mutexes before: the right may come back until the wait is over.
    let (answer, waited) = waiting.await.unwrap();
    assert_denied(&answer.unwrap_err(), "`taken`");
    assert!(waited >= refused, "{waited:?}");
    let (refused, waited) = took(holder.mutex("new").wait(left).acquire()).await;
    assert_denied(&refused.unwrap_err(), "missing rights: +h");
    assert!(waited >= left, "{waited:?}");
    let (refused, waited) = took(holder.mutex("new").try_acquire()).await;
    assert_denied(&refused.unwrap_err(), "`new`");
    assert!(waited < PATIENCE, "it does not wait: {waited:?}");
    // Of locks of a kind that it never served, no wait can help.
    let (refused, waited) = took(holder.write("new").wait(LONG).acquire()).await;
    assert_denied(&refused.unwrap_err(), "`new`");
    assert!(waited < PATIENCE, "no wait can help: {waited:?}");
    taken.release().await.unwrap();
}

#[tokio::test]
async fn a_user_that_is_deleted_and_comes_back_is_served_again() {
    let server = server_with_rights("");
    let locks = tests::connected(&url(&server)).await;
    let _: Value = server.query(&["ACL", "DELUSER", "locks"]);
    eventually("it is told", async || {
        let tried = locks.mutex("k").try_acquire().await;
        tried.is_err_and(|error| matches!(error, LockError::Denied { .. }))
    })
    .await;
    let rights = documented_rights();
    let mut command = vec!["ACL", "SETUSER", "locks", "on"];
    let password = format!(">{PASSWORD}");
    command.push(&password);
    command.extend(rights.split(' '));
    let _: Value = server.query(&command);
    eventually("it is served", async || {
        matches!(
            locks.mutex("k").try_acquire().await,
            Ok(TryAcquire::Acquired(_))
        )
    })
    .await;
}

#[tokio::test]
async fn errors_name_the_lock_and_show_no_holder() {
    let server = RedisServer::start();
    let holder = tests::connected(&server.url()).await;
    let (_proxy, other) = behind_a_proxy(&server, tests::builder()).await;
    let guard = holder.mutex("k").acquire().await.unwrap();
    let id: Vec<String> = server.query(&["HKEYS", "lock:k"]);
    let client = id[0].split(':').next().unwrap();
    assert_eq!(client.len(), 36, "a uuid: {id:?}");
    let mut shown = format!(
        "{guard:?} {holder:?} {:?} {:?}",
        guard.lease(),
        guard.lost()
    );
    shown += &format!("{:?}", other.inspect("k").await.unwrap());
    let busy = other.mutex("k").wait(50 * MS).acquire().await.unwrap_err();
    assert!(busy.to_string().contains("`k`"));
    shown += &format!("{busy} {busy:?}");
    assert!(other.force_release("k").await.unwrap());
    guard.lost().wait().await;
    let lost = guard.release().await.unwrap_err();
    assert!(lost.to_string().contains("`k`"));
    shown += &format!("{lost} {lost:?}");
    assert!(!shown.contains(client), "{shown}");
}

#[tokio::test]
async fn a_key_that_is_refused_takes_no_other_hold_with_it() {
    let server = server_with_rights("");
    let builder = tests::builder().lease(30_000 * MS);
    let locks = connected(builder, &url(&server)).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(locks.mutex(format!("m{number}")).acquire().await.unwrap());
        guards.push(locks.read(format!("r{number}")).acquire().await.unwrap());
    }
    // All keys but those of two locks.
    let allowed = (0..20).filter(|number| *number != 7 && *number != 13);
    let names = allowed.flat_map(|number| [format!("lock:m{number}"), format!("lock:r{number}")]);
    let allowed: Vec<_> = names.map(|name| format!("~{name} ~*{{{name}}}*")).collect();
    let allowed = allowed.join(" ");
    let mut command = vec!["ACL", "SETUSER", "locks", "resetkeys"];
    command.extend(allowed.split(' '));
    server.query::<Value>(&command);
    let (refused, others): (Vec<_>, Vec<_>) = guards
        .into_iter()
        .partition(|guard| ["m7", "m13", "r7", "r13"].contains(&guard.name()));
    assert_eq!(refused.len(), 4);
    for guard in &refused {
        assert_eq!(guard.lost().wait().await, LostReason::Expired);
    }
    renewed(&others).await;
}

#[tokio::test]
async fn rights_revoked_together_leave_no_lock_without_an_expiry() {
    let server = server_with_rights("");
    let locks = tests::connected(&url(&server)).await;
    let requests = || {
        let [fenced, fair, read, write] = [
            locks.fenced("fenced"),
            locks.fair("fair"),
            locks.read("read"),
            locks.write("write"),
        ];
        [locks.mutex("mutex"), fenced, fair, read, write]
            .map(|request| request.wait(Duration::ZERO))
    };
    let several = || {
        let several = ["one", "two"].map(|name| locks.mutex(name));
        locks.multi(several).wait(Duration::ZERO)
    };
    for request in requests() {
        request.acquire().await.unwrap().release().await.unwrap();
    }
    several().acquire().await.unwrap().release().await.unwrap();
    let rights = ["ACL", "SETUSER", "locks", "-pexpire", "-del"];
    let _: Value = server.query(&rights);
    for request in requests() {
        assert_denied(&request.acquire().await.unwrap_err(), "+pexpire");
    }
    assert_denied(&several().acquire().await.unwrap_err(), "+pexpire");
    for name in ["mutex", "fenced", "fair", "read", "write", "one", "two"] {
        assert!(
            !server.exists(&format!("lock:{name}")),
            "{name} stays taken"
        );
    }
}

#[tokio::test]
async fn a_release_whose_key_is_refused_for_a_while_is_repeated() {
    let server = server_with_rights("");
    let builder = tests::builder().call_timeout(2_000 * MS);
    let locks = connected(builder, &url(&server)).await;
    let request = locks.mutex("k").lease(LONG);
    use_once(request.clone()).await;
    let guard = request.acquire().await.unwrap();
    let set = |rule: &str| server.query::<Value>(&["ACL", "SETUSER", "locks", rule]);
    set("resetkeys");
    let released = guard.release().await.unwrap_err();
    assert!(
        matches!(released, LockError::Unavailable { .. }),
        "{released:?}"
    );
    assert!(server.exists("lock:k"), "nothing gave it back");
    set("~*");
    eventually("it is given back", async || !server.exists("lock:k")).await;
}

#[tokio::test]
async fn a_kind_without_the_rights_to_release_is_refused_at_once() {
    // Each right is one that only the scripts need that give back or renew.
    for (right, kind) in [("zrem", "permits"), ("lpop", "fair"), ("pexpire", "write")] {
        let server = server_with_rights("");
        let locks = tests::connected(&url(&server)).await;
        assert!(locks.semaphore("permits").try_set_permits(1).await.unwrap());
        let request = || match kind {
            "permits" => locks.semaphore("permits").permits(1),
            "fair" => locks.fair("fair"),
            _ => locks.write("write"),
        };
        let set = |rule: &str| server.query::<Value>(&["ACL", "SETUSER", "locks", rule]);
        set(&format!("-{right}"));
        let refused = request().acquire().await.unwrap_err();
        assert_denied(&refused, &format!("+{right}"));
        let name = format!("lock:{kind}");
        let stands = match kind {
            "permits" => server.query::<u64>(&["ZCARD", "{lock:permits}:timeout"]) > 0,
            _ => server.exists(&name),
        };
        assert!(!stands, "nothing was taken");
        set(&format!("+{right}"));
        request().acquire().await.unwrap().release().await.unwrap();
    }
}

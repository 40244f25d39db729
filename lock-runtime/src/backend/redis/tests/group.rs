//! Tests of requests that share a script: each gets its own answer, and a caller that leaves early leaves no lock
//! behind.

use std::task::Poll;
use std::time::Instant;

use super::*;
use crate::backend::redis::connection::sharing::UnderWay;
use crate::backend::redis::scripting::grouped::ReleaseEach;
use crate::backend::{Backend, Released};
use crate::values::holder::HolderIds;

const TASKS: usize = 200;

type AskedKind = (Arc<Key>, HolderId, Result<Acquired, Fault>);

/// Acquires a lock for each name, all at once, and returns the answers in the order of the names.
async fn acquire_many(backend: &Arc<RedisBackend>, names: &[String]) -> Vec<AskedKind> {
    let ids = HolderIds::new();
    let asked = names.iter().map(|name| {
        let (backend, key, holder) = (backend.clone(), key(name), ids.fresh());
        tokio::spawn(async move {
            let answer = backend.acquire(request(&key, holder, 60_000)).await;
            (key, holder, answer)
        })
    });
    let mut answers = Vec::new();
    for asked in asked.collect::<Vec<_>>() {
        answers.push(asked.await.unwrap());
    }
    answers
}

async fn release_many(backend: &Arc<RedisBackend>, held: Vec<AskedKind>) {
    let released = held.into_iter().map(|(key, holder, _)| {
        let backend = backend.clone();
        tokio::spawn(async move { backend.release(hold_ref(&key, holder), CALL).await })
    });
    for released in released.collect::<Vec<_>>() {
        assert_eq!(released.await.unwrap().unwrap(), Released::Done);
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("k{i}")).collect()
}

/// Returns the number of scripts that were sent to the server.
async fn scripts(server: &TestServer) -> u64 {
    let stats = server.text("INFO commandstats").await;
    let calls = stats.lines().find_map(|line| {
        let rest = line.strip_prefix("cmdstat_evalsha:calls=")?;
        rest.split(',').next()?.parse().ok()
    });
    calls.unwrap_or(0)
}

/// The size up to which glibc keeps blocks ready for each thread. For larger blocks, it searches its lists, and it
/// joins such blocks when they are freed.
const SERVED_AT_ONCE: usize = 1032;

#[tokio::test]
async fn futures_of_grouped_requests_fit_the_allocators_cache() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (key, holder) = (key("k"), HolderIds::new().fresh());
    let acquire = backend.acquire(request(&key, holder, 60_000));
    let release = backend.release(hold_ref(&key, holder), CALL);
    let (acquire, release) = (size_of_val(&*acquire), size_of_val(&*release));
    assert!(
        acquire.max(release) <= SERVED_AT_ONCE,
        "{acquire} and {release} bytes"
    );
}

#[tokio::test]
async fn requests_at_once_share_scripts_and_get_their_own_answers() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    // The shared scripts are loaded when they are first sent. Until then, each request is sent alone.
    let first = acquire_many(&backend, &names(TASKS)).await;
    release_many(&backend, first).await;
    let before = scripts(&server).await;
    let held = acquire_many(&backend, &names(TASKS)).await;
    for (key, holder, answer) in &held {
        let Acquired::Granted(granted, _) = answer.as_ref().unwrap() else {
            panic!("{key:?} is free");
        };
        assert!(granted.token.is_some());
        let found = format!("HGET {} {}", key.raw(), holder.text());
        assert_eq!(server.text(&found).await, "1", "it is not another's answer");
    }
    let again = acquire_many(&backend, &names(TASKS)).await;
    for (key, _, answer) in &again {
        assert!(
            matches!(answer, Ok(Acquired::Busy { left: Some(_), .. })),
            "{key:?}: {answer:?}"
        );
    }
    release_many(&backend, held).await;
    let sent = scripts(&server).await - before;
    assert!(
        sent < TASKS as u64 / 2,
        "{sent} scripts for {} requests",
        3 * TASKS
    );
    assert!(server.run("KEYS lock:k*").await == redis::Value::Array(vec![]));
}

#[tokio::test]
async fn requests_of_different_terms_each_get_their_own_terms() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    // The shared scripts are loaded when they are first sent. Until then, each request is sent alone.
    let first = acquire_many(&backend, &names(TASKS)).await;
    release_many(&backend, first).await;
    let before = scripts(&server).await;
    let ids = HolderIds::new();
    let terms = |i: usize| {
        let lease = if i.is_multiple_of(2) { 60_000 } else { 20_000 };
        (lease, i % 4 < 2)
    };
    let asked = (0..TASKS).map(|i| {
        let (backend, key, holder) = (backend.clone(), key(&format!("k{i}")), ids.fresh());
        tokio::spawn(async move {
            let (lease, fenced) = terms(i);
            let asked = AcquireRequest {
                fenced,
                timeout: if i % 5 == 0 { CALL * 32 } else { CALL * 4 },
                ..request(&key, holder, lease)
            };
            granted(backend.acquire(asked).await.unwrap())
        })
    });
    let asked: Vec<_> = asked.collect();
    let mut connection = server.connection().await;
    for (i, asked) in asked.into_iter().enumerate() {
        let (lease, fenced) = terms(i);
        assert_eq!(asked.await.unwrap().token.is_some(), fenced, "{i}");
        let mut ask = redis::cmd("PTTL");
        ask.arg(format!("lock:k{i}"));
        let answer = server::run(&mut connection, ask).await.unwrap();
        let redis::Value::Int(left) = answer else {
            panic!("{i}: {answer:?}");
        };
        let expected = lease - 10_000..=lease;
        assert!(
            expected.contains(&left.cast_unsigned()),
            "{i}: {left} of {lease}"
        );
    }
    let sent = scripts(&server).await - before;
    assert!(sent < TASKS as u64 / 2, "{sent} scripts");
}

#[tokio::test]
async fn a_key_that_cannot_be_locked_fails_alone() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    server.run("SET lock:k50 x").await;
    server.run("HSET lock:k60 a 1 b 1").await;
    for (index, (_, _, answer)) in acquire_many(&backend, &names(100)).await.iter().enumerate() {
        match index {
            50 | 60 => assert!(matches!(answer, Err(Fault::Foreign { .. })), "{answer:?}"),
            _ => assert!(
                matches!(answer, Ok(Acquired::Granted(..))),
                "{index}: {answer:?}"
            ),
        }
    }
}

#[tokio::test]
async fn a_key_without_a_right_fails_alone() {
    let server = TestServer::start().await;
    server
        .run("ACL SETUSER app on >secret &* +@all ~lock:fence:* ~lock:k* ~lock:connect-check:*")
        .await;
    let options = Options {
        lazy: true,
        call_timeout: CALL,
        ..Options::default()
    };
    let (backend, _) = connect_with(&server.url_of("app"), options).await.unwrap();
    let mut names = names(100);
    names[50] = "other".to_owned();
    for (index, (_, _, answer)) in acquire_many(&backend, &names).await.iter().enumerate() {
        match index {
            50 => assert!(matches!(answer, Err(Fault::Denied(_))), "{answer:?}"),
            _ => assert!(
                matches!(answer, Ok(Acquired::Granted(..))),
                "{index}: {answer:?}"
            ),
        }
    }
}

#[tokio::test]
async fn a_server_that_is_out_of_memory_takes_releases_of_many() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let before = acquire_many(&backend, &names(100)).await;
    release_many(&backend, before).await;
    let held = acquire_many(&backend, &names(100)).await;
    server.run("CONFIG SET maxmemory 1").await;
    let before = scripts(&server).await;
    let ids = HolderIds::new();
    let asked = held.into_iter().map(|(key, holder, answer)| {
        granted(answer.unwrap());
        let (backend, other) = (backend.clone(), ids.fresh());
        tokio::spawn(async move {
            let more = super::key(&format!("more-{}", key.name()));
            tokio::join!(
                backend.acquire(request(&more, other, 60_000)),
                backend.release(hold_ref(&key, holder), CALL)
            )
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        let (refused, released) = asked.await.unwrap();
        assert!(matches!(refused, Err(Fault::NotDone(_))), "{refused:?}");
        assert_eq!(released.unwrap(), Released::Done);
    }
    // Each acquire was refused in its group, and then by itself. The number of releases is as small as before.
    let sent = scripts(&server).await - before;
    assert!(sent < 160, "{sent}");
    server.run("CONFIG SET maxmemory 0").await;
    assert!(server.run("KEYS lock:k*").await == redis::Value::Array(vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_at_any_moment_leave_no_locks() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let ids = HolderIds::new();
    let mut left = 0;
    for round in 0..20 {
        if round % 3 == 0 {
            server.run("SCRIPT FLUSH").await;
        }
        if round % 2 == 0 {
            // Other processes want the keys, so that releases go by their waiting lists.
            (0..TASKS).for_each(|i| backend.router.wanted.note(&key(&format!("k{i}")), 1));
        }
        if round % 6 == 0 {
            // Because of this, the server has executed a release, but not the acquire before it.
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(ReleaseEach::source().text);
            server::run(&mut server.connection().await, load)
                .await
                .unwrap();
        }
        let callers = (0..TASKS as u64).map(|i| {
            let (backend, key, holder) = (backend.clone(), key(&format!("k{i}")), ids.fresh());
            tokio::spawn(async move {
                let mut acquire = backend.acquire(request(&key, holder, 60_000));
                // After this time the request is dropped: while it waits, on its way, or after the grant.
                let leaves = Instant::now() + Duration::from_micros((i % 40) * 40);
                while Instant::now() < leaves {
                    let polled = std::future::poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx)));
                    if let Poll::Ready(answer) = polled.await {
                        granted(answer.unwrap());
                        backend.release(hold_ref(&key, holder), CALL).await.unwrap();
                        return 0;
                    }
                    tokio::task::yield_now().await;
                }
                1
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            left += caller.await.unwrap();
        }
        backend.drained().await;
        let locks = server.run("KEYS lock:k*").await;
        assert!(
            locks == redis::Value::Array(vec![]),
            "round {round}: {locks:?}"
        );
    }
    assert!(left > TASKS, "{left} have left early");
}

#[test]
fn grouped_requests_fail_when_the_managers_runtime_ends() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let (manager, user) = (runtime(), runtime());
    let (server, backend) = manager.block_on(async {
        let server = TestServer::start().await;
        let backend = connect(&server).await;
        (server, backend)
    });
    // Calls on a connection that is gone end at once. Without these calls under way, each request would be sent alone.
    let live = backend.router.link().live().unwrap();
    let _under_way = [(); 16].map(|()| UnderWay::enter(&live));
    manager.shutdown_timeout(Duration::from_secs(5));
    user.block_on(async {
        for (_, _, answer) in acquire_many(&backend, &names(100)).await {
            assert!(matches!(answer, Err(Fault::Closed(_))), "{answer:?}");
        }
    });
    drop(server);
}

#[tokio::test]
async fn without_the_right_to_load_scripts_requests_stop_sharing() {
    let server = TestServer::start().await;
    server
        .run("ACL SETUSER app on >secret ~* &* +@all -script|load")
        .await;
    let options = Options {
        lazy: true,
        call_timeout: CALL,
        ..Options::default()
    };
    let (backend, _) = connect_with(&server.url_of("app"), options).await.unwrap();
    let cycle = async || {
        let held = acquire_many(&backend, &names(TASKS)).await;
        release_many(&backend, held).await;
    };
    let began = Instant::now();
    cycle().await;
    let before = scripts(&server).await;
    cycle().await;
    let sent = scripts(&server).await - before;
    // One attempt more is made in each second, because rights may be given.
    let attempts = sent.checked_sub(2 * TASKS as u64);
    let most = began.elapsed().as_secs() + 1;
    assert!(attempts.is_some_and(|attempts| attempts <= most), "{sent}");
}

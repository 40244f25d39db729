//! Tests of dropped futures, cut connections, and servers that are frozen, killed and restarted.

use std::time::Instant;

use super::*;
use crate::backend::redis::kinds::acquire::Compensation;
use crate::backend::redis::scripting::exclusive::Acquire;
use crate::backend::redis::scripting::outcomes::AcquireReply;
use crate::backend::{AcquiredAll, Backend, Fault, Released, Renewal, Renewed, Within};
use crate::values::clock;
use crate::values::health::NodeHealth;
use crate::values::refusal::ShutdownCause;

const SHORT: Duration = Duration::from_millis(200);
/// After this time, requests that were sent on a lost connection are not looked for any more.
const CUT: Duration = Duration::from_secs(2);

/// Connects with the default timeout of calls, however long a busy machine takes for it.
async fn connect(server: &TestServer) -> Arc<RedisBackend> {
    loop {
        match connect_with(&server.url(), Options::default()).await {
            Err(LockError::Unavailable { .. }) => {}
            connected => return connected.unwrap().0,
        }
    }
}

fn short(key: &Key, holder: HolderId) -> AcquireRequest<'_> {
    AcquireRequest {
        timeout: SHORT,
        ..request(key, holder, 60_000)
    }
}

async fn drained(backend: &RedisBackend) {
    assert!(
        tokio::time::timeout(Duration::from_secs(120), backend.drained())
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn an_acquire_that_is_dropped_at_any_moment_leaves_no_lock() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (backend.router.link().check.opening.ids.clone(), key("k"));
    let mut dropped = 0;
    for round in 0..300 {
        let holder = ids.fresh();
        let mut acquire = backend.acquire(request(&key, holder, 60_000));
        // The request is polled several times, and dropped at ever later points of its way.
        let pause = Duration::from_micros(round * 3);
        let started = Instant::now();
        let answer = loop {
            let polled =
                std::future::poll_fn(|cx| std::task::Poll::Ready(acquire.as_mut().poll(cx)));
            match polled.await {
                std::task::Poll::Ready(answer) => break Some(answer),
                std::task::Poll::Pending if started.elapsed() >= pause => break None,
                std::task::Poll::Pending => tokio::task::yield_now().await,
            }
        };
        drop(acquire);
        match answer {
            Some(answer) => {
                granted(answer.unwrap());
                backend.release(hold_ref(&key, holder), CALL).await.unwrap();
            }
            None => dropped += 1,
        }
        drained(&backend).await;
        assert_eq!(server.integer("EXISTS lock:k").await, 0, "round {round}");
    }
    assert!(dropped > 0);
}

#[tokio::test]
async fn requests_to_a_frozen_server_are_undone_when_it_wakes() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (backend.router.link().check.opening.ids.clone(), key("k"));
    let before = ids.fresh();
    granted(
        backend
            .acquire(request(&key, before, 60_000))
            .await
            .unwrap(),
    );
    backend.release(hold_ref(&key, before), CALL).await.unwrap();

    server.signal("STOP");
    let frozen = ids.fresh();
    let answer = backend.acquire(short(&key, frozen)).await;
    assert!(matches!(answer, Err(Fault::Unknown(_))), "{answer:?}");
    // The server shows no sign of life for a second, so the connection is given up.
    until("the connection is given up", async || {
        matches!(
            backend.acquire(short(&key, ids.fresh())).await,
            Err(Fault::NotDone(_))
        )
    })
    .await;
    server.signal("CONT");
    until(
        "the server answers again",
        async || matches!(backend.inspect(&key, SHORT).await, Ok(seen) if seen.is_none()),
    )
    .await;
    drained(&backend).await;
    let after = ids.fresh();
    until("the lock is free for others", async || {
        matches!(
            backend.acquire(short(&key, after)).await,
            Ok(Acquired::Granted(..))
        )
    })
    .await;
    assert_eq!(
        backend.release(hold_ref(&key, after), CALL).await.unwrap(),
        Released::Done
    );
}

#[tokio::test]
async fn a_hand_over_to_an_id_older_than_the_connection_is_refused() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (link, key) = (backend.router.link(), key("k"));
    let (a, b) = (
        link.check.opening.ids.fresh(),
        link.check.opening.ids.fresh(),
    );
    granted(backend.acquire(request(&key, a, 60_000)).await.unwrap());
    server.run("CLIENT KILL TYPE normal").await;
    until("there is another connection", async || {
        link.live().is_some_and(|live| live.may_carry(b).is_err())
    })
    .await;
    let handed_over = backend.hand_over(a, request(&key, b, 60_000), 0).await;
    assert!(matches!(handed_over, Err(Fault::Outdated)));
    let seen = backend.inspect(&key, CALL).await.unwrap().unwrap();
    assert_eq!(seen.holder, Some(a.text()));
}

#[tokio::test]
async fn a_connect_that_is_dropped_leaves_no_task() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let runtime = Handle::current().metrics();
    let before = runtime.num_alive_tasks();
    let _socket = tokio::select! {
        _ = connect_with(&url, Options::default()) => panic!("the server says nothing"),
        accepted = silent.accept() => accepted.unwrap(),
    };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.num_alive_tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_reported_with_advice_for_any_call_timeout() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let options = Options {
        call_timeout: Duration::from_secs(10),
        ..Options::default()
    };
    let error = connect_with(&url, options).await.map(drop).unwrap_err();
    assert!(
        error.to_string().contains("does not answer HELLO"),
        "{error}"
    );
}

#[tokio::test]
async fn a_late_acquire_on_a_lost_connection_is_undone_on_another() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (backend.router.link().check.opening.ids.clone(), key("k"));
    let holder = ids.fresh();
    let not_after = server.time().await + 30_000_000;
    // The request was sent on a connection that is gone.
    let live = backend.router.link().live().unwrap();
    server.run("CLIENT KILL TYPE normal").await;
    let sent = Some((live, not_after));
    let asked = request(&key, holder, 60_000);
    let compensation = Compensation::of(&backend.router, &asked, sent, clock::now());
    let compensating = tokio::spawn(compensation.run());
    let text = holder.text();
    let late = Acquire {
        lock: key.raw(),
        fence: None,
        holder: &text,
        lease_ms: 60_000,
        not_after_us: not_after,
        counted: false,
        channel: None,
        spare: None,
    };
    until("it was looked for in vain", async || {
        server.time().await > not_after - 29_500_000
    })
    .await;
    let mut connection = server.connection().await;
    let reply = run(&mut connection, &late).await.unwrap();
    assert!(matches!(reply, AcquireReply::Granted { .. }), "{reply:?}");
    tokio::time::timeout(CALL * 4, compensating)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(server.integer("EXISTS lock:k").await, 0);
}

#[tokio::test]
async fn a_server_clock_that_jumped_costs_one_more_round_trip() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (backend.router.link().check.opening.ids.clone(), key("k"));
    backend.router.link().check.clock.saw(1, clock::now());
    let holder = ids.fresh();
    let before = clock::now();
    let held = granted(
        backend
            .acquire(request(&key, holder, 60_000))
            .await
            .unwrap(),
    );
    assert!(held.sent_at.tick() >= before.tick());
    backend.router.link().check.clock.saw(1, clock::now());
    let (a, b) = (self::key("a"), self::key("b"));
    let both = [(&a, ids.fresh()), (&b, ids.fresh())];
    let both = both.map(|(key, holder)| request(key, holder, 60_000));
    let taken = backend.acquire_all(&both).await.unwrap();
    assert!(matches!(taken, AcquiredAll::Granted(_)));
    let again = backend
        .router
        .link()
        .check
        .clock
        .not_after(clock::now(), clock::now());
    assert!(
        again.abs_diff(server.time().await) < 5_000_000,
        "the clock is known again"
    );
}

#[tokio::test]
async fn an_outage_ends_with_the_servers_return_and_wakes_listeners() {
    let mut server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (backend.router.link().check.opening.ids.clone(), key("k"));
    let mut listener = backend.listen(&key);
    listener.ready().await;

    server.kill();
    until("the outage is noticed", async || {
        matches!(
            backend.acquire(short(&key, ids.fresh())).await,
            Err(Fault::NotDone(_))
        )
    })
    .await;
    let mut deaf = backend.listen(&key);
    deaf.ready().await;

    server.restart().await;
    // No call is made, so the supervisors connect again by themselves.
    listener.heard().await;
    deaf.heard().await;
    until("the connection is back", async || {
        backend.router.link().live().is_some()
    })
    .await;
    let holder = ids.fresh();
    granted(
        backend
            .acquire(request(&key, holder, 60_000))
            .await
            .unwrap(),
    );
    backend.release(hold_ref(&key, holder), CALL).await.unwrap();
    listener.heard().await;
}

#[tokio::test]
async fn a_cut_subscription_is_renewed_and_wakes_all_listeners() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (backend.router.link().check.opening.ids.clone(), key("k"));
    let mut listener = backend.listen(&key);
    listener.ready().await;
    server.run("CLIENT KILL TYPE pubsub").await;
    listener.heard().await;
    let holder = ids.fresh();
    granted(
        backend
            .acquire(request(&key, holder, 60_000))
            .await
            .unwrap(),
    );
    backend.release(hold_ref(&key, holder), CALL).await.unwrap();
    listener.heard().await;
}

#[tokio::test]
async fn a_call_during_a_cut_is_unknown_and_the_next_one_works() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (backend.router.link().check.opening.ids.clone(), key("k"));
    for _ in 0..5 {
        server.run("CLIENT KILL TYPE normal").await;
        let holder = ids.fresh();
        let cut = AcquireRequest {
            timeout: CUT,
            ..request(&key, holder, 60_000)
        };
        match backend.acquire(cut).await {
            Ok(acquired) => {
                granted(acquired);
                backend.release(hold_ref(&key, holder), CALL).await.unwrap();
            }
            Err(Fault::Unknown(_)) => drained(&backend).await,
            // The cut came before the request was sent.
            Err(Fault::Outdated | Fault::NotDone(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(server.integer("EXISTS lock:k").await, 0);
    }
}

#[tokio::test]
async fn renewals_are_answered_while_acquires_flood_the_connection() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, held) = (backend.router.link().check.opening.ids.clone(), key("held"));
    let holder = ids.fresh();
    granted(
        backend
            .acquire(request(&held, holder, 60_000))
            .await
            .unwrap(),
    );
    let flood: Vec<_> = (0..8_000)
        .map(|number| {
            let (backend, holder) = (backend.clone(), ids.fresh());
            tokio::spawn(async move {
                let key = key(&format!("flood:{number}"));
                let request = AcquireRequest {
                    timeout: Duration::from_secs(60),
                    ..request(&key, holder, 60_000)
                };
                backend
                    .acquire(request)
                    .await
                    .map(granted)
                    .map(|_| Instant::now())
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let ttl = Some(Ttl::new(Duration::from_secs(60), true).unwrap());
    let batch = [Renewal {
        key: held.clone(),
        holder,
        permits: 1,
        ttl,
        waits: false,
    }];
    let renewed = backend
        .renew(&batch, Within::call(Duration::from_secs(60)))
        .await
        .unwrap();
    let renewed_at = Instant::now();
    assert_eq!(renewed, [Renewed::Held]);
    let mut later = 0;
    for acquire in flood {
        later += usize::from(acquire.await.unwrap().unwrap() > renewed_at);
    }
    assert!(
        later > 4_000,
        "only {later} acquires came after the renewal"
    );
}

#[tokio::test]
async fn closing_ends_connections_tasks_and_calls() {
    let server = TestServer::start().await;
    let (backend, dropped) = (connect(&server).await, connect(&server).await);
    let key = key("k");
    let mut listener = backend.listen(&key);
    // The connections are this one, and two of each backend.
    let mut own = server.connection().await;
    let mut clients = async || {
        let list: String = redis::cmd("CLIENT")
            .arg("LIST")
            .query_async(&mut own)
            .await
            .unwrap();
        list.lines().count()
    };
    until("all are connected", async || clients().await == 5).await;
    backend.close();
    drop(dropped);
    until("no connection is left", async || clients().await == 1).await;
    until("calls are refused", async || {
        matches!(backend.inspect(&key, CALL).await, Err(Fault::Closed(_)))
    })
    .await;
    listener.ready().await;
    backend.listen(&key).ready().await;
}

#[test]
fn a_backend_whose_runtime_is_gone_says_so() {
    let first = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let (server, backend) = first.block_on(async {
        let server = TestServer::start().await;
        let backend = connect(&server).await;
        (server, backend)
    });
    drop(first);
    let second = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    second.block_on(async {
        let (ids, key) = (backend.router.link().check.opening.ids.clone(), key("k"));
        let answer = backend.acquire(request(&key, ids.fresh(), 60_000)).await;
        assert!(
            matches!(answer, Err(Fault::Closed(ShutdownCause::RuntimeEnded))),
            "{answer:?}"
        );
        drained(&backend).await;
    });
    drop(server);
}

/// Without an end, publishing would wait for as long as the server is frozen, past a shutdown.
#[tokio::test]
async fn publishing_to_a_frozen_server_ends() {
    let server = TestServer::start().await;
    let options = Options {
        call_timeout: SHORT,
        ..Options::default()
    };
    // On a busy machine, connecting may take longer than this.
    let mut connected = None;
    until("it is connected", async || {
        connected = connect_with(&server.url(), options.clone()).await.ok();
        connected.is_some()
    })
    .await;
    let (backend, _) = connected.unwrap();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    server.signal("STOP");
    let before = tasks();
    for _ in 0..10 {
        let message = ("channel".to_owned(), "payload".to_owned());
        backend.router.publish_all(vec![message]);
    }
    assert!(tasks() >= before + 10);
    until("no task waits for an answer", async || tasks() <= before).await;
}

#[tokio::test]
async fn health_is_good_after_the_servers_clock_has_jumped() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    backend.router.link().check.clock.saw(1, clock::now());
    let health = backend.health(Duration::from_secs(20)).await;
    assert!(
        health.nodes.iter().all(NodeHealth::is_ok),
        "{:?}",
        health.nodes
    );
}

//! Tests of rights that a server refuses, and of the errors and warnings about them.

use super::*;
use crate::backend::{Backend, Fault, Renewal, Renewed, Within};
use crate::values::holder::HolderIds;

/// The least rights that a user needs under the default namespace, according to the documentation.
const LEAST: &str = "-@all ~lock:* ~{lock:* ~redisson_lock_queue:* ~redisson_lock_timeout:* ~redisson_lock_token:* \
     &lock:control:* &redisson_lock__channel:* &redisson_sc:* &redisson_rwlock:* \
     &redisson_countdownlatch__channel__* \
     +evalsha +script|load +time +get +set +hlen +hexists +hset +hdel +hgetall +del +pexpire +pexpireat +pttl \
     +zadd +zcard +zcount +zrem +zscore +incrby +zrange \
     +llen +lindex +lrange +lpos +lpop +lrem +rpush \
     +hget +hscan \
     +publish +subscribe +unsubscribe +pubsub|numsub +ping +info \
     +wait";

#[test]
fn the_documentation_shows_the_rights_that_are_tested() {
    let documented = include_str!("../../../../../docs/redis.md").split_whitespace();
    let documented: Vec<_> = documented.collect();
    let tested: Vec<_> = LEAST.split_whitespace().collect();
    assert!(
        documented
            .windows(tested.len())
            .any(|words| words == tested),
        "docs/redis.md does not show {LEAST}"
    );
}

/// Returns options with a timeout that the answers of a busy machine keep.
fn patient() -> Options {
    Options {
        call_timeout: CALL,
        ..Options::default()
    }
}

async fn refusal(url: &str, options: Options) -> LockError {
    match connect_with(url, options).await {
        Err(error) => {
            assert!(!format!("{error:?} {error}").contains("secret"));
            error
        }
        Ok(_) => panic!("connected"),
    }
}

async fn user(server: &TestServer, rules: &str) -> String {
    server.run("ACL DELUSER app").await;
    server
        .run(&format!("ACL SETUSER app on >secret {rules}"))
        .await;
    server.url_of("app")
}

#[tokio::test]
async fn the_documented_rights_are_enough_for_everything() {
    let server = TestServer::start().await;
    let url = user(&server, LEAST).await;
    let (backend, events) = connect_with(&url, patient()).await.unwrap();
    let (ids, key) = (HolderIds::new(), key("k"));
    let mut listener = backend.listen(&key);
    listener.ready().await;
    for _ in 0..2 {
        let (a, b) = (ids.fresh(), ids.fresh());
        granted(backend.acquire(request(&key, a, 60_000)).await.unwrap());
        backend
            .hand_over(a, request(&key, b, 60_000), 0)
            .await
            .unwrap();
        assert!(backend.inspect(&key, CALL).await.unwrap().is_some());
        backend.release(hold_ref(&key, b), CALL).await.unwrap();
        listener.heard().await;
        server.run("SCRIPT FLUSH").await;
    }
    granted(
        backend
            .acquire(request(&key, ids.fresh(), 60_000))
            .await
            .unwrap(),
    );
    assert!(backend.force_release(&key, CALL).await.unwrap());
    until("the holder gets the event", async || {
        events.lock().unwrap().len() == 1
    })
    .await;
    let redis::Value::Array(log) = server.run("ACL LOG").await else {
        panic!()
    };
    assert!(log.is_empty(), "refused: {log:?}");
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_at_connect() {
    let server = TestServer::start().await;
    for (missing, script) in [
        ("-hset", "acquire"),
        ("-get", "handover"),
        ("-hexists", "renew"),
        ("-hdel", "handover"),
        ("-evalsha", "acquire"),
        ("resetkeys ~other:*", "acquire"),
    ] {
        let url = user(&server, &format!("{LEAST} {missing}")).await;
        let error = refusal(&url, patient()).await;
        assert!(
            matches!(error, LockError::Denied { .. }),
            "{missing}: {error:?}"
        );
        assert!(error.to_string().contains(script), "{missing}: {error}");
        assert!(!error.is_retryable());
    }
    // Missing rights that only make locks slower or harder to watch cause a warning.
    for missing in [
        "-info",
        "-publish",
        "-subscribe",
        "resetchannels",
        "-pubsub|numsub",
    ] {
        let url = user(&server, &format!("{LEAST} {missing}")).await;
        let (backend, _) = connect_with(&url, patient()).await.unwrap();
        let (ids, key) = (HolderIds::new(), key("k"));
        let mut listener = backend.listen(&key);
        listener.ready().await;
        let holder = ids.fresh();
        granted(
            backend
                .acquire(request(&key, holder, 60_000))
                .await
                .unwrap(),
        );
        backend.release(hold_ref(&key, holder), CALL).await.unwrap();
    }
}

#[tokio::test]
async fn a_channel_that_was_refused_is_subscribed_once_it_is_allowed() {
    let server = TestServer::start().await;
    let url = user(&server, &format!("{LEAST} resetchannels")).await;
    let (backend, _) = connect_with(&url, patient()).await.unwrap();
    let mut listener = backend.listen(&key("k"));
    listener.ready().await;
    server.run("ACL SETUSER app allchannels").await;
    let opened = tokio::time::timeout(Duration::from_secs(60), listener.heard());
    assert!(opened.await.is_ok(), "the channel of the lock");
    let told = server.run("PUBSUB NUMSUB lock:control:released").await;
    assert!(format!("{told:?}").contains("int(1)"), "{told:?}");
}

#[tokio::test]
async fn a_release_whose_script_cannot_publish_publishes_by_itself() {
    let server = TestServer::start().await;
    let url = user(&server, &format!("{LEAST} -publish")).await;
    let (backend, _) = connect_with(&url, patient()).await.unwrap();
    server.run("ACL LOG RESET").await;
    let (ids, key) = (HolderIds::new(), key("k"));
    let holder = ids.fresh();
    granted(
        backend
            .acquire(request(&key, holder, 60_000))
            .await
            .unwrap(),
    );
    backend.release(hold_ref(&key, holder), CALL).await.unwrap();
    // This message is refused as well, and the server logs where it came from.
    until("the client tried by itself", async || {
        let log = format!("{:?}", server.run("ACL LOG").await);
        log.contains("toplevel") && log.contains("publish")
    })
    .await;
}

#[tokio::test]
async fn a_refused_login_is_denied() {
    let server = TestServer::start_with(&["--requirepass", "correct"]).await;
    for credentials in ["", ":secret@", "nobody:secret@"] {
        let url = server.url().replace("default:correct@", credentials);
        let error = refusal(&url, patient()).await;
        assert!(
            matches!(error, LockError::Denied { .. }),
            "{credentials}: {error:?}"
        );
    }
    let lazy = Options {
        lazy: true,
        ..patient()
    };
    let url = server.url().replace("default:correct@", ":secret@");
    let (backend, _) = connect_with(&url, lazy).await.unwrap();
    assert!(!format!("{:?}", backend.router.target).contains("secret"));
    let (ids, key) = (HolderIds::new(), key("k"));
    let answer = backend.acquire(request(&key, ids.fresh(), 60_000)).await;
    assert!(matches!(answer, Err(Fault::Denied(_))), "{answer:?}");
}

#[tokio::test]
async fn an_evicting_server_is_refused_when_strict() {
    let server = TestServer::start_with(&["--maxmemory-policy", "volatile-ttl"]).await;
    connect_with(&server.url(), patient()).await.unwrap();
    let strict = Options {
        strict: true,
        ..patient()
    };
    let error = refusal(&server.url(), strict.clone()).await;
    assert!(matches!(error, LockError::InvalidConfig { .. }));
    assert!(error.to_string().contains("volatile-ttl"));
    let (backend, _) = connect_with(
        &server.url(),
        Options {
            lazy: true,
            ..strict
        },
    )
    .await
    .unwrap();
    let (ids, key) = (HolderIds::new(), key("k"));
    let answer = backend.acquire(request(&key, ids.fresh(), 60_000)).await;
    assert!(matches!(answer, Err(Fault::Impossible(why)) if why.contains("volatile-ttl")));
}

#[tokio::test]
async fn a_missing_server_is_an_error_at_once_unless_lazy() {
    let mut server = TestServer::start().await;
    server.kill();
    let error = refusal(&server.url(), patient()).await;
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let lazy = Options {
        lazy: true,
        ..patient()
    };
    let (backend, _) = connect_with(&server.url(), lazy).await.unwrap();
    let (ids, key) = (HolderIds::new(), key("k"));
    let short = AcquireRequest {
        timeout: Duration::from_millis(100),
        ..request(&key, ids.fresh(), 60_000)
    };
    let answer = backend.acquire(short).await;
    assert!(
        matches!(answer, Err(Fault::NotDone(why)) if why.to_string().contains("not connected"))
    );
    server.restart().await;
    granted(
        backend
            .acquire(request(&key, ids.fresh(), 60_000))
            .await
            .unwrap(),
    );
}

#[tokio::test]
async fn the_check_leaves_nothing_but_a_fence() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let redis::Value::Array(keys) = server.run("KEYS *").await else {
        panic!()
    };
    let keys: Vec<_> = keys
        .into_iter()
        .filter_map(crate::backend::redis::scripting::reply::text)
        .collect();
    assert!(
        keys.iter().all(|key| key.starts_with("lock:fence:{")),
        "{keys:?}"
    );
    drop(backend);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_and_another_database_work_as_well() {
    let directory = std::env::temp_dir().join(format!("lock-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&directory).unwrap();
    let socket = directory.join("redis.sock");
    let path = socket.to_str().unwrap();
    let server = TestServer::start_with(&["--unixsocket", path]).await;
    let url = format!("redis+unix://{path}?db=3");
    let (backend, _) = connect_with(&url, patient()).await.unwrap();
    let (ids, key) = (HolderIds::new(), key("k"));
    granted(
        backend
            .acquire(request(&key, ids.fresh(), 60_000))
            .await
            .unwrap(),
    );
    assert_eq!(
        server.integer("EXISTS lock:k").await,
        0,
        "not in database 0"
    );
    drop((backend, server));
    std::fs::remove_dir_all(directory).unwrap();
}

#[tokio::test]
async fn refused_keys_do_not_stop_the_renewal_of_other_holds() {
    const ALL: usize = 64;
    // In one step of the halving, all eight parts of the first half are refused.
    let is_refused = |number: usize| number < ALL / 2 && number.is_multiple_of(4);
    let server = TestServer::start().await;
    let url = user(&server, "~* &* +@all").await;
    let (backend, _) = connect_with(&url, patient()).await.unwrap();
    let ids = HolderIds::new();
    let mut batch = Vec::new();
    for number in 0..ALL {
        let (key, holder) = (key(&format!("k{number}")), ids.fresh());
        granted(
            backend
                .acquire(request(&key, holder, 60_000))
                .await
                .unwrap(),
        );
        batch.push(Renewal {
            key: Arc::new(Key::clone(&key)),
            holder,
            permits: 1,
            ttl: Some(Ttl::new(Duration::from_secs(60), true).unwrap()),
            waits: false,
        });
    }
    let allowed = (0..ALL).filter(|number| !is_refused(*number));
    let allowed: Vec<_> = allowed
        .map(|n| format!("~{}", batch[n].key.raw()))
        .collect();
    let rules = format!("ACL SETUSER app resetkeys {}", allowed.join(" "));
    server.run(&rules).await;
    let within = Within {
        timeout: Duration::from_secs(20),
        useful: Duration::from_secs(20),
    };
    let answers = backend.renew(&batch, within).await.unwrap();
    for (number, answer) in answers.into_iter().enumerate() {
        let expected = if is_refused(number) {
            Renewed::Unknown
        } else {
            Renewed::Held
        };
        assert_eq!(answer, expected, "{number}");
    }
}

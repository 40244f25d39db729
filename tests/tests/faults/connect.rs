//! Tests of what goes wrong at connect: every error names the server and never the password, says what to do, and is
//! retryable only if the same call can succeed later without anybody changing code or configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use lock_runtime::LockError;
use tests::faults::{asleep, took};
use tests::{Direction, FaultProxy, RedisCluster, RedisServer, SentinelGroup, documented_rights};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

const MS: Duration = Duration::from_millis(1);
/// The longest time of a call. Half of it is spent only by what waits for the end of one.
const LONG: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const PASSWORD: &str = "hunter2";

#[derive(Debug, PartialEq)]
enum Kind {
    Config,
    Denied,
    /// The only kind that can be retried.
    Unavailable,
}
use Kind::{Config, Denied, Unavailable};

fn kind(error: &LockError) -> Option<Kind> {
    match error {
        LockError::InvalidConfig { .. } => Some(Config),
        LockError::Denied { .. } => Some(Denied),
        LockError::Unavailable { .. } => Some(Unavailable),
        _ => None,
    }
}

fn assert_says(what: &str, error: &LockError, expected: Kind, parts: &[&str]) {
    let said = error.to_string();
    assert_eq!(kind(error).as_ref(), Some(&expected), "{what}: {error:?}");
    assert_eq!(
        error.is_retryable(),
        expected == Unavailable,
        "{what}: {said}"
    );
    for part in parts {
        assert!(said.contains(part), "{what}: no {part:?} in: {said}");
    }
    assert!(
        !format!("{said} {error:?}").contains(PASSWORD),
        "{what}: {said}"
    );
}

async fn refused(url: &str) -> LockError {
    refused_within(LONG, url).await
}

async fn refused_within(call_timeout: Duration, url: &str) -> LockError {
    let builder = tests::builder().call_timeout(call_timeout);
    match builder.connect(url).await {
        Err(error) => error,
        Ok(_) => panic!("{url} is connected to"),
    }
}

/// Starts a service that answers each request by `reply`. `None` closes the connection.
async fn listener(reply: fn(&str) -> Option<&'static str>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = vec![0; 65_536];
                while let Ok(count @ 1..) = client.read(&mut bytes).await {
                    let request = String::from_utf8_lossy(&bytes[..count]).into_owned();
                    let Some(reply) = reply(&request) else { return };
                    if client.write_all(reply.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn an_unencoded_password_is_reported_by_its_ending_character() {
    for (url, code) in [
        ("redis://:hunter2#x@localhost/", "%23"),
        ("redis://me:1#hunter2@localhost/", "%23"),
        ("redis://:hunter2/x@localhost/", "%2F"),
        ("redis://me:1/hunter2@localhost/0", "%2F"),
        ("redis://:hunter2?x@localhost/", "%3F"),
        ("redis://me:1?hunter2@localhost/", "%3F"),
        ("redis://me:hunter2@x/y@localhost/", "%2F"),
        ("redis-sentinel://:hunter2#x@localhost/mine", "%23"),
        ("redis-sentinel://:hunter2/x@localhost/mine", "%2F"),
        ("redis-sentinel://:hunter2?x@localhost/mine", "%3F"),
        ("redis-sentinel://h/mine?sentinel_pass=hunter2#x", "%23"),
        ("redis-cluster://:hunter2#x@localhost/", "%23"),
        ("redis-cluster://:hunter2/x@localhost/", "%2F"),
        ("redis-cluster://:hunter2?x@localhost/", "%3F"),
        ("redis-cluster://:hunter2@x@localhost/", "%40"),
        ("unix:///run/redis.sock?pass=hunter2#x", "%23"),
        ("unix:///run/redis.sock?pass=hunter2&x", "%26"),
    ] {
        let error = refused(url).await;
        assert_says(url, &error, Config, &[&format!("as `{code}`")]);
    }
}

#[tokio::test]
async fn any_password_works_encoded_and_most_work_unencoded() {
    let server = RedisServer::start();
    for (password, written) in [
        ("a#b/c?d@e:f%g&h", "a%23b%2Fc%3Fd%40e%3Af%25g%26h"),
        ("a@b:c%d&e", "a@b:c%d&e"),
    ] {
        let _: redis::Value = server.query(&[
            "ACL",
            "SETUSER",
            "me",
            "reset",
            "on",
            "~*",
            "&*",
            "+@all",
            &format!(">{password}"),
        ]);
        tests::connected(&server.url_with("me", written)).await;
    }
}

#[tokio::test]
async fn a_url_without_a_known_scheme_is_told_which_there_are() {
    for url in [
        "http://localhost/",
        "localhost:6379",
        "redis:/localhost",
        "redis:localhost:6379",
        "hunter2",
        "hunter2://localhost",
        "mongodb://me:hunter2/x@localhost/",
    ] {
        assert_says(
            url,
            &refused(url).await,
            Config,
            &["`redis://`", "`redis-cluster://`"],
        );
    }
}

#[tokio::test]
async fn another_service_is_refused_for_good_unlike_an_absent_redis() {
    const ELSE: &[&str] = &["does not speak Redis's protocol", "HTTP", "host and port"];
    let http = listener(|_| Some("HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    let html = listener(|_| Some("<!DOCTYPE HTML>\n<html>")).await;
    let mail = listener(|_| Some("220 mail.example ESMTP\r\n")).await;
    for address in [http, html, mail] {
        let url = format!("redis://:{PASSWORD}@{address}/");
        let error = refused(&url).await;
        assert_says("another service", &error, Config, ELSE);
        assert_says("another service", &error, Config, &[&address.to_string()]);
    }
    let by_tls = refused(&format!("rediss://:{PASSWORD}@{http}/")).await;
    let says = ["does not speak TLS", "`redis://`", &http.to_string()];
    assert_says("HTTP by TLS", &by_tls, Config, &says);

    let closing = listener(|_| None).await;
    let error = refused(&format!("redis://:{PASSWORD}@{closing}/")).await;
    let says = [
        "closed without an answer",
        "`rediss://`",
        "proxy",
        &closing.to_string(),
    ];
    assert_says("closed", &error, Unavailable, &says);
    let silent = listener(|_| Some("")).await;
    let error = refused_within(4_000 * MS, &format!("redis://:{PASSWORD}@{silent}/")).await;
    assert_says(
        "silent",
        &error,
        Unavailable,
        &["no connection within", "does not answer HELLO"],
    );

    let error = refused("redis://:hunter2@127.0.0.1:1/").await;
    assert_says(
        "closed port",
        &error,
        Unavailable,
        &["127.0.0.1:1/", "nothing listens there"],
    );
    let error = refused("redis://:hunter2@no-such-host.invalid/").await;
    let says = ["no-such-host.invalid", "check the host's name"];
    assert_says("unknown host", &error, Unavailable, &says);
    let error = refused("unix:///nowhere/redis.sock?pass=hunter2").await;
    let says = ["/nowhere/redis.sock", "check the socket's path"];
    assert_says("no socket", &error, Unavailable, &says);
}

#[tokio::test]
async fn a_tls_port_and_a_plain_one_are_told_apart() {
    let server = RedisServer::builder().tls().start();
    let plain = format!("rediss://:{PASSWORD}@localhost:{}/", server.port());
    // It takes the handshake for half of a request, and waits for the rest.
    assert_says(
        "plain",
        &refused_within(4_500 * MS, &plain).await,
        Unavailable,
        &["`redis://`", "localhost"],
    );
    let tls = format!("redis://:{PASSWORD}@127.0.0.1:{}/", server.tls_port());
    assert_says(
        "TLS",
        &refused(&tls).await,
        Unavailable,
        &["`rediss://`", "127.0.0.1"],
    );
    let unknown = refused(&server.tls_url()).await;
    assert_says(
        "unknown authority",
        &unknown,
        Denied,
        &["TLS", "SSL_CERT_FILE"],
    );
}

#[tokio::test]
async fn a_missing_database_of_a_server_is_refused_by_its_number() {
    let server = RedisServer::builder().line("databases 4").start();
    let url = format!("{}4", server.url());
    let says = ["no database 4", "`databases`", &server.addr().to_string()];
    assert_says("database", &refused(&url).await, Config, &says);
    tests::connected(&format!("{}3", server.url())).await;
    // A lazy manager says it with its first call, at once.
    let lazy = tests::builder().lazy(true).connect(&url).await.unwrap();
    let (error, waited) = took(lazy.mutex("k").wait(LONG).acquire()).await;
    assert_says("lazy", &error.unwrap_err(), Config, &says);
    assert!(waited < LONG / 2, "no wait can help: {waited:?}");
}

#[tokio::test]
async fn logins_that_are_refused_say_what_is_wrong_with_them() {
    let open = RedisServer::start();
    let closed = RedisServer::builder().requirepass("correct").start();
    let wrong: &[&str] = &["WRONGPASS", "Check user and password", "`%25`"];
    let none: &[&str] = &["wants a password", "`:password@`"];
    for (what, server, login, says) in [
        ("wrong password", &closed, ":hunter2@", wrong),
        ("unknown user", &closed, "me:hunter2@", wrong),
        ("user where none is known", &open, "me:hunter2@", wrong),
        ("no password", &closed, "", none),
    ] {
        let error = refused(&format!("redis://{login}{}/", server.addr())).await;
        assert_says(what, &error, Denied, says);
        assert_says(what, &error, Denied, &[&server.addr().to_string()]);
    }
    // The client would be the user `default`, if the server has one without a password.
    for user in ["hunter2@", "hunter2:@"] {
        let one = format!("redis://{user}{}/", open.addr());
        let cluster = format!("redis-cluster://{user}{}/", open.addr());
        for url in [one, cluster] {
            assert_says(&url, &refused(&url).await, Config, &["`:password@`"]);
        }
    }
}

#[tokio::test]
async fn each_step_of_connect_names_the_right_that_it_lacks() {
    let rights = documented_rights("ACL SETUSER locks on >PASSWORD").join(" ");
    for (missing, database, named) in [
        ("", "1", "missing rights: +select"),
        ("-time", "", "missing rights: +time"),
        ("-evalsha", "", "missing rights: +evalsha"),
        ("-script -eval", "", "missing rights: +script|load"),
        ("-hset", "", "missing rights: +hset"),
        ("-hdel", "", "missing rights: +hdel"),
        ("resetkeys ~other:*", "", "missing rights: ~lock:"),
    ] {
        let rules = format!("on >{PASSWORD} {rights} {missing}");
        let server = RedisServer::builder().user("locks", &rules).start();
        let url = format!("{}{database}", server.url_with("locks", PASSWORD));
        let error = refused(&url).await;
        assert_says(
            missing,
            &error,
            Denied,
            &[named, &server.addr().to_string()],
        );
    }
}

#[tokio::test]
async fn an_unfit_server_is_refused_with_what_to_connect_to_instead() {
    let server = RedisServer::start();
    let replica = RedisServer::builder();
    let replica = replica
        .line(format!("replicaof 127.0.0.1 {}", server.port()))
        .start();
    let error = refused(&replica.url()).await;
    assert_says(
        "replica",
        &error,
        Unavailable,
        &["is a replica", "master", "`redis-sentinel://`"],
    );

    let group = SentinelGroup::builder(0, 1).start().await;
    let sentinel = group.sentinels[0].addr().to_string();
    for url in [
        format!("redis://{sentinel}/"),
        format!("redis://{sentinel}/3"),
    ] {
        let says = ["a Sentinel", "`redis-sentinel://", &*sentinel];
        assert_says("Sentinel", &refused(&url).await, Config, &says);
    }
    let url = format!("redis-cluster://{sentinel}/");
    assert_says(
        "Sentinel",
        &refused(&url).await,
        Config,
        &["a Sentinel", &sentinel],
    );
    let address = server.addr().to_string();
    let error = refused(&format!("redis-sentinel://{address}/mine")).await;
    assert_says(
        "not a Sentinel",
        &error,
        Config,
        &["not a Sentinel", "`redis://`", &address],
    );
    let error = refused(&format!("redis-cluster://{address}/")).await;
    assert_says(
        "no cluster",
        &error,
        Config,
        &["not a node of a cluster", "`redis://`", &address],
    );

    let cluster = RedisCluster::start().await;
    for node in &cluster.nodes {
        let address = node.addr().to_string();
        let says = ["Redis Cluster", "`redis-cluster://`", &*address];
        assert_says("a node", &refused(&node.url()).await, Config, &says);
        let database = format!("{}1", node.url());
        assert_says("a node", &refused(&database).await, Config, &says);
        // A lazy manager says it, too, with its first call.
        let lazy = tests::builder().lazy(true).connect(&node.url()).await;
        let (error, waited) = took(lazy.unwrap().mutex("k").wait(LONG).acquire()).await;
        assert_says("lazy", &error.unwrap_err(), Config, &says);
        assert!(waited < LONG / 2, "no wait can help: {waited:?}");
    }
}

/// Each step of the check needs the lock of the step before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_freezes_during_the_check_is_still_connected_to() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    proxy.delay(Direction::Requests, 100 * MS);
    for _ in 0..20 {
        let (url, began) = (proxy.url(), Instant::now());
        let connecting =
            tokio::spawn(async move { tests::builder().call_timeout(LONG).connect(&url).await });
        while server.stray_keys().is_empty() && !connecting.is_finished() {
            tokio::time::sleep(MS).await;
        }
        if !connecting.is_finished() {
            server.sigstop();
            tokio::time::sleep(2_300 * MS).await;
            server.sigcont();
            match connecting.await.unwrap() {
                Ok(_) => return,
                // The whole check has five seconds, and the machine may stand still in it as well.
                Err(LockError::Unavailable { .. }) if began.elapsed() >= 5_000 * MS => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    panic!("the check was never seen, or never in time");
}

#[tokio::test]
async fn unready_servers_can_be_retried_and_old_or_protected_ones_not() {
    let full = RedisServer::start();
    let _: redis::Value = full.query(&["CONFIG", "SET", "maxclients", "1"]);
    let error = refused(&full.url()).await;
    assert_says(
        "full",
        &error,
        Unavailable,
        &["max number of clients", "`maxclients`"],
    );

    let loading = listener(|_| Some("-LOADING Redis is loading the dataset in memory\r\n")).await;
    let error = refused(&format!("redis://{loading}/")).await;
    assert_says(
        "loading",
        &error,
        Unavailable,
        &["LOADING", &loading.to_string()],
    );

    let protected = listener(|_| {
        Some("-DENIED Redis is running in protected mode because protected mode is enabled\r\n")
    });
    let protected = protected.await;
    let error = refused(&format!("redis://{protected}/")).await;
    let says = ["protected mode", "`requirepass`", &protected.to_string()];
    assert_says("protected", &error, Denied, &says);

    let ancient =
        listener(|_| Some("-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n"));
    let ancient = ancient.await;
    let error = refused(&format!("redis://{ancient}/")).await;
    assert_says("Redis 5", &error, Denied, &["7.0", &ancient.to_string()]);

    let old = listener(|request| {
        Some(match request.to_ascii_uppercase() {
            hello if hello.contains("HELLO") => "%1\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
            time if time.contains("TIME") => "*2\r\n$10\r\n1795248594\r\n$1\r\n0\r\n",
            _ => "$20\r\nredis_version:6.2.14\r\n",
        })
    });
    let old = old.await;
    let error = refused(&format!("redis://{old}/")).await;
    assert_says(
        "Redis 6",
        &error,
        Config,
        &["6.2.14", "7.0", &old.to_string()],
    );
}

/// Starts a proxy to the server that cuts each connection on which a subscription is asked for.
async fn proxy_that_cuts(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let server = TcpStream::connect(server).await.unwrap();
                let (mut requests, mut answers) = client.into_split();
                let (mut replies, mut server) = server.into_split();
                let back = tokio::spawn(async move { copy(&mut replies, &mut answers).await });
                let mut bytes = vec![0; 65_536];
                while let Ok(count @ 1..) = requests.read(&mut bytes).await {
                    let request = &bytes[..count];
                    if request.windows(9).any(|word| word == b"SUBSCRIBE") {
                        break;
                    }
                    server.write_all(request).await.unwrap();
                }
                back.abort();
            });
        }
    });
    address
}

/// Starts a proxy that replaces SUBSCRIBE by the command `instead`.
async fn proxy_with(server: &RedisServer, instead: &'static [&'static str]) -> FaultProxy {
    let proxy = FaultProxy::start(server.addr()).await;
    proxy.rewrite(move |request| {
        let is_subscription = request.first() == Some(&&b"SUBSCRIBE"[..]);
        let words = || {
            instead
                .iter()
                .map(|word| word.as_bytes().to_vec())
                .collect()
        };
        is_subscription.then(words)
    });
    proxy
}

#[tokio::test]
async fn a_proxy_that_refuses_or_cuts_pub_sub_is_refused_for_good() {
    let server = RedisServer::start();
    let refusing = proxy_with(&server, &["CLIENT", "NO-SUCH-THING"]).await;
    let cutting = proxy_that_cuts(server.addr()).await;
    for address in [refusing.addr(), cutting] {
        let (error, waited) = took(refused(&format!("redis://{address}/"))).await;
        let says = [
            "SUBSCRIBE",
            "proxy",
            "Connect to Redis directly",
            &address.to_string(),
        ];
        assert_says("proxy", &error, Config, &says);
        assert!(waited < LONG / 2, "{waited:?}");
    }
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_proxy_that_ignores_subscriptions_may_be_a_slow_network() {
    let server = RedisServer::start();
    let silent = proxy_with(&server, &["CLIENT", "REPLY", "SKIP"]).await;
    let error = refused_within(4_500 * MS, &silent.url()).await;
    let says = ["SUBSCRIBE", "proxy", "directly", &silent.addr().to_string()];
    assert_says("silent", &error, Unavailable, &says);
}

#[tokio::test]
async fn a_lazy_manager_behind_a_proxy_without_pub_sub_polls() {
    let server = RedisServer::start();
    let proxy = proxy_with(&server, &["CLIENT", "NO-SUCH-THING"]).await;
    let lazy = tests::builder().lazy(true).connect(&proxy.url()).await;
    let lazy = lazy.unwrap();
    let other = tests::connected(&server.url()).await;
    let held = other.mutex("k").lease(HOUR).acquire().await.unwrap();
    let waiting = asleep(&proxy, lazy.mutex("k").wait(2 * LONG).acquire()).await;
    held.release().await.unwrap();
    let (waited, after) = took(waiting).await;
    waited.unwrap().unwrap().release().await.unwrap();
    assert!(after < LONG, "{after:?}");
}

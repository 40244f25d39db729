//! Each script alone: what it answers, and what it leaves behind.

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

use super::super::reply;
use super::super::scripts::*;
use super::server::{self, Server};
use super::*;
use crate::backend::{Fault, Renewed};

/// What the tests lock.
pub(super) const LOCK: &str = "lock:k";
pub(super) const FENCE: &str = "lock:fence:{1}";
pub(super) const CHANNEL: &str = "redisson_lock__channel:{lock:k}";
const CONTROL: &str = "lock:control:lock:";
const LEASE: u64 = 30_000;
const FAR: u64 = 1 << 52;

/// A connection and short words for what is done on it.
struct Bench {
    server: Server,
    connection: MultiplexedConnection,
}

impl Bench {
    async fn new() -> Bench {
        let server = Server::start().await;
        let connection = server.connection().await;
        Bench { server, connection }
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
        self.server.run(words).await
    }

    async fn text(&self, words: &str) -> Option<String> {
        reply::text(self.run(words).await)
    }

    /// A script with arguments that the typed call would not let through.
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

    /// A user who may run scripts, and whatever `rules` add or take away.
    async fn user(&self, rules: &str) -> MultiplexedConnection {
        self.run(&format!(
            "ACL SETUSER limited on >secret ~* &* +@all {rules}"
        ))
        .await;
        let client = redis::Client::open(self.server.url_of("limited")).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }
}

fn acquire(holder: &str) -> Acquire<'_> {
    Acquire {
        lock: LOCK,
        fence: Some(FENCE),
        holder,
        lease: LEASE,
        not_after: FAR,
    }
}

fn release(holder: &str) -> Release<'_> {
    Release {
        lock: LOCK,
        holder,
        channel: CHANNEL,
    }
}

fn hand_over<'a>(from: &'a str, to: &'a str) -> HandOver<'a> {
    HandOver {
        lock: LOCK,
        fence: Some(FENCE),
        from,
        to,
        lease: LEASE,
        channel: CHANNEL,
    }
}

fn force() -> ForceRelease<'static> {
    ForceRelease {
        lock: LOCK,
        channel: CHANNEL,
        control: CONTROL,
    }
}

fn renewals(items: &[(&'static str, &str, u64)]) -> Vec<(&'static str, String, u64)> {
    items
        .iter()
        .map(|&(lock, holder, ttl)| (lock, holder.to_owned(), ttl))
        .collect()
}

fn is_foreign<T: std::fmt::Debug>(answer: Result<T, Fault>, of: &str) -> bool {
    matches!(answer, Err(Fault::Foreign { key, .. }) if key == of)
}

#[test]
fn every_header_names_what_its_caller_sends() {
    fn check<S: Script>(example: &S, repeated: usize) {
        let source = S::source();
        let line = |label: &str| {
            let prefix = format!("-- {label}:");
            let mut lines = source
                .text
                .lines()
                .filter_map(|line| line.strip_prefix(&prefix));
            let text = lines
                .next()
                .unwrap_or_else(|| panic!("{}: no {label}", source.name));
            assert!(
                lines.next().is_none(),
                "{}: {label} given twice",
                source.name
            );
            text.trim().to_owned()
        };
        assert_eq!(
            [line("Keys"), line("Args")],
            S::SHAPE.map(str::to_owned),
            "{}",
            source.name
        );
        line("Returns");
        line("Why");
        assert!(
            source.text.starts_with("#!lua"),
            "{}: the very first line",
            source.name
        );
        let names = |list: &str| list.split(',').filter(|name| !name.is_empty()).count();
        let [keys, arguments] = S::SHAPE.map(names);
        assert_eq!(example.keys(), keys * repeated, "{}: keys", source.name);
        let mut command = redis::Cmd::new();
        example.write(&mut command);
        assert_eq!(
            command.args_iter().count(),
            (keys + arguments) * repeated,
            "{}: keys and arguments",
            source.name
        );
        // What the header names is what the script reads.
        let reads = |what: &str| {
            let mut indices = (1..10).filter(|i| source.text.contains(&format!("{what}[{i}]")));
            indices.next_back().unwrap_or(0)
        };
        if repeated == 1 {
            assert_eq!(reads("KEYS"), keys, "{}: KEYS", source.name);
            assert_eq!(reads("ARGV"), arguments, "{}: ARGV", source.name);
        }
    }
    check(&acquire("a"), 1);
    check(&release("a"), 1);
    check(&hand_over("a", "b"), 1);
    check(
        &Renew {
            items: &renewals(&[(LOCK, "a", 1), (LOCK, "b", 0)]),
        },
        2,
    );
    check(&force(), 1);
    check(&Inspect { lock: LOCK }, 1);
}

#[test]
fn a_malformed_reply_is_an_error_and_never_a_panic() {
    let text = |text: &str| Value::BulkString(text.into());
    let mut replies = vec![
        Value::Nil,
        Value::Okay,
        Value::Int(1),
        text("OK"),
        Value::Array(vec![]),
        Value::Array(vec![Value::Nil; 1_000]),
        Value::Map(vec![(text("OK"), text("1"))]),
        Value::BulkString(vec![0xff; 1 << 20]),
    ];
    for word in [
        "OK", "BUSY", "STALE", "FOREIGN", "LOST", "FREE", "HELD", "x",
    ] {
        for rest in [
            Value::Nil,
            Value::Int(-7),
            text("1.5"),
            text("-1"),
            text("lock"),
            text("fence"),
        ] {
            for length in 0..5 {
                let mut items = vec![text(word)];
                items.extend(std::iter::repeat_n(rest.clone(), length));
                replies.push(Value::Array(items));
            }
        }
    }
    let renewals = renewals(&[(LOCK, "a", 1), (LOCK, "b", 0)]);
    for reply in replies {
        let said = format!("{reply:.200?}");
        // Whatever it is, nobody is told that they hold the lock.
        let granted = acquire("a").read(reply.clone());
        assert!(
            !matches!(granted, Some(Ok(AcquireReply::Granted { .. }))),
            "{said}"
        );
        let handed = hand_over("a", "b").read(reply.clone());
        assert!(
            !matches!(handed, Some(Ok(HandOverReply::Done { .. }))),
            "{said}"
        );
        assert!(
            !matches!(release("a").read(reply.clone()), Some(Ok(_))),
            "{said}"
        );
        assert!(
            !matches!(Renew { items: &renewals }.read(reply.clone()), Some(Ok(_))),
            "{said}"
        );
        let forced = force().read(reply.clone());
        assert!(
            !matches!(forced, Some(Ok(reply)) if reply.released),
            "{said}"
        );
        let _ = Inspect { lock: LOCK }.read(reply);
    }
}

#[tokio::test]
async fn an_acquire_is_granted_once_and_busy_for_others() {
    let bench = Bench::new().await;
    let before = bench.server.time().await;
    let AcquireReply::Granted { token, time } = bench.acquire("a").await else {
        panic!()
    };
    assert!(time >= before && token.unwrap().get() >= time);
    assert_eq!(bench.text("HGET lock:k a").await.as_deref(), Some("1"));
    let left = bench.server.integer("PTTL lock:k").await;
    assert!((LEASE as i64 - 5_000..=LEASE as i64).contains(&left));
    let AcquireReply::Busy { left, .. } = bench.acquire("b").await else {
        panic!()
    };
    assert!(left.unwrap() <= Duration::from_millis(LEASE));
    assert_eq!(bench.server.integer("HLEN lock:k").await, 1);
}

#[tokio::test]
async fn a_second_copy_of_an_acquire_counts_nothing_and_never_shortens_the_lease() {
    let bench = Bench::new().await;
    let first = bench.token("a").await;
    let copy = Acquire {
        lease: 1_000,
        ..acquire("a")
    };
    let AcquireReply::Granted { token, .. } = bench.call(copy).await.unwrap() else {
        panic!()
    };
    assert!(token.unwrap().get() > first);
    assert_eq!(bench.text("HGET lock:k a").await.as_deref(), Some("1"));
    assert!(bench.server.integer("PTTL lock:k").await > 20_000);
    bench.run("PERSIST lock:k").await;
    bench.acquire("a").await;
    assert!(
        bench.server.integer("PTTL lock:k").await > 0,
        "a TTL always"
    );
}

#[tokio::test]
async fn an_acquire_that_comes_too_late_is_refused_and_leaves_nothing() {
    let bench = Bench::new().await;
    let now = bench.server.time().await;
    for not_after in [0, now - 1] {
        let late = Acquire {
            not_after,
            ..acquire("a")
        };
        let AcquireReply::Stale { time } = bench.call(late).await.unwrap() else {
            panic!()
        };
        assert!(time >= now);
    }
    bench.acquire("a").await;
    let late = Acquire {
        not_after: now,
        lease: 90_000,
        ..acquire("a")
    };
    assert!(matches!(
        bench.call(late).await.unwrap(),
        AcquireReply::Stale { .. }
    ));
    assert!(bench.server.integer("PTTL lock:k").await <= LEASE as i64);
}

#[tokio::test]
async fn a_lease_that_redis_would_refuse_is_refused_before_the_first_write() {
    let bench = Bench::new().await;
    for lease in [
        "0",
        "-1",
        "1.5",
        "abc",
        "",
        "nan",
        "inf",
        "-inf",
        "1e300",
        "86400001",
        "99999999999999999999",
    ] {
        for (source, keys, arguments) in [
            (
                Acquire::source(),
                &[LOCK, FENCE][..],
                vec!["a", lease, "9007199254740991"],
            ),
            (
                HandOver::source(),
                &[LOCK, FENCE],
                vec!["a", "b", lease, CHANNEL],
            ),
            (Renew::source(), &[LOCK], vec!["a", lease]),
        ] {
            if source.name == "renew" && lease == "0" {
                continue;
            }
            let answer = bench.raw(source, keys, &arguments).await;
            assert!(answer.is_err(), "{}: {lease}", source.name);
        }
    }
    assert_eq!(bench.server.integer("DBSIZE").await, 0);
    let odd = bench
        .raw(
            Acquire::source(),
            &[LOCK],
            &["a", "5e3", "9007199254740991"],
        )
        .await;
    assert!(odd.is_ok());
    assert!(bench.server.integer("PTTL lock:k").await > 0);
}

#[tokio::test]
async fn a_key_that_is_something_else_is_named_and_left_alone() {
    let bench = Bench::new().await;
    for make in [
        "SET lock:k v",
        "RPUSH lock:k v",
        "HSET lock:k mode write x 1",
        "ZADD lock:k 1 v",
    ] {
        bench.run("DEL lock:k").await;
        bench.run(make).await;
        let before = bench.run("DUMP lock:k").await;
        assert!(is_foreign(bench.call(acquire("a")).await, LOCK), "{make}");
        assert!(is_foreign(bench.call(force()).await, LOCK), "{make}");
        assert!(
            is_foreign(bench.call(Inspect { lock: LOCK }).await, LOCK),
            "{make}"
        );
        assert!(matches!(
            bench.call(release("a")).await,
            Ok(ReleaseReply::NotHeld { .. })
        ));
        assert!(matches!(
            bench.call(hand_over("a", "b")).await,
            Ok(HandOverReply::NotHeld)
        ));
        let renew = renewals(&[(LOCK, "a", 1_000)]);
        assert_eq!(
            bench.call(Renew { items: &renew }).await.unwrap(),
            [Renewed::NotHeld]
        );
        assert_eq!(bench.run("DUMP lock:k").await, before, "{make}");
    }
    assert_eq!(bench.server.integer("EXISTS lock:fence:{1}").await, 0);
    bench.run("DEL lock:k").await;
    bench.run("HSET lock:k field text").await;
    assert!(is_foreign(bench.call(force()).await, LOCK));
    assert!(is_foreign(bench.call(Inspect { lock: LOCK }).await, LOCK));
}

#[tokio::test]
async fn a_fence_that_is_no_number_is_named_before_any_write() {
    let bench = Bench::new().await;
    bench.acquire("holder").await;
    let before = bench.run("DUMP lock:k").await;
    for value in [
        "abc",
        "-1",
        "1.5",
        "1e3",
        "0x10",
        "9007199254740991",
        "9007199254740992",
        "00000000000000001",
    ] {
        bench.run(&format!("SET {FENCE} {value}")).await;
        assert!(
            is_foreign(bench.call(acquire("other")).await, FENCE),
            "{value}"
        );
        assert!(
            is_foreign(bench.call(acquire("holder")).await, FENCE),
            "{value}"
        );
        assert!(
            is_foreign(bench.call(hand_over("holder", "b")).await, FENCE),
            "{value}"
        );
        assert_eq!(
            bench.text(&format!("GET {FENCE}")).await.as_deref(),
            Some(value)
        );
    }
    bench.run(&format!("DEL {FENCE}")).await;
    bench.run(&format!("RPUSH {FENCE} 1")).await;
    assert!(is_foreign(bench.call(acquire("other")).await, FENCE));
    assert_eq!(bench.run("DUMP lock:k").await, before);
    bench.run("DEL lock:k").await;
    assert!(is_foreign(bench.call(acquire("other")).await, FENCE));
    assert_eq!(bench.server.integer("EXISTS lock:k").await, 0);
    let unfenced = Acquire {
        fence: None,
        ..acquire("other")
    };
    let granted = bench.call(unfenced).await.unwrap();
    assert!(matches!(granted, AcquireReply::Granted { token: None, .. }));
}

#[tokio::test]
async fn tokens_of_sixteen_digits_are_exact_and_never_repeat() {
    let bench = Bench::new().await;
    // Far ahead of the clock: as after a failover to a server whose clock lags.
    bench.run(&format!("SET {FENCE} 9007199254740985")).await;
    for (step, expected) in (9_007_199_254_740_986_u64..=9_007_199_254_740_989).enumerate() {
        assert_eq!(bench.token(&format!("a{step}")).await, expected);
        let stored = bench.text(&format!("GET {FENCE}")).await;
        assert_eq!(stored, Some(expected.to_string()));
        bench.run("DEL lock:k").await;
    }
    bench.token("a").await;
    let HandOverReply::Done { token, .. } = bench.call(hand_over("a", "b")).await.unwrap() else {
        panic!()
    };
    assert_eq!(token.unwrap().get(), 9_007_199_254_740_991);
    bench.run(&format!("DEL {FENCE} lock:k")).await;
    let now = bench.server.time().await;
    assert!(bench.token("a").await >= now, "by the clock again");
}

#[tokio::test]
async fn a_release_deletes_publishes_and_repeats_harmlessly() {
    let bench = Bench::new().await;
    let mut messages = bench.server.listen(&[CHANNEL]).await;
    bench.acquire("a").await;
    let other = bench.call(release("b")).await.unwrap();
    assert!(matches!(other, ReleaseReply::NotHeld { .. }));
    assert_eq!(bench.call(release("a")).await.unwrap(), ReleaseReply::Done);
    assert_eq!(bench.server.integer("EXISTS lock:k").await, 0);
    assert_eq!(
        messages.recv().await.unwrap(),
        (CHANNEL.to_owned(), "0".to_owned())
    );
    let before = bench.server.time().await;
    let ReleaseReply::NotHeld { time } = bench.call(release("a")).await.unwrap() else {
        panic!()
    };
    assert!(time >= before);
    bench.acquire("next").await;
    assert!(matches!(
        bench.call(release("a")).await.unwrap(),
        ReleaseReply::NotHeld { .. }
    ));
    assert_eq!(bench.server.integer("HEXISTS lock:k next").await, 1);
    assert!(messages.try_recv().is_err(), "nothing was released");
}

#[tokio::test]
async fn a_refused_publish_does_not_undo_the_release() {
    let bench = Bench::new().await;
    for rules in ["-publish", "resetchannels"] {
        let mut limited = bench.user(rules).await;
        bench.acquire("a").await;
        let released = run(&mut limited, &release("a")).await.unwrap();
        assert_eq!(released, ReleaseReply::Unpublished, "{rules}");
        assert_eq!(bench.server.integer("EXISTS lock:k").await, 0);
        bench.acquire("a").await;
        let forced = run(&mut limited, &force()).await.unwrap();
        assert!(forced.released);
        let hash = sha1_smol::Sha1::from("a").digest().to_string();
        let expected = [
            (CONTROL.to_owned(), hash),
            (CHANNEL.to_owned(), "0".to_owned()),
        ];
        assert_eq!(forced.unpublished, expected);
    }
}

#[tokio::test]
async fn a_refused_write_leaves_no_lock_behind() {
    let bench = Bench::new().await;
    for refused in ["pexpire", "hset", "set", "hlen", "time", "get"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &acquire("a")).await;
        assert!(
            matches!(&answer, Err(Fault::Denied(_))),
            "{refused}: {answer:?}"
        );
        assert_eq!(bench.server.integer("EXISTS lock:k").await, 0, "{refused}");
    }
    bench.acquire("a").await;
    for refused in ["pexpire", "hset", "set", "hexists", "get"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &hand_over("a", "b")).await;
        assert!(
            matches!(&answer, Err(Fault::Denied(_))),
            "{refused}: {answer:?}"
        );
        assert_eq!(
            bench.server.integer("HEXISTS lock:k a").await,
            1,
            "{refused}"
        );
        assert_eq!(bench.server.integer("HLEN lock:k").await, 1, "{refused}");
    }
    let mut limited = bench.user("-hdel").await;
    assert!(matches!(
        run(&mut limited, &release("a")).await,
        Err(Fault::Denied(_))
    ));
    let items = renewals(&[(LOCK, "a", 90_000)]);
    for refused in ["hexists", "pexpire"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &Renew { items: &items }).await;
        assert!(
            matches!(answer, Err(Fault::Denied(_))),
            "never taken for a loss: {refused}"
        );
    }
}

#[tokio::test]
async fn a_flushed_script_is_loaded_again_or_sent_whole() {
    let bench = Bench::new().await;
    bench.acquire("a").await;
    bench.run("SCRIPT FLUSH").await;
    assert_eq!(bench.call(release("a")).await.unwrap(), ReleaseReply::Done);
    assert_eq!(bench.server.integer("EXISTS lock:k").await, 0);
    let mut limited = bench.user("-script").await;
    bench.run("SCRIPT FLUSH").await;
    let granted = run(&mut limited, &acquire("a")).await.unwrap();
    assert!(matches!(granted, AcquireReply::Granted { .. }));
}

#[tokio::test]
async fn a_hand_over_moves_the_lock_once_and_never_acquires() {
    let bench = Bench::new().await;
    assert!(matches!(
        bench.call(hand_over("a", "b")).await.unwrap(),
        HandOverReply::NotHeld
    ));
    let first = bench.token("a").await;
    let mut tokens = vec![first];
    // The second is a copy of the first.
    for _ in 0..2 {
        let answer = bench
            .call(HandOver {
                lease: 10_000,
                ..hand_over("a", "b")
            })
            .await
            .unwrap();
        let HandOverReply::Done {
            token, subscribers, ..
        } = answer
        else {
            panic!()
        };
        tokens.push(token.unwrap().get());
        assert_eq!(subscribers, Some(0));
        assert_eq!(bench.text("HGET lock:k b").await.as_deref(), Some("1"));
        assert_eq!(bench.server.integer("HLEN lock:k").await, 1);
        let left = bench.server.integer("PTTL lock:k").await;
        assert!(
            (1..=10_000).contains(&left),
            "the lease is that of the new holder"
        );
    }
    assert!(tokens.is_sorted_by(|a, b| a < b));
    bench
        .call(HandOver {
            lease: 1_000,
            ..hand_over("a", "b")
        })
        .await
        .unwrap();
    assert!(
        bench.server.integer("PTTL lock:k").await > 1_000,
        "a copy never shortens"
    );
    bench.call(hand_over("b", "c")).await.unwrap();
    assert!(matches!(
        bench.call(hand_over("a", "b")).await.unwrap(),
        HandOverReply::NotHeld
    ));
    assert_eq!(bench.server.integer("HEXISTS lock:k c").await, 1);
}

#[tokio::test]
async fn a_hand_over_counts_who_listens_if_it_may() {
    let bench = Bench::new().await;
    let _one = bench.server.listen(&[CHANNEL]).await;
    let _other = bench.server.listen(&["elsewhere"]).await;
    bench.acquire("a").await;
    let answer = bench.call(hand_over("a", "b")).await.unwrap();
    assert!(matches!(
        answer,
        HandOverReply::Done {
            subscribers: Some(1),
            ..
        }
    ));
    let mut limited = bench.user("-pubsub").await;
    let answer = run(&mut limited, &hand_over("b", "c")).await.unwrap();
    assert!(matches!(
        answer,
        HandOverReply::Done {
            subscribers: None,
            ..
        }
    ));
}

#[tokio::test]
async fn a_renewal_extends_its_own_and_only_looks_when_told_so() {
    let bench = Bench::new().await;
    bench.acquire("a").await;
    bench.run("HSET lock:java uuid:1 3").await;
    bench.run("PEXPIRE lock:java 5000").await;
    bench.run("SET lock:text v").await;
    let items = renewals(&[
        (LOCK, "a", 90_000),
        (LOCK, "a", 1_000),
        (LOCK, "a", 0),
        (LOCK, "b", 90_000),
        ("lock:java", "a", 90_000),
        ("lock:text", "a", 90_000),
        ("lock:none", "a", 90_000),
    ]);
    let answers = bench.call(Renew { items: &items }).await.unwrap();
    let held = answers
        .iter()
        .map(|answer| *answer == Renewed::Held)
        .collect::<Vec<_>>();
    assert_eq!(held, [true, true, true, false, false, false, false]);
    assert!(
        bench.server.integer("PTTL lock:k").await > 80_000,
        "never shortened"
    );
    assert!(bench.server.integer("PTTL lock:java").await <= 5_000);
    assert_eq!(bench.server.integer("EXISTS lock:none").await, 0);
    bench.run("PERSIST lock:k").await;
    bench.call(Renew { items: &items[..1] }).await.unwrap();
    assert!(
        bench.server.integer("PTTL lock:k").await > 0,
        "a TTL always"
    );
}

#[tokio::test]
async fn a_forced_release_tells_waiters_and_the_holder() {
    let bench = Bench::new().await;
    let mut messages = bench.server.listen(&[CHANNEL, CONTROL]).await;
    assert!(!bench.call(force()).await.unwrap().released);
    bench.run("HSET lock:k uuid:7 3").await;
    assert!(bench.call(force()).await.unwrap().released);
    assert_eq!(bench.server.integer("EXISTS lock:k").await, 0);
    let hash = sha1_smol::Sha1::from("uuid:7").digest().to_string();
    assert_eq!(messages.recv().await.unwrap(), (CONTROL.to_owned(), hash));
    assert_eq!(
        messages.recv().await.unwrap(),
        (CHANNEL.to_owned(), "0".to_owned())
    );
    assert!(messages.try_recv().is_err());
}

#[tokio::test]
async fn an_inspection_sees_foreign_holders_and_writes_nothing() {
    let bench = Bench::new().await;
    assert!(bench.call(Inspect { lock: LOCK }).await.unwrap().is_none());
    bench.run("HSET lock:k uuid:7 3").await;
    let seen = bench.call(Inspect { lock: LOCK }).await.unwrap().unwrap();
    assert_eq!(
        (seen.holder.as_str(), seen.count, seen.left),
        ("uuid:7", 3, None)
    );
    bench.run("PEXPIRE lock:k 5000").await;
    let seen = bench.call(Inspect { lock: LOCK }).await.unwrap().unwrap();
    assert!(seen.left.is_some_and(|left| left <= Duration::from_secs(5)));
}

#[tokio::test]
async fn a_full_server_refuses_acquires_but_lets_holders_renew_and_release() {
    let bench = Bench::new().await;
    bench.acquire("a").await;
    bench.run("CONFIG SET maxmemory 1").await;
    let refused = bench
        .call(Acquire {
            lock: "lock:new",
            ..acquire("n")
        })
        .await;
    assert!(matches!(refused, Err(Fault::NotDone(why)) if why.to_string().contains("OOM")));
    let items = renewals(&[(LOCK, "a", 90_000)]);
    assert_eq!(
        bench.call(Renew { items: &items }).await.unwrap(),
        [Renewed::Held]
    );
    let handed = bench.call(hand_over("a", "b")).await.unwrap();
    assert!(matches!(handed, HandOverReply::Done { .. }));
    assert_eq!(bench.call(release("b")).await.unwrap(), ReleaseReply::Done);
    assert_eq!(bench.server.integer("EXISTS lock:new").await, 0);
}

#[tokio::test]
async fn a_demoted_server_says_so_and_never_that_the_lock_was_lost() {
    let bench = Bench::new().await;
    bench.acquire("a").await;
    bench.run("REPLICAOF 127.0.0.1 1").await;
    let items = renewals(&[(LOCK, "a", 90_000)]);
    let read_only =
        |fault: Fault| matches!(fault, Fault::NotDone(why) if why.to_string().contains("READONLY"));
    assert!(bench.call(acquire("b")).await.is_err_and(read_only));
    assert!(
        bench
            .call(Renew { items: &items })
            .await
            .is_err_and(read_only)
    );
    assert!(bench.call(release("a")).await.is_err_and(read_only));
    assert!(bench.call(hand_over("a", "b")).await.is_err_and(read_only));
    assert!(bench.call(force()).await.is_err_and(read_only));
    assert!(bench.call(Inspect { lock: LOCK }).await.unwrap().is_some());
}

//! Tests of the waiting list, and the reservation for the first holder on it.

use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::backend::redis::connection::check::micros;
pub(in super::super) use crate::backend::redis::kinds::listed::{ListedAcquire, ListedRelease};
use crate::backend::redis::pubsub::messages::reservation;

/// Holders of three processes of ours. The channel of each ends in the first part of its id.
const A: &str = "aaaaaaaa-0000-8000-8000-000000000001:1";
const B: &str = "bbbbbbbb-0000-8000-8000-000000000001:1";
const C: &str = "cccccccc-0000-8000-8000-000000000001:1";

type Messages = UnboundedReceiver<(String, String)>;

pub(in super::super) fn listed_acquire(holder: &str) -> ListedAcquire<'_> {
    ListedAcquire {
        lock: LOCK,
        waiting: WAITING,
        fence: Some(FENCE),
        holder,
        lease_ms: LEASE,
        not_after_us: FAR,
        counted: false,
        channel: CHANNEL,
        spare: None,
    }
}

pub(in super::super) fn listed_release(holder: &str) -> ListedRelease<'_> {
    ListedRelease {
        lock: LOCK,
        waiting: WAITING,
        fence: FENCE,
        holder,
        channel: CHANNEL,
        trip_us: 100,
        run_id: "",
        next: "",
        next_not_after_us: FAR,
        last: None,
        used: None,
    }
}

impl ScriptBench {
    async fn asks(&self, holder: &str) -> Option<u64> {
        match self.prolonged(listed_acquire(holder)).await.0 {
            AcquireReply::Granted { token, .. } => Some(token.unwrap().get()),
            AcquireReply::Busy { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    async fn gives_back(&self, holder: &str) {
        self.is_released(listed_release(holder)).await;
    }

    /// Releases by the list. Returns the end of the lock's lease after that, in ms of the server's time.
    async fn is_released(&self, release: ListedRelease<'_>) -> i64 {
        let (reply, ends) = self.prolonged(release).await;
        assert!(is_done(&reply), "{reply:?}");
        ends
    }

    async fn prolonged<S: Script>(&self, script: S) -> (S::Reply, i64) {
        let prolonged = run_prolonged(&mut self.connection.clone(), &script).await;
        prolonged.unwrap()
    }

    /// Returns the server's time in ms.
    async fn millis(&self) -> i64 {
        let now = micros(&self.run("TIME").await).unwrap() / 1_000;
        now.try_into().unwrap()
    }

    async fn holder(&self) -> Option<String> {
        let fields = redis::cmd("HKEYS").arg(LOCK).take();
        let fields: Vec<String> = fields
            .query_async(&mut self.connection.clone())
            .await
            .unwrap();
        fields.into_iter().next()
    }

    async fn list(&self) -> Vec<String> {
        let list = redis::cmd("ZRANGE").arg(WAITING).arg(0).arg(-1).take();
        let mut connection = self.connection.clone();
        list.query_async(&mut connection).await.unwrap()
    }

    /// Listens as the processes on the list do.
    async fn ours(&self) -> Messages {
        let channels = ["", ":ours", ":bbbbbbbb", ":cccccccc"].map(|end| CHANNEL.to_owned() + end);
        let channels = channels.each_ref().map(String::as_str);
        self.server.listen(&channels).await
    }
}

fn is_not_held(reply: &Announced<ReleaseReply>) -> bool {
    reply.done.released == Released::NotHeld
}

/// Returns the messages that have arrived so far.
async fn all_told(bench: &ScriptBench, messages: &mut Messages) -> Vec<(String, String)> {
    bench.run(&format!("PUBLISH {CHANNEL} end")).await;
    let mut all = Vec::new();
    loop {
        let message = messages.recv().await.unwrap();
        if message.1 == "end" {
            return all;
        }
        all.push(message);
    }
}

#[tokio::test]
async fn a_release_reserves_the_lock_for_the_first_on_the_list() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.ours().await;
    let first = bench.asks(A).await.unwrap();
    assert_eq!((bench.asks(B).await, bench.asks(C).await), (None, None));
    assert_eq!(bench.asks(B).await, None, "it keeps its place");
    assert_eq!(bench.list().await, [B, C]);
    bench.gives_back(A).await;
    assert_eq!(bench.holder().await.as_deref(), Some(B));
    let told = all_told(&bench, &mut messages).await;
    assert_eq!(told, [(format!("{CHANNEL}:bbbbbbbb"), "0".to_owned())]);

    // No other holder acquires it meanwhile: neither the next one on the list nor one that does not know the list.
    bench.run("PEXPIRE lock:k 15000").await;
    assert_eq!(bench.asks(C).await, None);
    let other = bench.call(acquire("other")).await.unwrap();
    assert!(matches!(other, AcquireReply::Busy { .. }), "{other:?}");
    let second = bench.asks(B).await.unwrap();
    assert!(second > first, "the token is that of the request");
    let left = bench.integer("PTTL lock:k").await;
    assert!(left > 20_000, "the whole lease: {left}");
    assert_eq!(bench.list().await, [C]);
}

#[tokio::test]
async fn a_release_puts_the_next_holder_of_its_process_on_the_list() {
    const NEXT: &str = "aaaaaaaa-0000-8000-8000-000000000001:2";
    let bench = ScriptBench::new().await;
    let _messages = bench.ours().await;
    let _own = bench.server.listen(&[&format!("{CHANNEL}:aaaaaaaa")]).await;
    let release = |next_not_after_us| ListedRelease {
        next: NEXT,
        next_not_after_us,
        ..listed_release(A)
    };
    for run_id in ["", "run"] {
        bench.run("DEL lock:k lock:waiting:{lock:k}").await;
        bench.asks(A).await.unwrap();
        assert_eq!((bench.asks(B).await, bench.asks(C).await), (None, None));
        let release = ListedRelease {
            run_id,
            ..release(FAR)
        };
        let before = micros(&bench.run("TIME").await).unwrap();
        let (reply, _) = bench.prolonged(release).await;
        assert_eq!(reply.done.released, Released::DoneAndListed, "{reply:?}");
        let after = micros(&bench.run("TIME").await).unwrap();
        assert!((before..=after).contains(&reply.done.time));
        assert_eq!(bench.holder().await.as_deref(), Some(B));
        assert_eq!(bench.list().await, [C, NEXT]);
        assert!(bench.integer("PTTL lock:waiting:{lock:k}").await > 0);
        // It is served in its turn.
        bench.asks(B).await.unwrap();
        bench.gives_back(B).await;
        bench.asks(C).await.unwrap();
        bench.gives_back(C).await;
        assert_eq!(bench.holder().await.as_deref(), Some(NEXT));
    }
    // A late copy, and a lock that nobody else gets.
    for (others_wait, date) in [(true, 1), (false, FAR)] {
        for run_id in ["", "run"] {
            bench.run("DEL lock:k lock:waiting:{lock:k}").await;
            bench.asks(A).await.unwrap();
            if others_wait {
                assert_eq!(bench.asks(B).await, None);
            }
            let release = ListedRelease {
                run_id,
                ..release(date)
            };
            bench.is_released(release).await;
            assert!(bench.list().await.is_empty());
            // A copy of a release that was carried out.
            let again = bench.call(self::listed_release(A)).await.unwrap();
            assert!(is_not_held(&again), "{again:?}");
        }
    }
}

#[tokio::test]
async fn a_release_wakes_all_listeners_if_the_list_is_empty() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.ours().await;
    bench.asks(A).await.unwrap();
    bench.gives_back(A).await;
    assert_eq!(bench.holder().await, None);
    let told = all_told(&bench, &mut messages).await;
    assert_eq!(told, [(CHANNEL.to_owned(), "0".to_owned())]);
}

#[tokio::test]
async fn a_release_says_whether_a_listener_received_it() {
    let bench = ScriptBench::new().await;
    bench.acquire("a").await;
    assert_eq!(bench.call(release("a")).await.unwrap(), DONE);
    let _listener = bench.server.listen(&[CHANNEL]).await;
    bench.acquire("a").await;
    assert_eq!(bench.call(release("a")).await.unwrap(), received_by(1));
}

#[tokio::test]
async fn a_process_that_receives_no_message_is_passed_over() {
    let bench = ScriptBench::new().await;
    let channels = ["", ":ours", ":cccccccc"].map(|end| CHANNEL.to_owned() + end);
    let channels = channels.each_ref().map(String::as_str);
    let _messages = bench.server.listen(&channels).await;
    bench.asks(A).await.unwrap();
    for dead in 1..=3 {
        let holder = format!("deadbeef-0000-8000-8000-000000000001:{dead}");
        assert_eq!(bench.asks(&holder).await, None);
    }
    assert_eq!((bench.asks(B).await, bench.asks(C).await), (None, None));
    bench.gives_back(A).await;
    assert_eq!(bench.holder().await.as_deref(), Some(C));
    assert!(bench.list().await.is_empty());
    // The same for a lock whose lease has ended.
    bench.asks(B).await;
    bench.run("DEL lock:k").await;
    assert!(bench.asks(A).await.is_some());
}

/// Replicas pass a message on to listeners that this server does not count, and it cannot be taken back.
#[tokio::test]
async fn no_message_names_a_reservation_that_is_taken_back() {
    let bench = ScriptBench::new().await;
    bench.asks(A).await.unwrap();
    assert_eq!((bench.asks(B).await, bench.asks(C).await), (None, None));
    let published = async || {
        let stats = bench.server.text("INFO commandstats").await;
        let calls = stats.lines().find_map(|line| {
            let rest = line.strip_prefix("cmdstat_publish:calls=")?;
            rest.split(',').next()?.parse::<u32>().ok()
        });
        calls.unwrap_or(0)
    };
    let before = published().await;
    let release = ListedRelease {
        run_id: "run",
        ..listed_release(A)
    };
    bench.is_released(release).await;
    assert_eq!((bench.holder().await, bench.list().await), (None, vec![]));
    assert_eq!(published().await - before, 1, "that the lock is free");
}

/// Without the right to count listeners, the server may have none that hears the message.
#[tokio::test]
async fn a_message_whose_listeners_were_not_counted_is_a_hint() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.ours().await;
    bench.asks(A).await.unwrap();
    assert_eq!(bench.asks(B).await, None);
    bench.run("ACL SETUSER default -pubsub").await;
    let release = ListedRelease {
        run_id: "run",
        ..listed_release(A)
    };
    bench.is_released(release).await;
    assert_eq!(bench.holder().await.as_deref(), Some(B));
    let told = all_told(&bench, &mut messages).await;
    assert_eq!(told, [(format!("{CHANNEL}:bbbbbbbb"), "0".to_owned())]);
}

#[tokio::test]
async fn a_free_lock_is_reserved_for_the_first_on_the_list() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.ours().await;
    bench.asks(A).await.unwrap();
    assert_eq!((bench.asks(B).await, bench.asks(C).await), (None, None));
    // The lock ends without a release, as a lease does.
    bench.run("DEL lock:k").await;
    assert_eq!(bench.asks(C).await, None);
    assert_eq!(bench.holder().await.as_deref(), Some(B));
    let told = all_told(&bench, &mut messages).await;
    assert_eq!(told, [(format!("{CHANNEL}:bbbbbbbb"), "0".to_owned())]);
    // It does not ask in time.
    bench.run("DEL lock:k").await;
    assert!(bench.asks(C).await.is_some());
    assert!(bench.list().await.is_empty());
}

#[tokio::test]
async fn a_reservation_lasts_a_second() {
    let bench = ScriptBench::new().await;
    let _messages = bench.ours().await;
    for (by_release, run_id) in [(true, ""), (true, "run"), (false, "")] {
        bench.run("DEL lock:k lock:waiting:{lock:k}").await;
        bench.asks(A).await.unwrap();
        assert_eq!(bench.asks(B).await, None);
        let before = bench.millis().await;
        let ends = if by_release {
            let release = ListedRelease {
                run_id,
                ..listed_release(A)
            };
            bench.is_released(release).await
        } else {
            bench.run("DEL lock:k").await;
            let (reply, ends) = bench.prolonged(listed_acquire(C)).await;
            assert!(matches!(reply, AcquireReply::Busy { .. }), "{reply:?}");
            ends
        };
        let after = bench.millis().await;
        assert!((before + 1_000..=after + 1_000).contains(&ends), "{ends}");
    }
}

#[tokio::test]
async fn a_reservation_message_names_holder_server_end_and_token() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.ours().await;
    // Unused tokens go back before the next one is drawn.
    for (used, fence) in [(None, "5"), (None, "8000000000000000"), (Some(7), "9")] {
        bench.run("DEL lock:k lock:waiting:{lock:k}").await;
        bench.asks(A).await.unwrap();
        assert_eq!(bench.asks(B).await, None);
        bench.run(&format!("SET {FENCE} {fence}")).await;
        let release = ListedRelease {
            run_id: "run-7",
            last: used.map(|_| 9),
            used,
            ..listed_release(A)
        };
        let ends = bench.is_released(release).await;
        let told = all_told(&bench, &mut messages).await;
        let [(channel, message)] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert_eq!(*channel, format!("{CHANNEL}:bbbbbbbb"));
        let reservation = reservation(message.as_bytes()).unwrap();
        assert_eq!(
            reservation.holder,
            HolderId::parse(B).unwrap().alias(Kind::Mutex)
        );
        assert_eq!(&*reservation.run_id, "run-7");
        let token = bench.run(&format!("GET {FENCE}")).await;
        assert_eq!(
            token,
            Value::BulkString(reservation.token.to_string().into())
        );
        let now = micros(&bench.run("TIME").await).unwrap();
        assert_eq!(Ok(reservation.ends_us / 1_000), u64::try_from(ends));
        match fence {
            "8000000000000000" => assert_eq!(reservation.token.get(), 8_000_000_000_000_001),
            _ => assert!(
                reservation.token.get().abs_diff(now) < 20_000_000,
                "{message}"
            ),
        }
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_puts_no_newcomer_before_a_waiter() {
    let bench = ScriptBench::new().await;
    let _messages = bench.ours().await;
    bench.asks(A).await.unwrap();
    // B was listed by the clock of before, which was far ahead.
    bench
        .run(&format!(
            "ZADD lock:waiting:{{lock:k}} 8500000000000000 {B}"
        ))
        .await;
    assert_eq!(bench.asks(C).await, None);
    assert_eq!(bench.list().await, [C, B]);
    // It asks again, as it does at least once a second. A later holder is behind it.
    assert_eq!(bench.asks(B).await, None);
    bench.gives_back(A).await;
    assert_eq!(bench.holder().await.as_deref(), Some(C));
    assert_eq!(bench.asks(A).await, None);
    assert_eq!(bench.list().await, [B, A]);
}

#[tokio::test]
async fn listeners_that_only_look_on_cost_at_most_every_other_turn() {
    const LOOK_ON: usize = 20;
    let bench = ScriptBench::new().await;
    let _ours = bench.ours().await;
    let mut lookers = Vec::new();
    for _ in 0..LOOK_ON {
        lookers.push(bench.server.listen(&[CHANNEL]).await);
    }
    let mut reserved = 0;
    for _ in 0..100 {
        bench.run("DEL lock:waiting:{lock:k} lock:k").await;
        bench.asks(A).await.unwrap();
        assert_eq!((bench.asks(B).await, bench.asks(C).await), (None, None));
        bench.gives_back(A).await;
        reserved += u32::from(bench.holder().await.is_some());
    }
    // The release throws a coin a hundred times. By their number, the listeners would get ten of eleven turns.
    assert!((20..=80).contains(&reserved), "{reserved}");
}

#[tokio::test]
async fn a_leaving_holder_is_removed_and_passes_its_reservation_on() {
    let bench = ScriptBench::new().await;
    let _messages = bench.ours().await;
    bench.asks(A).await.unwrap();
    assert_eq!((bench.asks(B).await, bench.asks(C).await), (None, None));
    let left = bench.call(listed_release(B)).await.unwrap();
    assert!(is_not_held(&left), "{left:?}");
    assert_eq!(bench.list().await, [C]);
    assert_eq!(bench.holder().await.as_deref(), Some(A));
    bench.asks(B).await;
    bench.gives_back(A).await;
    assert_eq!(bench.holder().await.as_deref(), Some(C));
    bench.gives_back(C).await;
    assert_eq!(bench.holder().await.as_deref(), Some(B));
    bench.gives_back(B).await;
    assert_eq!((bench.holder().await, bench.list().await), (None, vec![]));
}

#[tokio::test]
async fn listeners_off_the_list_get_the_lock_in_their_turn() {
    let bench = ScriptBench::new().await;
    let _ours = bench.ours().await;
    let mut strangers = bench.server.listen(&[CHANNEL]).await;
    let (mut left, mut reserved, mut kept_away) = (0, 0, 0);
    for _ in 0..80 {
        bench.run("DEL lock:waiting:{lock:k} lock:k").await;
        bench.asks(A).await.unwrap();
        assert_eq!((bench.asks(B).await, bench.asks(C).await), (None, None));
        let release = ListedRelease {
            trip_us: 50_000,
            ..listed_release(A)
        };
        bench.is_released(release).await;
        let told = all_told(&bench, &mut strangers).await;
        match bench.holder().await.as_deref() {
            None => {
                left += 1;
                assert_eq!(told, [(CHANNEL.to_owned(), "0".to_owned())]);
                // Our processes leave the lock alone for a moment, and other clients do not.
                if bench.asks(B).await.is_none() {
                    assert_eq!(bench.holder().await, None);
                    let stranger = bench.call(acquire("stranger")).await.unwrap();
                    assert!(matches!(stranger, AcquireReply::Granted { .. }));
                    kept_away += 1;
                    bench.run("DEL lock:k").await;
                    // The first of our processes acquires it when the time is over.
                    eventually(async || bench.asks(B).await.is_some()).await;
                }
            }
            Some(holder) => {
                reserved += 1;
                assert_eq!(holder, B);
                assert!(told.is_empty(), "{told:?}");
            }
        }
    }
    // The listeners get a third of the turns, because two processes are on the list.
    assert!(left >= 4 && reserved >= 12, "{left} and {reserved}");
    assert!(kept_away > 0, "it is left to others for 200 ms");
}

async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let since = std::time::Instant::now();
    while !is_so().await {
        assert!(since.elapsed().as_secs() < 20, "it never was so");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_lock_works_without_a_usable_waiting_list() {
    let bench = ScriptBench::new().await;
    let _messages = bench.ours().await;
    bench.run("SET lock:waiting:{lock:k} x").await;
    bench.asks(A).await.unwrap();
    assert_eq!(bench.asks(B).await, None);
    bench.gives_back(A).await;
    assert!(bench.asks(B).await.is_some());
    bench.gives_back(B).await;
    bench.run("DEL lock:waiting:{lock:k}").await;

    for rules in ["-pubsub", "-publish", "-hget", "-zcard"] {
        bench.run("DEL lock:k lock:waiting:{lock:k}").await;
        let mut limited = bench.user(rules).await;
        for (holder, next) in [(A, B), (B, C)] {
            let asked = run(&mut limited, &listed_acquire(holder)).await.unwrap();
            assert!(
                matches!(asked, AcquireReply::Granted { .. }),
                "{rules}: {asked:?}"
            );
            let asked = run(&mut limited, &listed_acquire(next)).await.unwrap();
            assert!(
                matches!(asked, AcquireReply::Busy { .. }),
                "{rules}: {asked:?}"
            );
            // The next holder may have a reservation, and finds it.
            let released = run(&mut limited, &listed_release(holder)).await.unwrap();
            assert!(!is_not_held(&released), "{rules}");
        }
    }
}

#[tokio::test]
async fn without_the_rights_to_the_list_nothing_is_done_to_the_lock() {
    let bench = ScriptBench::new().await;
    let _messages = bench.ours().await;
    for rules in ["-zadd", "-zrange", "-zrem"] {
        bench.run("DEL lock:k lock:waiting:{lock:k}").await;
        bench.run(&format!("HSET lock:k {A} 1")).await;
        bench.run("PEXPIRE lock:k 30000").await;
        bench
            .run(&format!("ZADD lock:waiting:{{lock:k}} 5 {B}"))
            .await;
        let mut limited = bench.user(rules).await;
        let asked = run(&mut limited, &listed_acquire(C)).await;
        let released = run(&mut limited, &listed_release(A)).await;
        let refused = |fault: &Fault| matches!(fault, Fault::Denied(_));
        let is_refused = asked.as_ref().err().is_some_and(refused)
            || released.as_ref().err().is_some_and(refused);
        assert!(is_refused, "{rules}: {asked:?} {released:?}");
        if released.is_err() {
            assert_eq!(bench.holder().await.as_deref(), Some(A), "{rules}");
        }
    }
}

#[tokio::test]
async fn a_reservation_without_a_lease_leaves_no_lock_behind() {
    let bench = ScriptBench::new().await;
    let _messages = bench.ours().await;
    bench.run(&format!("HSET lock:k {A} 1")).await;
    bench.run("PEXPIRE lock:k 30000").await;
    bench
        .run(&format!("ZADD lock:waiting:{{lock:k}} 5 {B}"))
        .await;
    let mut limited = bench.user("-pexpire -pexpireat").await;
    let released = run(&mut limited, &listed_release(A)).await.unwrap();
    assert_eq!(released, received_by(1));
    assert_eq!(bench.holder().await, None);
    bench
        .run(&format!("ZADD lock:waiting:{{lock:k}} 5 {B}"))
        .await;
    let asked = run(&mut limited, &listed_acquire(C)).await;
    assert!(asked.is_err(), "{asked:?}");
    assert_eq!(bench.holder().await, None);
}

#[tokio::test]
async fn a_bad_listed_acquire_is_refused_before_any_write() {
    let bench = ScriptBench::new().await;
    let far = FAR.to_string();
    for lease in ["0", "-1", "1.5", "x", "86400001"] {
        let arguments = [A, lease, &far, "0", CHANNEL];
        let keys = [LOCK, WAITING, FENCE];
        let refused = bench.raw(ListedAcquire::source(), &keys, &arguments).await;
        assert!(refused.is_err(), "{lease}: {refused:?}");
    }
    let late = ListedAcquire {
        not_after_us: 1,
        ..listed_acquire(A)
    };
    let late = bench.call(late).await.unwrap();
    assert!(matches!(late, AcquireReply::Stale { .. }), "{late:?}");
    bench.run("SET lock:fence:{1} junk").await;
    assert!(is_foreign(bench.call(listed_acquire(A)).await, FENCE));
    assert_eq!(
        bench.integer("EXISTS lock:k lock:waiting:{lock:k}").await,
        0
    );
    for foreign in ["SET lock:k x", "HSET lock:k a 1 b 1", "HSET lock:k a junk"] {
        bench.run("DEL lock:k").await;
        bench.run(foreign).await;
        assert!(
            is_foreign(bench.call(listed_acquire(A)).await, LOCK),
            "{foreign}"
        );
    }
    assert!(bench.list().await.is_empty());
}

//! Tests of read/write locks: Redisson's exact shapes, dead readers, second copies, and keys that are left alone.

use super::*;
use crate::values::kind::LockMode;

const WAITS: &str = "lock:rw:waiting:{lock:k}";
/// Readers of this library, by their ids.
const A: &str = "aaaaaaaa-0000-8000-8000-000000000000:1";
const B: &str = "bbbbbbbb-0000-8000-8000-000000000000:1";

/// A holder and the keys of its request.
pub(super) struct ReadWriteKeys {
    holder: &'static str,
    timeout: String,
}

impl ReadWriteKeys {
    pub(super) fn of(holder: &'static str) -> ReadWriteKeys {
        ReadWriteKeys {
            holder,
            timeout: format!("{{lock:k}}:{holder}:rwlock_timeout:1"),
        }
    }

    pub(super) fn read(&self) -> ReadAcquire<'_> {
        ReadAcquire {
            lock: LOCK,
            timeout: &self.timeout,
            writer_waits: WAITS,
            holder: self.holder,
            lease_ms: LEASE,
            not_after_us: FAR,
        }
    }

    pub(super) fn write(&self) -> WriteAcquire<'_> {
        WriteAcquire {
            lock: LOCK,
            writer_waits: WAITS,
            fence: Some(FENCE),
            holder: self.holder,
            lease_ms: LEASE,
            not_after_us: FAR,
            waits_ms: 0,
        }
    }

    pub(super) fn release(&self) -> ReadWriteRelease<'_> {
        ReadWriteRelease {
            lock: LOCK,
            timeout: &self.timeout,
            holder: self.holder,
            channel: RW_CHANNEL,
        }
    }

    pub(super) fn downgrade(&self) -> ReadWriteDowngrade<'_> {
        ReadWriteDowngrade {
            lock: LOCK,
            timeout: &self.timeout,
            holder: self.holder,
            lease_ms: LEASE,
            channel: RW_CHANNEL,
        }
    }

    pub(super) fn renewal(&self, ttl: u64) -> (&'static str, String, String, i64) {
        let ttl = ttl.cast_signed();
        (LOCK, self.timeout.clone(), self.holder.to_owned(), ttl)
    }
}

fn is_granted(answer: &AcquireReply) -> bool {
    matches!(answer, AcquireReply::Granted { .. })
}

fn is_busy(answer: &AcquireReply) -> bool {
    matches!(answer, AcquireReply::Busy { .. })
}

impl ScriptBench {
    async fn reads(&self, holder: &'static str) -> AcquireReply {
        self.call(ReadWriteKeys::of(holder).read()).await.unwrap()
    }

    async fn writes(&self, holder: &'static str) -> AcquireReply {
        self.call(ReadWriteKeys::of(holder).write()).await.unwrap()
    }

    /// Ends a reader's lease.
    async fn dies(&self, holder: &str) {
        self.run(&format!("DEL {{lock:k}}:{holder}:rwlock_timeout:1"))
            .await;
    }

    /// Returns the hash as `field=value`, in order.
    async fn hash(&self) -> String {
        let Value::Array(items) = self.run("HGETALL lock:k").await else {
            panic!("no hash")
        };
        let items: Vec<_> = items
            .into_iter()
            .map(|item| reply::text(item).unwrap())
            .collect();
        let mut fields: Vec<_> = items
            .chunks(2)
            .map(|pair| format!("{}={}", pair[0], pair[1]))
            .collect();
        fields.sort();
        fields.join(" ")
    }
}

#[tokio::test]
async fn readers_and_writers_have_redissons_shapes() {
    let bench = ScriptBench::new().await;
    assert!(is_granted(&bench.reads("a").await));
    assert!(is_granted(&bench.reads("b").await));
    assert_eq!(bench.hash().await, "a=1 b=1 mode=read");
    for key in ["lock:k", "{lock:k}:a:rwlock_timeout:1"] {
        let left = bench.integer(&format!("PTTL {key}")).await;
        assert!((1..=30_000).contains(&left), "{key}: {left}");
    }
    let value = bench.text("GET {lock:k}:b:rwlock_timeout:1").await;
    assert_eq!(value.as_deref(), Some("1"));
    assert!(is_busy(&bench.writes("w").await));
    for holder in ["a", "b"] {
        bench
            .call(ReadWriteKeys::of(holder).release())
            .await
            .unwrap();
    }
    assert_eq!(bench.integer("DBSIZE").await, 0);
    assert!(matches!(
        bench.writes("w").await,
        AcquireReply::Granted { token: Some(_), .. }
    ));
    assert_eq!(bench.hash().await, "mode=write w:write=1");
    assert!(is_busy(&bench.reads("a").await) && is_busy(&bench.writes("v").await));
    bench.call(ReadWriteKeys::of("w").release()).await.unwrap();
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
}

#[tokio::test]
async fn a_second_copy_counts_nothing_and_shortens_nothing() {
    let bench = ScriptBench::new().await;
    let (a, w) = (ReadWriteKeys::of("a"), ReadWriteKeys::of("w"));
    for lease in [LEASE, 1_000] {
        let answer = bench
            .call(ReadAcquire {
                lease_ms: lease,
                ..a.read()
            })
            .await
            .unwrap();
        assert!(is_granted(&answer));
    }
    assert_eq!(bench.hash().await, "a=1 mode=read");
    for key in ["lock:k", "{lock:k}:a:rwlock_timeout:1"] {
        assert!(bench.integer(&format!("PTTL {key}")).await > 1_000, "{key}");
    }
    bench.call(a.release()).await.unwrap();
    let again = bench.call(a.release()).await.unwrap();
    assert_eq!(again.done.released, Released::NotHeld);
    let mut tokens = Vec::new();
    for lease in [LEASE, 1_000] {
        match bench
            .call(WriteAcquire {
                lease_ms: lease,
                ..w.write()
            })
            .await
            .unwrap()
        {
            AcquireReply::Granted { token, .. } => tokens.push(token.unwrap().get()),
            other => panic!("{other:?}"),
        }
    }
    assert!(tokens[0] < tokens[1]);
    assert_eq!(bench.hash().await, "mode=write w:write=1");
    assert!(bench.integer("PTTL lock:k").await > 1_000);
}

#[tokio::test]
async fn a_late_request_is_refused() {
    let bench = ScriptBench::new().await;
    let (a, w) = (ReadWriteKeys::of("a"), ReadWriteKeys::of("w"));
    let read = ReadAcquire {
        not_after_us: 1,
        ..a.read()
    };
    assert!(matches!(
        bench.call(read).await.unwrap(),
        AcquireReply::Stale { .. }
    ));
    let write = WriteAcquire {
        not_after_us: 1,
        ..w.write()
    };
    assert!(matches!(
        bench.call(write).await.unwrap(),
        AcquireReply::Stale { .. }
    ));
    assert_eq!(bench.integer("DBSIZE").await, 0);
}

#[tokio::test]
async fn a_dead_reader_keeps_no_writer_out() {
    let bench = ScriptBench::new().await;
    bench.reads(A).await;
    bench.reads(B).await;
    bench.dies(A).await;
    assert!(is_busy(&bench.writes("w").await), "B lives");
    bench.dies(B).await;
    assert!(bench.call(inspect()).await.unwrap().is_none());
    assert!(is_granted(&bench.writes("w").await));
    assert_eq!(bench.hash().await, "mode=write w:write=1");
    let answers = bench
        .call(ReadRenew {
            items: &[ReadWriteKeys::of(A).renewal(LEASE)],
        })
        .await
        .unwrap();
    assert_eq!(answers, [Renewed::NotHeld]);
}

#[tokio::test]
async fn a_java_reader_lives_as_long_as_any_of_its_holds() {
    let bench = ScriptBench::new().await;
    bench.run("HSET lock:k mode read uuid:7 3").await;
    bench.run("PEXPIRE lock:k 60000").await;
    bench
        .run("SET {lock:k}:uuid:7:rwlock_timeout:3 1 PX 60000")
        .await;
    assert!(is_busy(&bench.writes("w").await));
    assert!(is_granted(&bench.reads("a").await));
    assert_eq!(bench.hash().await, "a=1 mode=read uuid:7=3");
    bench.call(ReadWriteKeys::of("a").release()).await.unwrap();
    assert_eq!(bench.hash().await, "mode=read uuid:7=3");
    let seen = bench.call(inspect()).await.unwrap().unwrap();
    assert_eq!(
        (seen.count, seen.mode, seen.readers),
        (3, LockMode::Read, 1)
    );
    // Its own watchdog may have forgotten the key of its lease, and renews the hash.
    bench.run("DEL {lock:k}:uuid:7:rwlock_timeout:3").await;
    assert!(is_busy(&bench.writes("w").await));
    assert!(is_granted(&bench.reads(A).await));
    bench.call(ReadWriteKeys::of(A).release()).await.unwrap();
    assert_eq!(bench.hash().await, "mode=read uuid:7=3");
    assert!(bench.integer("PTTL lock:k").await > 50_000);
    assert_eq!(bench.call(inspect()).await.unwrap().unwrap().readers, 1);
    bench.run("DEL lock:k").await;
    assert!(is_granted(&bench.writes("w").await));
}

#[tokio::test]
async fn a_java_writer_that_also_reads_is_left_as_it_is() {
    let bench = ScriptBench::new().await;
    bench
        .run("HSET lock:k mode write uuid:7:write 2 uuid:7 1")
        .await;
    bench.run("PEXPIRE lock:k 60000").await;
    let before = bench.hash().await;
    assert!(is_busy(&bench.writes("w").await) && is_busy(&bench.reads("a").await));
    for holder in ["w", "a"] {
        let released = bench
            .call(ReadWriteKeys::of(holder).release())
            .await
            .unwrap();
        assert_eq!(released.done.released, Released::NotHeld);
        let downgraded = bench
            .call(ReadWriteKeys::of(holder).downgrade())
            .await
            .unwrap();
        assert_eq!(downgraded.done.released, Released::NotHeld);
    }
    assert_eq!(bench.hash().await, before);
    let seen = bench.call(inspect()).await.unwrap().unwrap();
    assert_eq!(
        (seen.holder.as_deref(), seen.count, seen.mode),
        (Some("uuid:7"), 2, LockMode::Write)
    );
}

#[tokio::test]
async fn the_last_reader_publishes_and_others_bound_the_lease() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.server.listen(&[RW_CHANNEL]).await;
    let (a, b) = (ReadWriteKeys::of(A), ReadWriteKeys::of(B));
    bench
        .call(ReadAcquire {
            lease_ms: 5_000,
            ..a.read()
        })
        .await
        .unwrap();
    bench.call(b.read()).await.unwrap();
    bench.call(b.release()).await.unwrap();
    let left = bench.integer("PTTL lock:k").await;
    assert!((1..=5_000).contains(&left), "{left}: what A has left");
    let key = format!("EXISTS {{lock:k}}:{B}:rwlock_timeout:1");
    assert_eq!(bench.integer(&key).await, 0);
    assert!(messages.try_recv().is_err(), "A still reads");
    bench.call(a.release()).await.unwrap();
    assert_eq!(messages.recv().await.unwrap().1, "0");
    // If only dead readers are left beside it, the last living reader ends the lock.
    bench.call(a.read()).await.unwrap();
    bench.call(b.read()).await.unwrap();
    bench.dies(A).await;
    bench.call(b.release()).await.unwrap();
    assert_eq!(messages.recv().await.unwrap().1, "0");
    assert_eq!(bench.integer("DBSIZE").await, 0);
}

#[tokio::test]
async fn a_writer_publishes_one_and_then_zero() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.server.listen(&[RW_CHANNEL]).await;
    let w = ReadWriteKeys::of("w");
    bench.call(w.write()).await.unwrap();
    let heard = bench.call(w.release()).await.unwrap();
    assert_eq!(heard, received_by(1));
    for payload in ["1", "0"] {
        assert_eq!(messages.recv().await.unwrap().1, payload);
    }
    bench.call(w.write()).await.unwrap();
    let mut limited = bench.user("resetchannels").await;
    let released = run(&mut limited, &w.release()).await.unwrap();
    assert_eq!(
        released,
        unpublished(&[(RW_CHANNEL, "1"), (RW_CHANNEL, "0")])
    );
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
}

#[tokio::test]
async fn a_downgrade_happens_once_keeps_the_lease_and_wakes_readers() {
    let bench = ScriptBench::new().await;
    let w = ReadWriteKeys::of("w");
    let mut messages = bench.server.listen(&[RW_CHANNEL]).await;
    let nothing = bench.call(w.downgrade()).await.unwrap();
    assert_eq!(nothing.done.released, Released::NotHeld);
    assert_eq!(bench.integer("DBSIZE").await, 0, "it never acquires");
    bench
        .call(WriteAcquire {
            lease_ms: 5_000,
            ..w.write()
        })
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(bench.call(w.downgrade()).await.unwrap(), DONE);
        assert_eq!(bench.hash().await, "mode=read w=1");
    }
    for key in ["lock:k", "{lock:k}:w:rwlock_timeout:1"] {
        let left = bench.integer(&format!("PTTL {key}")).await;
        assert!((1..=5_000).contains(&left), "{key}: {left}");
    }
    for payload in ["1", "0"] {
        assert_eq!(messages.recv().await.unwrap().1, payload);
    }
    assert!(messages.try_recv().is_err());
    assert!(is_granted(&bench.reads("a").await) && is_busy(&bench.writes("v").await));
    for holder in ["a", "w"] {
        bench
            .call(ReadWriteKeys::of(holder).release())
            .await
            .unwrap();
    }
    let late = bench.call(w.downgrade()).await.unwrap();
    assert_eq!(late.done.released, Released::NotHeld);
}

#[tokio::test]
async fn the_release_of_a_read_also_ends_the_write_that_it_was() {
    let bench = ScriptBench::new().await;
    let w = ReadWriteKeys::of("w");
    bench.call(w.write()).await.unwrap();
    let items = [w.renewal(90_000)];
    let answers = bench.call(ReadRenew { items: &items }).await.unwrap();
    assert_eq!(answers, [Renewed::Held]);
    assert!(bench.integer("PTTL lock:k").await > 80_000);
    assert_eq!(bench.call(w.release()).await.unwrap(), DONE);
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
}

#[tokio::test]
async fn a_mark_finds_a_reader_and_a_writer_that_becomes_one() {
    let bench = ScriptBench::new().await;
    let (w, gone) = (ReadWriteKeys::of("w"), ReadWriteKeys::of("gone"));
    bench.call(w.write()).await.unwrap();
    for downgraded in [false, true] {
        if downgraded {
            bench.call(w.downgrade()).await.unwrap();
            bench.reads("other").await;
        }
        let fields = bench.run("HGETALL lock:k").await;
        let expires = bench.run("PEXPIRETIME lock:k").await;
        let changes = bench.changes().await;
        let mark = |names: &ReadWriteKeys| {
            let (lock, timeout, holder, _) = names.renewal(0);
            (lock, timeout, holder, MARK)
        };
        let none = [mark(&gone)];
        let answers = bench.call(ReadRenew { items: &none }).await.unwrap();
        assert_eq!(answers, [Renewed::NotHeld]);
        assert_eq!(bench.changes().await, changes);
        let one = [mark(&w)];
        let answers = bench.call(ReadRenew { items: &one }).await.unwrap();
        assert_eq!(answers, [Renewed::Held]);
        assert!(bench.changes().await > changes);
        assert_eq!(bench.run("HGETALL lock:k").await, fields);
        assert_eq!(bench.run("PEXPIRETIME lock:k").await, expires);
    }
    let (lock, timeout, holder, _) = w.renewal(0);
    let items = [(lock, timeout, holder, -90_000)];
    bench.call(ReadRenew { items: &items }).await.unwrap();
    for key in [LOCK, &*w.timeout] {
        let left = bench.integer(&format!("PTTL {key}")).await;
        assert!(left > 80_000, "{key} is extended: {left}");
    }
}

#[tokio::test]
async fn a_waiting_writer_keeps_readers_out_for_a_limited_time() {
    let bench = ScriptBench::new().await;
    let w = ReadWriteKeys::of("w");
    bench.reads("a").await;
    bench.call(w.write()).await.unwrap();
    assert!(
        is_granted(&bench.reads("b").await),
        "one that does not wait"
    );
    let waits = |waits| WriteAcquire {
        waits_ms: waits,
        ..w.write()
    };
    assert!(is_busy(&bench.call(waits(60_000)).await.unwrap()));
    assert!(is_busy(&bench.call(waits(100)).await.unwrap()));
    assert!(
        bench.integer(&format!("PTTL {WAITS}")).await > 1_000,
        "never shortened"
    );
    let AcquireReply::Busy {
        left: Some(left), ..
    } = bench.reads("c").await
    else {
        panic!("c comes after the writer")
    };
    assert!(left <= Duration::from_secs(60), "{left:?}");
    assert!(
        is_granted(&bench.reads("a").await),
        "a second copy is no further reader"
    );
    assert_eq!(
        bench.hash().await,
        "a=1 b=1 mode=read",
        "nothing of it in the hash"
    );
    bench.run(&format!("PEXPIRE {WAITS} 1")).await;
    while bench.integer(&format!("EXISTS {WAITS}")).await == 1 {
        tokio::task::yield_now().await;
    }
    assert!(is_granted(&bench.reads("c").await));
    bench.call(waits(60_000)).await.unwrap();
    for holder in ["a", "b", "c"] {
        bench
            .call(ReadWriteKeys::of(holder).release())
            .await
            .unwrap();
    }
    let AcquireReply::Busy {
        left: Some(left), ..
    } = bench.reads("d").await
    else {
        panic!("the writer may come without a message")
    };
    assert!(left > Duration::from_secs(20), "{left:?} to come");
    bench.run(&format!("PEXPIRE {WAITS} 1")).await;
    while !is_granted(&bench.reads("d").await) {
        tokio::task::yield_now().await;
    }
    bench.call(waits(1_500)).await.unwrap();
    bench.call(ReadWriteKeys::of("d").release()).await.unwrap();
    assert!(is_granted(&bench.writes("w").await));
    assert_eq!(bench.integer(&format!("EXISTS {WAITS}")).await, 0);
}

#[tokio::test]
async fn other_entries_are_foreign_to_a_read_write_lock() {
    let bench = ScriptBench::new().await;
    for (made, what) in [
        ("SET lock:k v", "a string"),
        ("HSET lock:k uuid:1 1", "a mutex"),
        ("HSET lock:k mode other uuid:1 1", "another mode"),
    ] {
        bench.run(made).await;
        let before = bench.run("DUMP lock:k").await;
        let (a, w) = (ReadWriteKeys::of("a"), ReadWriteKeys::of("w"));
        assert!(is_foreign(bench.call(a.read()).await, LOCK), "{what}");
        assert!(is_foreign(bench.call(w.write()).await, LOCK), "{what}");
        for names in [a, w] {
            let released = bench.call(names.release()).await.unwrap();
            assert_eq!(released.done.released, Released::NotHeld, "{what}");
            let downgraded = bench.call(names.downgrade()).await.unwrap();
            assert_eq!(downgraded.done.released, Released::NotHeld, "{what}");
            let items = [names.renewal(LEASE)];
            let renewed = bench.call(ReadRenew { items: &items }).await.unwrap();
            assert_eq!(renewed, [Renewed::NotHeld], "{what}");
        }
        assert_eq!(bench.run("DUMP lock:k").await, before, "{what}");
        assert_eq!(bench.integer("DBSIZE").await, 1, "{what}");
        bench.run("DEL lock:k").await;
    }
    bench.reads("a").await;
    assert!(
        is_foreign(bench.call(acquire("m")).await, LOCK),
        "a mutex on a read lock"
    );
}

#[tokio::test]
async fn a_refused_right_leaves_no_lock_without_a_lease() {
    let bench = ScriptBench::new().await;
    let (a, w) = (ReadWriteKeys::of("a"), ReadWriteKeys::of("w"));
    for rights in ["-set", "-hset", "-pexpire", "resetkeys ~lock:*"] {
        let mut limited = bench.user(rights).await;
        let answer = run(&mut limited, &a.read()).await;
        assert!(
            matches!(answer, Err(Fault::Denied(_))),
            "{rights}: {answer:?}"
        );
        assert_eq!(bench.integer("DBSIZE").await, 0, "{rights}");
        bench.run("ACL DELUSER limited").await;
    }
    for rights in ["-hset", "-pexpire"] {
        let mut limited = bench.user(rights).await;
        assert!(run(&mut limited, &w.write()).await.is_err(), "{rights}");
        assert_eq!(bench.integer("EXISTS lock:k").await, 0, "{rights}");
        bench.run("ACL DELUSER limited").await;
    }
}

#[tokio::test]
async fn a_forced_release_ends_every_reader_and_names_each() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.server.listen(&[RW_CHANNEL, CONTROL]).await;
    bench.reads("a").await;
    bench.reads("b").await;
    assert!(bench.call(force()).await.unwrap().done.0);
    assert_eq!(bench.integer("DBSIZE").await, 0);
    let mut received = Vec::new();
    for _ in 0..3 {
        received.push(messages.recv().await.unwrap().1);
    }
    assert!(
        received[0] == names(&["a", "b"]) || received[0] == names(&["b", "a"]),
        "{received:?}"
    );
    assert_eq!(received[1..], ["1", "0"]);
    bench.writes("w").await;
    assert!(bench.call(force()).await.unwrap().done.0);
    assert_eq!(messages.recv().await.unwrap().1, names(&["w"]));
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
}

#[tokio::test]
async fn names_with_braces_keep_their_readers_leases_beside_them() {
    let bench = ScriptBench::new().await;
    let key = |name: &str| {
        let name = crate::values::name::LockName::from(name);
        Key::new("lock:", &name, Kind::Read).unwrap()
    };
    for name in ["a{b}c", "plain", "x:y"] {
        let key = key(name);
        let timeout = key.suffixed("a:rwlock_timeout:1");
        let a = ReadWriteKeys {
            holder: "a",
            timeout,
        };
        let read = ReadAcquire {
            lock: key.raw(),
            ..a.read()
        };
        assert!(is_granted(&bench.call(read).await.unwrap()));
        let w = ReadWriteKeys::of("w");
        let write = || WriteAcquire {
            lock: key.raw(),
            ..w.write()
        };
        assert!(
            is_busy(&bench.call(write()).await.unwrap()),
            "{name}: found by the script"
        );
        bench
            .call(ForceRelease {
                lock: key.raw(),
                ..force()
            })
            .await
            .unwrap();
        assert_eq!(bench.integer("DBSIZE").await, 0, "{name}");
    }
}

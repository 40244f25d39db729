//! Tests of the scripts of semaphores: they never lease more permits than there are, lose none, and copies change
//! nothing.

use super::*;
use crate::backend::redis::kinds::counters::*;
use crate::backend::redis::kinds::permits::*;

mod many;
mod plain;
mod refused;

pub(super) const COUNT: &str = "lock:s";
pub(super) const LEASES: &str = "{lock:s}:timeout";
const TOLD: &str = "redisson_sc:{lock:s}";

/// Returns the ids of `permits` permits of one holder.
pub(super) fn ids(holder: u8, permits: usize) -> Vec<u8> {
    (0..permits)
        .flat_map(|index| {
            let mut id = [holder; 16];
            // Text could not hold these bytes.
            id[0] = 0xff;
            id[15] = u8::try_from(index % 256).unwrap();
            id[14] = u8::try_from(index / 256).unwrap();
            id
        })
        .collect()
}

pub(super) fn lease(ids: &[u8]) -> AcquirePermits<'_> {
    AcquirePermits {
        permits: COUNT,
        leases: LEASES,
        name: "s",
        ids,
        lease_ms: LEASE,
        not_after_us: FAR,
        channel: TOLD,
        in_all: None,
    }
}

pub(super) fn give(ids: &[u8]) -> ReleasePermits<'_> {
    ReleasePermits {
        permits: COUNT,
        leases: LEASES,
        ids,
        channel: TOLD,
    }
}

pub(super) fn force() -> ForcePermits<'static> {
    ForcePermits {
        permits: COUNT,
        leases: LEASES,
        channel: TOLD,
    }
}

pub(super) fn set(value: u64) -> SetCounter<'static> {
    SetCounter {
        counter: COUNT,
        leases: LEASES,
        value,
        again: false,
        channel: TOLD,
        latch: false,
    }
}

pub(super) fn read_counter() -> ReadCounter<'static> {
    ReadCounter {
        counter: COUNT,
        leases: LEASES,
    }
}

pub(super) fn add(how_many: i64) -> AddPermits<'static> {
    AddPermits {
        name: "s",
        permits: COUNT,
        how_many,
        channel: TOLD,
    }
}

pub(super) fn delete() -> DeleteCounter<'static> {
    DeleteCounter {
        counter: COUNT,
        leases: LEASES,
        channel: TOLD,
        latch: false,
    }
}

pub(super) fn take(how_many: u32) -> TakePermits<'static> {
    TakePermits {
        name: "s",
        permits: COUNT,
        how_many,
        not_after_us: FAR,
    }
}

pub(super) fn count_down() -> CountDown<'static> {
    CountDown {
        latch: COUNT,
        channel: TOLD,
    }
}

impl ScriptBench {
    async fn with_permits(permits: u64) -> ScriptBench {
        let bench = ScriptBench::new().await;
        assert!(bench.call(set(permits)).await.unwrap().done);
        bench
    }

    async fn leases(&self, ids: &[u8]) -> bool {
        match self.call(lease(ids)).await.unwrap() {
            AcquireReply::Granted { token: None, .. } => true,
            AcquireReply::Busy { .. } => false,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the number of free permits and the number of leases.
    async fn state(&self) -> (String, i64) {
        let free = self.text("GET lock:s").await.unwrap_or_default();
        (free, self.integer("ZCARD {lock:s}:timeout").await)
    }

    async fn renews(&self, ids: &[u8], ttl: u64) -> Renewed {
        let items = [(LEASES.to_owned(), ids.to_vec(), ttl.cast_signed())];
        self.call(RenewPermits { items: &items }).await.unwrap()[0]
    }

    async fn score(&self, id: &[u8]) -> Option<u64> {
        let mut ask = redis::cmd("ZSCORE");
        ask.arg(LEASES).arg(id);
        let score = server::run(&mut self.connection.clone(), ask)
            .await
            .unwrap();
        reply::text(score).map(|score| score.parse().unwrap())
    }

    /// Makes every lease one that has just ended.
    async fn expire(&self) {
        let now = self.server.time().await / 1_000;
        let script = "for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do \
                      redis.call('ZADD', KEYS[1], ARGV[1], id) end";
        let mut expire = redis::cmd("EVAL");
        expire.arg(script).arg(1).arg(LEASES).arg(now - 1);
        server::run(&mut self.connection.clone(), expire)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn permits_are_leased_once_until_the_servers_own_date() {
    let bench = ScriptBench::with_permits(3).await;
    let before = bench.server.time().await / 1_000;
    let two = ids(1, 2);
    // The second request is a copy of the first.
    for _ in 0..2 {
        assert!(bench.leases(&two).await);
        assert_eq!(bench.state().await, ("1".to_owned(), 2));
    }
    for id in two.chunks(16) {
        let until = bench.score(id).await.unwrap();
        assert!((before + LEASE..before + LEASE + 5_000).contains(&until));
    }
    let shorter = AcquirePermits {
        lease_ms: 1_000,
        ..lease(&two)
    };
    bench.call(shorter).await.unwrap();
    assert!(
        bench.score(&two[..16]).await.unwrap() >= before + LEASE,
        "never shortened"
    );
    let three = ids(2, 3);
    let AcquireReply::Busy { left, .. } = bench.call(lease(&three)).await.unwrap() else {
        panic!()
    };
    assert!(
        left.unwrap() <= Duration::from_millis(LEASE) && left.unwrap() > Duration::from_secs(20)
    );
    assert!(bench.leases(&ids(3, 1)).await);
    assert_eq!(bench.state().await, ("0".to_owned(), 3));
}

#[tokio::test]
async fn a_late_or_malformed_request_for_permits_changes_nothing() {
    let bench = ScriptBench::with_permits(3).await;
    let one = ids(1, 1);
    let now = bench.server.time().await;
    let late = AcquirePermits {
        not_after_us: now - 1,
        ..lease(&one)
    };
    assert!(matches!(bench.call(late).await.unwrap(), AcquireReply::Stale { time } if time >= now));
    for lease_ms in [
        "0",
        "-1",
        "-86400001",
        "1.5",
        "abc",
        "",
        "nan",
        "inf",
        "86400001",
    ] {
        let far = FAR.to_string();
        let text = "0123456789abcdef";
        let tried = bench
            .raw(
                AcquirePermits::source(),
                &[COUNT, LEASES],
                &[text, lease_ms, &far, TOLD],
            )
            .await;
        assert!(tried.is_err(), "{lease_ms}");
        let tried = bench
            .raw(RenewPermits::source(), &[LEASES], &[text, lease_ms])
            .await;
        // These values check and mark.
        let known = ["0", "-1"].contains(&lease_ms);
        assert!(tried.is_err() || known, "{lease_ms}");
    }
    for odd in [&b""[..], b"0123456789abcde", &[7; 17], &[7; 16 * 1_001]] {
        assert!(bench.call(lease(odd)).await.is_err());
        assert!(bench.call(give(odd)).await.is_err());
    }
    for value in ["-1", "1.5", "x", "", "1e15", "nan", "0"] {
        let far = FAR.to_string();
        let args = ["0123456789abcdef", "1000", &far, TOLD, value];
        let tried = bench.raw(AcquirePermits::source(), &["other", LEASES], &args);
        assert!(tried.await.is_err(), "{value}");
    }
    for value in ["-1", "1.5", "x", "", "1e15", "nan"] {
        let tried = bench
            .raw(
                SetCounter::source(),
                &["other", LEASES],
                &[value, TOLD, "0"],
            )
            .await;
        assert!(tried.is_err(), "{value}");
        let tried = bench
            .raw(AddPermits::source(), &[COUNT], &[value, TOLD])
            .await;
        assert!(tried.is_err() || value == "-1", "{value}");
    }
    assert_eq!(
        bench.state().await,
        ("2".to_owned(), 0),
        "one was taken away"
    );
    let most = ids(1, 1_000);
    bench.call(add(998)).await.unwrap();
    assert!(bench.leases(&most).await);
    assert_eq!(bench.renews(&most, LEASE).await, Renewed::Held);
    assert_eq!(bench.call(give(&most)).await.unwrap(), DONE);
    assert_eq!(bench.state().await, ("1000".to_owned(), 0));
}

pub(super) fn lease_of(in_all: u64, ids: &[u8]) -> AcquirePermits<'_> {
    AcquirePermits {
        in_all: Some(in_all),
        ..lease(ids)
    }
}

#[tokio::test]
async fn a_semaphore_that_a_request_sets_goes_with_its_last_lease() {
    let bench = ScriptBench::new().await;
    let (two, one) = (ids(1, 2), ids(2, 1));
    for in_all in [3, 1_000_000_000_000] {
        bench.call(lease_of(in_all, &two)).await.unwrap();
        // Another number does not change it.
        bench.call(lease_of(9, &one)).await.unwrap();
        assert_eq!(bench.state().await, ((in_all - 3).to_string(), 3));
        bench.call(give(&two)).await.unwrap();
        assert_eq!(bench.state().await, ((in_all - 1).to_string(), 1));
        bench.call(give(&one)).await.unwrap();
        assert_eq!(bench.integer("EXISTS lock:s {lock:s}:timeout").await, 0);
    }
    bench.call(lease_of(3, &two)).await.unwrap();
    bench.call(force()).await.unwrap();
    assert_eq!(bench.integer("EXISTS lock:s {lock:s}:timeout").await, 0);
}

#[tokio::test]
async fn a_request_sets_a_semaphore_to_its_number_less_the_leases() {
    let bench = ScriptBench::with_permits(3).await;
    let two = ids(1, 2);
    assert!(bench.leases(&two).await);
    bench.integer("DEL lock:s").await;
    let short = bench.call(lease_of(1, &ids(2, 2))).await;
    assert!(matches!(short, Err(Fault::Impossible(_))), "{short:?}");
    assert_eq!(bench.state().await, (String::new(), 2));
    let busy = bench.call(lease_of(3, &ids(2, 2))).await.unwrap();
    assert!(matches!(busy, AcquireReply::Busy { .. }), "{busy:?}");
    assert_eq!(bench.state().await, ("1".to_owned(), 2));
    bench.call(give(&two)).await.unwrap();
    assert_eq!(bench.integer("EXISTS lock:s").await, 0);
}

#[tokio::test]
async fn leases_that_outlive_the_permit_count_are_seen_and_freed() {
    let bench = ScriptBench::with_permits(3).await;
    assert!(bench.leases(&ids(1, 2)).await);
    bench.integer("DEL lock:s").await;
    let reading = bench.call(read_counter()).await.unwrap().unwrap();
    assert_eq!((reading.available, reading.count), (None, 2));
    let forced = bench.call(force()).await.unwrap();
    assert_eq!(forced.done, (2, 0));
    assert_eq!(bench.integer("EXISTS lock:s {lock:s}:timeout").await, 0);
    assert!(bench.call(read_counter()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_semaphore_set_by_hand_or_with_plain_permits_taken_stays() {
    let one = ids(1, 1);
    for (by_hand, left) in [
        ("set", "3"),
        ("set again", "3"),
        ("add", "4"),
        ("take", "2"),
        ("expire", "3"),
    ] {
        let bench = ScriptBench::new().await;
        bench.call(lease_of(3, &one)).await.unwrap();
        match by_hand {
            "set" => assert!(!bench.call(set(3)).await.unwrap().done),
            "set again" => {
                let again = SetCounter {
                    again: true,
                    ..set(3)
                };
                assert!(bench.call(again).await.unwrap().done);
            }
            "add" => drop(bench.call(add(1)).await.unwrap()),
            "take" => drop(bench.call(take(1)).await.unwrap()),
            // An expiry that a user of the store sets is not that of a request.
            _ => assert_eq!(bench.integer("PEXPIRE lock:s 100000").await, 1),
        }
        bench.call(give(&one)).await.unwrap();
        assert_eq!(bench.state().await, (left.to_owned(), 0), "{by_hand}");
    }
}

#[tokio::test]
async fn permits_are_returned_once_and_published() {
    let bench = ScriptBench::with_permits(3).await;
    let mut messages = bench.server.listen(&[TOLD]).await;
    let (two, other) = (ids(1, 2), ids(2, 1));
    assert!(bench.leases(&two).await);
    assert!(bench.leases(&other).await);
    let given = bench.call(give(&two)).await.unwrap();
    assert_eq!(given, DONE);
    assert_eq!(
        messages.recv().await.unwrap(),
        (TOLD.to_owned(), "2".to_owned())
    );
    for _ in 0..2 {
        let again = bench.call(give(&two)).await.unwrap();
        assert_eq!(again.done.released, Released::NotHeld);
        assert_eq!(bench.state().await, ("2".to_owned(), 1));
    }
    assert_eq!(bench.renews(&two, LEASE).await, Renewed::NotHeld);
    assert_eq!(bench.state().await.1, 1, "a renewal makes no lease");
    assert_eq!(bench.renews(&other, LEASE).await, Renewed::Held);
    bench.call(add(-10)).await.unwrap();
    bench.call(give(&other)).await.unwrap();
    assert_eq!(bench.state().await, ("-7".to_owned(), 0));
    bench.call(add(17)).await.unwrap();
    assert_eq!(
        messages.recv().await.unwrap().1,
        "10",
        "nothing below 1 was told"
    );
}

#[tokio::test]
async fn a_mark_lengthens_the_lease_of_permits_by_a_millisecond() {
    let bench = ScriptBench::with_permits(5).await;
    let (two, none) = (ids(1, 2), ids(2, 1));
    assert!(bench.leases(&two).await);
    let ends = bench.score(&two[..16]).await.unwrap();
    let marks = async |ids: &[u8]| {
        let items = [(LEASES.to_owned(), ids.to_vec(), MARK)];
        bench.call(RenewPermits { items: &items }).await.unwrap()[0]
    };
    let changes = bench.changes().await;
    assert_eq!(marks(&none).await, Renewed::NotHeld);
    assert_eq!(bench.changes().await, changes);
    // One permit stands for all.
    assert_eq!(marks(&two[..16]).await, Renewed::Held);
    assert!(bench.changes().await > changes);
    assert_eq!(bench.score(&two[..16]).await, Some(ends + 1));
    assert_eq!(bench.score(&two[16..]).await, Some(ends));
    // With a TTL, the leases of all permits are extended as well.
    let items = [(LEASES.to_owned(), two.clone(), -90_000)];
    bench.call(RenewPermits { items: &items }).await.unwrap();
    for id in [&two[..16], &two[16..]] {
        assert!(bench.score(id).await.unwrap() > ends + 50_000);
    }
}

#[tokio::test]
async fn ended_leases_are_taken_back_published_and_not_renewed() {
    let bench = ScriptBench::with_permits(4).await;
    let (gone, mine) = (ids(1, 3), ids(2, 2));
    assert!(bench.leases(&gone).await);
    assert!(!bench.leases(&mine).await);
    bench.expire().await;
    let reading = bench.call(read_counter()).await.unwrap().unwrap();
    assert_eq!((reading.available, reading.count), (Some(4), 0));
    assert_eq!(
        bench.state().await,
        ("1".to_owned(), 3),
        "looking changes nothing"
    );
    assert_eq!(bench.renews(&gone, LEASE).await, Renewed::NotHeld);
    let mut messages = bench.server.listen(&[TOLD]).await;
    assert!(bench.leases(&mine).await);
    assert_eq!(bench.state().await, ("2".to_owned(), 2));
    assert_eq!(
        messages.recv().await.unwrap().1,
        "2",
        "what is left for others"
    );
    let late = bench.call(give(&gone)).await.unwrap();
    assert_eq!(late.done.released, Released::NotHeld);
    assert_eq!(
        bench.state().await,
        ("2".to_owned(), 2),
        "the late release gives nothing back"
    );
}

#[tokio::test]
async fn a_set_that_lost_a_permit_is_lost_and_returns_the_others() {
    let bench = ScriptBench::with_permits(3).await;
    let three = ids(1, 3);
    assert!(bench.leases(&three).await);
    // Redisson takes ended permits back one by one.
    let mut remove = redis::cmd("ZREM");
    remove.arg(LEASES).arg(&three[16..32]);
    server::run(&mut bench.connection.clone(), remove)
        .await
        .unwrap();
    bench.run("INCRBY lock:s 1").await;
    assert_eq!(bench.renews(&three, LEASE).await, Renewed::NotHeld);
    let given = bench.call(give(&three)).await.unwrap();
    assert_eq!(given.done.released, Released::NotHeld);
    assert_eq!(bench.state().await, ("3".to_owned(), 0));
}

#[tokio::test]
async fn a_request_that_waiting_cannot_help_gets_an_error() {
    let bench = ScriptBench::new().await;
    let impossible = async |permits| {
        let ids = ids(9, permits);
        match bench.call(lease(&ids)).await {
            Err(Fault::Impossible(why)) => why,
            Err(Fault::NotSet) => "not set".to_owned(),
            other => panic!("{other:?}"),
        }
    };
    assert!(impossible(1).await.contains("not set"));
    assert!(matches!(bench.call(add(1)).await, Err(Fault::NotSet)));
    assert_eq!(bench.integer("EXISTS lock:s").await, 0, "nobody set it");
    bench.call(set(3)).await.unwrap();
    assert!(bench.leases(&ids(1, 2)).await);
    assert!(impossible(4).await.contains("3 permits"));
    // A release does not restore the count of a semaphore that lost it. Setting the semaphore does, to the number less
    // the leases.
    bench.run("DEL lock:s").await;
    bench.call(give(&ids(1, 1))).await.unwrap();
    assert_eq!(bench.state().await, (String::new(), 1));
    assert!(bench.call(set(3)).await.unwrap().done);
    assert!(!bench.call(set(9)).await.unwrap().done);
    assert_eq!(bench.state().await, ("2".to_owned(), 1));
}

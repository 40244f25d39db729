//! Tests of the script that draws ids, beside the arithmetic of `values::ids`.

use super::*;
use crate::backend::redis::kinds::ids::{DrawIds, Drawn};
use crate::values::ids::{self, Draw, EPOCH, MOST_IDS};
use crate::values::{IdRange, IdSecret};

const SOURCE: &str = "lock:order";

fn draw<'a>(count: u32) -> DrawIds<'a> {
    DrawIds {
        source: SOURCE,
        count,
        secret: None,
    }
}

pub(super) fn shuffled<'a>(count: u32, secret: IdSecret) -> DrawIds<'a> {
    DrawIds {
        secret: Some(secret.text()),
        ..draw(count)
    }
}

fn at(micros: u64) -> i64 {
    match ids::draw(None, micros, 1, false) {
        Some(Draw::From(first)) => first,
        other => panic!("{other:?}"),
    }
}

/// Returns the id as the key holds it.
fn kept(id: i64) -> String {
    format!("{}-{}", id >> 32, id & 0xFFFF_FFFF)
}

impl ScriptBench {
    async fn drawn(&self, script: DrawIds<'_>) -> IdRange {
        match self.call(script).await.unwrap() {
            Drawn::Range(range) => range,
            other => panic!("{other:?}"),
        }
    }

    /// Draws ids until their block has begun.
    async fn drawn_in_time<'a>(&self, script: impl Fn() -> DrawIds<'a>) -> IdRange {
        loop {
            match self.call(script()).await.unwrap() {
                Drawn::Range(range) => return range,
                Drawn::NotYet => tokio::time::sleep(std::time::Duration::from_millis(1)).await,
                other @ Drawn::Otherwise { .. } => panic!("{other:?}"),
            }
        }
    }

    /// Returns the script's answer if the server's clock shows `micros`.
    async fn drawn_at(&self, micros: u64, script: &DrawIds<'_>) -> Option<Result<Drawn, Fault>> {
        let text = DrawIds::source().text;
        let text = text.replace("redis.call('TIME')", "{ARGV[#ARGV - 1], ARGV[#ARGV]}");
        assert_ne!(text, DrawIds::source().text);
        // The time comes after the secret, and a script without one must not find the time in its place.
        let text = text.replace("ARGV[2]", "#ARGV > 3 and ARGV[2] or nil");
        let mut command = redis::cmd("EVAL");
        command
            .arg(text)
            .arg(1)
            .arg(script.source)
            .arg(script.count);
        command.arg(&script.secret);
        command.arg(micros / 1_000_000).arg(micros % 1_000_000);
        let reply = server::run(&mut self.connection.clone(), command).await;
        script.read(reply.unwrap())
    }
}

#[tokio::test]
async fn ids_are_the_servers_time_and_rise() {
    let bench = ScriptBench::new().await;
    let before = bench.server.time().await;
    let first = bench.drawn(draw(1)).await.first();
    let after = bench.server.time().await;
    assert!((at(before)..=at(after)).contains(&first));
    let mut last = first;
    for count in [1, 7, MOST_IDS, 1] {
        let ids: Vec<_> = bench.drawn(draw(count)).await.ids().collect();
        assert_eq!(ids.len(), count as usize);
        assert!(ids[0] > last && ids.is_sorted_by(|one, next| next - one == 1));
        last = *ids.last().unwrap();
        assert_eq!(bench.text("GET lock:order").await, Some(kept(last)));
    }
    for count in [0, MOST_IDS + 1] {
        assert!(bench.call(draw(count)).await.is_err());
    }
}

#[tokio::test]
async fn the_script_computes_as_the_library_does_at_every_edge() {
    let bench = ScriptBench::new().await;
    let second = EPOCH * 1_000_000 + 28_000_000_000_000;
    let last_second = (EPOCH + (1 << 31) - 1) * 1_000_000;
    let in_time = |micros| (EPOCH * 1_000_000..=last_second + 999_999).contains(&micros);
    let mut random = fastrand::Rng::with_seed(7);
    let mut times = vec![
        0,
        EPOCH * 1_000_000 - 1,
        EPOCH * 1_000_000,
        second,
        second + 999_999,
        last_second,
        last_second + 999_999,
        last_second + 1_000_000,
    ];
    times.extend((0..40).map(|_| second + random.u64(0..3_000_000)));
    let secret = IdSecret::new();
    let mut compared = 0;
    for micros in times {
        let now = if in_time(micros) { at(micros) } else { 0 };
        let begin = now >> 32 << 32;
        let mut lasts = vec![
            None,
            Some(0),
            Some(now),
            Some((now - 1).max(0)),
            Some(now + 1),
            Some(begin + 0xFFFF_FFFE),
            Some(begin + 0xFFFF_FFFF),
            Some(i64::MAX),
            Some(i64::MAX - 2),
            Some(i64::MAX - 20_000),
        ];
        lasts.extend((0..4).map(|_| Some(random.i64(begin..=begin + 0xFFFF_FFFF))));
        for last in lasts {
            for (count, secret) in [
                (1, None),
                (MOST_IDS, None),
                (1, Some(secret)),
                (random.u32(1..=MOST_IDS), Some(secret)),
            ] {
                let script = secret.map_or_else(|| draw(count), |secret| shuffled(count, secret));
                match last {
                    None => drop(bench.run("DEL lock:order").await),
                    Some(last) => {
                        let tail =
                            secret.map_or(String::new(), |secret| format!("-{}", secret.text()));
                        bench
                            .run(&format!("SET lock:order {}{tail}", kept(last)))
                            .await;
                    }
                }
                let said = format!("{micros} {last:?} {count} {secret:?}");
                let wanted = ids::draw(last, micros, count, secret.is_some());
                let drawn = bench.drawn_at(micros, &script).await.expect(&said);
                let last = match (wanted, drawn) {
                    (Some(Draw::From(first)), Ok(Drawn::Range(range))) => {
                        let wanted = IdRange::new(first, count, secret).unwrap();
                        assert_eq!(range.first(), wanted.first(), "{said}");
                        assert_eq!(range.last(), wanted.last(), "{said}");
                        wanted.last()
                    }
                    (Some(Draw::NotYet(last)), Ok(Drawn::NotYet)) => last,
                    (None, Err(Fault::Impossible(_))) => continue,
                    (wanted, drawn) => panic!("{said}: {wanted:?} {drawn:?}"),
                };
                let text = bench.text("GET lock:order").await.unwrap();
                assert!(text.starts_with(&kept(last)), "{said}: {text}");
                let ttl = bench.integer("PTTL lock:order").await;
                let ahead = (last >> 32) - (now >> 32);
                let least = 86_400_000 + ahead.max(0) * 1_000;
                assert!((least - 60_000..=least).contains(&ttl), "{said}: {ttl}");
                compared += 1;
            }
        }
    }
    assert!(compared > 1_500, "{compared}");
}

#[tokio::test]
async fn all_processes_shuffle_by_the_secret_of_the_first() {
    let bench = ScriptBench::new().await;
    let (one, other) = (IdSecret::new(), IdSecret::new());
    let made = bench.call(shuffled(3, one)).await.unwrap();
    assert!(matches!(made, Drawn::NotYet), "{made:?}");
    let range = bench.drawn_in_time(|| shuffled(3, other)).await;
    assert_eq!(range.secret, Some(one));
    let next = bench.drawn_in_time(|| shuffled(1, other)).await;
    assert_eq!(next.secret, Some(one));
    assert!(next.last() > range.last());

    let plain = bench.call(draw(1)).await.unwrap();
    assert!(matches!(plain, Drawn::Otherwise { is_shuffled: true }));
    bench.run("DEL lock:order").await;
    bench.drawn(draw(1)).await;
    let wanted = bench.call(shuffled(1, one)).await.unwrap();
    assert!(matches!(wanted, Drawn::Otherwise { is_shuffled: false }));
}

#[tokio::test]
async fn an_entry_that_is_not_a_source_is_left_alone() {
    let bench = ScriptBench::new().await;
    let secret = "0123456789abcdef0123456789abcdef";
    let junk = [
        "x".to_owned(),
        "7".to_owned(),
        "-".to_owned(),
        "1-".to_owned(),
        "1-2-".to_owned(),
        "1-2-3".to_owned(),
        "1--2".to_owned(),
        "1-4294967296".to_owned(),
        "2147483648-1".to_owned(),
        "00000000001-1".to_owned(),
        "1.5-2".to_owned(),
        format!("1-2-{secret}0"),
        format!("1-2-{secret}-"),
        format!("1-2-{}", secret.replace('a', "g")),
    ];
    for junk in junk {
        bench.run(&format!("SET lock:order {junk}")).await;
        for script in [draw(1), shuffled(1, IdSecret::new())] {
            assert!(is_foreign(bench.call(script).await, SOURCE), "{junk}");
        }
        assert_eq!(bench.text("GET lock:order").await, Some(junk));
    }
    for other in [
        "HSET lock:order a 1",
        "RPUSH lock:order a",
        "ZADD lock:order 1 a",
    ] {
        bench.run("DEL lock:order").await;
        bench.run(other).await;
        assert!(is_foreign(bench.call(draw(1)).await, SOURCE), "{other}");
    }
}

#[tokio::test]
async fn a_full_server_gives_no_ids() {
    let bench = ScriptBench::new().await;
    bench.drawn(draw(1)).await;
    bench.run("CONFIG SET maxmemory 1").await;
    let refused = bench.call(draw(1)).await;
    assert!(
        matches!(&refused, Err(fault) if fault.is_passing_no_op()),
        "{refused:?}"
    );
    bench.run("CONFIG SET maxmemory 0").await;
    bench.drawn(draw(1)).await;
}

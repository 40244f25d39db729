//! Tests that a shortcut does the same as the full script.

use super::listed::{ListedAcquire, ListedRelease};
use super::table::without_shortcut;
use super::*;

/// The states of the keys before a script, one command a line.
const BEFORE: [&str; 16] = [
    "",
    "HSET lock:k a 1\nPEXPIRE lock:k 5000",
    "HSET lock:k a 1\nPEXPIRE lock:k 50000",
    "HSET lock:k a 1",
    "HSET lock:k other 1\nPEXPIRE lock:k 5000",
    "HSET lock:k other 1 more 1",
    "HSET lock:k other junk",
    "SET lock:k x",
    "SET lock:fence:{1} 5",
    "SET lock:fence:{1} 1500000000000000",
    "SET lock:fence:{1} 8000000000000000",
    "SET lock:fence:{1} 9007199254740991",
    "SET lock:fence:{1} -234567890123456",
    "SET lock:fence:{1} 1e3.567890123456",
    "SET lock:fence:{1} 10000000000000000",
    "LPUSH lock:fence:{1} x",
];

/// Returns the number in a text if it is a present time in µs: later than all dates here, and of this century.
fn about_now(text: &str) -> Option<i64> {
    let times = 1_700_000_000_000_000..4_000_000_000_000_000;
    text.parse().ok().filter(|time| times.contains(time))
}

/// Makes a text that does not depend on when the script ran: present times become distances from the time of the run.
fn alike(text: &str, time: Option<i64>) -> String {
    if let (Some(number), Some(time)) = (about_now(text), time) {
        return format!("now+{}", number - time);
    }
    // An error ends with its place in the script.
    let end = text.find(" script: ").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Returns the rest of a lease, rounded to a number of seconds that divides none of the leases here. A reservation
/// lasts a second here.
fn about(left: i64) -> String {
    match left {
        3..=1_000 => "reserved".to_owned(),
        ..3 => left.to_string(),
        _ => (left / 7_777).to_string(),
    }
}

/// Returns a member of the list, or a score without its time.
fn of_list(text: String) -> String {
    match text.parse::<f64>() {
        Ok(score) => {
            let when =
                ["past", "now", "future"][usize::from(score > 1e15) + usize::from(score > 8e15)];
            format!("{when} and {}", score.fract())
        }
        Err(_) => text,
    }
}

fn shown(reply: Result<Value, RedisError>) -> Vec<String> {
    match reply {
        Ok(Value::Array(items)) => items.into_iter().flat_map(|item| shown(Ok(item))).collect(),
        Ok(Value::Int(number)) => vec![about(number)],
        Ok(other) => vec![reply::text(other).unwrap()],
        Err(error) => vec![error.to_string()],
    }
}

/// Returns a reply in the form of the full script.
fn in_full(reply: Vec<String>, fence: bool) -> Vec<String> {
    match &*reply {
        [time] if about_now(time).is_some() => {
            let token = if fence { time } else { "" };
            ["OK", token, time].map(str::to_owned).to_vec()
        }
        _ => reply,
    }
}

/// The commands whose replies are the state of the keys.
const AFTER: [&str; 7] = [
    "TYPE lock:k",
    "TYPE lock:fence:{1}",
    "HGETALL lock:k",
    "PTTL lock:k",
    "TYPE lock:waiting:{lock:k}",
    "ZRANGE lock:waiting:{lock:k} 0 -1 WITHSCORES",
    "GET lock:fence:{1}",
];

/// Returns the state of the keys. A command for another type of key fails, which says nothing.
fn state(answers: Vec<Value>, time: Option<i64>) -> Vec<String> {
    let [kind, fences, fields, left, lists, list, fence]: [Value; 7] = answers.try_into().unwrap();
    let text = |value| reply::text(value).unwrap();
    let mut state = vec![text(kind), text(fences)];
    if state[0] == "hash" {
        state.push(format!("{fields:?}"));
    }
    state.push(about(redis::from_redis_value(left).unwrap()));
    if text(lists) == "zset" {
        state.extend(shown(Ok(list)).into_iter().map(of_list));
    }
    if state[1] == "string" {
        let fence = text(fence);
        // The reply of a release has no time in it.
        let time = time.or_else(|| about_now(&fence));
        state.push(alike(&fence, time));
    }
    state
}

impl ScriptBench {
    async fn both_ways(&self, source: &Source, keys: &[&str], arguments: &[&str]) {
        self.both_ways_after("", source, keys, arguments).await;
    }

    /// `also`: commands that follow those of each state, one a line.
    async fn both_ways_after(
        &self,
        also: &str,
        source: &Source,
        keys: &[&str],
        arguments: &[&str],
    ) {
        let careful = without_shortcut(source.text);
        assert_ne!(careful, source.text, "{} has a shortcut", source.name);
        let fences = || BEFORE.iter().filter(|before| before.contains("fence"));
        let held_by =
            |holder, before| format!("HSET lock:k {holder} 1\nPEXPIRE lock:k 5000\n{before}");
        let by_us = fences().map(|before| held_by("a", before));
        let by_another = fences().map(|before| held_by("other", before));
        let states = BEFORE.iter().map(|before| String::from(*before));
        let states: Vec<String> = states.chain(by_us).chain(by_another).collect();
        // All commands are sent at once: there are tens of thousands of them.
        let mut pipe = redis::pipe();
        for before in &states {
            for text in [source.text, &careful] {
                pipe.cmd("FLUSHALL");
                for command in before.lines().chain(also.lines()) {
                    pipe.add_command(server::command(command));
                }
                pipe.cmd("EVAL").arg(text).arg(keys.len());
                pipe.arg(keys).arg(arguments);
                for question in AFTER {
                    pipe.add_command(server::command(question));
                }
            }
        }
        let mut connection = self.connection.clone();
        let answers = connection.send_packed_commands(&pipe, 0, pipe.len()).await;
        let mut answers = answers.unwrap().into_iter();
        for before in &states {
            let mut outcome = || {
                let written = 1 + before.lines().chain(also.lines()).count();
                for answer in answers.by_ref().take(written) {
                    answer.extract_error().unwrap();
                }
                let reply = answers.next().unwrap().extract_error();
                let reply = in_full(shown(reply), keys.contains(&FENCE));
                let time = reply.iter().rev().find_map(|text| about_now(text));
                let alike = reply.iter().map(|text| alike(text, time));
                let state = state(answers.by_ref().take(AFTER.len()).collect(), time);
                (alike.collect::<Vec<_>>(), state)
            };
            assert_eq!(
                outcome(),
                outcome(),
                "{}: {before:?} {also:?} {arguments:?}",
                source.name
            );
        }
        assert_eq!(answers.next(), None);
    }
}

const LEASES: [&str; 9] = [
    "30000", "2000", "0", "-1", "1.5", "nan", "x", "86400000", "86400001",
];

#[tokio::test]
async fn an_acquire_by_the_shortcut_is_an_acquire() {
    let bench = ScriptBench::new().await;
    let far = FAR.to_string();
    for keys in [&[LOCK][..], &[LOCK, FENCE]] {
        for lease in LEASES {
            bench
                .both_ways(Acquire::source(), keys, &["a", lease, &far, "0"])
                .await;
        }
        for (date, counted) in [("1", "0"), ("x", "0"), (&*far, "1")] {
            let arguments = ["a", "30000", date, counted];
            bench.both_ways(Acquire::source(), keys, &arguments).await;
        }
        let ahead = ["a", "30000", &*far, "0", CHANNEL, "1900"];
        bench.both_ways(Acquire::source(), keys, &ahead).await;
    }
}

#[tokio::test]
async fn a_release_by_the_shortcut_is_a_release() {
    let bench = ScriptBench::new().await;
    for holder in ["a", "b"] {
        bench
            .both_ways(Release::source(), &[LOCK], &[holder, CHANNEL])
            .await;
        let unused = [holder, CHANNEL, "8000000000000000", "5"];
        let keys = [LOCK, FENCE];
        bench.both_ways(Release::source(), &keys, &unused).await;
    }
}

#[tokio::test]
async fn a_hand_over_by_the_shortcut_is_a_hand_over() {
    let bench = ScriptBench::new().await;
    for keys in [&[LOCK][..], &[LOCK, FENCE]] {
        let leases = LEASES.map(|lease| (lease, "0", "1900"));
        let spares = ["0", "1", "2000", "2001", "-1", "1.5", "nan", "x"];
        let others = spares.map(|spare| ("30000", "0", spare));
        let counted = ["0", "3", "2000"].map(|spare| ("30000", "1", spare));
        for (lease, counted, spare) in leases.into_iter().chain(others).chain(counted) {
            let arguments = ["a", "b", lease, CHANNEL, counted, spare];
            bench.both_ways(HandOver::source(), keys, &arguments).await;
        }
    }
}

#[tokio::test]
async fn a_shortcut_without_a_lease_leaves_no_lock_behind() {
    let bench = ScriptBench::new().await;
    let mut limited = bench.user("-pexpire").await;
    let refused = run(&mut limited, &acquire("a")).await;
    assert!(matches!(refused, Err(Fault::Denied(_))), "{refused:?}");
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
}

/// The states of the waiting list.
const LISTS: [&str; 7] = [
    "",
    "ZADD lock:waiting:{lock:k} 5 b",
    "ZADD lock:waiting:{lock:k} 5 a 6 b",
    "ZADD lock:waiting:{lock:k} 5 b 6 a",
    "ZADD lock:waiting:{lock:k} -9000000000000000 left 5 b",
    "ZADD lock:waiting:{lock:k} 8500000000000000 a",
    "SET lock:waiting:{lock:k} x",
];

#[tokio::test]
async fn a_listed_acquire_by_the_shortcut_is_a_listed_acquire() {
    let bench = ScriptBench::new().await;
    let far = FAR.to_string();
    for list in LISTS {
        for keys in [&[LOCK, WAITING][..], &[LOCK, WAITING, FENCE]] {
            for (lease, date, counted) in [
                ("30000", &*far, "0"),
                ("0", &far, "0"),
                ("1.5", &far, "0"),
                ("x", &far, "0"),
                ("30000", "1", "0"),
                ("30000", &far, "1"),
            ] {
                let arguments = ["a", lease, date, counted, CHANNEL];
                let source = ListedAcquire::source();
                bench.both_ways_after(list, source, keys, &arguments).await;
                let ahead = [&arguments[..], &["1900"]].concat();
                bench.both_ways_after(list, source, keys, &ahead).await;
            }
        }
    }
}

#[tokio::test]
async fn a_listed_release_by_the_shortcut_is_a_listed_release() {
    let bench = ScriptBench::new().await;
    let (ours, own) = (format!("{CHANNEL}:ours"), format!("{CHANNEL}:b"));
    let far = FAR.to_string();
    for channels in [&["nobody"][..], &[CHANNEL, &ours], &[CHANNEL, &ours, &own]] {
        let _listening = bench.server.listen(channels).await;
        // A holder that has the lock is not on the list.
        for list in LISTS.iter().filter(|list| !list.contains(" a")) {
            for (holder, run_id, next, date) in [
                ("a", "", "", "1"),
                ("a", "run", "", "1"),
                ("b", "run", "", "1"),
                ("a", "run", "c", &*far),
                ("a", "run", "c", "1"),
            ] {
                let arguments = [holder, CHANNEL, "100", run_id, next, date];
                let keys = [LOCK, WAITING, FENCE];
                let source = ListedRelease::source();
                bench.both_ways_after(list, source, &keys, &arguments).await;
                for used in ["5", "7999999999999999"] {
                    let unused = [&arguments[..], &["8000000000000000", used]].concat();
                    bench.both_ways_after(list, source, &keys, &unused).await;
                }
            }
        }
    }
}

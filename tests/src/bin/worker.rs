//! A process of its own that contends for a lock; started by the tests through `tests::process`.
//!
//! `worker contend URL KEY TASKS ACQUISITIONS` says `ready`, waits for a line, makes `ACQUISITIONS` acquisitions with
//! `TASKS` tasks, and reports every hold.
//! `worker race URL KEY TASKS MILLIS` does the same for a time instead of a number.
//! `worker hang URL KEY LEASE_MILLIS` takes the lock, says `held TOKEN` and keeps the lock. `hang-fair` does so with a
//! fair lock, `hang-read` and `hang-write` with a side of a read/write lock. A reader's token is `0`.
//! `worker line URL KEY TASKS` waits for the fair lock with `TASKS` tasks. Each task that holds it appends its holder
//! id, as it stands in the store, to the list `served`. The worker says `done` when all were served.
//! `worker ids URL NAME TASKS IDS` and `worker shuffled-ids` say `ready`, wait for a line, draw `IDS` ids in each of `TASKS`
//! tasks, and report those of each task as one line, in the order of their calls.
//!
//! Each of them ends when its input closes, so that none outlives the test that started it.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::connected;
use tests::history::{History, OpenHold};
use tests::server::patient;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["contend", url, key, tasks, acquisitions] => {
            let left = Budget::Acquisitions(AtomicI64::new(number(acquisitions)));
            contend(url, key, number(tasks), left).await;
        }
        ["race", url, key, tasks, millis] => {
            let time = Duration::from_millis(number(millis));
            contend(url, key, number(tasks), Budget::Time(time)).await;
        }
        [
            how @ ("hang" | "hang-fair" | "hang-read" | "hang-write"),
            url,
            key,
            lease,
        ] => {
            let locks = connected(url).await;
            let request = match how {
                "hang" => locks.mutex(key),
                "hang-fair" => locks.fair(key),
                "hang-read" => locks.read(key),
                _ => locks.write(key).wait_forever(),
            };
            hang(request.lease(Duration::from_millis(number(lease)))).await;
        }
        [how @ ("ids" | "shuffled-ids"), url, name, tasks, calls] => {
            draw(
                how == "shuffled-ids",
                url,
                name,
                number(tasks),
                number(calls),
            )
            .await;
        }
        ["line", url, key, tasks] => line(url, key, number(tasks)).await,
        _ => {
            eprintln!("see the head of worker.rs; got {args:?}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("a number, not {text:?}"))
}

enum Budget {
    Acquisitions(AtomicI64),
    Time(Duration),
}

async fn contend(url: &str, key: &str, tasks: usize, budget: Budget) {
    let locks = ready(url).await;
    let (history, budget) = (Arc::new(History::new()), Arc::new(budget));
    let started = Instant::now();
    let contenders: Vec<_> = (0..tasks)
        .map(|task| {
            let (locks, key) = (locks.clone(), key.to_owned());
            let (history, budget) = (Arc::clone(&history), Arc::clone(&budget));
            tokio::spawn(async move {
                let holder = format!("{}-{task}", std::process::id());
                while budget.has_more(started) {
                    let request = locks.mutex(key.as_str()).wait(Duration::from_secs(60));
                    let guard = request.acquire().await.expect("acquire");
                    let token = guard.fencing_token().map(|token| token.get());
                    let hold: OpenHold = history.begin(&key, &holder, token);
                    tokio::task::yield_now().await;
                    hold.end();
                    guard.release().await.expect("release");
                }
            })
        })
        .collect();
    for contender in contenders {
        contender.await.expect("a task");
    }
    locks.shutdown().await;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for hold in history.holds() {
        writeln!(out, "{hold}").expect("report");
    }
}

/// Connects, and waits for the signal to start.
async fn ready(url: &str) -> LockManager {
    // On a busy machine, an answer may be late, which is no failure of the worker.
    let builder = LockManager::builder().call_timeout(Duration::from_secs(60));
    let locks = tests::faults::connected(builder, url).await;
    println!("ready");
    std::io::stdin()
        .lock()
        .read_line(&mut String::new())
        .expect("the start signal");
    end_with_the_input();
    locks
}

async fn draw(shuffled: bool, url: &str, name: &str, tasks: usize, calls: usize) {
    let locks = ready(url).await;
    let ids = match shuffled {
        true => locks.ids(name).shuffled(),
        false => locks.ids(name),
    };
    let drawing: Vec<_> = (0..tasks)
        .map(|_| {
            let ids = ids.clone();
            tokio::spawn(async move {
                let mut got = Vec::with_capacity(calls);
                for _ in 0..calls {
                    got.push(ids.next().await.expect("an id").to_string());
                }
                got.join(" ")
            })
        })
        .collect();
    for task in drawing {
        println!("{}", task.await.expect("a task"));
    }
}

impl Budget {
    fn has_more(&self, started: Instant) -> bool {
        match self {
            Self::Acquisitions(left) => left.fetch_sub(1, Ordering::Relaxed) > 0,
            Self::Time(time) => started.elapsed() < *time,
        }
    }
}

async fn line(url: &str, key: &str, tasks: usize) {
    end_with_the_input();
    let locks = connected(url).await;
    let direct = patient(url).await;
    let waiting: Vec<_> = (0..tasks)
        .map(|_| {
            let request = locks.fair(key).wait(Duration::from_secs(600));
            let (mut direct, lock) = (direct.clone(), format!("lock:{key}"));
            tokio::spawn(async move {
                let guard = request.acquire().await.expect("acquire");
                let note = "return redis.call('RPUSH', 'served', redis.call('HKEYS', KEYS[1])[1])";
                let mut command = redis::cmd("EVAL");
                command.arg(note).arg(1).arg(lock);
                let _: i64 = command.query_async(&mut direct).await.expect("note it");
                // The others need time to ask again while the line moves.
                tokio::time::sleep(Duration::from_millis(5)).await;
                guard.release().await.expect("release");
            })
        })
        .collect();
    for task in waiting {
        task.await.expect("a task");
    }
    locks.shutdown().await;
    println!("done");
}

async fn hang(request: lock_runtime::LockRequest) {
    end_with_the_input();
    let guard = request.acquire().await.expect("acquire");
    let token = guard.fencing_token().map_or(0, |token| token.get());
    println!("held {token}");
    guard.lost().wait().await;
    println!("lost");
    std::future::pending::<()>().await;
}

fn end_with_the_input() {
    std::thread::spawn(|| {
        let mut line = String::new();
        while std::io::stdin()
            .lock()
            .read_line(&mut line)
            .is_ok_and(|read| read > 0)
        {
            line.clear();
        }
        std::process::exit(3);
    });
}

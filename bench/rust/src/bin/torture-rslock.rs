//! A client of a torture round that takes its locks with rslock. `tests/torture/peers.rs` says what it is given and says.

use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use rslock::LockManager;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep, timeout_at};

const LEASE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(5);
/// An acquire that has not returned for so long after the end hangs.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [_topology, keys, url, resource, number, seed] = &arguments[..] else {
        panic!("usage: torture-rslock TOPOLOGY KEYS URL RESOURCE_URL NUMBER SEED");
    };
    let locks = LockManager::new(vec![url.as_str()]);
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let resource = redis::Client::open(resource.as_str()).expect("the resource's URL");
    let resource = resource.get_multiplexed_async_connection_with_config(&config);
    let resource = resource.await.expect("a connection to the resource");
    let seed: u64 = seed.parse().expect("SEED is a number");
    let stop = Arc::new(AtomicBool::new(false));
    listen(stop.clone());
    println!("ready");
    let tasks = keys.split(',').enumerate().map(|(number_of_task, key)| {
        let holder = format!("c{number}.{number_of_task}");
        let mut task = Task {
            locks: locks.clone(),
            resource: resource.clone(),
            key: key.to_owned(),
            choices: seed.wrapping_add(number_of_task as u64) | 1,
            held: None,
            stop: stop.clone(),
            said: String::new(),
        };
        let stop = stop.clone();
        tokio::spawn(async move {
            for cycle in 0.. {
                if stop.load(SeqCst) {
                    return;
                }
                task.cycle(&format!("{holder}.{cycle}")).await;
                say(&task.said);
                task.said.clear();
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    while !stop.load(SeqCst) {
        sleep(STEP).await;
    }
    let deadline = Instant::now() + PATIENCE;
    for task in tasks {
        match timeout_at(deadline, task).await {
            Ok(ended) => ended.expect("a task of the client"),
            Err(_) => say("none hangs\n"),
        }
    }
    println!("stopped");
}

struct Task {
    locks: LockManager,
    resource: MultiplexedConnection,
    key: String,
    /// The state of a xorshift generator.
    choices: u64,
    /// When the hold began, and when it was last certain.
    held: Option<(u64, u64)>,
    stop: Arc<AtomicBool>,
    said: String,
}

impl Task {
    async fn cycle(&mut self, holder: &str) {
        let name = format!("lock:{}", self.key);
        let locks = self.locks.clone();
        let why = if self.key.starts_with("long") {
            // The library extends the lock, and drops this future when that fails. Until then, it says nothing.
            let body = async || self.hold(holder, || true).await;
            let ended = locks.using(name.as_bytes(), LEASE, body).await;
            ended.err().map(|_| {
                let _ = writeln!(self.said, "doubt {}", self.key);
                "extend"
            })
        } else {
            let guard = locks.acquire(name.as_str(), LEASE).await.expect("the lock");
            let until = now_ns() + guard.lock.validity_time as u64 * 1_000_000;
            let held = self.hold(holder, || now_ns() < until).await;
            guard.release().await;
            match held {
                true => None,
                // The end of the lease is the plan.
                false if self.key.starts_with("whole") => Some("untold"),
                false => Some("validity"),
            }
        };
        if let Some((from, until)) = self.held.take() {
            let _ = writeln!(self.said, "hold {} {holder} 0 {from} {until}", self.key);
        }
        let _ = writeln!(self.said, "end ok");
        if let Some(why) = why {
            let _ = writeln!(self.said, "loss {} {holder} {} {why}", self.key, now_ns());
        }
        if self.key.starts_with("long") {
            sleep(Duration::from_millis(self.below(300))).await;
        }
    }

    /// Holds the lock for a while and touches the resource. Returns whether the hold was certain to the end.
    async fn hold(&mut self, holder: &str, is_held: impl Fn() -> bool) -> bool {
        self.held = Some((now_ns(), now_ns()));
        let value = self.enter(holder, &is_held).await;
        let steps = match &self.key[..4] {
            "long" => 20 + self.below(580),
            "whol" => u64::MAX,
            _ => 0,
        };
        let mut held = self.seen(&is_held);
        for _ in 0..steps {
            if !held || self.stop.load(SeqCst) {
                break;
            }
            sleep(STEP).await;
            held = self.seen(&is_held);
        }
        if held {
            self.set(value + 1).await;
            held = self.seen(&is_held);
            if !held {
                let _ = writeln!(self.said, "doubt {}", self.key);
            }
        }
        held
    }

    fn seen(&mut self, is_held: impl Fn() -> bool) -> bool {
        let asked = now_ns();
        let held = is_held();
        if let (true, Some((_, until))) = (held, &mut self.held) {
            *until = asked;
        }
        held
    }

    async fn enter(&mut self, holder: &str, is_held: impl Fn() -> bool) -> u64 {
        let asked = now_ns();
        let answer = script("REGISTER_ENTER", &self.key)
            .arg("0")
            .arg("checked")
            .query_async(&mut self.resource)
            .await;
        let (accepted, number, value): (u8, u64, u64) = answer.expect("the register's answer");
        let (answered, sure) = (now_ns(), u8::from(is_held()));
        let key = &self.key;
        let _ = writeln!(
            self.said,
            "write {key} {holder} 0 {number} {accepted} {sure} {asked} {answered}"
        );
        value
    }

    async fn set(&mut self, value: u64) {
        let answer = script("REGISTER_SET", &self.key)
            .arg(value)
            .query_async::<u64>(&mut self.resource)
            .await;
        answer.expect("the counter is written");
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.choices ^= self.choices << 13;
        self.choices ^= self.choices >> 7;
        self.choices ^= self.choices << 17;
        self.choices % bound
    }
}

fn script(name: &str, key: &str) -> redis::Cmd {
    let text = std::env::var(name).expect("a script of the resource");
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(1).arg(format!("resource:{key}"));
    command
}

fn say(lines: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(lines.as_bytes())
        .and_then(|()| out.flush())
        .expect("the harness listens");
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn listen(stop: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            stop.store(line == "stop", SeqCst);
        }
        std::process::exit(3);
    });
}

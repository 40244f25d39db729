//! A fair lock: how long a change of hands takes, and how much of the server's time each operation costs in a long
//! queue.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use redis::Value;
use tests::{RedisServer, eventually};

use crate::scripts::whole;
use crate::stats::{mean_95, micros};

const KEYS: [&str; 4] = [
    "lock:f",
    "redisson_lock_queue:{lock:f}",
    "redisson_lock_timeout:{lock:f}",
    "lock:fence:{1}",
];
const CHANNEL: &str = "redisson_lock__channel:{lock:f}";
const OPERATIONS: usize = 400;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(hand_over());
    println!("one operation on a fair lock, µs of the server's time");
    println!(
        "  in the queue   question   leave   release and next   question behind a Java waiter"
    );
    for waiters in [10, 100, 1_000] {
        let line = Line::of(waiters);
        let question = line.question(waiters);
        let leave = line.leave(waiters);
        let change = line.change_of_hands(waiters);
        line.queue_behind_java(waiters);
        let mixed = line.question(waiters);
        println!("  {waiters:12} {question:10.1} {leave:7.1} {change:18.1} {mixed:31.1}");
    }
}

/// Measures the time from the call of a release to the next hold in another manager, beside a bare round trip.
async fn hand_over() {
    const ROUNDS: usize = 200;
    let own = |server: &RedisServer| -> Vec<String> {
        server.query(&["PUBSUB", "CHANNELS", "redisson_lock__channel:{lock:k}:*"])
    };
    let server = RedisServer::start();
    let (a, b) = (
        LockManager::connect(&server.url()).await.unwrap(),
        LockManager::connect(&server.url()).await.unwrap(),
    );
    let client = redis::Client::open(server.url()).unwrap();
    let mut direct = client.get_multiplexed_async_connection().await.unwrap();
    let (mut changes, mut trips) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let holder = a.fair("k").acquire().await.unwrap();
        // Channels linger for a while after their listeners.
        let before = own(&server);
        let request = b.fair("k");
        let waiting = tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            (Instant::now(), guard)
        });
        eventually("it listens", async || {
            own(&server).iter().any(|channel| !before.contains(channel))
        })
        .await;
        // Its second question follows the subscription.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let released = Instant::now();
        holder.release().await.unwrap();
        let (acquired, guard) = waiting.await.unwrap();
        changes.push(micros(acquired - released));
        guard.release().await.unwrap();
        let asked = Instant::now();
        let _: Value = redis::cmd("PING").query_async(&mut direct).await.unwrap();
        trips.push(micros(asked.elapsed()));
    }
    let ((change, around), (trip, _)) = (mean_95(&changes), mean_95(&trips));
    println!("a fair lock changes hands between two managers");
    println!("  release → acquired  {change:7.0} ± {around:.0} µs");
    println!("  bare round trip     {trip:7.0} µs (PING)");
}

/// A server with a queue that the scripts themselves made. Its statistics tell how much time they took.
struct Line {
    server: RedisServer,
    /// The hashes of the two scripts. The server would hash a text that is sent whole, each time.
    acquire: String,
    release: String,
}

fn holder(number: usize) -> String {
    format!("0b1f4dc0-6a3e-8c0e-9e57-4f9a4b1c7a11:{number}")
}

impl Line {
    /// Starts a server on which number 0 holds the lock and `waiters` others wait.
    fn of(waiters: usize) -> Line {
        let server = RedisServer::start();
        let [acquire, release] = ["fair_acquire", "fair_release"]
            .map(|script| server.query(&["SCRIPT", "LOAD", &whole(script)]));
        let line = Line {
            server,
            acquire,
            release,
        };
        for number in 0..=waiters {
            line.ask(number);
        }
        line
    }

    fn ask(&self, number: usize) {
        let holder = holder(number);
        let mut words = vec!["EVALSHA", &self.acquire, "4"];
        words.extend(KEYS);
        words.extend([holder.as_str(), holder.as_str()]);
        words.extend(["60000", "9007199254740991", "1", CHANNEL]);
        let _: Value = self.server.query(&words);
    }

    fn give(&self, number: usize) {
        let holder = holder(number);
        let mut words = vec!["EVALSHA", &self.release, "3"];
        words.extend(&KEYS[..3]);
        words.extend([holder.as_str(), CHANNEL]);
        let _: Value = self.server.query(&words);
    }

    /// Returns the cost of one question, while every waiter asks again, as waiters do.
    fn question(&self, waiters: usize) -> f64 {
        self.cost(OPERATIONS, || {
            for round in 0..OPERATIONS {
                self.ask(1 + round % waiters);
            }
        })
    }

    /// Returns the cost of leaving the queue in its middle. Joining it again at its end is not counted.
    fn leave(&self, waiters: usize) -> f64 {
        let mut spent = 0.0;
        for round in 0..OPERATIONS {
            let number = 1 + (waiters / 2 + round) % waiters;
            spent += self.cost(1, || self.give(number));
            self.ask(number);
        }
        spent / OPERATIONS as f64
    }

    /// Returns the cost of a change of hands: the holder releases, and the first waiter is granted. The old holder
    /// queues again, which is not counted.
    fn change_of_hands(&self, waiters: usize) -> f64 {
        let first = || {
            let first: Vec<String> = self.server.query(&["LRANGE", KEYS[1], "0", "0"]);
            first[0]
                .rsplit(':')
                .next()
                .unwrap()
                .parse::<usize>()
                .unwrap()
        };
        let (mut held, mut spent) = (0, 0.0);
        for _ in 0..OPERATIONS.min(waiters * 10) {
            let next = first();
            spent += self.cost(1, || {
                self.give(held);
                self.ask(next);
            });
            self.ask(held);
            held = next;
        }
        spent / OPERATIONS.min(waiters * 10) as f64
    }

    fn queue_behind_java(&self, waiters: usize) {
        let java = "6f1c1a9e-0000-4000-8000-000000000001:71";
        let _: Value = self.server.query(&["FLUSHALL"]);
        self.ask(0);
        let _: Value = self.server.query(&["RPUSH", KEYS[1], java]);
        let _: Value = self.server.query(&["ZADD", KEYS[2], "9999999999999", java]);
        for number in 1..=waiters {
            self.ask(number);
        }
    }

    /// Returns the mean time of one operation in the server, in µs.
    fn cost(&self, operations: usize, work: impl FnOnce()) -> f64 {
        let before = self.spent();
        work();
        (self.spent() - before) as f64 / operations as f64
    }

    /// Returns the µs that the server has spent in scripts so far.
    fn spent(&self) -> u64 {
        let info: String = self.server.query(&["INFO", "commandstats"]);
        let scripts = info
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
        let usec = scripts.and_then(|fields| {
            let mut fields = fields.split(',');
            fields.find_map(|field| field.strip_prefix("usec="))
        });
        usec.map_or(0, |usec| usec.trim().parse().unwrap())
    }
}

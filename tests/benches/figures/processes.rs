//! One key that several processes want: the rate, the changes of hands, the waits and the shares.
//!
//! `… -- processes [SECONDS] [STORE]`, 3 s a row by default. The stores are `redis` (the default, mutexes), `bare` (the same
//! scripts over one blocking socket of each process), `write` (write locks on Redis), `quorum` (three Redis servers),
//! `postgres` and `mariadb`. Only the first two have a waiting list.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_runtime::{LockManager, LockRequest, QuorumNode};
use tests::history::now_ns;
use tests::quorum::LONGEST_LEASE;
use tests::{CommandStats, MariadbTable, PostgresTable, Quorum, RedisServer};

use crate::bare_list::BareList;

pub(crate) const CHILD: &str = "processes-child";

/// Processes, tasks of each, and milliseconds of a hold.
type Size = (usize, usize, u64);

/// The rows of a store without a list.
const FEW_ROWS: [Size; 10] = [
    (1, 1, 0),
    (4, 1, 0),
    (1, 1, 10),
    (2, 1, 10),
    (4, 1, 10),
    (1, 16, 0),
    (2, 16, 0),
    (4, 16, 0),
    (4, 16, 1),
    (8, 4, 1),
];

const ROWS: [Size; 14] = [
    // Alone: what the same holds and timers allow.
    (1, 1, 0),
    (1, 1, 1),
    (1, 1, 10),
    (2, 1, 0),
    (2, 1, 1),
    (2, 1, 10),
    (3, 1, 10),
    (4, 1, 0),
    (4, 1, 1),
    (4, 1, 10),
    (8, 1, 1),
    (16, 1, 0),
    (2, 16, 0),
    (4, 16, 0),
];

/// One grant: when it came, and how long its task had waited, in ns.
pub(crate) type Grant = (u64, u64);

struct Row {
    processes: usize,
    tasks: usize,
    hold_ms: u64,
    seconds: u64,
}

/// What the processes lock in.
enum Store {
    Redis(RedisServer),
    /// Locked without the library.
    Bare(RedisServer),
    /// Its locks are write locks.
    Write(RedisServer),
    Quorum(Quorum),
    Postgres(PostgresTable),
    Mariadb(MariadbTable),
}

impl Store {
    fn start(name: &str) -> Store {
        match name {
            "redis" => Store::Redis(RedisServer::start()),
            "bare" => Store::Bare(RedisServer::start()),
            "write" => Store::Write(RedisServer::start()),
            "quorum" => {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                Store::Quorum(runtime.block_on(Quorum::redis(3)))
            }
            "postgres" => Store::Postgres(PostgresTable::new()),
            "mariadb" => Store::Mariadb(MariadbTable::new()),
            _ => panic!("no such store: {name}"),
        }
    }

    /// Several URLs, with blanks between them, are the nodes of a quorum.
    fn url(&self) -> String {
        match self {
            Store::Redis(server) | Store::Bare(server) | Store::Write(server) => server.url(),
            Store::Quorum(quorum) => [0, 1, 2].map(|node| quorum.url(node)).join(" "),
            Store::Postgres(table) => table.url(),
            Store::Mariadb(table) => table.url(),
        }
    }

    /// The number of scripts that the server has run.
    fn scripts(&self) -> Option<CommandStats> {
        match self {
            Store::Redis(server) | Store::Bare(server) | Store::Write(server) => {
                Some(CommandStats::of(server))
            }
            _ => None,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Store::Write(_) => "write",
            Store::Bare(_) => "bare",
            _ => "mutex",
        }
    }
}

async fn connect(url: &str) -> LockManager {
    let nodes: Vec<QuorumNode> = url.split(' ').map(QuorumNode::from).collect();
    let builder = LockManager::builder();
    if nodes.len() == 1 {
        let schema = !url.starts_with("redis");
        return builder.ensure_schema(schema).connect(url).await.unwrap();
    }
    let builder = builder.lease(LONGEST_LEASE).longest_lease(LONGEST_LEASE);
    builder.quorum(nodes).await.unwrap()
}

fn lock(locks: &LockManager, kind: &str) -> LockRequest {
    match kind {
        "write" => locks.write("hot"),
        _ => locks.mutex("hot"),
    }
}

fn begin(url: &str, kind: &str, row: &Row) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([CHILD, url, kind])
        .args([row.tasks as u64, row.hold_ms, row.seconds].map(|number| number.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    child.unwrap()
}

/// Runs the processes at the same time. Returns the grants of each, and the number of scripts that they sent.
fn grants_of(store: &str, row: &Row) -> (Vec<Vec<Grant>>, Option<u64>) {
    let store = Store::start(store);
    let mut children: Vec<_> = (0..row.processes)
        .map(|_| begin(&store.url(), store.kind(), row))
        .collect();
    let mut outputs = Vec::new();
    for child in &mut children {
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        outputs.push(output);
    }
    let before = store.scripts();
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut all = Vec::new();
    for mut output in outputs {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        let mut numbers = text.split_whitespace().map(|it| it.parse().unwrap());
        let mut grants = Vec::new();
        while let (Some(at), Some(waited)) = (numbers.next(), numbers.next()) {
            grants.push((at, waited));
        }
        all.push(grants);
    }
    let scripts = before.zip(store.scripts());
    let scripts = scripts.map(|(before, after)| after.since(&before).scripts());
    for mut child in children {
        child.wait().unwrap();
    }
    (all, scripts)
}

pub(crate) fn run(args: &[String]) {
    let seconds = args.first().map_or(3, |seconds| seconds.parse().unwrap());
    let store = args.get(1).map_or("redis", String::as_str);
    let rows: Vec<Size> = match store {
        "redis" => ROWS.to_vec(),
        // A process has one task.
        "bare" => ROWS.into_iter().filter(|row| row.1 == 1).collect(),
        _ => FEW_ROWS.to_vec(),
    };
    println!("one key, several processes, {seconds} s each, {store}");
    println!(
        "  processes  tasks  hold ms   pairs/s  of ideal  changes/s  scripts   p50 ms   p99 ms   max ms  shares"
    );
    for (processes, tasks, hold_ms) in rows {
        let row = Row {
            processes,
            tasks,
            hold_ms,
            seconds,
        };
        let (all, scripts) = grants_of(store, &row);
        let mut order: Vec<(u64, usize)> = Vec::new();
        let mut waits: Vec<u64> = Vec::new();
        for (process, grants) in all.iter().enumerate() {
            order.extend(grants.iter().map(|(at, _)| (*at, process)));
            waits.extend(grants.iter().map(|(_, waited)| waited));
        }
        order.sort_unstable();
        waits.sort_unstable();
        let changes = order.windows(2).filter(|two| two[0].1 != two[1].1).count();
        let (total, fair) = (order.len(), order.len() as f64 / processes as f64);
        let shares: Vec<f64> = all.iter().map(|it| it.len() as f64 / fair).collect();
        let (least, most) = (
            shares.iter().copied().fold(f64::MAX, f64::min),
            shares.iter().copied().fold(0.0, f64::max),
        );
        let ms = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize] as f64 / 1e6;
        let ideal = match hold_ms {
            0 => "-".to_owned(),
            ms => format!(
                "{:.2}",
                (total as u64 * ms) as f64 / (seconds * 1000) as f64
            ),
        };
        let scripts = scripts.map_or("-".to_owned(), |scripts| {
            format!("{:.2}", scripts as f64 / total as f64)
        });
        println!(
            "  {processes:9}  {tasks:5}  {hold_ms:7}  {:8.0}  {ideal:>8}  {:9.0}  {scripts:>7}  {:7.2}  {:7.2}  {:7.2}  {least:.2} to {most:.2}",
            total as f64 / seconds as f64,
            changes as f64 / seconds as f64,
            ms(0.5),
            ms(0.99),
            ms(1.0),
        );
    }
}

/// Runs as one of the processes.
pub(crate) fn child(args: &[String]) {
    let [url, kind, numbers @ ..] = args else {
        panic!("{CHILD} URL KIND TASKS HOLD_MS SECONDS")
    };
    let numbers: Vec<u64> = numbers.iter().map(|it| it.parse().unwrap()).collect();
    let &[tasks, hold_ms, seconds] = numbers.as_slice() else {
        panic!("{CHILD} URL KIND TASKS HOLD_MS SECONDS")
    };
    let (hold, length) = (Duration::from_millis(hold_ms), Duration::from_secs(seconds));
    if kind == "bare" {
        let mut bare = BareList::connect(url);
        begins();
        return write(&bare.take_turns(hold, Instant::now() + length));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let grants: Arc<Mutex<Vec<Grant>>> = Arc::default();
    runtime.block_on(async {
        let locks = connect(url).await;
        begins();
        let over = Instant::now() + length;
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let (lock, grants) = (lock(&locks, kind), grants.clone());
                tokio::spawn(async move {
                    while Instant::now() < over {
                        let asked = now_ns();
                        let guard = lock.clone().wait_forever().acquire().await.unwrap();
                        let at = now_ns();
                        grants.lock().unwrap().push((at, at - asked));
                        if !hold.is_zero() {
                            tokio::time::sleep(hold).await;
                        }
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    write(&grants.lock().unwrap());
}

/// Says that this process is connected, and waits until all are.
fn begins() {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn write(grants: &[Grant]) {
    let mut text = String::new();
    for (at, waited) in grants {
        text += &format!("{at} {waited}\n");
    }
    print!("{text}");
}

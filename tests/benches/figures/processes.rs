//! One key that several processes want: the rate, the changes of hands, the waits and the shares.
//!
//! `… -- processes [SECONDS]`, 3 s a row by default.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::history::now_ns;
use tests::{CommandStats, RedisServer};

pub(crate) const CHILD: &str = "processes-child";

/// The rows: processes, tasks of each, and milliseconds of a hold.
const ROWS: [(usize, usize, u64); 14] = [
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
type Grant = (u64, u64);

struct Row {
    processes: usize,
    tasks: usize,
    hold_ms: u64,
    seconds: u64,
}

fn begin(url: &str, row: &Row) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([CHILD, url])
        .args([row.tasks as u64, row.hold_ms, row.seconds].map(|number| number.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    child.unwrap()
}

/// Runs the processes at the same time. Returns the grants of each, and the number of scripts that they sent.
fn grants_of(row: &Row) -> (Vec<Vec<Grant>>, u64) {
    let server = RedisServer::start();
    let mut children: Vec<_> = (0..row.processes)
        .map(|_| begin(&server.url(), row))
        .collect();
    let mut outputs = Vec::new();
    for child in &mut children {
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        outputs.push(output);
    }
    let before = CommandStats::of(&server);
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
    let scripts = CommandStats::of(&server).since(&before).scripts();
    for mut child in children {
        child.wait().unwrap();
    }
    (all, scripts)
}

pub(crate) fn run(args: &[String]) {
    let seconds = args.first().map_or(3, |seconds| seconds.parse().unwrap());
    println!("one key, several processes, {seconds} s each");
    println!(
        "  processes  tasks  hold ms   pairs/s  of ideal  changes/s  scripts   p50 ms   p99 ms   max ms  shares"
    );
    for (processes, tasks, hold_ms) in ROWS {
        let row = Row {
            processes,
            tasks,
            hold_ms,
            seconds,
        };
        let (all, scripts) = grants_of(&row);
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
        println!(
            "  {processes:9}  {tasks:5}  {hold_ms:7}  {:8.0}  {ideal:>8}  {:9.0}  {:7.2}  {:7.2}  {:7.2}  {:7.2}  {least:.2} to {most:.2}",
            total as f64 / seconds as f64,
            changes as f64 / seconds as f64,
            scripts as f64 / total as f64,
            ms(0.5),
            ms(0.99),
            ms(1.0),
        );
    }
}

/// Runs as one of the processes.
pub(crate) fn child(args: &[String]) {
    let [url, numbers @ ..] = args else {
        panic!("{CHILD} URL TASKS HOLD_MS SECONDS")
    };
    let numbers: Vec<u64> = numbers.iter().map(|it| it.parse().unwrap()).collect();
    let &[tasks, hold_ms, seconds] = numbers.as_slice() else {
        panic!("{CHILD} URL TASKS HOLD_MS SECONDS")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let grants: Arc<Mutex<Vec<Grant>>> = Arc::default();
    runtime.block_on(async {
        let locks = LockManager::connect(url).await.unwrap();
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let over = Instant::now() + Duration::from_secs(seconds);
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let (locks, grants) = (locks.clone(), grants.clone());
                tokio::spawn(async move {
                    while Instant::now() < over {
                        let asked = now_ns();
                        let guard = locks.mutex("hot").wait_forever().acquire().await.unwrap();
                        let at = now_ns();
                        grants.lock().unwrap().push((at, at - asked));
                        if hold_ms > 0 {
                            tokio::time::sleep(Duration::from_millis(hold_ms)).await;
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
    let mut text = String::new();
    for (at, waited) in grants.lock().unwrap().iter() {
        text += &format!("{at} {waited}\n");
    }
    print!("{text}");
}

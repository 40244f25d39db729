//! Three schedulers that run a job once per tick.
//!
//! `cargo run --bin cron-once` runs three tasks. With `LOCK_URL=redis://127.0.0.1/` in front, it runs three processes.
//!
//! Every host runs the same schedule, so that the job runs while any of them lives. The lock's name holds the job and
//! the tick. `on_busy = skip` sends a scheduler away that comes while another one works. `min_hold` sends one away that
//! comes when the work is done already, because it is late. A scheduler that is later than that skips the tick.

use std::collections::BTreeMap;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use examples::{Failure, Store, prove};
use lock_runtime::{LockError, LockManager, distributed_lock};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

const SCHEDULERS: u64 = 3;
const TICKS: u64 = 4;
const PERIOD: Duration = Duration::from_millis(500);
/// The difference between the schedulers' clocks. The jobs take less: without `min_hold` each clock would start one.
const SKEW: Duration = Duration::from_millis(150);

/// The time at which a tick is due, in ms of Unix time: the same number on every host.
type Tick = u64;

/// A scheduler that is later than this skips a tick: `min_hold` of another one's run may be over.
const TOO_LATE: Duration = Duration::from_secs(60);

/// Runs once per tick, which is the right way. `min_hold` is longer than any two clocks may differ, and than a scheduler may
/// be late. It may even be longer than the period, because the next tick has another lock. A run that fails is over, too:
/// what may be repeated is repeated here, inside.
#[distributed_lock(
    key = "cron:invoices:{tick}",
    on_busy = skip,
    min_hold = "90s",
    manager = locks
)]
async fn send_invoices(locks: &LockManager, tick: Tick, report: &Report) -> Result<(), LockError> {
    work(Job::Invoices, tick, report).await;
    Ok(())
}

/// Does the same without `min_hold`: no two run at a time, but several run one after the other.
#[distributed_lock(key = "cron:reminders:{tick}", on_busy = skip, manager = locks)]
async fn send_reminders(locks: &LockManager, tick: Tick, report: &Report) -> Result<(), LockError> {
    work(Job::Reminders, tick, report).await;
    Ok(())
}

async fn work(job: Job, tick: Tick, report: &Report) {
    report(Run { job, tick });
    sleep(Duration::from_millis(10)).await;
}

/// Runs both jobs at each tick, as each host does.
async fn scheduler(locks: &LockManager, host: u64, first: Tick, report: &Report) {
    let late = SKEW * u32::try_from(host).unwrap_or_default();
    for tick in ticks(first) {
        sleep(until(tick) + late).await;
        if since(tick) > TOO_LATE {
            eprintln!("host {host} is too late for tick {tick}");
            continue;
        }
        let (invoices, reminders) = tokio::join!(
            send_invoices(locks, tick, report),
            send_reminders(locks, tick, report),
        );
        // A tick that another host took is `Ok`; a store that is away is not. The next tick may find it.
        for failed in [invoices, reminders].into_iter().filter_map(Result::err) {
            eprintln!("host {host}, tick {tick}: {failed}");
        }
    }
}

fn ticks(first: Tick) -> impl Iterator<Item = Tick> {
    let period = PERIOD.as_millis() as u64;
    (0..TICKS).map(move |n| first + n * period)
}

fn until(tick: Tick) -> Duration {
    let due = UNIX_EPOCH + Duration::from_millis(tick);
    due.duration_since(SystemTime::now()).unwrap_or_default()
}

fn since(tick: Tick) -> Duration {
    let due = UNIX_EPOCH + Duration::from_millis(tick);
    due.elapsed().unwrap_or_default()
}

/// The function that is told of every run.
type Report = dyn Fn(Run) + Send + Sync;

/// A job that ran.
#[derive(Clone, Copy)]
struct Run {
    job: Job,
    tick: Tick,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Invoices,
    Reminders,
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if let (Some(host), Some(first)) = (words.next(), words.next()) {
        return match host_process(&host, &first).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cron-once: host {host}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    examples::run("cron-once", compare).await
}

/// Starts the schedulers and counts their runs.
async fn compare(locks: &LockManager) -> Result<(), Failure> {
    let first = UNIX_EPOCH.elapsed()? + Duration::from_secs(1);
    let first = first.as_millis() as Tick;
    let shared = Store::from_env().is_shared();
    let kind = if shared { "processes" } else { "tasks" };
    println!("{SCHEDULERS} schedulers ({kind}), a tick every {PERIOD:?}, clocks {SKEW:?} apart.\n");

    let (report, mut reports) = mpsc::unbounded_channel();
    let mut hosts = JoinSet::new();
    for host in 0..SCHEDULERS {
        let report = report.clone();
        let locks = locks.clone();
        hosts.spawn(async move {
            let report = move |run| {
                let _ = report.send(run);
            };
            if shared {
                watch_process(host, first, &report).await
            } else {
                scheduler(&locks, host, first, &report).await;
                Ok(())
            }
        });
    }
    drop(report);
    while let Some(ended) = hosts.join_next().await {
        ended??;
    }

    let mut runs = BTreeMap::new();
    while let Some(Run { job, tick }) = reports.recv().await {
        *runs.entry((job, tick)).or_insert(0) += 1;
    }
    let count = |job, tick| runs.get(&(job, tick)).copied().unwrap_or(0);
    println!("runs       skip + min_hold   skip alone");
    for (n, tick) in ticks(first).enumerate() {
        let (invoices, reminders) = (count(Job::Invoices, tick), count(Job::Reminders, tick));
        println!("tick {}     {invoices:>15}   {reminders:>10}", n + 1);
    }
    println!();
    let once = ticks(first).all(|tick| count(Job::Invoices, tick) == 1);
    prove(
        once,
        format!("{TICKS} ticks, each run by exactly 1 of {SCHEDULERS} schedulers"),
    )
}

/// Starts this program again, as one scheduler, and reads its reports.
async fn watch_process(host: u64, first: Tick, report: &Report) -> Result<(), Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([host.to_string(), first.to_string()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().ok_or("a scheduler has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        let (job, tick) = line.split_once(' ').ok_or("a strange report")?;
        let job = match job {
            "invoices" => Job::Invoices,
            _ => Job::Reminders,
        };
        report(Run {
            job,
            tick: tick.parse()?,
        });
    }
    let status = child.wait().await?;
    if !status.success() {
        return Err(format!("scheduler {host} ended with {status}").into());
    }
    Ok(())
}

/// Runs one scheduler and prints its reports, as the process that `watch_process` starts.
async fn host_process(host: &str, first: &str) -> Result<(), Failure> {
    let (host, first) = (host.parse()?, first.parse()?);
    let locks = Store::from_env().connect().await?;
    scheduler(&locks, host, first, &|run| {
        let job = match run.job {
            Job::Invoices => "invoices",
            Job::Reminders => "reminders",
        };
        println!("{job} {}", run.tick);
    })
    .await;
    locks.shutdown().await;
    Ok(())
}

//! Tests of what operations cost, in numbers that do not depend on the machine: requests, the commands of their
//! scripts, allocations, and the size of a future. A change that makes one of them grow has to say so here.

use std::alloc::System;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, distributed_lock, key};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tests::{CommandStats, RedisServer};
use tokio::sync::Mutex;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The most commands of a cycle of a lock that nobody else wants, with the feature `metrics`, which `scripts/test`
/// turns on.
const MOST_COMMANDS: u64 = 7;
/// The most commands of a cycle that shares its scripts: SET of the fence, HSET, PEXPIRE; HDEL, PUBLISH; and its part
/// of what is asked once for all.
const MOST_COMMANDS_SHARED: u64 = 6;
/// The most allocations of a cycle of a lock that nobody else wants. Each of the two calls has one for a box apart from
/// its request. Most requests beside many others do without it.
const MOST_BLOCKS: u64 = 28;
/// The most allocations of a cycle of a lock that goes from task to task: what a kept lock needs, a channel, its part
/// of the queue, and what one request to the store in 2 ms needs. They are between four and five, and more where tasks
/// are slow and so have fewer turns in that time.
const MOST_BLOCKS_IN_A_TENURE: u64 = 8;

/// The most allocations of a cycle of a lock that its process keeps: the name, the key's text, the key. The turn has none.
const MOST_BLOCKS_KEPT: u64 = 3;

/// A lock that lets one test run at a time, because the allocator counts for the whole process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Returns the number of allocations of this process so far. A block that grows counts again.
fn blocks() -> u64 {
    let stats = ALLOCATOR.stats();
    (stats.allocations + stats.reallocations) as u64
}

/// The runs of each measurement of allocations.
const RUNS: u64 = 3;

/// Runs the work several times, and returns the allocations of the cheapest run. What the test before left behind and
/// what libtest reports may fall into a run, and can only add to it.
async fn fewest_blocks(mut work: impl AsyncFnMut()) -> u64 {
    let mut fewest = u64::MAX;
    for _ in 0..RUNS {
        let before = blocks();
        work().await;
        fewest = fewest.min(blocks() - before);
    }
    fewest
}

async fn cycle(locks: &LockManager) {
    let guard = locks.mutex("k").wait_forever().acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_free_lock_costs_two_requests_few_commands_and_allocations() {
    let _alone = ALONE.lock().await;
    const CYCLES: u64 = 200;
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let began = Instant::now();
    for _ in 0..100 {
        cycle(&locks).await;
    }
    let before = CommandStats::of(&server);
    let allocated = fewest_blocks(async || {
        for _ in 0..CYCLES {
            cycle(&locks).await;
        }
    })
    .await;
    let commands = CommandStats::of(&server).since(&before);
    // The manager says again who it is after 24 s at the earliest.
    let records = began.elapsed().as_secs() / 24;
    let (scripts, inside) = (commands.scripts(), commands.total() - commands.scripts());
    println!(
        "{allocated} allocations for {CYCLES} cycles; {RUNS} runs: {scripts} scripts, {commands:?}"
    );
    let requests = 2 * CYCLES * RUNS;
    assert!(
        (requests..=requests + records).contains(&scripts),
        "{scripts}"
    );
    // The commands are TIME, HLEN, SET of the fence, HSET, PEXPIRE; HDEL, PUBLISH; and some PINGs.
    assert!(
        inside <= (MOST_COMMANDS * CYCLES + CYCLES / 10) * RUNS,
        "{commands:?}"
    );
    assert!(
        allocated <= MOST_BLOCKS * CYCLES + CYCLES / 10,
        "{allocated} allocations for {CYCLES} cycles"
    );
}

#[tokio::test]
async fn free_locks_of_many_tasks_share_scripts_with_fewer_commands() {
    let _alone = ALONE.lock().await;
    const CYCLES: u64 = 20;
    const TASKS: u64 = 256;
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let run = async || {
        let tasks = (0..TASKS).map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for _ in 0..CYCLES {
                    let request = locks.mutex(format!("own:{task}")).wait_forever();
                    request.acquire().await.unwrap().release().await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    };
    // The scripts that serve many requests are loaded when they are first asked for.
    run().await;
    let before = CommandStats::of(&server);
    run().await;
    let commands = CommandStats::of(&server).since(&before);
    let (scripts, inside) = (commands.scripts(), commands.total() - commands.scripts());
    let cycles = CYCLES * TASKS;
    println!("{scripts} scripts, {commands:?} for {cycles} cycles of {TASKS} tasks");
    assert!(scripts <= cycles / 2, "{scripts} scripts");
    assert!(inside <= MOST_COMMANDS_SHARED * cycles, "{commands:?}");
}

#[tokio::test]
async fn a_task_that_drops_guards_costs_about_one_request_each() {
    let _alone = ALONE.lock().await;
    const CYCLES: u64 = 500;
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    cycle(&locks).await;
    let before = CommandStats::of(&server);
    for _ in 0..CYCLES {
        drop(locks.mutex("k").wait_forever().acquire().await.unwrap());
    }
    // The lock is free once the last release was sent.
    cycle(&locks).await;
    let scripts = CommandStats::of(&server).since(&before).scripts();
    println!("{scripts} scripts for {CYCLES} guards that were dropped");
    assert!(scripts <= CYCLES + CYCLES / 10, "{scripts} scripts");
}

#[tokio::test]
async fn a_lock_that_circulates_in_a_process_costs_few_requests() {
    let _alone = ALONE.lock().await;
    const CYCLES: u64 = 200;
    const TASKS: u64 = 8;
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    cycle(&locks).await;
    let (before, allocated) = (CommandStats::of(&server), blocks());
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for _ in 0..CYCLES {
                    cycle(&locks).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let allocated = blocks() - allocated;
    let scripts = CommandStats::of(&server).since(&before).scripts();
    let cycles = CYCLES * TASKS;
    println!("{allocated} allocations, {scripts} scripts for {cycles} cycles of {TASKS} tasks");
    // There is one for each tenure of 2 ms, and there are those of the last holds, after which nobody waits.
    assert!(
        scripts <= cycles / 4,
        "{scripts} scripts for {cycles} cycles"
    );
    assert!(
        allocated <= MOST_BLOCKS_IN_A_TENURE * cycles,
        "{allocated} allocations for {cycles} cycles"
    );
}

#[tokio::test]
async fn a_kept_lock_costs_no_request_and_few_allocations() {
    let _alone = ALONE.lock().await;
    const CYCLES: u64 = 200;
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let cycle = async || {
        let request = locks.mutex("k").keep_for(Duration::from_secs(60));
        request.acquire().await.unwrap().release().await.unwrap();
    };
    for _ in 0..100 {
        cycle().await;
    }
    // The manager introduces itself with its first hold.
    tests::eventually("it is known", async || !server.records().is_empty()).await;
    let before = CommandStats::of(&server);
    let allocated = fewest_blocks(async || {
        for _ in 0..CYCLES {
            cycle().await;
        }
    })
    .await;
    let scripts = CommandStats::of(&server).since(&before).scripts();
    println!("{allocated} allocations, {scripts} scripts for {CYCLES} cycles");
    assert_eq!(scripts, 0);
    assert!(
        allocated <= MOST_BLOCKS_KEPT * CYCLES + CYCLES / 10,
        "{allocated} allocations for {CYCLES} cycles"
    );
}

/// Keeps 25 numbers across an `.await`, as a body of a known size.
async fn body(id: u64) -> Result<u64, LockError> {
    let ballast = [id; 25];
    tokio::task::yield_now().await;
    Ok(ballast.iter().sum())
}

#[distributed_lock(key = "order:{id}", manager = locks)]
async fn annotated(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    body(id).await
}

async fn by_hand(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    let guard = locks.mutex(key!("order:{id}")).acquire().await?;
    guard.protect(body(id)).await.into_result()?
}

#[tokio::test]
async fn the_attribute_adds_no_allocation_and_little_to_the_future() {
    let _alone = ALONE.lock().await;
    let locks = LockManager::in_memory();
    for id in 0..100 {
        annotated(&locks, id).await.unwrap();
        by_hand(&locks, id).await.unwrap();
    }
    const CALLS: u64 = 100;
    let with_attribute = fewest_blocks(async || {
        for id in 0..CALLS {
            annotated(&locks, id).await.unwrap();
        }
    })
    .await;
    let without = fewest_blocks(async || {
        for id in 0..CALLS {
            by_hand(&locks, id).await.unwrap();
        }
    })
    .await;
    // A few allocations of the watchdog's own may fall into each run.
    assert!(
        with_attribute <= without + CALLS / 10,
        "{with_attribute} allocations annotated, {without} by hand, for {CALLS} calls"
    );

    let plain = size_of_val(&body(1));
    let whole = size_of_val(&annotated(&locks, 1));
    println!(
        "{} allocations a call; future: body {plain} bytes, annotated {whole}",
        with_attribute / CALLS
    );
    // The waiting and the running do not overlap, so the larger of the two decides.
    let waiting = size_of_val(&locks.mutex("x").acquire());
    assert!(
        whole <= waiting.max(plain) + 640,
        "body {plain} bytes, waiting {waiting}, annotated {whole}"
    );
}

//! A lock that its process keeps: how often one core takes it again, beside a memory store without `keep_for`.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::{CommandStats, RedisServer};

use crate::stats::{mean_95, thread_cpu};

const RUNS: usize = 30;
const CYCLES: u64 = 20_000;
const KEEP: Duration = Duration::from_secs(5);

async fn cycles(locks: &LockManager, keep: bool, cycles: u64) {
    for _ in 0..cycles {
        let request = locks.mutex("cart:17");
        let request = if keep {
            request.keep_for(KEEP)
        } else {
            request
        };
        request.acquire().await.unwrap().release().await.unwrap();
    }
}

pub(crate) fn run() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        println!("the same key again, one task");
        for fencing in [true, false] {
            let builder = || LockManager::builder().fencing(fencing);
            let redis = builder().connect(&server.url()).await.unwrap();
            let memory = builder().in_memory().unwrap();
            cycles(&redis, true, CYCLES).await;
            let before = CommandStats::of(&server);
            let (mut elapsed, mut cpu, mut without) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..RUNS {
                let (at, used) = (Instant::now(), thread_cpu());
                cycles(&redis, true, CYCLES).await;
                elapsed.push(CYCLES as f64 / at.elapsed().as_secs_f64());
                cpu.push((thread_cpu() - used).as_nanos() as f64 / CYCLES as f64);
                let used = thread_cpu();
                cycles(&memory, false, CYCLES / 10).await;
                without.push((thread_cpu() - used).as_nanos() as f64 / (CYCLES / 10) as f64);
            }
            let scripts = CommandStats::of(&server).since(&before).scripts();
            let tokens = if fencing { "with tokens" } else { "without" };
            let (rate, spread) = mean_95(&elapsed);
            let (used, about) = mean_95(&cpu);
            println!(
                "  {tokens:12} {rate:9.0} ± {spread:.0} /s, {used:.0} ± {about:.0} ns of CPU each"
            );
            let (used, about) = mean_95(&without);
            println!(
                "  {tokens:12} {used:9.0} ± {about:.0} ns of CPU on a memory store without keep_for"
            );
            println!(
                "  {tokens:12} {scripts:9} script calls for {} cycles",
                CYCLES * RUNS as u64
            );
        }
    });
}

//! One task, one key: the cost of the library over two bare script calls.

use std::time::Instant;

use lock_runtime::LockManager;
use tests::RedisServer;

use crate::bare::{Bare, BareKey};
use crate::stats::{mean_95, micros, thread_cpu};

const RUNS: usize = 60;
const CYCLES: u32 = 1_000;

pub(crate) fn run() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let mut bare = Bare::connect(&server.url()).await;
        let key = BareKey::new("one");
        let (mut wall, mut cpu_ours, mut cpu_bare) = (Vec::new(), Vec::new(), Vec::new());
        let (mut us_ours, mut us_bare) = (Vec::new(), Vec::new());
        for run in 0..RUNS + 2 {
            let mut ours = (0.0, 0.0);
            let mut base = (0.0, 0.0);
            // They take turns at going first, so that a drift of the machine's speed falls on both.
            for turn in 0..2 {
                let (at, cpu) = (Instant::now(), thread_cpu());
                if (run + turn) % 2 == 0 {
                    for _ in 0..CYCLES {
                        let guard = locks.mutex("one").acquire().await.unwrap();
                        guard.release().await.unwrap();
                    }
                    ours = (micros(at.elapsed()), micros(thread_cpu() - cpu));
                } else {
                    for _ in 0..CYCLES {
                        bare.cycle(&key).await;
                    }
                    base = (micros(at.elapsed()), micros(thread_cpu() - cpu));
                }
            }
            if run >= 2 {
                wall.push(ours.0 / base.0);
                cpu_ours.push(ours.1 / f64::from(CYCLES));
                cpu_bare.push(base.1 / f64::from(CYCLES));
                us_ours.push(ours.0 / f64::from(CYCLES));
                us_bare.push(base.0 / f64::from(CYCLES));
            }
        }
        let (ratio, half) = mean_95(&wall);
        let extra: Vec<f64> = cpu_ours.iter().zip(&cpu_bare).map(|(a, b)| a - b).collect();
        let (extra, extra_half) = mean_95(&extra);
        println!("uncontended acquire + release, {RUNS} interleaved runs of {CYCLES} cycles");
        println!(
            "  time per cycle   {:7.1} µs   bare {:7.1} µs",
            mean_95(&us_ours).0,
            mean_95(&us_bare).0
        );
        println!("  ratio            {ratio:7.3} ± {half:.3} (95 %)");
        println!("  client CPU added {extra:7.2} ± {extra_half:.2} µs per cycle");
    });
}

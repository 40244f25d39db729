//! Many short holds on a machine whose cores many other processes want. It runs by hand only:
//!
//! `cargo bench -p tests --bench figures -- starved [SECONDS] [LOAD]`. The defaults are 600 s and 16 processes that
//! spin. It fails if a hold was lost though this process was never without CPU for more than two thirds of a lease.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::{Events, RedisServer};

const MANY: usize = 10_000;
const LEASE: Duration = Duration::from_secs(1);
/// The time for which the gauge sleeps before it looks at the clock again.
const STEP: Duration = Duration::from_millis(5);

pub(crate) const SPIN: &str = "--spin";

/// Spins until the process is killed: the work of the child processes.
pub(crate) fn spin() {
    loop {
        std::hint::spin_loop();
    }
}

struct Spinner(Child);

impl Spinner {
    fn start() -> Spinner {
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program).arg(SPIN).stdin(Stdio::null()).spawn();
        Spinner(child.unwrap())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thread that wants to run every few milliseconds, and notes the longest time in which it did not.
struct Gauge {
    longest: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Gauge {
    fn start() -> Gauge {
        let gauge = Gauge {
            longest: Arc::default(),
            stop: Arc::default(),
        };
        let (longest, stop) = (gauge.longest.clone(), gauge.stop.clone());
        std::thread::spawn(move || {
            let mut last = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(STEP);
                let now = Instant::now();
                let gap = u64::try_from((now - last).as_millis()).unwrap();
                longest.fetch_max(gap, Ordering::Relaxed);
                last = now;
            }
        });
        gauge
    }

    fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn run(args: &[String]) {
    let number = |at: usize, default: u64| {
        args.get(at)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (length, load) = (Duration::from_secs(number(0, 600)), number(1, 16));
    let said = Events::default();
    let heard = said.clone();
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // On each worker, because the events of all tests have one subscriber already.
        .on_thread_start(move || std::mem::forget(tracing::subscriber::set_default(heard.clone())))
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let mut guards = Vec::with_capacity(MANY);
        for number in 0..MANY {
            let request = locks.mutex(format!("held:{number}")).lease(LEASE);
            guards.push(request.acquire().await.unwrap());
        }
        let spinners: Vec<_> = (0..load).map(|_| Spinner::start()).collect();
        let (gauge, began) = (Gauge::start(), Instant::now());
        let (mut least, mut lost) = (LEASE, 0);
        while began.elapsed() < length && lost == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let left = guards.iter().map(|guard| guard.remaining()).min();
            least = least.min(left.unwrap_or_default());
            lost = guards.iter().filter(|guard| !guard.is_held()).count();
        }
        let (gap, after) = (gauge.longest(), began.elapsed());
        drop(spinners);
        println!("{MANY} holds of {LEASE:?} beside {load} spinning processes, for {after:.0?}");
        println!("  lost             {lost:7}");
        println!("  least time left  {:7} ms", least.as_millis());
        println!("  longest time without CPU {:7} ms", gap.as_millis());
        let mut warnings = said.of(tracing::Level::WARN);
        warnings.truncate(10);
        for warning in warnings {
            println!("  {warning}");
        }
        assert!(lost == 0 || gap > LEASE * 2 / 3, "lost though it could run");
        // The guards are not given back: ten thousand releases are not what is measured.
        std::mem::forget(guards);
    });
    runtime.shutdown_background();
}

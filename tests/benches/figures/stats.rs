//! Means with their 95 % intervals, and the counters of the operating system.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Student's factors for an interval of 95 %, from two samples on. More samples than there are factors are taken for
/// normally distributed.
const STUDENT_95: [f64; 29] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045,
];

/// Returns the mean and half the width of its 95 % interval, of two samples or more.
pub(crate) fn mean_95(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let factor = STUDENT_95.get(samples.len() - 2).unwrap_or(&1.96);
    (mean, factor * (variance / n).sqrt())
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = text.split_whitespace().next().unwrap().parse().unwrap();
    Duration::from_nanos(nanos)
}

/// Returns the CPU time of all threads of this process, in steps of 10 ms.
pub(crate) fn process_cpu() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = text.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A count of what many tasks do until it is stopped.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Tally {
    pub(crate) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn one(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `tasks` loops for `length`. Returns what they counted, and how long it took.
pub(crate) async fn storm<F: Future<Output = ()> + Send + 'static>(
    tasks: usize,
    length: Duration,
    task: impl Fn(usize, Tally) -> F,
) -> (u64, Duration) {
    let tally = Tally::default();
    let at = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|number| tokio::spawn(task(number, tally.clone())))
        .collect();
    tokio::time::sleep(length).await;
    tally.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    (tally.count.load(Ordering::Relaxed), at.elapsed())
}

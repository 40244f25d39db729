//! The line of JSON that the runner reads.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::recorder::{Recorder, quantile, thinned};
use crate::session::Tally;

const SAMPLES: usize = 2000;

/// Returns the time that this process has used on all processors.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) fn line(
    length: Duration,
    cpu: Duration,
    tallies: &[Tally],
    waits: &Recorder,
    gaps: &Recorder,
) -> String {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let per_task: Vec<u64> = tallies.iter().map(|tally| tally.pairs).collect();
    let wait = waits.sorted();
    format!(
        concat!(
            r#"{{"pairs":{},"all_pairs":{},"seconds":{},"per_task":{:?},"client_cpu_us":{},"#,
            r#""wait_us":{{"p50":{:.1},"p99":{:.1},"max":{:.1},"samples":{:.1?}}},"gap_us":{:.1?},"changes":{},"overlaps":{}}}"#,
        ),
        sum(|tally| tally.pairs),
        sum(|tally| tally.all_pairs),
        length.as_secs_f64(),
        per_task,
        cpu.as_micros(),
        quantile(&wait, 0.5),
        quantile(&wait, 0.99),
        waits.longest(),
        thinned(&wait, SAMPLES),
        thinned(&gaps.sorted(), SAMPLES),
        sum(|tally| tally.changes),
        sum(|tally| tally.overlaps),
    )
}

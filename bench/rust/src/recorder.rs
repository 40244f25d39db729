//! Samples of a time, thinned so that memory stays bounded: when the recorder is full, it drops every second sample.

use std::time::Duration;

const MOST: usize = 65_536;

pub(crate) struct Recorder {
    /// The samples that were kept, in microseconds.
    samples: Vec<f64>,
    count: u64,
    /// The number of samples of which one is kept.
    stride: u64,
    longest: f64,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            samples: Vec::with_capacity(MOST),
            count: 0,
            stride: 1,
            longest: 0.0,
        }
    }
}

impl Recorder {
    pub(crate) fn add(&mut self, sample: Duration) {
        let sample = sample.as_nanos() as f64 / 1000.0;
        self.longest = self.longest.max(sample);
        if self.count.is_multiple_of(self.stride) {
            if self.samples.len() == MOST {
                let mut index = 0;
                self.samples.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            self.samples.push(sample);
        }
        self.count += 1;
    }

    pub(crate) fn longest(&self) -> f64 {
        self.longest
    }

    pub(crate) fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// Returns the sample below which this part of the samples lies.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = (part * sorted.len() as f64) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}

/// Returns at most `most` of the samples, evenly spread.
pub(crate) fn thinned(sorted: &[f64], most: usize) -> Vec<f64> {
    if sorted.len() <= most {
        return sorted.to_vec();
    }
    (0..most)
        .map(|n| quantile(sorted, (n as f64 + 0.5) / most as f64))
        .collect()
}

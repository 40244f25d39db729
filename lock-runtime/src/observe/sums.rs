//! A recorder for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};

/// The sum of each series, by its name and the values of its labels.
#[derive(Clone, Default)]
pub(crate) struct Sums(Arc<Mutex<BTreeMap<String, i64>>>);

struct Sum(Sums, String);

impl Sum {
    fn add(&self, change: i64) {
        let mut sums = self.0.0.lock().unwrap();
        *sums.entry(self.1.clone()).or_default() += change;
    }
}

impl CounterFn for Sum {
    fn increment(&self, value: u64) {
        self.add(value as i64);
    }
    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Sum {
    fn increment(&self, value: f64) {
        self.add(value as i64);
    }
    fn decrement(&self, value: f64) {
        self.add(-(value as i64));
    }
    fn set(&self, _: f64) {}
}

impl Sums {
    pub(crate) fn of(&self, series: &str) -> i64 {
        self.0.lock().unwrap().get(series).copied().unwrap_or(0)
    }

    fn one(&self, key: &Key) -> Arc<Sum> {
        let mut name = key.name().to_owned();
        for label in key.labels() {
            name = name + " " + label.value();
        }
        Arc::new(Sum(self.clone(), name))
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

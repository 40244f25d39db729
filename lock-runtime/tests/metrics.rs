//! What the `metrics` feature counts, and by which labels.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockName};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// How often each series was written to, named `name{label=value,..}`.
#[derive(Clone, Default)]
struct Series(Arc<Mutex<BTreeMap<String, u64>>>);

struct One {
    series: Series,
    name: String,
}

impl One {
    fn add(&self, count: u64) {
        *self
            .series
            .0
            .lock()
            .unwrap()
            .entry(self.name.clone())
            .or_default() += count;
    }
}

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.add(value);
    }
    fn absolute(&self, _: u64) {
        unreachable!("no counter of ours is set")
    }
}

impl HistogramFn for One {
    fn record(&self, value: f64) {
        assert!((0.0..3_600.0).contains(&value), "seconds: {value}");
        self.add(1);
    }
}

impl Series {
    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        Arc::new(One {
            series: self.clone(),
            name: format!("{}{{{}}}", key.name(), labels.join(",")),
        })
    }

    fn of(&self, name: &str) -> u64 {
        self.0.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

impl Recorder for Series {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

/// A name whose last part is a user's secret, made from the template `card:{number}`.
fn card(number: &str) -> LockName {
    LockName::from("card:")
        .with(number)
        .template("card:{number}")
}

#[tokio::test(start_paused = true)]
async fn series_are_labelled_by_template_or_label_and_never_by_what_a_user_put_in() {
    let series = Series::default();
    let _recording = metrics::set_default_local_recorder(&series);
    let locks = LockManager::in_memory();
    let other = locks.clone();

    let guard = locks.mutex(card("4711")).acquire().await.unwrap();
    let refused = other
        .mutex(card("4711"))
        .wait(Duration::from_millis(20))
        .acquire()
        .await;
    assert!(matches!(refused, Err(LockError::Busy { .. })));
    guard.release().await.unwrap();

    // The watchdog's task counts, too.
    let guard = locks.mutex(card("4712")).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(locks.force_release(card("4712")).await.unwrap());
    guard.lost().wait().await;
    drop(guard);

    let labelled = locks.mutex(card("4713")).label("cards");
    labelled.acquire().await.unwrap().release().await.unwrap();
    let plain = locks.mutex("customer-4714").acquire().await.unwrap();
    plain.release().await.unwrap();

    let template = "lock=card:{number}";
    for (name, times) in [
        (
            format!("lock_acquire_total{{{template},outcome=acquired}}"),
            2,
        ),
        (format!("lock_acquire_total{{{template},outcome=busy}}"), 1),
        (format!("lock_wait_seconds{{{template}}}"), 3),
        (format!("lock_hold_seconds{{{template}}}"), 1),
        (
            format!("lock_lost_total{{{template},reason=force_released}}"),
            1,
        ),
        ("lock_acquire_total{lock=cards,outcome=acquired}".into(), 1),
    ] {
        assert_eq!(series.of(&name), times, "{name} in {:?}", series.names());
    }
    assert!(series.of("lock_renewal_calls_total{outcome=answered}") >= 5);
    for name in series.names() {
        assert!(!name.contains("471"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_within_the_process_is_counted() {
    let series = Series::default();
    let _recording = metrics::set_default_local_recorder(&series);
    let locks = LockManager::in_memory();
    let guard = locks.mutex(card("1")).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.mutex(card("1")).acquire());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(series.of("lock_hand_overs_total{lock=card:{number}}"), 1);
}

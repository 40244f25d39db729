//! What the `metrics` feature counts, and by which labels.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockName, TryAcquire};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// How often each series was written to, named `name{label=value,..}`; of gauges, their value.
#[derive(Clone, Default)]
struct Series(
    Arc<Mutex<BTreeMap<String, u64>>>,
    Arc<Mutex<BTreeSet<String>>>,
    /// Whether histograms panic.
    Arc<AtomicBool>,
);

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
        assert!(!self.series.2.load(Ordering::Relaxed), "it is broken");
        self.add(1);
    }
}

impl GaugeFn for One {
    fn increment(&self, value: f64) {
        assert_eq!(value, 1.0);
        self.add(1);
    }
    fn decrement(&self, value: f64) {
        assert_eq!(value, 1.0);
        let mut values = self.series.0.lock().unwrap();
        let now = values.get_mut(&self.name).expect("it was counted in");
        *now = now.checked_sub(1).expect("no more than were counted in");
    }
    fn set(&self, value: f64) {
        let mut values = self.series.0.lock().unwrap();
        values.insert(self.name.clone(), value as u64);
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

    fn describe(&self, kind: &str, name: &KeyName, unit: Option<Unit>, text: &str) {
        assert!(unit.is_some() && !text.is_empty(), "{name:?}");
        self.1
            .lock()
            .unwrap()
            .insert(format!("`{}` | {kind}", name.as_str()));
    }

    fn of(&self, name: &str) -> u64 {
        self.0.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

impl Recorder for Series {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe("counter", &name, unit, &text);
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe("gauge", &name, unit, &text);
    }
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe("histogram", &name, unit, &text);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
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
async fn series_are_labelled_by_template_or_label_not_by_user_data() {
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

    let template = "lock=card:{number},kind=mutex,store=memory";
    for (name, times) in [
        (
            format!("lock_acquire_total{{{template},outcome=acquired}}"),
            2,
        ),
        (format!("lock_acquire_total{{{template},outcome=busy}}"), 1),
        (format!("lock_wait_seconds{{{template}}}"), 3),
        (format!("lock_hold_seconds{{{template}}}"), 2),
        (
            format!("lock_lost_total{{{template},reason=force_released}}"),
            1,
        ),
        (
            "lock_acquire_total{lock=cards,kind=mutex,store=memory,outcome=acquired}".into(),
            1,
        ),
        (
            format!("lock_releases_total{{{template},outcome=released}}"),
            1,
        ),
        (format!("lock_held{{{template}}}"), 0),
        (format!("lock_waiting{{{template}}}"), 0),
    ] {
        assert_eq!(series.of(&name), times, "{name} in {:?}", series.names());
    }
    assert!(series.of("lock_renewals_total{store=memory,outcome=held}") >= 5);
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
    let handed_over =
        || series.of("lock_hand_overs_total{lock=card:{number},kind=mutex,store=memory}");
    assert_eq!(handed_over(), 1);
    for _ in 0..2 {
        let request = locks.mutex(card("2")).keep_for(Duration::from_secs(5));
        let guard = request.acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        guard.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(handed_over(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_only_the_release_finds_is_counted_once_as_a_loss() {
    let series = Series::default();
    let _recording = metrics::set_default_local_recorder(&series);
    let locks = LockManager::in_memory();
    let exports = locks.semaphore("exports");
    exports.try_set_permits(1).await.unwrap();
    let request = || exports.permits(1).label("export");

    // In front of its owner, and in the background.
    let guard = request().acquire().await.unwrap();
    exports.delete().await.unwrap();
    let released = guard.release().await;
    assert!(matches!(released, Err(LockError::Lost { .. })));
    exports.try_set_permits(1).await.unwrap();
    let guard = request().acquire().await.unwrap();
    exports.delete().await.unwrap();
    drop(guard);
    locks.shutdown().await;

    let labels = "lock=export,kind=semaphore,store=memory";
    let lost = series.of(&format!("lock_lost_total{{{labels},reason=refused}}"));
    let released = series.of(&format!("lock_releases_total{{{labels},outcome=lost}}"));
    assert_eq!((lost, released), (2, 2), "{:?}", series.names());
}

#[tokio::test(start_paused = true)]
async fn a_release_after_a_seen_loss_counts_no_second_loss() {
    let series = Series::default();
    let _recording = metrics::set_default_local_recorder(&series);
    let locks = LockManager::in_memory();
    let guard = locks.mutex(card("1")).acquire().await.unwrap();
    locks.force_release(card("1")).await.unwrap();
    guard.lost().wait().await;
    let released = guard.release().await;
    assert!(matches!(released, Err(LockError::Lost { .. })));
    locks.shutdown().await;
    let lost: u64 = series
        .names()
        .iter()
        .filter(|name| name.starts_with("lock_lost_total"))
        .map(|name| series.of(name))
        .sum();
    assert_eq!(lost, 1, "{:?}", series.names());
}

#[tokio::test(start_paused = true)]
async fn gauges_tell_what_is_held_and_asked_for_and_how_old_it_is() {
    let series = Series::default();
    let _recording = metrics::set_default_local_recorder(&series);
    let locks = LockManager::in_memory();
    let of = |name: &str, kind: &str| {
        series.of(&format!(
            "{name}{{lock=(unlabelled),kind={kind},store=memory}}"
        ))
    };
    // Mutexes and writes that are held, mutexes that are asked for, and the age of the oldest hold.
    let now = || {
        let held = ["mutex", "write"].map(|kind| of("lock_held", kind));
        let oldest = series.of("lock_oldest_hold_seconds{store=memory}");
        (held, of("lock_waiting", "mutex"), oldest)
    };
    let first = locks.mutex("a").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let mut second = locks.write("b").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.mutex("a").wait_forever().acquire());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (held, asked, oldest) = now();
    assert_eq!((held, asked), ([1, 1], 1));
    assert!((119..=120).contains(&oldest), "{oldest}");
    let cancelled = tokio::spawn(locks.mutex("a").wait_forever().acquire());
    tokio::task::yield_now().await;
    cancelled.abort();
    first.release().await.unwrap();
    let third = waiting.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (held, asked, oldest) = now();
    assert_eq!((held, asked), ([1, 1], 0));
    // The mutex was had again and again, but not by one caller.
    assert!((29..=30).contains(&oldest), "{oldest}");
    third.release().await.unwrap();
    // A write that became a read is counted as the write that was granted: in, and out again.
    second.downgrade().await.unwrap();
    assert_eq!(now().0, [0, 1]);
    drop(second);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(now(), ([0, 0], 0, 0));
    assert_eq!(of("lock_hold_seconds", "write"), 1);
    let last = locks.mutex("a").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!((9..=10).contains(&now().2), "{:?}", now());
    drop((last, locks));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(now(), ([0, 0], 0, 0));
    let cancelled =
        "lock_acquire_total{lock=(unlabelled),kind=mutex,store=memory,outcome=cancelled}";
    assert_eq!(series.of(cancelled), 1);
}

#[tokio::test(start_paused = true)]
async fn the_hold_of_a_leader_is_not_the_oldest() {
    let series = Series::default();
    let _recording = metrics::set_default_local_recorder(&series);
    let locks = LockManager::in_memory();
    let oldest = || series.of("lock_oldest_hold_seconds{store=memory}");
    let leader = locks.elect("scheduler").campaign().await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(oldest(), 0);
    let guard = locks.mutex("a").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!((9..=10).contains(&oldest()), "{}", oldest());
    guard.release().await.unwrap();
    leader.resign().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_requests_is_told_apart() {
    let series = Series::default();
    let _recording = metrics::set_default_local_recorder(&series);
    let builder = LockManager::builder().max_waiters_per_key(1);
    let locks = builder.in_memory().unwrap();
    let outcome = |outcome: &str| {
        let labels = "lock=(unlabelled),kind=mutex,store=memory";
        series.of(&format!("lock_acquire_total{{{labels},outcome={outcome}}}"))
    };
    let guard = locks.mutex("a").acquire().await.unwrap();
    assert!(matches!(
        locks.mutex("a").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    let waiting = tokio::spawn(locks.mutex("a").acquire());
    tokio::task::yield_now().await;
    assert!(locks.mutex("a").acquire().await.is_err());
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    let both = || locks.multi([locks.mutex("b"), locks.mutex("c")]);
    let set = both().acquire().await.unwrap();
    let tried = both().try_acquire().await.unwrap();
    assert!(matches!(tried, TryAcquire::Busy { .. }));
    set.release().await.unwrap();
    locks.shutdown().await;
    assert!(locks.mutex("a").acquire().await.is_err());
    assert!(both().acquire().await.is_err());
    let seen = ["acquired", "busy", "overloaded", "shutting_down"].map(outcome);
    assert_eq!(seen, [4, 3, 1, 3], "{:?}", series.names());
    let (locks, control) = lock_runtime::test_util::in_memory();
    control.go_away();
    let both = locks.multi([locks.mutex("b"), locks.mutex("c")]);
    assert!(both.try_acquire().await.is_err());
    assert_eq!(outcome("unavailable"), 2, "{:?}", series.names());
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_panics_costs_no_lock() {
    let series = Series::default();
    series.2.store(true, Ordering::Relaxed);
    let _recording = metrics::set_default_local_recorder(&series);
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.mutex("a").acquire());
    tokio::task::yield_now().await;
    drop(guard);
    let guard = waiting.await.unwrap().unwrap();
    guard.release().await.unwrap();
    let tried = locks.mutex("a").try_acquire().await.unwrap();
    assert!(matches!(tried, TryAcquire::Acquired(_)));
}

#[tokio::test]
async fn each_metric_has_a_description_and_a_row_in_the_docs() {
    let series = Series::default();
    let _recording = metrics::set_default_local_recorder(&series);
    let _locks = LockManager::in_memory();
    let page = include_str!("../docs/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let row = line.strip_prefix("| `lock_")?;
        // The layer's metrics are described by tower-lock.
        if row.starts_with("layer_") {
            return None;
        }
        let end = row.match_indices(" |").nth(1)?.0;
        Some(format!("`lock_{}", &row[..end]))
    });
    let documented: BTreeSet<String> = rows.collect();
    assert_eq!(*series.1.lock().unwrap(), documented);
}

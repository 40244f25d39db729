//! The counter of requests that pass without a lock.
#![allow(missing_docs)]
#![cfg(feature = "metrics")]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use lock_runtime::LockManager;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use support::{Served, by_path, get};
use tower::{Layer, ServiceExt, service_fn};
use tower_lock::{LockKey, LockLayer, RequestKey};

/// The counters by label, and what has been described.
#[derive(Default)]
struct Counts {
    passed: Mutex<Vec<(String, Arc<Count>)>>,
    described: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Count(AtomicU64);

impl CounterFn for Count {
    fn increment(&self, times: u64) {
        self.0.fetch_add(times, Ordering::SeqCst);
    }
    fn absolute(&self, _: u64) {}
}

impl Recorder for Counts {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.described
            .lock()
            .unwrap()
            .push(name.as_str().to_owned());
    }
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() != "lock_layer_passed_total" {
            return Counter::noop();
        }
        let count = Arc::new(Count::default());
        let label = key.labels().next().unwrap().value().to_owned();
        self.passed.lock().unwrap().push((label, count.clone()));
        Counter::from_arc(count)
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl Counts {
    fn passed(&self, label: &str) -> u64 {
        let passed = self.passed.lock().unwrap();
        let of_label = passed.iter().filter(|(of, _)| of == label);
        of_label
            .map(|(_, count)| count.0.load(Ordering::SeqCst))
            .sum()
    }
}

async fn send<K>(layer: LockLayer<K>, request: Request<String>) -> Response<String>
where
    K: LockKey<Request<String>>,
{
    let served = service_fn(async |_: Request<String>| Served::Ok(Response::new("served".into())));
    layer.layer(served).oneshot(request).await.unwrap()
}

#[tokio::test(flavor = "current_thread")]
async fn requests_that_pass_without_a_lock_are_counted_by_label() {
    let counts = Counts::default();
    let _recording = metrics::set_default_local_recorder(&counts);
    let locks = LockManager::in_memory();
    let key = || RequestKey::new("draft").query("draft").optional();
    let by_key = || LockLayer::from_key(locks.clone(), key());
    let by_closure = || LockLayer::new(locks.clone(), by_path);
    for (request, passed) in [("/", 1), ("/?draft=7", 1), ("/", 2)] {
        assert_eq!(send(by_key(), get(request)).await.body(), "served");
        assert_eq!(counts.passed("draft"), passed, "{request}");
    }
    send(by_key().label("drafts"), get("/")).await;
    send(by_closure(), get("/")).await;
    send(by_closure(), get("/a")).await;
    let refused = LockLayer::from_key(locks.clone(), RequestKey::new("draft").query("draft"));
    assert_eq!(send(refused, get("/")).await.status(), 400);
    let seen = ["draft", "drafts", "(unlabelled)"].map(|label| counts.passed(label));
    assert_eq!(seen, [2, 1, 1]);
    let described = counts.described.lock().unwrap();
    assert!(
        described
            .iter()
            .any(|name| name == "lock_layer_passed_total")
    );
    let page = include_str!("../../docs/metrics.md");
    assert!(page.contains("\n| `lock_layer_passed_total` | counter | requests |"));
}

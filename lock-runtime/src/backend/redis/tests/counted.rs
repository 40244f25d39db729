//! Tests of the metrics of connections and scripts.

use std::collections::BTreeMap;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key as Series, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

use super::*;
use crate::backend::Backend;
use crate::values::holder::HolderIds;

/// The sum of each series, by name and the value of its first label.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<BTreeMap<String, i64>>>);

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
    fn of(&self, series: &str) -> i64 {
        self.0.lock().unwrap().get(series).copied().unwrap_or(0)
    }

    fn one(&self, key: &Series) -> Arc<Sum> {
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
    fn register_counter(&self, key: &Series, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, key: &Series, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }
    fn register_histogram(&self, _: &Series, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn connections_and_calls_are_counted() {
    let sums = Sums::default();
    let _recording = metrics::set_default_local_recorder(&sums);
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (HolderIds::new(), key("k"));
    let connected = || sums.of("lock_store_connected redis");
    until("it is connected", async || connected() == 1).await;
    let holder = ids.fresh();
    granted(backend.acquire(request(&key, holder, 5_000)).await.unwrap());
    backend.release(hold_ref(&key, holder), CALL).await.unwrap();
    assert_eq!(sums.of("lock_store_reconnections_total redis"), 0);
    for script in ["acquire", "release"] {
        let calls = sums.of(&format!("lock_store_calls_total redis {script} answered"));
        assert!(calls >= 1, "{script}: {calls}");
    }
    server.run("CLIENT PAUSE 60000 WRITE").await;
    let unanswered = || sums.of("lock_store_calls_total redis release unanswered");
    assert_eq!(unanswered(), 0);
    let release = backend.release(hold_ref(&key, holder), Duration::from_secs(1));
    assert!(matches!(release.await, Err(Fault::Unknown(_))));
    assert_eq!(unanswered(), 1);
    server.run("CLIENT UNPAUSE").await;
    server.run("CLIENT KILL TYPE normal").await;
    until("it is connected again", async || {
        sums.of("lock_store_reconnections_total redis") >= 1 && connected() == 1
    })
    .await;
    backend.close();
    until("it is closed", async || connected() == 0).await;
}

//! The recipe for `Idempotency-Key`: identical requests at the same time run once.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use lock_runtime::LockManager;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_lock::{LockLayer, RequestKey};

use crate::support;

/// The stored answers, and the number of payments that were made.
#[derive(Clone, Default)]
struct Payments {
    answers: Arc<Mutex<HashMap<String, String>>>,
    made: Arc<AtomicUsize>,
}

impl Payments {
    async fn pay(self, request: Request<String>) -> Result<Response<String>, Infallible> {
        let key = request.headers()["idempotency-key"]
            .to_str()
            .unwrap()
            .to_owned();
        if let Some(answer) = self.answers.lock().unwrap().get(&key) {
            return Ok(Response::new(answer.clone()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let answer = format!("payment {}", self.made.fetch_add(1, Ordering::SeqCst));
        self.answers.lock().unwrap().insert(key, answer.clone());
        Ok(Response::new(answer))
    }
}

/// Sends ten identical requests at the same time, and returns the answers.
async fn storm<S>(service: S) -> Vec<Response<String>>
where
    S: Service<Request<String>, Response = Response<String>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let requests = (0..10).map(|_| {
        let request = Request::post("/pay").header("idempotency-key", "k1");
        let request = request.header("x-user", "7").body(String::new()).unwrap();
        tokio::spawn(service.clone().oneshot(request))
    });
    let mut answers = vec![];
    for request in requests.collect::<Vec<_>>() {
        answers.push(request.await.unwrap().unwrap());
    }
    answers
}

fn handler(
    payments: &Payments,
) -> impl Service<Request<String>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let payments = payments.clone();
    service_fn(move |request| payments.clone().pay(request))
}

#[tokio::test(start_paused = true)]
async fn identical_requests_at_the_same_time_run_once() {
    let without = Payments::default();
    storm(handler(&without)).await;
    assert_eq!(without.made.load(Ordering::SeqCst), 10, "the storm is one");

    let with = Payments::default();
    let key = RequestKey::new("idempotency")
        .header("x-user")
        .method()
        .path()
        .header("idempotency-key");
    let layer = LockLayer::from_key(LockManager::in_memory(), key);
    let service = layer.layer(handler(&with));
    for response in storm(service.clone()).await {
        assert_eq!(response.body(), "payment 0");
    }
    assert_eq!(with.made.load(Ordering::SeqCst), 1);

    let without_key = service.oneshot(support::get("/pay")).await.unwrap();
    assert_eq!(without_key.status(), StatusCode::BAD_REQUEST);
}

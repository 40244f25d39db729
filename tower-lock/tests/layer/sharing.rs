//! Layers whose locks are not mutexes: fair ones, and semaphores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use lock_runtime::LockManager;
use tower::{Layer, ServiceExt, service_fn};
use tower_lock::{LockLayer, RequestKey};

use crate::support::{Served, get};

/// Sends so many requests for one key at once, and returns how many at most were served side by side.
async fn most_at_a_time(layer: LockLayer<RequestKey>, requests: usize) -> usize {
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let seen = counts.clone();
    let service = layer.layer(service_fn(move |_: Request<String>| {
        let counts = seen.clone();
        async move {
            let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
            counts.1.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            counts.0.fetch_sub(1, Ordering::SeqCst);
            let served: Served = Ok(http::Response::new(String::new()));
            served
        }
    }));
    let calls = (0..requests).map(|_| tokio::spawn(service.clone().oneshot(get("/17"))));
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    counts.1.load(Ordering::SeqCst)
}

fn key() -> RequestKey {
    RequestKey::new("order").path_segment(0)
}

#[tokio::test(start_paused = true)]
async fn a_layer_with_n_permits_serves_n_requests_of_a_key_at_once() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::from_key(locks.clone(), key()).semaphore(3);
    assert_eq!(most_at_a_time(layer.clone(), 12).await, 3);
    let permits = locks.semaphore("order:17");
    assert!(!permits.delete().await.unwrap(), "nothing is left of it");
    assert_eq!(most_at_a_time(layer, 2).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_layer_without_permits_refuses_at_once() {
    let layer = LockLayer::from_key(LockManager::in_memory(), key()).semaphore(0);
    let service = layer.layer(service_fn(async |_: Request<String>| -> Served {
        unreachable!("there is no permit")
    }));
    assert_eq!(service.oneshot(get("/17")).await.unwrap().status(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_fair_layer_serves_one_request_of_a_key_at_a_time() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::from_key(locks.clone(), key()).fair();
    assert_eq!(most_at_a_time(layer.clone(), 5).await, 1);
    let guard = locks.fair("order:17").acquire().await.unwrap();
    let busy = layer.wait(Duration::ZERO);
    let service = busy.layer(service_fn(async |_: Request<String>| -> Served {
        unreachable!("the lock is held")
    }));
    assert_eq!(service.oneshot(get("/17")).await.unwrap().status(), 423);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_stays_taken_for_min_hold_after_its_request() {
    let least = Duration::from_secs(5);
    let locks = LockManager::in_memory();
    let layer = LockLayer::from_key(locks, key()).min_hold(least);
    let service = layer
        .wait(Duration::ZERO)
        .layer(service_fn(async |_: Request<String>| {
            Served::Ok(Response::new(String::new()))
        }));
    let status = async || service.clone().oneshot(get("/17")).await.unwrap().status();
    assert_eq!(status().await, 200);
    assert_eq!(status().await, 423);
    tokio::time::sleep(least + Duration::from_secs(1)).await;
    assert_eq!(status().await, 200);
}

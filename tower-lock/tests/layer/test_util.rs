//! The layer on a store that the test controls: the example of the book's chapter on testing.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use lock_runtime::test_util::{self, Answer};
use tower::{Layer, ServiceExt, service_fn};
use tower_lock::{LockLayer, RequestKey};

#[tokio::test(start_paused = true)]
async fn a_test_shows_the_layer_a_busy_lock_and_a_store_that_is_away() {
    let (locks, control) = test_util::in_memory();
    let order = RequestKey::new("order").path_segment(1);
    let service = LockLayer::from_key(locks, order)
        .wait(Duration::ZERO)
        .layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new(String::from("paid")))
        }));
    let pay = || Request::post("/orders/17").body(String::new()).unwrap();

    control.next_acquire(Answer::Busy { retry_after: None });
    let response = service.clone().oneshot(pay()).await.unwrap();
    assert_eq!(response.status(), StatusCode::LOCKED);

    control.next_acquire(Answer::Unavailable);
    let response = service.clone().oneshot(pay()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);

    assert_eq!(service.oneshot(pay()).await.unwrap().body(), "paid");
    assert_eq!(control.answers_left(), 0);
}

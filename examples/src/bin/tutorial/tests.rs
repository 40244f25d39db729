use axum::body::Body;
use axum::http::Request;
use lock_runtime::LostReason;
use lock_runtime::test_util::{self, Answer, TestControl};
use tower::ServiceExt;

use super::*;

/// A shop on a store that the test controls.
fn shop() -> (Shop, TestControl) {
    let (locks, control) = test_util::in_memory();
    let metrics = PrometheusBuilder::new().build_recorder().handle();
    (Shop::new(locks, metrics).unwrap(), control)
}

async fn send(shop: &Shop, method: &str, path: &str, json: &'static str) -> StatusCode {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(json))
        .unwrap();
    let response = router(shop.clone()).oneshot(request).await;
    response.unwrap().status()
}

#[tokio::test(start_paused = true)]
async fn an_order_that_is_busy_for_the_whole_wait_is_503() {
    let (shop, control) = shop();
    control.next_acquire_of("order:7", Answer::Busy { retry_after: None });
    let refused = send(&shop, "POST", "/orders/7/items", "").await;
    assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
    let added = send(&shop, "POST", "/orders/7/items", "").await;
    assert_eq!(added, StatusCode::OK);
    control.assert_free("order:7").await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_paid_while_the_store_is_away() {
    let (shop, control) = shop();
    let payment = r#"{"order":7,"cents":100}"#;
    control.go_away();
    let refused = send(&shop, "POST", "/payments", payment).await;
    assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
    assert!(shop.data().paid.is_empty());
    let ready = send(&shop, "GET", "/ready", "").await;
    assert_eq!(ready, StatusCode::SERVICE_UNAVAILABLE);
    control.come_back();
    assert_eq!(
        send(&shop, "POST", "/payments", payment).await,
        StatusCode::CREATED
    );
    assert_eq!(
        send(&shop, "POST", "/payments", payment).await,
        StatusCode::OK
    );
}

#[tokio::test(start_paused = true)]
async fn a_payment_whose_lock_is_lost_is_not_made() {
    let (shop, control) = shop();
    let payment = send(&shop, "POST", "/payments", r#"{"order":7,"cents":100}"#);
    let (refused, ()) = tokio::join!(payment, async {
        sleep(Duration::from_millis(20)).await;
        control.lose("payment:7", LostReason::Expired).await;
    });
    assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
    assert!(shop.data().paid.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_third_export_is_refused_while_two_run() {
    let (shop, _control) = shop();
    let permits = shop.locks.semaphore("exports");
    permits.try_set_permits(2).await.unwrap();
    let two = permits.permits(2).acquire().await.unwrap();
    let third = send(&shop, "POST", "/exports", "").await;
    assert_eq!(third, StatusCode::SERVICE_UNAVAILABLE);
    two.release().await.unwrap();
    assert_eq!(send(&shop, "POST", "/exports", "").await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_meter_takes_no_write_with_a_lower_token() {
    let (shop, _control) = shop();
    let path = "/meters/gas";
    assert_eq!(send(&shop, "PUT", path, "1").await, StatusCode::NO_CONTENT);
    let later = "UPDATE meters SET value = 2000, token = token + 1000000000";
    shop.meters.lock().unwrap().execute(later, ()).unwrap();
    assert_eq!(send(&shop, "PUT", path, "1000").await, StatusCode::CONFLICT);
}

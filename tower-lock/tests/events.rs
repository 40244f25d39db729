//! The events that the layer logs.
#![allow(missing_docs)]

mod support;

use std::sync::{Arc, Mutex, Once};

use http::{Request, Response, StatusCode};
use lock_runtime::LockManager;
use support::{Served, by_path, get, name};
use tower::{Layer, ServiceExt, service_fn};
use tower_lock::LockLayer;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// A subscriber that keeps the layer's events.
#[derive(Clone)]
struct Events(Arc<Mutex<Vec<(Level, String)>>>);

impl Default for Events {
    /// Sets a subscriber for the whole process first, which is asked about each event. Without it, if another thread meets an
    /// event first at this moment, tracing may remember that nobody wants the event.
    fn default() -> Events {
        static WHOLE_PROCESS: Once = Once::new();
        let events = || Events(Arc::default());
        WHOLE_PROCESS.call_once(|| _ = tracing::subscriber::set_global_default(events()));
        events()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Events {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("tower_lock")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut events = self.0.lock().unwrap();
        events.push((*event.metadata().level(), text.0));
    }
}

impl Events {
    fn of(&self, level: Level) -> Vec<String> {
        let events = self.0.lock().unwrap();
        let of_level = events.iter().filter(|(of, _)| *of == level);
        of_level.map(|(_, text)| text.clone()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_response_with_a_lost_lock_is_sent_with_a_warning() {
    let events = Events::default();
    let _log = tracing::subscriber::set_default(events.clone());
    let locks = LockManager::in_memory();
    let thief = locks.clone();
    let service = LockLayer::new(locks, by_path).layer(service_fn(move |_: Request<String>| {
        let thief = thief.clone();
        async move {
            assert!(thief.force_release(name("a")).await.unwrap());
            Served::Ok(Response::new("finished".into()))
        }
    }));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_eq!(response.body(), "finished");
    let warnings = events.of(Level::WARN);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("the response was finished"),
        "{warnings:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_no_retry_can_help_is_logged_as_an_error() {
    let events = Events::default();
    let _log = tracing::subscriber::set_default(events.clone());
    let service = LockLayer::new(LockManager::in_memory(), by_path)
        .lease(std::time::Duration::from_millis(1))
        .layer(service_fn(async |_: Request<String>| {
            Served::Ok(Response::new(String::new()))
        }));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let errors = events.of(Level::ERROR);
    assert!(
        errors.len() == 1 && errors[0].contains("lease"),
        "{errors:?}"
    );
}

#[cfg(feature = "axum")]
#[tokio::test(start_paused = true)]
async fn an_impossible_key_part_is_logged_and_hidden_from_the_client() {
    use axum::Router;
    let events = Events::default();
    let _log = tracing::subscriber::set_default(events.clone());
    let key = tower_lock::RequestKey::new("order").path_segment(2);
    let app = Router::new()
        .route("/orders/{id}", axum::routing::get(async || "served"))
        .layer(LockLayer::from_key(LockManager::in_memory(), key));
    let request = Request::get("/orders/7").body(axum::body::Body::empty());
    let response = app.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = axum::body::to_bytes(response.into_body(), 1_000)
        .await
        .unwrap();
    assert!(!String::from_utf8(body.into()).unwrap().contains("segment"));
    let errors = events.of(Level::ERROR);
    assert_eq!(errors.len(), 1, "{errors:?}");
    for part in ["The segment 2 of the path", "`order`", "GET /orders/7"] {
        assert!(errors[0].contains(part), "{errors:?}");
    }
}

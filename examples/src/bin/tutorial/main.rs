//! A shop whose processes share their locks: the service that the tutorial builds.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use lock_runtime::{
    HealthState, LockError, LockManager, ManagerSnapshot, TryAcquire, distributed_lock, key,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio::time::{interval, sleep, timeout};
use tower_lock::{LockLayer, Refusal, RequestKey};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The recorder comes first: a manager describes its metrics to the one that is there.
    let buckets = [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];
    let metrics = PrometheusBuilder::new()
        .set_buckets(&buckets)?
        .install_recorder()?;
    let upkeep = metrics.clone();
    tokio::spawn(async move {
        let mut every = interval(Duration::from_secs(5));
        loop {
            every.tick().await;
            upkeep.run_upkeep(); // or histograms grow until somebody asks for `/metrics`
        }
    });
    let url = env::var("LOCK_URL").unwrap_or("memory://".to_owned());
    let locks = LockManager::builder().app("shop").connect(&url).await?;
    let shop = Shop::new(locks.clone(), metrics)?;

    // What can fail comes before the first lock is held, and a SIGTERM that comes earlier ends the process as it is.
    let mut terminate = signal(SignalKind::terminate())?;
    let address = env::var("ADDRESS").unwrap_or("127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let (stop, stopping) = oneshot::channel();
    let reminders = tokio::spawn(remind(shop.clone()));
    let server = axum::serve(listener, router(shop)).with_graceful_shutdown(async {
        let _ = stopping.await;
    });
    let mut server = tokio::spawn(server.into_future());

    tokio::select! {
        ended = &mut server => ended??, // it cannot serve any more
        _ = terminate.recv() => {
            let _ = stop.send(()); // no new requests
            let _ = timeout(Duration::from_secs(15), server).await; // those under way end
        }
    }
    locks.shutdown().await; // gives the locks back: 12 s at most
    reminders.await??;
    Ok(())
}

#[derive(Clone)]
struct Shop {
    locks: LockManager,
    metrics: PrometheusHandle,
    data: Arc<Mutex<Data>>,
    meters: Arc<Mutex<Connection>>,
}

/// Stands in for the database that the processes of your service share.
#[derive(Default)]
struct Data {
    items: HashMap<u64, u32>,
    paid: HashMap<u64, u32>,
    prices: HashMap<String, u32>,
    reminders: u32,
}

impl Shop {
    fn new(locks: LockManager, metrics: PrometheusHandle) -> Result<Shop, rusqlite::Error> {
        let meters = Connection::open_in_memory()?;
        meters.execute_batch(
            "CREATE TABLE meters (name TEXT PRIMARY KEY, value INTEGER, token INTEGER NOT NULL)",
        )?;
        Ok(Shop {
            locks,
            metrics,
            data: Arc::default(),
            meters: Arc::new(Mutex::new(meters)),
        })
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call of a payment provider, or a query that takes its time.
async fn slow() {
    sleep(Duration::from_millis(50)).await;
}

/// Why a request failed, and what the client is told.
enum Failure {
    Lock(LockError),
    Database(rusqlite::Error),
    Panicked(JoinError),
    TooLate,
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Failure {
        Failure::Lock(error)
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Failure {
        Failure::Panicked(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            // 423, 503 or 500, with `Retry-After` where it helps: as the layer answers.
            Failure::Lock(error) => Refusal::from(error).into_response(),
            Failure::Database(error) => {
                eprintln!("database: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Failure::Panicked(error) => {
                eprintln!("a task panicked: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Failure::TooLate => (StatusCode::CONFLICT, "a later write is there").into_response(),
        }
    }
}

/// Whether requests are worth sending here: locks can be had.
async fn ready(State(shop): State<Shop>) -> (StatusCode, String) {
    let health = shop.locks.health().await;
    match health.state {
        HealthState::Down => (
            StatusCode::SERVICE_UNAVAILABLE,
            health.error.unwrap_or_default(),
        ),
        _ => (StatusCode::OK, "ready".to_owned()), // of a cluster, a part may be away
    }
}

/// Runs under the lock `order:7`, which the layer holds.
async fn add_item(State(shop): State<Shop>, Path(order): Path<u64>) -> String {
    let items = shop.data().items.get(&order).copied().unwrap_or(0);
    slow().await; // without the lock, others would read the same number meanwhile
    shop.data().items.insert(order, items + 1);
    format!("order {order} has {} items", items + 1)
}

fn orders(locks: LockManager) -> Router<Shop> {
    let order = RequestKey::new("order").path_param_as::<u64>("id");
    Router::new()
        .route("/orders/{id}/items", post(add_item))
        .route_layer(LockLayer::from_key(locks, order).wait(Duration::from_secs(1)))
}

#[derive(Deserialize)]
struct Payment {
    order: u64,
    cents: u32,
}

async fn pay(
    State(shop): State<Shop>,
    Json(payment): Json<Payment>,
) -> Result<(StatusCode, &'static str), Failure> {
    tokio::spawn(pay_once(shop, payment)).await?
}

#[distributed_lock(key = "payment:{payment.order}", wait = "2s", manager = shop.locks)]
async fn pay_once(shop: Shop, payment: Payment) -> Result<(StatusCode, &'static str), Failure> {
    if shop.data().paid.contains_key(&payment.order) {
        return Ok((StatusCode::OK, "paid before"));
    }
    slow().await;
    shop.data().paid.insert(payment.order, payment.cents);
    Ok((StatusCode::CREATED, "paid"))
}

async fn report(State(shop): State<Shop>) -> Result<(StatusCode, String), Failure> {
    let request = shop.locks.mutex(key!("report:daily"));
    let TryAcquire::Acquired(guard) = request.try_acquire().await? else {
        return Ok((StatusCode::LOCKED, "it is being built".to_owned()));
    };
    // Releases at the end, and drops the body if the lock is lost.
    let outcome = guard.protect(async {
        slow().await;
        shop.data().items.values().sum::<u32>()
    });
    let items = outcome.await.into_result()?;
    Ok((StatusCode::OK, format!("{items} items")))
}

#[distributed_lock(key = "prices", mode = read, wait = "2s", manager = shop.locks)]
async fn read_prices(State(shop): State<Shop>) -> Result<Json<HashMap<String, u32>>, Failure> {
    Ok(Json(shop.data().prices.clone()))
}

async fn write_prices(
    State(shop): State<Shop>,
    Json(prices): Json<HashMap<String, u32>>,
) -> Result<StatusCode, Failure> {
    tokio::spawn(set_prices(shop, prices)).await??;
    Ok(StatusCode::NO_CONTENT)
}

#[distributed_lock(key = "prices", mode = write, wait = "2s", manager = shop.locks)]
async fn set_prices(shop: Shop, prices: HashMap<String, u32>) -> Result<(), LockError> {
    shop.data().prices.clear();
    slow().await; // no reader sees the empty list, unless the lock is lost here
    shop.data().prices = prices;
    Ok(())
}

#[distributed_lock(key = "exports", mode = semaphore(2), wait = "100ms", manager = shop.locks)]
async fn export(State(shop): State<Shop>) -> Result<String, Failure> {
    slow().await;
    let data = shop.data();
    Ok(data
        .items
        .iter()
        .map(|(id, items)| format!("{id},{items}\n"))
        .collect())
}

#[distributed_lock(key = "meter:{name}", wait = "2s", manager = shop.locks, guard = lease)]
async fn write_meter(
    State(shop): State<Shop>,
    Path(name): Path<String>,
    Json(value): Json<i64>,
) -> Result<StatusCode, Failure> {
    let token = lease.fencing_token().map(u64::from);
    let meters = shop.meters.lock().unwrap_or_else(PoisonError::into_inner);
    // Check and write are one statement: nothing comes in between.
    let rows = meters.execute(
        "INSERT INTO meters VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE
         SET value = excluded.value, token = excluded.token WHERE token <= excluded.token",
        (name, value, token),
    );
    match rows.map_err(Failure::Database)? {
        0 => Err(Failure::TooLate),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

/// What an operator wants to know at night.
#[derive(Serialize)]
struct Page {
    /// What this process holds and waits for. The store is not asked.
    here: ManagerSnapshot,
    /// Who builds the report, in whatever process.
    report: Option<String>,
    reminders: u32,
}

async fn page(State(shop): State<Shop>) -> Result<Json<Page>, Failure> {
    let report = shop.locks.inspect("report:daily").await?;
    Ok(Json(Page {
        here: shop.locks.snapshot(),
        report: report.holder.map(|holder| holder.to_string()),
        reminders: shop.data().reminders,
    }))
}

/// Runs in every process. One of them leads, and sends the reminders.
async fn remind(shop: Shop) -> Result<(), LockError> {
    let election = shop.locks.elect(key!("reminders"));
    let led = election.lead(async |lease| {
        let mut every = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                () = lease.closing() => return, // the shutdown begins: another process leads at once
                _ = every.tick() => shop.data().reminders += 1,
            }
        }
    });
    match led.await {
        Err(LockError::ShuttingDown { .. }) => Ok(()), // it was not its turn
        ended => ended,
    }
}

async fn metrics(State(shop): State<Shop>) -> String {
    shop.metrics.render()
}

fn router(shop: Shop) -> Router {
    Router::new()
        .route("/ready", get(ready))
        .route("/payments", post(pay))
        .route("/reports/daily", post(report))
        .route("/prices", get(read_prices).put(write_prices))
        .route("/exports", post(export))
        .route("/meters/{name}", put(write_meter))
        .route("/locks", get(page))
        .route("/metrics", get(metrics))
        .merge(orders(shop.locks.clone()))
        .with_state(shop)
}

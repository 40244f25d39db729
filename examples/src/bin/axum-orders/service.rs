//! The service: routes with their layers, handlers, and the data that they work on.
//!
//! | lock | held by | protects |
//! | --- | --- | --- |
//! | `order:{id}` | a layer, around every request for an order | the order, read and then written |
//! | `stock:{article}` | the attribute on [`Shop::take`], inside of the order's lock | the stock of an article |
//! | `idempotency:…` | a layer around payments | the answer that is stored for a click |
//!
//! A request that holds an order may take stock, but never the other way round: with only one direction there is no
//! deadlock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use lock_runtime::{HealthState, LockError, LockManager, distributed_lock};
use tokio::time::sleep;
use tower_lock::{LockLayer, RequestKey};

/// The time that the "database" takes.
const QUERY: Duration = Duration::from_millis(20);

/// Returns the routes. Each layer is added to the routes above it.
pub(crate) fn router(shop: Shop) -> Router {
    let locks = &shop.locks;
    // The lock `order:7` is held around every request to `/orders/7/…`.
    let order = RequestKey::new("order").path_segment_as::<u64>(1);
    let once = RequestKey::new("idempotency")
        .header("x-user")
        .method()
        .path();
    let once = once.header("idempotency-key");

    let items = Router::new()
        .route("/orders/{id}/items/{article}", post(add_item))
        .route_layer(
            LockLayer::from_key(locks.clone(), order.clone()).wait(Duration::from_secs(3)),
        );
    // A client that comes too late to cancel should look again, so this does not wait.
    let cancel = Router::new()
        .route("/orders/{id}/cancel", post(cancel))
        .route_layer(LockLayer::from_key(locks.clone(), order).wait(Duration::ZERO));
    let payments = Router::new()
        .route("/payments", post(pay))
        .route_layer(LockLayer::from_key(locks.clone(), once).wait(Duration::from_secs(5)));
    // This route needs no lock: a load balancer asks it every few seconds.
    let ready = Router::new().route("/ready", get(ready));
    items
        .merge(cancel)
        .merge(payments)
        .merge(ready)
        .with_state(shop)
}

/// Tells a load balancer whether requests are worth sending here: they are if locks can be acquired.
async fn ready(State(shop): State<Shop>) -> (StatusCode, String) {
    let health = shop.locks.health().await;
    match health.state {
        HealthState::Down => (
            StatusCode::SERVICE_UNAVAILABLE,
            health.error.unwrap_or_default(),
        ),
        // A part of a cluster may be away: most locks can be had.
        _ => (StatusCode::OK, "ready".to_owned()),
    }
}

async fn add_item(
    State(shop): State<Shop>,
    Path((id, article)): Path<(u64, String)>,
) -> Result<String, Refusal> {
    let _running = shop.running.enter();
    // This reads, waits and writes: without the lock of its order, updates would be lost. In a database, the write here
    // and the one in `take` would be one transaction, and `take` could not have a lock of its own: it would end before
    // the commit. Take both locks around the transaction (`keys = [..]`), or let one `UPDATE .. WHERE stock > 0` decide.
    let items = shop.items(id);
    sleep(QUERY).await;
    shop.take(&article).await?;
    shop.data().orders.insert(id, items + 1);
    Ok(format!("order {id} has {} items", items + 1))
}

async fn cancel(State(shop): State<Shop>, Path(id): Path<u64>) -> String {
    shop.data().orders.remove(&id);
    format!("order {id} is cancelled")
}

/// Runs under the lock of its `Idempotency-Key`: looks for the stored answer first, and stores its own last.
async fn pay(State(shop): State<Shop>, headers: HeaderMap) -> (StatusCode, String) {
    // The layer has checked that each header is there once. A key belongs to its user: nobody gets another user's
    // answer, if the user comes from the authentication (`RequestKey::extension`) and not, as here, from a header.
    // A client that hangs up drops this handler: a real payment runs in a task of its own, lock included.
    let [user, key] = ["x-user", "idempotency-key"].map(|name| {
        let value = headers.get(name).map(|value| value.as_bytes().to_owned());
        value.unwrap_or_default()
    });
    let click = (user, key);
    let stored = shop.data().answers.get(&click).cloned();
    let answer = match stored {
        Some(answer) => answer,
        None => {
            sleep(QUERY).await;
            let mut data = shop.data();
            data.payments += 1;
            let answer = format!("payment {}", data.payments);
            data.answers.insert(click, answer.clone());
            answer
        }
    };
    (StatusCode::CREATED, answer)
}

/// The service's data and its locks. Clones share everything.
#[derive(Clone)]
pub(crate) struct Shop {
    locks: LockManager,
    data: Arc<Mutex<Data>>,
    running: Arc<Running>,
}

/// The data, which stands in for a database that all processes share.
struct Data {
    /// The number of items by order.
    orders: HashMap<u64, usize>,
    stock: HashMap<&'static str, usize>,
    payments: usize,
    /// The answers to payments, by user and `Idempotency-Key`.
    answers: HashMap<(Vec<u8>, Vec<u8>), String>,
}

impl Shop {
    pub(crate) fn new(locks: LockManager) -> Shop {
        let data = Data {
            orders: HashMap::new(),
            stock: HashMap::from([("pen", 1000), ("lamp", 3)]),
            payments: 0,
            answers: HashMap::new(),
        };
        Shop {
            locks,
            data: Arc::new(Mutex::new(data)),
            running: Arc::default(),
        }
    }

    /// Takes one piece of an article out of the stock. One caller at a time does so, even for different orders.
    #[distributed_lock(key = "stock:{article}", wait = "30s", manager = self.locks)]
    async fn take(&self, article: &str) -> Result<(), Refusal> {
        let left = self.stock(article);
        sleep(QUERY / 10).await;
        let left = left.checked_sub(1).ok_or(Refusal::SoldOut)?;
        if let Some(stock) = self.data().stock.get_mut(article) {
            *stock = left;
        }
        Ok(())
    }

    pub(crate) fn items(&self, order: u64) -> usize {
        self.data().orders.get(&order).copied().unwrap_or(0)
    }

    pub(crate) fn stock(&self, article: &str) -> usize {
        self.data().stock.get(article).copied().unwrap_or(0)
    }

    pub(crate) fn payments(&self) -> usize {
        self.data().payments
    }

    /// Returns the largest number of updates of orders that ran at the same time so far.
    pub(crate) fn most_at_once(&self) -> usize {
        self.running.most.load(Ordering::SeqCst)
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why an order was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("sold out")]
    SoldOut,
    /// The lock of the article was refused or lost. For the order's lock, the layer answers.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Refusal::SoldOut => (StatusCode::CONFLICT, "sold out").into_response(),
            // This is the answer that the layer would give.
            Refusal::Lock(error) => tower_lock::Refusal::from(error).into_response(),
        }
    }
}

/// The counts of the updates that run, for the proof that they take turns.
#[derive(Default)]
struct Running {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Running {
    fn enter(&self) -> impl Drop + use<'_> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Leave(&self.now)
    }
}

struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

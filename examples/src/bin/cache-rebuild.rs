//! A hot key leaves the cache, and a hundred readers want it: one of them loads it.
//!
//! `cargo run --bin cache-rebuild`, or with `LOCK_URL=redis://127.0.0.1/` in front to keep the locks in Redis.
//!
//! | what happens to a cache | what helps |
//! | --- | --- |
//! | stampede: a value is missing, every reader loads it | `rebuild`: one reader loads it, the others wait for the result |
//! | a value expires, readers need not wait | logical expiry: it is kept, one reader refreshes it, the others get the old one |
//! | penetration: a value that does not exist is never cached | a null value, with a short life |
//! | avalanche: values that were written together expire together | jitter in every life |

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use examples::{Failure, prove};
use lock_runtime::{LockError, LockManager, distributed_lock};
use tokio::task::JoinSet;

const READERS: usize = 100;
/// The time that the database takes for a product.
const QUERY: Duration = Duration::from_millis(50);
/// The time for which a product is fresh, and the time for which it may be served after that.
const FRESH: Duration = Duration::from_secs(600);
const STALE: Duration = Duration::from_secs(3600);
/// The time for which it is believed that a product does not exist.
const ABSENT: Duration = Duration::from_secs(30);

/// A product, or `None` if it is known that there is no such product.
type Product = Option<String>;

#[derive(Clone)]
struct Entry {
    product: Product,
    /// The time of the logical expiry. The cache itself forgets the entry at `gone`.
    stale: Instant,
    gone: Instant,
}

impl Entry {
    fn new(product: Product) -> Entry {
        let now = Instant::now();
        match product {
            Some(_) => {
                let stale = now + jittered(FRESH);
                Entry {
                    product,
                    stale,
                    gone: stale + STALE,
                }
            }
            None => {
                let gone = now + jittered(ABSENT);
                Entry {
                    product,
                    stale: gone,
                    gone,
                }
            }
        }
    }
}

/// Returns a time that is up to a tenth longer or shorter.
fn jittered(life: Duration) -> Duration {
    life.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// A catalogue: a slow database behind a cache. The cache stands in for one that the processes share.
struct Catalogue {
    locks: LockManager,
    cache: Mutex<HashMap<u32, Entry>>,
    queries: AtomicUsize,
}

impl Catalogue {
    /// Returns the product from the cache if it is fresh, and refreshes or loads it otherwise.
    async fn get(&self, id: u32) -> Result<Product, LockError> {
        match self.cached(id) {
            Some(entry) if Instant::now() < entry.stale => Ok(entry.product),
            // Nobody waits: the caller that gets the lock returns the new product, all others return the old one. They
            // do so even if the lock store is away.
            Some(entry) => match self.refresh(id).await {
                Ok(Some(product)) => Ok(product),
                Ok(None) | Err(_) => Ok(entry.product),
            },
            None => self.rebuild(id).await,
        }
    }

    /// Loads a missing product. Other callers wait, and find the product that the first one has loaded.
    #[distributed_lock(key = "product:{id}", wait = "60s", manager = self.locks)]
    async fn rebuild(&self, id: u32) -> Result<Product, LockError> {
        Ok(self.load_unless_fresh(id).await)
    }

    /// Loads a stale product, unless another caller does so already.
    #[distributed_lock(key = "product:{id}", on_busy = skip, manager = self.locks)]
    async fn refresh(&self, id: u32) -> Result<Option<Product>, LockError> {
        Ok(Some(self.load_unless_fresh(id).await))
    }

    /// Looks again under the lock, because the product may have been loaded since the caller looked.
    async fn load_unless_fresh(&self, id: u32) -> Product {
        match self.cached(id) {
            Some(entry) if Instant::now() < entry.stale => entry.product,
            _ => self.load(id).await,
        }
    }

    async fn load(&self, id: u32) -> Product {
        let product = self.query(id).await;
        self.cache().insert(id, Entry::new(product.clone()));
        product
    }

    /// Returns the product without the lock, to see what happens.
    async fn get_unlocked(&self, id: u32) -> Result<Product, LockError> {
        match self.cached(id) {
            Some(entry) if Instant::now() < entry.stale => Ok(entry.product),
            _ => Ok(self.load(id).await),
        }
    }

    /// Asks the database, in which the products below 1000 exist.
    async fn query(&self, id: u32) -> Product {
        let edition = 1 + self.queries.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(QUERY).await;
        (id < 1000).then(|| format!("product {id}, as query {edition} found it"))
    }

    fn cached(&self, id: u32) -> Option<Entry> {
        let entry = self.cache().get(&id).cloned();
        entry.filter(|entry| Instant::now() < entry.gone)
    }

    /// Lets the time pass until the entry is stale.
    fn age(&self, id: u32) {
        if let Some(entry) = self.cache().get_mut(&id) {
            entry.stale = Instant::now();
        }
    }

    fn cache(&self) -> MutexGuard<'_, HashMap<u32, Entry>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The results of a rush of readers.
struct Rush {
    queries: usize,
    answers: Vec<Product>,
    /// The number of readers that got the value that was in the cache when they asked, fresh or stale.
    from_cache: usize,
}

/// Lets `READERS` readers ask for a product at the same time.
async fn rush(catalogue: &Arc<Catalogue>, id: u32, locked: bool) -> Result<Rush, Failure> {
    let before = catalogue.queries.load(Ordering::SeqCst);
    let start = Arc::new(tokio::sync::Barrier::new(READERS));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let (catalogue, start) = (catalogue.clone(), start.clone());
        readers.spawn(async move {
            start.wait().await;
            let cached = catalogue.cached(id).map(|entry| entry.product);
            let answer = if locked {
                catalogue.get(id).await?
            } else {
                catalogue.get_unlocked(id).await?
            };
            Ok::<_, LockError>((Some(&answer) == cached.as_ref(), answer))
        });
    }
    let mut answers = Vec::with_capacity(READERS);
    let mut from_cache = 0;
    while let Some(answer) = readers.join_next().await {
        let (old, answer) = answer??;
        from_cache += usize::from(old);
        answers.push(answer);
    }
    let queries = catalogue.queries.load(Ordering::SeqCst) - before;
    println!("   readers {READERS}, queries {queries}, served from the cache {from_cache}");
    Ok(Rush {
        queries,
        answers,
        from_cache,
    })
}

async fn tour(locks: &LockManager) -> Result<(), Failure> {
    let catalogue = Arc::new(Catalogue {
        locks: locks.clone(),
        cache: Mutex::default(),
        queries: AtomicUsize::new(0),
    });

    println!("\n1. Product 1 is not in the cache; there is no lock.");
    let without = rush(&catalogue, 1, false).await?.queries;

    println!("\n2. Product 2 is not in the cache; with the lock.");
    let cold = rush(&catalogue, 2, true).await?;
    let same = cold.answers.iter().all(|answer| answer == &cold.answers[0]);
    prove(
        cold.queries == 1 && same,
        format!("1 query instead of {without}; the other readers waited for its answer"),
    )?;

    println!("\n3. Product 2 is stale.");
    catalogue.age(2);
    let stale = rush(&catalogue, 2, true).await?;
    prove(
        stale.queries == 1 && stale.from_cache > 0,
        format!(
            "1 query; {} readers got the old value and did not wait",
            stale.from_cache
        ),
    )?;

    println!("\n4. Product 4711 does not exist.");
    let absent = rush(&catalogue, 4711, true).await?;
    let again = rush(&catalogue, 4711, true).await?;
    let none = absent
        .answers
        .iter()
        .chain(&again.answers)
        .all(Option::is_none);
    prove(
        (absent.queries, again.queries) == (1, 0) && none,
        "1 query in all: that there is nothing is cached, too",
    )?;

    println!("\n5. 1000 products are cached in the same instant.");
    let mut expiries = HashMap::new();
    let now = Instant::now();
    for _ in 0..1000 {
        let life = Entry::new(Some(String::new())).stale - now;
        *expiries.entry(life.as_secs()).or_insert(0) += 1;
    }
    let most = expiries.values().copied().max().unwrap_or(0);
    prove(
        most < 100,
        format!(
            "they expire over {} s, at most {most} in any second",
            expiries.len()
        ),
    )
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::run("cache-rebuild", tour).await
}

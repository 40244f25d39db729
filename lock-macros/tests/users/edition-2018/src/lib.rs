//! Functions of edition 2018 that are free of warnings, even of those that later editions brought.
#![deny(warnings, missing_docs, clippy::all, clippy::pedantic)]
#![deny(rust_2018_idioms, rust_2021_compatibility, rust_2024_compatibility)]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lock_runtime::{distributed_lock, key, LockError, LockManager, LockName};

/// The order that the functions lock.
#[derive(Debug)]
pub struct Order {
    id: u64,
    lines: Vec<String>,
}

/// Returns a value that borrows from an argument.
///
/// # Errors
/// If the lock is busy or lost.
#[distributed_lock(key = "order:{order.id}", wait = "2s", guard = lease)]
pub async fn first_line(order: &Order, _unused: u64) -> Result<Option<&String>, LockError> {
    const LEAST: usize = 1;

    std::future::ready(()).await;
    Ok(order
        .lines
        .first()
        .filter(|line| line.len() > LEAST && lease.is_held()))
}

/// Takes its arguments apart.
///
/// # Errors
/// If the lock is busy or lost.
#[distributed_lock(
    keys = ["line:{id}", key!("line:{}", left), name_of(&(*left,))],
    wait = *pause.lock().map_err(|_| LockError::NotInstalled)?,
    on_busy = skip,
    on_lost = error,
    min_hold = "1s",
    when = *id > 1
)]
pub async fn patterns(
    Order { id, mut lines }: Order,
    (left, _right): (u64, u64),
    pause: &Mutex<Duration>,
) -> Result<(), LockError> {
    lines.push(String::new());
    std::future::ready(lines).await;
    Ok(())
}

/// Borrows from an argument in its last expression. Before edition 2024, that borrow ends after the body's own variables.
///
/// # Errors
/// If the lock is busy or lost.
#[distributed_lock(key = "count")]
pub async fn count(numbers: Arc<Mutex<Vec<u64>>>) -> Result<u64, LockError> {
    std::future::ready(()).await;
    match numbers.lock().map_err(|_| LockError::NotInstalled)?.first() {
        Some(number) => Ok(*number),
        None => Ok(0),
    }
}

/// Borrows from what it took an argument apart into.
///
/// # Errors
/// If the lock is busy or lost.
#[distributed_lock(key = "count:{id}")]
pub async fn count_of((id, number): (u64, Mutex<u64>)) -> Result<u64, LockError> {
    Ok(*number.lock().map_err(|_| LockError::NotInstalled)?)
}

/// Makes a name with a value from a tuple.
#[must_use]
pub fn name_of(id: &(u64,)) -> LockName {
    key!("line:{}", id.0)
}

/// A type with a field and a method whose name is a word of a later edition.
#[allow(keyword_idents_2024)]
pub mod families {
    use lock_runtime::{distributed_lock, key, LockError, LockName};

    /// A generation.
    #[derive(Debug)]
    pub struct Generation {
        gen: u64,
    }

    impl Generation {
        /// Returns the number.
        #[must_use]
        pub fn gen(&self) -> u64 {
            self.gen
        }

        /// Returns the name.
        #[must_use]
        pub fn name(&self) -> LockName {
            key!("generation:{self.gen}")
        }
    }

    /// Begins a generation.
    ///
    /// # Errors
    /// If the lock is busy or lost.
    #[distributed_lock(key = "generation:{generation.gen}:{generation.gen()}")]
    pub async fn begin(generation: &Generation) -> Result<(), LockError> {
        std::future::ready(()).await;
        Ok(())
    }
}

/// Lets another function answer when the lock is busy.
///
/// # Errors
/// If the lock is lost.
#[distributed_lock(key = "text:{text}", on_busy = call(whole))]
pub async fn first_word(text: &str) -> Result<&str, LockError> {
    std::future::ready(()).await;
    text.split(' ').next().ok_or(LockError::NotInstalled)
}

fn whole(text: &str, error: LockError) -> Result<&str, LockError> {
    match text {
        "" => Err(error),
        text => Ok(text),
    }
}

/// Returns nothing, not even an error.
#[distributed_lock(key = "nothing", map_err = drop)]
pub async fn nothing() {
    std::future::ready(()).await;
}

/// Returns a future that is made by hand.
///
/// # Errors
/// If the lock is busy or lost.
#[distributed_lock(key = "text:{text}")]
pub fn opaque(text: &str) -> impl Future<Output = Result<usize, LockError>> + '_ {
    let length = text.len();
    async move { Ok(length) }
}

/// Returns a future in a box.
#[must_use]
#[distributed_lock(key = "text:{text}")]
pub fn boxed(text: &str) -> Pin<Box<dyn Future<Output = Result<&str, LockError>> + Send + '_>> {
    if text.is_empty() {
        return Box::pin(std::future::ready(Ok(text)));
    }
    Box::pin(async move { Ok(text) })
}

/// A shop with two managers.
#[derive(Debug)]
pub struct Shop {
    locks: (LockManager, LockManager),
    first: bool,
    name: String,
}

impl Shop {
    /// Chooses a manager.
    ///
    /// # Errors
    /// If the lock is busy or lost.
    #[distributed_lock(
        key = "shop:{self.name}",
        manager = if self.first { &self.locks.0 } else { &self.locks.1 }
    )]
    pub async fn rename(&mut self, name: String) -> Result<&str, LockError> {
        std::future::ready(()).await;
        self.name = name;
        Ok(&self.name)
    }
}

/// A trait whose futures another attribute puts in boxes.
#[async_trait]
pub trait Service {
    /// Has arguments that only the key uses.
    async fn only_the_key(&self, id: u64, name: String) -> Result<(), LockError>;
    /// Has such an argument, too, and returns nothing.
    async fn nothing(&self, id: u64);
}

#[async_trait]
impl Service for Shop {
    #[distributed_lock(key = "{id}:{name}")]
    async fn only_the_key(&self, id: u64, name: String) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "{id}", on_busy = skip)]
    async fn nothing(&self, id: u64) {}
}

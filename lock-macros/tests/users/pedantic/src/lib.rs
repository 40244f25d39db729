//! Functions as users write them, in a crate that denies every lint that can be denied. With the attribute and without
//! it (feature `annotated`), `cargo clippy` finds nothing here: the attribute's expansion brings no lint of its own.
#![deny(warnings, missing_docs, unused, rust_2018_idioms)]
#![deny(clippy::all, clippy::pedantic, clippy::nursery)]
#![deny(
    clippy::pattern_type_mismatch,
    clippy::shadow_reuse,
    clippy::shadow_same
)]
#![allow(clippy::future_not_send)]
#![deny(
    let_underscore_drop,
    redundant_lifetimes,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unit_bindings,
    unreachable_pub,
    unused_lifetimes,
    unused_qualifications,
    unused_results
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::{Debug, Display, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
#[cfg(feature = "annotated")]
use lock_runtime::distributed_lock;
use lock_runtime::{LockError, LockManager, LockName, key};

/// A shop's order.
#[derive(Debug)]
pub struct Order {
    id: u64,
    lines: Vec<(u64, String)>,
}

/// A wrapper of an argument, like those of a web framework.
#[derive(Debug)]
pub struct Path<T>(pub T);

/// Waits for something.
async fn pause() {
    std::future::ready(()).await;
}

/// Has plain arguments, of which the body takes only some.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(
    feature = "annotated",
    distributed_lock(key = "order:{order.id}/{name}", wait = "2s", lease = "30s")
)]
pub async fn settle(
    order: &Order,
    mut count: usize,
    name: String,
    _unused: Vec<u8>,
) -> Result<usize, LockError> {
    pause().await;
    count += order.lines.len();
    Ok(count + name.len())
}

/// Has a body that begins with items.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(feature = "annotated", distributed_lock(key = "items:{id}"))]
pub async fn items_first(id: u64) -> Result<String, LockError> {
    use std::fmt::Write as _;

    const PREFIX: &str = "a";

    const fn twice(id: u64) -> u64 {
        id * 2
    }

    let mut text = String::from(PREFIX);
    let _ = write!(text, "{}", twice(id));
    pause().await;
    Ok(text)
}

/// Has a body that only an error or a panic ends.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(feature = "annotated", distributed_lock(key = "endless:{id}"))]
pub async fn endless(id: u64) -> Result<Infallible, LockError> {
    loop {
        pause().await;
        if id == 0 {
            return Err(LockError::NotInstalled);
        }
    }
}

/// Has a body that only a panic ends.
///
/// # Errors
/// If the lock is busy or lost.
///
/// # Panics
/// Always.
#[cfg_attr(feature = "annotated", distributed_lock(key = "never"))]
pub async fn never() -> Result<(), LockError> {
    pause().await;
    panic!("not yet")
}

/// A return type that is nearly too complex.
type Rows<T> = BTreeMap<u64, Vec<(T, Option<Arc<Mutex<T>>>)>>;

/// Returns a type that is nearly too complex, and not an alias.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(feature = "annotated", distributed_lock(key = "complex"))]
pub async fn complex_result(
    rows: &Rows<u64>,
) -> Result<
    (
        Box<dyn Fn(&u64) -> Option<Box<u64>> + Send + Sync>,
        Option<&Vec<(u64, Option<Arc<Mutex<u64>>>)>>,
    ),
    LockError,
> {
    pause().await;
    Ok((Box::new(|id| Some(Box::new(*id))), rows.get(&1)))
}

/// Has patterns as arguments.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(
    feature = "annotated",
    distributed_lock(key = "user:{id}:{name}/{left}")
)]
pub async fn patterns(
    Path(id): Path<u64>,
    (mut left, _right): (u8, u8),
    _: Path<u8>,
    Path(name): Path<String>,
    [first, ..]: [u8; 3],
) -> Result<u64, LockError> {
    pause().await;
    left += first;
    Ok(id + u64::from(left) + name.len() as u64)
}

/// Has as many arguments as clippy allows, some of them flags.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(feature = "annotated", distributed_lock(key = "a:{a}/{b}/{text}", when = flag, guard = lease))]
pub async fn many_arguments(
    a: u8,
    b: &Arc<u64>,
    text: &str,
    flag: bool,
    other_flag: bool,
    mut parts: Vec<String>,
    locks: LockManager,
) -> Result<Option<String>, LockError> {
    #[cfg(feature = "annotated")]
    let held = lease.is_some_and(|held| held.is_held());
    #[cfg(not(feature = "annotated"))]
    let held = false;
    pause().await;
    if held && flag && !other_flag {
        drop(locks);
    }
    parts.push(text.to_owned());
    Ok(parts
        .get(usize::from(a))
        .cloned()
        .or_else(|| (**b > 3).then(String::new)))
}

/// Returns nothing, not even that it was skipped.
#[cfg_attr(feature = "annotated", distributed_lock(key = "skip:{id}", on_busy = skip, min_hold = "1s", max_hold = "5m", keep_for = "1m"))]
pub async fn skips(id: u64, done: &Cell<u64>) {
    pause().await;
    done.set(id);
}

/// Returns a value, or none if it was skipped.
#[cfg_attr(feature = "annotated", distributed_lock(key = "skip:{text}", on_busy = skip))]
pub async fn skips_with_value(text: &str) -> Option<&str> {
    pause().await;
    text.get(1..)
}

/// Has expressions as options.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(
    feature = "annotated",
    distributed_lock(
        key = name_of(id),
        wait = pause,
        lease = Duration::from_secs(30),
        auto_renew = renewed,
        label = "expressions",
        manager = if renewed { &locks.0 } else { &locks.1 },
        on_lost = finish
    )
)]
pub async fn expressions(
    id: u64,
    pause: Duration,
    renewed: bool,
    locks: &(LockManager, LockManager),
) -> Result<Duration, LockError> {
    self::pause().await;
    if renewed && format!("{:?}", locks.0).is_empty() {
        return Ok(pause * 2);
    }
    Ok(pause + Duration::from_secs(id))
}

/// Has several keys, and another answer if they are busy.
///
/// # Errors
/// If the lock is lost.
#[cfg_attr(
    feature = "annotated",
    distributed_lock(keys = ["account:{from}", key!("account:{}", to)], mode = write, on_busy = call(later))
)]
pub async fn transfer(from: u64, to: u64) -> Result<u64, LockError> {
    pause().await;
    Ok(from + to)
}

/// Lets so many calls in at a time.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(
    feature = "annotated",
    distributed_lock(key = "exports", mode = semaphore(u64::from(places)))
)]
pub async fn export(places: u32) -> Result<u32, LockError> {
    pause().await;
    Ok(places)
}

/// Gives the other answer.
///
/// # Errors
/// Never.
pub async fn later(from: u64, _to: u64, error: LockError) -> Result<u64, LockError> {
    pause().await;
    if from == 0 { Err(error) } else { Ok(from) }
}

/// Returns an error as a text of its own.
#[cfg_attr(feature = "annotated", distributed_lock(key = "mapped:{id}", map_err = |error: LockError| error.to_string()))]
pub async fn mapped(id: u64) -> String {
    pause().await;
    id.to_string()
}

/// Makes a key from names and a value.
#[must_use]
pub fn name_of(id: u64) -> LockName {
    let other = id + 1;
    key!("order:{id}:{}/{}", other, other + 1)
}

/// Formats texts, with some arguments inline and some that cannot be.
///
/// # Panics
/// Never.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(feature = "annotated", distributed_lock(key = "format:{id}"))]
pub async fn formats(id: u64, order: &Order) -> Result<String, LockError> {
    pause().await;
    let mut text = format!("{id} {:?} {}", order, order.id);
    let _ = write!(text, "{id:>5}");
    assert!(!text.is_empty(), "{id} is empty");
    Ok(text)
}

/// Has every kind of generic parameter.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(feature = "annotated", distributed_lock(key = "generic:{value}"))]
pub async fn generic<'a, T, const N: usize>(
    value: &'a T,
    change: impl AsyncFn(&T) -> u64,
    other: impl Into<u64>,
) -> Result<impl Iterator<Item = (&'a T, u64)>, LockError>
where
    T: Display + ?Sized,
{
    let changed = change(value).await + other.into();
    Ok([changed; N].into_iter().map(move |number| (value, number)))
}

/// Returns a future that is made by hand.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(feature = "annotated", distributed_lock(key = "future:{text}"))]
pub fn opaque(text: &str) -> impl Future<Output = Result<&str, LockError>> + Send + '_ {
    let rest = text.get(1..).unwrap_or(text);
    async move {
        pause().await;
        Ok(rest)
    }
}

/// Returns a future in a box.
#[must_use]
#[cfg_attr(feature = "annotated", distributed_lock(key = "future:{text}"))]
pub fn boxed(text: &str) -> Pin<Box<dyn Future<Output = Result<&str, LockError>> + Send + '_>> {
    Box::pin(async move {
        pause().await;
        Ok(text)
    })
}

/// Calls itself.
///
/// # Errors
/// If the lock is busy or lost.
#[cfg_attr(feature = "annotated", distributed_lock(key = "count:{n}"))]
pub async fn recursive(n: u64) -> Result<u64, LockError> {
    match n {
        0 => Ok(0),
        _ => Box::pin(recursive(n - 1)).await,
    }
}

/// A place to lock things in.
#[derive(Debug)]
pub struct Shop {
    locks: LockManager,
    tenant: String,
}

impl Shop {
    /// Returns the manager of its locks.
    #[must_use]
    pub const fn locks(&self) -> &LockManager {
        &self.locks
    }

    /// Takes `self` by reference.
    ///
    /// # Errors
    /// If the lock is busy or lost.
    #[cfg_attr(feature = "annotated", distributed_lock(key = "shop:{self.tenant}:{id}", manager = self.locks))]
    pub async fn by_reference(&self, id: u64) -> Result<&str, LockError> {
        pause().await;
        Ok(if id > 1 { &self.tenant } else { "" })
    }

    /// Takes `self` by mutable reference.
    ///
    /// # Errors
    /// If the lock is busy or lost.
    #[cfg_attr(feature = "annotated", distributed_lock(key = "shop:{self.tenant}", manager = self.locks))]
    pub async fn by_mutable_reference(&mut self) -> Result<&mut String, LockError> {
        pause().await;
        self.tenant.push('!');
        Ok(&mut self.tenant)
    }

    /// Takes `self` by value.
    ///
    /// # Errors
    /// If the lock is busy or lost.
    #[cfg_attr(feature = "annotated", distributed_lock(key = "shop:{self.tenant}", manager = self.locks))]
    pub async fn by_value(mut self) -> Result<String, LockError> {
        pause().await;
        self.tenant.push('!');
        Ok(self.tenant)
    }

    /// Takes `self` in an `Arc`.
    ///
    /// # Errors
    /// If the lock is busy or lost.
    #[cfg_attr(feature = "annotated", distributed_lock(key = "shop:{self.tenant}", manager = self.locks))]
    pub async fn shared(self: Arc<Self>) -> Result<usize, LockError> {
        pause().await;
        Ok(self.tenant.len())
    }
}

/// A trait that settles orders.
pub trait Settle: Debug {
    /// Settles one.
    fn settle(&self, id: u64) -> impl Future<Output = Result<&str, LockError>> + Send;
}

impl Settle for Shop {
    #[cfg_attr(feature = "annotated", distributed_lock(key = "{self.tenant}:{id}"))]
    async fn settle(&self, id: u64) -> Result<&str, LockError> {
        pause().await;
        Ok(if id > 1 { &self.tenant } else { "" })
    }
}

/// A trait that does the same with boxed futures.
#[async_trait]
pub trait Service: Send + Sync {
    /// Settles one.
    async fn settle_boxed(&self, id: u64, name: String) -> Result<&str, LockError>;
    /// Counts.
    async fn count(
        &mut self,
        mut from: u64,
        (left, right): (u64, u64),
        _: u8,
    ) -> Result<u64, LockError>;
    /// Returns nothing.
    async fn skip(&self, id: u64);
}

#[async_trait]
impl Service for Shop {
    #[cfg_attr(
        feature = "annotated",
        distributed_lock(key = "{self.tenant}:{id}/{name}")
    )]
    async fn settle_boxed(&self, id: u64, name: String) -> Result<&str, LockError> {
        pause().await;
        Ok(if id > name.len() as u64 {
            &self.tenant
        } else {
            ""
        })
    }

    #[cfg_attr(feature = "annotated", distributed_lock(key = "{self.tenant}/{from}"))]
    async fn count(
        &mut self,
        mut from: u64,
        (left, right): (u64, u64),
        _: u8,
    ) -> Result<u64, LockError> {
        pause().await;
        self.tenant.clear();
        from += left;
        Ok(from + right)
    }

    #[cfg_attr(feature = "annotated", distributed_lock(key = "{self.tenant}", on_busy = skip))]
    async fn skip(&self, id: u64) {
        pause().await;
        assert!(id > 0, "{} is zero", self.tenant);
    }
}

/// Functions whose arguments would be unused without the attribute, because only the key uses them.
#[cfg(feature = "annotated")]
pub mod annotated {
    use super::{Duration, LockError, Path, Shop, async_trait, distributed_lock, pause};

    /// Has arguments that only the key uses.
    ///
    /// # Errors
    /// If the lock is busy or lost.
    #[distributed_lock(key = "only:{id}/{name}/{left}", wait = wait)]
    pub async fn only_the_key(
        id: u64,
        name: String,
        wait: Duration,
        (left, _): (u64, u64),
        Path(_ignored): Path<u8>,
    ) -> Result<(), LockError> {
        pause().await;
        Ok(())
    }

    /// Has arguments that only the fallback uses.
    ///
    /// # Errors
    /// If the lock is busy or lost.
    #[distributed_lock(key = "only", on_busy = call(super::later))]
    pub async fn only_the_fallback(from: u64, to: u64) -> Result<u64, LockError> {
        pause().await;
        Ok(7)
    }

    /// Has no `await` in the body.
    ///
    /// # Errors
    /// If the lock is busy or lost.
    #[distributed_lock(key = "only:{id}")]
    pub async fn no_await(id: u64) -> Result<u64, LockError> {
        Ok(7)
    }

    /// A trait of such functions with boxed futures.
    #[async_trait]
    pub trait OnlyTheKey: Send + Sync {
        /// Has arguments that only the key uses.
        async fn only_the_key(&self, id: u64, name: String, text: &str) -> Result<(), LockError>;
        /// Has such an argument and returns nothing.
        async fn nothing(&self, id: u64);
        /// Takes no `self`.
        async fn of_the_type(id: u64) -> Result<u64, LockError>
        where
            Self: Sized;
        /// Has a body.
        #[distributed_lock(key = "provided:{id}")]
        async fn provided(&self, id: u64) -> Result<u64, LockError> {
            Ok(7)
        }
    }

    #[async_trait]
    impl OnlyTheKey for Shop {
        #[distributed_lock(key = "only:{id}/{name}:{text}")]
        async fn only_the_key(&self, id: u64, name: String, text: &str) -> Result<(), LockError> {
            Ok(())
        }

        #[distributed_lock(key = "only:{id}", on_busy = skip)]
        async fn nothing(&self, id: u64) {}

        #[distributed_lock(key = "only:{id}")]
        async fn of_the_type(id: u64) -> Result<u64, LockError> {
            Ok(7)
        }
    }
}

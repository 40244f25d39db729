//! Functions of every shape.
#![deny(warnings)]

use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockName, distributed_lock, key};

struct Order {
    id: u64,
    pair: (u8, String),
}

struct Path<T>(T);

/// Documented.
#[distributed_lock(key = "order:{order.id}/{order.pair.1}", wait = "2s", lease = "30s", guard = lease)]
#[must_use]
pub async fn settle(order: &Order, mut count: u32) -> Result<u32, LockError> {
    count += u32::try_from(lease.name().len()).unwrap_or(0);
    Ok(count)
}

#[distributed_lock(key = "report:daily")]
async fn constant_key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{{tag}}:{id}")]
async fn only_the_key_uses_the_argument(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:{id}:{name}")]
async fn patterns(
    Path(id): Path<u64>,
    (mut a, _b): (u8, u8),
    _: Path<u8>,
    &Path(ref name): &Path<String>,
    [first, ..]: [u8; 3],
) -> Result<u64, LockError> {
    a += first;
    Ok(id + u64::from(a) + name.len() as u64)
}

#[distributed_lock(key = "a", wait = pause, lease = Duration::from_secs(30), auto_renew = renewed, max_hold = "5m", keep_for = pause, label = "expressions")]
async fn expressions(pause: Duration, renewed: bool) -> Result<(), LockError> {
    Ok(())
}

fn name(id: u64) -> LockName {
    key!("order:{id}:{}", id + 1)
}

#[distributed_lock(key = name(id))]
async fn key_expression(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{value}", manager = locks)]
async fn generic<'a, T, const N: usize>(
    value: &'a T,
    other: impl Into<u64>,
    locks: &LockManager,
) -> Result<[&'a T; N], LockError>
where
    T: Display + ?Sized,
{
    let _: u64 = other.into();
    Ok([value; N])
}

#[distributed_lock(key = "a")]
async fn opaque_result(short: bool) -> Result<impl Iterator<Item = u8>, LockError> {
    if short {
        return Ok([1, 2].iter().copied());
    }
    Ok([1, 2, 3].iter().copied())
}

#[distributed_lock(key = "a")]
async fn coerced_result() -> Result<Box<dyn Display + Send>, LockError> {
    Ok(Box::new(7))
}

#[distributed_lock(key = "a")]
async fn boxed_error(text: &str) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let number = text.parse::<u64>()?;
    std::future::ready(()).await;
    Ok(number)
}

#[distributed_lock(key = "a")]
async fn diverges() -> Result<u64, LockError> {
    std::future::pending().await
}

#[distributed_lock(key = "count:{n}")]
async fn recursive(n: u64) -> Result<u64, LockError> {
    match n {
        0 => Ok(0),
        n => Box::pin(recursive(n - 1)).await,
    }
}

#[distributed_lock(key = "a")]
async fn not_send(local: Rc<u8>) -> Result<u8, LockError> {
    std::future::ready(()).await;
    Ok(*local)
}

#[distributed_lock(key = "a")]
async fn inner_attributes() -> Result<(), LockError> {
    #![allow(unused_variables)]
    let unused = 7;
    Ok(())
}

#[distributed_lock(key = "{r#type}")]
async fn raw_names(r#type: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a")]
async unsafe fn unsafe_function(raw: usize) -> Result<usize, LockError> {
    Ok(raw)
}

struct Shop {
    tenant: String,
    locks: LockManager,
}

impl Shop {
    #[distributed_lock(key = "shop:{self.tenant}:{id.wrapping_add(1)}", manager = self.locks)]
    async fn by_reference(&self, id: u64) -> Result<usize, LockError> {
        Ok(self.tenant.len())
    }

    #[distributed_lock(key = "shop:{self.tenant()}", manager = self.locks)]
    async fn by_mutable_reference(&mut self) -> Result<(), LockError> {
        self.tenant.push('!');
        Ok(())
    }

    #[distributed_lock(key = "shop:{self.tenant}", manager = self.locks)]
    async fn by_value(mut self) -> Result<String, LockError> {
        self.tenant.push('!');
        Ok(self.tenant)
    }

    #[distributed_lock(key = "shop:{self.tenant}", manager = self.locks)]
    async fn boxed(self: Box<Self>) -> Result<Self, LockError> {
        Ok(*self)
    }

    #[distributed_lock(key = "shop")]
    async fn associated() -> Result<Option<Self>, LockError> {
        Ok(None)
    }

    fn tenant(&self) -> &str {
        &self.tenant
    }
}

trait Settle {
    fn settle(&self, id: u64) -> impl Future<Output = Result<u64, LockError>> + Send;

    #[allow(async_fn_in_trait)]
    #[distributed_lock(key = "default:{id}")]
    async fn provided(&self, id: u64) -> Result<u64, LockError> {
        self.settle(id).await
    }
}

impl Settle for Shop {
    #[distributed_lock(key = "{self.tenant}:{id}")]
    async fn settle(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn needs_send<T: Send>(_: T) {}

pub(crate) fn main() {
    let order = Order {
        id: 7,
        pair: (1, "x".into()),
    };
    let name = String::from("name");
    let path = Path(name);
    needs_send(settle(&order, 1));
    needs_send(constant_key());
    needs_send(only_the_key_uses_the_argument(1));
    needs_send(patterns(Path(1), (1, 2), Path(3), &path, [1, 2, 3]));
    needs_send(expressions(Duration::ZERO, true));
    needs_send(key_expression(7));
    needs_send(opaque_result(true));
    needs_send(coerced_result());
    needs_send(boxed_error("7"));
    needs_send(diverges());
    needs_send(recursive(3));
    needs_send(inner_attributes());
    needs_send(raw_names("a"));
    needs_send(unsafe { unsafe_function(7) });
    needs_send(Shop::associated());
    drop(not_send(Rc::new(7)));
    let _ = async |locks: &LockManager, mut shop: Shop| {
        let _ = generic::<str, 2>("a", 7_u8, locks).await;
        let _ = shop.by_reference(1).await;
        let _ = shop.by_mutable_reference().await;
        let _ = Settle::settle(&shop, 1).await;
        let _ = shop.provided(1).await;
        let _ = order.pair.0;
        match Box::new(shop).boxed().await {
            Ok(shop) => shop.by_value().await,
            Err(error) => Err(error),
        }
    };
    assert_eq!(self::name(7).as_str(), "order:7:8");
}

//! Arguments as users write them.
#![deny(warnings)]

use std::fmt::{Debug, Display};
use std::pin::Pin;
use std::sync::Arc;

use lock_runtime::{LockError, LockManager, distributed_lock};

struct Order {
    id: u64,
    lines: Vec<(u64, String)>,
}

#[distributed_lock(key = "a:{id}")]
async fn impl_traits(
    id: impl Display + Send,
    (first, rest): (impl Into<u64>, impl Iterator<Item = u64>),
) -> Result<impl Iterator<Item = u64>, LockError> {
    let first = first.into();
    Ok(rest.map(move |other| other + first))
}

#[distributed_lock(key = "a:{id}")]
async fn closures<F>(
    id: u64,
    change: impl AsyncFn(u64) -> u64,
    mut count: impl AsyncFnMut(&str) -> usize,
    once: F,
) -> Result<u64, LockError>
where
    F: AsyncFnOnce(u64) -> Result<u64, LockError>,
{
    let changed = change(id).await + count("a").await as u64;
    once(changed).await
}

#[distributed_lock(key = "a:{rows.len()}/{name}")]
async fn const_generics<const N: usize, const M: usize>(
    rows: [[u8; M]; N],
    name: &str,
) -> Result<[u8; N], LockError> {
    Ok(rows.map(|row| row[0]))
}

#[distributed_lock(key = "a:{value}")]
async fn bounds<'a, 'b, T, E>(value: &'a T, other: &'b T) -> Result<&'a T, E>
where
    'b: 'a,
    T: Display + PartialOrd + ?Sized,
    E: From<LockError> + Debug,
    for<'c> &'c T: Debug,
{
    Ok(if value < other { value } else { other })
}

#[distributed_lock(key = "a:{shown}")]
async fn trait_objects(
    shown: &(dyn Display + Sync),
    run: Box<dyn FnOnce() -> u64 + Send>,
    later: Pin<Box<dyn Future<Output = u64> + Send + '_>>,
) -> Result<Box<dyn Debug + Send>, LockError> {
    Ok(Box::new(run() + later.await))
}

#[distributed_lock(key = "order:{id}/{total}")]
async fn patterns(
    Order { id, ref lines }: Order,
    (total, ..): (u64, u64, u64),
    (whole @ Some(_) | whole @ None): Option<u64>,
    [.., last]: [u8; 3],
    &mut ref mut count: &mut u64,
    mut _unused: String,
) -> Result<u64, LockError> {
    *count += 1;
    Ok(id + total + u64::from(last) + lines.len() as u64 + whole.unwrap_or(*count))
}

/// The plain function may leave `kept` unused: so may this one.
#[distributed_lock(key = "a:{id}")]
async fn attributes(
    id: u64,
    #[allow(unused_variables)] kept: u64,
    #[allow(unused_mut, unused_variables)] mut unchanged: Vec<u8>,
    #[expect(unused_variables)] expected: (u64, u64),
    #[allow(unused_variables)] (left, right): (u64, u64),
) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a:{id}")]
async fn conditional(
    #[cfg(all())] id: u64,
    #[cfg(any())] gone: Nowhere,
    #[cfg(any())] (also, gone): Nowhere,
    #[cfg_attr(all(), cfg(any()))] gone_as_well: Nowhere,
    #[cfg_attr(all(), allow(unused_variables))] unused: u64,
    #[cfg_attr(all(), expect(unused_variables))] expected: u64,
    #[cfg_attr(all(), expect(unused_variables))] (one, two): (u64, u64),
    #[cfg(all())] (left, right): (u64, u64),
) -> Result<u64, LockError> {
    Ok(id + left + right)
}

struct Shop {
    locks: LockManager,
    name: String,
}

impl Shop {
    #[distributed_lock(key = "shop:{self.name}", manager = self.locks)]
    async fn pinned(mut self: Pin<&mut Self>, more: &str) -> Result<usize, LockError> {
        self.name.push_str(more);
        Ok(self.name.len())
    }

    #[distributed_lock(key = "shop:{self.name}", manager = self.locks)]
    async fn shared(self: Arc<Self>) -> Result<Arc<Self>, LockError> {
        Ok(self)
    }

    #[distributed_lock(key = "shop:{self.name}", manager = self.locks)]
    async fn borrowed(self: &Arc<Self>) -> Result<Arc<Self>, LockError> {
        Ok(self.clone())
    }

    #[distributed_lock(key = "shop:{self.name}", manager = self.locks)]
    async fn boxed(mut self: Box<Self>) -> Result<String, LockError> {
        self.name.push('!');
        Ok(self.name)
    }
}

#[distributed_lock(key = "a:{raw.len()}")]
async unsafe fn not_safe(raw: &[u8]) -> Result<&str, LockError> {
    Ok(unsafe { str::from_utf8_unchecked(raw) })
}

#[distributed_lock(key = "count:{n}")]
async fn counts_down(n: u64) -> Result<u64, LockError> {
    if n == 0 {
        return Ok(0);
    }
    Ok(1 + Box::pin(counts_down(n - 1)).await?)
}

#[distributed_lock(key = "tree:{tree.0}")]
fn walks(tree: &Tree) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send + '_>> {
    Box::pin(async move {
        let mut sum = tree.0;
        for child in &tree.1 {
            sum += walks(child).await?;
        }
        Ok(sum)
    })
}

struct Tree(u64, Vec<Tree>);

#[distributed_lock(key = "outer:{id}", guard = outer)]
async fn nested(id: u64) -> Result<u64, LockError> {
    #[distributed_lock(key = "inner:{id}", guard = lease)]
    async fn inner(id: u64) -> Result<usize, LockError> {
        Ok(lease.name().len() + id as usize)
    }

    struct Inner(u64);

    impl Inner {
        #[distributed_lock(key = "inner:{self.0}")]
        async fn method(&self) -> Result<u64, LockError> {
            Ok(self.0)
        }
    }

    let length = inner(id).await? + outer.name().len();
    let later = async || Inner(id).method().await;
    Ok(later().await? + length as u64)
}

fn needs_send<T: Send>(_: T) {}

pub(crate) fn main() {
    needs_send(impl_traits(1, (2_u8, [3].into_iter())));
    drop(closures(
        1,
        async |id| id,
        async |text: &str| text.len(),
        async |id| Ok(id),
    ));
    needs_send(const_generics([[1, 2], [3, 4]], "a"));
    needs_send(bounds::<str, LockError>("a", "b"));
    needs_send(trait_objects(&1, Box::new(|| 1), Box::pin(async { 1 })));
    let order = Order {
        id: 1,
        lines: Vec::new(),
    };
    needs_send(patterns(
        order,
        (1, 2, 3),
        None,
        [1, 2, 3],
        &mut 4,
        String::new(),
    ));
    needs_send(attributes(1, 2, Vec::new(), (3, 4), (5, 6)));
    needs_send(conditional(1, 2, 3, (4, 5), (6, 7)));
    needs_send(unsafe { not_safe(b"a") });
    needs_send(counts_down(3));
    needs_send(walks(&Tree(1, vec![Tree(2, Vec::new())])));
    needs_send(nested(1));
    let _ = async |mut shop: Shop| {
        needs_send(Pin::new(&mut shop).pinned("!"));
        let shop = Arc::new(shop);
        needs_send(shop.borrowed());
        needs_send(shop.clone().shared());
        match Arc::try_unwrap(shop).map(Box::new) {
            Ok(shop) => shop.boxed().await,
            Err(_) => Err(LockError::NotInstalled),
        }
    };
}

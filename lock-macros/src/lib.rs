//! The `#[distributed_lock]` attribute of `lock-runtime`, and the macro that its `key!` calls.
//!
//! Depend on [`lock-runtime`](https://docs.rs/lock-runtime), which has both under its default feature `macros`.

use proc_macro::TokenStream;

mod args;
mod capture;
mod duration;
mod errors;
mod expand;
mod fallback;
mod function;
mod key_macro;
mod returns;
mod shape;
mod suggest;
mod template;
mod validate;

/// Runs an `async fn` under a distributed lock: acquires the lock, runs the body while the hold is renewed,
/// and releases the lock.
///
/// ```
/// use lock_runtime::{LockError, LockManager, distributed_lock};
///
/// struct Order {
///     id: u64,
/// }
///
/// #[distributed_lock(key = "order:{order.id}", wait = "2s")]
/// async fn settle(order: &Order) -> Result<u64, LockError> {
///     Ok(order.id)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// LockManager::in_memory().install_global();
/// assert_eq!(settle(&Order { id: 7 }).await?, 7);
/// # Ok(())
/// # }
/// ```
///
/// # Options
///
/// | option | default | unit or form | example |
/// |---|---|---|---|
/// | `key` | required | a template, or an expression that becomes a [`LockName`] | `key = "order:{id}"`, `key = name_of(order)` |
/// | `keys` | instead of `key` | several keys, held as one: a list, or an expression that yields what becomes a [`LockName`] | `keys = ["account:{from}", "account:{to}"]` |
/// | `wait` | the manager's, 10 s; with `on_busy = skip` zero | duration; `"0s"` tries once | `wait = "250ms"` |
/// | `lease` | the manager's, 30 s | duration, 50 ms to 24 h, from 1 s up if renewed | `lease = "1m"` |
/// | `auto_renew` | true | `bool`; `false`: the body is dropped when the lease is over | `auto_renew = false` |
/// | `min_hold` | none | duration, 50 ms to 24 h: the key stays taken for at least so long, even if the body ends before | `min_hold = "55s"` |
/// | `max_hold` | none | duration, from 50 ms up: the body is dropped after it, renewed or not | `max_hold = "5m"` |
/// | `keep_for` | the lock is given back at once | duration, 50 ms to 24 h: this process keeps the lock for so long after the body, for its next call; only in mode `exclusive` and with `auto_renew`, [not on every store][`LockRequest::keep_for`] | `keep_for = "5s"` |
/// | `when` | true | a `bool` expression: if false, the body runs without the lock | `when = order.total > 100` |
/// | `on_busy` | `error` | `error`, `skip`, `call(path)` | `on_busy = skip` |
/// | `on_lost` | `cancel` | `cancel`, `finish`, `error` | `on_lost = finish` |
/// | `map_err` | [`FromLockError`] | a path or closure, `fn(LockError) -> ReturnType`, that captures nothing | `map_err = status` |
/// | `mode` | `exclusive` | `exclusive`, `fair`, `read`, `write`, `semaphore(n)`: the kind of lock, for all `keys` alike | `mode = read`, `mode = semaphore(3)` |
/// | `label` | the template | `&'static str`: what logs and metrics call this lock | `label = "settle"` |
/// | `manager` | the installed global one | an expression for a [`LockManager`] or a reference to one | `manager = self.locks`, `manager = if primary { &a } else { &b }` |
/// | `guard` | none | a name: the body finds the hold's [`Lease`] under it; with `when`, an `Option` of it | `guard = lease` |
/// | `crate` | `::lock_runtime` | the path of `lock_runtime`; `key!` needs no such option | `crate = my_locks::lock_runtime` |
///
/// The following example shows most of the options:
///
/// ```
/// use std::time::Duration;
/// use lock_runtime::{LockError, LockManager, LockName, distributed_lock};
///
/// struct Bank {
///     locks: LockManager,
///     wait: Duration,
/// }
///
/// impl Bank {
///     // Both accounts or none.
///     #[distributed_lock(
///         keys = ["account:{from}", "account:{to}"],
///         manager = self.locks,
///         wait = self.wait,
///         guard = lease,
///         label = "transfer",
///         on_lost = error
///     )]
///     async fn transfer(&self, from: u32, to: u32, cents: u64) -> Result<u64, LockError> {
///         for account in lease.members() {
///             println!("{} with token {:?}", account.name, account.fencing_token);
///         }
///         Ok(cents)
///     }
/// }
///
/// // Once a minute, on whichever host is first.
/// #[distributed_lock(key = "job:report", on_busy = skip, min_hold = "55s", max_hold = "5m")]
/// async fn report() -> Result<Option<u32>, LockError> {
///     Ok(Some(12))
/// }
///
/// // Side by side with other readers; a draft needs no lock.
/// #[distributed_lock(key = "prices", mode = read, lease = "1m", auto_renew = false, when = !draft)]
/// async fn quote(draft: bool) -> Result<u64, LockError> {
///     Ok(3)
/// }
///
/// // Three at a time, and an answer that is no `Result`.
/// #[distributed_lock(key = "export", mode = semaphore(3), map_err = |error| error.to_string())]
/// async fn export() -> String {
///     "exported".to_owned()
/// }
///
/// // A name that the program makes, and another function for when the lock is busy.
/// #[distributed_lock(key = LockName::from("order:").with(&order), wait = "0s", on_busy = call(is_being_paid))]
/// async fn pay(order: u64) -> Result<&'static str, LockError> {
///     Ok("paid")
/// }
///
/// fn is_being_paid(_order: u64, _busy: LockError) -> Result<&'static str, LockError> {
///     Ok("somebody pays it already")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// let locks = LockManager::in_memory();
/// locks.install_global();
/// let bank = Bank { locks: locks.clone(), wait: Duration::from_secs(1) };
/// assert_eq!(bank.transfer(1, 2, 50).await?, 50);
/// assert_eq!((report().await?, report().await?), (Some(12), None));
/// assert_eq!(quote(true).await?, 3);
/// assert_eq!(export().await, "exported");
///
/// let guard = locks.mutex("order:17").acquire().await?;
/// assert_eq!(pay(17).await?, "somebody pays it already");
/// guard.release().await?;
/// assert_eq!(pay(17).await?, "paid");
/// # Ok(())
/// # }
/// ```
///
/// A duration is a string, a whole number with one of the units `ms`, `s`, `m`, `h`, which is checked at
/// compile time; or any expression of type `std::time::Duration`. Expressions may use the arguments, and are
/// evaluated before the lock is asked for: anything that they lock or borrow is free again before the call
/// waits. A name that is bound *inside* an argument's pattern, such as `id` in `Path(id): Path<u64>`, is a
/// reference there.
///
/// # Key templates
///
/// `{placeholder}` takes a value, `{{` and `}}` are the characters themselves, everything else stands
/// for itself. A template without placeholders is one lock for all calls.
///
/// A placeholder is an argument's name or `self`, then any of `.field`, `.0` and
/// `.method(literals and paths)`. Nothing else is allowed: no `?`, `.await`, `[..]`, `::`, no format spec, no
/// comment. Values are taken by reference, once, before anything else happens. Each is written with its `Display`
/// and escaped: `A–Z a–z 0–9 _ - .` stay, every other byte becomes `%XX`. So user data can neither make two keys
/// collide nor steer which lock is taken. For the same reason, the template must hold a character between two
/// placeholders that no value can contain, such as `:` or `/`. An empty value is refused with
/// [`LockError::InvalidName`].
///
/// Stable Rust has no spans inside a string literal: errors underline all of it and say which
/// placeholder, at which byte, and which arguments there are.
///
/// # Several locks
///
/// `keys` takes all of its locks or none, in an order that cannot deadlock, no matter in which order they are listed.
/// A lock under which the function is called is not part of that order. A key that comes twice is one lock. The
/// body's hold is lost as soon as one of the locks is lost. With `guard`, the body finds their tokens in
/// [`Lease::members`]. See [`LockManager::multi`].
///
/// # Modes
///
/// `exclusive` is a mutex. `fair` is a mutex that is granted in the order of asking across all processes. `read` and
/// `write` are the two sides of a read/write lock: many readers, or one writer. A name must be used with one kind
/// everywhere: see [`LockManager::mutex`], `fair`, `read` and `write`. A function in mode `write` that is called under
/// a `read` hold of the same key gets an error: a read lock cannot be upgraded.
///
/// `semaphore(n)` lets `n` calls in at a time, over all processes: each call takes one permit of the semaphore that
/// `key` names, and has no fencing token. `n` is the number of permits in all, 1 to 10^12. It is a literal, which is
/// checked at compile time, or an expression of type `u64`, whose bad values are [`LockError::InvalidConfig`]. The
/// first call of all sets the number in the store, and the store keeps it: a process with another `n` neither changes
/// it nor is told. To change it, use [`Semaphore::set_permits`]. Without the attribute, [`Semaphore::in_all`] does the
/// same. A call that finds the number not set, because it is the first one or the store has lost it, sends two requests
/// more than others. A semaphore never re-enters: a function that calls itself takes a permit for each call, and `keys`
/// that name one semaphore twice are [`LockError::InvalidConfig`].
///
/// # Return type
///
/// The return type implements [`FromLockError`]: it is `Result<T, E>` where `E: From<LockError>`, or a type of
/// your own. For foreign types, such as a framework's response, `map_err` makes the value, from refusals and
/// losses alike. A function that returns nothing could not say that it did not run: it needs
/// `on_busy = skip` or `map_err`. The return type may borrow from the arguments; its lifetimes need no names.
///
/// # When the lock is busy, or lost
///
/// * `on_busy = error`: [`LockError::Busy`] becomes the return type's form of it.
/// * `on_busy = skip`: for work that another caller does already. The call does not wait, unless `wait` says
///   so: a call that waits does the work a second time. The return type is `Result<Option<T>, E>` or
///   `Result<(), E>` (busy is `Ok(None)` or `Ok(())`, all else is `Err`), `Option<T>` or nothing (all else is
///   logged at level ERROR), or any other type that implements [`Skipped`].
/// * `on_busy = call(path)`: a sync or async function of the same arguments and the [`LockError`] answers;
///   `self` comes first. It is called only for `Busy`. Arguments need plain names.
/// * `on_lost = cancel`: the body is dropped, the answer is [`LockError::Lost`]. A body that completed just
///   before the loss was known counts, with a warning in the log.
/// * `on_lost = finish`: the body goes on to its end, unprotected, and its value counts.
/// * `on_lost = error`: as `cancel`, but the value of a body that had completed does not count, either: the
///   answer is `Lost { completed: true }`.
///
/// `min_hold` is for jobs that must run once per tick on many hosts, whose clocks differ: the key
/// outlives the body, even if the call is dropped. Before the call returns, the store is told to keep the
/// key for the rest of the time, so the process may end; a shutdown does not wait for it. If the process dies
/// inside the body, the key is free when its lease is over, because the work was not done. The time is
/// counted from the grant. `min_hold` has no effect on a hold that is lost. A nested call leaves it to the
/// outer one.
///
/// # What happens when
///
/// 1. The first poll computes the key and asks for the lock. While it waits, nothing of the body runs. A
///    refusal is returned as the return type's form of the [`LockError`].
/// 2. The body runs as a part of the call, in its task: `return` and `?` leave the body, and then the lock is
///    released. A call for the same lock inside the body re-enters.
/// 3. If the hold is lost, the body is dropped at its current `.await`, and [`LockError::Lost`] is
///    returned. The call looks for a loss before each poll of the body. Tasks that the body spawned, and
///    requests that it sent to a database and has not awaited, are not stopped.
/// 4. All arguments, used or not, and everything in the body are dropped before the release is sent:
///    a transaction passed by value rolls back under the lock. Commit inside the body.
///
/// The future is `Send` if the body's future and its value are `Send`, because the value is kept until the release is
/// done. Other bodies compile, too. The future must be polled in a tokio runtime: elsewhere it returns
/// [`LockError::InvalidConfig`].
///
/// # Cancel safety
///
/// Dropping the call while it waits leaves the queue, and gives back a lock that may have been granted
/// meanwhile. Dropping it later drops the body and its arguments first, and then releases the lock in the
/// background.
///
/// # Where it goes
///
/// The attribute goes on free functions, methods with any form of `self`, associated functions, and methods of an
/// `impl` of a trait. Generics, lifetimes, `impl Trait` and patterns as arguments all work, as do attributes on
/// arguments (`#[cfg]`, `#[allow]`, `#[expect]`). It does not go on a trait's method without a body: put it on the
/// method in each `impl`. It does not go on an `extern` fn.
///
/// Put it above `#[tokio::test]` and `#[tokio::main]`, not below, because these turn the `async fn` into a plain one.
/// `#[tracing::instrument]` and `#[axum::debug_handler]` may stand on either side. Under `#[async_trait]`
/// the methods of the `impl` may carry it, but the key cannot use a name inside an argument's pattern then.
///
/// The attribute also goes on functions that return `impl Future`, `Pin<Box<dyn Future>>` or `BoxFuture`. Their
/// *whole* body is deferred: the code that makes the future runs when the call is first polled, under the lock.
///
/// A recursive function calls itself through `Box::pin`, like every `async fn`. An opaque `impl Trait` as the
/// whole return type needs `map_err`, and the body must return the type that this closure or path returns.
///
/// # Cost
///
/// These are the costs compared with the same function without the attribute (memory store, one thread, x86-64,
/// Rust 1.95):
///
/// | what | cost |
/// |---|---|
/// | a call | 1.6 µs: an acquire and a release, 0.06 µs of it the attribute |
/// | allocations of a call | those of `acquire` and `protect` by hand, no more |
/// | the future | the body's and 0.4 KiB, but at least 1.4 KiB, which it takes to ask for the lock; each argument taken by value has two more places in it |
/// | machine code, release | 4 KiB for each function, 0.3 MB once |
/// | compiling 100 functions | release 5.9 s of CPU instead of 2.3 s, debug 2.3 s instead of 0.7 s |
///
/// The attribute leaves only the key, two calls and the body's place in a function.
///
/// # Expansion
///
/// A function expands to the key and two calls:
///
/// ```ignore
/// async fn settle(order: &Order) -> Result<u64, LockError> {
///     let refuse: Refuse<Result<u64, LockError>> = FromLockError::from_lock_error;
///     let key = KeyBuilder::new("order:{order.id}").literal("order:").part(&order.id).finish();
///     let entering = enter(None, Names::One(key), Call { wait: Some(Duration::from_secs(2)), ..Call::default() });
///     match entering.await {
///         Ok(guard) => {
///             hold(guard, refuse, async move {
///                 let order = order; // each argument whole, used or not
///                 // a `return` of the declared type that never runs, then the body as it was written
///             })
///             .await
///         }
///         Err(error) => refuse(error),
///     }
/// }
/// ```
///
/// [`FromLockError`]: https://docs.rs/lock-runtime/latest/lock_runtime/trait.FromLockError.html
/// [`Lease`]: https://docs.rs/lock-runtime/latest/lock_runtime/struct.Lease.html
/// [`Lease::members`]: https://docs.rs/lock-runtime/latest/lock_runtime/struct.Lease.html#method.members
/// [`LockError`]: https://docs.rs/lock-runtime/latest/lock_runtime/enum.LockError.html
/// [`LockError::Busy`]: https://docs.rs/lock-runtime/latest/lock_runtime/enum.LockError.html#variant.Busy
/// [`LockError::InvalidConfig`]: https://docs.rs/lock-runtime/latest/lock_runtime/enum.LockError.html#variant.InvalidConfig
/// [`LockError::InvalidName`]: https://docs.rs/lock-runtime/latest/lock_runtime/enum.LockError.html#variant.InvalidName
/// [`LockError::Lost`]: https://docs.rs/lock-runtime/latest/lock_runtime/enum.LockError.html#variant.Lost
/// [`LockManager`]: https://docs.rs/lock-runtime/latest/lock_runtime/struct.LockManager.html
/// [`LockManager::multi`]: https://docs.rs/lock-runtime/latest/lock_runtime/struct.LockManager.html#method.multi
/// [`LockManager::mutex`]: https://docs.rs/lock-runtime/latest/lock_runtime/struct.LockManager.html#method.mutex
/// [`LockName`]: https://docs.rs/lock-runtime/latest/lock_runtime/struct.LockName.html
/// [`LockRequest::keep_for`]: https://docs.rs/lock-runtime/latest/lock_runtime/struct.LockRequest.html#method.keep_for
/// [`Semaphore::in_all`]: https://docs.rs/lock-runtime/latest/lock_runtime/struct.Semaphore.html#method.in_all
/// [`Semaphore::set_permits`]: https://docs.rs/lock-runtime/latest/lock_runtime/struct.Semaphore.html#method.set_permits
/// [`Skipped`]: https://docs.rs/lock-runtime/latest/lock_runtime/trait.Skipped.html
#[proc_macro_attribute]
pub fn distributed_lock(options: TokenStream, item: TokenStream) -> TokenStream {
    attribute(options.into(), item.into()).into()
}

/// The macro that `lock_runtime::key!` calls, with its own path in front.
#[doc(hidden)]
#[proc_macro]
pub fn key(input: TokenStream) -> TokenStream {
    key_macro::expand(input.into()).into()
}

/// Parses, validates and expands, or falls back to the plain function if there is a mistake.
fn attribute(
    options: proc_macro2::TokenStream,
    item: proc_macro2::TokenStream,
) -> proc_macro2::TokenStream {
    let mut errors = errors::Errors::default();
    let function: function::Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            errors.add(error);
            let errors = errors.into_compile_errors();
            return quote::quote!(#errors #item);
        }
    };
    let (args, seen) = args::parse(options, &mut errors);
    let guard = args.guard.clone();
    let crate_path = args.crate_path.clone();
    match (
        validate::check(args, &seen, &function, &mut errors),
        &function.body,
    ) {
        (Some(plan), Some(body)) => expand::expand(&plan, &function, body),
        _ => fallback::fallback(&function, guard.as_ref(), crate_path.as_ref(), errors),
    }
}

//! The `#[distributed_lock]` attribute and the `key!` macro of `lock-runtime`.
//!
//! Depend on `lock-runtime`, which re-exports both under its default feature `macros`.

use proc_macro::TokenStream;

mod args;
mod capture;
mod duration;
mod errors;
mod expand;
mod fallback;
mod function;
mod key_macro;
mod nearest;
mod template;
mod validate;

/// Runs an `async fn` under a distributed lock: acquires it, runs the body while the hold is renewed,
/// releases it.
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
/// LockManager::in_memory().install_global()?;
/// assert_eq!(settle(&Order { id: 7 }).await?, 7);
/// # Ok(())
/// # }
/// ```
///
/// # Options
///
/// | option | default | unit or form | example |
/// |---|---|---|---|
/// | `key` | required | a template, or an expression that becomes a `LockName` | `key = "order:{id}"`, `key = name_of(order)` |
/// | `wait` | the manager's, 10 s | duration; `"0s"` tries once | `wait = "250ms"` |
/// | `lease` | the manager's, 30 s | duration, 50 ms to 24 h, from 1 s up if renewed | `lease = "1m"` |
/// | `auto_renew` | the manager's, true | `bool`; `false`: the body is dropped when the lease is over | `auto_renew = false` |
/// | `max_hold` | none | duration: the body is dropped after it, renewed or not | `max_hold = "5m"` |
/// | `label` | the template | `&'static str`: what logs and metrics call this lock | `label = "settle"` |
/// | `manager` | the installed global one | an expression for a `LockManager` or a reference to one | `manager = self.locks` |
/// | `guard` | none | a name: the body finds the hold's `Lease` under it | `guard = lease` |
/// | `crate` | `::lock_runtime` | the path of `lock_runtime` | `crate = my_locks::lock_runtime` |
///
/// A duration is a string, a whole number with one of the units `ms`, `s`, `m`, `h`, which is checked at
/// compile time; or any expression of type `std::time::Duration`. Expressions may use the arguments. A
/// name that is bound *inside* an argument's pattern, such as `id` in `Path(id): Path<u64>`, is a
/// reference there.
///
/// # Key templates
///
/// `{placeholder}` takes a value, `{{` and `}}` are the characters themselves, everything else stands
/// for itself. A template without placeholders is one lock for all calls.
///
/// A placeholder is an argument's name or `self`, then any of `.field`, `.0` and
/// `.method(literals and paths)`. Nothing else: no `?`, `.await`, `[..]`, `::`, no format spec. Values are
/// taken by reference, once, before anything else happens; each is written with its `Display` and
/// escaped (`A–Z a–z 0–9 _ - .` stay, every other byte becomes `%XX`), so user data can neither collide
/// nor steer. Between two placeholders the template must therefore hold a character that no value can
/// contain, such as `:` or `/`. An empty value is refused with `LockError::InvalidName`.
///
/// Stable Rust has no places inside a string literal: errors underline all of it and say which
/// placeholder, at which byte, and which arguments there are.
///
/// # Return type
///
/// Anything that implements `FromLockError`: `Result<T, E>` where `E: From<LockError>`, or a type of your
/// own. A function that returns nothing could not say that it did not run.
///
/// # What happens when
///
/// 1. The first poll computes the key and asks for the lock. While it waits, nothing of the body runs. A
///    refusal is returned as the return type's form of the `LockError`.
/// 2. The body runs as a part of the call, in its task: `return` and `?` leave the body, and then the lock is
///    released. A call for the same lock inside the body re-enters.
/// 3. If the hold is lost, the body is dropped at its current `.await`, and `LockError::Lost` is
///    returned. Loss is looked for before each poll of the body. What the body spawned, or sent to a
///    database and has not awaited, is not stopped.
/// 4. All arguments, used or not, and everything in the body are dropped before the release is sent:
///    a transaction passed by value rolls back under the lock. Commit inside the body.
///
/// The future is `Send` if the body's is; other bodies compile, too.
///
/// # Cancel safety
///
/// Dropping the call while it waits leaves the queue, and gives back what may have been granted
/// meanwhile. Dropping it later drops the body and its arguments first, then releases in the
/// background.
///
/// # Where it goes
///
/// On free functions, methods with any form of `self`, associated functions, and methods of an `impl`
/// of a trait; generics, lifetimes, `impl Trait` and patterns as arguments all work. Not on a trait's
/// method without a body: put it on each `impl`. Above `#[tokio::test]` and `#[tokio::main]`, not below: they
/// leave no `async fn` behind.
#[proc_macro_attribute]
pub fn distributed_lock(options: TokenStream, item: TokenStream) -> TokenStream {
    attribute(options.into(), item.into()).into()
}

/// Builds a `LockName` from a template, with the attribute's placeholders and escaping.
///
/// Placeholders name local variables; `{}` takes the next value behind the template.
///
/// ```
/// use lock_runtime::key;
///
/// let id = "a:b";
/// assert_eq!(key!("order:{id}/{}", 1 + 1).as_str(), "order:a%3Ab/2");
/// ```
#[proc_macro]
pub fn key(input: TokenStream) -> TokenStream {
    key_macro::expand(input.into()).into()
}

/// Parse, validate, expand; fall back to the plain function.
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

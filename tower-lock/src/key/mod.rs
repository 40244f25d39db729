//! The keys, which find the lock that a request needs.

#[cfg(feature = "axum")]
mod axum;
mod find;
mod head;
mod request;

pub use find::{AsyncKey, FindKey, KeyFuture, PerClient, ReadWrite};
pub(crate) use find::{Client, Demand, Finding, Found, Mode};
pub use head::Head;
pub use request::RequestKey;

use lock_runtime::LockName;

/// A key, which tells which lock a request needs.
///
/// Closures `Fn(&Request) -> Option<impl Into<LockName>>` are keys, and so is [`RequestKey`], which is put together
/// from headers, query, path and extensions. `None` means that the request needs no lock and passes through.
///
/// # Data from requests must be escaped
/// A `String` or `&str` becomes a name byte for byte. Pass what a client sent through [`LockName::with`] (or
/// `lock_runtime::key!`), which escapes it. If `format!` builds the names, those for the user `7:order` and for the
/// order of the user `7` may be the same, and a client could choose whose lock it takes. [`RequestKey`] escapes by
/// itself.
///
/// # One resource must have one name
/// `/orders/17` and `/orders/%317` reach the same handler. A key must decode what the handler decodes, or the two
/// take different locks. [`RequestKey`] does so.
///
/// ```
/// use http::Request;
/// use lock_runtime::LockName;
/// use tower_lock::LockKey;
///
/// let key = |request: &Request<()>| {
///     let tenant = request.headers().get("x-tenant")?.to_str().ok()?;
///     Some(LockName::from("tenant:").with(tenant))
/// };
/// let request = Request::get("/").header("x-tenant", "a:b").body(()).unwrap();
/// assert_eq!(key.lock_name(&request).unwrap().as_str(), "tenant:a%3Ab");
/// assert_eq!(key.lock_name(&Request::new(())), None);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock key for `{Request}`",
    label = "makes no lock name from this request",
    note = "a key is a closure `|request: &{Request}| -> Option<impl Into<LockName>>`, a `RequestKey`, or your own \
            `LockKey`"
)]
pub trait LockKey<Request> {
    /// Returns the name of the lock, or `None` if the request needs none.
    fn lock_name(&self, request: &Request) -> Option<LockName>;

    /// Returns the name like [`lock_name`](LockKey::lock_name), or an error from a key that can say what the request
    /// lacks. The error is one sentence for the client, which is answered with 400. By default, this returns what
    /// `lock_name` returns.
    ///
    /// # Errors
    /// The error names the part that the request lacks.
    fn find_name(&self, request: &Request) -> Result<Option<LockName>, String> {
        Ok(self.lock_name(request))
    }
}

impl<F, Request, Name> LockKey<Request> for F
where
    F: Fn(&Request) -> Option<Name>,
    Name: Into<LockName>,
{
    fn lock_name(&self, request: &Request) -> Option<LockName> {
        self(request).map(Into::into)
    }
}

//! The keys, which find the lock that a request needs.

#[cfg(feature = "axum")]
mod axum;
mod find;
mod head;
mod path;
mod request;

pub use find::{AsyncKey, FindKey, KeyFuture, PerClient, ReadWrite};
pub(crate) use find::{Client, Demand, Finding, Found, Mode};
pub use head::Head;
pub use request::RequestKey;

use lock_runtime::LockName;

use crate::refusal::Refusal;

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

    /// Returns the name like [`lock_name`](LockKey::lock_name), or the refusal of a request that must not pass without
    /// a lock. The layer calls this method. By default, it returns what `lock_name` returns.
    ///
    /// ```
    /// use http::Request;
    /// use lock_runtime::LockName;
    /// use tower_lock::{LockKey, Refusal};
    ///
    /// /// The tenant that a layer outside of this one has found.
    /// struct Tenant(u64);
    /// struct ByTenant;
    ///
    /// impl<B> LockKey<Request<B>> for ByTenant {
    ///     fn lock_name(&self, request: &Request<B>) -> Option<LockName> {
    ///         self.find_name(request).ok().flatten()
    ///     }
    ///
    ///     fn find_name(&self, request: &Request<B>) -> Result<Option<LockName>, Refusal> {
    ///         let Some(Tenant(id)) = request.extensions().get() else {
    ///             return Err(Refusal::misconfigured("no layer outside of this one finds the tenant"));
    ///         };
    ///         match id {
    ///             0 => Err(Refusal::bad_key("The tenant 0 has no orders.")),
    ///             id => Ok(Some(LockName::from("tenant:").with(id))),
    ///         }
    ///     }
    /// }
    ///
    /// let refusal = ByTenant.find_name(&Request::new(())).unwrap_err();
    /// assert_eq!(refusal.kind().status(), 500);
    /// ```
    ///
    /// # Errors
    /// The refusal, with which the request is answered.
    fn find_name(&self, request: &Request) -> Result<Option<LockName>, Refusal> {
        Ok(self.lock_name(request))
    }

    /// Returns the name of these locks in logs and metrics, for a layer that sets no
    /// [label](crate::LockLayer::label) of its own. By default, there is none.
    fn label(&self) -> Option<&'static str> {
        None
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

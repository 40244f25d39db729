//! Which lock a request needs.

use lock_runtime::LockName;

/// Tells which lock a request needs.
///
/// Closures `Fn(&Request) -> Option<impl Into<LockName>>` are keys. `None` means that the request needs no lock and
/// passes through.
///
/// # Data from requests must be escaped
/// A `String` or `&str` becomes a name byte for byte. What a client sent belongs through [`LockName::with`] (or
/// `lock_runtime::key!`), which escapes it: built by `format!`, the names for the user `7:order` and for the order
/// of the user `7` may be the same, and a client could choose whose lock it takes.
///
/// ```
/// use http::Request;
/// use lock_runtime::LockName;
/// use tower_lock::LockKey;
///
/// let key = |request: &Request<()>| {
///     let order = request.uri().path().strip_prefix("/orders/")?;
///     Some(LockName::from("order:").with(order))
/// };
/// let request = |path| Request::get(path).body(()).unwrap();
/// assert_eq!(key.lock_name(&request("/orders/a:b")).unwrap().as_str(), "order:a%3Ab");
/// assert_eq!(key.lock_name(&request("/health")), None);
/// ```
pub trait LockKey<Request> {
    /// The name of the lock, or `None` if the request needs none.
    fn lock_name(&self, request: &Request) -> Option<LockName>;
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

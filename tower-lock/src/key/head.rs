//! The parts of a request that a key may look at.

use http::{Extensions, HeaderMap, Method, Request, Uri};

/// A request without its body.
///
/// ```
/// use http::Request;
/// use tower_lock::{Head, LockKey, RequestKey};
///
/// let tenant = |head: Head<'_>| Some(head.uri().host()?.split('.').next()?.to_owned());
/// let key = RequestKey::new("tenant").value(tenant);
/// let request = Request::get("http://blue.example.org/orders").body(()).unwrap();
/// assert_eq!(key.lock_name(&request).unwrap().as_str(), "tenant:blue");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// Returns the method.
    pub fn method(self) -> &'a Method {
        self.method
    }

    /// Returns the URI. In a nested axum router it lacks the prefix that was matched already.
    pub fn uri(self) -> &'a Uri {
        self.uri
    }

    /// Returns the headers.
    pub fn headers(self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the values that outer layers left for inner ones.
    pub fn extensions(self) -> &'a Extensions {
        self.extensions
    }
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    fn from(request: &'a Request<B>) -> Head<'a> {
        Head {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

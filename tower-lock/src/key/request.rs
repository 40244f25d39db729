//! Keys that are put together from the parts of a request's head.

use std::fmt;
use std::sync::Arc;

use http::Request;
use lock_runtime::LockName;
use percent_encoding::percent_decode_str;

use crate::key::{Head, LockKey};

/// A key made of a word and values of the request's head: `order:acme:17`.
///
/// ```
/// use http::Request;
/// use tower_lock::{LockKey, RequestKey};
///
/// let key = RequestKey::new("order").header("x-tenant").path_segment(1);
/// let request = Request::get("/orders/1%37").header("x-tenant", "acme").body(())?;
/// assert_eq!(key.lock_name(&request).unwrap().as_str(), "order:acme:17");
///
/// // Without the header the request needs no lock.
/// let request = Request::get("/orders/17").body(())?;
/// assert_eq!(key.lock_name(&request), None);
/// # Ok::<_, http::Error>(())
/// ```
///
/// | part | its value | missing if |
/// |---|---|---|
/// | [`header`](Self::header) | the header's value | the request has no such header |
/// | [`query`](Self::query) | the decoded parameter | the query has no such parameter |
/// | [`path_segment`](Self::path_segment) | the decoded segment, counted from 0 | the path is shorter |
/// | [`path`](Self::path) | the decoded segments, each | never |
/// | [`method`](Self::method) | `GET`, `POST`, … | never |
/// | [`extension`](Self::extension) | what the closure makes of it: the authenticated principal, say | no outer layer left one |
/// | [`value`](Self::value) | what the closure returns | it returns `None` |
/// | `path_param`, feature `axum` | the decoded parameter of the matched route | the route has no such parameter |
/// | `matched_path`, feature `axum` | the matched route, `/orders/{id}` | no route matched |
///
/// If a part is missing, the request needs no lock; with [`required`](Self::required) it is refused with 400 instead,
/// which names the part. A value that is empty or not text, a header or parameter that is given twice, and a name over
/// 512 bytes are refused with 400 in any case, because the handler may read such a request differently from the key.
///
/// Values are escaped, and two keys with different values have different names. The request's body type does not
/// matter: one key serves axum and tonic.
#[derive(Clone)]
pub struct RequestKey {
    word: &'static str,
    parts: Vec<Part>,
    required: bool,
}

#[derive(Clone)]
struct Part {
    /// The name by which the client knows the part.
    what: Arc<str>,
    value: Arc<Value>,
}

/// A function that appends the part's value to a name, or says why it cannot.
type Value = dyn Fn(Head<'_>, LockName) -> Result<LockName, Flaw> + Send + Sync;

/// The reason why a request has no proper value for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    Missing,
    Twice,
    NoText,
}

impl RequestKey {
    /// Creates a key that begins with `word`, which also labels its logs and metrics. Without parts, all requests need
    /// the same lock.
    pub fn new(word: &'static str) -> RequestKey {
        RequestKey {
            word,
            parts: vec![],
            required: false,
        }
    }

    /// Adds a header's value.
    #[must_use]
    pub fn header(self, name: impl AsRef<str> + Send + Sync + 'static) -> Self {
        let what = format!("The header `{}`", name.as_ref());
        self.part(&what, move |head, key| {
            let mut values = head.headers().get_all(name.as_ref()).iter();
            let value = only(&mut values)?.to_str().map_err(|_| Flaw::NoText)?;
            Ok(key.with(value))
        })
    }

    /// Adds a parameter of the query, decoded as HTML forms are.
    #[must_use]
    pub fn query(self, name: &'static str) -> Self {
        let what = format!("The query parameter `{name}`");
        self.part(&what, move |head, key| {
            let query = head.uri().query().ok_or(Flaw::Missing)?;
            let pairs = form_urlencoded::parse(query.as_bytes());
            let mut values = pairs.filter(|(of, _)| of == name).map(|(_, value)| value);
            Ok(key.with(&only(&mut values)?))
        })
    }

    /// Adds the segment of the path at `index`, counted from 0, percent-decoded.
    #[must_use]
    pub fn path_segment(self, index: usize) -> Self {
        self.part("A segment of the path", move |head, key| {
            let segment = segments(head).nth(index).ok_or(Flaw::Missing)?;
            Ok(key.with(&decoded(segment)?))
        })
    }

    /// Adds the whole path, each segment percent-decoded.
    #[must_use]
    pub fn path(self) -> Self {
        self.part("The path", |head, mut key| {
            for segment in segments(head) {
                key = key.literal("/");
                if !segment.is_empty() {
                    key = key.with(&decoded(segment)?);
                }
            }
            Ok(key)
        })
    }

    /// Adds the method.
    #[must_use]
    pub fn method(self) -> Self {
        self.part("The method", |head, key| Ok(key.with(head.method())))
    }

    /// Adds what `value` makes of an extension of type `T`, for example of the principal that an authenticating layer
    /// outside of this one has left.
    #[must_use]
    pub fn extension<T, V>(self, value: impl Fn(&T) -> V + Send + Sync + 'static) -> Self
    where
        T: Clone + Send + Sync + 'static,
        V: fmt::Display,
    {
        // The message cannot be more precise: the client has sent nothing by this name.
        self.part("A part of the request's identity", move |head, key| {
            let found = head.extensions().get::<T>().ok_or(Flaw::Missing)?;
            Ok(key.with(&value(found)))
        })
    }

    /// Adds what `value` makes of the request's head.
    #[must_use]
    pub fn value<V>(self, value: impl Fn(Head<'_>) -> Option<V> + Send + Sync + 'static) -> Self
    where
        V: fmt::Display,
    {
        self.part("A part of the request", move |head, key| {
            Ok(key.with(&value(head).ok_or(Flaw::Missing)?))
        })
    }

    /// Refuses requests that lack a part with 400, instead of serving them without a lock.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(crate) fn part(
        mut self,
        what: &str,
        value: impl Fn(Head<'_>, LockName) -> Result<LockName, Flaw> + Send + Sync + 'static,
    ) -> Self {
        self.parts.push(Part {
            what: what.into(),
            value: Arc::new(value),
        });
        self
    }

    fn name(&self, head: Head<'_>) -> Result<Option<LockName>, String> {
        let mut name = LockName::from(self.word).template(self.word);
        for Part { what, value } in &self.parts {
            name = match value(head, name.literal(":")) {
                Ok(name) => name,
                Err(Flaw::Missing) if !self.required => return Ok(None),
                Err(Flaw::Missing) => return Err(format!("{what} is missing.")),
                Err(Flaw::Twice) => return Err(format!("{what} is given twice.")),
                Err(Flaw::NoText) => return Err(format!("{what} is not text.")),
            };
        }
        Ok(Some(name))
    }
}

impl<B> LockKey<Request<B>> for RequestKey {
    /// Returns the name, or one that is not valid if the request has a flaw.
    fn lock_name(&self, request: &Request<B>) -> Option<LockName> {
        let name = self.find_name(request);
        name.unwrap_or_else(|_| Some(LockName::from(self.word).with("")))
    }

    fn find_name(&self, request: &Request<B>) -> Result<Option<LockName>, String> {
        self.name(Head::from(request))
    }
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestKey")
            .field("word", &self.word)
            .field("parts", &self.parts.len())
            .field("required", &self.required)
            .finish()
    }
}

/// Returns the only value of something that may be given several times.
fn only<T>(values: &mut impl Iterator<Item = T>) -> Result<T, Flaw> {
    let value = values.next().ok_or(Flaw::Missing)?;
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Flaw::Twice),
    }
}

fn segments(head: Head<'_>) -> impl Iterator<Item = &str> {
    head.uri().path().split('/').skip(1)
}

fn decoded(segment: &str) -> Result<std::borrow::Cow<'_, str>, Flaw> {
    percent_decode_str(segment)
        .decode_utf8()
        .map_err(|_| Flaw::NoText)
}

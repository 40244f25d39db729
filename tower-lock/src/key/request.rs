//! Keys that are put together from the parts of a request's head.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use http::Request;
use http::header::{HOST, HeaderName};
use http::uri::Authority;
use lock_runtime::LockName;
use percent_encoding::percent_decode_str;

use crate::key::path::{may_be_split, no_segment, segments};
use crate::key::{Head, LockKey};
use crate::refusal::Refusal;

/// A key made of a word and values of the request's head: `order:acme:17`.
///
/// ```
/// use http::Request;
/// use tower_lock::{LockKey, RequestKey};
///
/// let key = RequestKey::new("order").header("x-tenant").path_segment_as::<u64>(1);
/// let request = Request::get("/orders/01%37").header("x-tenant", "acme").body(())?;
/// assert_eq!(key.lock_name(&request).unwrap().as_str(), "order:acme:17");
///
/// // Without the header, the request is refused with 400.
/// let request = Request::get("/orders/17").body(())?;
/// let refusal = key.find_name(&request).unwrap_err();
/// assert_eq!(refusal.kind().status(), 400);
/// assert_eq!(refusal.detail(), "The header `x-tenant` is missing.");
/// # Ok::<_, http::Error>(())
/// ```
///
/// | part | its value | missing if |
/// |---|---|---|
/// | [`header`](Self::header), [`header_as`](Self::header_as) | the header's value | the request has no such header |
/// | [`query`](Self::query), [`query_as`](Self::query_as) | the decoded parameter | the query has no such parameter |
/// | [`path_segment`](Self::path_segment), [`path_segment_as`](Self::path_segment_as) | the decoded segment, counted from 0 | the path is shorter |
/// | [`path`](Self::path) | the decoded segments, each | never |
/// | [`host`](Self::host) | the host that the client asks for, without its port | the request names none |
/// | [`method`](Self::method) | `GET`, `POST`, … | never |
/// | [`extension`](Self::extension) | what the closure makes of it: the authenticated principal, say | no outer layer left one |
/// | [`value`](Self::value) | what the closure returns | it returns `None` |
/// | `path_param`, `path_param_as`, feature `axum` | the decoded parameter of the matched route | the route has no such parameter |
/// | `matched_path`, feature `axum` | the matched route, `/orders/{id}` | no route matched |
///
/// # Requests that lack a part
/// A request that lacks a part is refused with 400, which names the part. If the route cannot have it (feature `axum`), no
/// client can mend that: the request is refused with 500, and the log says why, as an error. With
/// [`optional`](Self::optional), either passes without a lock. But if a [`header`](Self::header) has a name that no header
/// can have, every request is refused with 500, because that is a mistake in the service.
///
/// axum's `Router::layer` also runs for paths that no route matches, which are then refused instead of answered with 404.
/// Use `Router::route_layer` to lock the routes only, and `MethodRouter::route_layer`, as in `post(pay).route_layer(…)`, to
/// lock no request whose method the route does not serve.
///
/// A value that is empty, not text or not of the part's type, a header or parameter that is given twice, and a name over
/// 512 bytes are refused with 400 in any case, because the handler may read such a request differently from the key.
///
/// # One resource, one name
/// Values are decoded, then escaped: two keys with different values have different names. But a handler may parse different
/// texts to one value: `17`, `017` and `+17` are one `u64`, and a UUID can be written in several ways. Requests for one
/// resource would then run together. Use the part that ends in `_as`, with the type that the handler parses to, wherever
/// that type is no text.
///
/// A segment of the path with a slash in it, `a%2Fb`, is refused with 400 by [`path`](Self::path) and
/// [`path_segment`](Self::path_segment) where the handler may take it for two: in a route with a wildcard, `{*path}`, and without
/// axum's router. There, `path_param` takes the parameter as the handler does.
///
/// The request's body type does not matter: one key serves axum and tonic.
#[derive(Clone)]
pub struct RequestKey {
    word: &'static str,
    parts: Vec<Part>,
    optional: bool,
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
    /// No request to this route can have the part.
    NotInRoute,
    /// No header can have the name.
    NoHeaderName,
    Twice,
    NoText,
    /// It is text, but not of the part's type.
    Invalid,
}

/// A function that appends a part's text to a name.
pub(crate) type Form = fn(LockName, &str) -> Result<LockName, Flaw>;

pub(crate) fn as_sent(key: LockName, text: &str) -> Result<LockName, Flaw> {
    Ok(key.with(text))
}

pub(crate) fn as_parsed<T: FromStr + Display>(key: LockName, text: &str) -> Result<LockName, Flaw> {
    let value: T = text.parse().map_err(|_| Flaw::Invalid)?;
    Ok(key.with(&value))
}

impl RequestKey {
    /// Creates a key that begins with `word`, which also labels its logs and metrics. Without parts, all requests need
    /// the same lock.
    pub fn new(word: &'static str) -> RequestKey {
        RequestKey {
            word,
            parts: vec![],
            optional: false,
        }
    }

    /// Adds a header's value. For the header `host`, use [`host`](Self::host).
    #[must_use]
    pub fn header(self, name: impl AsRef<str> + Send + Sync + 'static) -> Self {
        self.header_in(name, as_sent)
    }

    /// Adds a header's value as a value of type `T`: the header is parsed, and the value's `Display` goes into the name.
    /// Texts that `T` parses to one value are one key. A header that is no `T` is refused with 400.
    ///
    /// ```
    /// use http::Request;
    /// use tower_lock::{LockKey, RequestKey};
    ///
    /// let account = RequestKey::new("account").header_as::<u64>("x-account");
    /// for spelling in ["17", "017", "+17"] {
    ///     let request = Request::get("/").header("x-account", spelling).body(())?;
    ///     assert_eq!(account.lock_name(&request).unwrap().as_str(), "account:17");
    /// }
    /// # Ok::<_, http::Error>(())
    /// ```
    #[must_use]
    pub fn header_as<T: FromStr + Display>(
        self,
        name: impl AsRef<str> + Send + Sync + 'static,
    ) -> Self {
        self.header_in(name, as_parsed::<T>)
    }

    fn header_in(self, name: impl AsRef<str> + Send + Sync + 'static, form: Form) -> Self {
        let what = format!("The header `{}`", name.as_ref());
        let name = HeaderName::from_bytes(name.as_ref().as_bytes());
        self.text(&what, form, move |head| {
            header(head, name.as_ref().map_err(|_| Flaw::NoHeaderName)?)
        })
    }

    /// Adds the host that the client asks for: the authority of the URI, as HTTP/2 sends it, or else the header `host`.
    /// It is in lower case, and lacks the port and a final dot, because `Example.org:443` and `example.org.` are one host.
    /// A request that names two different hosts there is refused: some handlers read the header first.
    #[must_use]
    pub fn host(self) -> Self {
        self.text("The host", as_sent, |head| {
            let usual = |host: &str| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
            let of_uri = head.uri().host().map(usual);
            if of_uri.is_some() && !head.headers().contains_key(HOST) {
                return Ok(of_uri.unwrap_or_default().into());
            }
            let sent = header(head, &HOST)?;
            let authority: Authority = sent.parse().map_err(|_| Flaw::Invalid)?;
            let of_header = usual(authority.host());
            if of_uri.is_some_and(|host| host != of_header) {
                return Err(Flaw::Twice);
            }
            Ok(of_header.into())
        })
    }

    /// Adds a parameter of the query, decoded as HTML forms are. Bytes that are no text become U+FFFD, as in axum's
    /// `Query`.
    #[must_use]
    pub fn query(self, name: &'static str) -> Self {
        self.query_in(name, as_sent)
    }

    /// Adds a parameter of the query as a value of type `T`. See [`header_as`](Self::header_as).
    #[must_use]
    pub fn query_as<T: FromStr + Display>(self, name: &'static str) -> Self {
        self.query_in(name, as_parsed::<T>)
    }

    fn query_in(self, name: &'static str, form: Form) -> Self {
        let what = format!("The query parameter `{name}`");
        self.text(&what, form, move |head| {
            let query = head.uri().query().ok_or(Flaw::Missing)?;
            let pairs = form_urlencoded::parse(query.as_bytes());
            let mut values = pairs.filter(|(of, _)| of == name).map(|(_, value)| value);
            only(&mut values)
        })
    }

    /// Adds the segment of the path at `index`, counted from 0, percent-decoded.
    ///
    /// With the feature `axum`, it is the path that the client has sent, also in a router below `nest`. Without the
    /// feature, such a router's layers see the path without the prefix.
    #[must_use]
    pub fn path_segment(self, index: usize) -> Self {
        self.path_segment_in(index, as_sent)
    }

    /// Adds the segment of the path at `index` as a value of type `T`. See [`header_as`](Self::header_as).
    #[must_use]
    pub fn path_segment_as<T: FromStr + Display>(self, index: usize) -> Self {
        self.path_segment_in(index, as_parsed::<T>)
    }

    fn path_segment_in(self, index: usize, form: Form) -> Self {
        let what = format!("The segment {index} of the path");
        self.text(&what, form, move |head| {
            let segment = segments(head).nth(index);
            decoded(head, segment.ok_or_else(|| no_segment(head))?)
        })
    }

    /// Adds the whole path, each segment percent-decoded. Below `nest`, it is the path that
    /// [`path_segment`](Self::path_segment) takes.
    #[must_use]
    pub fn path(self) -> Self {
        self.part("The path", |head, mut key| {
            for segment in segments(head) {
                key = key.literal("/");
                if !segment.is_empty() {
                    key = key.with(&decoded(head, segment)?);
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
        V: Display,
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
        V: Display,
    {
        self.part("A part of the request", move |head, key| {
            Ok(key.with(&value(head).ok_or(Flaw::Missing)?))
        })
    }

    /// Lets requests that lack a part pass without a lock, instead of refusing them. The feature `metrics` counts them.
    ///
    /// A client that leaves a part out gets no lock then. So use it only where a request without the part has nothing to
    /// protect.
    ///
    /// ```
    /// use http::Request;
    /// use tower_lock::{LockKey, RequestKey};
    ///
    /// let draft = RequestKey::new("draft").query("draft").optional();
    /// assert_eq!(draft.find_name(&Request::new(())).unwrap(), None);
    /// ```
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Adds a part that is found as a text, and takes `form` in the name.
    pub(crate) fn text<F>(self, what: &str, form: Form, find: F) -> Self
    where
        F: Fn(Head<'_>) -> Result<Cow<'_, str>, Flaw> + Send + Sync + 'static,
    {
        self.part(what, move |head, key| form(key, &find(head)?))
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

    fn name(&self, head: Head<'_>) -> Result<Option<LockName>, Refusal> {
        let mut name = LockName::from(self.word).template(self.word);
        for Part { what, value } in &self.parts {
            let flaw = match value(head, name.literal(":")) {
                Ok(longer) => {
                    name = longer;
                    continue;
                }
                Err(flaw) => flaw,
            };
            let clients = match flaw {
                Flaw::Missing | Flaw::NotInRoute if self.optional => return Ok(None),
                Flaw::NotInRoute => {
                    return Err(self.misconfigured(
                        what,
                        format_args!(
                            "is not in the route of {} {}: add the layer to the routes that have it, inside of the router, or \
                             make the key `optional()`",
                            head.method(),
                            head.uri().path()
                        ),
                    ));
                }
                Flaw::NoHeaderName => {
                    let why = format_args!("has a name that no header can have: correct it");
                    return Err(self.misconfigured(what, why));
                }
                Flaw::Missing => "missing",
                Flaw::Twice => "given twice",
                Flaw::NoText => "not text",
                Flaw::Invalid => "not valid",
            };
            return Err(Refusal::bad_key(format!("{what} is {clients}.")));
        }
        Ok(Some(name))
    }

    fn misconfigured(&self, what: &str, why: fmt::Arguments<'_>) -> Refusal {
        let word = self.word;
        Refusal::misconfigured(format!("{what}, of which the key `{word}` is made, {why}"))
    }
}

impl<B> LockKey<Request<B>> for RequestKey {
    /// Returns the name, or one that is not valid if the request is to be refused.
    fn lock_name(&self, request: &Request<B>) -> Option<LockName> {
        let name = self.find_name(request);
        name.unwrap_or_else(|_| Some(LockName::from(self.word).with("")))
    }

    fn find_name(&self, request: &Request<B>) -> Result<Option<LockName>, Refusal> {
        self.name(Head::from(request))
    }

    fn label(&self) -> Option<&'static str> {
        Some(self.word)
    }
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestKey")
            .field("word", &self.word)
            .field("parts", &self.parts.len())
            .field("optional", &self.optional)
            .finish()
    }
}

/// Returns the only value of something that may be given several times.
pub(crate) fn only<T>(values: &mut impl Iterator<Item = T>) -> Result<T, Flaw> {
    let value = values.next().ok_or(Flaw::Missing)?;
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Flaw::Twice),
    }
}

fn header<'a>(head: Head<'a>, name: &HeaderName) -> Result<Cow<'a, str>, Flaw> {
    let mut values = head.headers().get_all(name).iter();
    let value = only(&mut values)?.to_str().map_err(|_| Flaw::NoText)?;
    Ok(value.into())
}

/// Returns a segment of the request's path as text.
fn decoded<'a>(head: Head<'_>, segment: &'a str) -> Result<Cow<'a, str>, Flaw> {
    let text = percent_decode_str(segment).decode_utf8();
    let text = text.map_err(|_| Flaw::NoText)?;
    if text.contains('/') && may_be_split(head) {
        return Err(Flaw::Invalid);
    }
    Ok(text)
}

//! The layer, and the options of its locks.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use lock_runtime::{LockManager, LockName, LockRequest};
use tower_layer::Layer;

use crate::hold_until::{UntilBodyEnd, UntilResponse};
use crate::key::{AsyncKey, KeyFuture, Mode, PerClient, ReadWrite};
use crate::metrics;
use crate::plan::Plan;
use crate::reply::ProblemJson;
use crate::service::LockService;
use crate::waiters::Caps;

/// The time for which a request may keep its lock by default.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// A layer that holds a lock around the inner service for each request: see the [crate's documentation](crate).
///
/// | option | default | unit |
/// |---|---|---|
/// | [`wait`](LockLayer::wait) | the manager's, 10 s | time; zero refuses at once |
/// | [`lease`](LockLayer::lease) | the manager's, 30 s, renewed while the request is served | time, 1 s to 24 h |
/// | [`min_hold`](LockLayer::min_hold) | off: a lock is given back at once | time, 50 ms to 24 h |
/// | [`max_hold`](LockLayer::max_hold), [`no_max_hold`](LockLayer::no_max_hold) | 60 s | time, from 50 ms up |
/// | [`keep_for`](LockLayer::keep_for) | off: a lock is given back at once | time, 50 ms to 24 h |
/// | [`label`](LockLayer::label) | the key's ([`LockKey::label`](crate::LockKey::label)): a `RequestKey`'s word; else a `key!` name's template | text |
/// | [`max_waiters`](LockLayer::max_waiters), [`max_waiters_per_key`](LockLayer::max_waiters_per_key) | the manager's: 100,000 and 20,000 | requests |
/// | [`max_waiters_per_client`](LockLayer::max_waiters_per_client) | none | requests |
/// | [`read_write`](LockLayer::read_write) | off: every request runs alone | |
/// | [`fair`](LockLayer::fair) | off: processes take turns | |
/// | [`semaphore`](LockLayer::semaphore) | off: one | requests of one key at a time |
/// | [`until_body_end`](LockLayer::until_body_end) | off: until the response future is done | time, from 50 ms up |
/// | [`reply`](LockLayer::reply) | [`ProblemJson`] | a [`Reply`](crate::Reply) |
pub struct LockLayer<K, R = ProblemJson, U = UntilResponse> {
    pub(crate) plan: Plan<R>,
    // The key is shared, because it may own anything and services are cloned for every connection or request.
    pub(crate) key: Arc<K>,
    until: PhantomData<fn() -> U>,
}

/// A closure that makes a lock's name from a request, as [`LockLayer::new`] takes it. Only such closures implement this
/// trait, and all of them do.
///
/// See the example of [`LockLayer::new`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no closure `|request: &http::Request<_>| -> Option<impl Into<LockName>>`",
    label = "no closure over the request",
    note = "a `RequestKey`, or your own `LockKey`, goes to `LockLayer::from_key`"
)]
pub trait KeyClosure<B, Name>: Fn(&http::Request<B>) -> Option<Name> {}

impl<F, B, Name> KeyClosure<B, Name> for F where F: Fn(&http::Request<B>) -> Option<Name> {}

impl<F> LockLayer<F> {
    /// Creates a layer whose key is a closure over the HTTP request. The closure returns an owned name, or `None` for a
    /// request that needs no lock.
    ///
    /// Escape what comes from the request: [`LockKey`](crate::LockKey) says how and why.
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use lock_runtime::{LockManager, LockName, LockRequest};
    /// use tower_lock::LockLayer;
    ///
    /// let locks = LockManager::in_memory();
    /// let app: Router = Router::new()
    ///     .route("/pay", post(async || "paid"))
    ///     .layer(LockLayer::new(locks, |request: &http::Request<_>| {
    ///         let order = request.headers().get("x-order")?.to_str().ok()?;
    ///         Some(LockName::from("order:").with(order))
    ///     }));
    /// # drop(app);
    /// ```
    pub fn new<B, Name>(manager: LockManager, key: F) -> LockLayer<F>
    where
        F: KeyClosure<B, Name>,
        Name: Into<LockName>,
    {
        LockLayer::build(manager, key)
    }
}

impl<K> LockLayer<K> {
    /// Creates a layer with any [`LockKey`](crate::LockKey): a [`RequestKey`](crate::RequestKey), or a closure over
    /// requests that are not HTTP.
    pub fn from_key(manager: LockManager, key: K) -> LockLayer<K> {
        LockLayer::build(manager, key)
    }

    fn build(manager: LockManager, key: K) -> LockLayer<K> {
        metrics::describe();
        let plan = Plan {
            manager,
            options: LockOptions::default(),
            caps: Caps::default(),
            waiters: Arc::default(),
            reply: ProblemJson,
        };
        LockLayer {
            plan,
            key: Arc::new(key),
            until: PhantomData,
        }
    }
}

impl<F> LockLayer<AsyncKey<F>>
where
    F: for<'a> Fn(&'a mut Parts) -> KeyFuture<'a> + Send + Sync + 'static,
{
    /// Creates a layer whose key is found asynchronously, for example in a session store. The key may change the
    /// request's parts, to leave what it found in the extensions. Its future is boxed, once per request.
    ///
    /// A key that fails has two choices. If it returns `None`, the request is served without a lock. If it returns a
    /// name that is not valid, such as `Some(LockName::from(""))`, the request is refused with 400.
    ///
    /// ```
    /// use http::request::Parts;
    /// use lock_runtime::{LockManager, LockName, LockRequest};
    /// use tower_lock::LockLayer;
    ///
    /// # async fn user_of(_session: &str) -> Option<u64> { Some(7) }
    /// let layer = LockLayer::from_async_key(LockManager::in_memory(), |parts: &mut Parts| {
    ///     Box::pin(async move {
    ///         let session = parts.headers.get("x-session")?.to_str().ok()?;
    ///         let user = user_of(session).await?;
    ///         Some(LockName::from("user:").with(&user))
    ///     })
    /// });
    /// # drop(layer);
    /// ```
    pub fn from_async_key(manager: LockManager, key: F) -> Self {
        LockLayer::build(manager, AsyncKey { find: key })
    }
}

/// The options that a layer sets for its requests; the manager's defaults fill the rest. Each is a method of the layer, and of
/// the request.
macro_rules! request_options {
    ($($(#[$doc:meta])* $option:ident($value:ident: $of:ty) = $default:expr;)*) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct LockOptions {
            $(pub(crate) $option: Option<$of>,)*
            pub(crate) mode: Mode,
        }

        impl Default for LockOptions {
            fn default() -> LockOptions {
                LockOptions {
                    $($option: $default,)*
                    mode: Mode::default(),
                }
            }
        }

        impl LockOptions {
            pub(crate) fn apply(&self, mut request: LockRequest) -> LockRequest {
                $(if let Some($value) = self.$option {
                    request = request.$option($value);
                })*
                request
            }
        }

        impl<K, R, U> LockLayer<K, R, U> {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $option(mut self, $value: $of) -> Self {
                    self.plan.options.$option = Some($value);
                    self
                }
            )*
        }
    };
}

request_options! {
    /// Waits up to `wait` for a busy lock; the request is then answered with 503. With zero, it is refused at once with
    /// 423. Default: the manager's wait, 10 s.
    ///
    /// Choose less than the clients' own timeout: a client that gives up leaves the queue, but only once its
    /// disconnection is noticed.
    wait(wait: Duration) = None;

    /// Sets the lease, which is the TTL of the key: 1 s to 24 h. Default: the manager's, 30 s. The lease is renewed
    /// while the request is served, so it need not cover a slow handler; it is how long a crashed process keeps its
    /// locks.
    ///
    /// If the lease is out of its bounds, every request that needs a lock is answered with 500.
    lease(lease: Duration) = None;

    /// Keeps the key taken for `least` from the grant on, even if the request is served before: 50 ms to 24 h. Default: the
    /// lock is given back at once. See [`LockRequest::min_hold`](lock_runtime::LockRequest::min_hold).
    ///
    /// If the time is out of its bounds, every request that needs a lock is answered with 500.
    min_hold(least: Duration) = None;

    /// Ends a hold, and the inner call with it, after `longest`; the request is then answered with 503. Default: 60 s.
    ///
    /// The time is counted from the moment the lock is granted, so it includes the time that the handler takes to read
    /// the request body: this is what stops a [slow upload](crate#slow-uploads) from keeping a key. With
    /// [`until_body_end`](Self::until_body_end) it includes the response body as well: a download or a stream of
    /// events that takes longer is cut off with an error. Without that option, response bodies are sent after the
    /// release and may take as long as they like.
    ///
    /// Choose the time that your slowest good request takes, and not much more.
    max_hold(longest: Duration) = Some(LONGEST_HOLD);

    /// Keeps a lock in this process for `idle` after the request that held it. The next request for the same key then
    /// gets the lock without a call to the store. `idle` is 50 ms to 24 h. Default: the lock is given back at once.
    ///
    /// Use it for keys whose requests nearly always reach the same process, by sticky sessions or by shards. A request
    /// that reaches another process gets the lock as soon as it asks, as [`LockRequest::keep_for`] says, which also
    /// names the stores that can do so. With another store, with another kind of lock
    /// ([`read_write`](Self::read_write), [`fair`](Self::fair), [`semaphore`](Self::semaphore)), or with a time out of its
    /// bounds, every request that needs a lock is answered with 500.
    ///
    /// [`LockRequest::keep_for`]: lock_runtime::LockRequest::keep_for
    ///
    /// ```
    /// use std::time::Duration;
    /// use lock_runtime::LockManager;
    /// use tower_lock::{LockLayer, RequestKey};
    ///
    /// let cart = RequestKey::new("cart").header("x-session");
    /// let layer = LockLayer::from_key(LockManager::in_memory(), cart).keep_for(Duration::from_secs(5));
    /// # drop(layer);
    /// ```
    keep_for(idle: Duration) = None;

    /// Sets the name of these locks in logs and metrics. Default: what [`LockKey::label`](crate::LockKey::label) says, which
    /// is the word of a [`RequestKey`](crate::RequestKey), or the template of a `key!` name.
    label(label: &'static str) = None;
}

impl<K, R, U> LockLayer<K, R, U> {
    /// Lets a request keep its lock for as long as its inner call takes. If it is called after
    /// [`until_body_end`](Self::until_body_end), a request keeps its lock for as long as its client takes to read the
    /// body. See [`max_hold`](Self::max_hold).
    ///
    /// Use it only where something else ends slow requests, such as a timeout inside of this layer: a client decides
    /// how fast it sends and reads, and keeps everybody else from the key meanwhile.
    #[must_use]
    pub fn no_max_hold(mut self) -> Self {
        self.plan.options.max_hold = None;
        self
    }

    /// Takes read/write locks: `GET` and `HEAD` requests for one key run side by side, any other runs alone. `OPTIONS`
    /// requests, such as the preflights of browsers, pass without a lock, even if they lack a part of the key. Default:
    /// every request runs alone, under a mutex.
    ///
    /// A name is either a mutex or a read/write lock: all other code that locks these names must use
    /// [`read`](LockManager::read) and [`write`](LockManager::write), too.
    ///
    /// ```
    /// use lock_runtime::LockManager;
    /// use tower_lock::{LockLayer, RequestKey};
    ///
    /// let order = RequestKey::new("order").path_segment_as::<u64>(1);
    /// let layer = LockLayer::from_key(LockManager::in_memory(), order).read_write();
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn read_write(self) -> LockLayer<ReadWrite<K>, R, U> {
        self.with_key(|key| ReadWrite { key })
    }

    /// Takes fair locks: requests are served in the order in which they came to the store, no matter which process they
    /// reached. Default: mutexes, for which processes take turns. Fair locks cost the store more, as
    /// [`LockManager::fair`] says.
    ///
    /// A name is a lock of one kind: all other code that locks these names must use `fair`, too. This option replaces
    /// [`semaphore`](Self::semaphore). It has no effect with [`read_write`](Self::read_write), whose locks have an order of
    /// their own.
    #[must_use]
    pub fn fair(mut self) -> Self {
        self.plan.options.mode = Mode::Fair;
        self
    }

    /// Serves `most` requests for one key at a time instead of one, under a semaphore that all processes share.
    /// Default: one, under a mutex.
    ///
    /// A request that finds no number of permits in the store sets `most`, and the store keeps it until no request for
    /// the key is served. [`Semaphore::set_permits`](lock_runtime::Semaphore::set_permits) sets a number that stays.
    /// With zero, every request that needs a lock is refused with 500, as with other settings for which a retry cannot
    /// help. Like [`fair`](Self::fair), this option needs names of its own, and has no effect with
    /// [`read_write`](Self::read_write). Permits do not re-enter: a handler that asks for one of the same name takes
    /// another one, and requests that each have one and want one more wait for one another.
    ///
    /// ```
    /// use lock_runtime::LockManager;
    /// use tower_lock::{LockLayer, RequestKey};
    ///
    /// // Three uploads of one tenant at a time.
    /// let uploads = RequestKey::new("uploads").header("x-tenant");
    /// let layer = LockLayer::from_key(LockManager::in_memory(), uploads).semaphore(3);
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn semaphore(mut self, most: u64) -> Self {
        self.plan.options.mode = Mode::Permits(most);
        self
    }

    /// Does the same as [`semaphore`](Self::semaphore).
    #[deprecated(
        note = "call `semaphore(most)`: on a semaphore, `permits(n)` says how many a caller takes"
    )]
    #[must_use]
    pub fn permits(self, most: u64) -> Self {
        self.semaphore(most)
    }

    /// Sets the number of requests that may wait in this layer's services. Default: as many as the manager's own caps
    /// allow.
    ///
    /// A request that comes while `most` requests wait is refused with 503 at once. A request counts from its arrival
    /// to the beginning of its inner call. It counts while its key is looked up
    /// ([`from_async_key`](LockLayer::from_async_key)). If its lock is free, it counts until the store has said so.
    /// Requests without a key count only while it is looked up.
    #[must_use]
    pub fn max_waiters(mut self, most: usize) -> Self {
        self.plan.caps.all = Some(most);
        self
    }

    /// Sets the number of requests that may wait for one key in this layer's services. It works like
    /// [`max_waiters`](Self::max_waiters), but a request counts from the moment its key is known.
    #[must_use]
    pub fn max_waiters_per_key(mut self, most: usize) -> Self {
        self.plan.caps.per_key = Some(most);
        self
    }

    /// Sets the number of requests of one client that may wait in this layer's services. Requests are one client's if
    /// `client`, a [`LockKey`](crate::LockKey) of its own, returns the same name for them. One more is refused with 429
    /// at once. Requests are counted as in [`max_waiters`](Self::max_waiters); the client's name is not locked.
    ///
    /// Requests for which `client` returns `None` are counted together, as if they were one client's: nobody gets
    /// around the cap by leaving the header out. A client that may choose its name does get around it: take the name
    /// from what an authenticating layer outside of this one has found
    /// ([`RequestKey::extension`](crate::RequestKey::extension)). A name that a `RequestKey` or `key!` makes is cut after 512
    /// bytes, escapes included: longer ones that begin alike are one client's, so a whole token or cookie is no good name. A
    /// second call replaces the first.
    ///
    /// ```
    /// use lock_runtime::LockManager;
    /// use tower_lock::{LockLayer, RequestKey};
    ///
    /// let order = RequestKey::new("order").path_segment_as::<u64>(1);
    /// let layer = LockLayer::from_key(LockManager::in_memory(), order)
    ///     .max_waiters_per_client(4, RequestKey::new("client").header("x-api-key"));
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn max_waiters_per_client<C>(
        self,
        most: usize,
        client: C,
    ) -> LockLayer<PerClient<K, C>, R, U> {
        self.with_key(|key| PerClient { key, client, most })
    }

    fn with_key<K2>(self, wrap: impl FnOnce(Arc<K>) -> K2) -> LockLayer<K2, R, U> {
        LockLayer {
            plan: self.plan,
            key: Arc::new(wrap(self.key)),
            until: PhantomData,
        }
    }

    /// Sets the answer to a refused request. Default: [`ProblemJson`].
    #[must_use]
    pub fn reply<R2>(self, reply: R2) -> LockLayer<K, R2, U> {
        LockLayer {
            plan: Plan {
                manager: self.plan.manager,
                options: self.plan.options,
                caps: self.plan.caps,
                waiters: self.plan.waiters,
                reply,
            },
            key: self.key,
            until: PhantomData,
        }
    }

    /// Holds the lock until the end of the response *body*, for handlers that stream what they do under the lock.
    /// Default: until the response future is done.
    ///
    /// `max_hold` replaces [`max_hold`](Self::max_hold) and bounds the inner call and the body together. A stream of
    /// events has no end of its own and is cut off then, and so is a download whose client reads slowly: such clients
    /// must be able to go on in a new request. The lock of a body that nobody reads is released then, too.
    ///
    /// The response's body type becomes [`HeldBody`](crate::types::HeldBody). The lock is released after the last
    /// frame, or when the body is dropped. A body whose lock is lost ends with an error instead of its rest: HTTP/1
    /// then closes the connection, HTTP/2 resets the stream, and the client knows that the response is not complete.
    ///
    /// A connection that is upgraded, such as a WebSocket, goes on outside of any body, where this layer cannot hold a lock
    /// for it. A response `101 Switching Protocols` is therefore replaced by a refusal with 500, and the log says why. A
    /// WebSocket over HTTP/2 and a tunnel that `CONNECT` opens have no such status: their locks end with the response. [WebSockets](crate#websockets) says
    /// how to hold a lock for them.
    #[must_use]
    pub fn until_body_end(mut self, max_hold: Duration) -> LockLayer<K, R, UntilBodyEnd> {
        self.plan.options.max_hold = Some(max_hold);
        LockLayer {
            plan: self.plan,
            key: self.key,
            until: PhantomData,
        }
    }
}

impl<S, K, R: Clone, U> Layer<S> for LockLayer<K, R, U> {
    type Service = LockService<S, K, R, U>;

    fn layer(&self, inner: S) -> LockService<S, K, R, U> {
        LockService::new(inner, self.plan.clone(), self.key.clone())
    }
}

impl<K, R: Clone, U> Clone for LockLayer<K, R, U> {
    fn clone(&self) -> LockLayer<K, R, U> {
        LockLayer {
            plan: self.plan.clone(),
            key: self.key.clone(),
            until: PhantomData,
        }
    }
}

impl<K, R: fmt::Debug, U> fmt::Debug for LockLayer<K, R, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("options", &self.plan.options)
            .field("caps", &self.plan.caps)
            .field("reply", &self.plan.reply)
            .finish_non_exhaustive()
    }
}

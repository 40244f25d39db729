//! The layer, and what it asks of its locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{LockManager, LockName, LockRequest};
use tower_layer::Layer;

use crate::reply::ProblemJson;
use crate::service::LockService;

/// Holds a lock per request around the inner service: see the [crate's documentation](crate).
///
/// | option | default | unit |
/// |---|---|---|
/// | [`wait`](LockLayer::wait) | the manager's, 10 s | time; zero refuses at once |
/// | [`lease`](LockLayer::lease) | the manager's, 30 s, renewed while the request is served | time, 1 s to 24 h |
/// | [`max_hold`](LockLayer::max_hold) | none | time, from 50 ms up |
/// | [`label`](LockLayer::label) | the template of a `key!` name | text |
/// | [`reply`](LockLayer::reply) | [`ProblemJson`] | a [`Reply`](crate::Reply) |
pub struct LockLayer<K, R = ProblemJson> {
    pub(crate) manager: LockManager,
    pub(crate) terms: Terms,
    // Shared: a key may own anything, and services are cloned for every connection or request.
    pub(crate) key: Arc<K>,
    pub(crate) reply: R,
}

/// What the layer asks of each lock; the manager's defaults fill the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    wait: Option<Duration>,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    label: Option<&'static str>,
}

impl Terms {
    pub(crate) fn request(&self, manager: &LockManager, name: LockName) -> LockRequest {
        let mut request = manager.mutex(name);
        if let Some(wait) = self.wait {
            request = request.wait(wait);
        }
        if let Some(lease) = self.lease {
            request = request.lease(lease);
        }
        if let Some(longest) = self.max_hold {
            request = request.max_hold(longest);
        }
        if let Some(label) = self.label {
            request = request.label(label);
        }
        request
    }

    pub(crate) fn waits(&self) -> bool {
        self.wait != Some(Duration::ZERO)
    }
}

impl<F> LockLayer<F> {
    /// A layer whose key is a closure over the HTTP request. It returns an owned name, or `None` for a request that
    /// needs no lock.
    ///
    /// Escape what comes from the request: [`LockKey`](crate::LockKey) says how and why.
    pub fn new<B, Name>(manager: LockManager, key: F) -> LockLayer<F>
    where
        F: Fn(&http::Request<B>) -> Option<Name>,
        Name: Into<LockName>,
    {
        LockLayer::build(manager, key)
    }
}

impl<K> LockLayer<K> {
    /// A layer with any [`LockKey`](crate::LockKey): an extractor, or a closure over requests that are not HTTP.
    pub fn from_key(manager: LockManager, key: K) -> LockLayer<K> {
        LockLayer::build(manager, key)
    }

    fn build(manager: LockManager, key: K) -> LockLayer<K> {
        LockLayer {
            manager,
            terms: Terms::default(),
            key: Arc::new(key),
            reply: ProblemJson,
        }
    }
}

impl<K, R> LockLayer<K, R> {
    /// Waits up to `wait` for a busy lock: the request is then answered 503. With zero it is refused at once, 423.
    /// Default: the manager's wait, 10 s, and 503 whatever it is.
    ///
    /// Choose less than the clients' own timeout: a client that gives up leaves the queue, but only once its
    /// disconnection is noticed.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.terms.wait = Some(wait);
        self
    }

    /// The lease: the TTL of the key, 1 s to 24 h. Default: the manager's, 30 s. It is renewed while the request is
    /// served, so it need not cover a slow handler; it is how long a crashed process keeps its locks.
    ///
    /// A lease out of its bounds answers every request that needs a lock with 500.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }

    /// Ends a hold, and the inner call with it, after `longest`: the request is answered 503. Default: no limit.
    #[must_use]
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.terms.max_hold = Some(longest);
        self
    }

    /// What logs and metrics call these locks. Default: the template of a `key!` name.
    #[must_use]
    pub fn label(mut self, label: &'static str) -> Self {
        self.terms.label = Some(label);
        self
    }

    /// What a refused request is answered with. Default: [`ProblemJson`].
    #[must_use]
    pub fn reply<R2>(self, reply: R2) -> LockLayer<K, R2> {
        let LockLayer {
            manager,
            terms,
            key,
            ..
        } = self;
        LockLayer {
            manager,
            terms,
            key,
            reply,
        }
    }
}

impl<S, K, R: Clone> Layer<S> for LockLayer<K, R> {
    type Service = LockService<S, K, R>;

    fn layer(&self, inner: S) -> LockService<S, K, R> {
        LockService::new(inner, self.clone())
    }
}

impl<K, R: Clone> Clone for LockLayer<K, R> {
    fn clone(&self) -> LockLayer<K, R> {
        LockLayer {
            manager: self.manager.clone(),
            terms: self.terms,
            key: self.key.clone(),
            reply: self.reply.clone(),
        }
    }
}

impl<K, R: fmt::Debug> fmt::Debug for LockLayer<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("terms", &self.terms)
            .field("reply", &self.reply)
            .finish_non_exhaustive()
    }
}

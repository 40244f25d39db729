//! The service that holds the lock around the inner one.

use std::fmt;
use std::mem;
use std::task::{Context, Poll};

use tower_service::Service;

use crate::future::ResponseFuture;
use crate::key::LockKey;
use crate::layer::LockLayer;
use crate::reply::Reply;

/// Holds a lock around each call of the inner service: made by [`LockLayer`].
///
/// It is ready when the inner service is, and the instance that said it was ready is the one that is called. While a
/// request waits for its lock, that instance and whatever it reserved (a concurrency permit, say) wait with it; they
/// are given back if the request is refused or its client goes away.
pub struct LockService<S, K, R> {
    inner: S,
    layer: LockLayer<K, R>,
}

impl<S, K, R> LockService<S, K, R> {
    pub(crate) fn new(inner: S, layer: LockLayer<K, R>) -> LockService<S, K, R> {
        LockService { inner, layer }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service. Calls made on it take no lock.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, R, Request> Service<Request> for LockService<S, K, R>
where
    S: Service<Request> + Clone,
    K: LockKey<Request>,
    R: Reply<S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, Request, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let layer = &self.layer;
        let Some(name) = layer.key.lock_name(&request) else {
            return ResponseFuture::unlocked(self.inner.call(request));
        };
        // A clone is not ready: the one that is goes with the request.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let guard = layer.terms.request(&layer.manager, name).acquire();
        ResponseFuture::locked(
            Box::pin(guard),
            ready,
            request,
            layer.reply.clone(),
            layer.terms.waits(),
        )
    }
}

impl<S: Clone, K, R: Clone> Clone for LockService<S, K, R> {
    fn clone(&self) -> LockService<S, K, R> {
        LockService {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, K, R: fmt::Debug> fmt::Debug for LockService<S, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish()
    }
}

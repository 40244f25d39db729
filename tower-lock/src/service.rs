//! The service that holds the lock around the inner one.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use crate::future::ResponseFuture;
use crate::hold_until::HoldUntil;
use crate::key::{FindKey, Found};
use crate::plan::Plan;
use crate::reply::Reply;

/// A service that holds a lock around each call of the inner service. [`LockLayer`](crate::LockLayer) makes it.
///
/// It is ready when the inner service is, and the instance that said it was ready is the one that is called. While a
/// request waits for its lock, that instance and anything that it has reserved (a concurrency permit, for example) wait
/// with it. They are given back if the request is refused or its client goes away.
///
/// See the example of [the crate](crate#example).
pub struct LockService<S, K, R, U> {
    inner: S,
    plan: Plan<R>,
    key: Arc<K>,
    until: PhantomData<fn() -> U>,
}

impl<S, K, R, U> LockService<S, K, R, U> {
    pub(crate) fn new(inner: S, plan: Plan<R>, key: Arc<K>) -> LockService<S, K, R, U> {
        LockService {
            inner,
            plan,
            key,
            until: PhantomData,
        }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service. Calls made on it take no lock.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone, K, R, U> LockService<S, K, R, U> {
    /// Takes the instance that is ready, and puts a clone of it in its place, which need not be ready.
    fn take_ready(&mut self) -> S {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }
}

impl<S, K, R, U, Request> Service<Request> for LockService<S, K, R, U>
where
    S: Service<Request> + Clone,
    K: FindKey<Request>,
    R: Reply<U::Response, S::Error> + Clone,
    U: HoldUntil<S, Request>,
{
    type Response = U::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, Request, R, U>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match K::find(&self.key, request) {
            Found::Free(request) => ResponseFuture::unlocked(self.inner.call(request)),
            // A request that needs no lock copies neither the plan nor the service.
            Found::Now(request, demand, _) if matches!(demand.name, Ok(None)) => {
                self.plan.passed(demand.label);
                ResponseFuture::unlocked(self.inner.call(request))
            }
            Found::Now(request, demand, client) => {
                let plan = self.plan.clone();
                ResponseFuture::known(plan, client, demand, self.take_ready(), request)
            }
            Found::Later(finding, client) => {
                let plan = self.plan.clone();
                ResponseFuture::finding(plan, client, finding, self.take_ready())
            }
        }
    }
}

impl<S: Clone, K, R: Clone, U> Clone for LockService<S, K, R, U> {
    fn clone(&self) -> LockService<S, K, R, U> {
        LockService {
            inner: self.inner.clone(),
            plan: self.plan.clone(),
            key: self.key.clone(),
            until: PhantomData,
        }
    }
}

impl<S: fmt::Debug, K, R: fmt::Debug, U> fmt::Debug for LockService<S, K, R, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService")
            .field("inner", &self.inner)
            .field("options", &self.plan.options)
            .field("caps", &self.plan.caps)
            .finish_non_exhaustive()
    }
}

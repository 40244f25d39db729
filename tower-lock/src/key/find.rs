//! The search for the lock that a request needs, its mode and its client.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;
use http::{Method, Request};
use lock_runtime::LockName;

use crate::key::LockKey;
use crate::refusal::Refusal;

/// The future that an asynchronous key returns: `Box::pin(async move { … })`.
///
/// See the example of [`LockLayer::from_async_key`](crate::LockLayer::from_async_key).
pub type KeyFuture<'a> = Pin<Box<dyn Future<Output = Option<LockName>> + Send + 'a>>;

/// A key of a [`LockLayer`](crate::LockLayer): every [`LockKey`], the asynchronous keys of
/// [`LockLayer::from_async_key`](crate::LockLayer::from_async_key), and either with a cap per client or with
/// read/write locks. No other type can implement this trait.
///
/// See the example of [`LockLayer`](crate::LockLayer).
#[diagnostic::on_unimplemented(
    message = "`{Self}` finds no lock key in `{Request}`",
    label = "makes no lock name from this request",
    note = "a key is a closure `|request: &{Request}| -> Option<impl Into<LockName>>`, a `RequestKey`, or your own \
            `LockKey`"
)]
pub trait FindKey<Request> {
    // Nobody else can name what it returns.
    #[doc(hidden)]
    fn find(this: &Arc<Self>, request: Request) -> Found<Request>;
}

/// A request and its demand, which is known now or later.
pub enum Found<Request> {
    /// The request needs no lock, whatever its key is.
    Free(Request),
    Now(Request, Demand, Option<Client>),
    /// The client is known before the key is: a request counts while its key is looked up.
    Later(Finding<Request>, Option<Client>),
}

pub(crate) type Finding<Request> = Pin<Box<dyn Future<Output = (Request, Demand)> + Send>>;

/// The client of a request, and the number of its requests that may wait.
#[derive(Debug)]
pub struct Client {
    /// The client's name. It is `None` for all requests that name no client, which are counted as one.
    pub(crate) name: Option<LockName>,
    pub(crate) most: usize,
}

impl<Request> fmt::Debug for Found<Request> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Found::Free(..) => "Free",
            Found::Now(..) => "Now",
            Found::Later(..) => "Later",
        })
    }
}

impl<Request: 'static> Found<Request> {
    /// Completes the demand, now or once it is known.
    fn with(self, complete: impl FnOnce(&mut Demand) + Send + 'static) -> Found<Request> {
        match self {
            Found::Free(request) => Found::Free(request),
            Found::Now(request, mut demand, client) => {
                complete(&mut demand);
                Found::Now(request, demand, client)
            }
            Found::Later(finding, client) => {
                let completed = async move {
                    let (request, mut demand) = finding.await;
                    complete(&mut demand);
                    (request, demand)
                };
                Found::Later(Box::pin(completed), client)
            }
        }
    }

    fn of(mut self, whose: Client) -> Found<Request> {
        if let Found::Now(.., client) | Found::Later(_, client) = &mut self {
            *client = Some(whose);
        }
        self
    }
}

/// The lock that a request needs, if any.
#[derive(Debug)]
pub struct Demand {
    /// The name of the lock, if any, or the refusal of the request.
    pub(crate) name: Result<Option<LockName>, Refusal>,
    /// The mode that the request's method asks for, if the layer goes by the method.
    pub(crate) mode: Option<Mode>,
    /// The key's own name for these locks in logs and metrics.
    pub(crate) label: Option<&'static str>,
}

/// The mode in which the lock is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Exclusive,
    Fair,
    Read,
    Write,
    /// One permit of a semaphore that has this number.
    Permits(u64),
}

impl<K, Request> FindKey<Request> for K
where
    K: LockKey<Request>,
{
    fn find(this: &Arc<Self>, request: Request) -> Found<Request> {
        let demand = Demand {
            name: this.find_name(&request),
            mode: None,
            label: this.label(),
        };
        Found::Now(request, demand, None)
    }
}

/// A key that is found asynchronously: see [`LockLayer::from_async_key`](crate::LockLayer::from_async_key).
///
/// See the example of [`LockLayer::from_async_key`](crate::LockLayer::from_async_key).
pub struct AsyncKey<F> {
    pub(crate) find: F,
}

impl<F, B> FindKey<Request<B>> for AsyncKey<F>
where
    F: for<'a> Fn(&'a mut Parts) -> KeyFuture<'a> + Send + Sync + 'static,
    B: Send + 'static,
{
    fn find(this: &Arc<Self>, request: Request<B>) -> Found<Request<B>> {
        let key = this.clone();
        let finding = async move {
            let (mut parts, body) = request.into_parts();
            let demand = Demand {
                name: Ok((key.find)(&mut parts).await),
                mode: None,
                label: None,
            };
            (Request::from_parts(parts, body), demand)
        };
        Found::Later(Box::pin(finding), None)
    }
}

impl<F> fmt::Debug for AsyncKey<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncKey").finish_non_exhaustive()
    }
}

/// A key with a cap per client: see
/// [`LockLayer::max_waiters_per_client`](crate::LockLayer::max_waiters_per_client).
///
/// See the example of [`LockLayer::max_waiters_per_client`](crate::LockLayer::max_waiters_per_client).
#[derive(Debug)]
pub struct PerClient<K, C> {
    pub(crate) key: Arc<K>,
    pub(crate) client: C,
    pub(crate) most: usize,
}

// This is for HTTP requests only: a blanket implementation for all requests would overlap with that for keys.
impl<K, C, B> FindKey<Request<B>> for PerClient<K, C>
where
    K: FindKey<Request<B>>,
    C: LockKey<Request<B>>,
    B: 'static,
{
    fn find(this: &Arc<Self>, request: Request<B>) -> Found<Request<B>> {
        let client = Client {
            name: this.client.lock_name(&request),
            most: this.most,
        };
        K::find(&this.key, request).of(client)
    }
}

/// A key whose lock is taken in the mode that the request's method asks for: see
/// [`LockLayer::read_write`](crate::LockLayer::read_write).
///
/// See the example of [`LockLayer::read_write`](crate::LockLayer::read_write).
#[derive(Debug)]
pub struct ReadWrite<K> {
    pub(crate) key: Arc<K>,
}

impl<K, B> FindKey<Request<B>> for ReadWrite<K>
where
    K: FindKey<Request<B>>,
    B: 'static,
{
    fn find(this: &Arc<Self>, request: Request<B>) -> Found<Request<B>> {
        let mode = match *request.method() {
            Method::GET | Method::HEAD => Mode::Read,
            // It asks what may be done and does nothing: a browser's preflight must not wait for readers, nor make them wait.
            Method::OPTIONS => return Found::Free(request),
            _ => Mode::Write,
        };
        K::find(&this.key, request).with(move |demand| demand.mode = Some(mode))
    }
}

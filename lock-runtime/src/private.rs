//! What the attribute's expansion calls. Not public API: it changes without notice.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

pub use crate::convert::FromLockError;
pub use crate::error::LockError;
use crate::guard::LockGuard;
use crate::manager::LockManager;
pub use crate::name::{KeyPart, LockName};
use crate::options::Overrides;
use crate::scope::Protect;

/// Builds the escaped name that a key template describes.
#[derive(Debug)]
pub struct KeyBuilder {
    name: LockName,
}

impl KeyBuilder {
    /// Starts a name; the template is its label.
    pub fn new(template: &'static str) -> KeyBuilder {
        KeyBuilder {
            name: LockName::from(String::with_capacity(64)).template(template),
        }
    }

    /// Appends a part of the template.
    #[must_use]
    pub fn literal(self, text: &'static str) -> KeyBuilder {
        KeyBuilder {
            name: self.name.literal(text),
        }
    }

    /// Appends a placeholder's value, escaped.
    #[must_use]
    pub fn part(self, value: &(impl KeyPart + ?Sized)) -> KeyBuilder {
        KeyBuilder {
            name: self.name.with(value),
        }
    }

    /// The name. An empty value makes it invalid, which `enter` reports.
    pub fn finish(self) -> LockName {
        self.name
    }
}

/// The attribute's options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// See [`LockRequest::wait`](crate::LockRequest::wait).
    pub wait: Option<Duration>,
    /// See [`LockRequest::lease`](crate::LockRequest::lease).
    pub lease: Option<Duration>,
    /// See [`LockRequest::auto_renew`](crate::LockRequest::auto_renew).
    pub auto_renew: Option<bool>,
    /// See [`LockRequest::max_hold`](crate::LockRequest::max_hold).
    pub max_hold: Option<Duration>,
    /// See [`LockRequest::label`](crate::LockRequest::label).
    pub label: Option<&'static str>,
}

/// Acquires the lock of an annotated function. `None`: through the global manager.
pub async fn enter(
    manager: Option<&LockManager>,
    name: LockName,
    call: Call,
) -> Result<LockGuard, LockError> {
    let request = match manager {
        Some(manager) => manager.mutex(name),
        None => LockManager::global()?.mutex(name),
    };
    let Call {
        wait,
        lease,
        auto_renew,
        max_hold,
        label,
    } = call;
    let overrides = Overrides {
        wait: wait.map(Some),
        lease,
        auto_renew,
        max_hold,
        label,
    };
    request.with(overrides).acquire().await
}

/// A key given as an expression.
pub fn name(key: impl Into<LockName>) -> LockName {
    key.into()
}

/// Runs the body of an annotated function under its guard. `refuse` makes the value for a body that was dropped
/// because the hold was lost.
pub fn hold<F, R>(guard: LockGuard, refuse: R, body: F) -> Hold<F, R>
where
    F: Future,
    R: FnOnce(LockError) -> F::Output,
{
    Hold {
        protect: Protect::new(guard.share, body),
        refuse: Some(refuse),
    }
}

pin_project! {
    /// The future of [`hold`]. It is `Send` if the body is.
    #[must_use = "futures do nothing unless polled"]
    pub struct Hold<F: Future, R> {
        #[pin]
        protect: Protect<F>,
        refuse: Option<R>,
    }
}

impl<F, R> Future for Hold<F, R>
where
    F: Future,
    R: FnOnce(LockError) -> F::Output,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let outcome = ready!(this.protect.poll(cx));
        match (outcome.into_result(), this.refuse.take()) {
            (Ok(value), _) => Poll::Ready(value),
            (Err(error), Some(refuse)) => Poll::Ready(refuse(error)),
            // Only polled again after it was ready, which promises nothing.
            (Err(_), None) => Poll::Pending,
        }
    }
}

impl<F: Future, R> std::fmt::Debug for Hold<F, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

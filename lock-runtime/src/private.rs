//! What the attribute's expansion calls. Not public API: it changes without notice.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

pub use crate::convert::{FromLockError, Skipped};
pub use crate::error::LockError;
pub use crate::guard::LockGuard;
use crate::manager::LockManager;
pub use crate::name::{KeyPart, LockName};
use crate::options::Overrides;
use crate::request::LockRequest;
use crate::scope::{Outcome, Protect};
use crate::term;

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
    /// The key stays taken for at least this long, even if the body ends before.
    pub min_hold: Option<Duration>,
}

/// Acquires the lock of an annotated function. `None`: through the global manager.
pub fn enter(
    manager: Option<&LockManager>,
    name: LockName,
    call: Call,
) -> Enter<impl Future<Output = Result<LockGuard, LockError>> + Send + use<>> {
    let (acquiring, refused) = match request(manager, name, &call) {
        Ok(request) => (Some(request.acquire()), None),
        Err(error) => (None, Some(error)),
    };
    Enter {
        acquiring,
        refused,
        min_hold: call.min_hold,
    }
}

/// [`enter`], if `when` says so; `None`: the body runs without the lock.
pub fn enter_when(
    when: bool,
    manager: Option<&LockManager>,
    name: LockName,
    call: Call,
) -> EnterWhen<impl Future<Output = Result<LockGuard, LockError>> + Send + use<>> {
    EnterWhen {
        entering: when.then(|| enter(manager, name, call)),
    }
}

pin_project! {
    /// The future of [`enter`]. Written by hand: an `async` block has its captures twice, and these are large.
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Enter<A> {
        #[pin]
        acquiring: Option<A>,
        refused: Option<LockError>,
        min_hold: Option<Duration>,
    }
}

impl<A: Future<Output = Result<LockGuard, LockError>>> Future for Enter<A> {
    type Output = Result<LockGuard, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let entered = match (this.acquiring.as_pin_mut(), this.refused.take()) {
            (Some(acquiring), _) => ready!(acquiring.poll(cx)),
            (None, Some(error)) => Err(error),
            // Only polled again after it was ready, which promises nothing.
            (None, None) => return Poll::Pending,
        };
        Poll::Ready(entered.map(|mut guard| {
            if let Some(least) = *this.min_hold {
                guard.shares.keep_for(least);
            }
            guard
        }))
    }
}

pin_project! {
    /// The future of [`enter_when`].
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct EnterWhen<A> {
        #[pin]
        entering: Option<Enter<A>>,
    }
}

impl<A: Future<Output = Result<LockGuard, LockError>>> Future for EnterWhen<A> {
    type Output = Result<Option<LockGuard>, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().entering.as_pin_mut() {
            Some(entering) => entering.poll(cx).map_ok(Some),
            None => Poll::Ready(Ok(None)),
        }
    }
}

fn request(
    manager: Option<&LockManager>,
    name: LockName,
    call: &Call,
) -> Result<LockRequest, LockError> {
    if let Some(least) = call.min_hold
        && !(term::MIN..=term::MAX).contains(&least)
    {
        let why = format!("`min_hold` lasts 50 ms to 24 h, not {least:?}");
        return Err(LockError::InvalidConfig { why });
    }
    let request = match manager {
        Some(manager) => manager.mutex(name),
        None => LockManager::global()?.mutex(name),
    };
    Ok(request.with(Overrides {
        wait: call.wait.map(Some),
        lease: call.lease,
        auto_renew: call.auto_renew,
        max_hold: call.max_hold,
        label: call.label,
    }))
}

/// A key given as an expression.
pub fn name(key: impl Into<LockName>) -> LockName {
    key.into()
}

/// What `on_busy = skip` returns instead of the body's value.
pub fn skip<T: Skipped>(error: LockError) -> T {
    match error {
        LockError::Busy { .. } => T::skipped(),
        error => T::failed(error),
    }
}

/// What becomes of a body whose hold is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLost {
    /// It is dropped.
    Cancel,
    /// It goes on to its end, and its value counts.
    Finish,
    /// It is dropped; if it was complete before the loss was known, its value does not count.
    Error,
}

/// Runs the body of an annotated function under its guard, if there is one. `refuse` makes the value for a body that
/// was dropped because the hold was lost.
pub fn hold<F, R>(guard: impl Into<Option<LockGuard>>, refuse: R, body: F) -> Hold<F, R>
where
    F: Future,
    R: FnOnce(LockError) -> F::Output,
{
    let run = match guard.into() {
        Some(guard) => Run::Locked {
            protect: Protect::new(guard.shares, body),
        },
        None => Run::Free { body },
    };
    Hold {
        run,
        refuse: Some(refuse),
        on_lost: OnLost::Cancel,
    }
}

pin_project! {
    /// The future of [`hold`]. It is `Send` if the body is.
    #[must_use = "futures do nothing unless polled"]
    pub struct Hold<F: Future, R> {
        #[pin]
        run: Run<F>,
        refuse: Option<R>,
        on_lost: OnLost,
    }
}

pin_project! {
    #[project = RunNow]
    enum Run<F: Future> {
        Locked {
            #[pin]
            protect: Protect<F>,
        },
        Free {
            #[pin]
            body: F,
        },
    }
}

impl<F: Future, R> Hold<F, R> {
    /// Says what a loss does. Default: [`OnLost::Cancel`].
    pub fn on_lost(mut self, on_lost: OnLost) -> Hold<F, R> {
        self.on_lost = on_lost;
        if let Run::Locked { protect } = self.run {
            let protect = protect.finishing(on_lost == OnLost::Finish);
            self.run = Run::Locked { protect };
        }
        self
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
        let outcome = match this.run.project() {
            RunNow::Free { body } => return body.poll(cx),
            RunNow::Locked { protect } => ready!(protect.poll(cx)),
        };
        let value = match outcome {
            Outcome::Completed {
                loss: Some(loss), ..
            } if *this.on_lost == OnLost::Error => Err(loss),
            outcome => outcome.into_result(),
        };
        match (value, this.refuse.take()) {
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

/// What the function of `on_busy = call(..)` returned is a future, or the value itself. `(&returned).kind()` tells,
/// because method lookup tries [`KindLater`] one reference before [`KindNow`].
#[derive(Debug)]
pub struct Later;

/// See [`Later`].
#[derive(Debug)]
pub struct Now;

/// See [`Later`].
pub trait KindLater {
    /// For futures.
    fn kind(&self) -> Later {
        Later
    }
}

impl<F: Future> KindLater for F {}

/// See [`Later`].
pub trait KindNow {
    /// For everything else.
    fn kind(&self) -> Now {
        Now
    }
}

impl<T> KindNow for &T {}

impl Later {
    /// The future itself.
    pub fn answer<F: Future>(self, returned: F) -> F {
        returned
    }
}

impl Now {
    /// A future that has the value already.
    pub fn answer<T>(self, returned: T) -> std::future::Ready<T> {
        std::future::ready(returned)
    }
}

//! The functions that the attribute's expansion calls. They are not public API, and change without notice.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

pub use crate::api::convert::{FromLockError, Skipped};
pub use crate::api::guard::LockGuard;
use crate::api::manager::LockManager;
use crate::api::multi::{MultiRequest, acquire_all};
use crate::api::request::{LockRequest, acquire_checked};
pub use crate::protect::driver::OnLost;
use crate::protect::driver::{Body, BodyOrValue, Driver, polled_after_completion};
pub use crate::values::Overrides;
pub use crate::values::error::LockError;
pub use crate::values::name::{KeyPart, LockName};
use crate::values::{IntoLockName, rare};

/// Starts the name that a key template describes; the template is its label.
pub fn template(template: &'static str) -> LockName {
    LockName::from(String::with_capacity(64)).template(template)
}

/// The kind of lock that an annotated function takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// See [`LockManager::mutex`].
    #[default]
    Exclusive,
    /// See [`LockManager::fair`].
    Fair,
    /// See [`LockManager::read`].
    Read,
    /// See [`LockManager::write`].
    Write,
    /// One permit of a semaphore that has this number in all: see [`LockManager::semaphore`].
    Semaphore(u64),
}

/// Returns the names of `keys = ..`.
pub fn several(names: impl IntoIterator<Item: IntoLockName>) -> Vec<LockName> {
    names.into_iter().map(name).collect()
}

/// Acquires the lock of an annotated function, through the global manager if `manager` is `None`.
pub fn enter(
    manager: Option<&LockManager>,
    name: LockName,
    mode: Mode,
    overrides: Overrides,
) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
    let request = request(manager, name, mode, overrides);
    acquire_checked(request.and_then(LockRequest::into_checked))
}

/// Acquires the locks of `keys = ..`.
pub fn enter_all(
    manager: Option<&LockManager>,
    names: Vec<LockName>,
    mode: Mode,
    overrides: Overrides,
) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
    let one = |name| request(manager, name, mode, overrides);
    let requests: Result<_, _> = names.into_iter().map(one).collect();
    let request = requests.map(MultiRequest::new);
    // A function with several locks needs no larger future than one with a single lock.
    rare(acquire_all(request.and_then(MultiRequest::members)))
}

/// Calls [`enter`] or [`enter_all`] if `when` is true. Otherwise the result is `None`, and the body runs without the lock.
pub fn enter_when<N, A>(
    when: bool,
    enter: impl FnOnce(Option<&LockManager>, N, Mode, Overrides) -> A,
    manager: Option<&LockManager>,
    names: N,
    mode: Mode,
    overrides: Overrides,
) -> EnterWhen<A> {
    EnterWhen {
        entering: when.then(|| enter(manager, names, mode, overrides)),
    }
}

pin_project! {
    /// The future of [`enter_when`]. It is written by hand, because an `async` block stores its captures twice, and these
    /// are large.
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct EnterWhen<A> {
        #[pin]
        entering: Option<A>,
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
    mode: Mode,
    overrides: Overrides,
) -> Result<LockRequest, LockError> {
    let global;
    let manager = match manager {
        Some(manager) => manager,
        None => {
            global = LockManager::global()?;
            &global
        }
    };
    let request = match mode {
        Mode::Exclusive => manager.mutex(name),
        Mode::Fair => manager.fair(name),
        Mode::Read => manager.read(name),
        Mode::Write => manager.write(name),
        Mode::Semaphore(in_all) => manager.semaphore(name).in_all(in_all).permits(1),
    };
    Ok(request.with(overrides))
}

/// Makes the name of a key that is given as an expression.
pub fn name(key: impl IntoLockName) -> LockName {
    key.into_lock_name()
}

/// A function that makes the return type `R` from an error. It is an alias, because an elided lifetime of `R` could not
/// be inferred if the function's type were written out: it would be one of `fn`, which has no argument to borrow from.
pub type Refuse<R> = fn(LockError) -> R;

/// Calls a closure that is known to be called once, so that its value may borrow from its captures.
pub fn call<T>(body: impl FnOnce() -> T) -> T {
    body()
}

/// Makes the value that `on_busy = skip` returns instead of the body's.
pub fn skip<T: Skipped>(error: LockError) -> T {
    match error {
        LockError::Busy { .. } => T::skipped(),
        error => T::failed(error),
    }
}

/// Runs the body of an annotated function under its guard, if there is one. `refuse` makes the value for a body that
/// was dropped because the hold was lost.
pub fn hold<F: Future>(
    guard: impl Into<Option<LockGuard>>,
    refuse: Refuse<F::Output>,
    body: F,
) -> Hold<F> {
    Hold {
        body: BodyOrValue::Body { body },
        driver: guard.into().map(|guard| Driver::new(guard.handles)),
        refuse,
    }
}

pin_project! {
    /// The future of [`hold`]. It is `Send` if the body is.
    #[must_use = "futures do nothing unless polled"]
    pub struct Hold<F: Future> {
        // Declared before the driver, so that the body is dropped first, while the lock is still held.
        #[pin]
        body: BodyOrValue<F>,
        #[pin]
        driver: Option<Driver>,
        refuse: Refuse<F::Output>,
    }
}

impl<F: Future> Hold<F> {
    /// Sets what a loss does. Default: [`OnLost::Cancel`].
    pub fn on_lost(mut self, on_lost: OnLost) -> Hold<F> {
        if let Some(driver) = &mut self.driver {
            driver.on_lost = on_lost;
        }
        self
    }
}

impl<F: Future> Future for Hold<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let ended = ready!(poll_held(this.driver, cx, this.body.as_mut()));
        Poll::Ready(match ended {
            Ok(()) => this
                .body
                .take()
                .unwrap_or_else(|| polled_after_completion()),
            Err(error) => (this.refuse)(error),
        })
    }
}

/// Polls the body, under the driver if there is one. Like [`Driver`], it is not generic, because generic code is
/// compiled for each annotated function.
fn poll_held(
    driver: Pin<&mut Option<Driver>>,
    cx: &mut Context<'_>,
    body: Pin<&mut (dyn Body + '_)>,
) -> Poll<Result<(), LockError>> {
    match driver.as_pin_mut() {
        Some(driver) => driver.poll_value(cx, body),
        None => body.poll(cx).map(Ok),
    }
}

impl<F: Future> std::fmt::Debug for Hold<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

/// The kind of a future. The function of `on_busy = call(..)` returns a future, or the value itself, which is of the
/// kind [`Now`]. `(&returned).__lock_kind()` tells which, because method lookup tries [`KindLater`] one reference before
/// [`KindNow`]. A user's type has no method of that name, which would come first.
#[derive(Debug)]
pub struct Later;

/// See [`Later`].
#[derive(Debug)]
pub struct Now;

/// See [`Later`].
pub trait KindLater {
    /// Returns the kind of futures.
    fn __lock_kind(&self) -> Later {
        Later
    }
}

impl<F: Future> KindLater for F {}

/// See [`Later`].
pub trait KindNow {
    /// Returns the kind of everything else.
    fn __lock_kind(&self) -> Now {
        Now
    }
}

impl<T> KindNow for &T {}

impl Later {
    /// Returns the future itself.
    pub fn __lock_answer<F: Future>(self, returned: F) -> F {
        returned
    }
}

impl Now {
    /// Returns a future that has the value already.
    pub fn __lock_answer<T>(self, returned: T) -> std::future::Ready<T> {
        std::future::ready(returned)
    }
}

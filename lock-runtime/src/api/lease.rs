//! A view of a hold for code that does not own it.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use crate::hold::{CallChain, Frame, Held, Nest};
use crate::protect::ScopeFuture;
use crate::values::{FencingToken, LostReason};

/// A read-only view of a hold, which [`run`](crate::LockRequest::run) and the attribute's `guard = …` pass to the body.
/// It is cheap to clone, and does not keep the lock.
#[derive(Clone)]
#[must_use = "a lease is a view: it does not keep the lock, and does nothing by itself"]
pub struct Lease {
    call_chain: CallChain,
}

impl Lease {
    pub(crate) fn new(call_chain: CallChain) -> Lease {
        Lease { call_chain }
    }

    /// Returns the lease of the innermost lock under which the calling code runs: that of the attribute, of
    /// [`run`](crate::LockRequest::run), of [`scope`](Lease::scope), or of `tower_lock`'s layer around it. It is `None`
    /// if the code runs under none, and in a task that was spawned from there without `scope`. A guard that is only
    /// kept in a variable does not count: ask the guard.
    ///
    /// ```
    /// # use lock_runtime::{LockManager, Lease};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// async fn write() -> Option<u64> {
    ///     let lease = Lease::current()?;
    ///     Some(lease.fencing_token()?.get())
    /// }
    ///
    /// let locks = LockManager::in_memory();
    /// assert_eq!(write().await, None);
    /// let outcome = locks.mutex("order:17").run(async |_| write().await).await?;
    /// assert!(outcome.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn current() -> Option<Lease> {
        Frame::current()?.call_chain().map(Lease::new)
    }

    pub(super) fn held(&self) -> &Held {
        &self.call_chain.held
    }

    /// Returns the lock's name, without the namespace. For several locks that are held as one, it has all names.
    pub fn name(&self) -> &str {
        self.held().name()
    }

    /// Returns the hold's fencing token. It is `None` for reads that are not nested in a write, for permits, for a
    /// write that became a read, on a quorum, with [`fencing(false)`](crate::LockManagerBuilder::fencing) (except for
    /// `fenced`), and for several locks that are held as one: see [`members`](Lease::members).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held().token()
    }

    /// Returns each lock with its own token: one, or those of [`LockManager::multi`](crate::LockManager::multi) in the
    /// order in which they were taken.
    pub fn members(&self) -> impl Iterator<Item = MemberLock<'_>> {
        members(self.held())
    }

    /// Returns true until the local deadline, the release, or until a loss is known. Nobody whom this hold excludes was
    /// admitted before that, provided that the store kept the key and its clock did not step. It does no I/O.
    #[must_use = "nothing stops the code after it if the lock is lost: ask in a condition"]
    pub fn is_held(&self) -> bool {
        self.held().is_held()
    }

    /// Returns the time that the hold lasts if no further renewal is confirmed. Zero once it is over.
    #[must_use = "it only tells how long the hold lasts"]
    pub fn remaining(&self) -> Duration {
        self.held().remaining()
    }

    /// Resolves when the hold is lost; never after a normal release.
    pub fn lost(&self) -> Lost {
        Lost::new(self.held().clone())
    }

    /// Resolves when the manager begins to shut down. A body that ends by itself then ends in good order: after
    /// [`shutdown_grace`](crate::LockManagerBuilder::shutdown_grace), 10 s by default, the shutdown ends it as lost.
    /// For several locks that are held as one, the first manager that shuts down counts.
    ///
    /// The future does not keep the lock. It resolves whether the hold still lives or not.
    ///
    /// # Cancel safety
    /// May be dropped and called again at any time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// # let manager = locks.clone();
    /// # tokio::spawn(async move {
    /// #     tokio::time::sleep(Duration::from_secs(3)).await;
    /// #     manager.shutdown().await;
    /// # });
    /// let mut every = tokio::time::interval(Duration::from_secs(1));
    /// let import = locks.mutex("import").run(async |lease| loop {
    ///     tokio::select! {
    ///         () = lease.closing() => return "in good order",
    ///         _ = every.tick() => println!("a step, which is not cut in half"),
    ///     }
    /// });
    /// assert_eq!(import.await?, "in good order");
    /// # Ok(())
    /// # }
    /// ```
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.held().clone().closing()
    }

    /// Runs `future` under this hold: a request for the same lock inside it re-enters. Also passes the hold on to a
    /// spawned task, `tokio::spawn(lease.scope(work))`, which then counts as nested in it. Other holds that this one
    /// was acquired under are not passed on with it: `outer.scope(inner.scope(work))` passes both.
    pub fn scope<F: Future>(&self, future: F) -> ScopeFuture<F> {
        ScopeFuture::new(self.call_chain.clone(), future)
    }

    /// Runs a closure under this hold.
    pub(crate) fn enter<T>(&self, body: impl FnOnce() -> T) -> T {
        Nest::new(self.call_chain.clone()).call(body)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held().show("Lease", f)
    }
}

/// One lock of those that a guard holds.
///
/// See the example of [`MultiRequest`](crate::MultiRequest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberLock<'a> {
    /// The lock's name, without the namespace.
    pub name: &'a str,
    /// Its fencing token, if this kind of lock has one.
    pub fencing_token: Option<FencingToken>,
}

pub(crate) fn members(held: &Held) -> impl Iterator<Item = MemberLock<'_>> {
    held.holds().iter().map(|hold| MemberLock {
        name: hold.key().name(),
        fencing_token: hold.token(),
    })
}

/// The loss of a hold, as a signal: `lost.await`, `lost.wait().await`, `lost.is_lost()`.
///
/// ```
/// # use lock_runtime::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.mutex("import").acquire().await?;
/// let work = async { 7 };
/// tokio::select! {
///     biased;
///     reason = guard.lost() => eprintln!("stop: {reason}"),
///     imported = work => assert_eq!(imported, 7),
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nobody learns of the loss: await it, or ask `is_lost`"]
pub struct Lost {
    held: Held,
}

impl Lost {
    pub(crate) fn new(held: Held) -> Lost {
        Lost { held }
    }

    /// Returns true once the hold is lost. It does no I/O.
    #[must_use = "nothing stops the code after it if the lock is lost: ask in a condition"]
    pub fn is_lost(&self) -> bool {
        self.held.loss().is_some()
    }

    /// Resolves with the reason when the hold is lost; never after a normal release.
    ///
    /// # Cancel safety
    /// May be dropped and called again at any time.
    pub async fn wait(&self) -> LostReason {
        self.held.clone().over().await;
        match self.held.loss() {
            Some(loss) => loss.reason,
            None => std::future::pending().await,
        }
    }
}

impl IntoFuture for Lost {
    type Output = LostReason;
    type IntoFuture = Pin<Box<dyn Future<Output = LostReason> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.wait().await })
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost")
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

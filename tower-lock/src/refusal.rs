//! The reasons why the lock kept a request from being served.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use lock_runtime::{LockError, ShutdownCause};

/// The range of the hints that clients get. It does not depend on the lease: a hint tells a client when to ask again,
/// not when the lock will be free.
const RETRY_AFTER_MILLIS: std::ops::RangeInclusive<u64> = 1_000..=5_000;

/// The reason why the lock kept a request from being served, or its response from being finished.
///
/// A [`Reply`](crate::Reply) makes a response or an error out of it. Its `Display` and its
/// [`source`](std::error::Error::source) are for logs: they name the lock. Clients should be shown the
/// [`kind`](Refusal::kind) alone.
#[derive(Clone, Debug)]
pub struct Refusal {
    kind: RefusalKind,
    error: Option<LockError>,
    /// What is wrong with the request's key: for the client if the kind is `BadKey`, else for logs.
    flaw: Option<String>,
    retry_after: Option<Duration>,
}

/// The kinds of [`Refusal`], with the status that the HTTP replies give them.
///
/// ```
/// use lock_runtime::test_util::error;
/// use tower_lock::{Refusal, RefusalKind};
///
/// let refusal = Refusal::from(error::unavailable("order:17", "connection reset"));
/// assert_eq!(refusal.kind(), RefusalKind::Unavailable);
/// assert_eq!(refusal.kind().status(), 503);
/// println!("{}", refusal.kind().detail()); // names neither the lock nor the store
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// Somebody else holds the lock, and the layer does not wait: 423.
    Busy,
    /// Somebody else held the lock for the whole wait: 503.
    WaitedOut,
    /// A cap on waiters, for one key or in all, was reached: 503, at once.
    Overloaded,
    /// The client has as many requests waiting as one client may: 429, at once.
    ClientOverloaded,
    /// The lock store gave no answer in time, or the manager is shutting down: 503.
    Unavailable,
    /// The lock was lost while the request was served, which ended the inner call: 503.
    Lost,
    /// A handler's own work under a lock was done, but the lock was lost before its end
    /// ([`LockError::Lost`] with `completed`): 500, and a warning. If the lock of a layer is lost so late, the layer delivers
    /// the response.
    LostCompleted,
    /// The request does not name a valid lock (a part of its key is missing, is given twice, is not text or is not of
    /// the part's type, a value is empty, or the name is too long): 400.
    BadKey,
    /// A retry cannot help: the route cannot have a part of the key, the store refuses this client, the key holds
    /// something else, an option is out of bounds, a connection is upgraded under a lock to the body's end, the runtime
    /// that the manager was built in has ended: 500. The error is logged.
    Misconfigured,
}

impl RefusalKind {
    /// Returns the status of an HTTP reply.
    pub fn status(self) -> StatusCode {
        match self {
            RefusalKind::Busy => StatusCode::LOCKED,
            RefusalKind::WaitedOut
            | RefusalKind::Overloaded
            | RefusalKind::Unavailable
            | RefusalKind::Lost => StatusCode::SERVICE_UNAVAILABLE,
            RefusalKind::ClientOverloaded => StatusCode::TOO_MANY_REQUESTS,
            RefusalKind::BadKey => StatusCode::BAD_REQUEST,
            RefusalKind::LostCompleted | RefusalKind::Misconfigured => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Returns one sentence for the client. It tells nothing about the lock, its holder or the store.
    pub fn detail(self) -> &'static str {
        match self {
            RefusalKind::Busy => "Another request for the same resource is being served.",
            RefusalKind::WaitedOut => {
                "Other requests for the same resource took too long. Try again later."
            }
            RefusalKind::Overloaded => "Too many requests are waiting. Try again later.",
            RefusalKind::ClientOverloaded => {
                "Too many of your requests are waiting. Try again later."
            }
            RefusalKind::Unavailable => "The service is temporarily unavailable. Try again later.",
            RefusalKind::Lost => {
                "The request was interrupted. It may have taken effect in part or not at all."
            }
            RefusalKind::LostCompleted => {
                "A step of the request has taken effect, perhaps beside another request. Look at the result before you repeat it."
            }
            RefusalKind::BadKey => "The request names its resource in a way that is not valid.",
            RefusalKind::Misconfigured => "The request could not be served.",
        }
    }

    fn is_retryable(self) -> bool {
        !matches!(
            self,
            RefusalKind::LostCompleted | RefusalKind::BadKey | RefusalKind::Misconfigured
        )
    }
}

/// Translates a lock's error into what it means to a client, so that handlers that take locks of their own can answer
/// as the layer does.
///
/// Do not translate the error of a `release`: the work is done then, and the client would be asked to repeat it.
///
/// ```
/// use lock_runtime::{LockError, LockManager};
/// use tower_lock::{Refusal, RefusalKind};
///
/// async fn settle(locks: &LockManager) -> Result<&'static str, Refusal> {
///     let guard = locks.mutex("order:17").acquire().await?;
///     // … the work …
///     if let Err(error) = guard.release().await {
///         tracing::warn!(%error, "the order is settled, but its lock was not given back");
///     }
///     Ok("settled")
/// }
///
/// let refusal = Refusal::from(LockError::NotInstalled);
/// assert_eq!(refusal.kind(), RefusalKind::Misconfigured);
/// assert_eq!(refusal.kind().status(), 500);
/// # _ = settle(&LockManager::in_memory());
/// ```
impl From<LockError> for Refusal {
    fn from(error: LockError) -> Refusal {
        let kind = match error {
            LockError::Busy { waited, .. } if waited.is_zero() => RefusalKind::Busy,
            LockError::Busy { .. } => RefusalKind::WaitedOut,
            LockError::TooManyWaiters { .. } => RefusalKind::Overloaded,
            LockError::Unavailable { .. }
            | LockError::ShuttingDown {
                why: ShutdownCause::Shutdown,
                ..
            } => RefusalKind::Unavailable,
            LockError::Lost {
                completed: true, ..
            } => RefusalKind::LostCompleted,
            LockError::Lost { .. } => RefusalKind::Lost,
            LockError::InvalidName { .. } => RefusalKind::BadKey,
            _ => RefusalKind::Misconfigured,
        };
        Refusal {
            error: Some(error),
            ..Refusal::of(kind)
        }
    }
}

impl Refusal {
    /// Returns the refusal of a request from which no key can be made: 400. `detail` is one sentence for the client.
    ///
    /// See the example of [`LockKey::find_name`](crate::LockKey::find_name).
    pub fn bad_key(detail: impl Into<String>) -> Refusal {
        Refusal {
            flaw: Some(detail.into()),
            ..Refusal::of(RefusalKind::BadKey)
        }
    }

    /// Returns the refusal of a request that this service cannot lock, whatever its client sends: 500. `why` is for the
    /// log, as an error; the client does not see it.
    ///
    /// See the example of [`LockKey::find_name`](crate::LockKey::find_name).
    pub fn misconfigured(why: impl Into<String>) -> Refusal {
        Refusal {
            flaw: Some(why.into()),
            ..Refusal::of(RefusalKind::Misconfigured)
        }
    }

    pub(crate) fn of(kind: RefusalKind) -> Refusal {
        let retry_after = kind
            .is_retryable()
            .then(|| Duration::from_millis(fastrand::u64(RETRY_AFTER_MILLIS)));
        Refusal {
            kind,
            error: None,
            flaw: None,
            retry_after,
        }
    }

    /// Returns the kind of the refusal.
    pub fn kind(&self) -> RefusalKind {
        self.kind
    }

    /// Returns one sentence for the client: that of the [kind](RefusalKind::detail), or one that says what is wrong
    /// with the request's key.
    pub fn detail(&self) -> &str {
        match (self.kind, &self.flaw) {
            (RefusalKind::BadKey, Some(flaw)) => flaw,
            (kind, _) => kind.detail(),
        }
    }

    /// Returns the lock's error, for logs, or `None` if the refusal is the layer's own.
    pub fn error(&self) -> Option<&LockError> {
        self.error.as_ref()
    }

    /// Returns the pause before the next try, or `None` if a retry cannot help. It is 1 s to 5 s, drawn at random for
    /// each refusal, so that clients that were refused together do not come back together. It tells nothing about the
    /// holder's lease.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    pub(crate) fn pushback_millis(&self) -> Option<u64> {
        self.retry_after.map(|pause| pause.as_millis() as u64)
    }
}

/// Logs a refusal: as an error if only the operator can fix its cause.
pub(crate) fn log(refusal: &Refusal) {
    if refusal.kind == RefusalKind::Misconfigured {
        tracing::error!(error = %refusal, "a request was refused because its lock could not be acquired; a retry cannot help");
    } else if refusal.kind == RefusalKind::LostCompleted {
        tracing::warn!(error = %refusal, "a request was done in part or as a whole while its lock was lost; it is not to be repeated unseen");
    } else {
        tracing::debug!(error = %refusal, "a request was refused");
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.error, &self.flaw) {
            (Some(error), _) => error.fmt(f),
            (None, Some(flaw)) => f.write_str(flaw),
            (None, None) => f.write_str(self.detail()),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.as_ref().map(|error| error as _)
    }
}

//! The reasons why an operation gave no answer.

use std::fmt;
use std::time::Duration;

use crate::values::options::RUNTIME_SLACK;
use crate::values::{LockError, ShutdownCause, StoreError};

/// Each variant says what the store may have done, and whether asking again can help.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The store certainly did nothing. A retry can help.
    NotDone(StoreError),
    /// Nothing was sent. The holder's id was drawn before the connection was opened, and a copy of this process may
    /// have drawn the same id. The caller draws another id and asks again at once.
    Outdated,
    /// The lock was granted and given back, because too few replicas confirmed it in time. A caller that asks again
    /// does so as another holder.
    TooFew(StoreError),
    /// There was no answer. The request may have been executed, or may still be.
    Unknown(StoreError),
    /// Refused for good: login, ACL, TLS.
    Denied(StoreError),
    /// As [`Denied`](Fault::Denied), after the store has served such requests: its users or rights may be changing, so a
    /// retry can help. Only the core makes it, of `Denied`; a backend does not.
    Refused(StoreError),
    /// The table of the locks existed before, and does not exist now. It may be being renamed or made anew.
    NoTable(StoreError),
    /// The key exists and holds something else.
    Foreign { key: String, why: String },
    /// A semaphore whose permits were never set, or that the store lost.
    NotSet,
    /// The store cannot serve the request as it is set up. A retry cannot help.
    Impossible(String),
    /// The backend was closed, or its runtime is gone.
    Closed(ShutdownCause),
}

const OUTDATED: &str = "a new connection to the lock store was opened meanwhile";

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotDone(source)
            | Fault::TooFew(source)
            | Fault::Unknown(source)
            | Fault::Denied(source)
            | Fault::Refused(source)
            | Fault::NoTable(source) => source.fmt(f),
            Fault::Outdated => f.write_str(OUTDATED),
            Fault::Foreign { key, why } => write!(f, "key `{key}`: {why}"),
            Fault::NotSet => f.write_str("the semaphore has no permits: they were not set"),
            Fault::Impossible(why) => f.write_str(why),
            Fault::Closed(why) => why.fmt(f),
        }
    }
}

impl Fault {
    pub(crate) fn not_done(why: impl Into<String>) -> Fault {
        Fault::NotDone(StoreError::new(why))
    }

    pub(crate) fn unknown(why: impl Into<String>) -> Fault {
        Fault::Unknown(StoreError::new(why))
    }

    /// The fault of a request that changes nothing: without an answer, it is as if it had not been sent.
    pub(crate) fn of_a_question(self) -> Fault {
        match self {
            Fault::Unknown(source) => Fault::NotDone(source),
            fault => fault,
        }
    }

    pub(crate) fn denied(why: impl Into<String>) -> Fault {
        Fault::Denied(StoreError::new(why))
    }

    pub(crate) fn too_few(why: impl Into<String>) -> Fault {
        Fault::TooFew(StoreError::new(why))
    }

    pub(crate) fn impossible(why: impl Into<String>) -> Fault {
        Fault::Impossible(why.into())
    }

    /// The backend was closed.
    pub(crate) fn closed() -> Fault {
        Fault::Closed(ShutdownCause::Shutdown)
    }

    /// Returns the fault of a backend whose task ended with its runtime.
    pub(crate) fn runtime_ended() -> Fault {
        Fault::Closed(ShutdownCause::RuntimeEnded)
    }

    /// Waits for what a task of the manager's runtime answers within `timeout`. The caller may be in another runtime: without
    /// a limit, it would wait for ever if nobody drives the manager's.
    pub(crate) async fn if_driven<T>(
        timeout: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        let answer = tokio::time::timeout(timeout + RUNTIME_SLACK, answer).await;
        answer.map_err(|_| Fault::unknown("the runtime that asks the store is not driven"))
    }

    /// The store's clock gives no ids.
    pub(crate) fn no_ids_at_this_time() -> Fault {
        Fault::impossible(
            "the lock store's clock, or the last id of the source, is not between 2026 and 2093: ids need a correct \
             clock",
        )
    }

    /// The server's clock says that the caller has stopped waiting for this request.
    pub(crate) fn too_late() -> Fault {
        Fault::not_done("the request reached the lock store too late")
    }

    /// Returns `true` if a retry may succeed in a moment, with the same holder or another one.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Fault::NotDone(_)
                | Fault::Outdated
                | Fault::TooFew(_)
                | Fault::Unknown(_)
                | Fault::Refused(_)
                | Fault::NoTable(_)
        )
    }

    /// Returns `true` if the store certainly did nothing, and the same request may succeed in a moment.
    pub(crate) fn is_passing_no_op(&self) -> bool {
        matches!(
            self,
            Fault::NotDone(_) | Fault::Refused(_) | Fault::NoTable(_)
        )
    }

    /// Returns `true` for a refusal that is about one key. Redis refuses by key, so requests that it served for other
    /// keys prove nothing about this one.
    pub(crate) fn is_about_a_key(&self) -> bool {
        // Redis 7.0, then 7.2 and later and its forks.
        const SAID: [&str; 2] = ["access one of the keys", "permissions to access a key"];
        match self {
            Fault::Denied(source) => {
                let text = source.to_string();
                SAID.iter().any(|said| text.contains(said))
            }
            _ => false,
        }
    }

    /// Returns `true` for a store that answers, and refuses requests that it served before.
    pub(crate) fn is_passing_refusal(&self) -> bool {
        matches!(self, Fault::Refused(_) | Fault::NoTable(_))
    }

    /// Returns the fault to report when a caller's time is over. If the last request got no answer in time, the fault
    /// `before` it says more. So does a refusal, if the last request found no time or no connection.
    pub(crate) fn at_the_end(self, before: Option<Fault>) -> Fault {
        match (&self, before) {
            (Fault::Unknown(_), Some(before)) => before,
            (Fault::NotDone(_), Some(before)) if before.is_passing_refusal() => before,
            _ => self,
        }
    }

    /// Adds the server's address if the error has no other place for it.
    pub(crate) fn at(self, server: &str) -> Fault {
        match self {
            Fault::Impossible(why) => Fault::Impossible(format!("`{server}`: {why}")),
            fault => fault,
        }
    }

    /// Adds what was asked for, to the faults of a question.
    pub(crate) fn about(self, what: impl fmt::Display) -> Fault {
        let explained = |why: &dyn fmt::Display| StoreError::new(format!("{what}: {why}"));
        match self {
            Fault::NotDone(source) => Fault::NotDone(explained(&source)),
            Fault::Denied(source) => Fault::Denied(explained(&source)),
            Fault::Impossible(why) => {
                Fault::Impossible(explained(&StoreError::new(why)).to_string())
            }
            fault => fault,
        }
    }

    /// Returns the fault for a semaphore that has fewer permits in all than a request wants. `all` is `None` if the
    /// permits were never set.
    pub(crate) fn not_so_many_permits(name: &str, all: Option<i64>) -> Fault {
        match all {
            Some(all) => Fault::Impossible(format!(
                "the semaphore `{name}` has {all} permits in all: too few"
            )),
            None => Fault::NotSet,
        }
    }

    pub(crate) fn into_error(self, name: &str) -> LockError {
        let name = name.to_owned();
        match self {
            Fault::NotDone(source)
            | Fault::TooFew(source)
            | Fault::Unknown(source)
            | Fault::NoTable(source) => LockError::Unavailable { name, source },
            Fault::Outdated => LockError::Unavailable {
                name,
                source: StoreError::new(OUTDATED),
            },
            Fault::Denied(source) | Fault::Refused(source) => LockError::Denied { name, source },
            Fault::Foreign { key, why } => LockError::ForeignKey { key, why },
            Fault::NotSet => LockError::NotSet { name },
            Fault::Impossible(why) => LockError::InvalidConfig { why },
            Fault::Closed(why) => LockError::ShuttingDown { name, why },
        }
    }
}

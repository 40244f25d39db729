//! The errors of this crate, and whether a retry can help.

use crate::values::label::Label;
use crate::values::refusal::{HeldHere, ShutdownCause, WaiterCap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The reason why an acquire, a protected body or a release failed.
///
/// | variant | what happened | can a retry help? |
/// |---|---|---|
/// | [`Busy`](LockError::Busy) | somebody else held the key for the whole wait | yes, after `retry_after` |
/// | [`Lost`](LockError::Lost) | the lock was held and then lost | yes, if the work can be repeated, and was not `completed` |
/// | [`Unavailable`](LockError::Unavailable) | the store gave no answer in the caller's time, or too few replicas confirmed | yes, later |
/// | [`TooManyWaiters`](LockError::TooManyWaiters) | a cap on local waiters was reached | yes, later |
/// | [`Denied`](LockError::Denied) | login, ACL or TLS refused, for the whole wait if the store had served the manager before | no |
/// | [`ForeignKey`](LockError::ForeignKey) | the key holds something that is not this kind of lock | no |
/// | [`NotSet`](LockError::NotSet) | the permits of a semaphore were never set, or the store lost them | no, until somebody sets them |
/// | [`InvalidName`](LockError::InvalidName), [`InvalidLease`](LockError::InvalidLease), [`InvalidConfig`](LockError::InvalidConfig) | bad input, mostly refused before any I/O; or a server or semaphore that cannot serve this | no |
/// | [`Upgrade`](LockError::Upgrade) | a write was asked for under a read of the same lock | no |
/// | [`ShuttingDown`](LockError::ShuttingDown), [`NotInstalled`](LockError::NotInstalled) | the manager is gone, or there is none | no |
///
/// `Display` is safe to print: it escapes control characters of names, and of what the store says, as `\u{1b}`. The
/// fields hold them as they are.
///
/// ```
/// use std::time::Duration;
/// use lock_runtime::{LockError, LockManager};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.mutex("report").acquire().await?;
/// match locks.mutex("report").wait(Duration::from_millis(10)).acquire().await {
///     Ok(second) => second.release().await?,
///     Err(LockError::Busy { waited, .. }) => println!("busy for {waited:?}"),
///     Err(error) if error.is_retryable() => println!("later: {error}"),
///     Err(error) => return Err(error),
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else held the lock for as long as the caller would wait.
    #[error("lock `{}` is busy{}{}{}", Escaped(name), patience(*waited), retry_hint(*.retry_after), own_hint(.held_here.as_ref()))]
    #[non_exhaustive]
    Busy {
        /// The lock's name.
        name: String,
        /// The time that this call waited. Zero if it was not to wait.
        waited: Duration,
        /// The rest of the holder's lease when the store was last asked. A holder that lives renews it,
        /// so this is when asking again is sensible, not when the lock will be free.
        retry_after: Option<Duration>,
        /// A hold of this very manager at that name at the end of the wait, if there was one among its oldest. If its
        /// holder waits for this call, the two wait for each other: nest the call in the hold
        /// ([`run`](crate::LockRequest::run), [`scope`](crate::LockGuard::scope)), pass the guard or its
        /// [`Lease`](crate::Lease) on, or release it first.
        held_here: Option<HeldHere>,
    },
    /// The lock was held and is held no more; its holder did not release it.
    #[error("lock `{}` was lost after {held_for:?}: {reason}{}", Escaped(name), if *.completed { "; the body had completed" } else { "" })]
    #[non_exhaustive]
    Lost {
        /// The lock's name.
        name: String,
        /// The time for which it had been held.
        held_for: Duration,
        /// The cause of its end.
        reason: LostReason,
        /// True if the protected work had run to its end all the same.
        completed: bool,
    },
    /// The store gave no answer within the caller's time, or too few replicas confirmed the lock.
    #[error("no answer from the lock store for `{}`: {source}", Escaped(name))]
    #[non_exhaustive]
    Unavailable {
        /// The lock's name, or the server's address while connecting.
        name: String,
        /// The last message of the store or the connection.
        source: StoreError,
    },
    /// The store refuses this client: login, ACL or TLS.
    ///
    /// A store that never served such a request of this manager refuses it for good, and says so at once. After
    /// it has served one, a refusal may pass, because somebody changes users or rights. A request that waits is then
    /// repeated, and ends with this error only when its wait is over. A refusal of the key itself is final at once for an
    /// acquire that had no answer before.
    #[error("the lock store refuses `{}`: {source}", Escaped(name))]
    #[non_exhaustive]
    Denied {
        /// The lock's name, or the server's address while connecting.
        name: String,
        /// The message of the store.
        source: StoreError,
    },
    /// The name cannot be a lock's name.
    #[error("invalid lock name `{}`: {}", Escaped(name), Escaped(why))]
    #[non_exhaustive]
    InvalidName {
        /// The name as it was given, shortened if long.
        name: String,
        /// The description of its fault.
        why: String,
    },
    /// The lease is out of its bounds.
    #[error("invalid lease {lease:?} for lock `{}`: {why}", Escaped(name))]
    #[non_exhaustive]
    InvalidLease {
        /// The lock's name.
        name: String,
        /// The lease as it was given.
        lease: Duration,
        /// The bound that it breaks.
        why: &'static str,
    },
    /// An option, a URL or a combination of them makes no sense, or the server or semaphore cannot serve what is asked.
    #[error("invalid lock configuration: {}", Escaped(why))]
    #[non_exhaustive]
    InvalidConfig {
        /// The fault, and what would be right.
        why: String,
    },
    /// The key exists and is another kind of lock or no lock, or not what such a lock needs beside it. It was left as it is.
    #[error("key `{}` is not what it should be: {}", Escaped(key), Escaped(why))]
    #[non_exhaustive]
    ForeignKey {
        /// The key as the store knows it.
        key: String,
        /// The kind that was found there, and the one that was asked for: `it is a semaphore; you asked for a mutex`.
        /// If it keeps other locks from being taken, too: what to do about it.
        why: String,
    },
    /// A semaphore has no permits: nobody set them, or the store lost them. Say how many there are by
    /// [`in_all`](crate::Semaphore::in_all), or call [`try_set_permits`](crate::Semaphore::try_set_permits) wherever a
    /// process starts.
    #[error(
        "the semaphore `{}` has no permits: they were not set (`in_all`, `try_set_permits`), or the store lost them",
        Escaped(name)
    )]
    #[non_exhaustive]
    NotSet {
        /// The semaphore's name.
        name: String,
    },
    /// A write was asked for inside a read hold of the same lock, or under a guard that has become a read. It would wait
    /// for itself, or write beside readers: ask for the write first;
    /// a read nested in it may outlive it.
    #[error(
        "lock `{}` is held for reading by the same call chain: a write cannot be nested in a read",
        Escaped(name)
    )]
    #[non_exhaustive]
    Upgrade {
        /// The lock's name.
        name: String,
    },
    /// More callers wait in this process than its caps allow.
    #[error(
        "too many waiters for lock `{}`: {limit} {cap} already wait in this process",
        Escaped(name)
    )]
    #[non_exhaustive]
    TooManyWaiters {
        /// The lock's name.
        name: String,
        /// The cap that was reached.
        limit: usize,
        /// The cap.
        cap: WaiterCap,
    },
    /// The manager is shutting down, or the runtime that built it is gone.
    #[error("lock `{}` refused: {why}", Escaped(name))]
    #[non_exhaustive]
    ShuttingDown {
        /// The lock's name.
        name: String,
        /// The reason.
        why: ShutdownCause,
    },
    /// No global manager was installed and the call names none.
    #[error(
        "no lock manager is installed: call `LockManager::install_global` at start-up, or name one with `manager = …`"
    )]
    NotInstalled,
}

impl LockError {
    pub(crate) fn unavailable(name: &str, why: impl Into<String>) -> LockError {
        LockError::Unavailable {
            name: name.to_owned(),
            source: StoreError::new(why),
        }
    }

    /// True if the same call can succeed later without anybody changing code or configuration. False if its work is done:
    /// a [`Lost`](LockError::Lost) that says `completed`.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            LockError::Busy { .. }
                | LockError::Lost {
                    completed: false,
                    ..
                }
                | LockError::Unavailable { .. }
                | LockError::TooManyWaiters { .. }
        )
    }

    /// True if somebody else held the lock for as long as the caller would wait, or a cap on waiters was reached: the
    /// work was not begun, and nothing is wrong.
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            LockError::Busy { .. } | LockError::TooManyWaiters { .. }
        )
    }

    /// The name that the error is about: the lock's, as it was asked for. `None` if it is about no lock, as
    /// [`InvalidConfig`](LockError::InvalidConfig), or about a key: [`ForeignKey`](LockError::ForeignKey) has it as the
    /// store knows it. While connecting, it is the server's address.
    pub fn name(&self) -> Option<&str> {
        match self {
            LockError::Busy { name, .. }
            | LockError::Lost { name, .. }
            | LockError::Unavailable { name, .. }
            | LockError::Denied { name, .. }
            | LockError::InvalidName { name, .. }
            | LockError::InvalidLease { name, .. }
            | LockError::NotSet { name }
            | LockError::Upgrade { name }
            | LockError::TooManyWaiters { name, .. }
            | LockError::ShuttingDown { name, .. } => Some(name),
            LockError::InvalidConfig { .. }
            | LockError::ForeignKey { .. }
            | LockError::NotInstalled => None,
        }
    }

    /// Returns the pause after which a retry is sensible: the rest of the holder's lease when the store was last asked.
    /// `None` if a retry cannot help ([`is_retryable`](LockError::is_retryable)), and if nobody can tell.
    ///
    /// It tells something about the holder. An answer to a client should not:
    /// [`tower_lock::Refusal`](https://docs.rs/tower-lock) draws a pause at random.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            LockError::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn patience(waited: Duration) -> String {
    match waited {
        Duration::ZERO => String::new(),
        waited => format!(": gave up after {waited:?}"),
    }
}

fn own_hint(held_here: Option<&HeldHere>) -> String {
    let Some(held_here) = held_here else {
        return String::new();
    };
    let label = match held_here.label() {
        Label::UNLABELLED => String::new(),
        label => format!(" as `{label}`"),
    };
    format!(
        "; this very process has held it for {:?}{label}: if that hold waits for this call, nest the call in it (`run`, \
         `scope`), pass its guard or `Lease` on, or release it first",
        held_here.held_for()
    )
}

fn retry_hint(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |left| {
        format!("; its holder's lease has {left:?} left")
    })
}

/// The cause that ended a hold that was not released.
///
/// ```
/// use std::time::Duration;
/// use lock_runtime::{LockError, LockManager, LostReason};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let import = locks.mutex("import").max_hold(Duration::from_secs(60)).run(async |_| 7);
/// match import.await {
///     Ok(imported) => assert_eq!(imported, 7),
///     Err(LockError::Lost { reason: LostReason::MaxHold, .. }) => eprintln!("it took over a minute"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease ran out by the local clock before a renewal was confirmed.
    Expired,
    /// The store answered that this holder is not the holder: the key was deleted, evicted or taken over.
    Refused,
    /// Somebody called `force_release`.
    ForceReleased,
    /// The hold reached its `max_hold`.
    MaxHold,
    /// The manager shut down and the hold outlived the grace period, or the runtime that the manager belongs to is gone.
    Shutdown,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostReason::Expired => "its lease ran out before a renewal was confirmed",
            LostReason::Refused => "the store no longer names this holder",
            LostReason::ForceReleased => "it was released by force",
            LostReason::MaxHold => "it reached its max_hold",
            LostReason::Shutdown => "the manager shut down, or its runtime ended",
        })
    }
}

/// A message of the store, or of the connection to it. It holds no password and no holder id.
///
/// ```no_run
/// use lock_runtime::{LockError, LockManager};
///
/// # async fn connect() {
/// match LockManager::connect("redis://127.0.0.1/").await {
///     Ok(locks) => println!("connected as {}", locks.id()),
///     Err(LockError::Unavailable { source, .. }) => eprintln!("is the server up? {source}"),
///     Err(error) => eprintln!("{error}"),
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StoreError {
    message: Arc<str>,
}

/// Error texts are for people: longer ones from outside are cut.
pub(crate) const LONGEST: usize = 300;

impl StoreError {
    pub(crate) fn new(message: impl Into<String>) -> StoreError {
        StoreError {
            message: message.into().into(),
        }
    }

    /// Makes the error of a text from outside.
    pub(crate) fn shortened(text: &str) -> StoreError {
        let clean = text.chars().filter(|character| !character.is_control());
        StoreError::new(clean.take(LONGEST).collect::<String>())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.message).fmt(f)
    }
}

impl std::error::Error for StoreError {}

/// Text from outside as it is printed: names are user data, and a terminal or a log obeys some characters.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(steers) {
            let steering = part.chars().next_back().filter(|last| steers(*last));
            let text = part.len() - steering.map_or(0, char::len_utf8);
            f.write_str(part.get(..text).unwrap_or_default())?;
            if let Some(steering) = steering {
                write!(f, "{}", steering.escape_default())?;
            }
        }
        Ok(())
    }
}

/// Control characters, line separators, and marks that turn the direction of the text after them.
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Settings or arguments that make no sense.
pub(crate) fn config(why: impl Into<String>) -> LockError {
    LockError::InvalidConfig { why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each variant that shows text from outside.
    fn errors(text: &str) -> Vec<LockError> {
        let (name, why, source) = (text.to_owned(), text.to_owned(), StoreError::new(text));
        vec![
            LockError::Busy {
                name: name.clone(),
                waited: Duration::ZERO,
                retry_after: None,
                held_here: None,
            },
            LockError::Lost {
                name: name.clone(),
                held_for: Duration::ZERO,
                reason: LostReason::Expired,
                completed: false,
            },
            LockError::Unavailable {
                name: name.clone(),
                source: source.clone(),
            },
            LockError::Denied {
                name: name.clone(),
                source,
            },
            LockError::InvalidName {
                name: name.clone(),
                why: why.clone(),
            },
            LockError::InvalidLease {
                name: name.clone(),
                lease: Duration::ZERO,
                why: "",
            },
            LockError::InvalidConfig { why: why.clone() },
            LockError::ForeignKey {
                key: name.clone(),
                why,
            },
            LockError::NotSet { name: name.clone() },
            LockError::Upgrade { name: name.clone() },
            LockError::TooManyWaiters {
                name: name.clone(),
                limit: 1,
                cap: WaiterCap::InAll,
            },
            LockError::ShuttingDown {
                name,
                why: ShutdownCause::Shutdown,
            },
        ]
    }

    #[test]
    fn errors_escape_control_characters_of_names() {
        for error in errors("a\n\x1b[31m\u{7f}\u{85}\u{202e}b\u{2028}\0") {
            let shown = error.to_string();
            assert!(!shown.chars().any(steers), "{error:?}: {shown:?}");
            let escaped = r"a\n\u{1b}[31m\u{7f}\u{85}\u{202e}b\u{2028}\u{0}";
            assert!(shown.contains(escaped), "{shown}");
        }
    }

    #[test]
    fn an_error_tells_which_lock_and_when_to_ask_again() {
        let busy = |waited, retry_after| LockError::Busy {
            name: "order:7".to_owned(),
            waited,
            retry_after,
            held_here: None,
        };
        let second = Duration::from_secs(1);
        let error = busy(second, Some(2 * second));
        assert_eq!(
            error.to_string(),
            "lock `order:7` is busy: gave up after 1s; its holder's lease has 2s left"
        );
        assert_eq!(error.name(), Some("order:7"));
        assert_eq!(error.retry_after(), Some(2 * second));
        assert!(error.is_busy() && error.is_retryable());
        let at_once = busy(Duration::ZERO, None);
        assert_eq!(at_once.to_string(), "lock `order:7` is busy");
        for error in errors("order:7") {
            let is_named = error.to_string().contains("`order:7`");
            let is_of_key = matches!(error, LockError::ForeignKey { .. });
            assert_eq!(error.name().is_some(), is_named && !is_of_key, "{error}");
            assert!(!error.is_busy() || error.is_retryable());
        }
    }

    #[test]
    fn work_that_was_completed_is_not_repeated() {
        let lost = |completed| LockError::Lost {
            name: "order:7".to_owned(),
            held_for: Duration::ZERO,
            reason: LostReason::Expired,
            completed,
        };
        assert!(lost(false).is_retryable());
        assert!(!lost(true).is_retryable());
    }

    #[test]
    fn busy_in_the_own_process_says_since_when_and_what_to_do() {
        let busy = |label| LockError::Busy {
            name: "order:7".to_owned(),
            waited: Duration::from_secs(10),
            retry_after: None,
            held_here: Some(HeldHere::new(Duration::from_secs(12), label)),
        };
        let error = busy("order:{id}");
        assert!(error.is_busy() && error.is_retryable());
        let said = error.to_string();
        let labelled =
            "gave up after 10s; this very process has held it for 12s as `order:{id}`: if";
        assert!(said.contains(labelled), "{said}");
        assert!(said.contains("(`run`, `scope`)"), "{said}");
        let said = busy(Label::UNLABELLED).to_string();
        assert!(said.contains("held it for 12s: if"), "{said}");
    }

    #[test]
    fn other_characters_of_names_are_shown_as_they_are() {
        let name = r#"order:{ä€}/"x"'\ 東京 🔒"#;
        for error in errors(name) {
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(errors("").iter().all(|error| !error.to_string().is_empty()));
    }
}

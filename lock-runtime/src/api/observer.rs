//! The observer of an election, for callers that do not campaign.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::acquire::contend::nap;
use crate::api::info::{HolderInfo, LockInfo};
use crate::api::manager::LockManager;
use crate::backend::{Fault, Listen, Reply};
use crate::hold::Asking;
use crate::values::{Backoff, Key, LockError, LockName, Moment, clock};

/// The pauses between two looks while nobody leads, or the store fails.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The age from which on a look that was begun and not awaited is begun anew.
const STALE: Duration = Duration::from_secs(10);

/// An observer of who leads, one change after the other. [`Election::observe`](crate::Election::observe) makes it.
///
/// It asks the store after the message of a resignation or a forced release, when the leader's lease would be over, and
/// about once a second, because an election sends no message. So a new leader is seen within a second or so. A leader
/// that led in between can be missed, and so can one that took over inside the same process.
///
/// ```
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// let election = locks.elect("scheduler");
/// let mut observer = election.observe();
/// assert_eq!(observer.changed().await?, None);
///
/// let leader = election.campaign().await?;
/// if let Some(leader) = observer.changed().await? {
///     println!("{leader} leads");
///     assert_eq!(leader.manager_id(), locks.id());
/// }
/// # leader.resign().await
/// # }
/// ```
#[must_use = "an observer asks the store only in `changed`"]
pub struct LeaderObserver {
    locks: LockManager,
    name: LockName,
    listener: Option<Box<dyn Listen>>,
    /// Whether the listener's subscription is ready.
    is_ready: bool,
    /// The last answer to the caller; `None` before the first one and after an error.
    told: Option<Option<HolderInfo>>,
    /// The time of the next request to the store, if no message comes before. `None` means now.
    next_look: Option<Moment>,
    /// The requests under way. They go on in the next call if this one is dropped: else a caller that drops calls more often
    /// than the store answers would never learn anything.
    looking: Option<Looking>,
    /// The pauses while nobody leads, or the store fails.
    pauses: Backoff,
}

struct Looking {
    began: Moment,
    answer: Mutex<Reply<'static, LockInfo>>,
}

impl LeaderObserver {
    pub(crate) fn new(locks: LockManager, name: LockName) -> LeaderObserver {
        LeaderObserver {
            locks,
            name,
            listener: None,
            is_ready: false,
            told: None,
            next_look: None,
            looking: None,
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    /// Returns who leads now if that differs from the last answer; otherwise waits until it does. The first answer
    /// comes at once, and so does the one after an error. `None` means that nobody leads.
    ///
    /// A store that has answered such a request before and refuses the next one is asked again until it answers: an
    /// observation goes on while a user is made anew or a right is given back. The log has the refusal.
    ///
    /// # Errors
    /// The same as [`LockManager::inspect`]. The observation goes on: the next call asks again, after a pause of about
    /// a second at most. [`LockError::is_retryable`] says whether that can help.
    ///
    /// # Cancel safety
    /// May be dropped and called again at any time: the next call returns what this one would have returned. An answer that
    /// lay there meanwhile is as old as that, 10 s at most.
    pub async fn changed(&mut self) -> Result<Option<HolderInfo>, LockError> {
        loop {
            self.until_next_look().await;
            let key = match self.locks.key(&self.name).await {
                Ok(key) => Arc::new(key),
                Err(error) => {
                    self.told = None;
                    self.has_failed();
                    return Err(error);
                }
            };
            match self.look(&key).await {
                Ok(leader) if self.told.as_ref() == Some(&leader) => {}
                Ok(leader) => {
                    self.told = Some(leader.clone());
                    return Ok(leader);
                }
                Err(fault) if fault.is_passing_refusal() => {
                    let served = &self.locks.core().served;
                    served.log_refusal(Asking::Look, key.name(), &fault);
                }
                Err(fault) => {
                    self.told = None;
                    return Err(fault.into_error(key.name()));
                }
            }
        }
    }

    /// Waits for a message, or the time to look without one.
    async fn until_next_look(&mut self) {
        let Some(next_look) = self.next_look else {
            return;
        };
        let heard = async {
            match &mut self.listener {
                Some(listener) if self.is_ready => listener.heard().await,
                // A release before the subscription is missed, so a look is worthwhile when it is ready.
                Some(listener) => {
                    listener.ready().await;
                    self.is_ready = true;
                }
                None => std::future::pending().await,
            }
        };
        let life = &self.locks.core().life;
        tokio::select! {
            () = heard => self.pauses.reset(),
            () = clock::sleep_until(next_look) => {}
            () = life.closing(), if life.is_open() => {}
        }
        // This comes before the request: if that is dropped, the next call sends it.
        self.next_look = None;
    }

    /// Asks the store, and sets the time to ask it next.
    async fn look(&mut self, key: &Arc<Key>) -> Result<Option<HolderInfo>, Fault> {
        let core = self.locks.core();
        // The answer of a look that was not polled for long may be as old.
        let longest = core.options.call_timeout.max(STALE);
        self.looking
            .take_if(|looking| looking.began.elapsed() > longest);
        let looking = self.looking.get_or_insert_with(|| {
            let (locks, key) = (self.locks.clone(), key.clone());
            Looking {
                began: clock::now(),
                answer: Mutex::new(Box::pin(async move { locks.look(&key).await })),
            }
        });
        let answer = looking.answer.get_mut().as_mut().await;
        self.looking = None;
        let seen = match answer {
            Ok(seen) => seen,
            Err(fault) => {
                self.has_failed();
                return Err(fault);
            }
        };
        self.listener
            .get_or_insert_with(|| core.backend.listen(key));
        let pause = if seen.held {
            self.pauses.reset();
            nap(&core.options, seen.ttl)
        } else {
            self.pauses.pause()
        };
        self.next_look = Some(clock::now() + pause);
        Ok(seen.holder)
    }

    /// The last look had no answer: the next one comes after a pause.
    fn has_failed(&mut self) {
        // Messages may arrive again and again while the store fails.
        (self.listener, self.is_ready) = (None, false);
        self.next_look = Some(clock::now() + self.pauses.pause());
    }
}

impl fmt::Debug for LeaderObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderObserver")
            .field("name", &self.name)
            .field("told", &self.told)
            .finish_non_exhaustive()
    }
}

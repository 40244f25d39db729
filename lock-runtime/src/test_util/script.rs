//! The answers that a test has told its store to give.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backend::{AcquireRequest, Fault};
use crate::sync::Mutex;
use crate::values::{Moment, clock};

/// The answer that an acquire gets instead of being served: see
/// [`TestControl::next_acquire`](super::TestControl::next_acquire).
///
/// See the example of [`test_util`](crate::test_util).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Somebody else holds the lock for as long as the caller waits: [`LockError::Busy`](crate::LockError::Busy), or
    /// [`TryAcquire::Busy`](crate::TryAcquire::Busy) from `try_acquire`.
    Busy {
        /// The rest of the other holder's lease, which is the `retry_after` of the error.
        retry_after: Option<Duration>,
    },
    /// The store gives no answer for as long as the caller waits:
    /// [`LockError::Unavailable`](crate::LockError::Unavailable).
    Unavailable,
    /// The store refuses the caller: [`LockError::Denied`](crate::LockError::Denied). A caller who waits is told at once
    /// only if the manager had no other answer for such a lock before; else it goes on asking, as with a real store.
    Denied,
    /// The store takes so long to answer, and then serves the request. An answer that takes longer than the
    /// [call timeout](crate::LockManagerBuilder::call_timeout) is no answer: a caller that waits asks again after that.
    Slow(Duration),
}

/// What becomes of a question.
pub(super) enum Verdict {
    /// The store answers it.
    Ask,
    /// Somebody has the lock, with this rest of the lease.
    Busy(Option<Duration>),
}

#[derive(Debug, Default)]
pub(super) struct AnswerQueue {
    told: Mutex<ToldAnswers>,
}

#[derive(Debug, Default)]
struct ToldAnswers {
    next: VecDeque<NextAnswer>,
    lasting: Vec<Lasting>,
}

/// An answer that nobody has had yet.
#[derive(Debug)]
struct NextAnswer {
    /// The key that it is for; `None` if it is for any.
    key: Option<Box<str>>,
    answer: Answer,
}

/// An answer to all questions of one caller: a caller that waits asks the store several times.
#[derive(Debug)]
struct Lasting {
    key: Box<str>,
    until: Moment,
    answer: Answer,
}

impl AnswerQueue {
    pub(super) fn push(&self, key: Option<&str>, answer: Answer) {
        let key = key.map(Into::into);
        self.told.lock().next.push_back(NextAnswer { key, answer });
    }

    pub(super) fn left(&self) -> usize {
        self.told.lock().next.len()
    }

    pub(super) fn forget(&self) {
        let mut told = self.told.lock();
        told.next.clear();
        told.lasting.clear();
    }

    /// Returns the decision on a question for these locks, of which one caller wants all.
    pub(super) async fn verdict(&self, requests: &[AcquireRequest<'_>]) -> Result<Verdict, Fault> {
        let timeout = requests.iter().map(|request| request.timeout).min();
        match (self.answer(requests), timeout) {
            (None, _) => Ok(Verdict::Ask),
            (Some(Answer::Busy { retry_after }), _) => Ok(Verdict::Busy(retry_after)),
            (Some(Answer::Unavailable), _) => Err(Fault::not_done("no answer, as the test says")),
            (Some(Answer::Denied), _) => {
                Err(Fault::denied("the store refuses it, as the test says"))
            }
            (Some(Answer::Slow(pause)), Some(timeout)) if pause >= timeout => {
                clock::sleep(timeout).await;
                Err(no_answer_within(timeout))
            }
            (Some(Answer::Slow(pause)), _) => {
                clock::sleep(pause).await;
                Ok(Verdict::Ask)
            }
        }
    }

    /// Returns the answer that the test has for them, if it has one.
    fn answer(&self, requests: &[AcquireRequest<'_>]) -> Option<Answer> {
        let wanted = |key: &str| {
            let mut requests = requests.iter();
            requests.find(|request| request.hold_ref.key.raw() == key)
        };
        let mut told = self.told.lock();
        told.lasting.retain(|lasting| !lasting.until.has_passed());
        let mut lasting = told.lasting.iter();
        if let Some(lasting) = lasting.find(|lasting| wanted(&lasting.key).is_some()) {
            return Some(lasting.answer.clone());
        }
        let is_meant =
            |next: &NextAnswer| next.key.as_deref().is_none_or(|key| wanted(key).is_some());
        let found = told.next.iter().position(is_meant)?;
        let NextAnswer { key, answer } = told.next.remove(found)?;
        let request = match key {
            Some(key) => wanted(&key),
            None => requests.first(),
        };
        if let Some(request) = request
            && let Some(waits) = request.waits
            && matches!(answer, Answer::Busy { .. } | Answer::Unavailable)
        {
            told.lasting.push(Lasting {
                key: request.hold_ref.key.raw().into(),
                until: request.asked_at + waits,
                answer: answer.clone(),
            });
        }
        Some(answer)
    }
}

pub(super) fn no_answer_within(time: Duration) -> Fault {
    Fault::unknown(format!("no answer within {time:?}, as the test says"))
}

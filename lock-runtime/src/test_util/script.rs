//! The answers that a test has told its store to give.

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
pub(super) struct AnswerQueue(Mutex<Vec<ToldAnswer>>);

/// An answer that a test has told.
#[derive(Debug)]
struct ToldAnswer {
    /// The key that it is for; `None` if it is for any.
    key: Option<Box<str>>,
    answer: Answer,
    /// Until when its caller gets it again: a caller that waits asks the store several times. `None` if nobody has had it yet.
    until: Option<Moment>,
}

impl ToldAnswer {
    /// Returns the first of these requests that it is for.
    fn request<'r>(&self, requests: &'r [AcquireRequest<'r>]) -> Option<&'r AcquireRequest<'r>> {
        let is_meant = |raw: &str| self.key.as_deref().is_none_or(|key| key == raw);
        let mut requests = requests.iter();
        requests.find(|request| is_meant(request.hold_ref.key.raw()))
    }
}

impl AnswerQueue {
    pub(super) fn push(&self, key: Option<&str>, answer: Answer) {
        let (key, until) = (key.map(Into::into), None);
        self.0.lock().push(ToldAnswer { key, answer, until });
    }

    pub(super) fn left(&self) -> usize {
        let told = self.0.lock();
        told.iter().filter(|told| told.until.is_none()).count()
    }

    pub(super) fn forget(&self) {
        self.0.lock().clear();
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
        let mut all = self.0.lock();
        all.retain(|told| !told.until.is_some_and(Moment::has_passed));
        let found = |is_next: bool| {
            let is_meant = |told: &ToldAnswer| told.request(requests).is_some();
            let mut all = all.iter();
            all.position(|told| told.until.is_none() == is_next && is_meant(told))
        };
        if let Some(lasting) = found(false) {
            return Some(all[lasting].answer.clone());
        }
        let next = found(true)?;
        let told = &mut all[next];
        let request = told.request(requests)?;
        if let Some(waits) = request.waits
            && matches!(told.answer, Answer::Busy { .. } | Answer::Unavailable)
        {
            told.key = Some(request.hold_ref.key.raw().into());
            told.until = Some(request.asked_at + waits);
            return Some(told.answer.clone());
        }
        Some(all.remove(next).answer)
    }
}

pub(super) fn no_answer_within(time: Duration) -> Fault {
    Fault::unknown(format!("no answer within {time:?}, as the test says"))
}

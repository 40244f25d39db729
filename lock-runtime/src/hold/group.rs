//! The holds of a guard: one lock, or several as one.
//!
//! Several locks that are held as one are lost when any of them is lost. Each is a hold of its own to the store, the
//! watchdog and the local queue; only the users of the guard see them together.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::{CallChain, Hold, HoldHandle, Level, Lifecycle, Loss};
use crate::release::{Ending, Failure};
use crate::values::{Count, FencingToken, LockError, all};

/// The hold behind a guard, a lease or a loss signal.
#[derive(Clone)]
pub(crate) enum Held {
    One(Hold),
    All(Arc<HoldGroup>),
}

/// Several holds as one.
pub(crate) struct HoldGroup {
    name: Box<str>,
    holds: Box<[Hold]>,
    /// Raised when one of them is over.
    over: Arc<Notify>,
}

impl HoldGroup {
    fn new(holds: Box<[Hold]>) -> Arc<HoldGroup> {
        let names: Vec<_> = holds.iter().map(|hold| hold.key().name()).collect();
        let group = HoldGroup {
            name: names.join(", ").into(),
            over: Arc::default(),
            holds,
        };
        for hold in &group.holds {
            hold.also_tell(&group.over);
        }
        Arc::new(group)
    }
}

impl Held {
    pub(crate) fn name(&self) -> &str {
        match self {
            Held::One(hold) => hold.key().name(),
            Held::All(group) => &group.name,
        }
    }

    /// Each hold by itself.
    pub(crate) fn holds(&self) -> &[Hold] {
        match self {
            Held::One(hold) => std::slice::from_ref(hold),
            Held::All(group) => &group.holds,
        }
    }

    /// The token of a single lock. Several have one each.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        match self {
            Held::One(hold) => hold.token(),
            Held::All(_) => None,
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds().iter().all(Hold::is_held)
    }

    pub(crate) fn remaining(&self) -> Duration {
        let remaining = self.holds().iter().map(Hold::remaining);
        remaining.min().unwrap_or_default()
    }

    /// Formats it for the types that contain it.
    pub(crate) fn show(&self, owner: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(owner)
            .field("name", &self.name())
            .field("fencing_token", &self.token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }

    /// Returns the first loss, if one of them was lost.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.holds().iter().find_map(Hold::loss)
    }

    /// The loss as an error, which names the lock that was lost.
    pub(crate) fn lost_error(&self) -> Option<LockError> {
        let lost = |hold: &Hold| Some(hold.lost_error(hold.loss()?));
        self.holds().iter().find_map(lost)
    }

    /// Raised when it is over; look again then.
    pub(crate) fn over_signal(&self) -> OwnedNotified {
        match self {
            Held::One(hold) => hold.over_signal(),
            Held::All(group) => group.over.clone().notified_owned(),
        }
    }

    /// Resolves when it is over, lost or released.
    pub(crate) async fn over(self) {
        loop {
            // Made before the look: a signal in between reaches it.
            let over = self.over_signal();
            if !self.is_held() {
                return;
            }
            over.await;
        }
    }

    /// Resolves when a manager of one of them admits no more callers.
    pub(crate) async fn closing(self) {
        let holds = self.holds().iter();
        let mut closing: Vec<_> = holds.map(|hold| Box::pin(hold.closing())).collect();
        poll_fn(|cx| {
            let is_one = closing
                .iter_mut()
                .any(|one| one.as_mut().poll(cx).is_ready());
            if is_one {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.holds()).finish()
    }
}

/// A guard's part in what it holds: one handle of each lock, in the order in which they were taken.
#[derive(Debug)]
pub(crate) struct Handles {
    held: Held,
    /// Those before the last one; `None` for a single lock.
    #[expect(
        clippy::box_collection,
        reason = "few guards have it, and each has its place"
    )]
    before: Option<Box<Vec<HoldHandle>>>,
    last: HoldHandle,
}

impl Handles {
    pub(crate) fn one(handle: HoldHandle) -> Handles {
        Handles {
            held: Held::One(handle.hold().clone()),
            before: None,
            last: handle,
        }
    }

    /// One guard's handle of all of them, in the order in which they were taken. `None` if there are none.
    pub(crate) fn joined(mut parts: Vec<HoldHandle>) -> Option<Handles> {
        let last = parts.pop()?;
        if parts.is_empty() {
            return Some(Handles::one(last));
        }
        let all = parts.iter().chain([&last]);
        let holds = all.map(|part| part.hold().clone()).collect();
        Some(Handles {
            held: Held::All(HoldGroup::new(holds)),
            before: Some(Box::new(parts)),
            last,
        })
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &HoldHandle> {
        let before = self.before.iter().flat_map(|before| before.iter());
        before.chain([&self.last])
    }

    /// Returns the call chain of a body that runs under the guard. The level of the last handle has the levels of the others
    /// before it, so all of them are ancestors of the body.
    pub(crate) fn call_chain(&self) -> CallChain {
        let level = |before: Option<Arc<Level>>, part: &HoldHandle| Some(part.level(before));
        let before = self.before.iter().flat_map(|before| before.iter());
        CallChain {
            level: self.last.level(before.fold(None, level)),
            held: self.held.clone(),
            acquired_in: self.last.acquired_in.clone(),
        }
    }

    /// The share of a guard that holds one lock.
    pub(crate) fn only(&mut self) -> Option<&mut HoldHandle> {
        self.before.is_none().then_some(&mut self.last)
    }

    /// Calls [`HoldHandle::count_as`] of each handle.
    pub(crate) fn count_as(&mut self, counter: impl Fn(&Lifecycle) -> &Arc<Count>) {
        let before = self.before.iter_mut().flat_map(|before| before.iter_mut());
        for part in before.chain([&mut self.last]) {
            part.count_as(&counter);
        }
    }

    /// Ends the handles. The future may be dropped at any time; the releases go on in the background.
    pub(crate) fn release(self, failure: Failure) -> Ending {
        let last = self.last.release(failure);
        let Some(before) = self.before else {
            return last;
        };
        // All have left before the first answer is waited for, whatever becomes of the future.
        let before = before.into_iter().rev();
        let before = before.map(|handle| handle.release(failure));
        Box::pin(all_of(std::iter::once(last).chain(before).collect()))
    }
}

/// Drives the endings side by side. The error of a loss goes before other errors.
pub(crate) async fn all_of<F>(endings: Vec<F>) -> Result<(), LockError>
where
    F: Future<Output = Result<(), LockError>> + Unpin,
{
    let mut outcome = Ok(());
    for error in all(endings).await.into_iter().filter_map(Result::err) {
        if outcome.is_ok() || matches!(error, LockError::Lost { .. }) {
            outcome = Err(error);
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::LostReason;

    fn unavailable() -> LockError {
        LockError::unavailable("k", "no answer")
    }

    fn lost() -> LockError {
        LockError::Lost {
            name: "k".to_owned(),
            held_for: Duration::ZERO,
            reason: LostReason::Expired,
            completed: false,
        }
    }

    async fn outcome(of: Vec<Result<(), LockError>>) -> Result<(), LockError> {
        let endings = of.into_iter().map(|ending| Box::pin(async { ending }));
        all_of(endings.collect()).await
    }

    #[tokio::test]
    async fn the_error_of_any_ending_is_returned_and_a_loss_first() {
        assert!(outcome(vec![Ok(()), Ok(())]).await.is_ok());
        let one = outcome(vec![Ok(()), Err(unavailable()), Ok(())]).await;
        assert!(matches!(one, Err(LockError::Unavailable { .. })), "{one:?}");
        for of in [[unavailable(), lost()], [lost(), unavailable()]] {
            let both = outcome(of.map(Err).into()).await;
            assert!(matches!(both, Err(LockError::Lost { .. })), "{both:?}");
        }
    }
}

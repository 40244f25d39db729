//! Count-down latches.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::attempt::Attempt;
use crate::acquire::counter::{Counter, reach_front};
use crate::api::request::LockRequest;
use crate::backend::{CounterKind, Counters, Fault, Reply};
use crate::hold::Core;
use crate::values::options::check_count;
use crate::values::{Kind, LockError, LockName, config};

/// A count-down latch by its name. It opens when a number of events has happened, in any processes.
/// [`LockManager::latch`](crate::LockManager::latch) makes it; it is cheap to clone. On Redis it is Redisson's
/// `RCountDownLatch`.
///
/// A latch that was never set is open, and so is one whose count was lost by the store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::LockManager::in_memory();
/// let imported = locks.latch("import:done");
/// imported.try_set_count(2).await?;
/// imported.count_down().await?; // in each worker, when it has finished
/// imported.count_down().await?;
/// imported.opened().wait_forever().await?; // wherever somebody depends on it
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a latch by its name waits for nothing: await `opened()`, or count down"]
pub struct Latch {
    core: Arc<Core>,
    name: LockName,
}

impl Latch {
    pub(crate) fn new(core: Arc<Core>, name: LockName) -> Latch {
        Latch { core, name }
    }

    async fn counter(&self) -> Result<Counter<'_>, LockError> {
        Counter::new(&self.core, &self.name, CounterKind::Latch).await
    }

    /// Closes the latch for `count` events, if it is open. Returns false if it was closed, and leaves its count as it
    /// was.
    ///
    /// # Errors
    /// [`LockError::InvalidName`], [`LockError::InvalidConfig`] for 0 or more than 10^12, [`LockError::ForeignKey`],
    /// [`LockError::Unavailable`] (it may have been set or not), [`LockError::Denied`], [`LockError::ShuttingDown`].
    ///
    /// # Cancel safety
    /// Dropping the future may leave it set or not.
    pub async fn try_set_count(&self, count: u64) -> Result<bool, LockError> {
        let counter = self.counter().await?.if_open()?;
        check_count("the count of a latch", count)?;
        if count == 0 {
            return Err(config("a latch waits for 1 event at least, not for 0"));
        }
        counter
            .once(|counters, counter, timeout| counters.set(counter, count, timeout))
            .await
    }

    /// Returns the number of events that are still to come; 0 if the latch is open.
    ///
    /// # Errors
    /// The same as [`try_set_count`](Latch::try_set_count).
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn count(&self) -> Result<u64, LockError> {
        let counter = self.counter().await?;
        let read = counter.once(Counters::read);
        Ok(u64::try_from(read.await?.unwrap_or(0)).unwrap_or(0))
    }

    /// Tells the latch that one event has happened, and returns how many are still to come. An open latch stays open.
    ///
    /// # Errors
    /// The same as [`try_set_count`](Latch::try_set_count). After [`LockError::Unavailable`] it may have been counted
    /// or not: it is sent once, because a second one could open the latch too early. A shutdown refuses it only once
    /// the shutdown is done.
    ///
    /// # Cancel safety
    /// Dropping the future may leave it counted or not.
    pub async fn count_down(&self) -> Result<u64, LockError> {
        let counter = self.counter().await?;
        counter
            .once(|counters, counter, timeout| counters.count_down(counter.key, timeout))
            .await
    }

    /// Returns a request to wait until the latch is open: `latch.opened().await`, or with a wait of its own
    /// `latch.opened().wait(..).await`.
    pub fn opened(&self) -> LatchRequest {
        let (core, name) = (self.core.clone(), self.name.clone());
        LatchRequest {
            latch: self.clone(),
            request: LockRequest::new(core, name, Kind::Semaphore),
        }
    }

    /// Opens the latch, no matter what its count is. Returns false if it was open.
    ///
    /// # Errors
    /// The same as [`try_set_count`](Latch::try_set_count).
    ///
    /// # Cancel safety
    /// Dropping the future may leave it done or not done.
    pub async fn delete(&self) -> Result<bool, LockError> {
        self.counter().await?.once(Counters::delete).await
    }
}

/// A request to wait until a latch is open, made by [`Latch::opened`]. It waits when it is awaited.
///
/// It asks the store by itself about once a second, and after every reconnection, so that no lost message makes it
/// hang. A latch that opens and is set again in between may be missed. If many callers of one process wait, one of them
/// asks for all.
///
/// See the example of [`Latch`].
///
/// # Errors
/// [`LockError::Busy`] if the latch was closed for the whole wait; while the store is away, it goes on waiting, and is
/// [`LockError::Unavailable`] in the end, if that was seen within the wait; [`LockError::TooManyWaiters`]; the others
/// as [`Latch::try_set_count`].
///
/// # Cancel safety
/// Changes nothing.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct LatchRequest {
    latch: Latch,
    /// How long it waits, in the local queue that semaphores have, too.
    request: LockRequest,
}

impl LatchRequest {
    /// Waits up to `wait`; zero asks once. If a request to the store is under way when that is over, waits for its answer,
    /// up to 200 ms after the request. Default: the manager's, 10 s. One year at most.
    pub fn wait(mut self, wait: Duration) -> LatchRequest {
        self.request = self.request.wait(wait);
        self
    }

    /// Waits for as long as it takes.
    pub fn wait_forever(mut self) -> LatchRequest {
        self.request = self.request.wait_forever();
        self
    }

    async fn wait_until_open(self) -> Result<(), LockError> {
        let LatchRequest { latch, request } = self;
        let counter = latch.counter().await?.if_open()?;
        let (core, request) = request.into_checked()?;
        let attempt = Attempt::new(core, request);
        let (counters, reference) = (counter.counters, counter.reference());
        let is_open = move |timeout| async move {
            let count = counters.read(reference, timeout).await?;
            Ok(count.is_none_or(|count| count <= 0))
        };
        if !attempt.deadline.waits() {
            // This asks the store itself, because the front's last answer may be a second old.
            let ask = |timeout| -> Reply<'_, bool> { Box::pin(is_open(timeout)) };
            return counter.until(&attempt, None, ask, Fault::is_passing).await;
        }
        let Some(front) = reach_front(&attempt).await? else {
            return Ok(());
        };
        let mut asked = front.so_far();
        let ask = |timeout| -> Reply<'_, bool> {
            asked = front.so_far();
            Box::pin(is_open(timeout))
        };
        let until = counter.until(&attempt, Some(&front), ask, Fault::is_passing);
        until.await?;
        // Callers that came after the request may have seen the latch being set before they came: they ask again.
        front.let_go(asked);
        Ok(())
    }
}

impl IntoFuture for LatchRequest {
    type Output = Result<(), LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait_until_open())
    }
}

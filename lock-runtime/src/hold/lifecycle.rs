//! From the first call to the end of the shutdown: which runtime the background work belongs to, what of it is
//! still under way, and whether callers are admitted.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::hold::runtimes::Runtimes;
use crate::values::{Count, Key, LockError, Moment, ShutdownCause, clock, config};

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const STOPPED: u8 = 2;
const RUNTIME_GONE: u8 = 3;

#[derive(Default)]
pub(crate) struct Lifecycle {
    phase: AtomicU8,
    /// The moment at which `phase` left `OPEN`.
    closed_at: OnceLock<Moment>,
    /// Raised after `phase` has left `OPEN`.
    closing: Notify,
    /// Raised after `phase` has reached `STOPPED` or `RUNTIME_GONE`.
    stopped: Notify,
    pub(crate) runtimes: Runtimes,
    /// Guards in the hands of callers that have not ended, lost ones included. Nobody knows when their owners end them.
    pub(crate) in_hand: Arc<Count>,
    /// Bodies that run under a hold, requests to the store that may become a hold, and holds on their way to their
    /// callers: a shutdown ends all of these. A request counts first and then looks whether callers are still admitted;
    /// a shutdown does it the other way round. All of it is sequentially consistent, so one of the two sees the other.
    pub(crate) under_way: Arc<Count>,
    /// Background releases and hand-overs under way, and requests to counters.
    pub(crate) background: Arc<Count>,
}

impl Lifecycle {
    pub(crate) fn new(runtimes: Runtimes) -> Lifecycle {
        Lifecycle {
            runtimes,
            ..Lifecycle::default()
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OPEN
    }

    /// Refuses callers once the manager closes.
    pub(crate) fn check_open(&self, key: &Key) -> Result<(), LockError> {
        self.closed().map_or(Ok(()), |why| Err(refused(key, why)))
    }

    /// Refuses callers once the manager has stopped: until then, callers that a shutdown lets finish may give back.
    pub(crate) fn check_not_stopped(&self, key: &Key) -> Result<(), LockError> {
        match self.phase.load(Ordering::SeqCst) {
            OPEN | CLOSING => Ok(()),
            _ => self.check_open(key),
        }
    }

    /// Returns the reason why callers are no longer admitted.
    pub(crate) fn closed(&self) -> Option<ShutdownCause> {
        match self.phase.load(Ordering::SeqCst) {
            OPEN => None,
            CLOSING | STOPPED => Some(ShutdownCause::Shutdown),
            _ => Some(ShutdownCause::RuntimeEnded),
        }
    }

    /// Returns the reason why callers are no longer admitted, and since when.
    pub(crate) fn closed_since(&self) -> Option<(ShutdownCause, Moment)> {
        Some((self.closed()?, *self.closed_at.get()?))
    }

    /// Resolves when nobody holds or acquires a lock.
    pub(crate) async fn holds_ended(&self) {
        // A hold moves from one count to the other, and back when its caller leaves: one of these looks sees it.
        while self.under_way.count() + self.in_hand.count() + self.under_way.count() > 0 {
            self.in_hand.zero().await;
            self.under_way.zero().await;
        }
    }

    /// Resolves when nothing acquires, runs under a hold or releases.
    pub(crate) async fn idle(&self) {
        while self.under_way.count() + self.background.count() > 0 {
            self.under_way.zero().await;
            self.background.zero().await;
        }
    }

    /// Whether the background loops must end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.phase.load(Ordering::SeqCst) >= STOPPED
    }

    /// Admits no more callers.
    pub(crate) fn close(&self) {
        self.advance(CLOSING);
    }

    /// Ends the background loops.
    pub(crate) fn stop(&self) {
        self.advance(STOPPED);
    }

    /// The runtime of the background loops has ended, and the store's connections with it.
    pub(crate) fn runtime_gone(&self) {
        self.advance(RUNTIME_GONE);
    }

    /// Phases only go forward.
    fn advance(&self, phase: u8) {
        self.closed_at.get_or_init(clock::now);
        self.phase.fetch_max(phase, Ordering::SeqCst);
        self.closing.notify_waiters();
        if phase >= STOPPED {
            self.stopped.notify_waiters();
        }
    }

    /// Resolves once the background loops must end.
    pub(crate) async fn stopped(&self) {
        let stopped = self.stopped.notified();
        if self.phase.load(Ordering::Acquire) < STOPPED {
            stopped.await;
        }
    }

    /// Resolves once callers are no longer admitted.
    pub(crate) async fn closing(&self) {
        let closing = self.closing.notified();
        if self.is_open() {
            closing.await;
        }
    }

    /// Runs `work` in the background, counted, as [`Runtimes::spawn`] does.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let counted = self.background.enter();
        self.spawn_uncounted(async move {
            work.await;
            drop(counted);
        });
    }

    /// Does the same as [`spawn`](Lifecycle::spawn), for work that a shutdown does not wait for, or that counts itself.
    pub(crate) fn spawn_uncounted(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtimes.spawn(work);
    }
}

/// The runtime of the caller.
///
/// # Errors
/// [`LockError::InvalidConfig`] outside one. Timers would panic there, and name neither this library nor the remedy.
pub(crate) fn current_runtime() -> Result<Handle, LockError> {
    Handle::try_current().map_err(|_| {
        config(
            "this call needs a tokio runtime and was polled outside one: await it below `#[tokio::main]` or \
             `Runtime::block_on`, or enter a runtime before (`Handle::enter`)",
        )
    })
}

pub(crate) fn refused(key: &Key, why: ShutdownCause) -> LockError {
    LockError::ShuttingDown {
        name: key.name().to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether it is still pending a moment later. Time is paused.
    async fn waits(work: impl Future<Output = ()>) -> bool {
        let moment = Duration::from_millis(1);
        tokio::time::timeout(moment, work).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_manager_closes_and_stops_and_never_goes_back() {
        let life = Lifecycle::default();
        assert!(life.is_open() && life.closed().is_none() && !life.is_stopped());
        assert!(waits(life.closing()).await && waits(life.stopped()).await);

        life.close();
        assert!(!life.is_open() && !life.is_stopped());
        assert_eq!(life.closed(), Some(ShutdownCause::Shutdown));
        assert!(!waits(life.closing()).await && waits(life.stopped()).await);

        life.stop();
        assert!(life.is_stopped() && !waits(life.stopped()).await);
        assert_eq!(life.closed(), Some(ShutdownCause::Shutdown));

        life.runtime_gone();
        assert_eq!(life.closed(), Some(ShutdownCause::RuntimeEnded));
        life.close();
        assert_eq!(life.closed(), Some(ShutdownCause::RuntimeEnded));
        assert!(life.is_stopped());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_idle_without_work_under_way_or_in_the_background() {
        let life = Lifecycle::default();
        let (asking, releasing) = (life.under_way.enter(), life.background.enter());
        assert!(waits(life.idle()).await);
        drop(asking);
        assert!(waits(life.idle()).await);
        drop(releasing);
        assert!(!waits(life.idle()).await);

        let in_hand = life.in_hand.enter();
        assert!(!waits(life.idle()).await, "a guard is no work");
        assert!(waits(life.holds_ended()).await);
        drop(in_hand);
        assert!(!waits(life.holds_ended()).await);
    }
}

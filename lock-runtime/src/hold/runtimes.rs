//! Chooses the runtime in which a manager's background work runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

/// The number of runtimes that are remembered: more than live at a time in any test suite. The oldest are forgotten.
const REMEMBERED: usize = 16;

/// The runtimes of a manager.
#[derive(Debug)]
pub(crate) enum Runtimes {
    /// The connections of the store belong to the runtime of the first call, and so does all background work.
    First(OnceLock<Handle>),
    /// The store belongs to no runtime: the work runs in any runtime that has called. The first runtime here has the
    /// work; when that ends, the latest one takes over.
    Any(RwLock<Vec<Handle>>),
}

impl Default for Runtimes {
    fn default() -> Runtimes {
        Runtimes::First(OnceLock::new())
    }
}

impl Runtimes {
    pub(crate) fn any() -> Runtimes {
        Runtimes::Any(RwLock::default())
    }

    /// Takes note of the runtime of a call. True if the background work is to be started in it.
    pub(crate) fn bind(&self, caller: &Handle) -> bool {
        match self {
            Runtimes::First(first) => first.get().is_none() && first.set(caller.clone()).is_ok(),
            Runtimes::Any(seen) => {
                let is_known = |seen: &[Handle]| seen.iter().any(|seen| seen.id() == caller.id());
                if is_known(&seen.read().unwrap_or_else(PoisonError::into_inner)) {
                    return false;
                }
                let mut seen = seen.write().unwrap_or_else(PoisonError::into_inner);
                if is_known(&seen) {
                    return false;
                }
                if seen.len() == REMEMBERED {
                    // The first runtime has the work.
                    seen.remove(1);
                }
                seen.push(caller.clone());
                seen.len() == 1
            }
        }
    }

    /// The runtime that had the work has ended. Returns the runtime where it goes on, if there is one.
    pub(crate) fn ended(&self) -> Option<Handle> {
        match self {
            Runtimes::First(_) => None,
            Runtimes::Any(seen) => {
                let mut seen = seen.write().unwrap_or_else(PoisonError::into_inner);
                if !seen.is_empty() {
                    seen.remove(0);
                }
                let latest = seen.pop()?;
                seen.insert(0, latest.clone());
                Some(latest)
            }
        }
    }

    /// Runs `work` in the background. Never blocks or panics. Where there is no runtime left, the work of a store that
    /// needs one is dropped, and leases run out by themselves; the work of any other store is done at once.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self {
            Runtimes::First(first) => {
                if let Some(runtime) = first.get() {
                    drop(runtime.spawn(work));
                }
            }
            Runtimes::Any(seen) => {
                let work = Finished(Some(Box::pin(work)));
                let first = seen.read().unwrap_or_else(PoisonError::into_inner);
                let runtime = Handle::try_current()
                    .ok()
                    .or_else(|| first.first().cloned());
                drop(first);
                match runtime {
                    Some(runtime) => drop(runtime.spawn(work)),
                    None => drop(work),
                }
            }
        }
    }
}

/// Work that is polled once more when its runtime ends before it has run. A store that belongs to no runtime answers at
/// once, so one poll completes it.
struct Finished(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Future for Finished {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(work) = &mut self.0 else {
            return Poll::Ready(());
        };
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        let Some(work) = &mut self.0 else {
            return;
        };
        // The runtime may end because its thread panics, and a second panic would end the process.
        let polled =
            AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        let _ = catch_unwind(polled);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn the_work_goes_to_the_latest_runtime_that_called() {
        let runtimes = Runtimes::any();
        let all = [runtime(), runtime(), runtime()];
        let bound = all
            .each_ref()
            .map(|runtime| runtimes.bind(runtime.handle()));
        assert_eq!(bound, [true, false, false]);
        assert!(!runtimes.bind(all[1].handle()), "it is known");
        let next = [2, 1].map(|index: usize| all[index].handle().id());
        assert_eq!(next, [(); 2].map(|()| runtimes.ended().unwrap().id()));
        assert!(runtimes.ended().is_none());
        assert!(runtimes.bind(all[0].handle()), "it begins anew");
    }

    #[test]
    fn the_oldest_runtimes_are_forgotten_but_not_the_one_at_work() {
        let runtimes = Runtimes::any();
        let all: Vec<_> = (0..=REMEMBERED).map(|_| runtime()).collect();
        for runtime in &all {
            runtimes.bind(runtime.handle());
        }
        let Runtimes::Any(seen) = &runtimes else {
            unreachable!()
        };
        let ids: Vec<_> = seen.read().unwrap().iter().map(Handle::id).collect();
        assert_eq!(ids.len(), REMEMBERED);
        assert_eq!(ids[0], all[0].handle().id());
        assert!(!ids.contains(&all[1].handle().id()));
    }

    #[test]
    fn work_whose_runtime_ends_is_done_all_the_same() {
        let done = Arc::new(AtomicBool::new(false));
        let work = |done: &Arc<AtomicBool>| {
            let done = done.clone();
            async move { done.store(true, Ordering::SeqCst) }
        };
        let (runtimes, ended) = (Runtimes::any(), runtime());
        runtimes.bind(ended.handle());
        runtimes.spawn(work(&done));
        assert!(!done.load(Ordering::SeqCst), "nobody has run it");
        drop(ended);
        assert!(done.swap(false, Ordering::SeqCst));
        runtimes.spawn(work(&done));
        assert!(done.load(Ordering::SeqCst), "nobody is left to run it");
    }
}

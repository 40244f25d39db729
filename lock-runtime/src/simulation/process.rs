//! One process: a runtime whose clock is paused, and what is on its way to it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::time::Instant;

use super::line::Road;
use crate::values::clock::{self, Simulated};

/// What arrives at a process, carried out in its runtime.
pub(super) type Inbox = Arc<Road<dyn FnOnce() + Send>>;

/// A process of the simulation.
pub struct Process {
    number: usize,
    runtime: Option<Runtime>,
    clock: Simulated,
    inbox: Inbox,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Process").field(&self.number).finish()
    }
}

pub(super) fn paused_runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O")
}

impl Process {
    /// Begins a process, `at` this time of the simulation.
    pub fn new(number: usize, at: Duration) -> Process {
        let runtime = paused_runtime();
        let began = runtime.block_on(async { clock::tick() });
        Process {
            number,
            runtime: Some(runtime),
            clock: Simulated {
                began: began.into_std(),
                behind: at,
                suspended: Duration::ZERO,
            },
            inbox: Inbox::default(),
        }
    }

    /// The number that it was given.
    pub fn number(&self) -> usize {
        self.number
    }

    pub(super) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it has not ended")
    }

    /// Returns the handle of its runtime.
    pub fn handle(&self) -> Handle {
        self.runtime().handle().clone()
    }

    /// Makes its clocks and its runtime the current ones.
    pub fn enter(&self) -> EnterGuard<'_> {
        clock::simulate(self.clock);
        self.runtime().enter()
    }

    /// Begins a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _here = self.enter();
        drop(self.runtime().spawn(task));
    }

    /// Lets it run until this time of the simulation. What arrives before that is delivered on time.
    pub fn run_until(&mut self, until: Duration) {
        clock::simulate(self.clock);
        while let Some((at, delivered)) = self.inbox.next(until) {
            self.idle_until(at);
            self.runtime().block_on(async { delivered() });
        }
        self.idle_until(until);
    }

    /// All tasks run, and the clock goes from timer to timer.
    fn idle_until(&self, time: Duration) {
        let own = time.saturating_sub(self.clock.behind);
        let until = Instant::from_std(self.clock.began + own);
        self.runtime()
            .block_on(async { tokio::time::sleep_until(until).await });
    }

    /// It did not run until this time, as if it had been stopped. Its clock went on meanwhile, so all of its timers are late.
    pub fn thaw(&mut self, at: Duration) {
        clock::simulate(self.clock);
        let own = at.saturating_sub(self.clock.behind);
        self.runtime().block_on(async {
            let due = Instant::from_std(self.clock.began + own);
            tokio::time::advance(due - clock::tick()).await;
        });
    }

    /// Its machine was suspended until `at`. Its clock stood still for `time`; the boot clock went on, or stood still, too.
    pub fn resume(&mut self, time: Duration, boot: bool) {
        self.clock.behind += time;
        if boot {
            self.clock.suspended += time;
        }
    }

    /// Ends it as a kill does: nothing of it runs any more, not even what is done when something is dropped.
    pub fn kill(mut self) {
        std::mem::forget(self.runtime.take());
    }

    /// Ends its runtime, with all tasks in it.
    pub fn end(mut self) {
        clock::simulate(self.clock);
        drop(self.runtime.take());
    }

    /// Returns the number of its tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.runtime().metrics().num_alive_tasks()
    }
}

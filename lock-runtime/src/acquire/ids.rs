//! Ids for a caller: from a range that was drawn ahead, or from the next one.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::coop;

use crate::acquire::contend::pauses_after_faults;
use crate::backend::Fault;
use crate::hold::Core;
use crate::hold::ids::{DrawTask, IdAnswer, IdClocks, IdSource};
use crate::values::ids::MOST_IDS;
use crate::values::options::{RUNTIME_SLACK, check_number};
use crate::values::{IdRange, IdSecret, LockError, clock};

/// The time in which a block of shuffled ids begins.
const BLOCK: Duration = Duration::from_millis(1);

/// Takes so many ids that follow one another.
pub(crate) async fn take(
    core: &Arc<Core>,
    source: &Arc<IdSource>,
    count: u32,
) -> Result<IdRange, LockError> {
    coop::consume_budget().await;
    check_number("ids", count, MOST_IDS)?;
    core.counters("ids")?;
    let key = source.key(core)?;
    core.start_here()?;
    // Bodies that a shutdown lets finish may need ids.
    core.life.check_not_stopped(key)?;
    let patience = core.options.call_timeout + RUNTIME_SLACK;
    loop {
        let IdAnswer { ids, draw, asked } = source.ask(count, || IdClocks::of(core));
        if let Some(draw) = draw {
            // The manager drives it: callers may leave, and the others need the range.
            core.life.spawn(Drawing::new(core, source, draw).run());
        }
        let mut told = match ids {
            Ok(ids) => return Ok(ids),
            Err(told) => told,
        };
        let mut left = patience;
        let told = loop {
            tokio::select! {
                biased;
                told = &mut told => break told.unwrap_or_else(|_| Err(Fault::runtime_ended())),
                // After a time in which nothing of the process ran, the task that draws goes first.
                () = clock::sleep(left) => tokio::task::yield_now().await,
            }
            if let Ok(told) = told.try_recv() {
                break told;
            }
            left = source.patience_left(patience, asked, clock::now());
            if left.is_zero() {
                let why = "the runtime that asks the store for ids is not driven";
                break Err(Fault::not_done(why));
            }
        };
        match told {
            Ok((ids, drawn)) if IdClocks::of(core).is_in_one_life_with(drawn) => return Ok(ids),
            // A copy of this process may have them.
            Ok(_) => {}
            Err(fault) => return Err(fault.into_error(source.name().as_str())),
        }
    }
}

/// The task that draws from a source. There is one at a time.
struct Drawing {
    core: Arc<Core>,
    source: Arc<IdSource>,
    draw: DrawTask,
}

impl Drawing {
    fn new(core: &Arc<Core>, source: &Arc<IdSource>, draw: DrawTask) -> Drawing {
        Drawing {
            core: core.clone(),
            source: source.clone(),
            draw,
        }
    }

    /// Draws for as long as callers wait.
    async fn run(self) {
        while let Some((count, secret)) = self.source.next(self.draw, IdClocks::of(&self.core)) {
            if let Err(fault) = self.draw(count, secret).await {
                self.source.failed(self.draw, &fault);
            }
        }
    }

    /// Draws one range within the call timeout. An unknown outcome is no reason to stop: its ids are lost.
    async fn draw(&self, count: u32, secret: Option<IdSecret>) -> Result<(), Fault> {
        let (core, key) = (&self.core, self.source.key(&self.core));
        let (Ok(key), Some(counters)) = (key, core.backend.counters()) else {
            return Err(Fault::closed());
        };
        let deadline = clock::now() + core.options.call_timeout;
        let mut pauses = pauses_after_faults();
        loop {
            let sent = IdClocks::of(core);
            let drawn = counters.draw_ids(key, count, secret, deadline.remaining());
            let (fault, pause) = match drawn.await {
                Ok(Some(range)) => {
                    let now = IdClocks::of(core);
                    if now.is_in_one_life_with(sent) {
                        self.source.drew(self.draw, range, sent, now);
                        return Ok(());
                    }
                    // A copy of this process may have read the same answer.
                    (Fault::Outdated, Duration::ZERO)
                }
                Ok(None) => (Fault::not_done("the next ids are not due yet"), BLOCK),
                Err(fault) => (fault, pauses.pause()),
            };
            if !fault.is_passing() || !deadline.leaves_time_after(pause).await {
                return Err(fault);
            }
        }
    }
}

impl Drop for Drawing {
    /// After the last range, nobody waits: then only the runtime has ended.
    fn drop(&mut self) {
        self.source.ended(self.draw);
    }
}

#[cfg(test)]
mod tests;

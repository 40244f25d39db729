//! Ids for a caller: from a range that was drawn ahead, or from the next one.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::coop;

use crate::acquire::contend::pauses_after_faults;
use crate::backend::Fault;
use crate::hold::Core;
use crate::hold::ids::{IdSource, Now, Served, Want};
use crate::values::ids::check_id_count;
use crate::values::{IdRange, LockError, clock};

/// The time in which a block of shuffled ids begins.
const BLOCK: Duration = Duration::from_millis(1);

/// Takes so many ids that follow one another.
pub(crate) async fn take(
    core: &Arc<Core>,
    source: &Arc<IdSource>,
    count: u32,
) -> Result<IdRange, LockError> {
    coop::consume_budget().await;
    check_id_count(count)?;
    core.check_keeps_ids()?;
    let key = source.key(core)?;
    core.start_here()?;
    // Bodies that a shutdown lets finish may need ids.
    core.life.check_not_stopped(key)?;
    let Served { ids, draw } = source.ask(count, Now::of(core));
    if draw {
        // The manager drives it: callers may leave, and the others need the range.
        core.life.spawn(Drawing::new(core, source).run());
    }
    let ids = match ids {
        Ok(ids) => return Ok(ids),
        Err(told) => told.await,
    };
    let ids = ids.unwrap_or_else(|_| Err(Fault::runtime_ended()));
    ids.map_err(|fault| fault.into_error(source.name().as_str()))
}

/// The task that draws from a source. There is one at a time.
struct Drawing {
    core: Arc<Core>,
    source: Arc<IdSource>,
    ended: bool,
}

impl Drawing {
    fn new(core: &Arc<Core>, source: &Arc<IdSource>) -> Drawing {
        Drawing {
            core: core.clone(),
            source: source.clone(),
            ended: false,
        }
    }

    /// Draws for as long as callers wait.
    async fn run(mut self) {
        while let Some(want) = self.source.next(Now::of(&self.core)) {
            if let Err(fault) = self.draw(want).await {
                self.source.failed(&fault);
                break;
            }
        }
        self.ended = true;
    }

    /// Draws one range within the call timeout. An unknown outcome is no reason to stop: its ids are lost.
    async fn draw(&self, want: Want) -> Result<(), Fault> {
        let (core, key) = (&self.core, self.source.key(&self.core));
        let (Ok(key), Some(counters)) = (key, core.backend.counters()) else {
            return Err(Fault::closed());
        };
        let deadline = clock::now() + core.options.call_timeout;
        let mut pauses = pauses_after_faults();
        loop {
            let sent = Now::of(core);
            let drawn = counters.draw_ids(key, want.count, want.secret, deadline.remaining());
            let (fault, pause) = match drawn.await {
                Ok(Some(range)) => {
                    let now = Now::of(core);
                    if now.is_of_one_generation_with(sent) {
                        self.source.drew(range, sent, now);
                        return Ok(());
                    }
                    // A copy of this process may have read the same answer.
                    (Fault::Outdated, Duration::ZERO)
                }
                Ok(None) => (Fault::not_done("the next ids are not due yet"), BLOCK),
                Err(fault) => (fault, pauses.pause()),
            };
            if !fault.is_passing() || deadline.remaining() <= pause {
                return Err(fault);
            }
            clock::sleep(pause).await;
        }
    }
}

impl Drop for Drawing {
    /// The runtime has ended.
    fn drop(&mut self) {
        if !self.ended {
            self.source.failed(&Fault::runtime_ended());
        }
    }
}

#[cfg(test)]
mod tests;

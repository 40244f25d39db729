//! Who is nested in whom. Async tasks have no thread identity, so a nested request re-enters a lock only when an
//! ancestor in its own call chain holds it.
//!
//! The chain is a task-local. It names the task that set it, and counts only there: a future that was made inside
//! a hold and then spawned is a stranger.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::Id;

use crate::hold::Hold;
use crate::kind::Kind;

tokio::task_local! {
    static CHAIN: Chain;
}

/// A hold as an ancestor of what runs under it.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) hold: Arc<Hold>,
    /// As what it was acquired: a read may share a write hold.
    pub(crate) kind: Kind,
    /// The level that this one was acquired under.
    parent: Option<Arc<Level>>,
    /// A level admits one nested path at a time, or several that only read; the others wait for it in the order they
    /// came.
    pub(crate) turn: Arc<Semaphore>,
}

/// What a level's turn is divided into.
const WHOLE_TURN: u32 = 1 << 20;

impl Level {
    pub(crate) fn new(hold: Arc<Hold>, kind: Kind, parent: Option<Arc<Level>>) -> Arc<Level> {
        Arc::new(Level {
            hold,
            kind,
            parent,
            turn: Arc::new(Semaphore::new(WHOLE_TURN as usize)),
        })
    }

    /// How much of a level's turn a nested request takes.
    pub(crate) fn part_of_turn(kind: Kind) -> u32 {
        if kind == Kind::Read { 1 } else { WHOLE_TURN }
    }

    /// This level and its ancestors, nearest first.
    pub(crate) fn upward(self: &Arc<Level>) -> impl Iterator<Item = &Arc<Level>> {
        std::iter::successors(Some(self), |level| level.parent.as_ref())
    }
}

/// The innermost level, and the task in which it counts. `None` outside of spawned tasks: `block_on` has no id.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    head: Arc<Level>,
    task: Option<Id>,
}

impl Chain {
    /// A chain that counts in the task that runs now.
    pub(crate) fn here(head: Arc<Level>) -> Chain {
        Chain {
            head,
            task: tokio::task::try_id(),
        }
    }

    /// The chain that the caller runs under, wherever it was set.
    pub(crate) fn current() -> Option<Chain> {
        CHAIN.try_with(Chain::clone).ok()
    }

    /// The innermost level, if the caller runs in the task that the chain was set in.
    pub(crate) fn head(&self) -> Option<&Arc<Level>> {
        (self.task == tokio::task::try_id()).then_some(&self.head)
    }

    /// Runs `poll` under this chain. Not generic: what is, is compiled for each future that runs under a hold.
    pub(crate) fn enter(&self, poll: &mut dyn FnMut()) {
        CHAIN.sync_scope(self.clone(), poll);
    }
}

//! The state that a test sets and the connections read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::{Direction, Then};

type Matches = Box<dyn Fn(&[&[u8]]) -> bool + Send>;
type Rewrite = Box<dyn Fn(&[&[u8]]) -> Option<Vec<Vec<u8>>> + Send>;

/// The switches of one direction, for all connections.
#[derive(Debug)]
pub(super) struct Way {
    delay: AtomicU64,
    swallowing: AtomicBool,
    stalled: watch::Sender<bool>,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            delay: AtomicU64::new(0),
            swallowing: AtomicBool::new(false),
            stalled: watch::Sender::new(false),
        }
    }
}

impl Way {
    pub(super) fn set_delay(&self, by: Duration) {
        self.delay
            .store(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), SeqCst);
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(self.delay.load(SeqCst))
    }

    pub(super) fn set_swallowing(&self, on: bool) {
        self.swallowing.store(on, SeqCst);
    }

    pub(super) fn is_swallowing(&self) -> bool {
        self.swallowing.load(SeqCst)
    }

    pub(super) fn set_stalled(&self, on: bool) {
        self.stalled.send_replace(on);
    }

    pub(super) async fn flowing(&self) {
        // The sender lives in `self`, so this cannot fail while it is awaited.
        let _ = self.stalled.subscribe().wait_for(|stalled| !stalled).await;
    }
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: u64,
    /// Set once, when a byte of that direction is lost, and never reset: see the doc of the module `proxy`.
    deaf: [AtomicBool; 2],
    /// The reply (counted from 0, without pushes) that the trap takes away, and what happens then.
    pub(super) trapped: Mutex<Option<(u64, Then)>>,
    /// Signalled when the connection to the server is to be replaced.
    pub(super) replace: Notify,
}

impl Link {
    pub(super) fn deafen(&self, direction: Direction) {
        self.deaf[direction as usize].store(true, SeqCst);
    }

    pub(super) fn is_deaf(&self, direction: Direction) -> bool {
        self.deaf[direction as usize].load(SeqCst)
    }
}

#[derive(Default)]
struct State {
    links: BTreeMap<u64, (Arc<Link>, Option<AbortHandle>)>,
    counts: BTreeMap<String, u64>,
    trap: Option<(Matches, Then)>,
    sprung: bool,
    rewrite: Option<Rewrite>,
    rewrites: u64,
}

#[derive(Default)]
pub(super) struct Switches {
    ways: [Way; 2],
    refusing: AtomicBool,
    losing_messages: AtomicBool,
    messages: AtomicU64,
    accepted: AtomicU64,
    replaced: AtomicU64,
    state: Mutex<State>,
}

impl std::fmt::Debug for Switches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switches")
            .field("open", &self.open())
            .finish_non_exhaustive()
    }
}

impl Switches {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn way(&self, direction: Direction) -> &Way {
        &self.ways[direction as usize]
    }

    pub(super) fn set_refusing(&self, on: bool) {
        self.refusing.store(on, SeqCst);
    }

    pub(super) fn is_refusing(&self) -> bool {
        self.refusing.load(SeqCst)
    }

    pub(super) fn set_losing_messages(&self, on: bool) {
        self.losing_messages.store(on, SeqCst);
    }

    /// Counts a pub/sub message. Returns whether it may pass.
    pub(super) fn message(&self) -> bool {
        self.messages.fetch_add(1, SeqCst);
        !self.losing_messages.load(SeqCst)
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages.load(SeqCst)
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(SeqCst)
    }

    pub(super) fn open(&self) -> usize {
        self.state().links.len()
    }

    pub(super) fn admit(&self) -> Arc<Link> {
        let id = self.accepted.fetch_add(1, SeqCst);
        let link = Arc::new(Link {
            id,
            deaf: Default::default(),
            trapped: Mutex::new(None),
            replace: Notify::new(),
        });
        self.state().links.insert(id, (Arc::clone(&link), None));
        link
    }

    /// Remembers how to cut a connection, which may be forgotten or cut already.
    pub(super) fn keep(&self, id: u64, task: AbortHandle) {
        match self.state().links.get_mut(&id) {
            Some((_, slot)) => *slot = Some(task),
            None => task.abort(),
        }
    }

    pub(super) fn forget(&self, id: u64) {
        self.state().links.remove(&id);
    }

    pub(super) fn cut(&self) {
        for (_, task) in std::mem::take(&mut self.state().links).into_values() {
            if let Some(task) = task {
                task.abort();
            }
        }
    }

    pub(super) fn freeze(&self) {
        for (link, _) in self.state().links.values() {
            link.deafen(Direction::Requests);
            link.deafen(Direction::Replies);
        }
    }

    pub(super) fn replace_servers(&self) {
        for (link, _) in self.state().links.values() {
            link.replace.notify_one();
        }
    }

    pub(super) fn note_replaced(&self) {
        self.replaced.fetch_add(1, SeqCst);
    }

    pub(super) fn replaced(&self) -> u64 {
        self.replaced.load(SeqCst)
    }

    pub(super) fn set_trap(&self, matches: Matches, then: Then) {
        let mut state = self.state();
        state.trap = Some((matches, then));
        state.sprung = false;
    }

    pub(super) fn trap_sprung(&self) -> bool {
        self.state().sprung
    }

    /// Counts a request. Returns `Some` if the trap takes its reply away.
    pub(super) fn request(&self, args: &[&[u8]]) -> Option<Then> {
        let mut state = self.state();
        let name = args
            .first()
            .map(|name| String::from_utf8_lossy(name).to_uppercase());
        *state.counts.entry(name.unwrap_or_default()).or_default() += 1;
        let caught = state
            .trap
            .as_ref()
            .is_some_and(|(matches, _)| matches(args));
        if !caught {
            return None;
        }
        state.sprung = true;
        state.trap.take().map(|(_, then)| then)
    }

    pub(super) fn set_rewrite(&self, rewrite: Rewrite) {
        self.state().rewrite = Some(rewrite);
    }

    /// Returns the arguments that are forwarded in place of these, if there are any, and counts the rewrite.
    pub(super) fn rewritten(&self, args: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
        let mut state = self.state();
        let other = state.rewrite.as_ref()?(args)?;
        state.rewrites += 1;
        Some(other)
    }

    pub(super) fn rewrites(&self) -> u64 {
        self.state().rewrites
    }

    pub(super) fn count(&self, command: &str) -> u64 {
        self.state()
            .counts
            .get(&command.to_uppercase())
            .copied()
            .unwrap_or(0)
    }

    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        self.state().counts.clone()
    }
}

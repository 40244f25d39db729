//! Tracks which requests are nested in which holds. A nested request re-enters a lock only when an ancestor in its own
//! call chain holds it.
//!
//! Each body that runs under a guard has a [`Frame`], as each call has one on a thread's stack. A task-local names
//! the frame of the body that is being polled. A frame belongs to the task that polls its body: if another task goes
//! on with the body, the body gets a new frame there, and the old one counts no more. So a request that was made in
//! a body is nested only in the task that polls the body. A request that was made inside a hold and then spawned is not
//! nested, and neither is a request that stayed behind when its body was spawned.
//!
//! Around a body are the frames that its guard was acquired in, if they belong to the same task. Otherwise they are
//! those of the code that polls the body.

use std::fmt;
use std::iter::successors;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task;

use super::{Held, Hold};
use crate::sync::Mutex;
use crate::values::Kind;

tokio::task_local! {
    static CURRENT: Arc<Frame>;
}

/// A guard as an ancestor of what runs under it.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) hold: Hold,
    /// Whether the guard reads. A read may share a write hold, and a write may become a read.
    reads: AtomicBool,
    /// A level admits one nested path at a time, or several that only read; the others wait for it in the order they
    /// came.
    access: Arc<Semaphore>,
    /// The accesses that the guard itself has under its own ancestors, if it is nested.
    path: Box<[Weak<Access>]>,
    /// The guard left its hold while the hold was good.
    left: AtomicBool,
    /// The lock before this one, in a guard that holds several.
    before: Option<Arc<Level>>,
}

/// The number of units into which the access under a level is divided.
const WHOLE_ACCESS: u32 = 1 << 20;

/// A nested guard's access under an ancestor. The guards that are nested in this guard share it: they are on the same
/// path, and keep others out when this guard has left.
#[derive(Debug)]
pub(crate) struct Access {
    under: Arc<Level>,
    _permit: OwnedSemaphorePermit,
}

/// A nested guard's accesses under all of its ancestors that share its hold.
pub(crate) type Path = Box<[Arc<Access>]>;

impl Level {
    pub(crate) fn new(
        hold: Hold,
        kind: Kind,
        path: &[Arc<Access>],
        before: Option<Arc<Level>>,
    ) -> Arc<Level> {
        Arc::new(Level {
            hold,
            reads: AtomicBool::new(kind == Kind::Read),
            access: Arc::new(Semaphore::new(WHOLE_ACCESS as usize)),
            path: path.iter().map(Arc::downgrade).collect(),
            left: AtomicBool::new(false),
            before,
        })
    }

    /// Whether no write may be nested in the guard.
    pub(crate) fn reads(&self) -> bool {
        self.reads.load(Ordering::Relaxed) || self.hold.key().kind() == Kind::Read
    }

    /// The guard only reads from now on.
    pub(super) fn stop_writing(&self) {
        self.reads.store(true, Ordering::Relaxed);
    }

    /// The access of a nested request of that kind, if it is free.
    pub(crate) fn access_now(&self, kind: Kind) -> Option<OwnedSemaphorePermit> {
        let access = self.access.clone();
        access.try_acquire_many_owned(part_of_access(kind)).ok()
    }

    /// Waits for the access of a nested request of that kind.
    pub(crate) async fn access(&self, kind: Kind) -> Option<OwnedSemaphorePermit> {
        let access = self.access.clone();
        access.acquire_many_owned(part_of_access(kind)).await.ok()
    }

    /// The path of a guard that has its access under this level. `None` if this level is over: then the accesses above it
    /// may be somebody else's.
    pub(crate) fn path(self: &Arc<Level>, permit: OwnedSemaphorePermit) -> Option<Path> {
        let above = self.path.iter().filter_map(Weak::upgrade);
        let access = Arc::new(Access {
            under: self.clone(),
            _permit: permit,
        });
        // Nobody asks under a level that is over: an access there keeps nobody out.
        let path = above.filter(|access| !access.under.is_over());
        let path = path.chain([access]).collect();
        // This is checked last: the accesses of a guard that has not left are all there.
        (!self.is_over()).then_some(path)
    }

    /// The guard has left its hold, which was good.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// True once it is no ancestor any more, for good: its guard left a good hold, or no guard shares the hold. A
    /// lost hold stays an ancestor while one of its guards lives: what runs under that guard must learn of the loss.
    fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) || self.hold.is_left()
    }

    /// This level, and those of the other locks of the same guard.
    fn of_one_guard(self: &Arc<Level>) -> impl Iterator<Item = Arc<Level>> + use<> {
        successors(Some(self.clone()), |level| level.before.clone())
    }
}

/// The share of the access under a level that a nested request takes.
fn part_of_access(kind: Kind) -> u32 {
    if kind == Kind::Read { 1 } else { WHOLE_ACCESS }
}

/// The task that polls a future, or outside of tasks the thread, since `block_on` has no task id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    Task(task::Id),
    Thread(ThreadId),
}

impl Runner {
    fn now() -> Runner {
        task::try_id().map_or_else(|| Runner::Thread(thread::current().id()), Runner::Task)
    }
}

/// A body that runs under a guard, in one task.
pub(crate) struct Frame {
    level: Arc<Level>,
    held: Held,
    runner: Runner,
    /// The body got another frame since.
    replaced: AtomicBool,
    /// The frame around this one. It belongs to the same task.
    outer: Mutex<Option<Arc<Frame>>>,
}

impl Frame {
    /// The frame of the body that is being polled, if that body's task is the one that runs now: a body may drive
    /// other tasks, as a `LocalSet` does.
    pub(crate) fn current() -> Option<Arc<Frame>> {
        let current = CURRENT.try_with(Arc::clone).ok();
        current.filter(|frame| frame.counts_for(Runner::now()))
    }

    fn counts_for(&self, runner: Runner) -> bool {
        self.runner == runner && !self.is_replaced()
    }

    fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    fn is_over(&self) -> bool {
        self.level.of_one_guard().all(|level| level.is_over())
    }

    /// The next frame outwards that is not over. Forgets the frames in between.
    fn outer(&self) -> Option<Arc<Frame>> {
        loop {
            let mut link = self.outer.lock();
            let next = match &*link {
                Some(frame) if frame.is_over() => frame.outer.lock().clone(),
                _ => return link.clone(),
            };
            let forgotten = std::mem::replace(&mut *link, next);
            drop(link);
            drop(forgotten);
        }
    }

    /// This frame, or the next one outwards, if it is over.
    fn nearest(self: Arc<Frame>) -> Option<Arc<Frame>> {
        if self.is_over() {
            self.outer()
        } else {
            Some(self)
        }
    }

    /// Returns the call chain of a body that runs under the nearest guard, of this frame or those around it, that is
    /// not over.
    pub(crate) fn call_chain(self: &Arc<Frame>) -> Option<CallChain> {
        let nearest = self.clone().nearest()?;
        Some(CallChain {
            level: nearest.level.clone(),
            held: nearest.held.clone(),
            acquired_in: nearest.outer(),
        })
    }

    /// The levels of this frame and of those around it that are not over, the nearest first.
    pub(crate) fn upward(self: &Arc<Frame>) -> impl Iterator<Item = Arc<Level>> + use<> {
        let counts = |frame: &Arc<Frame>| !frame.is_replaced();
        let first = Some(self.clone()).filter(counts);
        successors(first, move |frame| frame.outer().filter(counts))
            .flat_map(|frame| frame.level.of_one_guard())
            .filter(|level| !level.is_over())
    }
}

impl Drop for Frame {
    /// Drops the frames around it that nothing else keeps, one after the other: nested drops of a long chain would
    /// overflow the stack.
    fn drop(&mut self) {
        let mut outer = self.outer.lock().take();
        while let Some(frame) = outer.and_then(Arc::into_inner) {
            outer = frame.outer.lock().take();
        }
    }
}

// Without the frames around it: there may be many.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("level", &self.level)
            .field("runner", &self.runner)
            .finish_non_exhaustive()
    }
}

/// The body that a request was made in.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Option<Arc<Frame>>);

impl Caller {
    pub(crate) fn now() -> Caller {
        Caller(Frame::current())
    }

    /// The frame that the request is nested in. In another task than the body's, it is the frame of the code that polls
    /// the request. A request that was made in no body is nested in none.
    pub(crate) fn frame(&self) -> Option<Arc<Frame>> {
        let made_in = self.0.as_ref()?;
        if made_in.counts_for(Runner::now()) {
            Some(made_in.clone())
        } else {
            Frame::current()
        }
    }
}

/// The place of a body that runs under a guard: nested in the guard's level, and in the frame that the guard was
/// acquired in.
#[derive(Clone, Debug)]
pub(crate) struct CallChain {
    pub(super) level: Arc<Level>,
    /// All that the guard holds.
    pub(crate) held: Held,
    pub(super) acquired_in: Option<Arc<Frame>>,
}

/// The place of a body in the chain.
#[derive(Debug)]
pub(crate) struct Nest {
    call_chain: CallChain,
    /// Made at the first poll, and anew when another task polls the body, or another body does.
    frame: Option<Arc<Frame>>,
}

impl Nest {
    pub(crate) fn new(call_chain: CallChain) -> Nest {
        Nest {
            call_chain,
            frame: None,
        }
    }

    /// Polls the body in its frame. Not generic, because generic code is compiled for each future that runs under a
    /// hold.
    pub(crate) fn enter(&mut self, poll: &mut dyn FnMut()) {
        let frame = self.frame_for(Runner::now());
        CURRENT.sync_scope(frame, poll);
    }

    /// Calls a function in the body's frame.
    pub(crate) fn call<T>(&mut self, body: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.frame_for(Runner::now()), body)
    }

    fn frame_for(&mut self, runner: Runner) -> Arc<Frame> {
        let acquired_in = self.call_chain.acquired_in.as_ref();
        let acquired_in = acquired_in.filter(|frame| frame.counts_for(runner));
        let outer = acquired_in.cloned().or_else(Frame::current);
        let outer = outer.and_then(Frame::nearest);
        if let Some(frame) = &self.frame {
            let place = |frame: &Option<Arc<Frame>>| frame.as_ref().map(Arc::as_ptr);
            if frame.runner == runner && place(&frame.outer()) == place(&outer) {
                return frame.clone();
            }
            frame.replaced.store(true, Ordering::Release);
        }
        let frame = Arc::new(Frame {
            level: self.call_chain.level.clone(),
            held: self.call_chain.held.clone(),
            runner,
            replaced: AtomicBool::new(false),
            outer: Mutex::new(outer),
        });
        // Walks the whole chain: frames that are over are forgotten however seldom anybody asks for an ancestor.
        let _ = frame.upward().count();
        self.frame.insert(frame).clone()
    }
}

#[cfg(test)]
mod tests;

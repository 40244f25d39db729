//! One of a Java peer's locks, of any kind that is an `RLock`.

use std::time::Duration;

use super::{Answer, JavaPeer};

/// A lock of a [`JavaPeer`]. Threads are named: Redisson tells holders apart by their threads.
#[derive(Debug, Clone, Copy)]
pub struct JavaLock<'a> {
    peer: &'a JavaPeer,
    kind: &'static str,
    name: &'a str,
}

impl JavaPeer {
    /// `getLock(name)`.
    pub fn mutex<'a>(&'a self, name: &'a str) -> JavaLock<'a> {
        self.lock_of("mutex", name)
    }

    /// The lock of a kind: `mutex`, `fair`, `spin`, `read`, `write`, `fenced`; `multi` with names joined by commas.
    pub fn lock_of<'a>(&'a self, kind: &'static str, name: &'a str) -> JavaLock<'a> {
        JavaLock {
            peer: self,
            kind,
            name,
        }
    }
}

impl JavaLock<'_> {
    /// `lock()`: waits for ever and renews; panics if that fails.
    pub async fn lock(&self, thread: &str) {
        assert_eq!(self.ask("lock", &format!("-1 -1 @{thread}")).await, "true");
    }

    /// `lock(lease)`: waits for ever, and the lease is fixed; panics if that fails.
    pub async fn lock_for(&self, lease: Duration, thread: &str) {
        let lease = lease.as_millis();
        assert_eq!(
            self.ask("lock", &format!("-1 {lease} @{thread}")).await,
            "true"
        );
    }

    /// `tryLock()`: whether it got it, at once.
    pub async fn try_lock(&self, thread: &str) -> bool {
        yes(&self.ask("try", &format!("@{thread}")).await)
    }

    /// `tryLock(wait, -1)`, begun now: `true` or `false` when it ends.
    pub fn begin(&self, wait: Duration, thread: &str) -> Answer {
        self.tell("lock", &format!("{} -1 @{thread}", wait.as_millis()))
    }

    /// `unlock()`; panics if Redisson refuses.
    pub async fn unlock(&self, thread: &str) {
        assert_eq!(self.ask("unlock", &format!("@{thread}")).await, "ok");
    }

    /// `unlock()` that Redisson must refuse, for the thread is not the holder.
    pub async fn unlock_is_refused(&self, thread: &str) {
        let answer = self.tell("unlock", &format!("@{thread}")).await;
        let why = answer.expect_err("an unlock by one who is not the holder");
        assert!(why.contains("IllegalMonitorStateException"), "{why}");
    }

    /// `forceUnlock()`.
    pub async fn force_unlock(&self) -> bool {
        yes(&self.ask("force-unlock", "").await)
    }

    /// `isLocked()`.
    pub async fn is_locked(&self) -> bool {
        yes(&self.ask("is-locked", "").await)
    }

    /// `isHeldByCurrentThread()`.
    pub async fn is_held(&self, thread: &str) -> bool {
        yes(&self.ask("is-held", &format!("@{thread}")).await)
    }

    /// `getHoldCount()`.
    pub async fn hold_count(&self, thread: &str) -> u64 {
        let answer = self.ask("hold-count", &format!("@{thread}")).await;
        answer.parse().expect("a count")
    }

    /// So many times: takes the lock, waiting for ever, adds one to the key `counter` by reading and writing it, and
    /// gives the lock back. The answer says how often somebody else was inside.
    pub fn contend(&self, times: usize, counter: &str, thread: &str) -> Answer {
        self.tell("contend", &format!("{times} {counter} @{thread}"))
    }

    fn tell(&self, command: &str, rest: &str) -> Answer {
        self.peer.tell(self.line(command, rest))
    }

    async fn ask(&self, command: &str, rest: &str) -> String {
        self.peer.ask(self.line(command, rest)).await
    }

    fn line(&self, command: &str, rest: &str) -> String {
        format!("{command} {} {} {rest}", self.kind, self.name)
    }
}

fn yes(answer: &str) -> bool {
    answer
        .parse()
        .unwrap_or_else(|_| panic!("true or false, not {answer:?}"))
}

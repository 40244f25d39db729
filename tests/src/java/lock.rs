//! A lock of a Java peer, of any kind that is an `RLock`.

use std::time::Duration;

use super::{Answer, JavaPeer};

/// A lock of a [`JavaPeer`]. Calls name a thread, because Redisson tells holders apart by their threads.
#[derive(Debug, Clone, Copy)]
pub struct JavaLock<'a> {
    peer: &'a JavaPeer,
    kind: &'static str,
    name: &'a str,
}

impl JavaPeer {
    /// Returns `getLock(name)`.
    pub fn mutex<'a>(&'a self, name: &'a str) -> JavaLock<'a> {
        self.lock_of("mutex", name)
    }

    /// Returns a lock of a kind: `mutex`, `fair`, `spin`, `read`, `write`, `fenced`, or `multi` with names joined by
    /// commas.
    pub fn lock_of<'a>(&'a self, kind: &'static str, name: &'a str) -> JavaLock<'a> {
        JavaLock {
            peer: self,
            kind,
            name,
        }
    }
}

impl JavaLock<'_> {
    /// Calls `lock()`, which waits for ever and renews. Panics if that fails.
    pub async fn lock(&self, thread: &str) {
        assert_eq!(self.ask("lock", &format!("-1 -1 @{thread}")).await, "true");
    }

    /// Calls `lock(lease)`, which waits for ever and has a fixed lease. Panics if that fails.
    pub async fn lock_for(&self, lease: Duration, thread: &str) {
        let lease = lease.as_millis();
        assert_eq!(
            self.ask("lock", &format!("-1 {lease} @{thread}")).await,
            "true"
        );
    }

    /// Calls `tryLock()`. Returns whether it got the lock at once.
    pub async fn try_lock(&self, thread: &str) -> bool {
        yes(&self.ask("try", &format!("@{thread}")).await)
    }

    /// Begins `tryLock(wait, -1)`. The answer is `true` or `false` when it ends.
    pub fn begin(&self, wait: Duration, thread: &str) -> Answer {
        self.tell("lock", &format!("{} -1 @{thread}", wait.as_millis()))
    }

    /// Calls `unlock()`. Panics if Redisson refuses.
    pub async fn unlock(&self, thread: &str) {
        assert_eq!(self.ask("unlock", &format!("@{thread}")).await, "ok");
    }

    /// Calls `unlock()`, which Redisson must refuse because the thread is not the holder.
    pub async fn unlock_is_refused(&self, thread: &str) {
        let answer = self.tell("unlock", &format!("@{thread}")).await;
        let why = answer.expect_err("an unlock by one who is not the holder");
        assert!(why.contains("IllegalMonitorStateException"), "{why}");
    }

    /// Calls `forceUnlock()`.
    pub async fn force_unlock(&self) -> bool {
        yes(&self.ask("force-unlock", "").await)
    }

    /// Calls `isLocked()`.
    pub async fn is_locked(&self) -> bool {
        yes(&self.ask("is-locked", "").await)
    }

    /// Calls `isHeldByCurrentThread()`.
    pub async fn is_held(&self, thread: &str) -> bool {
        yes(&self.ask("is-held", &format!("@{thread}")).await)
    }

    /// Calls `getHoldCount()`.
    pub async fn hold_count(&self, thread: &str) -> u64 {
        let answer = self.ask("hold-count", &format!("@{thread}")).await;
        answer.parse().expect("a count")
    }

    /// Does the following `times` times: takes the lock, waiting for ever, adds one to the key `counter` by reading and
    /// writing it, and gives the lock back. The answer says how often somebody else was inside.
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

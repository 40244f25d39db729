//! The work of the processes of torture and of the simulation: a task acquires, holds, touches the resource, gives back, and
//! says so.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use fastrand::Rng;
use lock_runtime::{LockError, LockGuard, LockManager, LostReason, TryAcquire};

use crate::faults::{LEAVES, poll_times};
use crate::history::{History, now_ns};
use crate::judge::names;

const MS: Duration = Duration::from_millis(1);
/// How long a task waits for a lock.
pub const WAIT: Duration = Duration::from_secs(2);

/// The reason of a loss that the release told.
pub const AT_ITS_RELEASE: &str = "release";
/// The reason if nobody can say whether the hold was lost.
pub const UNTOLD: &str = "untold";

/// A key and the token that came with it; 0 if none did.
type Member = (&'static str, u64);

/// The way in which a task takes its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A mutex.
    Mutex,
    /// A mutex that is now and then held for longer than a lease, so that only renewals keep it.
    Long,
    /// A mutex that is not renewed, and is held until its lease is over.
    Whole,
    /// A fair lock.
    Fair,
    /// The reading side of a read/write lock.
    Read,
    /// Its writing side.
    Write,
    /// One permit or two.
    Permits,
    /// All of its keys, or none.
    Multi,
    /// A mutex that is never waited for.
    Try,
    /// A mutex that stays with its process for a while. It is taken in a row, with or without waiting, and then left
    /// alone.
    Keep,
}

impl How {
    /// Returns what it is, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Long => "mutex for longer than a lease",
            Self::Whole => "mutex that is not renewed",
            Self::Fair => "fair lock",
            Self::Read => "read lock",
            Self::Write => "write lock",
            Self::Permits => "semaphore",
            Self::Multi => "several mutexes as one",
            Self::Try => "mutex that is only tried",
            Self::Keep => "mutex kept between holds",
        }
    }
}

/// The work that one task of a client does again and again.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// How the keys are taken.
    pub how: How,
    /// The keys.
    pub keys: &'static [&'static str],
}

/// The resource that the locks guard: for each key a fenced register and a counter.
pub trait Resource: Send {
    /// Shows the register a token.
    fn enter(&mut self, key: &str, token: u64) -> impl Future<Output = Entered> + Send;

    /// Overwrites the counter, as a careless user would.
    fn set(&mut self, key: &str, value: u64) -> impl Future<Output = ()> + Send;
}

/// The answer of the register.
#[derive(Debug, Clone, Copy)]
pub struct Entered {
    /// Whether the register had seen no higher token.
    pub accepted: bool,
    /// The number of the last accepted write, which is this one if it was accepted.
    pub number: u64,
    /// The counter's value.
    pub value: u64,
}

/// A task of a process.
#[derive(Debug)]
pub struct Task<R> {
    /// What it does.
    pub work: Work,
    /// The manager of its process.
    pub locks: LockManager,
    /// What the locks guard.
    pub resource: R,
    /// What its choices come from.
    pub rng: Rng,
    /// The first part of the names of its holds: `PROCESS.TASK`.
    pub holder: String,
    /// The holder, key and token of each lock of this task's previous hold, whose writes come too late now.
    pub previous: Vec<(String, &'static str, u64)>,
    /// What it has said and nobody has read: lines of a [`Log`](crate::judge::Log).
    pub said: String,
    /// Whether it is to come to its end.
    pub stop: Arc<AtomicBool>,
    /// Whether it does not wait, this time, for a lock that another process may keep.
    pub tries: bool,
}

impl<R: Resource> Task<R> {
    /// Does its work once.
    pub async fn cycle(&mut self, cycle: u64) {
        let holder = format!("{}.{cycle}", self.holder);
        let asked = now_ns();
        let answer = self.acquire().await;
        if self.waits()
            && let Some(Ok(TryAcquire::Acquired(_)) | Err(LockError::Busy { .. })) = answer
        {
            let key = self.work.keys[0];
            self.say(format_args!("waited {key} {holder} {asked} {}", now_ns()));
        }
        match answer {
            None => self.say(format_args!("none dropped")),
            Some(Err(error)) => {
                match &error {
                    // Only a semaphore may say so: `kind` has no word for it.
                    LockError::NotSet { .. } if self.work.how == How::Permits => {
                        self.say(format_args!("none unset"));
                    }
                    other => self.say(format_args!("none {}", kind(other))),
                }
                if self.work.how == How::Try {
                    self.say(format_args!("tried {holder} {asked} {} unknown", now_ns()));
                }
                // A refusal can be immediate. The pause prevents a busy loop.
                tokio::time::sleep(5 * MS).await;
            }
            Some(Ok(TryAcquire::Busy { .. })) if self.work.how == How::Keep => {
                tokio::time::sleep(MS * self.rng.u32(1..6)).await;
            }
            Some(Ok(TryAcquire::Busy { .. })) => {
                self.say(format_args!("tried {holder} {asked} {} refused", now_ns()));
                tokio::time::sleep(MS * self.rng.u32(1..6)).await;
            }
            Some(Ok(TryAcquire::Acquired(guard))) => self.hold(&holder, asked, guard).await,
        }
        if self.work.how == How::Long {
            // Others get their turn: otherwise, the one that releases would be the first to ask.
            tokio::time::sleep(MS * self.rng.u32(1..300)).await;
        }
        if self.work.how == How::Keep && self.rng.u8(..2) == 0 {
            // The pause may be longer than the lock is kept, and at times longer than a lease.
            tokio::time::sleep(MS * self.rng.u32(1..2_000)).await;
        }
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.said, "{line}");
    }

    /// Whether it waits for one lock that one task has at a time.
    fn waits(&self) -> bool {
        match self.work.how {
            How::Mutex | How::Long | How::Fair => true,
            How::Keep => !self.tries,
            How::Read | How::Write | How::Permits | How::Multi | How::Try | How::Whole => false,
        }
    }

    /// Acquires the lock. `None` means that the future was dropped half-way, and `Busy` that it was refused without a
    /// wait.
    async fn acquire(&mut self) -> Option<Result<TryAcquire, LockError>> {
        let (locks, key) = (&self.locks, self.work.keys[0]);
        let request = match self.work.how {
            How::Mutex | How::Long => locks.mutex(key),
            How::Whole => locks.mutex(key).auto_renew(false),
            How::Fair => locks.fair(key),
            How::Read => locks.read(key),
            How::Write => locks.write(key),
            How::Permits => locks.semaphore(key).permits(self.rng.u32(1..3)),
            How::Try => return Some(locks.mutex(key).try_acquire().await),
            How::Keep => {
                let kept = locks.mutex(key).keep_for(MS * self.rng.u32(50..2_500));
                self.tries = self.rng.bool();
                if self.tries {
                    return Some(kept.try_acquire().await);
                }
                kept
            }
            How::Multi => {
                let members = self.work.keys.iter().map(|key| locks.mutex(*key));
                let all = locks.multi(members).wait(WAIT).acquire();
                return half_way(&mut self.rng, all).await;
            }
        };
        let answer = half_way(&mut self.rng, request.wait(WAIT).acquire()).await;
        if let Some(Err(LockError::NotSet { .. })) = answer
            && self.work.how == How::Permits
        {
            // The store forgot them. The first to come sets them again.
            set_permits(&self.locks, key).await;
        }
        answer
    }

    async fn hold(&mut self, holder: &str, asked: u64, guard: LockGuard) {
        let history = History::new();
        let members = self.members(&guard);
        let mut holds: Vec<_> = members
            .iter()
            .map(|(key, token)| history.begin(key, holder, Some(*token).filter(|it| *it > 0)))
            .collect();
        let granted = now_ns();
        let mut seen = || holds.iter_mut().all(|hold| hold.seen(|| guard.is_held()));
        let writes = !matches!(self.work.how, How::Read | How::Permits);
        let mut entered = Vec::new();
        if writes {
            for (key, token) in &members {
                let value = self.enter(key, holder, *token, || guard.is_held()).await;
                entered.extend(value.map(|value| (*key, value)));
            }
            for (holder, key, token) in std::mem::take(&mut self.previous) {
                self.enter(key, &holder, token, || false).await;
            }
            let fenced = members.iter().filter(|(_, token)| *token > 0);
            self.previous = fenced
                .map(|(key, token)| (holder.to_owned(), *key, *token))
                .collect();
        }
        let mut held = self.keep(&mut seen).await;
        for (key, value) in entered {
            if !held {
                break;
            }
            self.resource.set(key, value + 1).await;
            held = seen();
            if !held {
                // The counter may have been written after the lease, so nobody can say what it is worth now.
                self.say(format_args!("doubt {key}"));
            }
        }
        let permits = guard.permits();
        for hold in holds {
            hold.end_as_seen();
        }
        for hold in history.holds() {
            match self.work.how {
                How::Read => self.say(format_args!("share 1 {hold}")),
                How::Write => self.say(format_args!("share {} {hold}", names::WRITER)),
                How::Permits => self.say(format_args!("share {permits} {hold}")),
                _ => self.say(format_args!("{hold}")),
            }
        }
        // This returns at once, because the loss is known already.
        let lost = match held {
            true => None,
            false => Some(guard.lost().wait().await),
        };
        let leaving = now_ns();
        let left = self.leave(guard).await;
        let said = match &left {
            None => "unknown".to_owned(),
            Some(Ok(())) => "ok".to_owned(),
            Some(Err(error)) => kind(error),
        };
        let end = if left.is_none() { "ok" } else { &said };
        self.say(format_args!("end {end}"));
        if self.work.how == How::Try {
            let (hold, now) = (&history.holds()[0], now_ns());
            let (seen, token) = (hold.until, hold.token.unwrap_or(0));
            self.say(format_args!(
                "tried {holder} {asked} {granted} granted {token} {seen} {leaving} {now} {said}"
            ));
        }
        let why = match (lost, &left) {
            // The lease was to end, so this is no loss.
            (Some(LostReason::Expired), _) if self.work.how == How::Whole => UNTOLD.to_owned(),
            (Some(reason), _) => format!("{reason:?}"),
            (None, Some(Err(LockError::Lost { .. }))) => AT_ITS_RELEASE.to_owned(),
            // A release that nobody waited for, or that got no answer, tells nothing.
            (None, Some(Ok(()))) => return,
            (None, _) => UNTOLD.to_owned(),
        };
        for (key, _) in members {
            self.say(format_args!("loss {key} {holder} {} {why}", now_ns()));
        }
    }

    fn members(&self, guard: &LockGuard) -> Vec<Member> {
        let token = |token: Option<lock_runtime::FencingToken>| token.map_or(0, |it| it.get());
        if self.work.how != How::Multi {
            return vec![(self.work.keys[0], token(guard.fencing_token()))];
        }
        let of = |key: &&'static str| {
            let member = guard.members().find(|member| member.name == *key);
            (*key, member.map_or(0, |it| token(it.fencing_token)))
        };
        self.work.keys.iter().map(of).collect()
    }

    /// Holds the lock for a while. Returns whether it was certain to the end.
    async fn keep(&mut self, mut is_held: impl FnMut() -> bool) -> bool {
        let steps = match self.work.how {
            // Now and then this is longer than one lease, so that only renewals keep the lock.
            How::Long => self.rng.u32(20..600),
            // The hold ends with its lease.
            How::Whole => u32::MAX,
            // And now and then a kept lock is renewed while it is used.
            How::Keep if self.rng.u8(..16) == 0 => self.rng.u32(80..120),
            // These are renewed in other ways, and some of them have to outlast a lease as well.
            How::Fair | How::Read | How::Write | How::Permits | How::Multi
                if self.rng.u8(..16) == 0 =>
            {
                self.rng.u32(60..300)
            }
            How::Read | How::Write | How::Permits | How::Try if self.rng.u8(..10) == 0 => {
                self.rng.u32(1..40)
            }
            _ => {
                for _ in 0..self.rng.u8(..4) {
                    tokio::task::yield_now().await;
                }
                return is_held();
            }
        };
        for _ in 0..steps {
            tokio::time::sleep(5 * MS).await;
            if !is_held() {
                return false;
            }
            if self.stop.load(SeqCst) {
                break;
            }
        }
        true
    }

    /// Shows the register the token. Returns the counter's value if the token was accepted.
    async fn enter(
        &mut self,
        key: &str,
        holder: &str,
        token: u64,
        is_held: impl Fn() -> bool,
    ) -> Option<u64> {
        let asked = now_ns();
        let entered = self.resource.enter(key, token).await;
        let answered = now_ns();
        let sure = u8::from(is_held());
        let (number, accepted) = (entered.number, u8::from(entered.accepted));
        self.say(format_args!(
            "write {key} {holder} {token} {number} {accepted} {sure} {asked} {answered}"
        ));
        entered.accepted.then_some(entered.value)
    }

    /// Gives the lock back in one of the ways there are. Returns `None` if nobody asked how that went.
    async fn leave(&mut self, guard: LockGuard) -> Option<Result<(), LockError>> {
        match self.rng.u8(..8) {
            0 => {
                drop(guard);
                None
            }
            1 => poll_times(guard.release(), 1, LEAVES[self.rng.usize(..2)]).await,
            _ => Some(guard.release().await),
        }
    }
}

/// Sets the number of a semaphore's permits, if nobody has. If that fails, the next request says that it is not set.
pub async fn set_permits(locks: &LockManager, key: &str) {
    let _ = locks.semaphore(key).try_set_permits(names::PERMITS).await;
}

/// Waits for an acquire, or now and then drops it half-way.
async fn half_way(
    rng: &mut Rng,
    acquiring: impl Future<Output = Result<LockGuard, LockError>>,
) -> Option<Result<TryAcquire, LockError>> {
    let answer = match rng.u8(..16) {
        // The first polls are those at which a request is under way.
        0 => poll_times(acquiring, rng.usize(..4), LEAVES[rng.usize(..2)]).await,
        _ => Some(acquiring.await),
    };
    answer.map(|answer| answer.map(TryAcquire::Acquired))
}

/// Returns the word for an error in what is said.
pub fn kind(error: &LockError) -> String {
    match error {
        LockError::Busy { .. } => "busy".to_owned(),
        LockError::Unavailable { .. } => "unavailable".to_owned(),
        LockError::Lost { .. } => "lost".to_owned(),
        LockError::Denied { .. } => "denied".to_owned(),
        LockError::ShuttingDown { .. } => "closing".to_owned(),
        other => format!("{other:?}"),
    }
}

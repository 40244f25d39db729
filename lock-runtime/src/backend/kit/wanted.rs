//! The keys for which other processes wait, as far as this process has seen.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::values::{Key, Moment, clock};

/// The number of marks.
const MARKS: u64 = 1024;
/// The time for which a mark counts.
const WANTED_FOR: Duration = Duration::from_secs(2);

/// A mark for each key for which another process waited lately: releases of such a key look at the waiting list, or leave
/// the key to others for a while.
///
/// A process that acquires a free lock again and again is never refused, so it never waits itself. It notices other
/// processes only by the replies of the server: the number of listeners that received the message of a release.
///
/// Two keys may share a mark. One look at the list too many costs the server a few microseconds, and one rest too many its
/// process a millisecond.
pub(crate) struct Wanted {
    since: Moment,
    /// The tenths of a second from `since` until which each mark counts.
    until: Box<[AtomicU32]>,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            since: clock::now(),
            until: (0..MARKS).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl Wanted {
    fn until(&self, key: &Key) -> Option<&AtomicU32> {
        let place = usize::try_from(key.digest() % MARKS);
        self.until.get(place.ok()?)
    }

    /// Notes that another process waits for the lock.
    pub(crate) fn note(&self, key: &Key) {
        if let Some(until) = self.until(key) {
            let end = tenths(self.since.elapsed() + WANTED_FOR);
            until.store(end, Ordering::Relaxed);
        }
    }

    /// Returns `true` if another process waited for the lock lately.
    pub(crate) fn is_noted(&self, key: &Key) -> bool {
        let until = self.until(key).map_or(0, |it| it.load(Ordering::Relaxed));
        // Nearly always there is no mark, and then the clock need not be read.
        until > 0 && tenths(self.since.elapsed()) < until
    }
}

fn tenths(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / 100).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Kind;
    use crate::values::LockName;

    #[tokio::test(start_paused = true)]
    async fn a_mark_counts_for_two_seconds_and_for_its_key() {
        let key = |name| Key::new("", &LockName::from(name), Kind::Mutex).unwrap();
        let wanted = Wanted::default();
        tokio::time::sleep(Duration::from_secs(100)).await;
        let (marked, other) = (key("a"), key("b"));
        assert!(!wanted.is_noted(&marked));
        wanted.note(&marked);
        assert!(wanted.is_noted(&marked) && !wanted.is_noted(&other));
        tokio::time::sleep(WANTED_FOR * 9 / 10).await;
        assert!(wanted.is_noted(&marked));
        tokio::time::sleep(WANTED_FOR / 10).await;
        assert!(!wanted.is_noted(&marked));
    }
}

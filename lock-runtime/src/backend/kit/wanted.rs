//! The keys for which other processes wait, as far as this process has seen.

use std::time::Duration;

use super::slots::Slots;
use crate::values::{Key, Moment, clock};

/// The time for which a mark counts.
const WANTED_FOR: Duration = Duration::from_secs(2);
/// The bits of a mark's time, and of its number.
const TIME: u64 = (1 << 32) - 1;
const NUMBER: u64 = (1 << 6) - 1;

/// A mark for each key for which another process waited lately: releases of such a key look at the waiting list, or leave
/// the key to others for a while.
///
/// A process that acquires a free lock again and again is never refused, so it never waits itself. It notices other
/// processes only by the replies of the server: the number of listeners that received the message of a release.
pub(crate) struct Wanted {
    pub(super) since: Moment,
    /// For each key, the tenths of a second from `since` until which its mark counts, and the number of processes.
    marks: Slots,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            since: clock::now(),
            marks: Slots::default(),
        }
    }
}

impl Wanted {
    /// Notes that this number of other processes, or more, wait for the lock.
    pub(crate) fn note(&self, key: &Key, processes: u64) {
        let end = tenths(self.since.elapsed() + WANTED_FOR);
        self.marks
            .set(key.digest(), end << 6 | processes.min(NUMBER));
    }

    /// Returns the number of other processes that waited for the lock lately.
    pub(crate) fn by(&self, key: &Key) -> u64 {
        let mark = self.marks.get(key.digest());
        // Nearly always there is no mark, and then the clock need not be read.
        let counts = mark > 0 && tenths(self.since.elapsed()) < mark >> 6;
        if counts { mark & NUMBER } else { 0 }
    }
}

fn tenths(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 100)
        .unwrap_or(TIME)
        .min(TIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{Kind, LockName};

    #[tokio::test(start_paused = true)]
    async fn a_mark_counts_for_two_seconds_and_for_its_key() {
        let key = |name| Key::new("", &LockName::from(name), Kind::Mutex).unwrap();
        let wanted = Wanted::default();
        tokio::time::sleep(Duration::from_secs(100)).await;
        let (marked, other) = (key("a"), key("b"));
        assert_eq!(wanted.by(&marked), 0);
        wanted.note(&marked, 3);
        assert_eq!((wanted.by(&marked), wanted.by(&other)), (3, 0));
        tokio::time::sleep(WANTED_FOR * 9 / 10).await;
        assert_eq!(wanted.by(&marked), 3);
        tokio::time::sleep(WANTED_FOR / 10).await;
        assert_eq!(wanted.by(&marked), 0);
        wanted.note(&marked, u64::MAX);
        assert_eq!((wanted.by(&marked), wanted.by(&other)), (NUMBER, 0));
    }
}

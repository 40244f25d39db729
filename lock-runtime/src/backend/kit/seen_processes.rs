//! The other processes that want a key, at a store that does not count those that wait. It names the holder whenever it
//! refuses a request: the processes that had the key lately want it again, as a rule.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::slots::Slots;
use super::wanted::Wanted;
use crate::values::{HolderId, Key, manager_of};

/// A process counts for this time at least after it had the key, and for twice this time at most. Those that want the key
/// now and then are seldom among the others that wait.
const WINDOW: Duration = Duration::from_secs(1);

/// The bits of what was seen: the windows that are told apart, and the processes of a window. Two processes may have the same
/// bit, and then count as one.
const WINDOWS: u64 = (1 << 12) - 1;
const PROCESSES: u32 = 20;
const ALL: u64 = (1 << PROCESSES) - 1;

/// What this process has seen of the others.
#[derive(Default)]
pub(crate) struct SeenProcesses {
    wanted: Wanted,
    /// For each key: the current window, the processes seen in the one before, and those seen in the current one.
    had_it: Slots,
}

impl SeenProcesses {
    /// Notes that a holder has the key. `own`: a holder of this process.
    pub(crate) fn has(&self, key: &Key, own: HolderId, holder: &str) {
        let process = manager_of(holder);
        if process == manager_of(&own.text()) {
            return;
        }
        let (digest, window) = (key.digest(), self.window());
        let mut hasher = DefaultHasher::new();
        process.hash(&mut hasher);
        let process = 1 << (hasher.finish() % u64::from(PROCESSES));
        let [before, now] = self.seen(digest, window);
        let seen = window << (2 * PROCESSES) | before << PROCESSES | now | process;
        self.had_it.set(digest, seen);
    }

    /// Notes that another process wants the key.
    pub(crate) fn want(&self, key: &Key) {
        self.wanted.note(key, 1);
    }

    /// Returns the number of other processes that want the key, as far as it is known: those that had it lately.
    pub(crate) fn wanted_by(&self, key: &Key) -> u64 {
        let wanted = self.wanted.by(key);
        if wanted == 0 {
            return 0;
        }
        let [before, now] = self.seen(key.digest(), self.window());
        wanted.max((before | now).count_ones().into())
    }

    /// Returns the processes that had the key in the window before this one, and in this one.
    fn seen(&self, digest: u64, window: u64) -> [u64; 2] {
        let seen = self.had_it.get(digest);
        let [before, then] = [seen >> PROCESSES & ALL, seen & ALL];
        match window.wrapping_sub(seen >> (2 * PROCESSES)) & WINDOWS {
            0 => [before, then],
            1 => [then, 0],
            _ => [0, 0],
        }
    }

    fn window(&self) -> u64 {
        let windows = self.wanted.since.elapsed().as_millis() / WINDOW.as_millis();
        u64::try_from(windows).unwrap_or(0) & WINDOWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{HolderIds, Kind, LockName};

    fn key(name: &str) -> Key {
        Key::new("", &LockName::from(name.to_owned()), Kind::Mutex).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn each_other_process_counts_once_and_for_its_key() {
        let (seen, key, own) = (SeenProcesses::default(), key("a"), HolderIds::new());
        assert_eq!(seen.wanted_by(&key), 0);
        seen.want(&key);
        let processes: Vec<_> = (0..2_000).map(|_| HolderIds::new()).collect();
        for _ in 0..3 {
            for process in [&own, &processes[0]] {
                seen.has(&key, own.fresh(), &process.fresh().text());
                // Another connection.
                process.renew("");
            }
            assert_eq!(seen.wanted_by(&key), 1);
        }
        for process in &processes {
            seen.has(&key, own.fresh(), &process.fresh().text());
        }
        // As many as can be told apart.
        assert_eq!(seen.wanted_by(&key), u64::from(PROCESSES));
        let other = self::key("b");
        assert_eq!(seen.wanted_by(&other), 0);
        seen.want(&other);
        assert_eq!(seen.wanted_by(&other), 1);
    }

    /// Notes holders until two processes count, and returns one of each.
    fn note_two(seen: &SeenProcesses, key: &Key, own: HolderId) -> [String; 2] {
        // Redisson's ids have another form.
        let holder = || format!("{}:1", uuid::Uuid::new_v4());
        let first = holder();
        seen.has(key, own, &first);
        loop {
            let second = holder();
            seen.has(key, own, &second);
            if seen.wanted_by(key) == 2 {
                return [first, second];
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_forgotten_one_or_two_windows_after_its_hold() {
        for began in [0, 100, 999] {
            let (seen, key) = (SeenProcesses::default(), key("a"));
            let own = HolderIds::new().fresh();
            tokio::time::advance(Duration::from_millis(began)).await;
            seen.want(&key);
            let [_, second] = note_two(&seen, &key, own);
            tokio::time::advance(WINDOW - Duration::from_millis(1)).await;
            assert_eq!(seen.wanted_by(&key), 2, "{began}");
            // That the other one is seen does not keep the first one.
            seen.has(&key, own, &second);
            tokio::time::advance(WINDOW + Duration::from_millis(1)).await;
            seen.want(&key);
            assert_eq!(seen.wanted_by(&key), 1, "{began}");
            // Nor do both come back when the numbers of windows begin anew.
            for windows in [14, 240] {
                tokio::time::advance(WINDOW * windows).await;
                seen.want(&key);
                assert_eq!(seen.wanted_by(&key), 1, "{began}, {windows}");
            }
        }
    }
}

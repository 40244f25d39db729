//! Waiting at a store that publishes no releases.

use std::sync::Arc;
use std::time::Duration;

use super::slots::Slots;
use crate::backend::{Boxed, Listen};
use crate::values::{Key, Moment, clock, jittered};

/// The shortest pause. It is short because many holds are short.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest pause. The caller's own longest pause is not much longer.
const LONGEST: Duration = Duration::from_millis(750);

/// The number of pauses in the time since the lock changed hands, for a caller that asks for all of its process.
const STEPS: u32 = 8;

/// Returns the mean pause of waiters after a hold of this length.
pub(crate) fn pause_after(held_for: Duration) -> Duration {
    (held_for / STEPS).clamp(SHORTEST, LONGEST)
}

/// A listener that receives no messages. It makes its caller ask again after pauses that grow with the time in which nothing
/// has changed.
///
/// Pauses that grew with the time of waiting would let those who have just come ask most often, and starve the others.
pub(crate) struct Polling {
    since: Moment,
    /// The number of pauses in that time.
    steps: u32,
    /// What looks have found, the digest of the key, and what the last look at it found before the last pause.
    seen: Option<(Arc<Slots>, u64, u64)>,
}

impl Polling {
    /// Makes the listener of a caller that asks for all callers of its process. `seen` has a number for what the last look at a
    /// key has found. A wait for one holder is a sixteenth longer than it had to be, on average.
    pub(crate) fn for_all(seen: &Arc<Slots>, key: &Key) -> Polling {
        let digest = key.digest();
        Polling {
            since: clock::now(),
            steps: STEPS,
            seen: Some((seen.clone(), digest, seen.get(digest))),
        }
    }

    /// Makes the listener of a caller that asks for itself, as many others may do. Its place in a queue is kept.
    pub(crate) fn new() -> Polling {
        Polling {
            since: clock::now(),
            steps: 1,
            seen: None,
        }
    }

    /// Returns the mean of the next pause.
    fn pause(&mut self) -> Duration {
        if let Some((seen, digest, state)) = &mut self.seen {
            let now = seen.get(*digest);
            if std::mem::replace(state, now) != now {
                self.since = clock::now();
            }
        }
        (self.since.elapsed() / self.steps).clamp(SHORTEST, LONGEST)
    }
}

impl Listen for Polling {
    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(clock::sleep(jittered(self.pause())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{Kind, LockName};

    fn key() -> Key {
        Key::new("", &LockName::from("a"), Kind::Mutex).unwrap()
    }

    /// Listens for 20 s, and checks each pause against the time since `since` before it.
    async fn check_pauses(mut polling: Polling, steps: u32, mut since: impl FnMut() -> Moment) {
        let began = clock::now();
        while began.elapsed() < Duration::from_secs(20) {
            let now = clock::now();
            polling.heard().await;
            let (pause, mean) = (
                now.elapsed(),
                ((now - since()) / steps).clamp(SHORTEST, LONGEST),
            );
            let millisecond = Duration::from_millis(1);
            assert!(pause >= mean / 2, "{pause:?} for {mean:?}");
            assert!(
                pause <= mean * 3 / 2 + millisecond,
                "{pause:?} for {mean:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_without_changes_grow_to_less_than_1250_ms() {
        let (key, seen, now) = (key(), Arc::default(), clock::now());
        check_pauses(Polling::for_all(&seen, &key), STEPS, || now).await;
        let now = clock::now();
        check_pauses(Polling::new(), 1, || now).await;
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_begin_anew_when_the_lock_has_another_holder() {
        let (key, seen) = (key(), Arc::new(Slots::default()));
        let (mut since, mut looks) = (clock::now(), 0);
        let polling = Polling::for_all(&seen, &key);
        check_pauses(polling, STEPS, || {
            let before = since;
            looks += 1;
            if looks % 30 == 0 {
                seen.set(key.digest(), looks);
                since = clock::now();
            }
            before
        })
        .await;
        assert!(looks > 60, "{looks} looks");
    }
}

//! The only place that reads a clock.
//!
//! A [`Moment`] joins two clocks: tokio's, so that tests can pause it, and the boot clock, which goes on
//! while the machine is suspended. Elapsed time is the larger of the two, so a lease ends on time even when
//! one of them stood still.

use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A point in time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    tokio: Instant,
    /// In ns: requests carry some moments each, and a `Duration` would be twice as large.
    boot: u64,
}

/// Now, on both clocks.
pub(crate) fn now() -> Moment {
    Moment {
        tokio: Instant::now(),
        boot: nanos(boot_time()),
    }
}

/// Now, on tokio's clock alone: for times that need not outlast a suspension, and for a store whose clock it is.
pub(crate) fn tick() -> Instant {
    Instant::now()
}

/// Sleeps until tokio's clock reaches `moment`. After a suspension this fires late: a caller that must not act late
/// asks [`Moment::has_passed`] as well.
pub(crate) fn sleep_until(moment: Moment) -> tokio::time::Sleep {
    tokio::time::sleep_until(moment.tokio)
}

pub(crate) fn sleep(duration: Duration) -> tokio::time::Sleep {
    tokio::time::sleep(duration)
}

/// Microseconds since the Unix epoch. Only the memory store, the fair and semaphore formats, the ids of holders and
/// ranges of ids read it.
pub(crate) fn wall_micros() -> u64 {
    wall_time()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        })
}

impl Moment {
    /// Returns the moment by the wall clock as it is now.
    pub(crate) fn wall(self) -> SystemTime {
        let now = wall_time();
        now.checked_sub(self.elapsed()).unwrap_or(now)
    }

    /// True once either clock has reached this moment.
    pub(crate) fn has_passed(self) -> bool {
        now().has_reached(self)
    }

    /// True if this moment is at or past `other` on either clock. Reads none.
    pub(crate) fn has_reached(self, other: Moment) -> bool {
        self.tokio >= other.tokio || self.boot >= other.boot
    }

    /// Time left on the clock that is further ahead; zero once it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self - now()
    }

    /// Sleeps for `pause`, and returns true if time is left before this moment then. A pause that leaves none is not made. A
    /// timer may end a millisecond late, and later on a busy machine.
    pub(crate) async fn leaves_time_after(self, pause: Duration) -> bool {
        if self.remaining() <= pause {
            return false;
        }
        sleep(pause).await;
        !self.has_passed()
    }

    /// Time since this moment on the clock that moved further.
    pub(crate) fn elapsed(self) -> Duration {
        now().since(self)
    }

    fn booted_since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.boot.saturating_sub(earlier.boot))
    }

    /// Time from `earlier` to this moment on the clock that moved further.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        let tokio = self.tokio.saturating_duration_since(earlier.tokio);
        tokio.max(self.booted_since(earlier))
    }

    /// True if the machine was suspended between `earlier` and this moment: tokio's timers are then late by as much.
    pub(crate) fn is_behind_a_suspension_since(self, earlier: Moment) -> bool {
        const NOTICEABLE: Duration = Duration::from_millis(100);
        let tokio = self.tokio.saturating_duration_since(earlier.tokio);
        self.booted_since(earlier).saturating_sub(tokio) > NOTICEABLE
    }

    /// True if tokio's clock has gone ahead of the machine's between `earlier` and this moment. Only a clock that a test
    /// has paused does: it jumps to the next timer whenever its runtime has nothing to do.
    pub(crate) fn has_jumped_since(self, earlier: Moment) -> bool {
        // Less than any call timeout, and more than lies between the two readings of one moment.
        const NOTICEABLE: Duration = Duration::from_millis(5);
        let tokio = self.tokio.saturating_duration_since(earlier.tokio);
        tokio.saturating_sub(self.booted_since(earlier)) > NOTICEABLE
    }

    /// Returns the moment at which either has come. The two clocks may order them differently.
    pub(crate) fn earlier(self, other: Moment) -> Moment {
        Moment {
            tokio: self.tokio.min(other.tokio),
            boot: self.boot.min(other.boot),
        }
    }

    /// Returns a moment that passes when both have passed, whatever the clocks do.
    pub(crate) fn later(self, other: Moment) -> Moment {
        Moment {
            tokio: self.tokio.max(other.tokio),
            boot: self.boot.max(other.boot),
        }
    }

    /// Returns the instant that timers are ordered by.
    pub(crate) fn tick(self) -> Instant {
        self.tokio
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Moment;

    /// Saturates some decades ahead, like tokio's own far future.
    fn add(self, duration: Duration) -> Moment {
        const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);
        let duration = duration.min(FAR);
        Moment {
            tokio: self.tokio + duration,
            boot: self.boot.saturating_add(nanos(duration)),
        }
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// The time from `other` to `self`, by the clock that leaves less of it; zero if `other` is later.
    fn sub(self, other: Moment) -> Duration {
        let tokio = self.tokio.saturating_duration_since(other.tokio);
        tokio.min(self.booted_since(other))
    }
}

#[cfg(all(
    not(any(test, simulation)),
    any(target_os = "linux", target_os = "android", target_vendor = "apple")
))]
fn boot_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(not(target_vendor = "apple"))]
    const BOOT: ClockId = ClockId::Boottime;
    /// Here this clock goes on during sleep; tokio's, `CLOCK_UPTIME_RAW`, does not.
    #[cfg(target_vendor = "apple")]
    const BOOT: ClockId = ClockId::Monotonic;

    let time = clock_gettime(BOOT);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Elsewhere tokio's clock decides alone. On Windows it goes on while the machine is suspended; on other systems it may
/// stop.
#[cfg(all(
    not(any(test, simulation)),
    not(any(target_os = "linux", target_os = "android", target_vendor = "apple"))
))]
fn boot_time() -> Duration {
    use std::sync::LazyLock;
    static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    ORIGIN.elapsed()
}

#[cfg(not(simulation))]
fn wall_time() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
use self::pretended::boot_time;
#[cfg(test)]
pub(crate) use self::pretended::suspend;

#[cfg(simulation)]
pub(crate) use self::simulated::{Simulated, simulate, simulated_now};
#[cfg(simulation)]
use self::simulated::{boot_time, wall_time};

/// The clocks of a process of the simulation. They follow the paused clock of its runtime.
#[cfg(simulation)]
mod simulated {
    use std::cell::Cell;
    use std::time::{Duration, Instant, SystemTime};

    /// The boot clock of a process when it begins.
    const UP: Duration = Duration::from_secs(3_600);
    /// The time of all wall clocks when the simulation begins: in the year 2026.
    const BEGAN: Duration = Duration::from_secs(1_790_000_000);

    /// The differences of one process's clocks from its runtime's clock.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Simulated {
        /// Its runtime's clock when the process began.
        pub(crate) began: Instant,
        /// How far that clock is behind the simulation's.
        pub(crate) behind: Duration,
        /// How far the boot clock is ahead of it, because of suspensions.
        pub(crate) suspended: Duration,
    }

    thread_local! {
        static CURRENT: Cell<Option<Simulated>> = const { Cell::new(None) };
    }

    /// Makes these the current clocks of this thread.
    pub(crate) fn simulate(clocks: Simulated) {
        CURRENT.set(Some(clocks));
    }

    fn current() -> (Simulated, Duration) {
        let clocks = CURRENT.get().expect("a simulated process");
        let now = tokio::time::Instant::now().into_std();
        (clocks, now.saturating_duration_since(clocks.began))
    }

    /// The time since the simulation began.
    pub(crate) fn simulated_now() -> Duration {
        let (clocks, own) = current();
        own + clocks.behind
    }

    pub(super) fn boot_time() -> Duration {
        let (clocks, own) = current();
        UP + own + clocks.suspended
    }

    pub(super) fn wall_time() -> SystemTime {
        SystemTime::UNIX_EPOCH + BEGAN + simulated_now()
    }
}

/// A boot clock for unit tests: it goes with tokio's, paused or not, except in suspensions.
#[cfg(test)]
mod pretended {
    use std::cell::Cell;
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    /// Runtimes may be older than the origin.
    const OLDEST: Duration = Duration::from_secs(3_600);

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    thread_local! {
        static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// Acts as if the machine had been suspended for `time`, for tests on one thread.
    pub(crate) fn suspend(time: Duration) {
        SUSPENDED.set(SUSPENDED.get() + time);
    }

    pub(super) fn boot_time() -> Duration {
        let now = tokio::time::Instant::now().into_std() + OLDEST;
        now.duration_since(*ORIGIN) + SUSPENDED.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_moment_passes_with_the_paused_clock() {
        let moment = now() + Duration::from_secs(30);
        assert!(!moment.has_passed());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(moment.has_passed());
        assert!(moment.elapsed() >= Duration::from_millis(999));
    }

    #[tokio::test(start_paused = true)]
    async fn no_time_is_left_after_a_pause_that_a_timer_rounds_up() {
        let (began, millis) = (tokio::time::Instant::now(), Duration::from_millis);
        assert!((now() + millis(60_000)).leaves_time_after(millis(1)).await);
        let deadline = now() + Duration::from_micros(60_001_500);
        assert!(
            !deadline
                .leaves_time_after(Duration::from_micros(60_001_200))
                .await
        );
        let waited = began.elapsed();
        assert!(waited > millis(60_000), "{waited:?}");
        assert!(
            !(now() + millis(60_000))
                .leaves_time_after(millis(60_000))
                .await
        );
        assert_eq!(began.elapsed(), waited, "it was not waited for in vain");
    }

    #[test]
    fn the_clock_that_moved_further_decides() {
        let start = now();
        let suspended = Moment {
            tokio: start.tokio,
            boot: start.boot + nanos(Duration::from_secs(60)),
        };
        let deadline = start + Duration::from_secs(30);
        assert_eq!(deadline - suspended, Duration::ZERO);
        assert_eq!(deadline - start, Duration::from_secs(30));
    }

    #[test]
    fn the_later_of_two_moments_is_past_when_both_are() {
        let start = now();
        let before = start + Duration::from_secs(600);
        // The second one was set after a suspension of 300 s.
        let after = Moment {
            tokio: start.tokio + Duration::from_secs(480),
            boot: start.boot + nanos(Duration::from_secs(780)),
        };
        for later in [before.later(after), after.later(before)] {
            let awake_at = |boot: u64| Moment {
                tokio: start.tokio + Duration::from_secs(boot - 300),
                boot: start.boot + nanos(Duration::from_secs(boot)),
            };
            assert!(awake_at(600).has_reached(before));
            assert!(!awake_at(779).has_reached(later));
            assert!(awake_at(780).has_reached(later));
        }
    }

    #[test]
    fn an_endless_wait_does_not_overflow() {
        assert!(!(now() + Duration::MAX).has_passed());
    }

    #[test]
    fn only_the_boot_clock_that_went_ahead_tells_of_a_suspension() {
        let start = now();
        let later = |tokio: u64, boot: u64| Moment {
            tokio: start.tokio + Duration::from_millis(tokio),
            boot: start.boot + nanos(Duration::from_millis(boot)),
        };
        assert!(!start.is_behind_a_suspension_since(start));
        assert!(!later(60_000, 60_000).is_behind_a_suspension_since(start));
        assert!(!later(1_000, 1_100).is_behind_a_suspension_since(start));
        assert!(later(1_000, 1_101).is_behind_a_suspension_since(start));
    }

    #[test]
    fn the_wall_clock_is_counted_in_microseconds() {
        let since = |time: SystemTime| time.duration_since(std::time::UNIX_EPOCH).unwrap();
        let before = since(SystemTime::now()).as_micros();
        let told = u128::from(wall_micros());
        assert!((before..=since(SystemTime::now()).as_micros()).contains(&told));
    }
}

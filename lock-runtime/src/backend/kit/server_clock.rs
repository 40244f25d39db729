//! An estimate of the server's time, made of the times in its replies.

use std::time::Duration;

use crate::sync::Mutex;
use crate::values::Moment;

/// The last known TIME of the server. Every reply that carries a time updates it. For each new connection, which may
/// lead to another server, the supervisor of the connection updates it.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<ClockReading>>);

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    micros: u64,
    sent_at: Moment,
}

impl ServerClock {
    /// Notes that the server's time was `micros` in the answer to a request that was sent at `sent_at`.
    pub(crate) fn saw(&self, micros: u64, sent_at: Moment) {
        *self.0.lock() = Some(ClockReading { micros, sent_at });
    }

    /// Returns the server's time at `deadline`, in µs. The result is late by the time that the last request took until
    /// its execution, a call timeout at most, and never early. Returns zero if no time is known yet. Every server's
    /// clock has passed zero, so the server refuses the request, and its reply carries the time.
    pub(crate) fn not_after(&self, now: Moment, deadline: Moment) -> u64 {
        let Some(reading) = *self.0.lock() else {
            return 0;
        };
        reading
            .micros
            .saturating_add(micros(now.since(reading.sent_at)))
            .saturating_add(micros(deadline - now))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::clock;

    #[tokio::test(start_paused = true)]
    async fn the_estimate_counts_from_the_sending_by_the_local_clock() {
        let server = ServerClock::default();
        let ahead = |time| {
            let now = clock::now();
            server.not_after(now, now + time)
        };
        assert_eq!(ahead(Duration::from_secs(1)), 0, "nothing seen yet");
        let sent_at = clock::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        server.saw(1_000_000, sent_at);
        let expected = 1_000_000 + 3_000_000 + 500_000;
        let estimate = ahead(Duration::from_millis(500));
        assert!(
            (expected..expected + 100_000).contains(&estimate),
            "{estimate}"
        );
    }
}

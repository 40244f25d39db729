//! An estimate of the server's time, from the times in its replies.

use std::time::Duration;

use crate::sync::Mutex;
use crate::values::Moment;

/// The server's TIME as last seen. Written by every reply that carries one, and for
/// each new connection, which may lead to another server, by the supervisor of the connection.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<ClockReading>>);

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    micros: u64,
    sent_at: Moment,
}

impl ServerClock {
    /// The server said `micros` in answer to a request that was sent at `sent_at`.
    pub(crate) fn saw(&self, micros: u64, sent_at: Moment) {
        *self.0.lock() = Some(ClockReading { micros, sent_at });
    }

    /// The server's time at `deadline`, as of now, in µs; late by as much as the last request took to be executed, a call
    /// timeout at most, and never early. Zero, which every
    /// server's clock has passed, if none was seen yet: the reply tells.
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
    async fn the_estimate_moves_with_the_local_clock_and_counts_from_the_sending() {
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

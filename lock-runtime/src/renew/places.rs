//! Where the store has the holds, and how each place keeps up. Where answers are slow, renewals are further apart: a
//! store with too much to do would have even more of it, and answer even later.

use std::collections::HashMap;
use std::time::Duration;

use crate::values::{Moment, Ttl};

/// The steps from renewals that are a third of a lease apart to those that are three fifths of one apart: what comes
/// later than that leaves too little time for an answer that is late.
const STEPS: u32 = 64;
/// A slow answer goes so many steps up; a quick one goes one down.
const UP: u32 = 4;

/// Places come and go with the nodes of a cluster. Beyond so many, those are forgotten that have been silent for long.
const MANY: usize = 1024;
const LONG: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Places(HashMap<usize, PlaceRecord>);

#[derive(Debug, Default)]
struct PlaceRecord {
    /// The moment of its last answer.
    answered: Option<Moment>,
    /// The number of [`STEPS`] by which its renewals are further apart.
    steps: u32,
}

impl Places {
    /// An answer has come to a question about such leases, which took so long.
    pub(super) fn answers(&mut self, place: usize, ttl: Ttl, took: Duration, now: Moment) {
        if self.0.len() >= MANY && !self.0.contains_key(&place) {
            self.0
                .retain(|_, place| place.answered.is_some_and(|at| now.since(at) < LONG));
        }
        let place = self.0.entry(place).or_default();
        place.answered = Some(now);
        place.steps = if took > ttl.slow_answer() {
            (place.steps + UP).min(STEPS)
        } else {
            place.steps.saturating_sub(1)
        };
    }

    pub(super) fn last_answer(&self, place: usize) -> Option<Moment> {
        self.0.get(&place)?.answered
    }

    /// Returns how long after a confirmed request the next renewal is sent.
    pub(super) fn next_renewal(&self, place: usize, ttl: Ttl) -> Duration {
        let steps = self.0.get(&place).map_or(0, |place| place.steps);
        ttl.next_renewal() + ttl.cadence() * 4 / 5 * steps / STEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::clock;

    const LEASE: Duration = Duration::from_secs(12);

    fn apart(places: &Places, ttl: Ttl) -> Duration {
        places.next_renewal(1, ttl) + ttl.early()
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_are_up_to_three_fifths_of_a_lease_apart_where_answers_are_slow() {
        let (mut places, ttl) = (Places::default(), Ttl::new(LEASE, true).unwrap());
        assert!(apart(&places, ttl) <= LEASE / 3 + ttl.early());
        for _ in 0..100 {
            places.answers(1, ttl, LEASE / 10, clock::now());
        }
        let slow = apart(&places, ttl);
        let most = LEASE * 3 / 5;
        assert!((most..=most + ttl.early()).contains(&slow), "{slow:?}");
        assert!(places.next_renewal(2, ttl) <= LEASE / 3, "another place");
        for _ in 0..100 {
            places.answers(1, ttl, LEASE / 20, clock::now());
        }
        assert!(
            apart(&places, ttl) <= LEASE / 3 + ttl.early(),
            "quick again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn places_that_are_gone_are_forgotten() {
        let (mut places, ttl) = (Places::default(), Ttl::new(LEASE, true).unwrap());
        for place in 0..MANY * 10 {
            places.answers(place, ttl, Duration::ZERO, clock::now());
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(places.0.len() <= MANY + 1);
        }
    }
}

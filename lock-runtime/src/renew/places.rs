//! The places in the store that have the holds, and how each place keeps up. Where answers are slow, renewals are
//! further apart: more requests would make a busy store even slower.

use std::collections::HashMap;
use std::time::Duration;

use crate::values::{Moment, Ttl};

/// The steps from renewals that are a third of a lease apart to renewals that are three fifths of it apart: a later
/// renewal leaves too little time for a late answer.
const STEPS: u32 = 64;
/// A slow answer adds this many steps; a quick one halves them. Renewals of a store that stays slow are three fifths
/// apart after the fourth slow answer. After one stall, they are two fifths apart, so that the lease outlives another
/// stall.
const UP: u32 = 16;

/// Places come and go with the nodes of a cluster. Beyond this number, places that have been silent for [`LONG`] are
/// forgotten.
const MANY: usize = 1024;
const LONG: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Places(HashMap<usize, PlaceRecord>);

#[derive(Debug, Default)]
struct PlaceRecord {
    /// The moment of its last answer.
    answered: Option<Moment>,
    /// The moment of the last slow answer that counted.
    slow: Option<Moment>,
    /// The number of [`STEPS`] by which its renewals are further apart.
    steps: u32,
}

impl Places {
    /// Takes in an answer about leases of `ttl`, to a request that was sent at `sent_at`.
    ///
    /// A request from before the last slow answer was held up by the same stall, so its answer says nothing new.
    pub(super) fn answers(&mut self, place: usize, ttl: Ttl, sent_at: Moment, now: Moment) {
        if self.0.len() >= MANY && !self.0.contains_key(&place) {
            self.0
                .retain(|_, place| place.answered.is_some_and(|at| now.since(at) < LONG));
        }
        let place = self.0.entry(place).or_default();
        place.answered = Some(now);
        if now.since(sent_at) <= ttl.slow_answer() {
            place.steps /= 2;
        } else if place.slow.is_none_or(|slow| sent_at.has_reached(slow)) {
            place.slow = Some(now);
            place.steps = (place.steps + UP).min(STEPS);
        }
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

    async fn answers_after(places: &mut Places, ttl: Ttl, took: Duration) {
        let sent_at = clock::now();
        tokio::time::advance(took).await;
        places.answers(1, ttl, sent_at, clock::now());
    }

    fn apart(places: &Places, ttl: Ttl) -> Duration {
        places.next_renewal(1, ttl) + ttl.early()
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_put_renewals_up_to_three_fifths_apart() {
        let (mut places, ttl) = (Places::default(), Ttl::new(LEASE, true).unwrap());
        assert!(apart(&places, ttl) <= LEASE / 3 + ttl.early());
        for _ in 0..4 {
            answers_after(&mut places, ttl, LEASE / 10).await;
        }
        let slow = apart(&places, ttl);
        let most = LEASE * 3 / 5;
        assert!((most..=most + ttl.early()).contains(&slow), "{slow:?}");
        assert!(places.next_renewal(2, ttl) <= LEASE / 3, "another place");
        for _ in 0..7 {
            answers_after(&mut places, ttl, LEASE / 20).await;
        }
        assert!(
            apart(&places, ttl) <= LEASE / 3 + ttl.early(),
            "quick again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn one_stall_is_no_slow_store_however_many_answers_it_held_up() {
        let (mut places, ttl) = (Places::default(), Ttl::new(LEASE, true).unwrap());
        for _ in 0..4 {
            let mut sent = Vec::new();
            for _ in 0..100 {
                sent.push(clock::now());
                tokio::time::advance(Duration::from_millis(1)).await;
            }
            tokio::time::advance(LEASE * 2 / 5).await;
            for sent_at in sent {
                places.answers(1, ttl, sent_at, clock::now());
            }
            // The next stall of two fifths leaves a fifth.
            let apart = apart(&places, ttl);
            assert!(apart <= LEASE * 2 / 5 + ttl.early(), "{apart:?}");
            for _ in 0..5 {
                answers_after(&mut places, ttl, LEASE / 100).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn places_that_are_gone_are_forgotten() {
        let (mut places, ttl) = (Places::default(), Ttl::new(LEASE, true).unwrap());
        for place in 0..MANY * 10 {
            places.answers(place, ttl, clock::now(), clock::now());
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(places.0.len() <= MANY + 1);
        }
    }
}

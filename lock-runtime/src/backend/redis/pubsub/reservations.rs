//! Reservations that are believed from their messages, without a request.
//!
//! A release reserves a mutex for the first holder on its waiting list and says so in a message. A process that gets the
//! message may take it for the grant. It then needs no request, and a change of hands has two scripts instead of three.
//! A message is no answer: it may come late, or after the reservation has ended. It is believed only if it fits what
//! this process knows from its own request. The model finds two holders at once, or a token that falls, without any of
//! these rules:
//!
//! - **First request.** The holder has asked once, and the server has answered that the lock is busy; or a release has put
//!   the holder on the list. No request of the holder is under way. A second request may have put the holder on the list
//!   again, after a reservation that is over.
//! - **One server.** The message names the run of the server that wrote the reservation, as the connection of the
//!   release found it when it was opened. It is the run that the command connection leads to, and that connection is the
//!   one that carried the request. After a failover, another server may reserve the lock by another clock.
//! - **In time.** The message names the end of the reservation by the server's clock. The answer to the request named
//!   the time by the same clock, and was read after the request was sent. So the reservation lasts at least until the
//!   request was sent, plus the difference, less a margin for the drift of the clocks. An older answer than
//!   [`LONGEST_AGE`] does not count.
//! - **No step forward.** By the clock of that answer, the reservation began before now. Otherwise the server's clock
//!   has been set forward since, and the reservation ends earlier than it says. A step that is shorter than the message
//!   took is not seen.
//! - **Counted.** The script sends such a message only if the server counts a listener. A replica passes messages on to
//!   listeners that its master does not count, and a reservation that nobody hears goes to the next holder.
//! - **Once.** Every message is about one holder id, which is fresh for each place on the list. After a
//!   message that it looked at, another request, or an undo, the process believes no message about this holder.
//!
//! `acquire/front_seat.rs` believes only for a renewed lease behind which nobody waits, and `kinds/listed.rs` only for
//! mutexes of a runtime of two workers: otherwise, the hold could not be extended in time, or the next turns would have
//! no tokens.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::messages::Reservation;
use crate::backend::redis::connection::Live;
use crate::backend::{Granted, RESERVED};
use crate::sync::Mutex;
use crate::values::{Alias, Moment};

/// The longest time between the request and the use of its message.
const LONGEST_AGE: Duration = Duration::from_secs(1);
/// The least rest of a reservation that is used: a quarter. With less, the holder asks.
const LEAST_LEFT: Duration = Duration::from_millis(250);
/// The least margin for the drift of two clocks; otherwise it is a hundredth.
const LEAST_MARGIN: Duration = Duration::from_millis(10);

/// The places that wait for a message, by the names of their holders in messages.
#[derive(Default)]
pub(crate) struct Reservations(Mutex<HashMap<Alias, ExpectedReservation>>);

/// What is known of one place.
struct ExpectedReservation {
    /// The connection that carries the place's first request, or the release that puts its holder on the list.
    live: Live,
    sent_at: Moment,
    /// The server's time in the answer, in µs.
    answered: Option<u64>,
    reservation: Option<Reservation>,
}

impl Reservations {
    /// Begins to expect a message, before the first request of the holder is sent, or the release in its place.
    pub(crate) fn expect(&self, holder: Alias, live: &Live, sent_at: Moment) {
        let expected = ExpectedReservation {
            live: live.clone(),
            sent_at,
            answered: None,
            reservation: None,
        };
        self.0.lock().insert(holder, expected);
    }

    /// Notes the answer. `listed_at`: the server's time in it, in µs, if it says that another holder has the lock, and that
    /// this one is on the list. Any other answer ends the expectation.
    pub(crate) fn answered(&self, holder: Alias, listed_at: Option<u64>) {
        if listed_at.is_none() {
            self.forget(holder);
        } else if let Some(expected) = self.0.lock().get_mut(&holder) {
            expected.answered = listed_at;
        }
    }

    /// Expects no message any more.
    pub(crate) fn forget(&self, holder: Alias) {
        self.0.lock().remove(&holder);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Takes in a message.
    pub(crate) fn receive(&self, reservation: Reservation) {
        if let Some(expected) = self.0.lock().get_mut(&reservation.holder) {
            expected.reservation = Some(reservation);
        }
    }

    /// Ends the expectation, and returns the reservation if it is believed. `live`: the command connection at this
    /// moment.
    pub(crate) fn take(&self, holder: Alias, live: Option<&Live>, now: Moment) -> Option<Granted> {
        let expected = self.0.lock().remove(&holder)?;
        let (answered, reservation) = (expected.answered?, expected.reservation?);
        let live = live.filter(|live| live.is_one_with(&expected.live))?;
        if live.run_id() != Some(&*reservation.run_id) {
            return None;
        }
        let rest = believed_for(&reservation, answered, expected.sent_at, now)?;
        Some(Granted {
            token: Some(reservation.token),
            sent_at: now,
            reserved_ms: Some(rest),
        })
    }
}

/// Returns the ms from `now` on for which a reservation is believed, if it is. `time`: the server's time in the answer to a
/// request that was sent at `sent_at`.
fn believed_for(
    reservation: &Reservation,
    time: u64,
    sent_at: Moment,
    now: Moment,
) -> Option<NonZeroU32> {
    let age = now.since(sent_at);
    let after_answer = Duration::from_micros(reservation.ends_us.checked_sub(time)?);
    if age > LONGEST_AGE || after_answer > age + RESERVED {
        return None;
    }
    let margin = (after_answer / 100).max(LEAST_MARGIN);
    let rest = after_answer.checked_sub(margin)?.checked_sub(age)?;
    let ms = u32::try_from(rest.as_millis()).ok();
    ms.and_then(NonZeroU32::new).filter(|_| rest >= LEAST_LEFT)
}

#[cfg(test)]
mod tests;

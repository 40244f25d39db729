//! The channels, and the messages on them.

use std::collections::HashSet;
use std::sync::Arc;

use crate::backend::{Event, Holders};
use crate::values::{Alias, FencingToken, Key, Kind, decimal};

/// The channel for the names of the holders that were released by force. All namespaces share it: managers with
/// different namespaces may have the same key, because the namespace of one can be the beginning of the other's name.
pub(crate) const CONTROL: &str = "lock:control:released";

/// The prefix of a message that names the holders that were released by force.
const NAMES: &[u8] = b"holders:";
/// The prefix of a message that names a holder whose lock another client wants. The script fragment `keeper` publishes
/// it.
const WANTED: &[u8] = b"wanted:";

/// Returns the channel on which releases of a key are published.
pub(crate) fn channel(key: &Key) -> String {
    key.prefixed(match key.kind() {
        Kind::Mutex | Kind::Fenced | Kind::Fair => "redisson_lock__channel",
        Kind::Semaphore => return channel_of_permits(key),
        Kind::Read | Kind::Write => "redisson_rwlock",
    })
}

/// Returns the channel on which a semaphore's free permits are published.
pub(crate) fn channel_of_permits(key: &Key) -> String {
    key.prefixed("redisson_sc")
}

/// The largest number of holders in one message. The script fragment `publish_or_append` keeps to it.
const MOST_NAMED: usize = 256;

/// Parses a message on the control channel.
pub(crate) fn event(payload: &[u8]) -> Option<Event> {
    match payload.first()? {
        b'w' => Some(Event::Wanted(named(payload, WANTED)?)),
        _ => Some(Event::ForceReleased(named(payload, NAMES)?)),
    }
}

/// Parses the prefix `what`, followed by the alias of each holder in 32 hex digits. Any other message on the control
/// channel is not ours. The length is checked before the content, because others may publish anything there.
fn named(payload: &[u8], what: &[u8]) -> Option<Holders> {
    let length = payload.len().checked_sub(what.len())?;
    if !length.is_multiple_of(DIGITS) || !(1..=MOST_NAMED).contains(&(length / DIGITS)) {
        return None;
    }
    let names = payload.strip_prefix(what)?;
    let aliases: Option<HashSet<_>> = names.chunks(DIGITS).map(alias).collect();
    Some(Holders::Aliases(Arc::new(aliases?)))
}

/// The number of digits of an alias.
const DIGITS: usize = 32;

fn alias(digits: &[u8]) -> Option<Alias> {
    let digits = std::str::from_utf8(digits).ok()?;
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(digits, 16).ok()?;
    plain.then(|| number.to_be_bytes())
}

/// A message that the lock is reserved for a holder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reservation {
    pub(crate) holder: Alias,
    /// The run of the server that wrote the reservation.
    pub(crate) run_id: Box<str>,
    /// The end of the reservation, in µs of the server's TIME.
    pub(crate) ends_us: u64,
    pub(crate) token: FencingToken,
}

/// Parses a message that a lock is reserved for a holder: the holder's alias, the run of the server, the end of the
/// reservation in ms of the server's TIME, and the fencing token. The script `listed_release` writes it. Listeners take
/// any other message as a hint.
pub(crate) fn reservation(payload: &[u8]) -> Option<Reservation> {
    if !(DIGITS..=256).contains(&payload.len()) {
        return None;
    }
    let mut parts = payload.split(|byte| *byte == b':');
    let holder = parts.next().filter(|holder| holder.len() == DIGITS);
    let holder = alias(holder?)?;
    let run_id = std::str::from_utf8(parts.next()?).ok()?;
    let (ends_ms, token) = (
        decimal::parse(parts.next()?)?,
        decimal::parse(parts.next()?)?,
    );
    let reservation = Reservation {
        holder,
        run_id: run_id.into(),
        ends_us: ends_ms.checked_mul(1_000)?,
        token: FencingToken::checked(token)?,
    };
    (parts.next().is_none() && !run_id.is_empty()).then_some(reservation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(payload: &str) -> Option<Arc<HashSet<[u8; 16]>>> {
        match event(payload.as_bytes())? {
            Event::ForceReleased(Holders::Aliases(aliases)) => Some(aliases),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wanted_message_names_a_holder_as_a_forced_release_does() {
        let one = "0f".repeat(16);
        let wanted = event(format!("wanted:{one}").as_bytes());
        let Some(Event::Wanted(Holders::Aliases(aliases))) = wanted else {
            panic!("{wanted:?}");
        };
        assert_eq!(*aliases, [[0x0f; 16]].into());
        for bad in [
            "wanted:",
            "wanted:1",
            "w",
            &format!("wanted{one}"),
            &format!("wanted:{one}0"),
        ] {
            assert!(event(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_scripts_use_the_control_channel_and_its_words() {
        let fragment = include_str!("../scripting/lua/lib/keeper.lua");
        let words = std::str::from_utf8(WANTED).unwrap();
        assert!(fragment.contains(&format!("'PUBLISH', '{CONTROL}', '{words}'")));
        let fragment = include_str!("../scripting/lua/lib/publish_or_append.lua");
        let words = std::str::from_utf8(NAMES).unwrap();
        assert!(fragment.contains(&format!("channel = '{CONTROL}'")));
        assert!(fragment.contains(&format!("payload = '{words}'")));
    }

    #[test]
    fn holders_are_named_by_thirty_two_hex_digits_each() {
        let (one, other) = ("0f".repeat(16), "Ab".repeat(16));
        assert_eq!(
            *named(&format!("holders:{one}")).unwrap(),
            [[0x0f; 16]].into()
        );
        let two = named(&format!("holders:{one}{other}")).unwrap();
        assert_eq!(*two, [[0x0f; 16], [0xab; 16]].into());
        for bad in [
            "",
            "0",
            "holders:",
            "holders:1",
            &one,
            &format!("permits:{one}"),
            &format!("holders:{}", &one[1..]),
            &format!("holders:{one}0"),
            &format!("holders:{}", "+1".repeat(16)),
            &format!("holders:{}", "g".repeat(32)),
        ] {
            assert!(named(bad).is_none(), "{bad}");
        }
        assert!(event(&[0xff; 40]).is_none() && event(b"").is_none());
    }

    #[test]
    fn a_message_of_an_impossible_length_is_refused() {
        let names = |count| format!("holders:{}", "0".repeat(32 * count));
        assert!(named(&names(MOST_NAMED)).is_some());
        for count in [MOST_NAMED + 1, 900_000] {
            assert!(named(&names(count)).is_none(), "{count}");
        }
    }
}

mod model;

use super::*;
use crate::values::FencingToken;
use crate::values::clock;

const NOON: u64 = 1_700_000_000_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The reservation that began `begun` after the answer at [`NOON`].
fn reservation(begun: Duration) -> Reservation {
    let ends = begun + RESERVED;
    Reservation {
        holder: [0; 16],
        run_id: "run".into(),
        ends_us: NOON + u64::try_from(ends.as_micros()).unwrap(),
        token: FencingToken::checked(1).unwrap(),
    }
}

/// Returns for how many ms that reservation is believed, some time after the request was sent.
fn believed(begun: Duration, after: Duration) -> Option<u32> {
    let sent_at = clock::now();
    let rest = believed_for(&reservation(begun), NOON, sent_at, sent_at + after);
    rest.map(NonZeroU32::get)
}

#[test]
fn a_reservation_is_believed_until_its_end_less_a_margin() {
    // The end is 1100 ms after the request, and the margin is 11 ms.
    assert_eq!(believed(ms(100), ms(100)), Some(989));
    assert_eq!(believed(ms(100), ms(500)), Some(589));
    assert_eq!(believed(ms(100), ms(839)), Some(250));
    assert_eq!(believed(ms(100), ms(840)), None, "too little is left");
    // The margin is 10 ms at least.
    assert_eq!(believed(ms(0), ms(1)), Some(989));
}

#[test]
fn the_scripts_reserve_for_the_same_time() {
    let millis = RESERVED.as_millis();
    let fragment = include_str!("../../../scripting/lua/lib/waiting.lua");
    assert!(fragment.contains(&format!("250000, {millis}\n")));
    let shortcut = include_str!("../../../scripting/lua/shortcut/listed_release.lua");
    assert!(shortcut.contains(&format!("+ {millis})\n")));
}

#[test]
fn an_old_answer_is_no_measure() {
    assert_eq!(believed(ms(1_000), ms(1_000)), Some(980));
    assert_eq!(believed(ms(1_000), ms(1_001)), None);
}

#[test]
fn a_reservation_is_not_believed_after_the_clock_was_set() {
    assert_eq!(believed(ms(101), ms(100)), None);
    assert_eq!(believed(ms(3_600_000), ms(100)), None);
    // It was set back: the reservation seems to have ended.
    let mut early = reservation(ms(0));
    early.ends_us = NOON - 1;
    let now = clock::now();
    assert_eq!(believed_for(&early, NOON, now, now), None);
}

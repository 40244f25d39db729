//! Tests of how long a process hands over to itself, and how long it rests.

use super::*;
use crate::values::clock;

#[tokio::test(start_paused = true)]
async fn a_slice_lasts_two_milliseconds_or_eight_round_trips() {
    for others in [None, Some(1), Some(1_000)] {
        for (round_trip, length) in [(0, 2_000), (100, 2_000), (1_000, 8_000)] {
            let round_trip = Duration::from_micros(round_trip);
            let mut slice = Slice::default();
            assert!(slice.may_hand_over(clock::now()));
            slice.granted(others, round_trip, clock::now());
            // Later tenures do not begin it anew.
            tokio::time::advance(Duration::from_millis(1)).await;
            slice.granted(others, round_trip, clock::now());
            tokio::time::advance(Duration::from_micros(length - 2_000)).await;
            assert!(slice.may_hand_over(clock::now()));
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!slice.may_hand_over(clock::now()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn alone_a_slice_lasts_a_second() {
    let mut slice = Slice::default();
    for _ in 0..1_000 {
        slice.granted(Some(0), Duration::ZERO, clock::now());
    }
    tokio::time::advance(Duration::from_millis(999)).await;
    assert!(slice.may_hand_over(clock::now()));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!slice.may_hand_over(clock::now()));
}

/// The rest after a turn of no length, now.
fn rest_of(slice: &mut Slice, others: Others, round_trip: Duration) -> Option<Duration> {
    slice.rest(others, Duration::ZERO, round_trip, clock::now())
}

/// The rest after a slice of ten seconds.
async fn rest_after(
    counted: Option<u64>,
    round_trip: Duration,
    others: Others,
) -> Option<Duration> {
    let mut slice = Slice::default();
    slice.granted(counted, round_trip, clock::now());
    tokio::time::advance(Duration::from_secs(10)).await;
    let rest = rest_of(&mut slice, others, round_trip);
    assert_eq!(rest_of(&mut slice, others, round_trip), None, "once");
    rest
}

fn is_about(rest: Duration, millis: u64) -> bool {
    let about = Duration::from_millis(millis);
    rest >= about.mul_f64(0.75) && rest <= about.mul_f64(1.25)
}

#[tokio::test(start_paused = true)]
async fn a_process_rests_after_its_slice_and_now_and_then_for_long() {
    for (round_trip, few, long) in [(0, 1, 50), (3, 12, 72), (50, 200, 250), (1_000, 250, 250)] {
        let round_trip = Duration::from_millis(round_trip);
        let mut rests = Vec::new();
        for counted in [None, Some(0)].into_iter().cycle().take(1_000) {
            let rest = rest_after(counted, round_trip, Others::Seen(0)).await;
            rests.push(rest.unwrap());
        }
        let is_short = |rest: &&Duration| is_about(**rest, few);
        let long_ones = rests.iter().filter(|rest| is_about(**rest, long)).count();
        assert!(rests.iter().filter(is_short).count() > 800);
        assert!(few > 100 || (5..100).contains(&long_ones), "{long_ones}");
    }
}

#[tokio::test(start_paused = true)]
async fn most_of_the_others_get_as_long_a_slice() {
    for (round_trip, length, others, rest) in [
        (0, 8, 3, 18),
        (0, 8, 1_000, 50),
        // Far away, the changes of hands count, and slices are longer.
        (1, 8, 3, 24),
        (10, 80, 2, 160),
        (10, 80, 64, 240),
        (50, 400, 3, 250),
    ] {
        let [round_trip, length] = [round_trip, length].map(Duration::from_millis);
        let mut rests = Vec::new();
        for _ in 0..100 {
            let mut slice = Slice::default();
            slice.granted(Some(others), round_trip, clock::now());
            tokio::time::advance(length).await;
            rests.push(rest_of(&mut slice, Others::Seen(1), round_trip).unwrap());
        }
        let as_said = rests.iter().filter(|it| is_about(**it, rest)).count();
        assert!(as_said > 80, "{others} at {round_trip:?}: {rests:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_does_not_rest_before_its_slice_is_over() {
    let mut slice = Slice::default();
    assert_eq!(rest_of(&mut slice, Others::Seen(0), Duration::ZERO), None);
    slice.granted(Some(1), Duration::ZERO, clock::now());
    assert_eq!(rest_of(&mut slice, Others::Seen(0), Duration::ZERO), None);
}

#[tokio::test(start_paused = true)]
async fn a_process_does_not_rest_where_others_take_turns_with_it() {
    assert_eq!(
        rest_after(Some(1), Duration::ZERO, Others::InTurns).await,
        None
    );
    let alone = rest_after(Some(0), Duration::ZERO, Others::InTurns).await;
    assert!(alone.is_some(), "the others may not be on the list");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_asks_the_store_begins_a_slice() {
    let mut slice = Slice::default();
    slice.granted(Some(1), Duration::ZERO, clock::now());
    tokio::time::advance(Duration::from_secs(1)).await;
    slice.begins_anew();
    assert!(slice.may_hand_over(clock::now()));
    assert_eq!(rest_of(&mut slice, Others::Seen(0), Duration::ZERO), None);
}

#[tokio::test(start_paused = true)]
async fn a_process_rests_for_a_hundredth_of_the_time_it_kept() {
    for (keep_for, round_trip, rest) in [
        (50, 0, 1_000),
        (500, 0, 5_000),
        (60_000, 0, 10_000),
        (50, 3, 12_000),
    ] {
        let [keep_for, round_trip] = [keep_for, round_trip].map(Duration::from_millis);
        let mut slice = Slice::default();
        slice.keeps(keep_for, clock::now());
        // Later calls do not begin it anew.
        tokio::time::advance(keep_for / 2).await;
        slice.keeps(keep_for, clock::now());
        assert!(slice.may_keep(clock::now()));
        assert_eq!(rest_of(&mut slice, Others::InTurns, round_trip), None);
        tokio::time::advance(keep_for / 2).await;
        let now = clock::now();
        assert!(!slice.may_keep(now));
        let rested = rest_of(&mut slice, Others::InTurns, round_trip);
        assert_eq!(rested, Some(Duration::from_micros(rest)));
        assert!(slice.may_keep(now), "then it begins anew");
    }
}

#[test]
fn a_process_rests_shortly_for_others_that_want_the_key() {
    let mut slice = Slice::default();
    let now = clock::now();
    slice.keeps(Duration::from_secs(60), now);
    slice.note_wanted(now);
    assert!(!slice.may_keep(now));
    assert_eq!(
        rest_of(&mut slice, Others::InTurns, Duration::ZERO),
        Some(REST)
    );
}

#[test]
fn a_process_that_did_not_use_the_key_does_not_rest() {
    let mut slice = Slice::default();
    let now = clock::now();
    slice.keeps(Duration::ZERO, now);
    slice.note_unused();
    assert_eq!(rest_of(&mut slice, Others::Seen(0), Duration::ZERO), None);
}

/// Returns how many of a thousand turns of this length have a rest after them. Others were seen.
fn rests_after_turns(micros: u64, round_trip: Duration) -> usize {
    let held_for = Duration::from_micros(micros);
    let mut slice = Slice::default();
    let rests = (0..1_000)
        .filter_map(|_| slice.rest(Others::Seen(1), held_for, round_trip, clock::now()))
        .inspect(|rest| assert!(*rest >= REST * 3 / 4, "{rest:?}"));
    rests.count()
}

#[test]
fn a_process_that_has_seen_others_rests_about_once_in_a_slice() {
    for (micros, rests) in [
        (0, 0..10),
        (500, 150..350),
        (1_000, 400..600),
        (1_900, 900..1_000),
    ] {
        let counted = rests_after_turns(micros, Duration::ZERO);
        assert!(rests.contains(&counted), "{counted} after {micros} µs");
    }
    for micros in [2_000, 10_000] {
        assert_eq!(rests_after_turns(micros, Duration::ZERO), 1_000);
    }
    // Where others take long to notice a release, slices are longer. These are of 2.4 ms.
    let counted = rests_after_turns(1_200, Duration::from_micros(300));
    assert!((400..600).contains(&counted), "{counted}");
}

/// The others come one after the other: the one that takes the lock at once needs no time, and each of the rest a turn.
#[test]
fn a_rest_after_one_turn_lasts_for_all_other_processes_but_one() {
    let held_for = Duration::from_millis(8);
    for (processes, about) in [(1, 1), (2, 6), (4, 18), (64, 50)] {
        let rests = (0..100).map(|_| {
            let mut slice = Slice::default();
            let (others, now) = (Others::Seen(processes), clock::now());
            slice.note_contended();
            let rest = slice.rest(others, held_for, Duration::ZERO, now);
            // Once. A caller that did not have to wait rests for the shortest time: others may only listen.
            (rest, slice.rest(others, held_for, Duration::ZERO, now))
        });
        let as_said = rests.filter(|(rest, next)| {
            rest.is_some_and(|rest| is_about(rest, about))
                && next.is_some_and(|rest| is_about(rest, 1))
        });
        assert!(as_said.count() > 80, "{processes} others");
    }
}

/// A database says at a hand-over that somebody waits, and not how many do.
#[tokio::test(start_paused = true)]
async fn a_slice_that_was_waited_for_counts_the_others_that_were_seen() {
    for (is_contended, about) in [(false, 6), (true, 18)] {
        let mut as_said = 0;
        for _ in 0..100 {
            let mut slice = Slice::default();
            slice.granted(Some(1), Duration::ZERO, clock::now());
            if is_contended {
                slice.note_contended();
            }
            tokio::time::advance(Duration::from_millis(8)).await;
            let rest = rest_of(&mut slice, Others::Seen(4), Duration::ZERO);
            as_said += u32::from(is_about(rest.unwrap(), about));
        }
        assert!(as_said > 80, "{about} ms: {as_said}");
    }
}

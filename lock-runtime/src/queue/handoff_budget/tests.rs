//! Tests of how long a process hands over to itself, stands back, and leaves a key alone.

use super::*;

#[tokio::test(start_paused = true)]
async fn where_others_wait_a_process_hands_over_for_two_milliseconds_or_eight_round_trips() {
    for strangers in [None, Some(1), Some(1_000)] {
        for (round_trip, stretch) in [(0, 2_000), (100, 2_000), (1_000, 8_000)] {
            let round_trip = Duration::from_micros(round_trip);
            let mut budget = HandoffBudget::default();
            assert!(budget.may_hand_over());
            budget.tenure_begins(strangers, round_trip);
            // Later ones do not begin it anew.
            tokio::time::advance(Duration::from_millis(1)).await;
            budget.tenure_begins(strangers, round_trip);
            tokio::time::advance(Duration::from_micros(stretch - 2_000)).await;
            assert!(budget.may_hand_over());
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!budget.may_hand_over());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn alone_it_goes_on_for_a_second() {
    let mut budget = HandoffBudget::default();
    for _ in 0..1_000 {
        budget.tenure_begins(Some(0), Duration::ZERO);
    }
    tokio::time::advance(Duration::from_millis(999)).await;
    assert!(budget.may_hand_over());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!budget.may_hand_over());
}

/// The pause after one more stretch.
fn next_pause(budget: &mut HandoffBudget, round_trip: Duration) -> Duration {
    budget.stand_back();
    budget.pause(round_trip).unwrap().most
}

fn is_about(pause: Duration, millis: u64) -> bool {
    let about = Duration::from_millis(millis);
    pause >= about.mul_f64(0.75) && pause <= about.mul_f64(1.25)
}

#[tokio::test(start_paused = true)]
async fn a_head_stays_away_only_after_a_stretch() {
    let mut budget = HandoffBudget::default();
    assert_eq!(budget.pause(Duration::ZERO), None);
    assert!(is_about(next_pause(&mut budget, Duration::ZERO), 1));
    assert_eq!(budget.pause(Duration::ZERO), None);
    let far = Duration::from_millis(3);
    assert!(is_about(next_pause(&mut budget, far), 12));
}

#[tokio::test(start_paused = true)]
async fn where_others_wait_most_of_them_get_as_long_a_stretch() {
    let round_trip = Duration::ZERO;
    for (strangers, pause) in [(Some(0), 1), (None, 1), (Some(3), 18), (Some(1_000), 50)] {
        let mut budget = HandoffBudget::default();
        budget.tenure_begins(strangers, round_trip);
        tokio::time::advance(Duration::from_millis(8)).await;
        assert!(is_about(next_pause(&mut budget, round_trip), pause));
    }
    // Far away, the changes of hands count, and turns are longer.
    for (round_trip, strangers, pause) in [(1, 3, 24), (10, 2, 160), (10, 64, 240), (50, 3, 250)] {
        let round_trip = Duration::from_millis(round_trip);
        let mut budget = HandoffBudget::default();
        budget.tenure_begins(Some(strangers), round_trip);
        tokio::time::advance(round_trip * STRETCH_IN_ROUND_TRIPS).await;
        assert!(is_about(next_pause(&mut budget, round_trip), pause));
    }
}

#[tokio::test(start_paused = true)]
async fn others_that_are_far_away_and_had_no_turn_are_not_given_as_much_time_again() {
    let round_trip = Duration::from_millis(10);
    let mut budget = HandoffBudget::default();
    for (is_seen, pause) in [(true, 240), (false, 50), (false, 50), (true, 240)] {
        budget.tenure_begins(Some(3), round_trip);
        tokio::time::advance(Duration::from_millis(80)).await;
        if is_seen {
            budget.heard_others();
        }
        assert!(is_about(next_pause(&mut budget, round_trip), pause));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_left_to_the_background_changes_nothing_about_the_pause() {
    let mut budget = HandoffBudget::default();
    let mut since = clock::tick();
    // The second stretch is another one, even if nobody has stood back after the first.
    for _ in 0..2 {
        budget.tenure_begins(Some(3), Duration::ZERO);
        tokio::time::advance(Duration::from_millis(8)).await;
        since = clock::tick();
        budget.stand_back();
        tokio::time::advance(Duration::from_millis(5)).await;
        budget.stand_back();
    }
    let pause = budget.pause(Duration::ZERO).unwrap();
    assert_eq!((pause.since, pause.releases), (since, 3));
    assert!(is_about(pause.most, 18));
}

#[tokio::test(start_paused = true)]
async fn where_nobody_is_known_to_wait_a_pause_counts_from_the_answer_to_the_release() {
    let mut budget = HandoffBudget::default();
    budget.stand_back();
    tokio::time::advance(Duration::from_millis(5)).await;
    assert_eq!(budget.pause(Duration::ZERO).unwrap().since, clock::tick());
}

#[tokio::test(start_paused = true)]
async fn every_eighth_pause_is_long_while_no_other_process_is_seen_and_ends_with_the_turn_of_one() {
    let mut budget = HandoffBudget::default();
    for _ in 0..3 {
        for _ in 0..7 {
            assert!(is_about(next_pause(&mut budget, Duration::ZERO), 1));
        }
        budget.tenure_begins(Some(3), Duration::ZERO);
        budget.stand_back();
        let long = budget.pause(Duration::ZERO).unwrap();
        assert!(is_about(long.least, 1));
        assert!(is_about(long.most, 50));
        assert_eq!(long.releases, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn processes_that_see_each_other_make_no_long_pause() {
    let mut budget = HandoffBudget::default();
    for _ in 0..100 {
        assert!(is_about(next_pause(&mut budget, Duration::ZERO), 1));
        budget.saw_another();
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_kept_is_left_alone_for_a_hundredth_of_the_time() {
    for (keep_for, round_trip, alone) in [
        (50, 0, 1_000),
        (500, 0, 5_000),
        (60_000, 0, 10_000),
        (50, 3, 12_000),
    ] {
        let [keep_for, round_trip] = [keep_for, round_trip].map(Duration::from_millis);
        let mut budget = HandoffBudget::default();
        budget.keeps(keep_for, clock::now());
        // Later calls do not begin it anew.
        tokio::time::advance(keep_for / 2).await;
        budget.keeps(keep_for, clock::now());
        assert!(budget.may_keep(clock::now()));
        assert_eq!(budget.leave_alone(round_trip, clock::now()), None);
        tokio::time::advance(keep_for / 2).await;
        let now = clock::now();
        assert!(!budget.may_keep(now));
        let pause = budget.leave_alone(round_trip, now);
        assert_eq!(pause, Some(Duration::from_micros(alone)));
        assert!(budget.may_keep(now), "then it begins anew");
    }
}

#[test]
fn a_key_that_is_wanted_is_left_alone_for_as_long_as_it_takes_to_ask() {
    let mut budget = HandoffBudget::default();
    let now = clock::now();
    budget.keeps(Duration::from_secs(60), now);
    budget.is_wanted(now);
    assert!(!budget.may_keep(now));
    assert_eq!(budget.leave_alone(Duration::ZERO, now), Some(PAUSE));
    // Where a stretch of hand-overs is over as well, there is one pause, not two.
    budget.is_wanted(now);
    budget.stand_back();
    assert_eq!(budget.leave_alone(Duration::ZERO, now), None);
    assert!(budget.pause(Duration::ZERO).is_some());
}

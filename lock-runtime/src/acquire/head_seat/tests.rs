//! Tests of how long a process stands back. Time is paused.

use std::time::Duration;

use super::*;
use crate::backend::quorum::tests::flaky::managers;
use crate::queue::Entered;
use crate::values::options::Options;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

/// Hears so many messages at these times after its beginning, and then nothing.
struct Told(Vec<(Instant, u64)>);

impl Told {
    fn after(times: &[(u32, u64)]) -> Option<Box<dyn Listen>> {
        let now = clock::tick();
        let told = times.iter().rev();
        Some(Box::new(Told(
            told.map(|(after, messages)| (now + MS * *after, *messages))
                .collect(),
        )))
    }
}

impl Listen for Told {
    fn heard(&mut self) -> Boxed<'_, u64> {
        Box::pin(async {
            let Some((at, _)) = self.0.last() else {
                return std::future::pending().await;
            };
            tokio::time::sleep_until(*at).await;
            self.0.pop().map_or(0, |(_, messages)| messages)
        })
    }
}

/// The pause of a process that stands back for 20 ms to 40 ms, if three others may have turns.
fn pause() -> Pause {
    Pause {
        since: clock::tick(),
        least: 20 * MS,
        most: 40 * MS,
        others: 3,
        releases: 3,
    }
}

/// A request that comes to the head, and waits for so long.
fn at_the_head(wait: Duration) -> (Attempt, Head) {
    let (locks, ..) = managers(Options::default());
    let (core, request) = locks.mutex("k").wait(wait).into_checked().unwrap();
    let attempt = Attempt::new(core, request);
    let Ok(Entered::Head(head)) = attempt.enter(clock::now()) else {
        panic!("nobody is there");
    };
    (attempt, head)
}

/// For how many milliseconds a process stands back, if the answer to its release came after 5 ms.
async fn stands_back(wait: Duration, listener: impl FnOnce() -> Option<Box<dyn Listen>>) -> u128 {
    let (attempt, head) = at_the_head(wait);
    let seat = HeadSeat::new(&attempt, head);
    let (listener, pause) = (listener(), pause());
    tokio::time::advance(5 * MS).await;
    seat.stand_back(pause, listener).await;
    pause.since.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn the_time_counts_from_the_release_if_the_process_hears_of_others() {
    assert_eq!(stands_back(LONG, || Told::after(&[])).await, 40);
    assert_eq!(stands_back(LONG, || None).await, 45);
}

#[tokio::test(start_paused = true)]
async fn the_turns_of_all_others_end_it_at_once_but_not_before_the_least_time() {
    // The first message is that of the process's own release.
    for (told, time) in [
        (&[(1, 1), (22, 1), (24, 1), (26, 1)][..], 26),
        (&[(1, 1), (6, 1), (7, 1), (8, 1)], 20),
        (&[(1, 1), (30, 2)], 40),
    ] {
        assert_eq!(
            stands_back(LONG, || Told::after(told)).await,
            time,
            "{told:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_come_together_count_each() {
    assert_eq!(
        stands_back(LONG, || Told::after(&[(3, 2), (21, 2)])).await,
        21
    );
    assert_eq!(stands_back(LONG, || Told::after(&[(4, 4)])).await, 20);
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_time_is_over_stands_back_no_longer() {
    for listener in [Told::after(&[]), None] {
        assert_eq!(stands_back(30 * MS, || listener).await, 30);
    }
}

#[tokio::test(start_paused = true)]
async fn who_hears_of_others_makes_no_long_pause() {
    let (attempt, head) = at_the_head(LONG);
    let seat = HeadSeat::new(&attempt, head);
    for others in [false, true] {
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let next_pause = |budget: &mut HandoffBudget| {
                budget.stand_back();
                budget.pause(Duration::ZERO)
            };
            let next = seat.head.as_ref().unwrap().budget(next_pause);
            longest = longest.max(next.flatten().unwrap().most);
            let told = Told::after(&[(1, 1 + u64::from(others))]);
            seat.stand_back(pause(), told).await;
        }
        assert_eq!(longest > 10 * MS, !others, "{longest:?}");
    }
}

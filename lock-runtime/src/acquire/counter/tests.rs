//! Tests of what the caller of a counter is told by a failing store, and what the others of its process are. Time is
//! paused.

use std::collections::VecDeque;
use std::pin::pin;

use tokio::time::{Instant, advance, timeout};

use super::*;
use crate::LockManager;
use crate::sync::Mutex;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

fn away() -> Fault {
    Fault::not_done("it is away")
}

fn silent() -> Fault {
    Fault::unknown("it is silent")
}

fn denied() -> Fault {
    Fault::denied("it refuses")
}

/// A store that answers as it is told, the last answer again and again.
struct Script<T> {
    answers: Mutex<VecDeque<Result<T, Fault>>>,
    /// The time that each question had.
    asked: Mutex<Vec<Duration>>,
}

impl<T: Clone + Send + 'static> Script<T> {
    fn of(answers: impl IntoIterator<Item = Result<T, Fault>>) -> Script<T> {
        Script {
            answers: Mutex::new(answers.into_iter().collect()),
            asked: Mutex::default(),
        }
    }

    fn ask(&self, timeout: Duration) -> Reply<'static, T> {
        self.asked.lock().push(timeout);
        let mut answers = self.answers.lock();
        let answer = match answers.len() {
            1 => answers.front().cloned(),
            _ => answers.pop_front(),
        };
        Box::pin(std::future::ready(answer.unwrap()))
    }

    fn asked(&self) -> usize {
        self.asked.lock().len()
    }
}

async fn counter(locks: &LockManager) -> Counter<'_> {
    let name = "k".into();
    Counter::new(locks.core(), &name, CounterKind::Latch)
        .await
        .unwrap()
}

/// A caller that waits in the local queue of the counter.
fn attempt(locks: &LockManager, wait: Option<Duration>) -> Attempt {
    let request = locks.semaphore("k").permits(1);
    let request = match wait {
        Some(wait) => request.wait(wait),
        None => request.wait_forever(),
    };
    let (core, request) = request.into_checked().unwrap();
    Attempt::new(core, request)
}

#[tokio::test(start_paused = true)]
async fn only_a_request_that_the_store_did_not_do_is_repeated() {
    let locks = LockManager::in_memory();
    let counter = counter(&locks).await;
    let script = Script::of([Err(away()), Err(away()), Ok(7)]);
    let answer = counter.once(|_, _, timeout| script.ask(timeout)).await;
    assert_eq!((answer.unwrap(), script.asked()), (7, 3));
    for (fault, says) in [
        (silent(), "unknown whether it was done: it is silent"),
        (denied(), "it refuses"),
    ] {
        let script = Script::of([Err(fault), Ok(7)]);
        let refused = counter.once(|_, _, timeout| script.ask(timeout)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
        assert_eq!(script.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_while_the_store_refuses_returns_the_refusal() {
    let locks = LockManager::in_memory();
    let counter = counter(&locks).await;
    let first = attempt(&locks, Some(5 * SECOND));
    let Some(front) = reach_front(&first).await.unwrap() else {
        panic!("nobody else is there");
    };
    let script = Script::of([Ok(false), Err(denied())]);
    let ask = |timeout| script.ask(timeout);
    let until = counter.until(&first, Some(&front), ask, Fault::is_passing);
    let behind = attempt(&locks, Some(5 * SECOND));
    let (refused, told) = tokio::join!(until, reach_front(&behind));
    for error in [refused.unwrap_err(), told.unwrap_err()] {
        assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
    }
    assert!(script.asked() > 5, "it went on asking");
}

#[tokio::test(start_paused = true)]
async fn a_request_not_done_is_repeated_until_the_call_timeout() {
    let locks = LockManager::in_memory();
    let counter = counter(&locks).await;
    let script = Script::<u64>::of([Err(away())]);
    let began = Instant::now();
    let refused = counter.once(|_, _, timeout| script.ask(timeout)).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, LockError::Unavailable { .. }));
    assert!(!refused.to_string().contains("unknown"), "{refused}");
    let longest = locks.core().options.call_timeout;
    let took = began.elapsed();
    // Timers round up to the next millisecond.
    assert!(
        took < longest + Duration::from_millis(1) && took > longest / 2,
        "{took:?}"
    );
    // The later a question is, the less time is left for its answer.
    let asked = script.asked.lock();
    assert_eq!(asked[0], longest);
    assert!(asked.is_sorted_by(|before, after| before > after));
    assert!(asked.last().is_some_and(|left| !left.is_zero()));
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_waits_asks_again_after_the_faults_that_it_bears() {
    let locks = LockManager::in_memory();
    let counter = counter(&locks).await;
    let attempt = attempt(&locks, Some(LONG));
    type Bears = fn(&Fault) -> bool;
    let bears: [(Fault, Bears, &str); 2] = [
        (denied(), Fault::is_passing, "it refuses"),
        (silent(), |_| false, "unknown whether it was done"),
    ];
    for (fault, bears, says) in bears {
        let script = Script::of([Err(fault), Ok(true)]);
        let ask = |timeout| script.ask(timeout);
        let refused = counter.until(&attempt, None, ask, bears).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
        assert_eq!(script.asked(), 1);
    }
    let script = Script::of([Err(away()), Err(silent()), Ok(false), Ok(true)]);
    let ask = |timeout| script.ask(timeout);
    let until = counter.until(&attempt, None, ask, Fault::is_passing);
    until.await.unwrap();
    assert_eq!(script.asked(), 4);
    // It has served this manager: what it refuses now may pass.
    for bears in [Fault::is_passing, Fault::is_passing_no_op] {
        let script = Script::of([Err(denied()), Err(denied()), Ok(true)]);
        let ask = |timeout| script.ask(timeout);
        let until = counter.until(&attempt, None, ask, bears);
        until.await.unwrap();
        assert_eq!(script.asked(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_late_for_the_wait_is_busy_and_not_unavailable() {
    let locks = LockManager::in_memory();
    let counter = counter(&locks).await;
    let attempt = attempt(&locks, Some(SECOND / 33));
    let closed = |timeout: Duration| -> Reply<'_, bool> {
        Box::pin(async move {
            let answer = clock::sleep(SECOND / 50);
            let answer = tokio::time::timeout(timeout, answer).await;
            answer.map_or_else(|_| Err(away()), |()| Ok(false))
        })
    };
    let until = counter.until(&attempt, None, closed, Fault::is_passing);
    let error = until.await.unwrap_err();
    assert!(error.is_busy(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_behind_the_front_gets_its_answer_after_its_wait() {
    let locks = LockManager::in_memory();
    let waiting = || attempt(&locks, Some(SECOND / 33));
    let (first, second) = (waiting(), waiting());
    let Some(front) = reach_front(&first).await.unwrap() else {
        panic!("nobody is before it");
    };
    let answers = async {
        clock::sleep(SECOND / 10).await;
        front.heard_from_store(None);
        clock::sleep(SECOND).await;
    };
    let (behind, ()) = tokio::join!(reach_front(&second), answers);
    let error = behind.expect_err("it was closed");
    assert!(error.is_busy(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_time_is_over_is_told_what_the_store_said_last() {
    let locks = LockManager::in_memory();
    let counter = counter(&locks).await;
    for answers in [[Ok(false), Err(silent())], [Err(away()), Ok(false)]] {
        let was_silent = answers[1].is_err();
        let script = Script::of(answers);
        let attempt = attempt(&locks, Some(5 * SECOND));
        let ask = |timeout| script.ask(timeout);
        let until = counter.until(&attempt, None, ask, Fault::is_passing);
        match until.await.unwrap_err() {
            LockError::Unavailable { source, .. } if was_silent => {
                assert!(source.to_string().contains("unknown"), "{source}");
            }
            LockError::Busy { waited, .. } if !was_silent => assert!(waited >= 5 * SECOND),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_caller_fails_with_the_last_answer_of_its_front() {
    let locks = LockManager::in_memory();
    let counter = counter(&locks).await;
    for answers in [
        [Ok(false), Err(away())],
        [Ok(false), Err(silent())],
        [Err(away()), Ok(false)],
    ] {
        let failed = answers[1].is_err();
        let script = Script::of(answers);
        let first = attempt(&locks, None);
        let Some(front) = reach_front(&first).await.unwrap() else {
            panic!("nobody else is there");
        };
        let ask = |timeout| script.ask(timeout);
        let until = counter.until(&first, Some(&front), ask, Fault::is_passing);
        let behind = attempt(&locks, Some(5 * SECOND));
        let told = tokio::select! {
            done = until => panic!("{done:?}"),
            told = reach_front(&behind) => told.unwrap_err(),
        };
        match told {
            LockError::Unavailable { .. } => assert!(failed),
            LockError::Busy { .. } => assert!(!failed),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reaching_the_front_too_late_is_busy_unless_the_wait_is_zero() {
    let locks = LockManager::in_memory();
    for (wait, has_its_turn) in [(SECOND, false), (2 * SECOND, true), (Duration::ZERO, true)] {
        let first = attempt(&locks, None);
        let front = reach_front(&first).await.unwrap();
        let attempt = attempt(&locks, Some(wait));
        let mut behind = pin!(reach_front(&attempt));
        assert!(timeout(Duration::ZERO, &mut behind).await.is_err());
        // It is not polled when its time ends, and has its turn by then.
        advance(SECOND).await;
        drop(front);
        match behind.await {
            Ok(Some(_)) => assert!(has_its_turn),
            Err(LockError::Busy { .. }) => assert!(!has_its_turn),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_closing_manager_sets_no_count_but_counts_down_and_releases() {
    let locks = LockManager::in_memory();
    let latch = locks.latch("l");
    assert!(latch.try_set_count(2).await.unwrap());
    let held = locks.mutex("held").acquire().await.unwrap();
    let closing = locks.clone();
    let shutdown = tokio::spawn(async move { closing.shutdown().await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let refused = latch.try_set_count(1).await.unwrap_err();
    assert!(matches!(refused, LockError::ShuttingDown { .. }));
    assert_eq!(latch.count_down().await.unwrap(), 1);
    held.release().await.unwrap();
    shutdown.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiters_are_counted_and_refused_beyond_the_cap() {
    let builder = LockManager::builder().max_waiters_per_key(1);
    let locks = builder.in_memory().unwrap();
    let latch = locks.latch("l");
    assert!(latch.try_set_count(1).await.unwrap());
    let first = tokio::spawn(latch.opened().wait_forever().into_future());
    tokio::time::sleep(SECOND).await;
    let refused = latch.opened().wait(SECOND).await.unwrap_err();
    assert!(matches!(refused, LockError::TooManyWaiters { .. }));
    latch.count_down().await.unwrap();
    first.await.unwrap().unwrap();
}

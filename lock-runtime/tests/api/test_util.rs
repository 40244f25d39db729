//! The store that a test controls, the assertions, and what a paused clock does to a connection.

use std::time::Duration;

use lock_runtime::test_util::{self, Answer};
use lock_runtime::{
    HealthState, LockError, LockManager, LockMode, LostReason, MemoryStore, TryAcquire,
};
use tokio::time::Instant;

const WAIT: Duration = Duration::from_secs(10);

const BUSY: Answer = Answer::Busy { retry_after: None };

/// Returns the message of a future's panic.
async fn panic_of<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> String {
    let failed = match tokio::spawn(future).await {
        Ok(_) => panic!("it did not panic"),
        Err(failed) => failed.into_panic(),
    };
    *failed.downcast::<String>().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_next_acquire_is_busy_for_as_long_as_it_waits() {
    let (locks, control) = test_util::in_memory();
    let retry_after = Some(Duration::from_secs(7));
    control.next_acquire(Answer::Busy { retry_after });
    let began = Instant::now();
    let error = locks.mutex("a").wait(WAIT).acquire().await.unwrap_err();
    assert!(
        matches!(error, LockError::Busy { waited, .. } if waited >= WAIT),
        "{error}"
    );
    assert_eq!(error.retry_after(), retry_after);
    assert!(began.elapsed() >= WAIT);
    assert_eq!(control.answers_left(), 0);
    // It was for one acquire alone.
    let guard = locks
        .mutex("a")
        .try_acquire()
        .await
        .unwrap()
        .expect("it is free");
    guard.release().await.unwrap();

    control.next_acquire(BUSY);
    assert!(matches!(
        locks.mutex("a").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(matches!(
        locks.mutex("a").try_acquire().await.unwrap(),
        TryAcquire::Acquired(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_lock_takes_the_answer_that_it_was_told() {
    let (locks, control) = test_util::in_memory();
    locks.semaphore("permits").try_set_permits(1).await.unwrap();
    let both = locks.multi([locks.mutex("x"), locks.mutex("y")]);
    for (answer, is_it) in [
        // The first one, for a refusal after another answer may pass.
        (
            Answer::Denied,
            (|error| matches!(error, LockError::Denied { .. })) as fn(&LockError) -> bool,
        ),
        (BUSY, is_busy),
        (Answer::Unavailable, |error| {
            matches!(error, LockError::Unavailable { .. })
        }),
    ] {
        for request in [
            locks.mutex("mutex"),
            locks.fenced("fenced"),
            locks.fair("fair"),
            locks.read("read"),
            locks.write("write"),
            locks.semaphore("permits").permits(1),
        ] {
            control.next_acquire(answer.clone());
            let error = request.wait(WAIT).acquire().await.unwrap_err();
            assert!(is_it(&error), "{answer:?}: {error}");
        }
        control.next_acquire(answer.clone());
        let error = both.clone().wait(WAIT).acquire().await.unwrap_err();
        assert!(is_it(&error), "{answer:?}: {error}");
        assert_eq!(control.answers_left(), 0);
    }
    both.acquire().await.unwrap().release().await.unwrap();
}

fn is_busy(error: &LockError) -> bool {
    error.is_busy()
}

#[tokio::test(start_paused = true)]
async fn answers_queue_up_and_those_with_a_name_are_for_that_lock() {
    let (locks, control) = test_util::in_memory();
    control.next_acquire_of("b", Answer::Denied);
    control.next_acquire(BUSY);
    control.next_acquire(Answer::Unavailable);
    let attempt = async |name: &str| locks.mutex(name).try_acquire().await;
    assert!(matches!(
        attempt("a").await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(matches!(
        attempt("a").await,
        Err(LockError::Unavailable { .. })
    ));
    assert!(matches!(
        attempt("a").await.unwrap(),
        TryAcquire::Acquired(_)
    ));
    assert_eq!(control.answers_left(), 1);
    assert!(matches!(attempt("b").await, Err(LockError::Denied { .. })));

    control.next_acquire(BUSY);
    control.forget_answers();
    assert!(matches!(
        attempt("c").await.unwrap(),
        TryAcquire::Acquired(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_wait_forever_lasts_until_the_answers_are_forgotten() {
    let (locks, control) = test_util::in_memory();
    control.next_acquire(BUSY);
    let waiter = tokio::spawn(locks.mutex("a").wait_forever().acquire());
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(!waiter.is_finished());
    control.forget_answers();
    assert!(waiter.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_delays_the_call_or_is_none_after_its_timeout() {
    let (locks, control) = test_util::in_memory();
    let began = Instant::now();
    control.next_acquire(Answer::Slow(Duration::from_millis(1_500)));
    let guard = locks.mutex("a").acquire().await.unwrap();
    assert_eq!(began.elapsed().as_millis(), 1_500);
    // The lease began when the request was sent.
    assert!(guard.remaining() <= Duration::from_millis(28_500));

    control.next_acquire(Answer::Slow(Duration::from_secs(5)));
    let refused = locks.mutex("b").try_acquire().await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));
    control.next_acquire(Answer::Slow(Duration::from_secs(5)));
    assert!(locks.mutex("c").acquire().await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_lost_now_and_for_the_reason_that_the_test_says() {
    for reason in [
        LostReason::Expired,
        LostReason::Refused,
        LostReason::ForceReleased,
        LostReason::MaxHold,
        LostReason::Shutdown,
    ] {
        let (locks, control) = test_util::in_memory();
        let guard = locks.mutex("a").acquire().await.unwrap();
        let other = locks.mutex("b").acquire().await.unwrap();
        control.lose("a", reason).await;
        assert!(!guard.is_held() && other.is_held());
        assert_eq!(guard.lost().wait().await, reason);
        match reason {
            LostReason::MaxHold | LostReason::Shutdown => drop(control.assert_held("a").await),
            _ => control.assert_free("a").await,
        }
        let released = guard.release().await;
        assert!(matches!(released, Err(LockError::Lost { reason: why, .. }) if why == reason));
        // The hold that the store still has is given back in the background.
        let next = locks.mutex("a").wait(WAIT).acquire().await.unwrap();
        next.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_dropped_when_the_test_loses_its_lock() {
    let (locks, control) = test_util::in_memory();
    let running = tokio::spawn(
        locks
            .write("a")
            .run(async |_| std::future::pending::<()>().await),
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    let seen = control.assert_held("a").await;
    assert_eq!(seen.mode, Some(LockMode::Write));
    control.lose("a", LostReason::Refused).await;
    let lost = running.await.unwrap();
    assert!(matches!(
        lost,
        Err(LockError::Lost {
            reason: LostReason::Refused,
            ..
        })
    ));
    control.assert_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn only_the_holds_of_the_controls_own_manager_are_lost() {
    let store = MemoryStore::new();
    let managed = || test_util::of(LockManager::builder().memory_store(&store)).unwrap();
    let ((locks, control), (others, _)) = (managed(), managed());
    let mine = [
        locks.read("a").acquire().await,
        locks.read("a").acquire().await,
    ];
    let others = others.read("a").acquire().await.unwrap();
    control.lose("a", LostReason::Expired).await;
    assert!(mine.iter().all(|guard| !guard.as_ref().unwrap().is_held()));
    assert_eq!(control.assert_held("a").await.readers, 1);
    assert!(others.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_holds_with_leases_and_acquires_with_waits() {
    let (locks, control) = test_util::in_memory();
    let guard = locks
        .mutex("a")
        .lease(Duration::from_secs(30))
        .acquire()
        .await
        .unwrap();
    control.go_away();
    let began = Instant::now();
    let refused = locks.mutex("b").wait(WAIT).acquire().await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));
    assert_eq!(began.elapsed().as_secs(), WAIT.as_secs());
    let looked = locks.inspect("a").await;
    assert!(matches!(looked, Err(LockError::Unavailable { .. })));
    let added = locks.plain_semaphore("c").try_set_permits(1).await;
    assert!(matches!(added, Err(LockError::Unavailable { .. })));
    assert!(guard.is_held());
    let lost = tokio::time::timeout(Duration::from_secs(31), guard.lost().wait()).await;
    assert_eq!(lost, Ok(LostReason::Expired));
    assert!(began.elapsed() < Duration::from_secs(31));
    drop(guard);
    control.come_back();
    assert!(locks.mutex("a").acquire().await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn the_health_shows_when_an_outage_began_and_ended() {
    let (locks, control) = test_util::in_memory();
    for _ in 0..2 {
        assert!(locks.health().await.is_ok());
        tokio::time::sleep(Duration::from_secs(60)).await;
        control.go_away();
        tokio::time::sleep(Duration::from_secs(8)).await;
        let down = locks.health().await;
        assert_eq!(down.state, HealthState::Down);
        // The wall clock is not paused: eight seconds ago by the clock of the test.
        let ago = down.since.elapsed().unwrap().as_secs();
        assert!((8..60).contains(&ago), "{ago}");
        assert!(down.error.unwrap().contains("away"));
        control.come_back();
        let up = locks.health().await;
        assert!(up.is_ok() && up.since > down.since, "{up:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_no_hold() {
    let (locks, control) = test_util::in_memory();
    let guard = locks.mutex("a").acquire().await.unwrap();
    control.go_away();
    let waiter = tokio::spawn(locks.mutex("b").wait(WAIT).acquire());
    tokio::time::sleep(Duration::from_secs(8)).await;
    control.come_back();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_told_nothing_about_works_as_in_any_memory_store() {
    let (locks, control) = test_util::in_memory();
    let mut guard = locks.write("rw").acquire().await.unwrap();
    guard.downgrade().await.unwrap();
    assert_eq!(control.assert_held("rw").await.mode, Some(LockMode::Read));
    guard.release().await.unwrap();
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            tokio::spawn(
                locks
                    .mutex("hot")
                    .run(async |lease| lease.fencing_token().unwrap()),
            )
        })
        .collect();
    let mut tokens = Vec::new();
    for waiter in waiters {
        tokens.push(waiter.await.unwrap().unwrap());
    }
    assert!(tokens.is_sorted());
    let latch = locks.latch("latch");
    assert!(latch.try_set_count(1).await.unwrap());
    let opened = tokio::spawn(latch.opened().wait(WAIT).into_future());
    latch.count_down().await.unwrap();
    opened.await.unwrap().unwrap();
    locks.shutdown().await;
    let refused = locks.mutex("hot").try_acquire().await;
    assert!(matches!(refused, Err(LockError::ShuttingDown { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_failed_assertion_names_the_holder_and_the_line_of_code() {
    let (locks, control) = test_util::in_memory();
    let free = panic_of(control.assert_held("a")).await;
    assert!(
        free.contains("lock `a` is free at ") && free.contains("test_util.rs:"),
        "{free}"
    );
    let nothing = panic_of(control.lose("a", LostReason::Expired)).await;
    assert!(
        nothing.contains("`a` is not held by this manager"),
        "{nothing}"
    );

    let _guard = locks.mutex("a").acquire().await.unwrap();
    let holder = control.assert_held("a").await.holder.unwrap().to_string();
    let held = panic_of(test_util::assert_free(&locks, "a")).await;
    for part in [
        "`a` is held in mode exclusive",
        &holder,
        "count 1",
        "30s left",
        "should be free",
    ] {
        assert!(held.contains(part), "{part}: {held}");
    }
    let _readers = [
        locks.read("r").acquire().await,
        locks.read("r").acquire().await,
    ];
    let read = panic_of(test_util::assert_free(&locks, "r")).await;
    assert!(
        read.contains("in mode read") && read.contains("readers 2"),
        "{read}"
    );
    control.go_away();
    let away = panic_of(control.assert_free("a")).await;
    assert!(away.contains("nobody can tell who holds `a`"), "{away}");
}

/// A server that takes connections and never answers.
#[cfg(feature = "redis")]
async fn connect_to_nobody(timeout: Duration) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let builder = LockManager::builder().call_timeout(timeout);
    let error = builder.connect(&url).await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    error.to_string()
}

#[cfg(feature = "redis")]
#[tokio::test(start_paused = true)]
async fn a_connect_that_a_paused_clock_has_ended_says_so() {
    let error = connect_to_nobody(Duration::from_secs(2)).await;
    assert!(error.contains("tokio's clock is paused"), "{error}");
    assert!(error.contains("LockManager::in_memory"), "{error}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_connect_that_no_server_has_answered_blames_no_clock() {
    let error = connect_to_nobody(Duration::from_millis(100)).await;
    assert!(!error.contains("paused"), "{error}");
}

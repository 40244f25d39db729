//! What the watchdog does when clocks part, and when questions cross. Time is paused.

use std::sync::Arc;
use std::time::Duration;

use super::{Outcome, Watch};
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::quorum::tests::flaky::{Bug, Flaky, Switch};
use crate::backend::{Granted, Renewed};
use crate::clock;
use crate::error::LostReason;
use crate::hold::Hold;
use crate::holder::HolderIds;
use crate::key::Key;
use crate::kind::Kind;
use crate::manager::{LockManager, events_of};
use crate::name::LockName;
use crate::options::{Options, Overrides, Terms};

const SECOND: Duration = Duration::from_secs(1);

fn terms(lease: Duration) -> Terms {
    let overrides = Overrides {
        lease: Some(lease),
        ..Overrides::default()
    };
    overrides.terms("a", &Options::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn after_a_suspension_a_hold_is_renewed_in_what_is_left_of_its_lease() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").lease(30 * SECOND).acquire().await.unwrap();
    tokio::time::sleep(SECOND).await;
    clock::suspend(24 * SECOND);
    // Noticed within a tick.
    tokio::time::sleep(2 * SECOND).await;
    assert!(guard.remaining() > 25 * SECOND, "{:?}", guard.remaining());
    tokio::time::sleep(300 * SECOND).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn after_a_suspension_the_end_of_a_fixed_lease_is_told_when_it_comes() {
    let locks = LockManager::in_memory();
    let request = locks.mutex("a").lease(30 * SECOND).auto_renew(false);
    let guard = request.acquire().await.unwrap();
    tokio::time::sleep(SECOND).await;
    clock::suspend(20 * SECOND);
    let began = tokio::time::Instant::now();
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    let told = began.elapsed();
    assert!(told > 8 * SECOND && told < 9 * SECOND, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_in_a_suspension_is_told_within_a_tick() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").lease(30 * SECOND).acquire().await.unwrap();
    clock::suspend(60 * SECOND);
    let began = tokio::time::Instant::now();
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    assert!(began.elapsed() <= 2 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn guards_elsewhere_are_told_that_the_runtime_which_renewed_them_is_gone() {
    let home = std::thread::spawn(|| {
        let home = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let guard = home.block_on(LockManager::in_memory().mutex("a").acquire());
        drop(home);
        guard.unwrap()
    });
    let guard = home.join().unwrap();
    let told = tokio::time::timeout(SECOND, guard.lost().wait()).await;
    assert_eq!(told.unwrap(), LostReason::Shutdown);
}

#[tokio::test(start_paused = true)]
async fn a_longer_lease_that_is_wanted_while_a_renewal_is_under_way_is_asked_for_at_once() {
    let key = Key::new("", &LockName::from("a"), Kind::Mutex).unwrap();
    let (sent_at, holder) = (clock::now(), HolderIds::new().fresh());
    let granted = Granted {
        token: None,
        sent_at,
    };
    let hold = Hold::new(Arc::new(key), None, holder, terms(SECOND), granted);
    let watch = Arc::new(Watch::default());
    let backend = MemoryBackend::new(MemoryStore::new(), events_of(&watch));
    watch.insert(&hold, sent_at);
    tokio::time::advance(SECOND / 3).await;
    let holds = watch.collect(&backend, false).remove(0);
    let outcome = Outcome {
        batch: vec![hold.renewal()],
        holds,
        answers: Ok(vec![Renewed::Held]),
        sent_at: clock::now(),
    };
    assert_eq!(
        hold.share(terms(60 * SECOND), Kind::Mutex).unwrap(),
        Some(true)
    );
    watch.look_now(&hold);
    watch.settle(&outcome);
    let next = watch.collect(&backend, false);
    assert_eq!(
        next.len(),
        1,
        "it is due now, not after a third of the new lease"
    );
    assert_eq!(next[0][0].renewal().term, Some(terms(60 * SECOND).term));
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_goes_on_after_a_panic_in_a_renewal_or_in_its_own_loop() {
    for bug in [Bug::InCall, Bug::InLoop] {
        let switch = Arc::new(Switch::default());
        let locks = LockManager::build(Options::default(), |events| {
            Arc::new(Flaky::new(&MemoryStore::new(), &switch, events, 0))
        });
        let renewed = locks.mutex("a").lease(3 * SECOND).acquire().await.unwrap();
        let request = locks.mutex("b").lease(3 * SECOND).auto_renew(false);
        let fixed = request.acquire().await.unwrap();
        *switch.bug.lock().unwrap() = Some(bug);
        assert_eq!(fixed.lost().wait().await, LostReason::Expired, "{bug:?}");
        assert_eq!(*switch.bug.lock().unwrap(), None, "it has panicked");
        tokio::time::sleep(10 * SECOND).await;
        assert!(renewed.is_held(), "{bug:?}");
    }
}

//! Tests of which guards are counted, and of what the last guard takes along. Time is paused.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::advance;

use super::*;
use crate::api::manager::LockManager;
use crate::backend::memory::MemoryStore;
use crate::backend::{Renewal, Renewed};
use crate::hold::Held;
use crate::hold::tests::{core, granted};
use crate::protect::Outcome;
use crate::values::error::LostReason;
use crate::values::holder::HolderIds;
use crate::values::key::Key;
use crate::values::name::LockName;
use crate::values::options::{Options, Overrides};
use crate::values::{Count, clock};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

fn options(lease: Duration, renewed: bool) -> HoldOptions {
    let overrides = Overrides {
        lease: Some(lease),
        ..Overrides::default()
    };
    let options = overrides.hold_options("k", &Options::default(), "test");
    HoldOptions {
        renewed,
        ..options.unwrap()
    }
}

fn hold(kind: Kind, renewed: bool) -> Hold {
    let key = Arc::new(Key::new("", &LockName::from("k"), kind).unwrap());
    let holder = HolderIds::new().fresh();
    granted(key, None, holder, &options(LEASE, renewed), clock::now())
}

fn leave_as(hold: &Hold, kind: Kind, renewed: bool) -> Left {
    let share = Share {
        kind,
        renewed,
        returns: false,
    };
    hold.leave(&core(&MemoryStore::new()), share, clock::now())
}

fn leave(hold: &Hold, kind: Kind) -> Left {
    leave_as(hold, kind, false)
}

fn renewal(hold: &Hold) -> Renewal {
    hold.tenure().due_renewal(clock::now()).expect("it is good")
}

/// Whether the next renewal extends the lease.
fn is_extended(hold: &Hold) -> bool {
    renewal(hold).ttl.is_some()
}

#[tokio::test(start_paused = true)]
async fn the_last_of_three_sharers_ends_the_hold() {
    let hold = hold(Kind::Mutex, false);
    for _ in 0..2 {
        let longer = hold.share(options(LEASE, false), Kind::Mutex).unwrap();
        assert_eq!(longer, Some(false));
    }
    assert!(matches!(leave(&hold, Kind::Mutex), Left::Shared));
    assert!(matches!(leave(&hold, Kind::Mutex), Left::Shared));
    assert!(hold.is_held() && !hold.is_left());
    assert!(matches!(
        leave(&hold, Kind::Mutex),
        Left::Last(_, Next::Release)
    ));
    assert!(!hold.is_held() && hold.is_left() && hold.loss().is_none());
    let late = hold.share(options(LEASE, false), Kind::Mutex).unwrap();
    assert_eq!(late, None, "it was released");
}

#[tokio::test(start_paused = true)]
async fn it_is_renewed_while_one_sharer_wants_that() {
    let hold = hold(Kind::Mutex, true);
    assert!(is_extended(&hold));
    hold.share(options(LEASE, true), Kind::Mutex).unwrap();
    hold.add_renewer();
    hold.share(options(LEASE, false), Kind::Mutex).unwrap();
    for (renewed, still) in [(true, true), (true, false)] {
        let _ = leave_as(&hold, Kind::Mutex, renewed);
        assert_eq!(is_extended(&hold), still);
    }
}

#[tokio::test(start_paused = true)]
async fn a_longer_lease_is_asked_for_once_and_a_shorter_one_never() {
    let hold = hold(Kind::Mutex, false);
    let shorter = hold.share(options(LEASE / 2, false), Kind::Mutex).unwrap();
    assert_eq!(
        (shorter, hold.tenure().ttl().duration()),
        (Some(false), LEASE)
    );
    assert!(!is_extended(&hold));
    let longer = hold.share(options(2 * LEASE, false), Kind::Mutex).unwrap();
    assert_eq!(
        (longer, hold.tenure().ttl().duration()),
        (Some(true), 2 * LEASE)
    );
    assert!(hold.tenure().is_to_be_lengthened());
    let asked = renewal(&hold);
    hold.tenure()
        .answered(&asked, Renewed::Unknown, clock::now());
    assert!(is_extended(&hold), "it is not known to have happened");
    hold.tenure().answered(&asked, Renewed::Held, clock::now());
    assert!(!is_extended(&hold) && !hold.tenure().is_to_be_lengthened());
    assert!(hold.remaining() > LEASE);
}

#[tokio::test(start_paused = true)]
async fn a_sharer_that_wants_renewal_after_a_mere_check_finds_it_due() {
    for is_checked in [false, true] {
        let hold = hold(Kind::Mutex, false);
        hold.share(options(LEASE, true), Kind::Mutex).unwrap();
        if is_checked {
            assert!(!is_extended(&hold));
        }
        assert_eq!(hold.add_renewer(), is_checked);
        assert_eq!(hold.tenure().is_to_be_lengthened(), is_checked);
        assert!(!hold.add_renewer(), "the first one has asked");
        // The answer to the check does not count as one to the request that follows.
        let check = hold.tenure().renewal(None);
        hold.tenure().answered(&check, Renewed::Held, clock::now());
        assert!(is_extended(&hold));
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_writer_leaves_the_hold_to_the_readers() {
    let hold = hold(Kind::Write, false);
    hold.share(options(LEASE, false), Kind::Write).unwrap();
    hold.share(options(LEASE, false), Kind::Read).unwrap();
    assert!(matches!(leave(&hold, Kind::Write), Left::Shared));
    assert_eq!(hold.key().kind(), Kind::Write);
    assert!(matches!(leave(&hold, Kind::Write), Left::Reading(_)));
    assert_eq!(hold.key().kind(), Kind::Read);
    let write = hold.share(options(LEASE, false), Kind::Write).unwrap();
    assert_eq!(write, None, "nobody writes any more");
    let read = hold.share(options(LEASE, false), Kind::Read).unwrap();
    assert_eq!(read, Some(false));
    assert!(matches!(leave(&hold, Kind::Read), Left::Shared));
    assert!(matches!(
        leave(&hold, Kind::Read),
        Left::Last(_, Next::Release)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_first_changes_nothing() {
    let hold = hold(Kind::Write, false);
    hold.share(options(LEASE, false), Kind::Read).unwrap();
    assert!(matches!(leave(&hold, Kind::Read), Left::Shared));
    assert_eq!(hold.key().kind(), Kind::Write);
    assert!(matches!(
        leave(&hold, Kind::Write),
        Left::Last(_, Next::Release)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_stops_to_write_goes_on_as_a_reader() {
    let hold = hold(Kind::Write, false);
    hold.share(options(LEASE, false), Kind::Write).unwrap();
    assert!(matches!(hold.stop_writing().unwrap(), Left::Shared));
    assert!(matches!(hold.stop_writing().unwrap(), Left::Reading(_)));
    assert_eq!(hold.key().kind(), Kind::Read);
    assert!(matches!(leave(&hold, Kind::Read), Left::Shared));
    assert!(matches!(
        leave(&hold, Kind::Read),
        Left::Last(_, Next::Release)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_shared_no_more_until_all_have_left() {
    let hold = hold(Kind::Mutex, false);
    hold.share(options(LEASE, false), Kind::Mutex).unwrap();
    advance(LEASE).await;
    let refused = hold.share(options(LEASE, false), Kind::Mutex);
    assert!(
        matches!(
            refused,
            Err(LockError::Lost {
                held_for: LEASE,
                ..
            })
        ),
        "{refused:?}"
    );
    assert!(matches!(hold.check(), Err(LockError::Lost { .. })));
    for is_last in [false, true] {
        let left = leave(&hold, Kind::Mutex);
        assert!(
            matches!(left, Left::Lost { loss, last } if loss.reason == LostReason::Expired && last == is_last)
        );
    }
    assert_eq!(
        hold.share(options(LEASE, false), Kind::Mutex).unwrap(),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn an_offer_whose_lease_is_over_is_nobodys_loss() {
    let offers = Arc::<Count>::default();
    for in_time in [true, false] {
        let hold = hold(Kind::Mutex, false);
        hold.offer(offers.enter()).unwrap();
        advance(if in_time { SECOND } else { LEASE }).await;
        assert_eq!(hold.claim().is_some(), in_time);
        let lost = hold.tenure().lost_turn().map(|loss| loss.claimed);
        assert_eq!(lost, (!in_time).then_some(false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_stays_taken_until_the_latest_that_a_sharer_asked_for() {
    let hold = hold(Kind::Mutex, false);
    hold.share(options(LEASE, false), Kind::Mutex).unwrap();
    let (early, late) = (clock::now() + SECOND, clock::now() + 2 * SECOND);
    for until in [late, early] {
        hold.with_turn(|turn| turn.cover_until(until));
    }
    let _ = leave(&hold, Kind::Mutex);
    let left = leave(&hold, Kind::Mutex);
    let Left::Last(turn, Next::Release) = left else {
        panic!("others share it");
    };
    let until = turn.covered_until(clock::now()).expect("it is kept");
    assert_eq!(until.remaining(), 2 * SECOND);
    assert!(!hold.tenure().undoes());
    advance(2 * SECOND).await;
    assert!(hold.tenure().undoes());
}

#[tokio::test(start_paused = true)]
async fn every_end_of_a_hold_notifies_waiters_and_guards() {
    for is_lost in [true, false] {
        let hold = hold(Kind::Mutex, false);
        let (group, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        hold.also_tell(&gone);
        drop(gone);
        hold.also_tell(&group);
        let told = group.clone().notified_owned();
        let over = tokio::spawn(Held::One(hold.clone()).over());
        tokio::task::yield_now().await;
        if is_lost {
            hold.tenure().lose(LostReason::Refused);
        } else {
            let _ = leave(&hold, Kind::Mutex);
        }
        told.await;
        over.await.unwrap();
        assert!(!hold.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_notifies_all_guards_that_hold_several_locks() {
    let hold = hold(Kind::Mutex, false);
    let told: Vec<Arc<Notify>> = (0..3).map(|_| Arc::default()).collect();
    for over in &told {
        hold.also_tell(over);
    }
    let mut heard: Vec<_> = told.iter().map(|over| Box::pin(over.notified())).collect();
    for over in &mut heard {
        over.as_mut().enable();
    }
    hold.tenure().lose(LostReason::Refused);
    for over in heard {
        let heard = tokio::time::timeout(SECOND, over).await;
        assert!(heard.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_counts_from_its_grant() {
    let (before, hold) = (clock::now(), hold(Kind::Mutex, false));
    advance(SECOND).await;
    let granted_at = hold.with_turn(|turn| turn.granted_at).unwrap();
    assert!(granted_at.elapsed() >= SECOND);
    assert!(granted_at.since(before) < SECOND);
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread may take an idle lock before the end of the turn before was told.
#[tokio::test(start_paused = true)]
async fn a_late_signal_of_the_turn_before_hides_no_loss_from_a_body() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("k").acquire().await.unwrap();
    let hold = locks.core().watch.holds().pop().unwrap();
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let mut body = pin!(guard.protect(pending::<()>()));
    assert!(body.as_mut().poll(&mut cx).is_pending());
    hold.tenure().tell(&[]);
    assert!(body.as_mut().poll(&mut cx).is_pending());
    woken.0.store(false, Ordering::Relaxed);
    hold.tenure().lose(LostReason::ForceReleased);
    assert!(woken.0.load(Ordering::Relaxed));
    assert!(matches!(body.await, Outcome::Cancelled { .. }));
}

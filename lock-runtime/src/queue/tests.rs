use super::*;
use crate::values::clock;
use crate::values::name::LockName;
use crate::values::options::{Options, Overrides};

pub(super) const SILENCE: Duration = Duration::from_secs(5);

pub(super) fn hold_options() -> HoldOptions {
    let options = Options::default();
    Overrides::default()
        .hold_options("k", &options, "test")
        .unwrap()
}

pub(super) fn waiter(queues: &Arc<LocalQueues>, key: &Arc<Key>) -> Waiter {
    match queues
        .enter(key, hold_options(), clock::now(), None, true)
        .unwrap()
    {
        Entered::Queued(waiter) => waiter,
        _ => panic!("nobody was there"),
    }
}

#[tokio::test]
async fn a_waiter_behind_an_admitted_front_waits_for_the_next_answer() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Key::new("", &LockName::from("k"), Kind::Semaphore).unwrap();
    let key = Arc::new(key);
    let front = queues.try_enter(&key, |_| false).unwrap();
    let (mut second, third) = (waiter(&queues, &key), waiter(&queues, &key));
    assert!(third.first_news().is_some(), "the front still asks");
    front.heard_from_store(None);
    assert!(
        third.first_news().is_none(),
        "the front has to wait: so has everybody"
    );
    // It is admitted after all, and the next one asks. That one's answer may be another.
    drop(front);
    assert!(matches!(second.ticket().await, Some(Ticket::Front(_))));
    assert!(third.first_news().is_some());
}

#[tokio::test]
async fn only_those_who_waited_at_the_mark_are_let_go() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Key::new("", &LockName::from("k"), Kind::Semaphore).unwrap();
    let key = Arc::new(key);
    let front = queues.try_enter(&key, |_| false).unwrap();
    let mut before = waiter(&queues, &key);
    let mark = front.so_far();
    let (mut after, _last) = (waiter(&queues, &key), waiter(&queues, &key));
    front.let_go(mark);
    assert!(matches!(before.ticket().await, Some(Ticket::Go)));
    let ticket = after.ticket().await;
    assert!(matches!(ticket, Some(Ticket::Front(_))), "{ticket:?}");
    assert_eq!(queues.waiters(&key), 2, "the new front still waits");
}

#[tokio::test]
async fn a_front_silent_between_two_looks_is_passed_over() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
    let front = queues.try_enter(&key, |_| false).unwrap();
    let (mut second, mut third) = (waiter(&queues, &key), waiter(&queues, &key));
    let now = clock::now();
    third.look_at_front(now);
    front.heard_from_store(None);
    third.look_at_front(now + SILENCE);
    third.look_at_front(now + SILENCE * 3 / 2);
    assert_eq!(queues.waiters(&key), 2, "it was heard of in between");
    third.look_at_front(now + SILENCE * 2);
    let Some(Ticket::Front(next)) = second.ticket().await else {
        panic!("the first in the queue comes next");
    };
    // Nothing that the previous one does now has an effect.
    front.heard_from_store(Some(&Fault::not_done("late")));
    drop(front);
    assert!(next.fault().is_none() && queues.is_open(&key));
    drop(next);
    assert!(matches!(third.ticket().await, Some(Ticket::Front(_))));
    assert!(!queues.is_open(&key));
}

#[tokio::test]
async fn impatient_callers_pass_a_silent_front_together() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
    let silent = queues.try_enter(&key, |_| false).unwrap();
    let began = clock::now();
    let tries = |after| {
        let now = began + after;
        queues.enter(&key, hold_options(), now, Some(now), false)
    };
    for tenth in 0..10 {
        let tried = tries(SILENCE * tenth / 10).unwrap();
        assert!(matches!(tried, Entered::Behind), "tenth {tenth}");
    }
    let Ok(Entered::Front(front)) = tries(SILENCE) else {
        panic!("nothing is heard of the caller at the front");
    };
    drop(silent);
    assert!(queues.is_open(&key), "its front counts no more");
    drop(front);
    // A caller that waits comes before one that only tries.
    let _silent = queues.try_enter(&key, |_| false).unwrap();
    let mut waiter = waiter(&queues, &key);
    assert!(matches!(tries(SILENCE * 3).unwrap(), Entered::Behind));
    assert!(matches!(waiter.ticket().await, Some(Ticket::Front(_))));
}

#[tokio::test]
async fn a_hold_is_not_passed_over() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
    let front = queues.try_enter(&key, |_| false).unwrap();
    front.now_held_by("k");
    let mut next = waiter(&queues, &key);
    let later = |looks| clock::now() + SILENCE * looks;
    for look in 1..4 {
        next.look_at_front(later(look));
    }
    assert_eq!(queues.waiters(&key), 1);
    // Its release may be in the hands of a caller, and has only begun at the next look.
    queues.lock(&key).change_at(&front, KeyState::held_no_more);
    next.look_at_front(later(4));
    assert_eq!(queues.waiters(&key), 1);
    next.look_at_front(later(6));
    assert!(matches!(next.ticket().await, Some(Ticket::Front(_))));
    drop(front);
}

#[tokio::test]
async fn a_caller_at_the_front_that_waits_counts_towards_the_caps() {
    let queues = LocalQueues::new(2, 3, SILENCE);
    let keys = ["a", "b"].map(|name| Key::new("", &LockName::from(name), Kind::Mutex).unwrap());
    let [a, b] = keys.map(Arc::new);
    let (front, other) = (
        queues.try_enter(&a, |_| false).unwrap(),
        queues.try_enter(&b, |_| false).unwrap(),
    );
    assert_eq!(queues.waiters(&a), 0, "it only asks");
    let first = waiter(&queues, &a);
    front.count_as_waiting().unwrap();
    front.count_as_waiting().unwrap();
    assert_eq!(queues.waiters(&a), 2, "once");
    let refused = queues
        .enter(&a, hold_options(), clock::now(), None, true)
        .err();
    let refused = refused.expect("two wait, and no more may");
    assert!(matches!(
        refused,
        LockError::TooManyWaiters { limit: 2, .. }
    ));
    // The one that comes to the front goes on waiting, no matter who came meanwhile.
    drop(front);
    assert_eq!(queues.waiters(&a), 1);
    let (_second, _third) = (waiter(&queues, &a), waiter(&queues, &b));
    let refused = other.count_as_waiting().expect_err("three wait in all");
    assert!(matches!(
        refused,
        LockError::TooManyWaiters { limit: 3, .. }
    ));
    drop(first);
    assert_eq!((queues.waiters(&a), queues.waiters(&b)), (1, 1));
    other.count_as_waiting().unwrap();
    other.now_held_by("b");
    assert_eq!(queues.waiters(&b), 1, "it holds the lock");
}

#[tokio::test]
async fn what_the_front_hears_of_a_fault_is_what_its_waiters_tell() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
    let front = queues.try_enter(&key, |_| false).unwrap();
    let second = waiter(&queues, &key);
    assert!(front.fault().is_none() && second.fault().is_none());
    front.heard_from_store(Some(&Fault::not_done("away")));
    for fault in [front.fault(), second.fault()] {
        assert_eq!(fault.unwrap().to_string(), "away");
    }
    front.heard_from_store(None);
    assert!(front.fault().is_none() && second.fault().is_none());
}

#[tokio::test]
async fn waiters_are_counted_until_they_leave_go_or_are_sent_away() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Read).unwrap());
    let front = queues.try_enter(&key, |_| false).unwrap();
    assert!(queues.waited_for().is_empty(), "nobody waits");
    let (mut second, third) = (waiter(&queues, &key), waiter(&queues, &key));
    assert_eq!(queues.waited_for(), [(key.clone(), 2)]);
    drop(third);
    assert_eq!(queues.waiting(), 1);
    front.let_all_go();
    assert!(matches!(second.ticket().await, Some(Ticket::Go)));
    assert_eq!(queues.waiting(), 0);

    let _front = queues.try_enter(&key, |_| false).unwrap();
    let (mut second, _third) = (waiter(&queues, &key), waiter(&queues, &key));
    assert_eq!(queues.waiting(), 2);
    queues.close();
    assert!(second.ticket().await.is_none(), "it is sent away");
    assert_eq!(queues.waiting(), 0);
}

#[tokio::test]
async fn a_successor_that_is_only_given_the_turn_waits_on() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
    let front = queues.try_enter(&key, |_| false).unwrap();
    let mut second = waiter(&queues, &key);
    let successor = front.successor().unwrap();
    assert_eq!(queues.waiting(), 0);
    assert!(successor.give(Ticket::Front(front)).is_none());
    assert_eq!(queues.waiting(), 1, "it has the front, and no hold yet");
    let Some(Ticket::Front(front)) = second.ticket().await else {
        panic!("it was given the front");
    };
    front.now_held_by("test");
    assert_eq!(queues.waiting(), 0);
}

#[tokio::test]
async fn only_the_first_who_asks_is_told_which_hold_blocks_the_queue() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
    let front = queues.try_enter(&key, |_| false).unwrap();
    let mut before = waiter(&queues, &key);
    front.now_held_by("holder");
    let (second, third) = (waiter(&queues, &key), waiter(&queues, &key));
    assert_eq!(before.blocked_by(), None, "this hold came later");
    assert_eq!(second.blocked_by(), Some("holder"));
    assert_eq!(third.blocked_by(), None, "it was told already");
    front.now_held_by("the next one");
    assert_eq!(
        third.blocked_by(),
        None,
        "locks that change hands block nobody"
    );
    before.look_at_front(clock::now());
    assert_eq!(before.blocked_by(), Some("the next one"));
}

#[tokio::test]
async fn a_place_in_the_stores_queue_is_known_while_it_lasts() {
    let queues = LocalQueues::new(10, 10, SILENCE);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Fair).unwrap());
    assert!(queues.store_queue_is_empty(&key));
    let place = queues.join_store_queue(&key).unwrap();
    assert!(!queues.store_queue_is_empty(&key));
    assert_eq!(queues.waited_for(), [(key.clone(), 1)]);
    drop(place);
    assert!(queues.store_queue_is_empty(&key));
}

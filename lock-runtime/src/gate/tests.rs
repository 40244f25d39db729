use super::*;
use crate::name::LockName;
use crate::options::{Options, Overrides};

pub(super) fn terms() -> Terms {
    let options = Options::default();
    Overrides::default().terms("k", &options).unwrap()
}

pub(super) fn ticket(gates: &Arc<Gates>, key: &Arc<Key>) -> Ticket {
    match gates.enter(key, terms()).unwrap() {
        Entry::Queued(ticket) => ticket,
        Entry::Head(_) => panic!("nobody was there"),
    }
}

#[tokio::test]
async fn whoever_follows_an_admitted_head_waits_for_what_the_next_one_is_told() {
    let gates = Gates::new(10, 10);
    let key = Key::new("", &LockName::from("k"), Kind::Permits).unwrap();
    let key = Arc::new(key);
    let place = gates.try_enter(&key).unwrap();
    let (mut second, third) = (ticket(&gates, &key), ticket(&gates, &key));
    assert!(third.first_news().is_some(), "the head still asks");
    place.heard_from_store(None);
    assert!(
        third.first_news().is_none(),
        "the head has to wait: so has everybody"
    );
    // It is admitted after all, and the next one asks. That one's answer may be another.
    drop(place);
    assert!(matches!(second.turn().await, Some(Turn::Head(_))));
    assert!(third.first_news().is_some());
}

#[tokio::test]
async fn only_those_who_waited_at_the_mark_are_let_go() {
    let gates = Gates::new(10, 10);
    let key = Key::new("", &LockName::from("k"), Kind::Permits).unwrap();
    let key = Arc::new(key);
    let place = gates.try_enter(&key).unwrap();
    let mut before = ticket(&gates, &key);
    let mark = place.so_far();
    let (mut after, _last) = (ticket(&gates, &key), ticket(&gates, &key));
    place.admit_those(mark);
    assert!(matches!(before.turn().await, Some(Turn::Go)));
    let turn = after.turn().await;
    assert!(matches!(turn, Some(Turn::Head(_))), "{turn:?}");
    assert_eq!(gates.waiters(&key), 2, "the new head still waits");
}

#[tokio::test]
async fn a_caller_at_the_head_that_is_not_heard_of_between_two_looks_is_passed_over() {
    let gates = Gates::new(10, 10);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
    let place = gates.try_enter(&key).unwrap();
    let (mut second, mut third) = (ticket(&gates, &key), ticket(&gates, &key));
    third.look_at_head();
    place.heard_from_store(None);
    third.look_at_head();
    assert_eq!(gates.waiters(&key), 2, "it was heard of in between");
    third.look_at_head();
    let Some(Turn::Head(next)) = second.turn().await else {
        panic!("the first in the queue comes next");
    };
    // What the one before does now means nothing.
    place.heard_from_store(Some(&StoreError::new("late")));
    drop(place);
    assert!(next.fault().is_none() && gates.is_open(&key));
    drop(next);
    assert!(matches!(third.turn().await, Some(Turn::Head(_))));
    assert!(!gates.is_open(&key));
}

#[tokio::test]
async fn a_hold_is_not_passed_over() {
    let gates = Gates::new(10, 10);
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
    let place = gates.try_enter(&key).unwrap();
    place.now_held_by("k");
    let mut next = ticket(&gates, &key);
    for _ in 0..3 {
        next.look_at_head();
    }
    assert_eq!(gates.waiters(&key), 1);
    // Its release may be in the hands of a caller.
    place.held_no_more();
    next.look_at_head();
    assert!(matches!(next.turn().await, Some(Turn::Head(_))));
    drop(place);
}

#[tokio::test]
async fn a_caller_at_the_head_that_waits_counts_towards_the_caps() {
    let gates = Gates::new(2, 3);
    let keys = ["a", "b"].map(|name| Key::new("", &LockName::from(name), Kind::Mutex).unwrap());
    let [a, b] = keys.map(Arc::new);
    let (head, other) = (gates.try_enter(&a).unwrap(), gates.try_enter(&b).unwrap());
    assert_eq!(gates.waiters(&a), 0, "it only asks");
    let first = ticket(&gates, &a);
    head.waits().unwrap();
    head.waits().unwrap();
    assert_eq!(gates.waiters(&a), 2, "once");
    let refused = gates.enter(&a, terms()).err();
    let refused = refused.expect("two wait, and no more may");
    assert!(matches!(
        refused,
        LockError::TooManyWaiters { limit: 2, .. }
    ));
    // The one that comes to the head goes on waiting, whoever came meanwhile.
    drop(head);
    assert_eq!(gates.waiters(&a), 1);
    let (_second, _third) = (ticket(&gates, &a), ticket(&gates, &b));
    let refused = other.waits().expect_err("three wait in all");
    assert!(matches!(
        refused,
        LockError::TooManyWaiters { limit: 3, .. }
    ));
    drop(first);
    assert_eq!((gates.waiters(&a), gates.waiters(&b)), (1, 1));
    other.waits().unwrap();
    other.now_held_by("b");
    assert_eq!(gates.waiters(&b), 1, "it holds the lock");
}

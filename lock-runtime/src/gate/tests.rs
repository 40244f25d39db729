use super::*;
use crate::name::LockName;
use crate::options::{Options, Overrides};

fn ticket(gates: &Arc<Gates>, key: &Arc<Key>) -> Ticket {
    let terms = Overrides::default()
        .terms("k", &Options::default())
        .unwrap();
    match gates.enter(key, terms).unwrap() {
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
    assert_eq!(gates.waiters(&key), 1);
}

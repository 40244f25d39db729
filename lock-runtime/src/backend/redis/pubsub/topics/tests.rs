use super::*;
use crate::backend::kit::topic::tests::{wake_by, without_a_deadlock};
use tokio_test_shim::is_pending;

/// Polls a future once.
mod tokio_test_shim {
    use std::pin::pin;
    use std::task::{Context, Waker};

    pub(crate) fn is_pending(future: impl Future) -> bool {
        pin!(future)
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    }
}

fn open(topics: &Arc<Topics>) {
    for channel in topics.take_fresh() {
        topics.opened(&channel);
    }
}

#[tokio::test]
async fn a_message_between_two_looks_is_received_once() {
    let topics = Arc::new(Topics::default());
    let mut listener = topics.listen("c".to_owned());
    assert!(is_pending(listener.ready()));
    open(&topics);
    assert!(!is_pending(listener.ready()));
    assert!(is_pending(listener.heard()));
    topics.count_message("c");
    topics.count_message("c");
    assert!(!is_pending(listener.heard()));
    assert!(is_pending(listener.heard()), "two messages are one hint");
    topics.count_message("other");
    assert!(is_pending(listener.heard()));
    let mut second = topics.listen("c".to_owned());
    assert!(is_pending(second.heard()), "what came before is not news");
    assert!(!is_pending(second.ready()));
}

#[tokio::test]
async fn a_renewed_subscription_wakes_all_listeners() {
    let topics = Arc::new(Topics::default());
    let mut listener = topics.listen("c".to_owned());
    open(&topics);
    topics.unreachable();
    assert!(
        !is_pending(listener.ready()),
        "no listener waits for a connection"
    );
    let mut second = topics.listen("d".to_owned());
    assert!(!is_pending(second.ready()));
    let fresh = topics.take_fresh();
    assert_eq!(fresh.concat(), "d");
    topics.opened("c");
    topics.opened("d");
    listener.heard().await;
    second.heard().await;
    assert!(topics.is_open("c"));
}

#[tokio::test]
async fn a_channel_that_two_servers_confirm_wakes_its_listeners_twice() {
    let topics = Arc::new(Topics::default());
    let mut listener = topics.listen("c".to_owned());
    // Its slot moves while it is being subscribed to.
    topics.not_subscribed("c");
    for _ in 0..2 {
        topics.opened("c");
        assert!(!is_pending(listener.heard()));
    }
}

#[tokio::test]
async fn a_refused_channel_keeps_nobody_waiting() {
    let topics = Arc::new(Topics::default());
    let mut listener = topics.listen("c".to_owned());
    topics.not_subscribed("c");
    assert!(!is_pending(listener.ready()));
    assert!(is_pending(listener.heard()));
    assert!(!topics.is_open("c"));
}

#[tokio::test(start_paused = true)]
async fn a_channel_lingers_and_churn_adds_no_work() {
    let topics = Arc::new(Topics::default());
    for _ in 0..100 {
        drop(topics.listen("c".to_owned()));
    }
    assert_eq!(topics.take_fresh().len(), 1);
    let (ended, next) = topics.take_idle();
    assert!(ended.is_empty() && next.is_some());
    tokio::time::advance(LINGER / 2).await;
    drop(topics.listen("c".to_owned()));
    tokio::time::advance(LINGER / 2).await;
    assert!(topics.take_idle().0.is_empty(), "used a second ago");
    let listener = topics.listen("c".to_owned());
    tokio::time::advance(LINGER * 2).await;
    let (ended, next) = topics.take_idle();
    assert!(ended.is_empty() && next.is_none(), "in use");
    drop(listener);
    tokio::time::advance(LINGER * 2).await;
    assert!(!topics.is_empty());
    assert_eq!(topics.take_idle().0.concat(), "c");
    assert!(topics.is_empty() && topics.table.lock().topics.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_channel_dropped_before_it_was_taken_is_not_subscribed() {
    let topics = Arc::new(Topics::default());
    drop(topics.listen("c".to_owned()));
    tokio::time::advance(LINGER * 2).await;
    let (ended, _) = topics.take_idle();
    assert!(ended.is_empty() && topics.take_fresh().is_empty());
    let _listener = topics.listen("c".to_owned());
    assert_eq!(topics.take_fresh().concat(), "c");
}

#[test]
fn a_waker_may_drop_a_listener_at_once() {
    without_a_deadlock(|| {
        let topics = Arc::new(Topics::default());
        let raises: [fn(&Topics); 2] = [|topics| topics.count_message("c"), Topics::unreachable];
        for raise in raises {
            let [mut listener, other] = [(); 2].map(|()| topics.listen("c".to_owned()));
            wake_by(
                &mut listener,
                || drop(other),
                || {
                    raise(&topics);
                    assert_eq!(topics.table.lock().topics["c"].listeners, 1);
                },
            );
        }
    });
}

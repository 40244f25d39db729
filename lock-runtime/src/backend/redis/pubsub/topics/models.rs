//! Models of the topics. In whatever order callers, the subscriber and the connection get the lock, no message is
//! missed and no listener is left without its channel. A model that waits for ever is a failure.

use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::thread;

use super::{LINGER, Topics};
use crate::backend::Listen;
use crate::values::clock;

/// Acts as the subscriber: subscribes to the channels that were asked for.
fn subscribes(topics: &Arc<Topics>) {
    for channel in topics.take_fresh() {
        topics.opened(&channel);
    }
}

#[test]
fn a_message_on_an_open_channel_is_received() {
    crate::sync::explore(
        || {
            let topics = Arc::new(Topics::default());
            let mut listener = topics.listen("c".to_owned());
            let connection = {
                let topics = topics.clone();
                thread::spawn(move || {
                    subscribes(&topics);
                    topics.count_message("c");
                })
            };
            let other = {
                let topics = topics.clone();
                thread::spawn(move || drop(topics.listen("c".to_owned())))
            };
            block_on(listener.ready());
            block_on(listener.heard());
            connection.join().unwrap();
            other.join().unwrap();
        },
        1_000,
    );
}

#[test]
fn a_renewed_subscription_makes_up_for_missed_messages() {
    crate::sync::explore(
        || {
            let topics = Arc::new(Topics::default());
            let mut listener = topics.listen("c".to_owned());
            subscribes(&topics);
            let connection = {
                let topics = topics.clone();
                thread::spawn(move || {
                    topics.not_subscribed("c");
                    // A message that is published now reaches no listener.
                    topics.opened("c");
                })
            };
            let comes = {
                let topics = topics.clone();
                thread::spawn(move || topics.listen("d".to_owned()))
            };
            block_on(listener.ready());
            block_on(listener.heard());
            connection.join().unwrap();
            let mut late = comes.join().unwrap();
            subscribes(&topics);
            block_on(late.ready());
            assert!(topics.is_open("c") && topics.is_open("d"));
        },
        1_000,
    );
}

#[test]
fn a_listener_of_a_closing_channel_reopens_it() {
    crate::sync::explore(
        || {
            let topics = Arc::new(Topics::default());
            let first = topics.listen("c".to_owned());
            subscribes(&topics);
            drop(first);
            clock::suspend(LINGER);
            let comes = {
                let topics = topics.clone();
                thread::spawn(move || topics.listen("c".to_owned()))
            };
            let goes = {
                let topics = topics.clone();
                thread::spawn(move || drop(topics.listen("c".to_owned())))
            };
            // The end of the old subscription is sent before the new one.
            let (ended, _) = topics.take_idle();
            let mut listener = comes.join().unwrap();
            goes.join().unwrap();
            let fresh = topics.take_fresh();
            if !ended.is_empty() {
                assert_eq!(
                    fresh.concat(),
                    "c",
                    "it listens to a channel that is closed"
                );
            }
            fresh.iter().for_each(|channel| topics.opened(channel));
            block_on(listener.ready());
            topics.count_message("c");
            block_on(listener.heard());
            drop(listener);
            clock::suspend(LINGER);
            assert_eq!(
                topics.take_idle().0.concat(),
                "c",
                "it is closed in the end"
            );
            assert!(topics.table.lock().topics.is_empty());
        },
        1_000,
    );
}

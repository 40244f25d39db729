//! Models of the local queue: who gets the turn, in every order in which threads can get the lock, or in a thousand of
//! them by chance where there are too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::future::block_on;
use shuttle::thread;

use super::tests::{SILENCE, hold_options, waiter};
use super::{Entered, Front, LocalQueues, Ticket};
use crate::values::clock;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::name::LockName;

struct Scene {
    queues: Arc<LocalQueues>,
    key: Arc<Key>,
}

impl Scene {
    fn new() -> Scene {
        let key = Key::new("", &LockName::from("k"), Kind::Mutex).unwrap();
        Scene {
            queues: LocalQueues::new(10, 10, SILENCE),
            key: Arc::new(key),
        }
    }

    fn front(&self) -> Front {
        self.queues.try_enter(&self.key, |_| false).unwrap()
    }

    /// A waiter that stays until it has had its turn.
    fn patient(&self) -> impl FnOnce() + Send + use<> {
        let mut waiter = waiter(&self.queues, &self.key);
        move || match block_on(waiter.ticket()) {
            Some(Ticket::Front(front)) => drop(front),
            ticket => panic!("no front but {ticket:?}"),
        }
    }

    /// A waiter that leaves at some moment.
    fn impatient(&self) -> impl FnOnce() + Send + use<> {
        let waiter = waiter(&self.queues, &self.key);
        move || drop(waiter)
    }

    /// Nobody is there any more, and nobody is counted.
    fn check(&self) {
        assert!(!self.queues.is_open(&self.key), "a place was lost");
        assert_eq!(self.queues.waiting(), 0);
    }
}

#[test]
fn a_turn_of_a_leaving_waiter_goes_to_the_next_waiter() {
    for leaves_first in [true, false] {
        shuttle::check_dfs(
            move || {
                let scene = Scene::new();
                let front = scene.front();
                let (leaves, stays) = if leaves_first {
                    let leaves = scene.impatient();
                    (leaves, scene.patient())
                } else {
                    let stays = scene.patient();
                    (scene.impatient(), stays)
                };
                let waiters = [thread::spawn(leaves), thread::spawn(stays)];
                drop(front);
                for waiter in waiters {
                    waiter.join().unwrap();
                }
                scene.check();
            },
            None,
        );
    }
}

#[test]
fn a_hand_over_to_a_leaving_waiter_goes_to_the_next_waiter() {
    shuttle::check_dfs(
        || {
            let scene = Scene::new();
            let front = scene.front();
            let leaves = thread::spawn(scene.impatient());
            let stays = thread::spawn(scene.patient());
            match front.successor() {
                Some(successor) => drop(successor.give(Ticket::Front(front))),
                None => drop(front),
            }
            leaves.join().unwrap();
            stays.join().unwrap();
            scene.check();
        },
        None,
    );
}

#[test]
fn one_caller_at_a_time_has_the_turn_and_each_has_it_once() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let (inside, served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let callers = [(); 3].map(|()| {
                let (queues, key) = (scene.queues.clone(), scene.key.clone());
                let (inside, served) = (inside.clone(), served.clone());
                thread::spawn(move || {
                    let front = match queues
                        .enter(&key, hold_options(), clock::now(), None, true)
                        .unwrap()
                    {
                        Entered::Front(front) => front,
                        Entered::Queued(mut waiter) => match block_on(waiter.ticket()) {
                            Some(Ticket::Front(front)) => front,
                            ticket => panic!("no front but {ticket:?}"),
                        },
                        _ => panic!("nothing is kept"),
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    served.fetch_add(1, Ordering::SeqCst);
                    drop(front);
                })
            });
            for caller in callers {
                caller.join().unwrap();
            }
            assert_eq!(served.load(Ordering::SeqCst), 3);
            scene.check();
        },
        1_000,
    );
}

#[test]
fn a_closed_queue_sends_all_waiters_away_and_admits_nobody() {
    shuttle::check_dfs(
        || {
            let scene = Scene::new();
            let front = scene.front();
            let mut early = waiter(&scene.queues, &scene.key);
            let early = thread::spawn(move || block_on(early.ticket()).is_none());
            let (queues, key) = (scene.queues.clone(), scene.key.clone());
            let late = thread::spawn(move || {
                match queues.enter(&key, hold_options(), clock::now(), None, true) {
                    Err(_) => true,
                    Ok(Entered::Queued(mut waiter)) => block_on(waiter.ticket()).is_none(),
                    Ok(_) => false,
                }
            });
            scene.queues.close();
            assert!(early.join().unwrap() && late.join().unwrap());
            drop(front);
            scene.check();
        },
        None,
    );
}

#[test]
fn readers_admitted_together_all_go_and_the_next_is_the_front() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let front = scene.front();
            let mut before = waiter(&scene.queues, &scene.key);
            let mark = front.so_far();
            let before =
                thread::spawn(move || matches!(block_on(before.ticket()), Some(Ticket::Go)));
            let (leaves, after) = (scene.impatient(), scene.patient());
            let others = [thread::spawn(leaves), thread::spawn(after)];
            front.let_go(mark);
            assert!(before.join().unwrap());
            for other in others {
                other.join().unwrap();
            }
            scene.check();
        },
        1_000,
    );
}

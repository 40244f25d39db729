//! Models of the watchdog's entries: a thousand of the orders in which threads can get the locks, by chance, for there
//! are too many to try all of them.
//!
//! Time passes in a thread of its own, by a pretended suspension of the machine.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use super::answers::Outcome;
use super::{After, Watch};
use crate::api::manager::events_of;
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::{Event, Granted, Holders, Renewed};
use crate::hold::sharing::Left;
use crate::hold::state::Hold;
use crate::queue::{Head, LocalQueues};
use crate::values::clock::{self, Moment};
use crate::values::error::LostReason;
use crate::values::holder::{HolderId, HolderIds};
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::label::Label;
use crate::values::name::LockName;
use crate::values::options::HoldOptions;
use crate::values::ttl::Ttl;

/// So long that nothing but the pretended suspension matters.
const LEASE: Duration = Duration::from_secs(10_000);

const CALL: Duration = Duration::from_secs(2);

struct Scene {
    watch: Arc<Watch>,
    backend: MemoryBackend,
    hold: Arc<Hold>,
    queues: Arc<LocalQueues>,
}

fn hold(key: Arc<Key>, head: Option<Head>, holder: HolderId) -> Arc<Hold> {
    let hold_options = HoldOptions {
        ttl: Ttl::new(LEASE, true).unwrap(),
        renewed: true,
        fenced: false,
        keep_for: None,
        max_hold: None,
        permits: 1,
        label: Label {
            lock: "model",
            store: "test",
        },
    };
    let sent_at = clock::now();
    let granted = Granted {
        token: None,
        sent_at,
    };
    Hold::new(key, head, holder, hold_options, granted, Arc::default())
}

fn is_watched(watch: &Watch, hold: &Arc<Hold>) -> bool {
    let schedule = watch.schedule.lock();
    let watched = schedule.holds.get(&hold.holder().number());
    watched.is_some_and(|watched| Arc::ptr_eq(&watched.hold, hold))
}

impl Scene {
    /// A hold that was granted nine tenths of a lease ago.
    fn new() -> Scene {
        let watch = Arc::new(Watch::default());
        let backend = MemoryBackend::new(MemoryStore::new(), events_of(&watch));
        let key = Key::new("", &LockName::from("a"), Kind::Mutex).unwrap();
        let (queues, key) = (LocalQueues::new(9, 9), Arc::new(key));
        let head = queues.try_enter(&key);
        let hold = hold(key, head, HolderIds::new().fresh());
        watch.insert(&hold, hold.granted_at());
        clock::suspend(LEASE / 10 * 9);
        Scene {
            watch,
            backend,
            hold,
            queues,
        }
    }

    fn is_watched(&self) -> bool {
        is_watched(&self.watch, &self.hold)
    }

    /// Passes the lock on to a second hold of the same tenure, if the watchdog knows the first one. Gives the second one.
    fn passes_on(&self) -> impl FnOnce() -> Option<Arc<Hold>> + Send + use<> {
        let (first, watch) = (self.hold.clone(), self.watch.clone());
        move || {
            let next = hold(first.key().clone(), None, first.holder());
            let left = first.leave(Kind::Mutex, true, None, clock::now());
            let goes = matches!(left, Left::Good { .. }) && watch.pass_on(&first, &next);
            goes.then_some(next)
        }
    }

    /// Somebody renews the hold by hand: the answer to a request that was sent at `sent_at`.
    fn renews(&self, sent_at: Moment) -> impl FnOnce() + Send + use<> {
        let (hold, asked) = (self.hold.clone(), self.hold.renewal());
        move || hold.renewed(&asked, Renewed::Held, sent_at)
    }

    /// The answer to a question of the watchdog that was sent at `sent_at`.
    fn answered(&self, sent_at: Moment) -> Outcome {
        Outcome {
            place: 0,
            holds: vec![self.hold.clone()],
            batch: vec![self.hold.renewal()],
            answers: Ok(vec![Renewed::Held]),
            sent_at,
        }
    }

    /// As the watchdog's loop after a suspension.
    fn looks(&self) {
        let mut from = Some(0);
        while let Some(number) = from {
            from = self.watch.schedule.lock().realign(number, clock::now());
        }
        self.watch.collect(&self.backend, CALL, Duration::ZERO);
    }

    /// Asserts what must be true no matter which came first, once the watchdog has looked again.
    fn check(&self) {
        let good = self.hold.is_good_at(clock::now());
        assert!(!good || self.is_watched(), "a live hold is not watched");
        self.looks();
        assert_eq!(self.is_watched(), good, "a hold that is over is watched");
        assert_eq!(self.hold.is_held(), good, "it was lost and is held");
        assert_eq!(self.hold.is_over(), !good);
        let taken = self.queues.is_open(self.hold.key());
        assert_eq!(taken, good, "the place leaves with the hold");
    }
}

fn lease_ends() {
    clock::suspend(LEASE / 5);
}

#[test]
fn a_hold_that_is_renewed_while_the_watchdog_takes_it_out_stays_watched() {
    shuttle::check_random(
        || {
            let scene = Scene::new();
            let renewal = thread::spawn(scene.renews(clock::now()));
            let time = thread::spawn(lease_ends);
            // Time may pass before it looks.
            thread::yield_now();
            scene.watch.remove_if_over(&scene.hold);
            renewal.join().unwrap();
            time.join().unwrap();
            scene.check();
        },
        1_000,
    );
}

#[test]
fn a_hold_that_is_renewed_while_the_watchdog_looks_for_what_is_due_stays_watched() {
    shuttle::check_random(
        || {
            let scene = Scene::new();
            let by_hand = thread::spawn(scene.renews(clock::now()));
            let time = thread::spawn(lease_ends);
            scene.looks();
            by_hand.join().unwrap();
            time.join().unwrap();
            scene.check();
        },
        1_000,
    );
}

#[test]
fn the_answers_to_two_questions_that_cross_leave_the_deadline_of_the_later_one() {
    shuttle::check_random(
        || {
            let scene = Scene::new();
            let answer = |sent_at| {
                let (watch, outcome) = (scene.watch.clone(), scene.answered(sent_at));
                thread::spawn(move || watch.answered(&outcome))
            };
            let earlier = clock::now();
            clock::suspend(LEASE / 100);
            let later = clock::now();
            let answers = [answer(earlier), answer(later)];
            scene.looks();
            for answer in answers {
                answer.join().unwrap();
            }
            assert!(scene.hold.deadline().has_reached(later + LEASE / 10 * 9));
            let next = scene
                .watch
                .schedule
                .lock()
                .next_of(scene.hold.holder().number());
            assert!(next > (later + LEASE / 4).tick(), "it is asked about soon");
            scene.check();
        },
        1_000,
    );
}

#[test]
fn a_hold_that_was_seen_to_be_lost_is_never_held_again() {
    shuttle::check_random(
        || {
            let scene = Scene::new();
            let renewal = thread::spawn(scene.renews(clock::now()));
            let time = thread::spawn(lease_ends);
            let seen = [(); 2].map(|()| scene.hold.is_held());
            renewal.join().unwrap();
            time.join().unwrap();
            assert!(!seen[1] || seen[0], "it was lost, and held again");
            assert!(seen[1] || !scene.hold.is_held(), "it was lost, and is held");
            scene.check();
        },
        1_000,
    );
}

#[test]
fn a_hold_is_ended_by_one_only() {
    shuttle::check_random(
        || {
            let scene = Scene::new();
            let (hold, watch) = (scene.hold.clone(), scene.watch.clone());
            let guard = thread::spawn(move || {
                let left = hold.leave(Kind::Mutex, true, None, clock::now());
                if let Left::Good { head, .. } = left {
                    watch.remove(&hold);
                    drop(head);
                    return true;
                }
                false
            });
            let time = thread::spawn(lease_ends);
            // Time may pass before it looks.
            thread::yield_now();
            scene.watch.remove_if_over(&scene.hold);
            let released = guard.join().unwrap();
            time.join().unwrap();
            assert_eq!(scene.hold.loss().is_none(), released);
            scene.check();
        },
        1_000,
    );
}

#[test]
fn a_forced_release_reaches_the_hold_that_its_holder_id_has_gone_to() {
    shuttle::check_random(
        || {
            let scene = Scene::new();
            let next = thread::spawn(scene.passes_on());
            let victim = Holders::Id(scene.hold.holder());
            scene.watch.hear(Event::ForceReleased(victim));
            if let Some(next) = next.join().unwrap() {
                assert_eq!(next.known_loss(), Some(LostReason::ForceReleased));
            }
        },
        1_000,
    );
}

#[test]
fn a_look_at_a_hold_that_has_ended_does_not_take_the_next_one_of_its_tenure_out() {
    shuttle::check_random(
        || {
            let scene = Scene::new();
            let next = thread::spawn(scene.passes_on());
            scene.watch.remove_if_over(&scene.hold);
            if let Some(next) = next.join().unwrap() {
                assert!(is_watched(&scene.watch, &next));
            }
        },
        1_000,
    );
}

impl Scene {
    /// As [`new`](Scene::new), of a holder that keeps its lock.
    fn of_a_keeper() -> Scene {
        let mut scene = Scene::new();
        scene.watch.remove(&scene.hold);
        scene.hold = hold(
            scene.hold.key().clone(),
            None,
            HolderIds::new().fresh_keeper(),
        );
        scene.watch.insert(&scene.hold, scene.hold.granted_at());
        scene
    }

    /// The hold ends, and the lock goes to the next one of the same holder. What the watchdog says of it, and that one.
    fn goes_on(&self) -> impl FnOnce() -> (After, Arc<Hold>) + Send + use<> {
        let (first, watch) = (self.hold.clone(), self.watch.clone());
        move || {
            let next = hold(first.key().clone(), None, first.holder());
            let left = first.leave(Kind::Mutex, true, None, clock::now());
            let after = match left {
                Left::Good { .. } => watch.leave_to(&first, &next),
                _ => After::Unknown,
            };
            (after, next)
        }
    }
}

#[test]
fn what_the_store_says_of_a_holder_reaches_the_hold_that_it_has_gone_on_to() {
    shuttle::check_random(
        || {
            for answer in [Renewed::Held, Renewed::NotHeld] {
                let scene = Scene::of_a_keeper();
                let sent_at = clock::now();
                let outcome = Outcome {
                    answers: Ok(vec![answer]),
                    ..scene.answered(sent_at)
                };
                let next = thread::spawn(scene.goes_on());
                scene.watch.answered(&outcome);
                let (after, next) = next.join().unwrap();
                let holds = after == After::Watched && next.known_loss().is_none();
                assert_eq!(holds, answer == Renewed::Held);
                if holds {
                    assert!(is_watched(&scene.watch, &next));
                    assert!(next.deadline().has_reached(sent_at + LEASE / 10 * 9));
                }
            }
        },
        1_000,
    );
}

#[test]
fn a_lock_that_somebody_wants_is_given_back_by_the_hold_that_ends_next() {
    shuttle::check_random(
        || {
            let scene = Scene::of_a_keeper();
            let next = thread::spawn(scene.goes_on());
            let wanted = Holders::Id(scene.hold.holder());
            scene.watch.hear(Event::Wanted(wanted));
            let (after, next) = next.join().unwrap();
            match after {
                After::Watched => assert_eq!(scene.watch.leave(&next), After::Wanted),
                after => assert_eq!(after, After::Wanted),
            }
        },
        1_000,
    );
}

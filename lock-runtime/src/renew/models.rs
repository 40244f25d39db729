//! Models of the watchdog's entries: a thousand random orders in which threads can get the locks, because there are too
//! many to try all of them.
//!
//! Time passes in a thread of its own, by a pretended suspension of the machine.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use super::answers::BatchOutcome;
use crate::backend::memory::MemoryStore;
use crate::backend::{Event, Granted, Holders, Renewed, Spare};
use crate::hold::tests::core;
use crate::hold::{Core, Hold, Left, Next, Share, Tenure, TurnAllowance};
use crate::queue::{Entered, Waiter};
use crate::values::clock::{self, Moment};
use crate::values::error::LostReason;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::label::Label;
use crate::values::name::LockName;
use crate::values::options::HoldOptions;
use crate::values::ttl::Ttl;

/// Long enough that only the pretended suspension matters.
const LEASE: Duration = Duration::from_secs(10_000);

const CALL: Duration = Duration::from_secs(2);

struct Scene {
    core: Arc<Core>,
    hold: Hold,
}

fn options(keep_for: Option<Duration>) -> HoldOptions {
    HoldOptions {
        ttl: Ttl::new(LEASE, true).unwrap(),
        renewed: true,
        fenced: false,
        keep_for,
        max_hold: None,
        permits: 1,
        label: Label {
            lock: "model",
            store: "test",
            leads: false,
        },
    }
}

impl Scene {
    /// A hold that was granted nine tenths of a lease ago.
    fn new() -> Scene {
        let core = core(&MemoryStore::new());
        let holder = core.ids.fresh();
        Scene::of(core, holder, &options(None), None, LEASE / 10 * 9)
    }

    /// A hold that was granted half a lease ago, in a tenure. Somebody waits for its end.
    fn with_waiter() -> (Scene, Waiter) {
        let core = core(&MemoryStore::new());
        let holder = core.ids.fresh();
        let far = clock::now() + LEASE;
        let scene = Scene::of(core, holder, &options(None), Some(far), LEASE / 2);
        let queues = &scene.core.queues;
        let entered = queues.enter(scene.hold.key(), options(None), clock::now(), None, true);
        match entered {
            Ok(Entered::Queued(waiter)) => (scene, waiter),
            _ => panic!("a hold has the lock"),
        }
    }

    /// A hold that was granted nine tenths of a lease ago to a holder that keeps its lock.
    fn of_a_keeper() -> Scene {
        let core = core(&MemoryStore::new());
        let holder = core.ids.fresh_keeper();
        let options = options(Some(LEASE));
        Scene::of(core, holder, &options, None, LEASE / 10 * 9)
    }

    fn of(
        core: Arc<Core>,
        holder: HolderId,
        options: &HoldOptions,
        free_until: Option<Moment>,
        age: Duration,
    ) -> Scene {
        let key = Arc::new(Key::new("", &LockName::from("a"), Kind::Mutex).unwrap());
        let front = core.queues.try_enter(&key, |_| false);
        let granted = Granted::leased(None, clock::now());
        let allowance = TurnAllowance::new(Spare::Untokened, free_until);
        let of = Arc::downgrade(&core);
        let hold = Tenure::begin(of, key, front, holder, options, granted, allowance);
        hold.add_renewer();
        core.watch.insert(hold.tenure(), granted.sent_at);
        clock::suspend(age);
        Scene { core, hold }
    }

    fn tenure(&self) -> &Arc<Tenure> {
        self.hold.tenure()
    }

    fn is_watched(&self) -> bool {
        let schedule = self.core.watch.schedule.lock();
        schedule.tenures.contains_key(&self.hold.holder().number())
    }

    /// The only guard leaves. Returns what comes after the turn, if the turn was good.
    fn leaves(&self) -> impl FnOnce() -> Option<Next> + Send + use<> {
        let (core, hold) = (self.core.clone(), self.hold.clone());
        move || {
            let share = Share {
                kind: Kind::Mutex,
                renewed: true,
                returns: false,
            };
            match hold.leave(&core, share, clock::now()) {
                Left::Last(turn, next) => {
                    if matches!(next, Next::Release) {
                        core.watch.remove(hold.tenure());
                    }
                    drop(turn);
                    Some(next)
                }
                _ => None,
            }
        }
    }

    /// Somebody renews the hold by hand: the answer to a request that was sent at `sent_at`.
    fn renews(&self, sent_at: Moment) -> impl FnOnce() + Send + use<> {
        let (tenure, asked) = (
            self.tenure().clone(),
            self.tenure().due_renewal(clock::now()),
        );
        move || {
            let _ = tenure.answered(&asked.unwrap(), Renewed::Held, sent_at);
        }
    }

    /// The answer to a request of the watchdog that was sent at `sent_at`.
    fn answered(&self, answer: Renewed, sent_at: Moment) -> BatchOutcome {
        BatchOutcome {
            store: "test",
            place: 0,
            tenures: vec![self.tenure().clone()],
            batch: vec![self.tenure().due_renewal(clock::now()).unwrap()],
            answers: Ok(vec![answer]),
            sent_at,
        }
    }

    /// Does what the watchdog's loop does after a suspension.
    fn looks(&self) {
        let watch = &self.core.watch;
        let mut from = Some(0);
        while let Some(number) = from {
            from = watch.schedule.lock().realign(number, clock::now());
        }
        watch.collect(&*self.core.backend, CALL, Duration::ZERO);
    }

    /// Asserts what must be true no matter which came first, once the watchdog has looked again.
    fn check(&self) {
        let good = self.tenure().is_good_at(clock::now());
        assert!(!good || self.is_watched(), "a live hold is not watched");
        self.looks();
        assert_eq!(self.is_watched(), good, "a hold that is over is watched");
        assert_eq!(self.hold.is_held(), good, "it was lost and is held");
        let taken = self.core.queues.is_open(self.hold.key());
        assert_eq!(taken, good, "the place leaves with the hold");
    }
}

fn lease_ends() {
    clock::suspend(LEASE / 5);
}

#[test]
fn a_hold_that_is_renewed_while_it_is_taken_out_stays_watched() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let renewal = thread::spawn(scene.renews(clock::now()));
            let time = thread::spawn(lease_ends);
            // Time may pass before the watchdog looks.
            thread::yield_now();
            scene
                .core
                .watch
                .remove_if_over(scene.tenure(), Duration::ZERO);
            renewal.join().unwrap();
            time.join().unwrap();
            scene.check();
        },
        1_000,
    );
}

#[test]
fn a_hold_that_is_renewed_in_a_look_stays_watched() {
    crate::sync::explore(
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
fn crossed_answers_leave_the_deadline_of_the_later_request() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let answer = |sent_at| {
                let outcome = scene.answered(Renewed::Held, sent_at);
                let watch = scene.core.watch.clone();
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
            assert!(scene.tenure().deadline() - later >= LEASE / 10 * 9);
            let next = {
                let schedule = scene.core.watch.schedule.lock();
                schedule.tenures[&scene.hold.holder().number()].next
            };
            assert!(next > (later + LEASE / 4).tick(), "it is asked about soon");
            scene.check();
        },
        1_000,
    );
}

#[test]
fn a_hold_that_was_seen_to_be_lost_is_never_held_again() {
    crate::sync::explore(
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
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let leaves = scene.leaves();
            let guard = thread::spawn(move || leaves().is_some());
            let time = thread::spawn(lease_ends);
            // Time may pass before the watchdog looks.
            thread::yield_now();
            scene
                .core
                .watch
                .remove_if_over(scene.tenure(), Duration::ZERO);
            let released = guard.join().unwrap();
            time.join().unwrap();
            assert_eq!(scene.hold.loss().is_none(), released);
            scene.check();
        },
        1_000,
    );
}

#[test]
fn a_forced_release_reaches_the_turn_that_has_the_lock() {
    crate::sync::explore(
        || {
            let (scene, _waiter) = Scene::with_waiter();
            let next = thread::spawn(scene.leaves());
            let victim = Holders::Id(scene.hold.holder());
            scene.core.watch.hear(Event::ForceReleased(victim));
            let lost = match next.join().unwrap() {
                Some(Next::Turn(_, next)) => next.known_loss(),
                None => scene.hold.known_loss(),
                Some(_) => panic!("somebody waits"),
            };
            assert_eq!(lost, Some(LostReason::ForceReleased));
        },
        1_000,
    );
}

#[test]
fn a_look_at_a_turn_that_has_ended_leaves_the_next_one_watched() {
    crate::sync::explore(
        || {
            let (scene, _waiter) = Scene::with_waiter();
            let next = thread::spawn(scene.leaves());
            scene
                .core
                .watch
                .remove_if_over(scene.tenure(), Duration::ZERO);
            let next = next.join().unwrap();
            assert!(matches!(next, Some(Next::Turn(..))) && scene.is_watched());
        },
        1_000,
    );
}

#[test]
fn the_answer_to_a_renewal_counts_for_the_turn_that_it_meets() {
    crate::sync::explore(
        || {
            for answer in [Renewed::Held, Renewed::NotHeld] {
                let (scene, _waiter) = Scene::with_waiter();
                let sent_at = clock::now();
                let outcome = scene.answered(answer, sent_at);
                let next = thread::spawn(scene.leaves());
                scene.core.watch.answered(&outcome);
                let next = match next.join().unwrap() {
                    Some(Next::Turn(_, next)) => next,
                    None => scene.hold.clone(),
                    Some(_) => panic!("somebody waits"),
                };
                let holds = answer == Renewed::Held;
                assert_eq!(next.known_loss().is_none(), holds);
                assert_eq!(scene.is_watched(), holds);
                let left = scene.tenure().deadline() - sent_at;
                assert_eq!(left > LEASE / 10 * 9, holds);
            }
        },
        1_000,
    );
}

#[test]
fn a_kept_lock_that_the_store_does_not_know_is_kept_no_more() {
    crate::sync::explore(
        || {
            for answer in [Renewed::Held, Renewed::NotHeld] {
                let scene = Scene::of_a_keeper();
                let sent_at = clock::now();
                let outcome = scene.answered(answer, sent_at);
                let next = thread::spawn(scene.leaves());
                scene.core.watch.answered(&outcome);
                next.join().unwrap();
                let keeps = answer == Renewed::Held;
                assert_eq!(scene.core.queues.is_kept(scene.hold.key()), keeps);
                assert_eq!(scene.is_watched(), keeps);
            }
        },
        1_000,
    );
}

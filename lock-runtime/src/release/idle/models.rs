//! Models of a lock that is kept: who has it when somebody of this process comes, somebody else wants it, or it is released by
//! force, in a thousand of the orders in which threads can get the locks.
//!
//! There is no runtime: what is done in the background is done at once, for the memory store answers at once.

use std::sync::Arc;
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;

use super::*;
use crate::backend::memory::MemoryStore;
use crate::backend::{Acquired, Event, Granted, Holders, Spare};
use crate::hold::tests::core;
use crate::hold::{HoldHandle, TurnAllowance};
use crate::queue::Entered;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::options::{Options, Overrides};

/// Longer than any model.
const LONG: Duration = Duration::from_secs(10_000);

struct Scene {
    core: Arc<Core>,
    store: MemoryStore,
    key: Arc<Key>,
    holder: HolderId,
    options: HoldOptions,
}

fn options(keep_for: Option<Duration>) -> HoldOptions {
    let wanted = Overrides {
        lease: Some(LONG),
        keep_for,
        ..Overrides::default()
    };
    let no_tokens = Options {
        fencing: false,
        ..Options::default()
    };
    wanted.hold_options("k", &no_tokens, "test").unwrap()
}

impl Scene {
    /// A lock that the store has just granted.
    fn granted(keep_for: Option<Duration>) -> (Scene, Front, Granted) {
        let (store, options) = (MemoryStore::new(), options(keep_for));
        let core = core(&store);
        let key = Arc::new(core.key(&"k".into(), Kind::Mutex).unwrap());
        let holder = match keep_for {
            Some(_) => core.ids.fresh_keeper(),
            None => core.ids.fresh(),
        };
        let request = core.acquire_request(&key, holder, &options, clock::now());
        let Ok(Acquired::Granted(granted, _)) = block_on(core.backend.acquire(request)) else {
            panic!("it is free");
        };
        let front = core.queues.try_enter(&key, |_| false).unwrap();
        let scene = Scene {
            core,
            store,
            key,
            holder,
            options,
        };
        (scene, front, granted)
    }

    /// A lock that is kept.
    fn new() -> Scene {
        let (scene, front, granted) = Scene::granted(Some(LONG));
        let terms = FurtherTurns {
            others: Some(0),
            spare: Spare::Untokened,
        };
        let Scene {
            core, key, holder, ..
        } = &scene;
        keep(core, front, *holder, scene.options, granted, terms);
        assert!(core.queues.is_kept(key));
        scene
    }

    /// A lock that a caller has, in a tenure that allows further turns.
    fn held() -> (Scene, HoldHandle) {
        let (scene, front, granted) = Scene::granted(None);
        let Scene {
            core, key, holder, ..
        } = &scene;
        let allowance = TurnAllowance::new(Spare::Untokened, Some(clock::now() + LONG));
        let (front, options) = (Some(front), scene.options);
        let handle = HoldHandle::admit(core, key, front, *holder, options, granted, allowance);
        (scene, handle)
    }

    /// A caller that does not wait, and takes what is kept.
    fn takes(&self) -> impl FnOnce() -> Option<HoldHandle> + Send + use<> {
        let (core, key, options) = (self.core.clone(), self.key.clone(), self.options);
        move || {
            let now = clock::now();
            match core.queues.enter(&key, options, now, Some(now), false) {
                Ok(Entered::Held(hold, counted)) => {
                    Some(HoldHandle::begins(&core, hold, options, counted))
                }
                Ok(Entered::Unsuited(..)) => panic!("it suits"),
                _ => None,
            }
        }
    }

    fn is_wanted(&self) -> impl FnOnce() + Send + use<> {
        let (watch, holder) = (self.core.watch.clone(), self.holder);
        move || watch.hear(Event::Wanted(Holders::Id(holder)))
    }

    fn is_released_by_force(&self) -> impl FnOnce() + Send + use<> {
        let (core, key) = (self.core.clone(), self.key.clone());
        move || assert!(block_on(core.backend.force_release(&key, LONG)).unwrap())
    }

    /// Nobody of this process has it or watches it.
    fn is_gone(&self) {
        assert!(!self.core.queues.is_open(&self.key), "its front is taken");
        assert_eq!(self.core.watch.count(), 0, "it is watched");
    }

    /// And the store knows.
    fn is_given_back(&self) {
        self.is_gone();
        assert_eq!(self.store.held(), 0, "it was not given back");
    }

    /// It is that caller's.
    fn is_had_by(&self, handle: &HoldHandle) {
        assert_eq!(handle.hold().known_loss(), None);
        let is_watched = self.core.watch.remove(handle.hold().tenure());
        assert!(is_watched, "it is not watched");
        assert_eq!(self.store.held(), 1, "it was given back in use");
    }
}

#[test]
fn a_wanted_kept_lock_goes_to_a_local_caller_or_is_given_back() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let wanted = thread::spawn(scene.is_wanted());
            let had = scene.takes()();
            wanted.join().unwrap();
            match &had {
                Some(handle) => scene.is_had_by(handle),
                None => scene.is_given_back(),
            }
        },
        1_000,
    );
}

#[test]
fn one_caller_at_a_time_has_a_kept_lock() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let others = [thread::spawn(scene.takes()), thread::spawn(scene.takes())];
            let others = others.map(|other| other.join().unwrap());
            let had: Vec<_> = others.iter().flatten().collect();
            assert_eq!(had.len(), 1);
            scene.is_had_by(had[0]);
        },
        1_000,
    );
}

#[test]
fn a_kept_lock_released_by_force_serves_nobody_without_a_loss() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let forced = thread::spawn(scene.is_released_by_force());
            let had = scene.takes()();
            forced.join().unwrap();
            match had {
                Some(handle) => {
                    let told = handle.hold().known_loss();
                    assert_eq!(told, Some(LostReason::ForceReleased));
                    // Others need not wait for a handle that means nothing.
                    scene.is_gone();
                }
                None => scene.is_gone(),
            }
        },
        1_000,
    );
}

#[test]
fn a_lock_wanted_while_it_becomes_idle_is_given_back() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let handle = scene.takes()().unwrap();
            let wanted = thread::spawn(scene.is_wanted());
            drop(handle);
            wanted.join().unwrap();
            scene.is_given_back();
        },
        1_000,
    );
}

#[test]
fn a_lock_released_by_force_while_it_becomes_idle_is_not_kept() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let handle = scene.takes()().unwrap();
            let forced = thread::spawn(scene.is_released_by_force());
            drop(handle);
            forced.join().unwrap();
            scene.is_gone();
        },
        1_000,
    );
}

#[test]
fn a_caller_takes_a_lock_that_is_left_or_the_lock_stays_kept() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let handle = scene.takes()().unwrap();
            let next = thread::spawn(scene.takes());
            drop(handle);
            // Dropped after the look at the store: its end gives the lock back.
            let had = next.join().unwrap();
            match &had {
                Some(handle) => scene.is_had_by(handle),
                // It came too early, and does not wait.
                None => assert!(scene.core.queues.is_kept(&scene.key)),
            }
            assert_eq!(scene.store.held(), 1);
        },
        1_000,
    );
}

#[test]
fn a_dropped_lock_goes_to_the_next_caller_or_is_given_back() {
    crate::sync::explore(
        || {
            let (scene, handle) = Scene::held();
            let next = thread::spawn(scene.takes());
            drop(handle);
            match &next.join().unwrap() {
                Some(handle) => scene.is_had_by(handle),
                None => scene.is_given_back(),
            }
        },
        1_000,
    );
}

#[test]
fn a_dropped_lock_freed_by_force_serves_nobody_without_a_loss() {
    crate::sync::explore(
        || {
            let (scene, handle) = Scene::held();
            let forced = thread::spawn(scene.is_released_by_force());
            let next = thread::spawn(scene.takes());
            drop(handle);
            let had = next.join().unwrap();
            forced.join().unwrap();
            if let Some(handle) = had {
                let told = handle.hold().known_loss();
                assert_eq!(told, Some(LostReason::ForceReleased));
            }
            scene.is_gone();
        },
        1_000,
    );
}

#[test]
fn a_kept_lock_wanted_while_its_manager_ends_is_given_back() {
    crate::sync::explore(
        || {
            let scene = Scene::new();
            let wanted = thread::spawn(scene.is_wanted());
            let Scene { core, store, .. } = scene;
            drop(core);
            wanted.join().unwrap();
            assert_eq!(store.held(), 0, "it was not given back");
        },
        1_000,
    );
}

//! Each input in each stage. Time is paused.

use std::time::Duration;

use tokio::time::advance;

use super::*;
use crate::api::manager::LockManager;
use crate::backend::memory::MemoryStore;
use crate::backend::quorum::tests::flaky::managers;
use crate::queue::LocalQueues;
use crate::queue::tests::{SILENCE, hold_options};
use crate::values::clock;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::options::Options;
use crate::values::ttl::Ttl;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(10);

impl LocalQueues {
    pub(crate) fn idle_at(&self, key: &Key) -> Option<Arc<Tenure>> {
        match &self.lock(key).keys.get(key)?.stage {
            KeyStage::Idle(tenure) => Some(tenure.clone()),
            _ => None,
        }
    }
}

/// A key whose front has the number 1.
struct Scene {
    state: KeyState,
    /// What waiters wait for. Their numbers are 2, 3, …
    tickets: Vec<oneshot::Receiver<Ticket>>,
    /// The manager of the idle tenure, and that tenure.
    idle: (LockManager, Arc<Tenure>),
    now: Moment,
    _store: MemoryStore,
}

const STAGES: [&str; 5] = ["asks", "waits", "held", "idle", "rests"];

impl Scene {
    async fn new(stage: &str) -> Scene {
        let (locks, _, _, store) = managers(Options::default());
        let request = locks.mutex("k").lease(LEASE).keep_for(9 * SECOND);
        let guard = request.acquire().await.unwrap();
        advance(SECOND / 100).await;
        guard.release().await.unwrap();
        advance(SECOND / 100).await;
        let key = locks.core().key(&"k".into(), Kind::Mutex).unwrap();
        let idle = locks.core().queues.idle_at(&key).unwrap();
        let (mut state, now) = (KeyState::new(1), clock::now());
        match stage {
            "waits" => {
                state.answered(None);
                state.front_waits(|_| Ok(())).unwrap();
            }
            "held" => _ = state.held_by("a label"),
            "idle" => assert!(state.keep(&idle, now)),
            "rests" => {
                // It was held before.
                state.held_by("a label");
                state.held_no_more();
                state.rests(now + SECOND);
            }
            stage => assert_eq!(stage, "asks"),
        }
        Scene {
            state,
            tickets: Vec::new(),
            idle: (locks, idle),
            now,
            _store: store,
        }
    }

    fn queues(&mut self) {
        let (ticket, given) = oneshot::channel();
        let number = 2 + self.tickets.len() as u64;
        self.tickets.push(given);
        let hold_options = hold_options();
        self.state.queue(
            number,
            Successor {
                ticket,
                hold_options,
            },
        );
    }

    /// A caller comes that waits for this time, and wants this lease.
    fn comes(&mut self, wait: Duration, lease: Duration) -> &'static str {
        let hold_options = HoldOptions {
            ttl: Ttl::new(lease, true).unwrap(),
            ..hold_options()
        };
        let gives_up = self.now + wait;
        match self.state.take_idle(&hold_options, self.now) {
            Some(Entered::Held(..)) => "gets the lock",
            Some(Entered::Unsuited(..)) => "has it given back",
            Some(_) => "has what nobody gave",
            None if self.state.pass_rest(9, |end| gives_up.has_reached(end)) => "gets the front",
            None => "queues",
        }
    }

    fn is_dropped(&mut self, is_exclusive: bool) -> &'static str {
        match self.state.pass_on(9, is_exclusive) {
            (Some(_), _) => "goes on",
            (None, _) => "ends",
        }
    }

    /// A waiter looks after so many times of silence.
    fn looks(&mut self, silences: u32) -> bool {
        let now = self.now + SILENCE * silences;
        self.state.look(now, SILENCE, 9)
    }

    fn is_looked_at(&mut self, answers: bool) -> &'static str {
        self.queues();
        assert!(!self.looks(0), "the first look");
        if answers {
            self.state.answered(None);
        }
        if self.looks(1) {
            "is passed over"
        } else {
            "stays"
        }
    }

    /// Returns what the input led to, and the stage after it.
    fn after(&mut self, input: &str) -> String {
        let output = match input {
            "a caller comes" => self.comes(10 * SECOND, LEASE),
            "an impatient caller comes" => self.comes(SECOND / 2, LEASE),
            "an impatient caller comes after another" => {
                self.queues();
                self.comes(SECOND / 2, LEASE)
            }
            "a caller with another lease comes" => self.comes(10 * SECOND, LEASE * 2),
            "a caller comes after the tenure's end" => {
                self.idle.1.stop_idling(self.now).unwrap();
                self.comes(10 * SECOND, LEASE)
            }
            "the front is dropped" => self.is_dropped(true),
            "the front is dropped before a waiter" => {
                self.queues();
                self.is_dropped(true)
            }
            "the front of a read is dropped before a waiter" => {
                self.queues();
                self.is_dropped(false)
            }
            "a waiter leaves" => {
                self.queues();
                assert!(self.state.leave(2).is_some());
                assert!(self.state.leave(2).is_none());
                ""
            }
            "the hold looks for a waiter that suits" => {
                self.queues();
                match self.state.next_if(|_| true) {
                    Some(_) => "has one",
                    None => "has none",
                }
            }
            "the hold looks for a waiter, and none suits" => {
                self.queues();
                assert!(self.state.next_if(|_| false).is_none());
                assert_eq!(self.state.waiters(), 1);
                ""
            }
            "an answer is for the first of two waiters" => {
                self.queues();
                self.queues();
                assert_eq!(self.state.take_up_to(2).len(), 1);
                assert_eq!(self.state.waiters(), 1);
                ""
            }
            "a waiter looks twice" => self.is_looked_at(false),
            "a waiter looks before and after an answer" => self.is_looked_at(true),
            "a waiter looks before and after a hold" => {
                self.queues();
                assert!(!self.looks(0), "the first look");
                self.state.held_no_more();
                match [self.looks(1), self.looks(2)] {
                    [true, _] => "is passed over",
                    [false, true] => "is passed over later",
                    [false, false] => "stays",
                }
            }
            "a waiter wants news" => match self.state.first_news() {
                Some(_) => "awaits them",
                None => "they are there",
            },
            "a waiter asks for the hold" => {
                let sign = self.state.sign();
                match (self.state.blocked_by(sign), self.state.blocked_by(sign)) {
                    (Some("a label"), None) => "is told once",
                    (None, None) => "none",
                    _ => "is told twice",
                }
            }
            "the front has to wait" => {
                let full = |_| Err(LockError::unavailable("k", "full"));
                match self.state.front_waits(full) {
                    Ok(()) => "is not counted",
                    Err(_) => "no room",
                }
            }
            "the front has to wait, and may" => {
                let before = self.state.waiting();
                self.state.front_waits(|_| Ok(())).unwrap();
                match self.state.waiting() - before {
                    0 => "is not counted",
                    _ => "is counted",
                }
            }
            "the store answers" => {
                self.state.answered(None);
                ""
            }
            "the store does not answer" => {
                self.state.answered(Some(Fault::not_done("x")));
                assert!(self.state.fault().is_some());
                ""
            }
            "a caller gets the lock" => {
                self.state.held_by("b");
                ""
            }
            "the hold ends" => {
                if self.state.held_no_more() {
                    "nobody waits"
                } else {
                    "somebody waits"
                }
            }
            "the lock is kept" => {
                if self.state.keep(&self.idle.1, self.now) {
                    "kept"
                } else {
                    "not kept"
                }
            }
            "the lock is to be kept before a waiter" => {
                self.queues();
                if self.state.keep(&self.idle.1, self.now) {
                    "kept"
                } else {
                    "not kept"
                }
            }
            "the tenure idles no more" => {
                self.state.idles_no_more(&self.idle.1, false);
                ""
            }
            "the manager closes" => {
                self.queues();
                assert_eq!(self.state.close().0.len(), 1);
                match self.state.end_idle(self.now) {
                    Some(_) => "gives back",
                    None => "sends waiters away",
                }
            }
            "the front rests" => {
                self.state.rests(self.now + SECOND);
                ""
            }
            input => panic!("unknown: {input}"),
        };
        format!("{output} → {}", self.stage())
            .trim_start()
            .to_owned()
    }

    fn stage(&self) -> &'static str {
        match self.state.stage {
            KeyStage::Asking { waits, heard } => match (waits, heard) {
                (false, false) => "asks",
                (false, true) => "asks again",
                (true, true) => "waits",
                (true, false) => "waits unheard",
            },
            KeyStage::Held { .. } => "held",
            KeyStage::Idle(_) => "idle",
            KeyStage::Rests { .. } => "rests",
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_input_in_every_stage() {
    #[rustfmt::skip]
    let table = [
        // Callers.
        ("a caller comes",                            ["queues → asks", "queues → waits", "queues → held", "gets the lock → held", "queues → rests"]),
        ("an impatient caller comes",                 ["queues → asks", "queues → waits", "queues → held", "gets the lock → held", "gets the front → asks again"]),
        ("an impatient caller comes after another",   ["queues → asks", "queues → waits", "queues → held", "gets the lock → held", "queues → rests"]),
        ("a caller with another lease comes",        ["queues → asks", "queues → waits", "queues → held", "has it given back → asks", "queues → rests"]),
        ("a caller comes after the tenure's end",     ["queues → asks", "queues → waits", "queues → held", "queues → idle", "queues → rests"]),
        ("a waiter looks twice",                      ["is passed over → asks", "is passed over → waits", "stays → held", "is passed over → idle", "is passed over → rests"]),
        ("a waiter looks before and after an answer", ["stays → asks again", "stays → waits", "stays → held", "stays → idle", "stays → rests"]),
        ("a waiter looks before and after a hold",    ["is passed over → asks", "is passed over → waits", "is passed over later → asks again", "is passed over → idle", "is passed over → rests"]),
        ("a waiter wants news",                       ["awaits them → asks", "they are there → waits", "they are there → held", "awaits them → idle", "they are there → rests"]),
        ("a waiter asks for the hold",                ["none → asks", "none → waits", "is told once → held", "none → idle", "none → rests"]),
        ("the manager closes",                        ["sends waiters away → asks", "sends waiters away → waits", "sends waiters away → held", "gives back → asks", "sends waiters away → rests"]),
        ("a waiter leaves",                           ["→ asks", "→ waits", "→ held", "→ idle", "→ rests"]),
        // The owner of the front.
        ("the front is dropped",                      ["ends → asks", "ends → asks again", "ends → asks again", "ends → asks", "ends → asks again"]),
        ("the front is dropped before a waiter",      ["goes on → waits unheard", "goes on → waits", "goes on → waits", "goes on → waits unheard", "goes on → waits"]),
        ("the front of a read is dropped before a waiter", ["goes on → waits unheard", "goes on → waits unheard", "goes on → waits unheard", "goes on → waits unheard", "goes on → waits unheard"]),
        ("the hold looks for a waiter that suits",    ["has one → asks", "has one → waits", "has one → held", "has one → idle", "has one → rests"]),
        ("the hold looks for a waiter, and none suits", ["→ asks", "→ waits", "→ held", "→ idle", "→ rests"]),
        ("an answer is for the first of two waiters", ["→ asks", "→ waits", "→ held", "→ idle", "→ rests"]),
        ("the front has to wait, and may",            ["is counted → waits unheard", "is not counted → waits", "is not counted → held", "is not counted → idle", "is not counted → rests"]),
        ("the front has to wait",                     ["no room → asks", "is not counted → waits", "is not counted → held", "is not counted → idle", "is not counted → rests"]),
        ("the store answers",                         ["→ asks again", "→ waits", "→ held", "→ idle", "→ rests"]),
        ("the store does not answer",                 ["→ asks again", "→ waits", "→ held", "→ idle", "→ rests"]),
        ("a caller gets the lock",                    ["→ held", "→ held", "→ held", "→ held", "→ held"]),
        ("the hold ends",                             ["nobody waits → asks", "nobody waits → waits", "nobody waits → asks again", "nobody waits → idle", "nobody waits → rests"]),
        ("the lock is kept",                          ["kept → idle", "kept → idle", "kept → idle", "kept → idle", "kept → idle"]),
        ("the lock is to be kept before a waiter",    ["not kept → asks", "not kept → waits", "not kept → held", "not kept → idle", "not kept → rests"]),
        ("the tenure idles no more",                  ["→ asks", "→ waits", "→ held", "→ asks", "→ rests"]),
        ("the front rests",                           ["→ rests", "→ rests", "→ rests", "→ rests", "→ rests"]),
    ];
    for (input, expected) in table {
        for (stage, expected) in STAGES.into_iter().zip(expected) {
            let mut scene = Scene::new(stage).await;
            assert_eq!(scene.after(input), expected, "{stage}: {input}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_counted() {
    let counts = async |stage| Scene::new(stage).await.state.waiting();
    let mut counted = Vec::new();
    for stage in STAGES {
        counted.push((stage, counts(stage).await));
    }
    let expected = STAGES.map(|stage| (stage, usize::from(stage == "waits")));
    assert_eq!(counted, expected);
    let mut scene = Scene::new("waits").await;
    scene.queues();
    scene.queues();
    assert_eq!(scene.state.waiting(), 3);
    // The next one waits at the front.
    scene.is_dropped(true);
    assert_eq!(scene.state.waiting(), 2);
    scene.state.held_by("b");
    assert_eq!((scene.state.waiting(), scene.state.waiters()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn waiters_that_have_left_are_no_successors() {
    let mut scene = Scene::new("held").await;
    (0..3).for_each(|_| scene.queues());
    scene.tickets.remove(0);
    let suits = |suits: bool| move |_: &HoldOptions| suits;
    assert!(scene.state.next_if(suits(false)).is_none());
    assert_eq!(scene.state.waiters(), 2, "the first one has left");
    assert!(scene.state.next_if(suits(true)).is_some());
    assert_eq!(scene.state.take_up_to(3).len(), 0, "3 was the successor");
    assert_eq!(scene.state.take_up_to(4).len(), 1);
}

use super::*;
use crate::backend::memory::MemoryStore;
use crate::hold::Share;
use crate::hold::tests::{core, granted};
use crate::values::clock;
use crate::values::holder::HolderIds;
use crate::values::key::Key;
use crate::values::name::LockName;
use crate::values::options::{HoldOptions, Options, Overrides};

fn hold_options() -> HoldOptions {
    let options = Options::default();
    Overrides::default()
        .hold_options("a", &options, "test")
        .unwrap()
}

fn hold() -> Hold {
    let key = Arc::new(Key::new("", &LockName::from("a"), Kind::Mutex).unwrap());
    let holder = HolderIds::new().fresh();
    granted(key, None, holder, &hold_options(), clock::now())
}

fn give_back(hold: &Hold) {
    let share = Share {
        kind: Kind::Mutex,
        renewed: true,
        returns: false,
    };
    hold.leave(&core(&MemoryStore::new()), share, clock::now());
}

/// The frame of a body under `hold`, whose guard was acquired in `outer`.
fn body(hold: &Hold, outer: Option<&Arc<Frame>>) -> Arc<Frame> {
    let call_chain = CallChain {
        level: Level::new(hold.clone(), Kind::Mutex, &[], None),
        held: Held::One(hold.clone()),
        acquired_in: outer.cloned(),
    };
    Nest::new(call_chain).frame_for(Runner::now())
}

/// Counts the frames from this one outwards, over or not.
fn depth(frame: &Arc<Frame>) -> usize {
    successors(Some(frame.clone()), |frame| frame.outer.lock().clone()).count()
}

#[tokio::test]
async fn a_long_chain_is_dropped_and_printed_without_recursion() {
    let hold = hold();
    let mut inner = body(&hold, None);
    for _ in 0..120_000 {
        // By hand: a nest walks the whole chain.
        inner = Arc::new(Frame {
            level: Level::new(hold.clone(), Kind::Mutex, &[], None),
            held: Held::One(hold.clone()),
            runner: Runner::now(),
            replaced: AtomicBool::new(false),
            outer: Mutex::new(Some(inner)),
        });
    }
    assert_eq!(inner.upward().count(), 120_001);
    assert!(format!("{inner:?}").len() < 2_000);
    let outermost = inner
        .upward()
        .last()
        .map(|level| Arc::downgrade(&level))
        .unwrap();
    let small = std::thread::Builder::new().stack_size(128 << 10);
    small.spawn(|| drop(inner)).unwrap().join().unwrap();
    assert_eq!(outermost.strong_count(), 0, "all of it is gone");
}

#[tokio::test]
async fn released_ancestors_are_forgotten_at_each_further_link() {
    const WINDOW: usize = 3;
    let mut window = std::collections::VecDeque::from([hold()]);
    let mut inner = body(&window[0], None);
    for _ in 0..200 {
        let next = hold();
        inner = body(&next, Some(&inner));
        window.push_back(next);
        if window.len() > WINDOW {
            give_back(&window.pop_front().unwrap());
        }
        assert!(depth(&inner) <= WINDOW + 2, "{}", depth(&inner));
        assert_eq!(inner.upward().count(), window.len());
    }
}

#[tokio::test]
async fn a_guard_that_left_is_no_ancestor_while_its_hold_lives_on() {
    let hold = hold();
    let outer = body(&hold, None);
    let mut inner = body(&hold, Some(&outer));
    outer.level.leave();
    assert_eq!(inner.upward().count(), 1);
    for _ in 0..200 {
        let next = body(&hold, Some(&inner));
        inner.level.leave();
        inner = next;
        assert!(depth(&inner) <= 3, "{}", depth(&inner));
    }
}

#[tokio::test]
async fn a_lost_hold_is_an_ancestor_while_it_is_shared() {
    let hold = hold();
    assert_eq!(
        hold.share(hold_options(), Kind::Mutex).unwrap(),
        Some(false)
    );
    hold.add_renewer();
    let frame = body(&hold, None);
    hold.tenure()
        .lose(crate::values::error::LostReason::ForceReleased);
    give_back(&hold);
    assert_eq!(frame.upward().count(), 1);
    assert!(hold.share(hold_options(), Kind::Mutex).is_err());
    give_back(&hold);
    assert_eq!(frame.upward().count(), 0);
    assert_eq!(hold.share(hold_options(), Kind::Mutex).unwrap(), None);
}

#[tokio::test]
async fn a_body_keeps_its_frame_until_another_task_polls_it() {
    let (outer, inner) = (hold(), hold());
    let mut first = Nest::new(CallChain {
        level: Level::new(outer.clone(), Kind::Mutex, &[], None),
        held: Held::One(outer.clone()),
        acquired_in: None,
    });
    let here = first.frame_for(Runner::now());
    assert!(Arc::ptr_eq(&here, &first.frame_for(Runner::now())));
    let mut second = Nest::new(CallChain {
        level: Level::new(inner.clone(), Kind::Mutex, &[], None),
        held: Held::One(inner),
        acquired_in: Some(here.clone()),
    });
    let nested = second.frame_for(Runner::now());
    assert_eq!(nested.upward().count(), 2);
    // It keeps its frame, too, when an ancestor is given back.
    give_back(&outer);
    assert!(Arc::ptr_eq(&nested, &second.frame_for(Runner::now())));
    assert_eq!(nested.upward().count(), 1);
    tokio::spawn(async move {
        let there = first.frame_for(Runner::now());
        assert!(here.is_replaced() && !there.is_replaced());
        assert!(!here.counts_for(Runner::now()) && there.counts_for(Runner::now()));
    })
    .await
    .unwrap();
}

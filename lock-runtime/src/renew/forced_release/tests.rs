use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Event, Holders};
use crate::hold::Tenure;
use crate::hold::tests::granted;
use crate::renew::Watch;
use crate::renew::forced_release::alias;
use crate::values::clock;
use crate::values::error::LostReason;
use crate::values::holder::HolderIds;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::label::Label;
use crate::values::name::LockName;
use crate::values::options::HoldOptions;
use crate::values::ttl::Ttl;

thread_local! {
    pub(crate) static HASHED: Cell<usize> = const { Cell::new(0) };
}

/// How often holders were hashed on this thread since the last look.
fn hashed() -> usize {
    HASHED.take()
}

fn tenure(ids: &HolderIds, kind: Kind) -> Arc<Tenure> {
    let key = Arc::new(Key::new("lock:", &LockName::from("k"), kind).unwrap());
    let hold_options = HoldOptions {
        ttl: Ttl::new(Duration::from_secs(30), true).unwrap(),
        renewed: true,
        fenced: false,
        keep_for: None,
        max_hold: None,
        permits: 1,
        label: Label {
            lock: "test",
            store: "test",
            leads: false,
        },
    };
    let hold = granted(key, None, ids.fresh(), &hold_options, clock::now());
    hold.tenure().clone()
}

fn watched(watch: &Watch, ids: &HolderIds, kind: Kind) -> Arc<Tenure> {
    let tenure = tenure(ids, kind);
    watch.insert(&tenure, clock::now());
    tenure
}

/// Why its turn is lost, if it is.
fn loss(tenure: &Tenure) -> Option<LostReason> {
    tenure.lost_turn().map(|loss| loss.reason)
}

fn force(watch: &Watch, hold: &Tenure) {
    let alias = alias(hold.holder(), hold.key().kind());
    // The test's own hash does not count.
    HASHED.with(|hashed| hashed.set(hashed.get() - 1));
    let aliases = match hold.key().kind() {
        Kind::Semaphore | Kind::Read => [alias, [7; 16]].into(),
        _ => [alias].into(),
    };
    watch.hear(Event::ForceReleased(Holders::Aliases(Arc::new(aliases))));
}

#[tokio::test]
async fn five_thousand_victims_cost_one_hash_for_each_hold() {
    let (watch, ids) = (Watch::default(), HolderIds::new());
    let kinds = [Kind::Mutex, Kind::Semaphore].into_iter().cycle();
    let mut holds: Vec<_> = kinds
        .take(5_000)
        .map(|kind| watched(&watch, &ids, kind))
        .collect();
    assert_eq!(hashed(), 0, "nobody has asked yet");
    fastrand::shuffle(&mut holds);
    for hold in &holds {
        force(&watch, hold);
        assert_eq!(loss(hold), Some(LostReason::ForceReleased));
    }
    assert_eq!(hashed(), 5_000);
    // Victims of other managers cost nothing.
    let others = HolderIds::new();
    for _ in 0..1_000 {
        force(&watch, &tenure(&others, Kind::Mutex));
    }
    assert_eq!(hashed(), 0);
}

#[tokio::test]
async fn a_hold_between_two_messages_costs_two_hashes_at_most() {
    let (watch, ids) = (Watch::default(), HolderIds::new());
    let mut stays = Vec::new();
    for round in 0..1_000 {
        let (hold, gone) = (
            watched(&watch, &ids, Kind::Fair),
            watched(&watch, &ids, Kind::Write),
        );
        watch.remove(&gone);
        force(&watch, &gone);
        assert_eq!(loss(&gone), None);
        if round % 2 == 0 {
            force(&watch, &hold);
            assert_eq!(loss(&hold), Some(LostReason::ForceReleased));
        } else {
            stays.push(hold);
        }
    }
    assert!(hashed() <= 4_000, "one beside the missing, one for a name");
    for hold in stays {
        assert_eq!(loss(&hold), None);
        force(&watch, &hold);
        assert_eq!(loss(&hold), Some(LostReason::ForceReleased));
    }
    assert_eq!(hashed(), 0);
}

#[tokio::test]
async fn a_hold_after_the_message_of_its_forced_release_is_lost() {
    let (watch, ids) = (Watch::default(), HolderIds::new());
    for kind in Kind::ALL {
        let (named, other) = (tenure(&ids, kind), tenure(&ids, kind));
        force(&watch, &named);
        watch.insert(&other, clock::now());
        watch.insert(&named, clock::now());
        assert_eq!(loss(&named), Some(LostReason::ForceReleased), "{kind:?}");
        assert_eq!(loss(&other), None, "{kind:?}");
    }
}

#[tokio::test]
async fn without_messages_holds_are_not_hashed_and_found_later() {
    let (watch, ids) = (Watch::default(), HolderIds::new());
    force(&watch, &watched(&watch, &ids, Kind::Mutex));
    hashed();
    for _ in 0..10_000 {
        watch.remove(&watched(&watch, &ids, Kind::Mutex));
    }
    let last = watched(&watch, &ids, Kind::Mutex);
    assert_eq!(hashed(), 0);
    force(&watch, &last);
    assert_eq!(loss(&last), Some(LostReason::ForceReleased));
    assert_eq!(hashed(), 1);
}

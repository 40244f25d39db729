//! Tests of which waiting requests are sent together.

use std::time::Duration;

use super::*;
use crate::backend::redis::scripting::Script;
use crate::backend::redis::scripting::grouped::Each;
use crate::values::holder::HolderIds;
use crate::values::{Key, Kind, LockName, clock};

/// Returns requests with these leases, by number, and the receivers of their answers.
fn waiting(
    leases: impl Iterator<Item = u64>,
    name: &str,
) -> (
    VecDeque<GroupItem<OneAcquire>>,
    Vec<oneshot::Receiver<Answered<OneAcquire>>>,
) {
    let ids = HolderIds::new();
    let items = leases.enumerate().map(|(number, lease_ms)| {
        let (answer, answered) = oneshot::channel();
        let item = GroupItem {
            terms: AcquireTerms::new(lease_ms, true, Duration::from_secs(1)),
            asked: OneAcquire {
                key: Key::new("lock:", &LockName::from(name.to_owned()), Kind::Mutex).unwrap(),
                holder: ids.fresh(),
                not_after_us: number as u64,
            },
            deadline: clock::now(),
            answer,
        };
        (item, answered)
    });
    items.unzip()
}

fn numbers<'a>(items: impl IntoIterator<Item = &'a GroupItem<OneAcquire>>) -> Vec<u64> {
    let numbers = items.into_iter().map(|item| item.asked.not_after_us);
    numbers.collect()
}

#[test]
fn a_script_has_a_limited_number_of_keys_and_the_rest_wait() {
    let (mut queue, _answers) = waiting((0..150).map(|_| 1_000), "k");
    for expected in [0..48, 48..96, 96..144, 144..150, 150..150] {
        let expected: Vec<_> = expected.collect();
        assert_eq!(numbers(&taken(&mut queue)), expected);
    }
}

#[test]
fn a_script_has_fewer_keys_if_they_are_long() {
    for (name, keys) in [(512, 16), (256, 32), (128, 48)] {
        // The namespace is a part of the key.
        let name = "n".repeat(name - "lock:".len());
        let (mut queue, _answers) = waiting((0..150).map(|_| 1_000), &name);
        assert_eq!(taken(&mut queue).len(), keys);
        assert_eq!(queue.len(), 150 - keys);
    }
}

#[test]
fn requests_of_other_terms_keep_their_places() {
    let leases = [1_000, 2_000, 1_000, 2_000, 3_000];
    let (mut queue, _answers) = waiting(leases.into_iter(), "k");
    for (expected, left) in [
        (vec![0, 2], vec![1, 3, 4]),
        (vec![1, 3], vec![4]),
        (vec![4], vec![]),
    ] {
        assert_eq!(numbers(&taken(&mut queue)), expected);
        assert_eq!(numbers(&queue), left);
    }
    // However many terms there are, one call looks at 48 requests at most.
    let leases = (0..200).map(|number| if number < 100 { number + 1 } else { 1 });
    let (mut queue, _answers) = waiting(leases, "k");
    assert_eq!(numbers(&taken(&mut queue)), [0]);
    assert_eq!(numbers(&queue), (1..200).collect::<Vec<_>>());
}

#[test]
fn a_request_whose_caller_has_gone_is_never_sent() {
    let (mut queue, mut answers) = waiting((0..100).map(|_| 1_000), "k");
    for number in (0..90).rev() {
        drop(answers.remove(number));
    }
    let expected: Vec<_> = (90..100).collect();
    assert_eq!(numbers(&taken(&mut queue)), expected);
    assert!(queue.is_empty());
}

#[test]
fn the_largest_request_has_few_bytes() {
    let ids = HolderIds::new();
    for length in [16, 170, 512] {
        let (mut queue, _answers) = waiting((0..150).map(|_| 86_400_000), &"n".repeat(length - 5));
        let items = taken(&mut queue);
        let terms = items[0].terms;
        let acquires: Vec<_> = items.into_iter().map(|item| item.asked).collect();
        let releases = acquires.iter().map(|one| OneRelease {
            key: one.key.clone(),
            holder: ids.fresh(),
        });
        let releases: Vec<_> = releases.collect();
        let mut commands = [redis::Cmd::new(), redis::Cmd::new()];
        let [acquire, release] = &mut commands;
        Each {
            terms,
            all: acquires,
        }
        .write(acquire);
        Each {
            terms: (),
            all: releases,
        }
        .write(release);
        let bytes = commands.map(|command| command.get_packed_command().len());
        assert!(bytes.iter().all(|bytes| *bytes < 30_000), "{bytes:?}");
    }
}

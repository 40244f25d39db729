//! Which of those that wait go out together.

use super::*;
use crate::values::holder::HolderIds;
use crate::values::{Key, Kind, LockName};

/// Requests with these terms, by number, and who waits for their answers.
fn waiting(
    terms: impl Iterator<Item = u64>,
) -> (
    VecDeque<Item<OneAcquire>>,
    Vec<oneshot::Receiver<Answered<OneAcquire>>>,
) {
    let ids = HolderIds::new();
    let items = terms.enumerate().map(|(number, lease_ms)| {
        let (answer, answered) = oneshot::channel();
        let item = Item {
            terms: AcquireTerms::new(lease_ms, true, Duration::from_secs(1)),
            asked: OneAcquire {
                key: Key::new("lock:", &LockName::from("k"), Kind::Mutex).unwrap(),
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

fn numbers<'a>(items: impl IntoIterator<Item = &'a Item<OneAcquire>>) -> Vec<u64> {
    let numbers = items.into_iter().map(|item| item.asked.not_after_us);
    numbers.collect()
}

#[test]
fn a_script_has_so_many_keys_at_most_and_the_others_keep_their_places() {
    let (mut queue, _answers) = waiting((0..150).map(|_| 1_000));
    for expected in [0..64, 64..128, 128..150, 150..150] {
        let expected: Vec<_> = expected.collect();
        assert_eq!(numbers(&taken(&mut queue)), expected);
    }
}

#[test]
fn those_who_want_something_else_stay_before_all_others() {
    let leases = [1_000, 2_000, 1_000, 2_000, 3_000];
    let (mut queue, _answers) = waiting(leases.into_iter());
    for (expected, left) in [
        (vec![0, 2], vec![1, 3, 4]),
        (vec![1, 3], vec![4]),
        (vec![4], vec![]),
    ] {
        assert_eq!(numbers(&taken(&mut queue)), expected);
        assert_eq!(numbers(&queue), left);
    }
    // However many they are, so many are looked at.
    let leases = (0..200).map(|number| if number < 100 { number + 1 } else { 1 });
    let (mut queue, _answers) = waiting(leases);
    assert_eq!(numbers(&taken(&mut queue)), [0]);
    assert_eq!(numbers(&queue), (1..200).collect::<Vec<_>>());
}

#[test]
fn a_request_whose_caller_has_gone_is_never_sent() {
    let (mut queue, mut answers) = waiting((0..100).map(|_| 1_000));
    for number in (0..90).rev() {
        drop(answers.remove(number));
    }
    let expected: Vec<_> = (90..100).collect();
    assert_eq!(numbers(&taken(&mut queue)), expected);
    assert!(queue.is_empty());
}

#[test]
fn the_largest_request_of_the_longest_names_has_few_bytes() {
    let (name, ids) = ("n".repeat(512), HolderIds::new());
    let key = Key::new("", &LockName::from(name), Kind::Mutex).unwrap();
    let bytes = |script: &dyn Fn(&mut redis::Cmd)| {
        let mut command = redis::Cmd::new();
        script(&mut command);
        command.get_packed_command().len()
    };
    let acquires = Each {
        terms: AcquireTerms::new(86_400_000, true, Duration::from_secs(1)),
        all: Vec::from_iter((0..LARGEST).map(|_| OneAcquire {
            key: key.clone(),
            holder: ids.fresh(),
            not_after_us: u64::MAX,
        })),
    };
    let releases = Each {
        terms: (),
        all: Vec::from_iter((0..LARGEST).map(|_| OneRelease {
            key: key.clone(),
            holder: ids.fresh(),
        })),
    };
    let acquires = bytes(&|command| acquires.write(command));
    let releases = bytes(&|command| releases.write(command));
    assert!(
        acquires.max(releases) < 80_000,
        "{acquires} and {releases} bytes"
    );
}

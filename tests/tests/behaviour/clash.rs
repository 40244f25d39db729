//! Tests of two kinds of lock under one name: kinds of one form serve each other, and all others are refused by an
//! error that names both.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, TryAcquire};
use tests::{Store, eventually};

/// The form in which a lock is stored. Kinds of the same form share a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Exclusive,
    ReadWrite,
    Number,
    Ids,
}

/// The kinds that are asked for, each with its form and its name in errors.
const KINDS: [(&str, Form, &str); 10] = [
    ("mutex", Form::Exclusive, "a mutex"),
    ("fenced", Form::Exclusive, "a fenced lock"),
    ("fair", Form::Exclusive, "a fair lock"),
    ("multi", Form::Exclusive, "a mutex"),
    ("read", Form::ReadWrite, "a read/write lock"),
    ("write", Form::ReadWrite, "a read/write lock"),
    ("semaphore", Form::Number, "a semaphore"),
    ("plain semaphore", Form::Number, "a semaphore"),
    ("latch", Form::Number, "a latch"),
    ("ids", Form::Ids, "ids"),
];

/// The kinds that are at a key already, each with its form and its name in errors.
const FOUND: [(&str, Form, &str); 8] = [
    (
        "mutex",
        Form::Exclusive,
        "a mutex, or a fenced or fair lock",
    ),
    (
        "fenced",
        Form::Exclusive,
        "a mutex, or a fenced or fair lock",
    ),
    ("fair", Form::Exclusive, "a mutex, or a fenced or fair lock"),
    ("read", Form::ReadWrite, "a read/write lock"),
    ("write", Form::ReadWrite, "a read/write lock"),
    ("semaphore", Form::Number, "a semaphore"),
    ("latch", Form::Number, "a semaphore or a latch"),
    ("ids", Form::Ids, "a source of ids"),
];

async fn stand(locks: &LockManager, kind: &str, name: &str) -> Option<LockGuard> {
    let held = match kind {
        "mutex" => locks.mutex(name).acquire().await,
        "fenced" => locks.fenced(name).acquire().await,
        "fair" => locks.fair(name).acquire().await,
        "read" => locks.read(name).acquire().await,
        "write" => locks.write(name).acquire().await,
        "semaphore" => {
            let semaphore = locks.semaphore(name);
            semaphore.try_set_permits(9).await.unwrap();
            semaphore.permits(1).acquire().await
        }
        "latch" => {
            locks.latch(name).try_set_count(2).await.unwrap();
            return None;
        }
        _ => {
            locks.ids(name).next().await.unwrap();
            return None;
        }
    };
    Some(held.unwrap())
}

/// Calls every operation of that kind that looks at the key.
async fn ask(locks: &LockManager, kind: &str, name: &str) -> Vec<Result<(), LockError>> {
    let one = |answer: Result<TryAcquire, LockError>| vec![answer.map(drop)];
    match kind {
        "mutex" => one(locks.mutex(name).try_acquire().await),
        "fenced" => one(locks.fenced(name).try_acquire().await),
        "fair" => one(locks.fair(name).try_acquire().await),
        "read" => one(locks.read(name).try_acquire().await),
        "write" => one(locks.write(name).try_acquire().await),
        "multi" => {
            let both = [locks.mutex(name), locks.mutex(format!("{{{name}}}:other"))];
            vec![locks.multi(both).try_acquire().await.map(drop)]
        }
        "semaphore" => {
            let semaphore = locks.semaphore(name);
            vec![
                semaphore.permits(1).try_acquire().await.map(drop),
                semaphore.try_set_permits(2).await.map(drop),
                semaphore.available().await.map(drop),
            ]
        }
        "plain semaphore" => {
            let plain = locks.plain_semaphore(name);
            vec![
                plain.permits(1).try_acquire().await.map(drop),
                plain.release(1).await,
                plain.available().await.map(drop),
            ]
        }
        "ids" => vec![locks.ids(name).next().await.map(drop)],
        _ => {
            let latch = locks.latch(name);
            vec![
                latch.count().await.map(drop),
                latch.try_set_count(1).await.map(drop),
                latch.count_down().await.map(drop),
            ]
        }
    }
}

fn is_refused(answer: &Result<(), LockError>, name: &str, expected: &str) -> bool {
    let Err(error @ LockError::ForeignKey { key, why, .. }) = answer else {
        panic!("{name}: {answer:?}");
    };
    assert!(key.ends_with(name), "{key}");
    assert!(!error.is_retryable(), "{error}");
    why == expected
}

tests::suite! {
    async fn two_kinds_share_a_form_or_are_refused_by_both_names(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        for (found, form, is) in FOUND {
            for (kind, wanted, asked) in KINDS {
                let name = format!("{found} and {kind}");
                let guard = stand(&locks, found, &name).await;
                if form == wanted {
                    for answer in ask(&other, kind, &name).await {
                        assert!(!matches!(answer, Err(LockError::ForeignKey { .. })), "{name}: {answer:?}");
                    }
                } else {
                    // A machine that is too busy for a second question names only what it sees.
                    let expected = format!("it is {is}; you asked for {asked}");
                    eventually(&format!("{name}: {expected}"), async || {
                        let answers = ask(&other, kind, &name).await;
                        answers.into_iter().all(|answer| is_refused(&answer, &name, &expected))
                    })
                    .await;
                }
                if let Some(guard) = guard {
                    assert!(guard.is_held() && guard.remaining() > Duration::ZERO, "{name}");
                    guard.release().await.unwrap();
                }
                match form {
                    Form::Number => drop(locks.semaphore(&name).delete().await.unwrap()),
                    Form::Ids => store.flush(),
                    _ => store.assert_clean().await,
                }
            }
        }
    }
}

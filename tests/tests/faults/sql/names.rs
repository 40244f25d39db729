//! Tests of names as databases compare them.

use lock_runtime::LockError;
use tests::{Sql, Table};

use super::manager;

tests::on_each_database!(names_are_compared_byte_for_byte);

async fn names_are_compared_byte_for_byte<D: Sql>() {
    let table = Table::<D>::new();
    let locks = manager(&table.url()).await;
    let names = [
        "a",
        "A",
        "a ",
        "ä",
        "a\u{308}",
        "a\n",
        "'; DROP TABLE x; --",
    ];
    let mut guards = Vec::new();
    for name in names {
        let taken = locks.mutex(name).acquire().await;
        guards.push(taken.unwrap_or_else(|error| panic!("{name:?}: {error}")));
    }
    let longest = "x".repeat(512 - "lock:".len());
    guards.push(locks.mutex(longest).acquire().await.unwrap());
    let with_nul = locks.mutex("a\0b").acquire().await;
    match with_nul {
        Ok(guard) if D::TAKES_NUL => guards.push(guard),
        Err(LockError::InvalidName { .. }) if !D::TAKES_NUL => {}
        other => panic!("{other:?}"),
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    drop(locks);
    table.assert_deserted().await;
}

//! Assertions on who holds what.

use std::panic::Location;

use crate::api::info::LockInfo;
use crate::api::manager::LockManager;
use crate::values::{IntoLockName, LockName};

/// Panics unless somebody holds the lock, or leases permits of the semaphore. It works for any manager and asks its
/// store: a holder in another process counts as well. It returns the store's answer, for further assertions.
///
/// # Panics
/// If the lock is free, or the store gives no answer. The message names the caller's line.
#[track_caller]
pub fn assert_held<N: IntoLockName>(
    locks: &LockManager,
    name: N,
) -> impl Future<Output = LockInfo> + Send + 'static + use<N> {
    let (name, at) = (name.into_lock_name(), Location::caller());
    let locks = locks.clone();
    async move {
        let info = look(&locks, &name, at).await;
        assert!(
            info.held,
            "lock `{}` is free at {at}: it should be held",
            name.as_str()
        );
        info
    }
}

/// Panics if somebody holds the lock, or leases permits of the semaphore, and says who. It works for any manager and
/// asks its store.
///
/// # Panics
/// If the lock is held, or the store gives no answer. The message names the caller's line.
#[track_caller]
pub fn assert_free<N: IntoLockName>(
    locks: &LockManager,
    name: N,
) -> impl Future<Output = ()> + Send + 'static + use<N> {
    let (name, at) = (name.into_lock_name(), Location::caller());
    let locks = locks.clone();
    async move {
        let info = look(&locks, &name, at).await;
        let holders = holders(&info);
        assert!(
            !info.held,
            "lock `{}` is {holders} at {at}: it should be free",
            name.as_str()
        );
    }
}

async fn look(locks: &LockManager, name: &LockName, at: &Location<'_>) -> LockInfo {
    match locks.inspect(name.clone()).await {
        Ok(info) => info,
        Err(error) => panic!(
            "nobody can tell who holds `{}` at {at}: {error}",
            name.as_str()
        ),
    }
}

/// Returns who holds the lock and how, as one phrase.
fn holders(info: &LockInfo) -> String {
    let mut text = "held".to_owned();
    if let Some(mode) = info.mode {
        text += &format!(" in mode {mode}");
    }
    if let Some(holder) = &info.holder {
        text += &format!(" by {holder}");
    }
    text += &match info.readers {
        0 => format!(", count {}", info.count),
        readers => format!(", readers {readers}"),
    };
    if let Some(left) = info.ttl {
        text += &format!(", {left:?} left,");
    }
    text
}

//! What happens when the lock is busy, lost, or not wanted.
#![deny(warnings)]

use std::time::Duration;

use lock_runtime::{FromLockError, LockError, LockManager, distributed_lock};

#[distributed_lock(key = "job", on_busy = skip)]
async fn skips() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "job:{id}", on_busy = skip, wait = "1s")]
async fn skips_with_value(id: u64) -> Result<Option<u64>, LockError> {
    Ok(Some(id))
}

#[distributed_lock(key = "job", on_busy = skip, min_hold = "55s", max_hold = "5m")]
async fn skips_in_silence() {}

#[distributed_lock(key = "job", on_busy = skip, min_hold = least)]
async fn skips_in_silence_with_value(least: Duration) -> Option<String> {
    Some(String::new())
}

#[distributed_lock(key = "job", on_busy = error, on_lost = cancel, mode = exclusive, keep_for = "5s")]
async fn says_the_defaults() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{id}", on_busy = call(stale), on_lost = finish)]
async fn fresh(id: u64, name: &str) -> Result<String, LockError> {
    Ok(format!("{id} {name}"))
}

fn stale(_id: u64, name: &str, error: LockError) -> Result<String, LockError> {
    match name {
        "" => Err(error),
        name => Ok(name.to_owned()),
    }
}

#[distributed_lock(key = "{id}", on_busy = call(stale_later), on_lost = error)]
async fn fresh_later<T: Send>(mut id: u64, part: T) -> Result<(u64, T), LockError> {
    id += 1;
    Ok((id, part))
}

async fn stale_later<T>(id: u64, part: T, _error: LockError) -> Result<(u64, T), LockError> {
    Ok((id, part))
}

struct Cache {
    locks: LockManager,
    name: String,
}

impl Cache {
    #[distributed_lock(key = "{self.name}:{id}", manager = self.locks, on_busy = call(Self::old))]
    async fn rebuild(&mut self, id: u64) -> Result<u64, LockError> {
        self.name.push('!');
        Ok(id)
    }

    async fn old(&mut self, id: u64, _: LockError) -> Result<u64, LockError> {
        self.name.pop();
        Ok(id)
    }
}

trait Old {
    fn old_name(&self, _: LockError) -> Result<String, LockError>;
}

impl Old for Cache {
    fn old_name(&self, _: LockError) -> Result<String, LockError> {
        Ok(self.name.clone())
    }
}

impl Cache {
    #[distributed_lock(key = "{self.name}", manager = self.locks, on_busy = call(<Self as Old>::old_name))]
    async fn new_name(&self) -> Result<String, LockError> {
        Ok(self.name.clone() + "!")
    }
}

#[distributed_lock(key = "{id}", on_busy = call(stale_where_it_is))]
async fn fresh_where_it_is(
    id: u64,
    #[cfg(any())] gone: Nowhere,
    #[cfg(all())] here: u64,
) -> Result<u64, LockError> {
    Ok(id + here)
}

fn stale_where_it_is(id: u64, _here: u64, _error: LockError) -> Result<u64, LockError> {
    Ok(id)
}

/// A type with methods whose names are common.
struct Answer(&'static str);

impl Answer {
    fn kind(&self) -> &'static str {
        self.0
    }

    fn answer(&self) -> u64 {
        42
    }
}

impl FromLockError for Answer {
    fn from_lock_error(_: LockError) -> Answer {
        Answer("refused")
    }
}

#[distributed_lock(key = "a", on_busy = call(second_answer))]
async fn first_answer() -> Answer {
    Answer("first")
}

fn second_answer(_: LockError) -> Answer {
    Answer("second")
}

/// A type that is not ours.
type Foreign = Result<u16, std::num::TryFromIntError>;

fn status(error: LockError) -> Foreign {
    u16::try_from(if error.is_retryable() { 503_u32 } else { 500 })
}

#[distributed_lock(key = "a", map_err = status)]
async fn mapped_by_path() -> Foreign {
    Ok(200)
}

#[distributed_lock(key = "a", map_err = |error: LockError| error.to_string())]
async fn mapped_by_closure() -> String {
    String::new()
}

#[distributed_lock(key = "a", map_err = |_| ())]
async fn mapped_to_nothing() {}

#[distributed_lock(key = "a:{id}", when = id > 7, guard = lease)]
async fn sometimes(id: u64) -> Result<bool, LockError> {
    Ok(lease.is_some_and(|lease| lease.is_held()))
}

fn needs_send<T: Send>(_: T) {}

pub(crate) fn main() {
    needs_send(skips());
    needs_send(skips_with_value(1));
    needs_send(skips_in_silence());
    needs_send(skips_in_silence_with_value(Duration::from_secs(1)));
    needs_send(says_the_defaults());
    needs_send(fresh(1, "a"));
    needs_send(fresh_later(1, 'a'));
    needs_send(fresh_where_it_is(1, 2));
    needs_send(async { (first_answer().await.kind(), Answer("").answer()) });
    needs_send(mapped_by_path());
    needs_send(mapped_by_closure());
    needs_send(mapped_to_nothing());
    needs_send(sometimes(8));
    let _ = async |mut cache: Cache| cache.rebuild(7).await;
}

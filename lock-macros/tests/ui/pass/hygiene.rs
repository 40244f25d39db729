//! Nothing that a user can define gets in the way.
#![deny(warnings)]
#![no_implicit_prelude]

use ::lock_runtime::{LockError, distributed_lock};

#[allow(dead_code)]
mod core {}
#[allow(dead_code)]
mod std {}
#[allow(dead_code, non_camel_case_types)]
struct lock_runtime;

#[distributed_lock(key = "order:{name}:{guard}", wait = "1s")]
async fn settle(
    name: u64,
    guard: u64,
    entered: u64,
    error: u64,
) -> ::core::result::Result<u64, LockError> {
    ::core::result::Result::Ok(name + guard + entered + error)
}

pub(crate) fn main() {
    ::core::mem::drop(settle(1, 2, 3, 4));
}

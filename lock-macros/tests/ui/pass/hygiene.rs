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

struct Id(u64);
struct Row(u64);

// What a body declares is not what its signature means by the same words.
#[distributed_lock(key = "order:{id}")]
async fn shadow(Id(id): Id) -> ::core::result::Result<Row, LockError> {
    use ::std::io::Result;

    struct Id(&'static str);
    #[allow(dead_code)]
    struct Row;

    fn read(_: Id) -> Result<()> {
        ::core::result::Result::Ok(())
    }

    let row = super::hygiene::row(id);
    read(Id("a")).map_or_else(
        |_| ::core::result::Result::Err(LockError::NotInstalled),
        |()| ::core::result::Result::Ok(row),
    )
}

fn row(id: u64) -> Row {
    Row(id)
}

pub(crate) fn main() {
    ::core::mem::drop(settle(1, 2, 3, 4));
    ::core::mem::drop(shadow(Id(1)));
}

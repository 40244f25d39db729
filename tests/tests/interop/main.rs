//! Our locks beside a running Redisson client, on one Redis server or cluster. Run by `scripts/test-interop`.
//!
//! One file per kind of lock, and what they share in `pair.rs`.

mod cluster;
mod fair;
mod fenced;
mod kills;
mod latch;
mod multi;
mod mutex;
mod mutex_ends;
mod names;
mod pair;
mod permits;
mod plain_semaphore;
mod read_write;
mod spin;

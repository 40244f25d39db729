//! Tests of our locks beside a running Redisson client, on one Redis server or cluster. `scripts/test-interop` runs
//! them.
//!
//! There is one file per kind of lock. What they share is in `pair.rs`.

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

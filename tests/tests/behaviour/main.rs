//! Tests of what locks do on every store: the suites that a store has to pass.

mod clash;
mod clients;
mod counters;
mod election;
mod exclusion;
mod fair;
mod fenced;
mod health;
mod itself;
mod keep_for;
mod layer;
mod lease;
mod multi;
mod operators;
mod parked;
mod processes;
mod public_types;
mod quorum;
mod read_write;
mod read_write_nested;
mod reentry;
mod release;
mod semaphore;
mod ticks;
mod tokens;
mod waiting;

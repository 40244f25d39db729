//! The statements of `docs/fencing.md`, on the resources that they are for.

mod meter;
mod mysql;
mod redis;
mod sqlite;

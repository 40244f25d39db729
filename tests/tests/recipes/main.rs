//! Tests of the statements of `docs/fencing.md`, on the resources that they are for.

mod meter;
mod mysql;
mod postgres;
mod redis;
mod sqlite;
mod sqlx;
mod transactions;

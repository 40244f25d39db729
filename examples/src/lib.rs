//! The code that the example programs share: where their locks and their rows live, how they begin and end,
//! and a client.

mod client;
mod program;
mod sqlite;
mod store;

pub use client::{Answer, Client};
pub use program::{Failure, prove, run};
pub use sqlite::{Sqlite, SqliteError};
pub use store::Store;

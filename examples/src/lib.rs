//! The code that the example programs share: where their locks live, where their rows do, and how they begin and end.

mod program;
mod sqlite;
mod store;

pub use program::{Failure, prove, run};
pub use sqlite::{Sqlite, SqliteError};
pub use store::Store;

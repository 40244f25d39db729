//! The code that the example programs share: where their locks live, and how they begin and end.

mod program;
mod store;

pub use program::{Failure, prove, run};
pub use store::Store;

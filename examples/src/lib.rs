//! What the example programs share: where their locks live.

mod store;

pub use store::Store;

//! The `#[distributed_lock]` attribute and the `key!` macro of `lock-runtime`.

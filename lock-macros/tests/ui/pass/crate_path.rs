//! `lock_runtime` under another name.
#![deny(warnings)]

mod company {
    pub mod locks {
        pub use lock_runtime::*;
    }
}

use company::locks::{LockError, distributed_lock, key};

#[distributed_lock(key = "order:{id}", crate = crate::crate_path::company::locks)]
async fn by_path(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:{id}", crate = "company::locks")]
async fn by_string(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(keys = ["order:{id}", key!("order:{}", id + 1), company::locks::key!("all")], crate = company::locks)]
async fn several(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

pub(crate) fn main() {
    drop((by_path(1), by_string(2), several(3)));
}

#![deny(deprecated)]
use lock_runtime::LockManager;
use tower_lock::{LockLayer, RequestKey};

fn main() {
    let uploads = RequestKey::new("uploads").path();
    let layer = LockLayer::from_key(LockManager::in_memory(), uploads).permits(3);
    drop(layer);
}

use lock_runtime::LockManager;
use tower_lock::{LockLayer, RequestKey};

fn main() {
    let order = RequestKey::new("order").path_segment(1);
    let _layer = LockLayer::new(LockManager::in_memory(), order);
}

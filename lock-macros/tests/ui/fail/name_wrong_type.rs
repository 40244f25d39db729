use lock_runtime::LockManager;

struct Order;

fn requests(locks: &LockManager, id: u64, order: &Order) {
    locks.mutex(42);
    locks.read(id);
    locks.semaphore(order);
    locks.fair(Some("report:daily"));
}

fn main() {}

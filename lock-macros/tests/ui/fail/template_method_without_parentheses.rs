use lock_runtime::{LockError, distributed_lock};

struct Order {
    id: u64,
}

impl Order {
    fn number(&self) -> u64 {
        self.id
    }
}

// rustc's help puts the parentheses behind the literal: `template_method_called_outside.rs` says where they belong.
#[distributed_lock(key = "order:{order.number}")]
async fn settle(order: &Order) -> Result<(), LockError> {
    let _ = order.number();
    Ok(())
}

fn main() {}

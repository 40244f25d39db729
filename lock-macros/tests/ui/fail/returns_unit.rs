use lock_runtime::distributed_lock;

#[distributed_lock(key = "a")]
async fn settle() -> () {}

macro_rules! returning {
    ($t:ty) => {
        #[distributed_lock(key = "a")]
        async fn of_a_macro() -> $t {}
    };
}

returning!(());

fn main() {}

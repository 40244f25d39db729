use lock_runtime::distributed_lock;

#[distributed_lock(key = "a", map_err = |error| panic!("{error}"))]
async fn serve() -> ! {
    loop {
        std::future::pending::<()>().await;
    }
}

fn main() {}

//! The signal that ends a backend's tasks.

use tokio::sync::watch;

/// Runs `work` until the backend is closed. An error of the channel means the same: the backend is gone.
pub(crate) async fn until_closed(
    mut closed: watch::Receiver<bool>,
    work: impl Future<Output = ()>,
) {
    tokio::select! {
        _ = closed.wait_for(|closed| *closed) => {}
        () = work => {}
    }
}

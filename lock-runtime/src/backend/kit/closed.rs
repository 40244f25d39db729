//! The signal that ends a backend's tasks.

use tokio::sync::watch;

/// Works until the backend is closed. An error of the channel means that the backend is gone: the same.
pub(crate) async fn until_closed(closed: &watch::Receiver<bool>, work: impl Future<Output = ()>) {
    let mut closed = closed.clone();
    tokio::select! {
        _ = closed.wait_for(|closed| *closed) => {}
        () = work => {}
    }
}

//! Listening for the wake-up messages of a key.

use super::Boxed;

/// A listener of a store that sends no messages.
pub(crate) struct SilentListener;

impl Listen for SilentListener {
    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(std::future::pending())
    }
}

/// A listener that receives the messages of two listeners.
pub(crate) struct Both(pub(crate) Box<dyn Listen>, pub(crate) Box<dyn Listen>);

impl Listen for Both {
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(async {
            self.0.ready().await;
            self.1.ready().await;
        })
    }

    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(async {
            tokio::select! {
                () = self.0.heard() => {}
                () = self.1.heard() => {}
            }
        })
    }
}

/// One listener's view of a key's wake-up messages.
pub(crate) trait Listen: Send + Sync {
    /// Resolves once the listener receives every message that is published from now on, or once it is clear that it
    /// will receive none.
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Waits until a message has arrived, or the subscription was renewed, since the last `heard` (or `listen`). No
    /// message is missed between two calls. A message is a hint and not a promise: the caller checks the store.
    fn heard(&mut self) -> Boxed<'_>;
}

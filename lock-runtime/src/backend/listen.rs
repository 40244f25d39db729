//! Listening for the wake-up messages of a key.

use super::Boxed;

/// Hears nothing: where there is no push.
pub(super) struct Deaf;

impl Listen for Deaf {
    fn heard(&mut self) -> Boxed<'_, u64> {
        Box::pin(std::future::pending())
    }
}

/// Hears what either of them hears.
pub(crate) struct Both(pub(crate) Box<dyn Listen>, pub(crate) Box<dyn Listen>);

impl Listen for Both {
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(async {
            self.0.ready().await;
            self.1.ready().await;
        })
    }

    fn heard(&mut self) -> Boxed<'_, u64> {
        Box::pin(async {
            tokio::select! {
                messages = self.0.heard() => messages,
                messages = self.1.heard() => messages,
            }
        })
    }
}

/// One listener's view of a key's wake-up messages.
pub(crate) trait Listen: Send + Sync {
    /// Resolves once messages published from now on will be heard, or it is clear that none will be.
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Waits until there was a message, or the subscription was renewed, since the last `heard` (or `listen`), and returns
    /// how many messages that were; 1 where they are not counted. Nothing is missed between two calls. A hint, not a
    /// promise: the caller looks for itself.
    fn heard(&mut self) -> Boxed<'_, u64>;
}

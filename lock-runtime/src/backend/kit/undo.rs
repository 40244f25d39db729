//! What undoes an acquire when nobody knows whether it happened.

/// Runs on drop unless it was disarmed. It is armed before a request is first polled and disarmed by a definite answer:
/// between them, a caller who goes away leaves nothing behind.
pub(crate) struct Undo<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Undo<F> {
    pub(crate) fn armed(undo: F) -> Undo<F> {
        Undo(Some(undo))
    }

    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Undo<F> {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

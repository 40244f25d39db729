//! A guard that undoes an acquire when its outcome is unknown, or nobody has seen it.

/// Runs a closure on drop unless the guard was disarmed. The guard is armed before a request is first polled, and
/// disarmed by a definite answer. If the caller drops the request in between, the acquire is undone. That of plain permits
/// is armed by the grant, and disarmed once the caller has it.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_guard_runs_at_its_drop_unless_it_was_disarmed() {
        let done = Cell::new(0);
        let undo = || Undo::armed(|| done.set(done.get() + 1));
        drop(undo());
        assert_eq!(done.get(), 1);
        undo().disarm();
        assert_eq!(done.get(), 1);
    }
}

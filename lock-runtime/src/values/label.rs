//! The name of a lock in logs and metrics.

/// Never the lock's name, which holds user data and is unbounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    /// The template, or what the request was labelled with.
    pub(crate) lock: &'static str,
    /// The store's name.
    pub(crate) store: &'static str,
    /// Whether it is a leader's lock, which may be held for as long as the process lives.
    pub(crate) leads: bool,
}

impl Label {
    /// The label of locks whose names are made of no template.
    pub(crate) const UNLABELLED: &'static str = "(unlabelled)";
}

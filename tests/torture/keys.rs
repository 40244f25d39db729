//! The keys that are fought for.

/// Keys that are always wanted and never kept for long: how soon one is held again tells how soon a fault is over.
pub(crate) const HOT: [&str; 3] = ["hot-1", "hot-2", "fair-1"];

/// The key of each task of a client.
pub(crate) const OF_TASKS: [&str; 8] = [
    "hot-1", "hot-1", "hot-1", "hot-2", "hot-2", "fair-1", "long-1", "long-2",
];

/// All of them.
pub(crate) const ALL: [&str; 5] = ["hot-1", "hot-2", "fair-1", "long-1", "long-2"];

pub(crate) fn is_fair(key: &str) -> bool {
    key.starts_with("fair")
}

pub(crate) fn is_long(key: &str) -> bool {
    key.starts_with("long")
}

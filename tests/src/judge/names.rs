//! What the names of keys and of holders say about them. The checks know no more of either.

/// Returns the name of the client that was started with this number.
pub fn client_name(number: usize) -> String {
    format!("c{number}")
}

/// Returns the name of the client that a holder, such as `c1.0.27`, is of.
pub fn client_of(holder: &str) -> &str {
    holder.split('.').next().unwrap_or_default()
}

/// Returns whether processes keep it between their holds.
pub fn is_kept(key: &str) -> bool {
    key.starts_with("keep")
}

/// Returns whether every hold of the key is renewed.
pub fn is_renewed(key: &str) -> bool {
    !key.starts_with("whole")
}

/// Returns whether the key has a queue. Places in fair queues and marks of waiting writers outlive their owners by more
/// than a lease.
pub fn has_queue(key: &str) -> bool {
    key.starts_with("fair") || key.starts_with("rw")
}

/// Returns whether the lock may be had before its holder says so. Only sets of several locks begin with this one. If
/// they are taken one by one, it is had while the next one is still waited for, and its holder says so when it has all.
pub fn is_had_before_said(key: &str) -> bool {
    key == "multi-1"
}

/// The number of permits of a semaphore.
pub const PERMITS: u64 = 3;

/// The part of a key's [`room`] that a writer takes: all of it.
pub const WRITER: u64 = 1_000;

/// Returns how much of a shared key can be held at a time. Readers take 1 each.
pub fn room(key: &str) -> u64 {
    if is_semaphore(key) { PERMITS } else { WRITER }
}

/// Returns whether the key is that of a semaphore.
pub fn is_semaphore(key: &str) -> bool {
    key.starts_with("sem")
}

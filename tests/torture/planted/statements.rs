//! Bugs of what a database does: see `postgres.rs` and `mysql.rs`.
//!
//! Client and server are the real ones. The proxy changes the text of a statement on its way.

use crate::site::Site;
use crate::statements::{Statement, filled};

/// A statement that reads another way on its way.
pub(crate) struct Twist {
    pub(super) statement: Statement,
    /// What stands in its file, once.
    is: &'static str,
    /// What the server reads.
    becomes: &'static str,
}

pub(super) const fn twist(statement: Statement, is: &'static str, becomes: &'static str) -> Twist {
    Twist {
        statement,
        is,
        becomes,
    }
}

/// Has the proxy forward the broken statements in place of the true ones.
///
/// # Panics
/// When a line is not there, or twice: the statement has changed, and the bug has to change with it.
pub(super) fn plant(broken: &'static [Twist], site: &mut Site) {
    for Twist { statement, is, .. } in broken {
        let times = statement.text().matches(is).count();
        assert_eq!(times, 1, "`{is}` stands there {times} times, not once");
    }
    site.database().proxy().rewrite(|words| {
        let [kind, sent] = words else { return None };
        let sent = std::str::from_utf8(sent).ok()?;
        let fits = broken
            .iter()
            .find_map(|twist| Some((twist.statement, twist.statement.fillings(sent)?)));
        let (statement, fillings) = fits?;
        let twists = broken
            .iter()
            .filter(|twist| twist.statement.0 == statement.0);
        let other = twists.fold(statement.text(), |text, twist| {
            text.replace(twist.is, twist.becomes)
        });
        let other = filled(&other, &fillings).expect("a bug has no gaps of its own");
        Some(vec![kind.to_vec(), other.into_bytes()])
    });
}

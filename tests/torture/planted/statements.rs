//! Bugs in what a database does: see `postgres.rs` and `mysql.rs`.
//!
//! Client and server are the real ones. The proxy changes the text of a statement on its way.

use crate::site::Site;
use crate::statements::{Statement, filled};
use tests::planted::stands_once;

/// A change of a statement on its way.
pub(crate) struct Twist {
    pub(super) statement: Statement,
    /// The text that stands in its file, once.
    is: &'static str,
    /// The text that the server reads.
    becomes: &'static str,
}

pub(super) const fn twist(statement: Statement, is: &'static str, becomes: &'static str) -> Twist {
    Twist {
        statement,
        is,
        becomes,
    }
}

/// Checks that each line is there, once. If not, the statement has changed, and the bug has to change with it.
///
/// # Errors
/// The message says which is not.
pub(super) fn check(broken: &[Twist]) -> Result<(), String> {
    let mut texts = broken.iter().map(|twist| (twist, twist.statement.text()));
    texts.try_for_each(|(twist, text)| stands_once(&text, twist.is))
}

/// Makes the proxy forward the broken statements in place of the true ones.
pub(super) fn plant(broken: &'static [Twist], site: &mut Site) {
    site.database().proxy().rewrite(|words| {
        let [kind, sent] = words else { return None };
        let sent = std::str::from_utf8(sent).ok()?;
        let fits = broken.iter().find_map(|twist| {
            let (text, fillings) = twist.statement.as_sent(sent)?;
            Some((twist.statement, text, fillings))
        });
        let (statement, text, fillings) = fits?;
        let twists = broken
            .iter()
            .filter(|twist| twist.statement.0 == statement.0);
        let other = twists.fold(text, |text, twist| text.replace(twist.is, twist.becomes));
        let other = filled(&other, &fillings).expect("a bug has no gaps of its own");
        Some(vec![kind.to_vec(), other.into_bytes()])
    });
}

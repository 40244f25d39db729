//! Lock names, and the escaping that keeps user data from colliding or steering.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::values::error::LockError;

/// The longest name, and the longest key with its namespace, in bytes.
pub(crate) const MAX_BYTES: usize = 512;

/// The name of a lock: 1 to 512 bytes with the manager's namespace before it (`lock:` by default), any characters.
///
/// A string given by the program is taken byte for byte (`From<&str>`, `From<String>`). Values that come from
/// users belong through `key!("order:{id}")`, the attribute's template, or [`LockName::with`]: they are escaped,
/// so that no value can contain the characters that structure a name. A name that breaks the rules is refused
/// with [`LockError::InvalidName`] by the request that uses it, before any I/O.
///
/// ```
/// use lock_runtime::LockName;
///
/// let name = LockName::from("order:").with(&"a:b{c}");
/// assert_eq!(name.as_str(), "order:a%3Ab%7Bc%7D");
/// ```
///
/// Two names are equal if they name the same lock, by whichever template.
#[derive(Clone, Debug)]
pub struct LockName {
    text: String,
    label: Option<&'static str>,
    fault: Option<&'static str>,
}

impl PartialEq for LockName {
    fn eq(&self, other: &LockName) -> bool {
        self.text == other.text && self.fault == other.fault
    }
}

impl Eq for LockName {}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl LockName {
    /// The name as text, escapes included.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Appends a value, escaped: `A–Z a–z 0–9 _ - .` stay, every other byte becomes `%XX`.
    ///
    /// Put a literal with a `:` or `/` between two values (see [`literal`](LockName::literal)), or
    /// `("ab", "c")` and `("a", "bc")` are the same name. An empty value makes the name invalid.
    #[must_use]
    pub fn with(mut self, value: &(impl KeyPart + ?Sized)) -> LockName {
        let before = self.text.len();
        let written = value.key_part(&mut Escape {
            out: &mut self.text,
        });
        self.judge(before, written);
        self
    }

    /// Says what is wrong with the value that was written last. Apart from `with`, which is compiled for each type.
    fn judge(&mut self, before: usize, written: fmt::Result) {
        if written.is_err() {
            let too_long = self.text.len() > MAX_BYTES;
            self.fault.get_or_insert(if too_long {
                TOO_LONG
            } else {
                "a value's `Display` failed"
            });
        } else if self.text.len() == before {
            self.fault.get_or_insert("a value in it is empty");
        }
    }

    /// Appends text as it is.
    #[must_use]
    pub fn literal(mut self, text: &str) -> LockName {
        self.text.push_str(text);
        self
    }

    /// Names the template that this name was made from: what logs and metrics are labelled by.
    #[must_use]
    pub fn template(mut self, template: &'static str) -> LockName {
        self.label = Some(template);
        self
    }

    pub(crate) fn label(&self) -> Option<&'static str> {
        self.label
    }

    pub(crate) fn check(&self) -> Result<(), LockError> {
        let why = match self.fault {
            Some(fault) => fault,
            None if self.text.is_empty() => "a name has 1 byte at least",
            None if self.text.len() > MAX_BYTES => TOO_LONG,
            None => return Ok(()),
        };
        Err(invalid(&self.text, why))
    }
}

const TOO_LONG: &str = "a name has 512 bytes at most";

pub(crate) fn invalid(name: &str, why: impl Into<String>) -> LockError {
    const SHOWN: usize = 80;
    let shown = if name.chars().count() > SHOWN {
        name.chars().take(SHOWN).chain(['…']).collect()
    } else {
        name.to_owned()
    };
    LockError::InvalidName {
        name: shown,
        why: why.into(),
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<String> for LockName {
    fn from(text: String) -> LockName {
        LockName {
            text,
            label: None,
            fault: None,
        }
    }
}

impl From<&str> for LockName {
    fn from(text: &str) -> LockName {
        LockName::from(text.to_owned())
    }
}

impl From<&String> for LockName {
    fn from(text: &String) -> LockName {
        LockName::from(text.as_str())
    }
}

impl From<&LockName> for LockName {
    fn from(name: &LockName) -> LockName {
        name.clone()
    }
}

/// A type that can name a lock: every type that is `Into<LockName>`, so strings, a [`LockName`], and types of your own
/// for which you implement `From<YourType> for LockName`.
///
/// ```
/// use lock_runtime::{LockManager, LockName};
///
/// struct OrderId(u64);
///
/// impl From<OrderId> for LockName {
///     fn from(id: OrderId) -> LockName {
///         LockName::from("order:").with(&id.0)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.mutex(OrderId(17)).acquire().await?;
/// assert_eq!(guard.name(), "order:17");
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the name of a lock",
    label = "expected a string or a `LockName`",
    note = "to put a value into a name, write `key!(\"order:{{id}}\")`, or in the attribute `key = \"order:{{id}}\"`",
    note = "a name without values is a string, such as \"report:daily\""
)]
pub trait IntoLockName {
    /// Makes the name.
    fn into_lock_name(self) -> LockName;
}

#[diagnostic::do_not_recommend]
impl<T: Into<LockName>> IntoLockName for T {
    fn into_lock_name(self) -> LockName {
        self.into()
    }
}

/// A value that can stand in a key template. Implemented for everything that is [`Display`](fmt::Display).
///
/// For a type without `Display`:
///
/// ```
/// use std::fmt;
/// use lock_runtime::{KeyPart, LockName};
///
/// struct Region { country: &'static str, city: &'static str }
///
/// impl KeyPart for Region {
///     fn key_part(&self, out: &mut dyn fmt::Write) -> fmt::Result {
///         write!(out, "{}/{}", self.country, self.city)
///     }
/// }
///
/// let region = Region { country: "is", city: "höfn" };
/// let name = LockName::from("stock:").with(&region);
/// assert_eq!(name.as_str(), "stock:is%2Fh%C3%B6fn");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a lock key",
    label = "this value has no `Display`",
    note = "a placeholder needs a type that implements `Display`, such as an id: name a field of it, `{{order.id}}`",
    note = "or implement `lock_runtime::KeyPart` for `{Self}`"
)]
pub trait KeyPart {
    /// Writes the value. The caller escapes what is written.
    ///
    /// # Errors
    /// Whatever `out` or the value's own formatting returns.
    fn key_part(&self, out: &mut dyn fmt::Write) -> fmt::Result;
}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display + ?Sized> KeyPart for T {
    fn key_part(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "{self}")
    }
}

/// Percent-encodes what is written through it, and stops soon after the longest name.
struct Escape<'a> {
    out: &'a mut String,
}

impl fmt::Write for Escape<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') {
                self.out.push(char::from(byte));
            } else {
                fmt::Write::write_fmt(self.out, format_args!("%{byte:02X}"))?;
            }
            if self.out.len() > MAX_BYTES {
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(name: LockName) -> String {
        match name.check() {
            Err(LockError::InvalidName { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn literal_names_are_taken_byte_for_byte() {
        for text in ["a", "order:{1}", "a\0b", "\r\n", "größe", " "] {
            let name = LockName::from(text);
            assert!(name.check().is_ok());
            assert_eq!(name.as_str(), text);
        }
    }

    #[test]
    fn values_cannot_contain_what_structures_a_name() {
        let name = LockName::from("k:").with(&"a:b{c}%d é\0");
        assert_eq!(name.as_str(), "k:a%3Ab%7Bc%7D%25d%20%C3%A9%00");
        let kept = "Az09_-.";
        assert_eq!(LockName::from("").with(kept).as_str(), kept);
    }

    #[test]
    fn different_values_give_different_names() {
        let name = |a: &str, b: &str| LockName::from("").with(a).literal(":").with(b);
        assert_ne!(name("a:b", "c"), name("a", "b:c"));
        assert_ne!(name("a%3Ab", "c"), name("a:b", "c"));
    }

    #[test]
    fn names_of_one_lock_are_equal_and_a_bad_name_differs() {
        let plain = LockName::from("order:17");
        let of_template = LockName::from("order:").with("17").template("order:{id}");
        assert_eq!(plain, of_template);
        let both = std::collections::HashSet::from([plain, of_template]);
        assert_eq!(both.len(), 1);
        assert_ne!(LockName::from("order:").with(""), LockName::from("order:"));
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        assert_eq!(why(LockName::from("")), "a name has 1 byte at least");
        assert_eq!(why(LockName::from("x".repeat(513))), TOO_LONG);
        assert!(LockName::from("x".repeat(512)).check().is_ok());
        assert_eq!(
            why(LockName::from("order:").with("")),
            "a value in it is empty"
        );
        assert_eq!(why(LockName::from("").with(&"x".repeat(1 << 20))), TOO_LONG);
    }

    #[test]
    fn a_long_name_is_shortened_in_its_error() {
        let error = LockName::from("ü".repeat(400)).check().unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}

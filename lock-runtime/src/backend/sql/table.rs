//! A table's name.

use std::sync::{Arc, OnceLock};

use crate::backend::Fault;
use crate::values::{LockError, config};

/// A table, by a name that needs no quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// The name that the user gave.
    name: String,
    /// The name with its schema, once that is known. The clones share it.
    whole: Arc<OnceLock<String>>,
}

/// The longest name of a table, in bytes. PostgreSQL cuts names at 63 bytes, and MySQL has 64. The second table's name
/// is longer by `_managers`.
const LONGEST_NAME: usize = 63 - "_managers".len();

/// The columns that the tables of all databases have.
const COLUMNS: [&str; 12] = [
    "name",
    "kind",
    "holder",
    "expires_at",
    "token",
    "last_token",
    "counter",
    "shares",
    "writer_until",
    "polled_until",
    "queue",
    "permits",
];

impl Table {
    /// The name, unless the user gives one.
    pub(crate) const NAME: &str = "lock_leases";

    pub(crate) fn parse(name: &str) -> Result<Table, LockError> {
        if !is_table(name) {
            return Err(config(
                "`lock_table` is the name of a table, `leases` or `schema.leases`, of the characters a-z, 0-9 and _",
            ));
        }
        let whole = OnceLock::new();
        if name.contains('.') {
            let _ = whole.set(name.to_owned());
        }
        Ok(Table {
            name: name.to_owned(),
            whole: Arc::new(whole),
        })
    }

    /// Returns the name that the user gave.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Notes the schema in which the table was found, in quotes where it needs them. The first schema counts for good:
    /// a manager that changed its table would not see the locks that it has granted.
    pub(crate) fn found_in(&self, schema: &str) {
        let _ = self.whole.set(format!("{schema}.{}", self.name));
    }

    /// Returns `true` if the schema is known.
    pub(crate) fn is_found(&self) -> bool {
        self.whole.get().is_some()
    }

    /// Returns the name with its schema if that is known, else the name that the user gave.
    pub(crate) fn whole(&self) -> &str {
        self.whole.get().unwrap_or(&self.name)
    }

    /// Returns what stands before the table's own name in its whole name, with the dot.
    pub(crate) fn before_name(&self) -> &str {
        let whole = self.whole();
        whole.strip_suffix(self.own_name()).unwrap_or_default()
    }

    /// Returns a statement with the table's name in place of `{table}`. The schema stands before the name, so that no
    /// setting of the session decides which table it is: other clients of a pooler may have left theirs.
    pub(crate) fn put_into(&self, text: &str) -> String {
        text.replace("{table}", self.whole())
    }

    /// Refuses a table with these columns, with spaces between them, if it cannot be used. `own` are the columns that
    /// only this database needs.
    pub(crate) fn check_columns(&self, own: &[&str], columns: Option<&str>) -> Result<(), Fault> {
        let columns: Vec<&str> = columns.unwrap_or_default().split(' ').collect();
        let mut wanted = COLUMNS.iter().chain(own);
        match wanted.find(|column| !columns.contains(column)) {
            None => Ok(()),
            Some(missing) => Err(Fault::Impossible(format!(
                "the table `{}` has no column `{missing}`: it is not the table of this version",
                self.name
            ))),
        }
    }

    /// Returns the name without that of its schema.
    pub(crate) fn own_name(&self) -> &str {
        self.name
            .rsplit_once('.')
            .map_or(&*self.name, |(_, name)| name)
    }
}

/// Returns `true` if this is a table's name, `name` or `schema.name`, that needs no quotes.
pub(crate) fn is_table(name: &str) -> bool {
    let is_word = |word: &str| {
        let mut letters = word.bytes();
        letters
            .next()
            .is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
            && letters
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            && word.len() <= LONGEST_NAME
    };
    let words: Vec<&str> = name.split('.').collect();
    words.len() <= 2 && words.into_iter().all(is_word)
}

//! The statements by name, with their arguments and answers.
//!
//! A statement of one name has the same arguments on every database, and answers with the same columns.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::topic::topic;
use crate::backend::{Fault, HoldRef};
use crate::values::Ttl;

/// A statement as it is sent.
#[derive(Debug)]
pub(crate) struct Statement {
    /// The statement's name in metrics.
    pub(crate) name: &'static str,
    /// The text. `{table}` stands for the table's name with its schema, which the first connection finds.
    pub(crate) text: String,
}

impl Statement {
    pub(crate) fn new(name: &'static str, text: String) -> Arc<Statement> {
        Arc::new(Statement { name, text })
    }

    /// Returns `true` if the statement needs the table of the locks alone, which every connection has been checked for.
    pub(crate) fn is_about_locks(&self) -> bool {
        !self.text.contains("{table}_")
    }
}

macro_rules! statements {
    ($($name:ident),+ $(,)?) => {
        /// All statements for one table.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: Arc<Statement>,)+
        }

        #[cfg(test)]
        impl Statements {
            pub(crate) fn all(&self) -> Vec<&Statement> {
                vec![$(&*self.$name,)+]
            }
        }

        /// Makes the statements of the files in the folder `sql` beside the file that calls it. `text` turns the text of a
        /// file into that of a statement.
        macro_rules! statements_of {
            ($text:expr) => {
                $crate::backend::sql::Statements {
                    $($name: $crate::backend::sql::Statement::new(
                        stringify!($name),
                        $text(include_str!(concat!("sql/", stringify!($name), ".sql"))),
                    ),)+
                }
            };
        }
        pub(crate) use statements_of;
    };
}

statements! {
    schema, fitness, alive, acquire, take_over, acquire_all, why_not_all, insert, look, wait,
    release, settle, hand_over, renew, renew_shares, check, read, release_share, downgrade, take_turn,
    queue_up, leave_queue, acquire_permits, set_counter, limit_counter, add_permits, take_permits, count_down,
    delete_counter, draw_ids, force_release, introduce, withdraw, who, give_to_transaction, take_back,
}

/// Returns a file's text without comments.
pub(crate) fn without_comments(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}

/// One argument of a statement.
#[derive(Debug)]
pub(crate) enum Arg {
    Text(String),
    Number(i64),
    Flag(bool),
    /// A moment of the database's clock.
    Moment(SystemTime),
    Texts(Vec<String>),
    Numbers(Vec<i64>),
}

impl Arg {
    pub(crate) fn text(text: &str) -> Arg {
        Arg::Text(text.to_owned())
    }

    /// Returns a moment of the database's clock, given in µs since 1970.
    pub(crate) fn moment(micros: u64) -> Arg {
        // PostgreSQL's last moment is in the year 294,276. This one, in the year 2255, is late enough for leases that
        // never end.
        const LAST: u64 = 9_000_000_000_000_000_000 / 1_000;
        Arg::Moment(SystemTime::UNIX_EPOCH + Duration::from_micros(micros.min(LAST)))
    }

    /// Returns a number, which fits in practice.
    pub(crate) fn count(number: u64) -> Arg {
        Arg::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub(crate) fn micros(duration: Duration) -> Arg {
        Arg::Number(micros(duration))
    }

    pub(crate) fn leases(ttls: impl Iterator<Item = Ttl>) -> Arg {
        Arg::Numbers(ttls.map(|ttl| micros(ttl.duration())).collect())
    }
}

/// Returns the name, the holder and the topic of the waiters.
pub(crate) fn named(hold_ref: HoldRef<'_>) -> Vec<Arg> {
    vec![
        Arg::text(hold_ref.key.raw()),
        Arg::Text(hold_ref.holder.text()),
        Arg::Text(topic(hold_ref.key)),
    ]
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// One row of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row(pub(crate) Vec<Value>);

/// One column of a row. A boolean is 1 or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Number(i64),
    Text(String),
}

impl Row {
    fn column(&self, column: usize) -> Result<&Value, Fault> {
        self.0.get(column).ok_or_else(malformed)
    }

    /// Returns the value of a column; `None` if it has none.
    pub(crate) fn signed(&self, column: usize) -> Result<Option<i64>, Fault> {
        match self.column(column)? {
            Value::Null => Ok(None),
            Value::Number(number) => Ok(Some(*number)),
            // A text protocol sends numbers as texts.
            Value::Text(text) => text.parse().map(Some).map_err(|_| malformed()),
        }
    }

    /// Returns the number in a column. It is zero if the column has no value, or one below zero.
    pub(crate) fn number(&self, column: usize) -> Result<u64, Fault> {
        let number = self.signed(column)?.unwrap_or(0);
        Ok(u64::try_from(number).unwrap_or(0))
    }

    pub(crate) fn flag(&self, column: usize) -> Result<bool, Fault> {
        Ok(self.number(column)? != 0)
    }

    /// Returns the value of a column; `None` if it has none.
    pub(crate) fn text(&self, column: usize) -> Result<Option<&str>, Fault> {
        match self.column(column)? {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            Value::Number(_) => Err(malformed()),
        }
    }

    /// Returns the text in a column that must have a value.
    pub(crate) fn word(&self, column: usize) -> Result<String, Fault> {
        let text = self.text(column)?.ok_or_else(malformed)?;
        Ok(text.to_owned())
    }
}

/// Returns the fault of an answer that none of our statements gives.
pub(crate) fn malformed() -> Fault {
    Fault::unknown("the database's answer makes no sense")
}

/// The checks that the tests of every database's statements make.
#[cfg(test)]
pub(crate) mod checks {
    use super::*;

    /// Checks that every file says what it does and what its arguments are.
    pub(crate) fn headers_are_complete(folder: &str) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let header: String = text
                .lines()
                .take_while(|line| line.starts_with("--"))
                .collect();
            assert!(!header.is_empty(), "{}", path.display());
            let used = (1..=9).filter(|n| text.replace(&header, "").contains(&format!("${n}")));
            for argument in used {
                assert!(
                    header.contains(&format!("${argument} ")),
                    "${argument} of {}",
                    path.display()
                );
            }
        }
    }

    /// Checks that no statement has a comment or a placeholder left.
    pub(crate) fn nothing_is_left_open(statements: &Statements) {
        for statement in statements.all() {
            let (name, text) = (statement.name, &statement.text);
            let text = text.replace("{table}", "t").replace("{notify}", "f");
            assert!(!text.contains("--"), "{name}: {text}");
            let opened = text.split('{').skip(1);
            let open = opened.filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
            assert_eq!(open.count(), 0, "{name}: {text}");
        }
    }
}

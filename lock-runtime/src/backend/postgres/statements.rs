//! The statements, with the table's name in them, and what they are called with.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_postgres::types::{ToSql, Type};

use super::url::Table;

/// What several statements say the same way. `c.now` is the time of the statement, by the database's clock.
const FRAGMENTS: [(&str, &str); 8] = [
    // Readers or permits whose lease is not over; NULL if there are none.
    (
        "{live}",
        "(SELECT jsonb_object_agg(s.key, s.value) FROM jsonb_each(l.shares) AS s \
         WHERE (s.value -> 0)::bigint > {micros})",
    ),
    (
        "{live_now}",
        "(SELECT jsonb_object_agg(s.key, s.value) FROM jsonb_each(l.shares) AS s \
         WHERE (s.value -> 0)::bigint > {micros_now})",
    ),
    // How many permits are leased.
    (
        "{used}",
        "coalesce((SELECT sum((s.value -> 1)::bigint) FROM jsonb_each(l.shares) AS s \
         WHERE (s.value -> 0)::bigint > {micros}), 0)::bigint",
    ),
    (
        "{used_by_others}",
        "coalesce((SELECT sum((s.value -> 1)::bigint) FROM jsonb_each(l.shares) AS s \
         WHERE (s.value -> 0)::bigint > {micros} AND s.key <> $2), 0)::bigint",
    ),
    // Whether no other transaction has locked the row. `xmax` names the last one that did, and not whether it is over:
    // who can lock the row knows.
    ("{not_locked}", "(l.xmax = '0' OR {can_lock})"),
    (
        "{can_lock}",
        "EXISTS (SELECT FROM {table} AS s WHERE s.name = $1 FOR NO KEY UPDATE SKIP LOCKED)",
    ),
    // The queue of a fair lock without the holder $2 and those who were silent for too long.
    (
        "{queue_without}",
        "(SELECT jsonb_agg(q.e ORDER BY q.n) FROM jsonb_array_elements(l.queue) WITH ORDINALITY AS q (e, n) \
         WHERE q.e ->> 'h' <> $2 AND (q.e -> 'd')::bigint > {micros_now})",
    ),
    ("{micros}", "(extract(epoch FROM c.now) * 1000000)::bigint"),
];

const MICROS_NOW: (&str, &str) = (
    "{micros_now}",
    "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
);

/// A statement as it is sent.
#[derive(Debug)]
pub(super) struct Statement {
    /// What metrics call it.
    pub(super) name: &'static str,
    pub(super) text: String,
}

/// Without comments.
fn filled(name: &'static str, text: &str, table: &Table) -> Arc<Statement> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    let mut text = lines.collect::<Vec<_>>().join("\n");
    for (name, fragment) in FRAGMENTS.into_iter().chain([MICROS_NOW]) {
        text = text.replace(name, fragment);
    }
    text = text.replace("{channel}", table.channel());
    let text = text.replace("{table}", table.name());
    Arc::new(Statement { name, text })
}

macro_rules! statements {
    ($($name:ident),+ $(,)?) => {
        /// All of them, for one table.
        #[derive(Debug)]
        pub(super) struct Statements {
            $(pub(super) $name: Arc<Statement>,)+
        }

        impl Statements {
            pub(super) fn of(table: &Table) -> Statements {
                Statements {
                    $($name: filled(
                        stringify!($name),
                        include_str!(concat!("sql/", stringify!($name), ".sql")),
                        table,
                    ),)+
                }
            }

            #[cfg(test)]
            pub(super) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((self.$name.name, &*self.$name.text),)+]
            }
        }
    };
}

statements!(
    schema,
    fitness,
    alive,
    acquire,
    take_over,
    acquire_all,
    why_not_all,
    insert_all,
    insert,
    look,
    wait,
    release,
    settle,
    hand_over,
    renew,
    renew_shares,
    check,
    read,
    release_share,
    downgrade,
    take_turn,
    queue_up,
    leave_queue,
    give_to_transaction,
    take_back,
    acquire_permits,
    set_counter,
    limit_counter,
    add_permits,
    take_permits,
    count_down,
    delete_counter,
    force_release,
    introduce,
    withdraw,
    who,
);

/// One argument of a statement. Its type is sent with it, so that no statement has to be prepared by name: names do not
/// survive a pooler that gives every transaction another connection.
#[derive(Debug)]
pub(super) enum Arg {
    Text(String),
    Number(i64),
    Flag(bool),
    /// A moment of the database's clock, in µs since 1970.
    Moment(SystemTime),
    Texts(Vec<String>),
    Numbers(Vec<i64>),
}

impl Arg {
    pub(super) fn text(text: &str) -> Arg {
        Arg::Text(text.to_owned())
    }

    pub(super) fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Arg::Text(text) => (text, Type::TEXT),
            Arg::Number(number) => (number, Type::INT8),
            Arg::Flag(flag) => (flag, Type::BOOL),
            Arg::Moment(moment) => (moment, Type::TIMESTAMPTZ),
            Arg::Texts(texts) => (texts, Type::TEXT_ARRAY),
            Arg::Numbers(numbers) => (numbers, Type::INT8_ARRAY),
        }
    }

    /// A moment of the database's clock.
    pub(super) fn moment(micros: u64) -> Arg {
        // PostgreSQL's last moment is in the year 294,276: what is beyond it is never over.
        const LAST: u64 = 9_000_000_000_000_000_000 / 1_000;
        Arg::Moment(SystemTime::UNIX_EPOCH + Duration::from_micros(micros.min(LAST)))
    }

    /// A number that fits, in practice.
    pub(super) fn count(number: u64) -> Arg {
        Arg::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub(super) fn micros(duration: Duration) -> Arg {
        Arg::Number(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_statement_has_a_comment_or_a_placeholder_left() {
        let statements = Statements::of(&Table::default());
        for (name, text) in statements.all() {
            assert!(!text.contains("--"), "{name}: {text}");
            for word in [
                "{table}",
                "{channel}",
                "{micros",
                "{live",
                "{used",
                "{queue",
                "{not",
                "{can",
            ] {
                assert!(!text.contains(word), "{name}: {text}");
            }
        }
    }

    #[test]
    fn every_statement_says_what_it_does_and_what_its_arguments_are() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/postgres/sql");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let header: String = text
                .lines()
                .take_while(|line| line.starts_with("--"))
                .collect();
            assert!(!header.is_empty(), "{}", path.display());
            let used = (1..=9).take_while(|n| text.replace(&header, "").contains(&format!("${n}")));
            for argument in used {
                assert!(
                    header.contains(&format!("${argument} ")),
                    "${argument} of {}",
                    path.display()
                );
            }
        }
    }
}

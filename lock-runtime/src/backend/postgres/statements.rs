//! The statements with the table's name filled in, and the types of their arguments.

use tokio_postgres::types::{ToSql, Type};

use crate::backend::sql::statements::{statements_of, without_comments};
use crate::backend::sql::{Arg, Statement, Statements, Table};

/// The fragments that several statements share. `c.now` is the time of the statement, by the database's clock. A fragment
/// may use those that come after it.
const FRAGMENTS: [(&str, &str); 14] = [
    // True if the number of permits was set by a request, $6 may take its place, and no lease is left.
    (
        "{is_over}",
        "($6 >= $5 AND {is_by_request} AND {live_now} IS NULL)",
    ),
    // True if neither a lock nor a semaphore is at the name.
    (
        "{is_unused}",
        "(l.permits IS NULL AND (l.holder IS NULL OR l.expires_at <= clock_timestamp()) \
         AND (l.shares IS NULL OR {live_now} IS NULL))",
    ),
    // True if a request has set the semaphore, and only $2 has permits. Without $2, the semaphore is no longer set.
    (
        "{leaves_last}",
        "(coalesce({live_now}, '{}') - $2 = '{}' AND {is_by_request})",
    ),
    // True if the semaphore was set by a request, which names the number of permits in all. `expires_at` is then as
    // many µs after 1970, which is the end of no hold. For a semaphore that was set by hand, it is 1970 itself.
    (
        "{is_by_request}",
        "(CASE WHEN l.permits > 0 THEN l.expires_at = timestamptz 'epoch' + l.permits * interval '1 microsecond' END)",
    ),
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
    // The number of leased permits.
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
    // True if no other transaction has locked the row. `xmax` names the last transaction that did, but does not say
    // whether it is over. An attempt to lock the row says that.
    ("{not_locked}", "(l.xmax = '0' OR {can_lock})"),
    (
        "{can_lock}",
        "EXISTS (SELECT FROM {table} AS s WHERE s.name = $1 FOR NO KEY UPDATE SKIP LOCKED)",
    ),
    // The queue of a fair lock without the holder $2 and the waiters that were silent for too long.
    (
        "{queue_without}",
        "(SELECT jsonb_agg(q.e ORDER BY q.n) FROM jsonb_array_elements(l.queue) WITH ORDINALITY AS q (e, n) \
         WHERE q.e ->> 'h' <> $2 AND (q.e -> 'd')::bigint > {micros_now})",
    ),
    // Longer than any hold. An operator may set the end of a hold to `infinity`, which is no number of µs from now.
    ("{longest}", "interval '100 years'"),
    ("{micros}", "(extract(epoch FROM c.now) * 1000000)::bigint"),
    (
        "{micros_now}",
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    ),
];

/// Returns all statements for one table.
pub(super) fn statements(table: &Table) -> Statements {
    let filled = |text| filled(text, table);
    statements_of!(filled)
}

fn filled(text: &str, table: &Table) -> String {
    let mut text = without_comments(text);
    for (name, fragment) in FRAGMENTS {
        text = text.replace(name, fragment);
    }
    text.replace("{channel}", table.own_name())
}

/// Returns the statements that look for the table.
pub(super) fn look_for(table: &Table) -> String {
    without_comments(include_str!("sql/find.sql")).replace("{name}", table.name())
}

/// Returns the statements that create what is missing.
pub(super) fn creation(table: &Table, schema: &Statement) -> String {
    let text = without_comments(include_str!("sql/create.sql")).replace("{name}", table.name());
    let schema = table.put_into(&schema.text);
    text.replace("{schema}", schema.trim_end().trim_end_matches(';'))
}

/// Returns an argument with its type. The type is sent with it, so that no statement has to be prepared by name: names
/// do not survive a pooler that gives every transaction another connection.
pub(super) fn typed(arg: &Arg) -> (&(dyn ToSql + Sync), Type) {
    match arg {
        Arg::Text(text) => (text, Type::TEXT),
        Arg::Number(number) => (number, Type::INT8),
        Arg::Flag(flag) => (flag, Type::BOOL),
        Arg::Moment(moment) => (moment, Type::TIMESTAMPTZ),
        Arg::Texts(texts) => (texts, Type::TEXT_ARRAY),
        Arg::Numbers(numbers) => (numbers, Type::INT8_ARRAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sql::kinds::renewals::checks::some_renewals_wait;
    use crate::backend::sql::statements::checks;

    #[test]
    fn no_statement_has_a_comment_or_a_placeholder_left() {
        checks::nothing_is_left_open(&statements(&Table::parse(Table::NAME).unwrap()));
    }

    #[test]
    fn renewals_leave_out_locked_rows_unless_they_wait_for_theirs() {
        some_renewals_wait(&statements(&Table::parse(Table::NAME).unwrap()));
    }

    #[test]
    fn every_statement_says_what_it_does_and_what_its_arguments_are() {
        checks::headers_are_complete("src/backend/postgres/sql");
    }
}

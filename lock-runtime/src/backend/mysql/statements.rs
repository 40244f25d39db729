//! The statements with the table's name filled in, and the writing of arguments into them.
//!
//! Arguments stand in the text, and texts stand there as hexadecimal literals. So no setting of a session changes what
//! they mean, and no statement has to be prepared.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::UNIX_EPOCH;

use super::url::MysqlTarget;
use crate::backend::sql::statements::{statements_of, without_comments};
use crate::backend::sql::{Arg, Statements, topic};

/// The fragments that several statements share. A fragment may use those that come after it.
const FRAGMENTS: [(&str, &str); 21] = [
    // True if the number of permits was set by a request, $6 may take its place, and no lease is left.
    (
        "{is_over}",
        "($6 >= $5 AND {is_by_request} AND {live} IS NULL)",
    ),
    // True if neither a lock nor a semaphore is at the name.
    (
        "{is_unused}",
        "(permits IS NULL AND (holder IS NULL OR expires_at <= {micros}) AND (shares IS NULL OR {live} IS NULL))",
    ),
    // True if the semaphore was set by a request, which names the number of permits in all. `expires_at` is then as
    // many µs after 1970, which is the end of no hold. For a semaphore that was set by hand, it is 1970 itself.
    ("{is_by_request}", "(permits > 0 AND permits = expires_at)"),
    // True if a request had set the semaphore, and it is no longer set. An older version that sets a semaphore by hand
    // leaves that column alone.
    (
        "{was_by_request}",
        "(permits IS NULL AND expires_at BETWEEN 1 AND 1000000000000)",
    ),
    ("{unlocked}", UNLOCKED),
    // Readers or permits whose lease is not over; NULL if there are none.
    ("{live}", "({the_shares} WHERE s.e > {micros})"),
    // The same, and all of them, without those of the holder $2.
    (
        "{live_others}",
        "({the_shares} WHERE s.e > {micros} AND s.h <> $2)",
    ),
    ("{others}", "({the_shares} WHERE s.h <> $2)"),
    (
        "{the_shares}",
        "SELECT JSON_ARRAYAGG(JSON_OBJECT('h', s.h, 'e', s.e, 'u', s.u)) FROM {shared} AS s",
    ),
    // The number of leased permits.
    (
        "{used}",
        "COALESCE((SELECT SUM(s.u) FROM {shared} AS s WHERE s.e > {micros}), 0)",
    ),
    (
        "{used_by_others}",
        "COALESCE((SELECT SUM(s.u) FROM {shared} AS s WHERE s.e > {micros} AND s.h <> $2), 0)",
    ),
    // The queue of a fair lock without the holder $2 and the waiters that were silent for too long.
    (
        "{queue_without}",
        "(SELECT JSON_ARRAYAGG(JSON_OBJECT('h', q.h, 'n', q.n, 'd', q.d)) FROM {queued} AS q \
         WHERE q.h <> $2 AND q.d > {micros})",
    ),
    (
        "{is_in_queue}",
        "JSON_CONTAINS(COALESCE(l.queue, '[]'), JSON_OBJECT('h', {me}))",
    ),
    (
        "{is_in_shares}",
        "JSON_CONTAINS(COALESCE(l.shares, '[]'), JSON_OBJECT('h', {me}))",
    ),
    ("{me}", "CONVERT($2 USING utf8mb4)"),
    // The last id of the source $3. A new source has given the ids before now; if it shuffles, all ids of this block.
    (
        "{last_id}",
        "(CASE WHEN kind = 'ids' AND holder = $3 AND expires_at > {micros} THEN token \
         WHEN $3 = 'ids' THEN @id - 1 ELSE (@id DIV 4194304 + 1) * 4194304 - 1 END)",
    ),
    ("{is_primary}", IS_PRIMARY),
    (
        "{shared}",
        "JSON_TABLE(COALESCE(l.shares, '[]'), '$[*]' COLUMNS \
         (h VARCHAR(64) PATH '$.h', e BIGINT PATH '$.e', u BIGINT PATH '$.u'))",
    ),
    (
        "{queued}",
        "JSON_TABLE(COALESCE(l.queue, '[]'), '$[*]' COLUMNS \
         (h VARCHAR(64) PATH '$.h', n BIGINT PATH '$.n', d BIGINT PATH '$.d'))",
    ),
    // Arguments that are lists, side by side: `c1` has an element of $1. Texts are hexadecimal.
    (
        "{rows}",
        "JSON_TABLE('{the_rows}', '$[*]' COLUMNS (c1 VARCHAR(1024) PATH '$[0]', c2 VARCHAR(256) PATH '$[1]', \
         c3 BIGINT PATH '$[2]', c5 BIGINT PATH '$[4]'))",
    ),
    // The lists $1, $2 and $3, a row for each name.
    (
        "{groups}",
        "JSON_TABLE('{the_groups}', '$[*]' COLUMNS (name VARCHAR(1024) PATH '$[0]', leases JSON PATH '$[1]'))",
    ),
];

/// The name $1, if nobody has locked its row.
const UNLOCKED: &str = "(SELECT f.name FROM {table} AS f WHERE f.name = $1 FOR UPDATE SKIP LOCKED)";

/// True unless the server has become a replica. A user who may write to replicas is not refused by the server itself.
pub(super) const IS_PRIMARY: &str = "CAST(@@read_only AS CHAR) IN ('0', 'OFF')";

/// The server's time in µs. `UTC_TIMESTAMP` is the time at which the statement began, before it waited for a row. `SYSDATE`
/// says for how long it has run. So no time zone has a say: a proxy may send a statement to a session with other settings.
/// Where summer time begins or ends meanwhile, the difference has half hours too many or too few. They are taken away: no
/// statement runs for a quarter of an hour.
pub(super) const MICROS: &str = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) \
     + MOD(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 18900000000, 1800000000) - 900000000)";

/// Returns all statements for one table.
pub(super) fn statements(target: &MysqlTarget) -> Statements {
    let filled = |text| filled(text, target);
    statements_of!(filled)
}

/// Returns the text of a statement, changed so that it does not wait for a row that somebody has locked.
pub(super) fn unwaiting(text: &str) -> String {
    let text = text.replace("l.name = $1", "l.name = @unlocked");
    format!("SET @unlocked = {UNLOCKED}; {text}")
}

/// Returns the text of a file as a statement. `{table}` is left in it.
pub(super) fn filled(text: &str, target: &MysqlTarget) -> String {
    let table = &target.table;
    let given = table.name().split_once('.').map(|(schema, _)| schema);
    let schema = given.or_else(|| target.database());
    let schema = schema.map_or("NULL".to_owned(), |name| {
        format!("'{}'", name.replace('\\', "\\\\").replace('\'', "''"))
    });
    let mut text = without_comments(text);
    for (name, fragment) in FRAGMENTS {
        text = text.replace(name, fragment);
    }
    text.replace("{micros}", MICROS)
        .replace("{own_name}", table.own_name())
        // A name that the user chose comes last, so nothing in it is replaced.
        .replace("{schema}", &schema)
}

/// Returns the text of a statement with its arguments.
pub(super) fn written(text: &str, args: &[Arg]) -> String {
    let mut filled = text.to_owned();
    if text.contains("{the_rows}") || text.contains("{count}") {
        let (rows, count) = rows(args);
        filled = filled
            .replace("{the_rows}", &rows)
            .replace("{count}", &count.to_string());
    }
    if text.contains("{the_groups}") {
        filled = filled.replace("{the_groups}", &groups(args));
    }
    let mut parts = filled.split('$');
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digit = part.bytes().next().filter(u8::is_ascii_digit);
        match digit.and_then(|digit| args.get(usize::from(digit - b'0').wrapping_sub(1))) {
            Some(arg) => {
                push(&mut written, arg);
                written.push_str(&part[1..]);
            }
            // A JSON path begins with this sign as well.
            None => {
                written.push('$');
                written.push_str(part);
            }
        }
    }
    written
}

fn push(text: &mut String, arg: &Arg) {
    let _ = match arg {
        Arg::Text(value) => write!(text, "X'{}'", hex(value)),
        Arg::Number(number) => write!(text, "{number}"),
        Arg::Flag(flag) => write!(text, "{}", u8::from(*flag)),
        Arg::Moment(moment) => {
            let micros = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
            write!(text, "{}", micros.as_micros())
        }
        // Lists are written as rows.
        Arg::Texts(_) | Arg::Numbers(_) => Ok(()),
    };
}

pub(super) fn hex(value: &str) -> String {
    topic::hex(value.as_bytes())
}

/// Returns the lists among the arguments as JSON, side by side, and their length.
fn rows(args: &[Arg]) -> (String, usize) {
    let lengths = args.iter().filter_map(|arg| match arg {
        Arg::Texts(texts) => Some(texts.len()),
        Arg::Numbers(numbers) => Some(numbers.len()),
        _ => None,
    });
    let count = lengths.min().unwrap_or(0);
    let row = |row: usize| {
        let columns = args.iter().map(|arg| match arg {
            Arg::Texts(texts) => format!("\"{}\"", hex(&texts[row])),
            Arg::Numbers(numbers) => numbers[row].to_string(),
            _ => "null".to_owned(),
        });
        format!("[{}]", columns.collect::<Vec<_>>().join(","))
    };
    let mut rows: Vec<String> = (0..count).map(row).collect();
    // Statements that lock several rows do so in one order, that of the names, so that no two of them wait for each
    // other.
    rows.sort();
    (format!("[{}]", rows.join(",")), count)
}

/// Returns names, holders and leases as JSON: for each name, in order, the leases of its holders.
fn groups(args: &[Arg]) -> String {
    let [Arg::Texts(names), Arg::Texts(holders), Arg::Numbers(leases)] = args else {
        return "[]".to_owned();
    };
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((name, holder), lease) in names.iter().zip(holders).zip(leases) {
        // The ids of holders are hexadecimal digits, `-` and `:`. Anything else never becomes a part of a statement.
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-:.".contains(&byte);
        if holder.bytes().all(safe) {
            let lease = format!("\"{holder}\":{lease}");
            groups.entry(name).or_default().push(lease);
        }
    }
    let groups = groups.iter().map(|(name, leases)| {
        let leases = leases.join(",");
        format!("[\"{}\",{{{leases}}}]", hex(name))
    });
    format!("[{}]", groups.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sql::kinds::renewals::checks::some_renewals_wait;
    use crate::backend::sql::statements::checks;

    #[test]
    fn every_statement_says_what_it_does_and_what_its_arguments_are() {
        checks::headers_are_complete("src/backend/mysql/sql");
    }

    #[test]
    fn no_statement_has_a_comment_or_other_placeholders_than_lists() {
        for statement in statements(&MysqlTarget::parse("mysql://h/db").unwrap()).all() {
            let text = &statement.text;
            assert!(!text.contains("--"), "{}", statement.name);
            let args = vec![
                Arg::Texts(vec!["n".to_owned()]),
                Arg::Texts(vec!["h".to_owned()]),
                Arg::Numbers(vec![1]),
            ];
            let written = written(text, &args).replace("{table}", "t");
            let open = written
                .split('{')
                .skip(1)
                .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
            assert_eq!(open.count(), 0, "{}: {written}", statement.name);
        }
    }

    #[test]
    fn renewals_leave_out_locked_rows_unless_they_wait_for_theirs() {
        some_renewals_wait(&statements(&MysqlTarget::parse("mysql://h/db").unwrap()));
    }

    #[test]
    fn arguments_are_literals_that_end_nowhere_else() {
        let text = "SELECT $1, '$.h', $2, $3 + 1";
        let args = [
            Arg::text("a'; --"),
            Arg::Number(-5),
            Arg::moment(1_000_001),
            Arg::Flag(true),
        ];
        assert_eq!(
            written(text, &args),
            "SELECT X'61273b202d2d', '$.h', -5, 1000001 + 1"
        );
    }

    #[test]
    fn lists_are_rows_in_the_order_of_their_names() {
        let texts = |texts: &[&str]| Arg::Texts(texts.iter().map(|&text| text.into()).collect());
        let args = [
            texts(&["b", "a", "b"]),
            texts(&["1:2", "3", "4"]),
            Arg::Numbers(vec![7, 8, 9]),
        ];
        let (rows, count) = rows(&args);
        assert_eq!(
            (rows.as_str(), count),
            (
                "[[\"61\",\"33\",8],[\"62\",\"313a32\",7],[\"62\",\"34\",9]]",
                3
            )
        );
        assert_eq!(
            groups(&args),
            "[[\"61\",{\"3\":8}],[\"62\",{\"1:2\":7,\"4\":9}]]"
        );
    }
}

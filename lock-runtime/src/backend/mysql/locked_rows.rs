//! Renewals beside a row that somebody else has locked: the others are renewed all the same.

use std::collections::HashSet;

use super::connection::Connection;
use super::connector::{Broken, answer};
use crate::backend::sql::statements::{Arg, Row, Statement, Value};

/// Whether it renews holds of several rows.
pub(super) fn has_several(statement: &Statement) -> bool {
    ["renew", "renew_shares"].contains(&statement.name)
}

/// Runs it for the rows that nobody has locked. Those that somebody has are answered with as not renewed.
pub(super) async fn without_them(
    connection: &mut Connection,
    unlocked: &str,
    statement: &Statement,
    args: &[Arg],
) -> Result<Vec<Row>, Broken> {
    let free = answer(connection, unlocked, args).await?;
    let free: HashSet<String> = free
        .into_iter()
        .filter_map(|row| row.word(0).ok())
        .collect();
    let (renewed, left): (Vec<usize>, Vec<usize>) = match args.first() {
        Some(Arg::Texts(names)) => (0..names.len()).partition(|&row| free.contains(&names[row])),
        _ => (Vec::new(), Vec::new()),
    };
    let mut rows = match renewed.is_empty() {
        true => Vec::new(),
        false => answer(connection, &statement.text, &only(args, &renewed)).await?,
    };
    if let [Arg::Texts(names), Arg::Texts(holders), ..] = args {
        rows.extend(left.into_iter().map(|row| {
            let text = |texts: &[String]| Value::Text(texts[row].clone());
            Row(vec![text(names), text(holders), Value::Number(0)])
        }));
    }
    Ok(rows)
}

/// The arguments with some rows of their lists.
fn only(args: &[Arg], rows: &[usize]) -> Vec<Arg> {
    args.iter()
        .filter_map(|arg| match arg {
            Arg::Texts(texts) => Some(Arg::Texts(
                rows.iter().map(|&row| texts[row].clone()).collect(),
            )),
            Arg::Numbers(numbers) => {
                Some(Arg::Numbers(rows.iter().map(|&row| numbers[row]).collect()))
            }
            _ => None,
        })
        .collect()
}

//! What the three ways to sell share: the tables, the answers and the statements.
//!
//! | way | who decides | use it when |
//! | --- | --- | --- |
//! | `sale_locked.rs` | the service, under a lock for each user | the order needs another system, such as a payment |
//! | `sale_fenced.rs` | the service, and the database refuses late ones | a late order would do harm |
//! | `sale_stream.rs` | a script in Redis; the database follows | the rush is more than the database can take |

use rusqlite::{Connection, Transaction, params};
use serde::Serialize;

/// No `UNIQUE (sale, user)`: stock, orders and payments often live in different systems. The way that writes an order a
/// second time after a crash has one for its own rows.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE sales (name TEXT PRIMARY KEY, stock INTEGER NOT NULL);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, sale TEXT NOT NULL, user INTEGER NOT NULL);
    CREATE INDEX orders_of_users ON orders (sale, user);";

/// The answer to a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Answer {
    Ordered(i64),
    AlreadyOrdered,
    SoldOut,
}

pub(crate) fn has_ordered(it: &Connection, sale: &str, user: i64) -> rusqlite::Result<bool> {
    it.prepare_cached("SELECT 1 FROM orders WHERE sale = ?1 AND user = ?2")?
        .exists(params![sale, user])
}

pub(crate) fn stock(it: &Connection, sale: &str) -> rusqlite::Result<i64> {
    it.prepare_cached("SELECT stock FROM sales WHERE name = ?1")?
        .query_row([sale], |row| row.get(0))
}

/// Takes a piece and writes the order, or finds that there is none left: the condition is part of the update.
pub(crate) fn take_one(
    it: &Transaction<'_>,
    sale: &str,
    user: i64,
    id: i64,
) -> rusqlite::Result<Answer> {
    let taken = it
        .prepare_cached("UPDATE sales SET stock = stock - 1 WHERE name = ?1 AND stock > 0")?
        .execute([sale])?;
    if taken == 0 {
        return Ok(Answer::SoldOut);
    }
    it.prepare_cached("INSERT INTO orders VALUES (?1, ?2, ?3)")?
        .execute(params![id, sale, user])?;
    Ok(Answer::Ordered(id))
}

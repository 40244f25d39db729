//! The kinds of stores.

use std::fmt;

/// The store in which a manager keeps its locks, as [`ManagerSnapshot`](crate::ManagerSnapshot) tells it.
///
/// See the example of [`ManagerSnapshot`](crate::ManagerSnapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
#[non_exhaustive]
pub enum StoreKind {
    /// A Redis server, with or without Sentinel, or a cluster of them.
    Redis,
    /// The memory of this process.
    Memory,
    /// A table of a PostgreSQL database.
    Postgres,
    /// A table of a MySQL or MariaDB database.
    Mysql,
    /// A majority of several independent stores.
    Quorum,
}

impl StoreKind {
    /// Returns its name in errors, logs and metrics: one word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            StoreKind::Redis => "redis",
            StoreKind::Memory => "memory",
            StoreKind::Postgres => "postgres",
            StoreKind::Mysql => "mysql",
            StoreKind::Quorum => "quorum",
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_metrics_names_every_store_and_no_other() {
        use StoreKind::{Memory, Mysql, Postgres, Quorum, Redis};
        let all = [Redis, Postgres, Mysql, Memory, Quorum];
        // A new store does not compile here until it is in the list as well.
        let number = |store| match store {
            Redis => 0,
            Postgres => 1,
            Mysql => 2,
            Memory => 3,
            Quorum => 4,
        };
        assert!(all.into_iter().map(number).eq(0..all.len()));
        let page = include_str!("../../docs/metrics.md");
        let row = page
            .lines()
            .find_map(|row| row.strip_prefix("| `store` | "));
        let named: Vec<&str> = row.unwrap().split('`').skip(1).step_by(2).collect();
        assert_eq!(named, all.map(StoreKind::name));
    }
}

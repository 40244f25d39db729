//! The kinds of stores.

use std::fmt;

/// Which store a manager keeps its locks in, as [`ManagerSnapshot`](crate::ManagerSnapshot) tells it.
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
    /// What errors, logs and metrics call it: one word.
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

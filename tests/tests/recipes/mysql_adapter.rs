//! A transaction of mysql_async.

use lock_runtime::{SqlDialect, SqlTransaction};
use mysql_async::prelude::Queryable;
use mysql_async::{Error, Transaction};

pub(super) struct Tx<'t, 'c>(pub(super) &'t mut Transaction<'c>);

impl SqlTransaction for Tx<'_, '_> {
    type Error = Error;
    const DIALECT: SqlDialect = SqlDialect::Mysql;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, Error> {
        let answer: Option<String> = self.0.exec_first(sql, params.to_vec()).await?;
        Ok(answer.unwrap_or_default())
    }
}

//! A transaction of sqlx.

use lock_runtime::SqlTransaction;
use sqlx::{PgConnection, query_scalar};

pub(super) struct Tx<'a>(pub(super) &'a mut PgConnection);

impl SqlTransaction for Tx<'_> {
    type Error = sqlx::Error;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, sqlx::Error> {
        let mut query = query_scalar(sql).persistent(false);
        for param in params {
            query = query.bind(*param);
        }
        query.fetch_one(&mut *self.0).await
    }
}

//! What a `mysql://` URL names: a server, and how locks are kept there.

use std::fmt;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder};

use crate::backend::sql::table::Table;
use crate::backend::sql::url::{Settings, split};
use crate::values::error::{LockError, config};

/// How long a connection may be silent before it is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// What a URL names.
#[derive(Clone)]
pub(crate) struct Target {
    pub(super) opts: Opts,
    pub(super) table: Table,
    /// How many connections there may be for requests.
    pub(super) pool: usize,
    shown: String,
}

impl Target {
    /// Reads a URL of either scheme. The errors never repeat it: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Target, LockError> {
        let (place, query) = split(url);
        let (mut settings, mut socket) = (Settings::default(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if settings.take(pair)? {
                continue;
            }
            match pair.split_once('=') {
                Some(("socket", path)) if path.starts_with('/') => socket = Some(path.to_owned()),
                Some(("socket", _)) => {
                    return Err(config("`socket` is the absolute path of a Unix socket"));
                }
                _ => return Err(unknown(pair)),
            }
        }
        let (_, rest) = place.split_once("://").ok_or_else(unreadable)?;
        let plain = format!("mysql://{rest}");
        let opts = Opts::from_url(&plain).map_err(|_| unreadable())?;
        if opts.ip_or_hostname().is_empty() {
            return Err(config("the MySQL URL names no host"));
        }
        let database = opts.db_name().unwrap_or_default();
        let shown = match &socket {
            Some(path) => format!("{path}/{database}"),
            None => format!("{}:{}/{database}", opts.ip_or_hostname(), opts.tcp_port()),
        };
        let opts = OptsBuilder::from_opts(opts)
            .socket(socket)
            // A loopback address may be that of a proxy.
            .prefer_socket(false)
            // Affected rows are those that were changed.
            .client_found_rows(false)
            .stmt_cache_size(0)
            .tcp_keepalive(Some(KEEPALIVE))
            .tcp_nodelay(true);
        Ok(Target {
            opts: opts.into(),
            table: settings.table,
            pool: settings.pool,
            shown,
        })
    }

    /// What errors and logs call it: without user and password.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether both fail together, as far as their URLs tell.
    pub(crate) fn is_one_with(&self, other: &Target) -> bool {
        let place = |target: &Target| {
            let opts = &target.opts;
            let socket = opts.socket().map(str::to_owned);
            (socket, opts.ip_or_hostname().to_owned(), opts.tcp_port())
        };
        place(self) == place(other)
    }
}

fn unreadable() -> LockError {
    config(
        "the MySQL URL cannot be read: it is mysql://user:password@host:port/database; in the user and the password, \
         `%`, `@`, `:`, `/`, `?` and `#` are percent-encoded",
    )
}

fn unknown(pair: &str) -> LockError {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    // A part of a password that was not encoded is not shown.
    match name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    {
        true if name.contains("ssl") || name.contains("tls") => config(format!(
            "`{name}` is about TLS, which MySQL connections of this library do not have yet"
        )),
        true => config(format!(
            "the MySQL URL has an unknown parameter, `{name}`: there are `lock_table`, `lock_pool` and `socket`"
        )),
        false => unreadable(),
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("server", &self.shown)
            .field("table", &self.table.name())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_server_table_and_pool_and_shows_no_password() {
        let url = "mysql://app:hunter2@db.example:3307/orders?lock_table=app.locks&lock_pool=3";
        let target = Target::parse(url).unwrap();
        assert_eq!(target.shown(), "db.example:3307/orders");
        assert_eq!((target.table.name(), target.pool), ("app.locks", 3));
        assert!(!format!("{target:?}").contains("hunter2"));
        let other = Target::parse("MariaDB://u@h/x?socket=/run/my.sock").unwrap();
        assert_eq!((other.shown(), other.pool), ("/run/my.sock/x", 8));
        assert_eq!(other.table, Table::default());
        assert!(!target.opts.client_found_rows() && !target.opts.prefer_socket());
    }

    #[test]
    fn a_url_that_makes_no_sense_is_refused_with_what_is_wrong_and_without_its_password() {
        for (url, names) in [
            ("mysql://u:hunter2@h/db?lock_table=a;b", "lock_table"),
            ("mysql://u:hunter2@h/db?lock_pool=1", "lock_pool"),
            ("mysql://u:hunter2@h/db?look_table=a", "`look_table`"),
            ("mysql://u:hunter2@h/db?require_ssl=true", "TLS"),
            ("mysql://u:hunter2@h/db?socket=x", "absolute"),
            ("mysql://u:hunter2@h:port/db", "percent-encoded"),
            ("mysql://u:a?hunter2@h/db?lock_pool=x", "lock_pool"),
        ] {
            let error = Target::parse(url).map(|target| target.shown).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(names), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn urls_of_one_server_are_one() {
        let target = |url| Target::parse(url).unwrap();
        let one = target("mysql://a@h/x");
        assert!(one.is_one_with(&target("mariadb://b@h:3306/y?lock_table=z")));
        assert!(!one.is_one_with(&target("mysql://a@h:3307/x")));
    }
}

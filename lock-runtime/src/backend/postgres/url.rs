//! The target that a `postgres://` URL names: a server, and the settings of the locks there.

use std::time::Duration;

use tokio_postgres::Config;

use super::hosts;
use crate::backend::kit::url_options::UrlOptions;
use crate::backend::sql::url::{self, Settings, one_by_one, split};
use crate::values::{LockError, config};

/// The time for which a connection may be silent before it is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The target that a URL names.
pub(crate) type PostgresTarget = url::SqlTarget<Config>;

impl PostgresTarget {
    /// Reads a URL. The errors never repeat it: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<PostgresTarget, LockError> {
        let (place, query) = split(url)?;
        let mut options = UrlOptions::as_written(query);
        let settings = Settings::take(&mut options, &["sslmode"], str::to_owned)?;
        let notify = options.take_switch("lock_notify")?.unwrap_or(true);
        let others = options.take_all(KNOWN, "those of libpq");
        // The driver would decode a name such as `%73slmode`, which nothing above has seen.
        options.finish()?;
        let others = others.iter().map(|(name, value)| format!("{name}={value}"));
        let others: Vec<String> = others.collect();
        let mut hosts = Vec::new();
        for place in one_by_one(&place) {
            let plain = if others.is_empty() {
                place
            } else {
                format!("{place}?{}", others.join("&"))
            };
            let mut config: Config = plain.parse().map_err(|_| unreadable())?;
            if config.get_hosts().is_empty() {
                return Err(self::config("the PostgreSQL URL names no host"));
            }
            hosts::encrypt(settings.encryption, &mut config)?;
            // Keepalives notice a connection that was cut in silence. Settings of the URL take precedence.
            let says = |name: &str| others.iter().any(|pair| pair.starts_with(name));
            if !says("keepalives") {
                config.keepalives_idle(KEEPALIVE);
                config.keepalives_interval(KEEPALIVE / 3);
                config.keepalives_retries(3);
            }
            if !says("tcp_user_timeout") {
                config.tcp_user_timeout(KEEPALIVE * 2);
            }
            if config.get_application_name().is_none() {
                config.application_name("lock-runtime");
            }
            hosts.push(config);
        }
        if hosts.len() > 1 {
            hosts.iter_mut().for_each(hosts::look_for_the_primary);
        }
        Ok(PostgresTarget {
            notify,
            ..PostgresTarget::new(hosts, settings)
        })
    }
}

/// The options that tokio-postgres reads from a URL's query.
const KNOWN: &str = "user password dbname options application_name sslnegotiation host hostaddr port connect_timeout \
    tcp_user_timeout keepalives keepalives_idle keepalives_interval keepalives_retries target_session_attrs \
    channel_binding load_balance_hosts require_auth";

fn unreadable() -> LockError {
    url::unreadable("PostgreSQL", "postgres")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sql::Table;

    #[test]
    fn a_url_names_server_table_and_pool_and_shows_no_password() {
        let url = "postgres://app:hunter2@db.example:6432/orders?lock_table=app.locks&lock_pool=3&lock_notify=off";
        let target = PostgresTarget::parse(url).unwrap();
        assert_eq!(target.shown, "db.example:6432/orders");
        assert_eq!(target.table.name(), "app.locks");
        assert_eq!(target.table.own_name(), "locks");
        assert_eq!((target.pool, target.notify), (3, false));
        assert!(!format!("{target:?}").contains("hunter2"));
        let odd = PostgresTarget::parse("postgres://u:hunter2?x@h/db?lock_pool=3").unwrap();
        assert_eq!((&*odd.shown, odd.pool), ("h:5432/db", 3));
        let several =
            PostgresTarget::parse("postgres://u:hunter2@a,b:1,[::1]:2/db?lock_pool=3").unwrap();
        assert_eq!(several.shown, "a:5432,b:1,::1:2/db");
        let plain = PostgresTarget::parse("postgresql://localhost/").unwrap();
        assert_eq!(plain.table.name(), Table::NAME);
        assert_eq!((plain.pool, plain.notify), (8, true));
    }

    #[test]
    fn a_bad_url_is_refused_with_a_reason_and_no_password() {
        for (url, names) in [
            ("postgres://u:hunter2@h/db?lock_table=a;b", "lock_table"),
            ("postgres://u:hunter2@h/db?lock_table=A", "lock_table"),
            ("postgres://u:hunter2@h/db?lock_table=a.b.c", "lock_table"),
            ("postgres://u:hunter2@h/db?lock_pool=1", "lock_pool"),
            ("postgres://u:hunter2@h/db?lock_notify=maybe", "lock_notify"),
            ("postgres://u:hunter2@h/db?look_table=a", "`look_table`"),
            (
                "postgres://u:hunter2@h/db?%73slmode=require",
                "percent-encoded",
            ),
            ("postgres://u:hunter2@h:port/db", "percent-encoded"),
            ("postgres:///db", "no host"),
        ] {
            let error = PostgresTarget::parse(url).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(names), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[cfg(feature = "tls-rustls")]
    #[test]
    fn tls_is_on_although_a_later_parameter_has_an_at_sign() {
        let url = "postgres://u:p@h/db?sslmode=require&application_name=a@b";
        let target = PostgresTarget::parse(url).unwrap();
        assert_eq!(target.encryption, crate::backend::sql::Encryption::Verified);
        let host = &target.hosts.each()[0];
        assert_eq!(host.get_application_name(), Some("a@b"));
        let several = PostgresTarget::parse("postgres://u:p?q@h,i/db?sslmode=verify-full").unwrap();
        assert_eq!(several.shown, "h:5432,i:5432/db");
    }

    #[cfg(not(feature = "tls-rustls"))]
    #[test]
    fn tls_names_the_feature_that_it_needs() {
        let refused =
            PostgresTarget::parse("postgres://u:hunter2@h/db?sslmode=verify-full").map(drop);
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("`tls-rustls`") && !said.contains("hunter2"),
            "{said}"
        );
        assert!(PostgresTarget::parse("postgres://u@h/db?sslmode=disable").is_ok());
    }
}
